/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Address space and pages, see memory.h.
 *
 * Base pages are made accessible and inaccessible by mprotect(2), which leaves everything as it was
 * when it fails. Hugepages are mapped and touched elsewhere first, then moved in: mmap(2) with
 * MAP_FIXED|MAP_HUGETLB unmaps the target before it finds that there are no hugepages, and leaves a
 * hole in the range in which somebody else's mapping may come to lie. A hole that could not be
 * plugged at once is "lost": never used again, and not unmapped at the end.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pool/advice.h"
#include "pool/errmsg.h"
#include "pool/memory.h"
#include "pool/populate.h"
#include "sgp_config.h"

#if SGP_HAVE_NUMA
#include <numaif.h>
#endif

#ifndef MAP_HUGE_SHIFT
#define MAP_HUGE_SHIFT 26
#endif

#define SHIFT_2M 21
#define SHIFT_1G 30

enum {
	GRANULE_FREE = 0,
	GRANULE_USED,
	GRANULE_LOST
};

/* One kind of page to try. shift 0: base pages. */
struct kind {
	unsigned int shift;
	bool thp;
	bool required;
};

size_t sgp_page_size(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

static int advise(void *addr, size_t bytes)
{
	if (madvise(addr, bytes, MADV_DONTFORK))
		return -1;
	return madvise(addr, bytes, MADV_DONTDUMP);
}

static void *reserve_addresses(size_t bytes, void *hint, int flags)
{
	return mmap(hint, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1,
		    0);
}

int sgp_memory_reserve(struct sgp_memory *mem, size_t bytes, unsigned int shift, size_t align)
{
	size_t granule = (size_t)1 << shift;
	size_t all, head;
	char *map;

	if (align < granule)
		align = granule;
	if (bytes > SIZE_MAX / 4 || align > SIZE_MAX / 4)
		return sgp_fail(ENOMEM, "%zu bytes of addresses are more than there are", bytes);
	bytes = sgp_round_up(bytes, granule);
	all = bytes + align;
	map = reserve_addresses(all, NULL, 0);
	if (map == MAP_FAILED)
		return sgp_fail(errno, "reserving %zu bytes of addresses failed: %s", all,
				strerror(errno));
	head = sgp_round_up((uintptr_t)map, align) - (uintptr_t)map;
	if (head)
		munmap(map, head);
	munmap(map + head + bytes, all - bytes - head);
	*mem = (struct sgp_memory){
		.base = map + head, .bytes = bytes, .shift = shift, .granules = bytes >> shift};
	/* A byte a granule, zero pages until used. */
	mem->state = mmap(NULL, mem->granules, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (mem->state == MAP_FAILED || advise(mem->base, bytes)) {
		int err = errno;

		munmap(mem->base, bytes);
		if (mem->state != MAP_FAILED)
			munmap(mem->state, mem->granules);
		return sgp_fail(err, "reserving %zu bytes of addresses failed: %s", bytes,
				strerror(err));
	}
	return 0;
}

void sgp_memory_release(struct sgp_memory *mem)
{
	size_t from = 0, i;

	for (i = 0; i < mem->used_up_to; i++) {
		if (mem->state[i] != GRANULE_LOST)
			continue;
		if (i > from)
			munmap(mem->base + (from << mem->shift), (i - from) << mem->shift);
		from = i + 1;
	}
	if (from < mem->granules)
		munmap(mem->base + (from << mem->shift), (mem->granules - from) << mem->shift);
	munmap(mem->state, mem->granules);
}

static size_t granules_for(const struct sgp_memory *mem, size_t bytes)
{
	return sgp_round_up(bytes, (size_t)1 << mem->shift) >> mem->shift;
}

/* First fit. Returns the first granule of a free run on a boundary of align; granules if none. */
static size_t find_free(const struct sgp_memory *mem, size_t n, size_t align)
{
	size_t step = align >> mem->shift, start = 0, i;

	if (step == 0)
		step = 1;
	while (start + n <= mem->granules) {
		for (i = start; i < start + n && i < mem->used_up_to; i++)
			if (mem->state[i] != GRANULE_FREE)
				break;
		if (i == start + n || i >= mem->used_up_to)
			return start;
		start = sgp_round_up(i + 1, step);
	}
	return mem->granules;
}

static void mark(struct sgp_memory *mem, size_t first, size_t n, uint8_t state)
{
	memset(mem->state + first, state, n);
	if (first + n > mem->used_up_to)
		mem->used_up_to = first + n;
}

/* The memory's NUMA node, before the first touch. Returns a positive errno. */
static int place(char *addr, size_t bytes, int node)
{
#if SGP_HAVE_NUMA
	unsigned long mask[16] = {0};
	const unsigned long bits = 8 * sizeof mask[0];

	if (node < 0)
		return 0;
	if ((unsigned long)node >= bits * 16)
		return EINVAL;
	mask[(unsigned long)node / bits] = 1ul << ((unsigned long)node % bits);
	if (mbind(addr, bytes, MPOL_BIND, mask, bits * 16, 0))
		return errno;
	return 0;
#else
	(void)addr;
	(void)bytes;
	return node < 0 ? 0 : EOPNOTSUPP;
#endif
}

static void make_inaccessible(char *addr, size_t bytes)
{
	madvise(addr, bytes, MADV_DONTNEED);
	mprotect(addr, bytes, PROT_NONE);
}

static int commit_base(char *addr, size_t bytes, const struct sgp_backing *backing, bool thp)
{
	int err;

	if (mprotect(addr, bytes, PROT_READ | PROT_WRITE))
		return errno;
	/* Advice only: where there are no transparent hugepages the memory is as good. */
	madvise(addr, bytes, thp ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	err = place(addr, bytes, backing->node);
	/* After ibv_fork_init(3), ibv_dereg_mr(3) lets a child have what was registered here before. */
	if (!err && advise(addr, bytes))
		err = errno;
	if (!err)
		err = sgp_populate(addr, bytes, sgp_page_size(), backing);
	if (err)
		make_inaccessible(addr, bytes);
	return err;
}

/* The addresses have nothing behind them now: reserve them again, or never use them any more. */
static void plug(struct sgp_memory *mem, char *addr, size_t bytes)
{
	size_t first = sgp_memory_granule(mem, addr);
	char *got = reserve_addresses(bytes, addr, MAP_FIXED_NOREPLACE);

	if (got == addr) {
		advise(addr, bytes);
		return;
	}
	if (got != MAP_FAILED)
		munmap(got, bytes); /* a kernel before 4.17, which takes the address as a hint */
	mark(mem, first, granules_for(mem, bytes), GRANULE_LOST);
}

/*
 * Map hugepages elsewhere, make them present, move them in. Moving hugepages is Linux 5.16.
 */
static int commit_huge(struct sgp_memory *mem, char *addr, size_t bytes,
		       const struct sgp_backing *backing, unsigned int shift)
{
	char *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | (int)(shift << MAP_HUGE_SHIFT),
			 -1, 0);
	unsigned char present;
	int err;

	if (map == MAP_FAILED)
		return errno == EINVAL ? ENOMEM : errno; /* EINVAL: not a size this machine has */
	err = place(map, bytes, backing->node);
	if (!err)
		err = sgp_populate(map, bytes, (size_t)1 << shift, backing);
	if (!err && advise(map, bytes))
		err = errno;
	if (err) {
		munmap(map, bytes);
		return err;
	}
	if (mremap(map, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, addr) == MAP_FAILED) {
		err = errno;
		munmap(map, bytes);
		/* The target may have been unmapped first: mincore(2) tells by ENOMEM. */
		if (mincore(addr, sgp_page_size(), &present) && errno == ENOMEM)
			plug(mem, addr, bytes);
		return err;
	}
	return 0;
}

static int try_kind(struct sgp_memory *mem, size_t bytes, const struct sgp_backing *backing,
		    struct kind kind, struct sgp_piece *piece)
{
	size_t page = kind.shift ? (size_t)1 << kind.shift : sgp_page_size();
	size_t n, first, align;
	char *addr;
	int err;

	bytes = sgp_round_up(bytes, page);
	if (bytes > backing->max_bytes)
		return ENOMEM;
	n = granules_for(mem, bytes);
	align = page < backing->align ? backing->align : page;
	first = find_free(mem, n, kind.thp && align < (1 << SHIFT_2M) ? 1 << SHIFT_2M : align);
	if (first == mem->granules && kind.thp)
		first = find_free(mem, n, align);
	if (first == mem->granules)
		return ENOBUFS;
	addr = mem->base + (first << mem->shift);
	if (kind.shift)
		err = commit_huge(mem, addr, bytes, backing, kind.shift);
	else
		err = commit_base(addr, bytes, backing, kind.thp);
	if (err)
		return err;
	mark(mem, first, n, GRANULE_USED);
	*piece = (struct sgp_piece){.addr = addr, .bytes = bytes, .page_size = page};
	return 0;
}

/*
 * The kinds of page to try, best first. A preferred hugepage is for pieces of at least its size:
 * less would pin a hugepage for a few small buffers.
 */
static int kinds_of(enum sgp_pages pages, size_t bytes, struct kind kinds[4])
{
	int n = 0;

	switch (pages) {
	case SGP_PAGES_REQUIRE_1G:
		kinds[n++] = (struct kind){.shift = SHIFT_1G, .required = true};
		return n;
	case SGP_PAGES_REQUIRE_2M:
		kinds[n++] = (struct kind){.shift = SHIFT_2M, .required = true};
		return n;
	case SGP_PAGES_PREFER_1G:
		if (bytes >= (size_t)1 << SHIFT_1G)
			kinds[n++] = (struct kind){.shift = SHIFT_1G};
		/* fall through */
	case SGP_PAGES_PREFER_2M:
		if (bytes >= (size_t)1 << SHIFT_2M)
			kinds[n++] = (struct kind){.shift = SHIFT_2M};
		/* fall through */
	case SGP_PAGES_THP:
		if (bytes >= (size_t)1 << SHIFT_2M)
			kinds[n++] = (struct kind){.thp = true};
		/* fall through */
	case SGP_PAGES_BASE:
		kinds[n++] = (struct kind){.shift = 0};
	}
	return n;
}

int sgp_memory_commit(struct sgp_memory *mem, size_t bytes, const struct sgp_backing *backing,
		      struct sgp_piece *piece)
{
	struct sgp_advice advice;
	struct kind kinds[4];
	int n = kinds_of(backing->pages, bytes, kinds), i, err = EINVAL;

	for (i = 0; i < n; i++) {
		err = try_kind(mem, bytes, backing, kinds[i], piece);
		if (!err)
			return 0;
	}
	if (err == ENOBUFS)
		return sgp_fail(err, "the pool's %zu bytes of addresses (max_bytes) are used up",
				mem->bytes);
	if (n == 1 && kinds[0].required) {
		sgp_advise_hugepages(&advice, (uint64_t)1 << kinds[0].shift, bytes, err);
		return sgp_fail(err, "%s. %s; or prefer hugepages instead of requiring them.",
				advice.what, advice.mend);
	}
	return sgp_fail(err, "no memory for %zu bytes: %s", bytes, strerror(err));
}

void sgp_memory_decommit(struct sgp_memory *mem, const struct sgp_piece *piece)
{
	size_t first = sgp_memory_granule(mem, piece->addr);
	int err = errno;

	mark(mem, first, granules_for(mem, piece->bytes), GRANULE_FREE);
	/* Hugepages go back to the system's pool only when they are unmapped. */
	if (piece->page_size > sgp_page_size() && munmap(piece->addr, piece->bytes) == 0)
		plug(mem, piece->addr, piece->bytes);
	else
		make_inaccessible(piece->addr, piece->bytes);
	errno = err;
}
