/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How many addresses a pool takes, and in what granules: once, for all that it may ever grow to. They are
 * memory only where regions are made in them (memory.h).
 */
#include <sys/mman.h>
#include <unistd.h>

#include "pool/errmsg.h"
#include "pool/pool.h"

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

static size_t granules_of(const struct sgp_class *cls, size_t chunks, size_t granule)
{
	size_t fit = sgp_cut_fit(&cls->cut, granule);

	if (fit == 0)
		return chunks * (sgp_round_up(cls->cut.size, granule) / granule);
	return (chunks + fit - 1) / fit;
}

/* The longest run of granules that a single chunk needs; with more it is a matter of luck. */
static size_t longest_run(const struct sgp_pool *pool, size_t granule)
{
	size_t run = sgp_round_up(pool->classes[pool->nclasses - 1].cut.size, granule) / granule;

	return run < 8 ? run : 8;
}

/*
 * Addresses for all that growth may ever make, in the least favourable steps and order: slabs fill
 * their granules, but for the first of each class and the one that reaches its maximum; and where n
 * granules are in use, the free ones lie in n + 1 runs at most, so that n * (r - 1) more of them
 * make sure of a run of r.
 */
static size_t addresses(const struct sgp_pool *pool, size_t granule)
{
	size_t run = pool->nclasses ? longest_run(pool, granule) : 1, n = 0;
	uint32_t i;

	for (i = 0; i < pool->nclasses; i++) {
		const struct sgp_class *cls = &pool->classes[i];

		n += granules_of(cls, cls->max_chunks, granule) + 1;
		if (cls->initial_chunks < cls->max_chunks)
			n += granules_of(cls, cls->initial_chunks, granule);
	}
	return (n * run + run - 1) * granule;
}

/*
 * The granule: small enough that a region does not waste addresses, large enough that the table of
 * a large pool is small.
 */
static unsigned int granule_shift(const struct sgp_pool *pool, size_t total)
{
	size_t granule = sgp_page_size(), most = 2 * MIB;

	if (pool->backing.pages == SGP_PAGES_REQUIRE_2M)
		return 21;
	if (pool->backing.pages == SGP_PAGES_REQUIRE_1G)
		return 30;
	while (total / most > MIB || (pool->nclasses && pool->classes[0].cut.size >= 2 * most))
		most *= 2;
	if (total >= 4 * MIB)
		while (granule * 2 <= most && granule * 2 <= pool->backing.max_bytes)
			granule *= 2;
	return (unsigned int)__builtin_ctzl(granule);
}

static size_t alignment(const struct sgp_pool *pool, size_t bytes)
{
	bool gib = pool->backing.pages == SGP_PAGES_REQUIRE_1G ||
		   (pool->backing.pages == SGP_PAGES_PREFER_1G && bytes >= GIB);

	if (gib)
		return GIB;
	return 2 * MIB; /* for base pages too: extents start on such boundaries */
}

/*
 * What is made now is made present, and pinned. More than all memory of the machine would wake the
 * kernel's OOM killer, who says nothing to the caller.
 */
static int check_present(const struct sgp_pool *pool)
{
	const long pages = sysconf(_SC_PHYS_PAGES);
	const double memory = (double)pages * (double)sgp_page_size();
	double bytes = 0;

	for (uint32_t i = 0; i < pool->nclasses; i++)
		bytes += (double)pool->classes[i].initial_chunks *
			 (double)pool->classes[i].cut.stride;
	if (pages <= 0 || bytes <= memory)
		return 0;
	return sgp_fail(ENOMEM,
			"chunks of %.0f MiB in all, and the machine has %.0f MiB of memory: make "
			"fewer or smaller ones",
			bytes / (double)MIB, memory / (double)MIB);
}

int sgp_pool_reserve(struct sgp_pool *pool, const struct sgp_pool_attr *attr)
{
	size_t total = 0, bytes, table;
	unsigned int shift;
	uint32_t i;

	if (check_present(pool))
		return -1;
	for (i = 0; i < pool->nclasses; i++) {
		const struct sgp_class *cls = &pool->classes[i];

		total += cls->max_chunks * cls->cut.stride;
	}
	shift = granule_shift(pool, pool->nclasses ? total : attr->max_bytes);
	bytes = addresses(pool, (size_t)1 << shift);
	/* Regions on hugepage boundaries leave gaps. */
	bytes += bytes >= 2 * MIB ? alignment(pool, bytes) : 0;
	if (attr->max_bytes)
		bytes = attr->max_bytes;
	if (sgp_memory_reserve(&pool->mem, bytes, shift, alignment(pool, bytes)))
		return -1;
	table = pool->mem.granules * sizeof pool->owner_at[0];
	pool->owner_at = mmap(NULL, table, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (pool->owner_at == MAP_FAILED) {
		sgp_memory_release(&pool->mem);
		return sgp_fail(ENOMEM, "no memory for a table of %zu regions", pool->mem.granules);
	}
	return 0;
}

void sgp_pool_unreserve(struct sgp_pool *pool)
{
	munmap(pool->owner_at, pool->mem.granules * sizeof pool->owner_at[0]);
	sgp_memory_release(&pool->mem);
}
