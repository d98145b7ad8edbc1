/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * edges ADDRESS [ADDRESS]: one pool under the devices of these addresses, and memory from elsewhere:
 * traffic on both with all contents compared, a device's domain removed while the other goes on,
 * imports that can't be written (case 11), files, and hugepages.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "pair.h"

#define PAGE   4096
#define SIZE   20000 /* of a chunk: not whole pages */
#define ROUNDS 100

static struct pair pair[2];
static int npairs;
static struct sgp_pool *pool;

static uint8_t byte_at(unsigned int seed, size_t i)
{
	return (uint8_t)(seed * 131 + i * 7 + i / 251);
}

static void fill(uint8_t *to, size_t n, unsigned int seed)
{
	for (size_t i = 0; i < n; i++)
		to[i] = byte_at(seed, i);
}

/* What the list's memory has, over all of its SGEs. */
static void compare(const struct sgp_sgl *sgl, size_t n, unsigned int seed)
{
	size_t at = 0;

	for (int i = 0; i < sgl->num_sge; i++) {
		const uint8_t *p = (const uint8_t *)(uintptr_t)sgl->sge[i].addr;

		for (uint32_t j = 0; j < sgl->sge[i].length; j++, at++)
			NEED(p[j] == byte_at(seed, at), "byte %zu", at);
	}
	NEED(at == n, "%zu bytes, not %zu", at, n);
}

/* A list over chunks that are far from each other, whose slices make one stream. */
static size_t make_list(struct sgp_sgl *sgl, int n, unsigned int seed)
{
	uint8_t stream[PAIR_SGES * SIZE];
	size_t at = 0;

	fill(stream, sizeof stream, seed);
	for (int i = 0; i < n; i++) {
		struct sgp_chunk *chunk = sgp_pool_get(pool, SIZE, 0);
		size_t length = SIZE - 16 * (1 + seed % 64 + (unsigned int)i);

		NEED(chunk, "%s", sgp_errmsg());
		memcpy((char *)sgp_chunk_addr(chunk) + 8, stream + at, length);
		DO(sgp_sgl_append(sgl, chunk, 8, length));
		at += length;
	}
	return at;
}

static void receive(struct pair *p, int end, size_t n)
{
	SGP_SGL(sgl, PAIR_SGES);

	DO(sgp_sgl_get(&sgl, pool, SIZE, (int)((n + SIZE - 1) / SIZE), 0));
	DO(sgp_post_recvv(p->side[end].ep, NULL, &sgl));
}

/* Send what is in the list; what the other end got stays in its completion. */
static void carry(struct pair *p, int from, struct sgp_sgl *sgl, unsigned int seed)
{
	size_t n = sgl->length;

	receive(p, !from, n);
	DO(sgp_post_sendv(p->side[from].ep, NULL, sgl, IBV_SEND_SIGNALED));
	pair_reap(p, from);
	pair_reap(p, !from);
	compare(&p->side[!from].wc->sgl, n, seed);
}

static void traffic(int rounds)
{
	for (unsigned int round = 0; round < (unsigned int)rounds; round++) {
		for (int i = 0; i < npairs; i++) {
			struct pair *p = &pair[i];
			int from = round % 2;
			SGP_SGL(sgl, PAIR_SGES);

			make_list(&sgl, 1 + (int)(round % 5), round + (unsigned int)i);
			carry(p, from, &sgl, round + (unsigned int)i);
			/* What came in through one device goes on through the other. */
			if (npairs == 2 && round % 4 == 0)
				carry(&pair[!i], from, &p->side[!from].wc->sgl,
				      round + (unsigned int)i);
			sgp_sgl_clear(&p->side[!from].wc->sgl);
		}
	}
}

/* Both ends' memory by READ, and by WRITE, under each device's own remote key. */
static void one_sided(struct pair *p)
{
	struct sgp_chunk *far = sgp_pool_get(pool, SIZE, 0);
	uint32_t rkey;
	SGP_SGL(sgl, PAIR_SGES);

	NEED(far, "%s", sgp_errmsg());
	DO(sgp_chunk_keys(far, p->pd, NULL, &rkey));
	fill(sgp_chunk_addr(far), SIZE, 77);
	for (int i = 0; i < 2; i++)
		DO(sgp_sgl_append(&sgl, sgp_pool_get(pool, SIZE, 0), 0, SIZE / 2));
	DO(sgp_post_readv(p->side[0].ep, NULL, &sgl, 0, (uintptr_t)sgp_chunk_addr(far), rkey));
	pair_reap(p, 0);
	compare(&p->side[0].wc->sgl, SIZE, 77);
	memset(sgp_chunk_addr(far), 0, SIZE);
	DO(sgp_post_writev(p->side[0].ep, NULL, &p->side[0].wc->sgl, IBV_SEND_SIGNALED,
			   (uintptr_t)sgp_chunk_addr(far), rkey));
	pair_reap(p, 0);
	/* Its completion says that the bytes are there on InfiniBand only; a message behind it, on all. */
	make_list(&sgl, 1, 78);
	carry(p, 0, &sgl, 78);
	sgp_sgl_clear(&p->side[1].wc->sgl);
	for (size_t i = 0; i < SIZE; i++)
		NEED(((uint8_t *)sgp_chunk_addr(far))[i] == byte_at(77, i), "byte %zu", i);
	sgp_chunk_put(far);
}

