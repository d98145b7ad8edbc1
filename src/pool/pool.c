/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The pool: its beginning and end, growth, and what is asked about it; see pool.h.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "pool/chunk.h"
#include "pool/errmsg.h"
#include "pool/pool.h"

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

#ifdef SGP_DEBUG
#define check_pool(pool) assert(sgp_pool_check(pool) == NULL)
#else
#define check_pool(pool) ((void)(pool))
#endif

struct sgp_class *sgp_pool_class(struct sgp_pool *pool, size_t size)
{
	if (size == 0)
		return sgp_fail_null(EINVAL, "a chunk of 0 bytes");
	if (size > pool->classes[0].cut.size)
		return sgp_fail_null(EMSGSIZE, "%zu bytes: the pool's largest chunks have %u", size,
				     pool->classes[0].cut.size);
	return &pool->classes[0];
}

/* Enter the slab into the table, or take it out (to NULL). */
static void map_slab(struct sgp_pool *pool, const struct sgp_slab *slab, struct sgp_slab *to)
{
	const struct sgp_piece *piece = &slab->region.piece;
	size_t first = sgp_memory_granule(&pool->mem, piece->addr);
	size_t last = sgp_memory_granule(&pool->mem, piece->addr + piece->bytes - 1), i;

	for (i = first; i <= last; i++)
		atomic_store_explicit(&pool->slab_at[i], to, memory_order_release);
}

/* Make a slab for n chunks and publish it; none of its chunks is in use yet. */
static int add_slab(struct sgp_pool *pool, struct sgp_class *cls, size_t n)
{
	struct sgp_slab *slab = sgp_slab_make(&pool->mem, &pool->reg, &cls->cut, n, &pool->backing);

	if (!slab)
		return -1;
	slab->cls = cls;
	slab->pool = pool;
	slab->next = cls->slabs;
	cls->slabs = slab;
	map_slab(pool, slab, slab);
	if (pool->page_size == 0)
		pool->page_size = slab->region.piece.page_size;
	return 0;
}

/* End the class's newest slab. Returns 0, or -1 and the slab stays. */
static int drop_slab(struct sgp_pool *pool, struct sgp_class *cls)
{
	struct sgp_slab *slab = cls->slabs;

	map_slab(pool, slab, NULL);
	cls->slabs = slab->next;
	if (sgp_slab_end(slab, &pool->mem, &pool->reg)) {
		cls->slabs = slab;
		map_slab(pool, slab, slab);
		return -1;
	}
	return 0;
}

/* How many chunks to give the next slab, n being wanted and most allowed. */
static size_t slab_chunks(const struct sgp_pool *pool, const struct sgp_class *cls, size_t n,
			  size_t most)
{
	size_t granule = (size_t)1 << pool->mem.shift;
	size_t largest = sgp_cut_fit(&cls->cut, pool->backing.max_bytes);
	/* A slab owns its granules whole: filling them saves addresses and registrations. */
	size_t whole = sgp_round_up(sgp_cut_bytes(&cls->cut, n < largest ? n : largest), granule);
	size_t fit = sgp_cut_fit(&cls->cut, whole);

	if (fit > largest)
		fit = largest;
	return fit < most ? fit : most;
}

static size_t room_left(const struct sgp_slab *slab)
{
	return slab->room - slab->made;
}

/*
 * Give the class n chunks more, or with most > n up to most where that costs no more addresses.
 * First all memory is made, then all of it is put into use, so that a failure leaves the class as
 * it was. (A slab that cannot be deregistered in the unwinding stays as room for the next growth.)
 */
static int grow_class(struct sgp_pool *pool, struct sgp_class *cls, size_t n, size_t most)
{
	struct sgp_slab *before = cls->slabs, *slab;
	size_t room = 0, use;

	for (slab = cls->slabs; slab; slab = slab->next)
		room += room_left(slab);
	while (room < n) {
		if (add_slab(pool, cls, slab_chunks(pool, cls, n - room, most - room))) {
			int err = errno;

			while (cls->slabs != before && drop_slab(pool, cls) == 0)
				;
			errno = err;
			return -1;
		}
		room += cls->slabs->room;
	}
	if (n < most)
		n = room < most ? room : most;
	for (slab = cls->slabs; slab && n; slab = slab->next) {
		use = room_left(slab) < n ? room_left(slab) : n;
		if (use)
			sgp_centre_add(cls, slab, use);
		n -= use;
	}
	return 0;
}

