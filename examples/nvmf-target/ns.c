/* SPDX-License-Identifier: BSD-2-Clause */
/* A namespace's file (see ns.h). */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ns.h"

#define PAGE 4096

static int fail(const char *path, const char *what)
{
	fprintf(stderr, "sgpool-nvmf-target: %s: %s\n", path, what);
	return -1;
}

/* FNV-1a of 128 bits. */
unsigned __int128 ns_digest(const char *a, const char *b)
{
	const unsigned __int128 prime = ((unsigned __int128)1 << 88) + 0x13b;
	unsigned __int128 hash = (unsigned __int128)0x6c62272e07bb0142 << 64 | 0x62b821756295c58d;
	const char *const text[] = {a, b};

	for (int i = 0; i < 2; i++) {
		const char *p = text[i];

		do { /* the 0 at the end too: it tells "ab" + "c" from "a" + "bc" */
			hash ^= (uint8_t)*p;
			hash *= prime;
		} while (*p++);
	}
	return hash;
}

static void store(unsigned __int128 number, uint8_t id[16])
{
	for (int i = 15; i >= 0; i--, number >>= 8)
		id[i] = (uint8_t)number;
}

/* A UUID of version 8 (RFC 9562): its bits are ours to choose. */
static void make_ids(struct ns *ns, const char *nqn)
{
	store(ns_digest(nqn, ns->path), ns->uuid);
	ns->uuid[6] = (uint8_t)((ns->uuid[6] & 0x0f) | 0x80);
	ns->uuid[8] = (uint8_t)((ns->uuid[8] & 0x3f) | 0x80);
	store(ns_digest(ns->path, nqn), ns->nguid);
}

/* Whether direct I/O takes pieces of so many bytes. */
static bool takes(int fd, uint32_t bytes)
{
	void *page = aligned_alloc(PAGE, PAGE);
	bool ok = page && pread(fd, page, bytes, bytes) >= 0;

	free(page);
	return ok;
}

static int open_file(struct ns *ns, bool read_only)
{
	const int flags = (read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC;

	ns->fd = open(ns->path, flags | O_DIRECT);
	ns->direct = ns->fd >= 0;
	if (ns->fd < 0 && errno == EINVAL) /* a file system without direct I/O */
		ns->fd = open(ns->path, flags);
	return ns->fd < 0 ? fail(ns->path, strerror(errno)) : 0;
}

static int get_size(struct ns *ns, uint64_t *size)
{
	struct stat st;

	if (fstat(ns->fd, &st))
		return fail(ns->path, strerror(errno));
	ns->block_device = S_ISBLK(st.st_mode);
	if (!ns->block_device && !S_ISREG(st.st_mode))
		return fail(ns->path, "neither a file nor a block device");
	*size = (uint64_t)st.st_size;
	if (ns->block_device && ioctl(ns->fd, BLKGETSIZE64, size))
		return fail(ns->path, strerror(errno));
	return 0;
}

/* Returns the size of a block; 0 after a line on stderr. */
static uint32_t choose_block(const struct ns *ns, uint32_t wanted)
{
	int least = 512;

	if (ns->block_device && ioctl(ns->fd, BLKSSZGET, &least)) {
		fail(ns->path, strerror(errno));
		return 0;
	}
	if (!wanted)
		wanted = ns->direct && (least > 512 || !takes(ns->fd, 512)) ? 4096 : 512;
	if (ns->direct && ((int)wanted < least || !takes(ns->fd, wanted))) {
		fail(ns->path,
		     "its blocks are larger than that for direct I/O: another bs is needed");
		return 0;
	}
	return wanted;
}

int ns_open(const struct ns_option *opt, const char *nqn, struct ns *ns, struct capsule_ns *limits)
{
	uint64_t size = 0;
	uint32_t block;

	*ns = (struct ns){.fd = -1};
	if (!realpath(opt->path, ns->path))
		return fail(opt->path, strerror(errno));
	if (open_file(ns, opt->read_only))
		return -1;
	if (get_size(ns, &size))
		goto fail;
	block = choose_block(ns, opt->block_size);
	if (!block)
		goto fail;
	*limits = (struct capsule_ns){.blocks = size / block,
				      .block_shift = (uint32_t)__builtin_ctz(block),
				      .read_only = opt->read_only};
	if (!limits->blocks) {
		fail(ns->path, "smaller than a block");
		goto fail;
	}
	make_ids(ns, nqn);
	return 0;
fail:
	ns_close(ns);
	return -1;
}

void ns_close(struct ns *ns)
{
	if (ns->fd >= 0)
		close(ns->fd);
	ns->fd = -1;
}