/* ---- memory from elsewhere ---- */

static struct sgp_import *import(void *addr, uint32_t flags, int fd, size_t length)
{
	struct sgp_import_attr attr = {.addr = addr, .flags = flags, .fd = fd, .length = length};

	return sgp_pool_import(pool, &attr);
}

/* Send the import's bytes on every device; they are the stream that seed makes. */
static void send_import(struct sgp_import *imp, unsigned int seed)
{
	for (int i = 0; i < npairs; i++) {
		SGP_SGL(sgl, PAIR_SGES);

		DO(sgp_sgl_append_region(&sgl, imp, 0, sgp_import_size(imp)));
		carry(&pair[i], 0, &sgl, seed);
		sgp_sgl_clear(&pair[i].side[1].wc->sgl);
	}
}

/* Receive into it on every device. */
static void receive_import(struct sgp_import *imp)
{
	for (int i = 0; i < npairs; i++) {
		struct pair *p = &pair[i];
		size_t n;
		SGP_SGL(in, PAIR_SGES);
		SGP_SGL(out, PAIR_SGES);

		memset(sgp_import_addr(imp), 0, sgp_import_size(imp));
		n = make_list(&out, 1, 5);
		DO(sgp_sgl_append_addr(&in, pool, sgp_import_addr(imp), n));
		DO(sgp_post_recvv(p->side[1].ep, NULL, &in));
		NEED(sgp_pool_unimport(pool, imp) == -1 && errno == EBUSY, "errno %d", errno);
		DO(sgp_post_sendv(p->side[0].ep, NULL, &out, IBV_SEND_SIGNALED));
		pair_reap(p, 0);
		pair_reap(p, 1);
		compare(&p->side[1].wc->sgl, n, 5);
		NEED(!memcmp(sgp_import_addr(imp),
			     (void *)(uintptr_t)p->side[1].wc->sgl.sge[0].addr, n),
		     "it came elsewhere");
		sgp_sgl_clear(&p->side[1].wc->sgl);
	}
}

static bool kernel_pins_shared_read_only(void)
{
	struct utsname name;
	int major = 0, minor = 0;

	uname(&name);
	sscanf(name.release, "%d.%d", &major, &minor);
	return major > 6 || (major == 6 && minor >= 2);
}

/* Case 11. */
static void read_only(void)
{
	char name[] = "edges.XXXXXX";
	int rw = mkstemp(name), ro = open(name, O_RDONLY);
	uint8_t stream[SIZE];
	struct sgp_import *imp;
	void *anon, *private, *shared;
	SGP_SGL(sgl, PAIR_SGES);

	fill(stream, SIZE, 11);
	NEED(rw >= 0 && ro >= 0 && write(rw, stream, SIZE) == SIZE, "errno %d", errno);
	anon = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(anon, stream, SIZE);
	DO(mprotect(anon, SIZE, PROT_READ));
	private = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE, ro, 0);
	shared = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, ro, 0);
	for (int i = 0; i < 2; i++) {
		void *mem = i ? private : anon;

		imp = import(mem, SGP_IMPORT_READ_ONLY, -1, SIZE);
		NEED(imp, "%s", sgp_errmsg());
		send_import(imp, 11);
		DO(sgp_sgl_append_region(&sgl, imp, 0, 100));
		for (int k = 0; k < npairs; k++) {
			NEED(sgp_post_recvv(pair[k].side[0].ep, NULL, &sgl) == -1 &&
				     errno == EACCES,
			     "errno %d", errno);
			NEED(sgp_post_readv(pair[k].side[0].ep, NULL, &sgl, 0, 0, 0) == -1 &&
				     errno == EACCES,
			     "errno %d", errno);
		}
		sgp_sgl_clear(&sgl);
		DO(sgp_pool_unimport(pool, imp));
		NEED(!import(mem, 0, -1, SIZE) && errno == EFAULT, "errno %d", errno);
		printf("  for receiving: %s\n", sgp_errmsg());
	}
	imp = import(shared, SGP_IMPORT_READ_ONLY, -1, SIZE);
	if (kernel_pins_shared_read_only()) {
		NEED(imp, "%s", sgp_errmsg());
		send_import(imp, 11);
		DO(sgp_pool_unimport(pool, imp));
	} else {
		NEED(!imp && errno == EFAULT, "errno %d", errno);
		printf("  shared: %s\n", sgp_errmsg());
	}
	/* By a descriptor that can be written it can be done on all kernels. */
	imp = import(NULL, SGP_IMPORT_FILE | SGP_IMPORT_READ_ONLY, rw, SIZE);
	NEED(imp, "%s", sgp_errmsg());
	send_import(imp, 11);
	DO(sgp_pool_unimport(pool, imp));
	munmap(anon, SIZE);
	munmap(private, SIZE);
	munmap(shared, SIZE);
	close(rw);
	close(ro);
	unlink(name);
}