int sgp_pool_grow(struct sgp_pool *pool, size_t size, size_t nchunks)
{
	struct sgp_class *cls;
	size_t left;
	int ret;

	if (nchunks == 0)
		return sgp_fail(EINVAL, "growth by 0 chunks");
	cls = sgp_pool_class(pool, size);
	if (!cls)
		return -1;
	pthread_mutex_lock(&pool->grow);
	left = cls->max_chunks - cls->made;
	if (nchunks > left)
		ret = sgp_fail(ENOBUFS, "%zu chunks more: the class has %zu of at most %zu",
			       nchunks, cls->made, cls->max_chunks);
	else
		ret = grow_class(pool, cls, nchunks, left);
	pthread_mutex_unlock(&pool->grow);
	return ret;
}

/* Addresses for all that growth may ever make of the class, in the least favourable steps. */
static size_t class_addresses(const struct sgp_class *cls, size_t granule)
{
	size_t fit = sgp_cut_fit(&cls->cut, granule);

	if (fit == 0)
		return cls->max_chunks * sgp_round_up(cls->cut.size, granule);
	return ((cls->max_chunks + fit - 1) / fit + 1) * granule;
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
	while (total / most > MIB)
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
	return pool->backing.pages == SGP_PAGES_BASE ? sgp_page_size() : 2 * MIB;
}

static int reserve(struct sgp_pool *pool, const struct sgp_pool_attr *attr)
{
	size_t total = 0, bytes = 0, granule, table;
	unsigned int shift;
	uint32_t i;

	for (i = 0; i < pool->nclasses; i++) {
		const struct sgp_class *cls = &pool->classes[i];

		total += cls->max_chunks * cls->cut.stride;
	}
	shift = granule_shift(pool, total);
	granule = (size_t)1 << shift;
	for (i = 0; i < pool->nclasses; i++)
		bytes += class_addresses(&pool->classes[i], granule);
	/* Regions on hugepage boundaries leave gaps. */
	bytes += bytes >= 2 * MIB ? alignment(pool, bytes) : 0;
	if (attr->max_bytes)
		bytes = attr->max_bytes;
	if (sgp_memory_reserve(&pool->mem, bytes, shift, alignment(pool, bytes)))
		return -1;
	table = pool->mem.granules * sizeof pool->slab_at[0];
	pool->slab_at = mmap(NULL, table, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (pool->slab_at == MAP_FAILED) {
		sgp_memory_release(&pool->mem);
		return sgp_fail(ENOMEM, "no memory for a table of %zu regions", pool->mem.granules);
	}
	return 0;
}

static void unreserve(struct sgp_pool *pool)
{
	munmap(pool->slab_at, pool->mem.granules * sizeof pool->slab_at[0]);
	sgp_memory_release(&pool->mem);
}

static int check_attr(const struct sgp_pool_attr *attr)
{
	uint32_t i;

	if (attr->comp_mask || attr->flags & ~(uint32_t)SGP_POOL_NUMA)
		return sgp_fail(EINVAL, "comp_mask or flags that this version does not know");
	if (attr->nclasses != 1 || !attr->classes)
		return sgp_fail(EINVAL, "%u size classes: one is possible", attr->nclasses);
	if (attr->pages < SGP_PAGES_PREFER_2M || attr->pages > SGP_PAGES_BASE)
		return sgp_fail(EINVAL, "pages: not one of SGP_PAGES_*");
	if (attr->flags & SGP_POOL_NUMA && attr->numa_node < 0)
		return sgp_fail(EINVAL, "numa_node %d", attr->numa_node);
	for (i = 0; i < attr->nclasses; i++)
		if (attr->classes[i].flags)
			return sgp_fail(EINVAL, "flags of class %u", i);
	return 0;
}

/* How long a region may be: the device's limit, the caller's, or one that can be given back. */
static int set_backing(struct sgp_pool *pool, const struct sgp_pool_attr *attr)
{
	size_t page = sgp_page_size(), bytes = attr->region_bytes ? attr->region_bytes : GIB;
	uint32_t i;

	if (attr->pages == SGP_PAGES_REQUIRE_2M)
		page = 2 * MIB;
	else if (attr->pages == SGP_PAGES_REQUIRE_1G)
		page = GIB;
	for (i = 0; i < pool->nclasses && !attr->region_bytes; i++)
		if (pool->classes[i].cut.size > bytes)
			bytes = sgp_round_up(pool->classes[i].cut.size, GIB);
	if (bytes > pool->reg.max_bytes)
		bytes = pool->reg.max_bytes;
	bytes &= ~(page - 1);
	for (i = 0; i < pool->nclasses; i++)
		if (pool->classes[i].cut.size > bytes)
			return sgp_fail(EINVAL,
					"a chunk of %u bytes does not fit into a region of at most "
					"%zu (region_bytes, the page size, or the device's "
					"max_mr_size of %zu)",
					pool->classes[i].cut.size, bytes, pool->reg.max_bytes);
	pool->backing = (struct sgp_backing){
		.pages = attr->pages,
		.node = attr->flags & SGP_POOL_NUMA ? attr->numa_node : -1,
		.max_bytes = bytes,
	};
	return 0;
}

static void end_classes(struct sgp_pool *pool, uint32_t n)
{
	while (n-- > 0)
		sgp_centre_fini(&pool->classes[n]);
	free(pool->classes);
}

static int init_classes(struct sgp_pool *pool, const struct sgp_pool_attr *attr)
{
	uint32_t i;

	pool->classes =
		aligned_alloc(_Alignof(struct sgp_class), attr->nclasses * sizeof pool->classes[0]);
	if (!pool->classes)
		return sgp_fail(ENOMEM, "no memory for %u classes", attr->nclasses);
	memset(pool->classes, 0, attr->nclasses * sizeof pool->classes[0]);
	for (i = 0; i < attr->nclasses; i++) {
		if (sgp_centre_init(&pool->classes[i], &attr->classes[i])) {
			end_classes(pool, i);
			return -1;
		}
	}
	pool->nclasses = attr->nclasses;
	return 0;
}

/* Deregister everything. Returns 0, or -1 and what could not be deregistered stays. */
static int drop_slabs(struct sgp_pool *pool)
{
	uint32_t i;

	for (i = 0; i < pool->nclasses; i++)
		while (pool->classes[i].slabs)
			if (drop_slab(pool, &pool->classes[i]))
				return -1;
	return 0;
}

struct sgp_pool *sgp_pool_create(struct ibv_pd *pd, const struct sgp_pool_attr *attr)
{
	struct sgp_pool *pool;
	uint32_t i;

	if (!pd || !attr)
		return sgp_fail_null(EINVAL, "a pool needs a protection domain and attributes");
	if (check_attr(attr))
		return NULL;
	pool = calloc(1, sizeof *pool);
	if (!pool)
		return sgp_fail_null(ENOMEM, "no memory for a pool");
	if (init_classes(pool, attr))
		goto free_pool;
	if (sgp_registrar_open(&pool->reg, pd))
		goto free_classes;
	if (set_backing(pool, attr) || reserve(pool, attr))
		goto close_registrar;
	pthread_mutex_init(&pool->grow, NULL);
	for (i = 0; i < attr->nclasses; i++) {
		size_t n = attr->classes[i].chunks;

		if (n && grow_class(pool, &pool->classes[i], n, n))
			goto drop;
	}
	check_pool(pool);
	return pool;

drop:;
	int err = errno;

	/* What the device keeps must stay mapped: such a pool is abandoned as it is. */
	if (drop_slabs(pool)) {
		errno = err;
		return NULL;
	}
	pthread_mutex_destroy(&pool->grow);
	unreserve(pool);
	errno = err;
close_registrar:
	sgp_registrar_close(&pool->reg);
free_classes:
	end_classes(pool, pool->nclasses);
free_pool:
	free(pool);
	return NULL;
}

int sgp_pool_destroy(struct sgp_pool *pool)
{
	size_t made, nfree;
	uint32_t i;

	check_pool(pool);
	for (i = 0; i < pool->nclasses; i++) {
		sgp_centre_count(&pool->classes[i], &made, &nfree);
		if (nfree < made)
			return sgp_fail(EBUSY, "%zu chunks are still held", made - nfree);
	}
	for (i = 0; i < pool->nclasses; i++)
		sgp_centre_retire(&pool->classes[i]);
	if (drop_slabs(pool))
		return -1;
	unreserve(pool);
	sgp_registrar_close(&pool->reg);
	end_classes(pool, pool->nclasses);
	pthread_mutex_destroy(&pool->grow);
	free(pool);
	return 0;
}

int sgp_pool_stats(struct sgp_pool *pool, struct sgp_pool_stats *stats)
{
	size_t made, nfree;
	uint32_t i;

	*stats = (struct sgp_pool_stats){
		.registrations = pool->reg.registrations,
		.deregistrations = pool->reg.deregistrations,
		.bytes_registered = pool->reg.bytes,
		.bytes_reserved = pool->mem.bytes,
		.page_size = pool->page_size,
	};
	stats->regions = stats->registrations - stats->deregistrations;
	for (i = 0; i < pool->nclasses; i++) {
		sgp_centre_count(&pool->classes[i], &made, &nfree);
		stats->chunks += made;
		stats->free += nfree;
		stats->live += made - nfree;
	}
	return 0;
}