static void file(unsigned int memfd_flags)
{
	size_t page = memfd_flags & MFD_HUGETLB ? (size_t)2 << 20 : PAGE;
	int fd = memfd_create("edges", MFD_CLOEXEC | memfd_flags);
	size_t length = page + SIZE;
	struct sgp_import *imp;

	NEED(fd >= 0 && !ftruncate(fd, (off_t)(2 * page > length ? 2 * page : 8 * page)),
	     "errno %d", errno);
	imp = import(NULL, SGP_IMPORT_FILE, fd, length);
	NEED(imp, "%s", sgp_errmsg());
	receive_import(imp);
	DO(sgp_pool_unimport(pool, imp));
	imp = import(NULL, SGP_IMPORT_FILE, fd, SIZE);
	NEED(imp, "%s", sgp_errmsg());
	fill(sgp_import_addr(imp), SIZE, 13);
	send_import(imp, 13);
	DO(sgp_pool_unimport(pool, imp));
	/* These devices have no dma-buf. */
	NEED(!import(NULL, SGP_IMPORT_DMABUF, fd, PAGE) && errno == EOPNOTSUPP, "errno %d", errno);
	close(fd);
}

/* ---- domains ---- */

static void make_pool(void)
{
	/* Regions of two chunks, so that lists go over several. */
	struct sgp_class_attr cls = {.size = SIZE, .chunks = 48, .max_chunks = 64};
	struct sgp_pool_attr attr = {.classes = &cls,
				     .nclasses = 1,
				     .pages = SGP_PAGES_BASE,
				     .region_bytes = 12 * PAGE,
				     .flags = SGP_POOL_READ_SINK | SGP_POOL_REMOTE_READ |
					      SGP_POOL_REMOTE_WRITE};

	pool = sgp_pool_create(pair[0].pd, &attr);
	NEED(pool, "%s", sgp_errmsg());
}

static void expect_domains(uint64_t domains)
{
	struct sgp_pool_stats stats;

	DO(sgp_pool_stats(pool, &stats));
	NEED(stats.registrations - stats.deregistrations == stats.regions * domains,
	     "%llu of %llu regions",
	     (unsigned long long)(stats.registrations - stats.deregistrations),
	     (unsigned long long)stats.regions);
	NEED(stats.live == 0, "%llu chunks are held", (unsigned long long)stats.live);
}

/* The device that the pool was made on goes; the other has all of it. */
static void first_goes(void)
{
	struct sgp_chunk *held = sgp_pool_get(pool, SIZE, 0);
	SGP_SGL(old, PAIR_SGES);
	size_t n;

	fill(sgp_chunk_addr(held), SIZE, 21);
	n = make_list(&old, 3, 22);
	NEED(sgp_pool_remove_pd(pool, pair[0].pd) == -1 && errno == EBUSY, "errno %d", errno);
	pair_close(&pair[0]);
	DO(sgp_pool_remove_pd(pool, pair[0].pd));
	DO(ibv_dealloc_pd(pair[0].pd));
	pair[0] = pair[1];
	npairs = 1;
	DO(sgp_pool_grow(pool, SIZE, 8));
	traffic(10);
	one_sided(&pair[0]);
	carry(&pair[0], 0, &old, 22);
	sgp_sgl_clear(&pair[0].side[1].wc->sgl);
	DO(sgp_sgl_append(&old, held, 0, SIZE));
	carry(&pair[0], 0, &old, 21);
	sgp_sgl_clear(&pair[0].side[1].wc->sgl);
	(void)n;
	expect_domains(1);
}

int main(int argc, char **argv)
{
	NEED(argc == 2 || argc == 3, "edges ADDRESS [ADDRESS]");
	setvbuf(stdout, NULL, _IOLBF, 0);
	npairs = argc - 1;
	for (int i = 0; i < npairs; i++) {
		pair_resolve(&pair[i], argv[1 + i]);
		printf("%s\n", pair[i].name);
	}
	make_pool();
	expect_domains(1);
	for (int i = 1; i < npairs; i++)
		DO(sgp_pool_add_pd(pool, pair[i].pd));
	expect_domains((uint64_t)npairs);
	for (int i = 0; i < npairs; i++)
		pair_connect(&pair[i]);
	traffic(ROUNDS);
	for (int i = 0; i < npairs; i++)
		one_sided(&pair[i]);
	printf("traffic: as it was sent\n");
	read_only();
	printf("read-only memory: sent, and never written\n");
	file(0);
	file(MFD_HUGETLB);
	printf("files: sent and received into\n");
	expect_domains((uint64_t)npairs);
	if (npairs == 2) {
		first_goes();
		printf("the first device went, the other has all\n");
	}
	pair_close(&pair[0]);
	DO(sgp_pool_destroy(pool));
	DO(ibv_dealloc_pd(pair[0].pd));
	return 0;
}
