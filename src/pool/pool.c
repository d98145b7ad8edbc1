/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The pool's beginning and end; see pool.h. Where its addresses come from is reserve.c's.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool/cache.h"
#include "pool/errmsg.h"
#include "pool/grow.h"
#include "pool/watch.h"

#define GIB ((size_t)1 << 30)

#define MAX_CLASSES 4096

#define POOL_FLAGS                                                                                 \
	(SGP_POOL_NUMA | SGP_POOL_REMOTE_READ | SGP_POOL_REMOTE_WRITE | SGP_POOL_REMOTE_ATOMIC |   \
	 SGP_POOL_READ_SINK | SGP_POOL_WINDOWS | SGP_POOL_RELAXED_ORDERING | SGP_POOL_CHECKED |    \
	 SGP_POOL_SCRUB)

struct sgp_class *sgp_pool_class(struct sgp_pool *pool, size_t size)
{
	const struct sgp_class *largest;
	uint32_t low, high;
	size_t octave;

	if (!pool || size == 0)
		return sgp_fail_null(EINVAL, pool ? "a chunk of 0 bytes" : "no pool");
	if (pool->nclasses == 0)
		return sgp_fail_null(EMSGSIZE, "the pool has no size classes, only room for heaps");
	largest = &pool->classes[pool->nclasses - 1];
	if (size > largest->cut.size)
		return sgp_fail_null(EMSGSIZE, "%zu bytes: the pool's largest chunks have %u", size,
				     largest->cut.size);
	/* Among the classes that share size's power of two, and the first one above it. */
	octave = sgp_octave(size);
	low = pool->first_class[octave];
	high = pool->first_class[octave + 1];
	while (low < high) {
		uint32_t middle = (low + high) / 2;

		if (pool->classes[middle].cut.size < size)
			low = middle + 1;
		else
			high = middle;
	}
	return &pool->classes[low];
}

static int check_attr(const struct sgp_pool_attr *attr)
{
	uint32_t i;

	if (attr->comp_mask || attr->flags & ~(uint32_t)POOL_FLAGS)
		return sgp_fail(EINVAL, "comp_mask or flags that this version does not know");
	if (attr->nclasses > MAX_CLASSES || (attr->nclasses && !attr->classes))
		return sgp_fail(EINVAL, "%u size classes: at most %d are possible", attr->nclasses,
				MAX_CLASSES);
	if (attr->nclasses == 0 && attr->max_bytes == 0)
		return sgp_fail(EINVAL, "neither a size class nor max_bytes for a heap");
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
	size_t page = sgp_least_page(attr->pages);
	size_t bytes = attr->region_bytes ? attr->region_bytes : GIB;
	uint32_t i;

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
		.threads = attr->populate_threads,
		.progress = attr->progress,
		.progress_arg = attr->progress_arg,
	};
	return 0;
}

static void end_classes(struct sgp_pool *pool, uint32_t n)
{
	while (n-- > 0) {
		if (pool->classes[n].slot)
			sgp_slot_release(pool->classes[n].slot);
		sgp_centre_fini(&pool->classes[n]);
	}
	free(pool->classes);
}

/* The tables from a size's power of two to the smallest class that may serve it. */
static int fill_tables(struct sgp_pool *pool)
{
	uint32_t i = 0;

	for (unsigned int octave = 0; octave < SGP_OCTAVES; octave++) {
		size_t least = octave ? ((size_t)1 << (octave - 1)) + 1 : 1;

		while (i < pool->nclasses && pool->classes[i].cut.size < least)
			i++;
		pool->first_class[octave] = (uint16_t)(i < pool->nclasses ? i : pool->nclasses - 1);
		if (i < pool->nclasses)
			pool->slot[octave] = pool->classes[i].slot;
	}
	for (i = 1; i < pool->nclasses; i++)
		if (pool->classes[i].cut.size == pool->classes[i - 1].cut.size)
			return sgp_fail(EINVAL, "two classes of %u bytes",
					pool->classes[i].cut.size);
	return 0;
}

static int by_size(const void *a, const void *b)
{
	const struct sgp_class_attr *x = a, *y = b;

	return x->size < y->size ? -1 : x->size > y->size;
}

/* The attributes of the classes, the smallest size first; to be freed. NULL without memory. */
static struct sgp_class_attr *sort_attr(const struct sgp_pool_attr *attr)
{
	struct sgp_class_attr *sorted = calloc(attr->nclasses, sizeof sorted[0]);

	if (!sorted)
		return sgp_fail_null(ENOMEM, "no memory for %u classes", attr->nclasses);
	memcpy(sorted, attr->classes, attr->nclasses * sizeof sorted[0]);
	qsort(sorted, attr->nclasses, sizeof sorted[0], by_size);
	return sorted;
}

static int init_classes(struct sgp_pool *pool, const struct sgp_pool_attr *attr)
{
	size_t bytes = attr->nclasses * sizeof pool->classes[0];
	struct sgp_class_attr *sorted;
	uint32_t i;

	if (attr->nclasses == 0)
		return 0;
	sorted = sort_attr(attr);
	if (!sorted)
		return -1;
	pool->classes = aligned_alloc(_Alignof(struct sgp_class), bytes);
	if (!pool->classes) {
		free(sorted);
		return sgp_fail(ENOMEM, "no memory for %u classes", attr->nclasses);
	}
	memset(pool->classes, 0, bytes);
	for (i = 0; i < attr->nclasses; i++) {
		struct sgp_class *cls = &pool->classes[i];

		if (sgp_centre_init(cls, &sorted[i]))
			break;
		cls->pool = pool;
		cls->least = i ? sorted[i - 1].size + 1 : 1;
		if (cls->cache_chunks && !pool->watch)
			cls->slot = sgp_slot_acquire();
	}
	pool->nclasses = i;
	free(sorted);
	if (i < attr->nclasses || fill_tables(pool)) {
		end_classes(pool, i);
		return -1;
	}
	return 0;
}

/* The chunks that the attributes ask for, and the helper. */
static int fill_pool(struct sgp_pool *pool, const struct sgp_pool_attr *attr)
{
	uint32_t i;

	for (i = 0; i < pool->nclasses; i++) {
		size_t n = pool->classes[i].initial_chunks;

		if (n && sgp_grow_first(&pool->classes[i], n))
			return -1;
	}
	sgp_debug_check(pool);
	return sgp_helper_start(pool, attr->idle_ms);
}

/* Free what is left of a pool without slabs. errno is left alone. */
static void free_pool(struct sgp_pool *pool)
{
	int err = errno;

	sgp_watch_pool_end(pool);
	pthread_mutex_destroy(&pool->grow);
	sgp_slabs_free(pool->spares);
	sgp_imports_free(&pool->imports);
	sgp_pool_unreserve(pool);
	sgp_registrar_close(&pool->reg);
	end_classes(pool, pool->nclasses);
	free(pool);
	errno = err;
}

struct sgp_pool *sgp_pool_create(struct ibv_pd *pd, const struct sgp_pool_attr *attr)
{
	struct sgp_pool *pool;
	int err;

	sgp_threads_init();
	if (sgp_check_fork())
		return NULL;
	if (!attr)
		return sgp_fail_null(EINVAL, "a pool needs attributes");
	if (check_attr(attr))
		return NULL;
	pool = aligned_alloc(_Alignof(struct sgp_pool), sizeof *pool);
	if (!pool)
		return sgp_fail_null(ENOMEM, "no memory for a pool");
	memset(pool, 0, sizeof *pool);
	pool->watch = sgp_watch_for(attr->flags);
	if (init_classes(pool, attr))
		goto free_pool;
	if (sgp_registrar_open(&pool->reg, pd, attr))
		goto free_classes;
	if (set_backing(pool, attr) || sgp_pool_reserve(pool, attr))
		goto close_registrar;
	pthread_mutex_init(&pool->grow, NULL);
	sgp_watch_pool_begin(pool);
	if (fill_pool(pool, attr)) {
		err = errno;
		/* What the device keeps must stay mapped: such a pool is abandoned as it is. */
		if (sgp_drop_all(pool) == 0)
			free_pool(pool);
		errno = err;
		return NULL;
	}
	return pool;

close_registrar:
	sgp_registrar_close(&pool->reg);
free_classes:
	end_classes(pool, pool->nclasses);
free_pool:
	free(pool);
	return NULL;
}

/* Why a class can't end once the caches are empty. */
struct use {
	size_t held;     /* chunks that are not in the centre */
	size_t overput;  /* that came back more often than they went out */
	bool waited_for; /* somebody waits for one */
};

static struct use use_of(struct sgp_class *cls)
{
	struct use use;

	pthread_mutex_lock(&cls->lock);
	sgp_reclaim_locked(cls);
	use = (struct use){.held = cls->made - cls->nfree,
			   .overput = cls->overput,
			   .waited_for = sgp_waited_for_locked(cls, 0)};
	pthread_mutex_unlock(&cls->lock);
	return use;
}

/* Chunks of class i are out, and maybe of those behind it. */
static int fail_held(struct sgp_pool *pool, uint32_t i, size_t n)
{
	const struct sgp_class *cls = &pool->classes[i];
	char taken[400], more[48] = "";
	size_t others = 0;
	const char *who;

	while (++i < pool->nclasses)
		others += use_of(&pool->classes[i]).held;
	if (others)
		snprintf(more, sizeof more, "; and %zu of other sizes", others);
	who = sgp_watch_holders(cls, taken, sizeof taken);
	return sgp_fail(
		EBUSY, "%zu chunk%s of %u bytes %s still held%s%s%s", n, n == 1 ? "" : "s",
		cls->cut.size, n == 1 ? "is" : "are", who, more,
		*who ? "" : "; put them, or clear their lists (SGP_CHECK=1 tells who took them)");
}

/* Nothing may be out. Then the class's chunks are nobody's any more: they are about to go. */
static int retire_classes(struct sgp_pool *pool)
{
	uint32_t i;

	if (pool->imports.first)
		return sgp_fail(EBUSY, "imported memory of the pool's still stands");
	if (pool->extents)
		return sgp_fail(EBUSY, "a heap still has memory of the pool");
	for (i = 0; i < pool->nclasses; i++) {
		const struct use use = use_of(&pool->classes[i]);

		if (use.held)
			return fail_held(pool, i, use.held);
		if (use.overput)
			return sgp_fail(
				EBUSY,
				"%zu more puts than gets of chunks of %u bytes: some were put "
				"twice (SGP_CHECK=abort tells which)",
				use.overput, pool->classes[i].cut.size);
		if (use.waited_for)
			return sgp_fail(EBUSY, "somebody waits for chunks of %u bytes",
					pool->classes[i].cut.size);
	}
	sgp_helper_stop(pool);
	sgp_debug_check(pool);
	for (i = 0; i < pool->nclasses; i++) {
		struct sgp_class *cls = &pool->classes[i];
		struct sgp_slab *slab;

		pthread_mutex_lock(&cls->lock);
		for (slab = cls->slabs; slab; slab = slab->next)
			slab->leaving = true;
		sgp_centre_remove_locked(cls);
		pthread_mutex_unlock(&cls->lock);
		sgp_caches_free(cls);
	}
	return 0;
}

int sgp_pool_destroy(struct sgp_pool *pool)
{
	int ret;

	if (sgp_check_fork())
		return -1;
	if (!pool)
		return sgp_fail(EINVAL, "no pool");
	/* A thread that used the pool once may be ending now. */
	sgp_threads_lock();
	ret = retire_classes(pool);
	sgp_threads_unlock();
	if (ret || sgp_drop_all(pool))
		return -1;
	free_pool(pool);
	return 0;
}

int sgp_pool_set_limits(struct sgp_pool *pool, size_t size, size_t max_chunks, size_t reserved)
{
	struct sgp_waiter *served = NULL;
	struct sgp_class *cls;

	if (sgp_check_fork())
		return -1;
	cls = sgp_pool_class(pool, size);
	if (!cls)
		return -1;
	if (max_chunks == 0 || max_chunks > cls->max_chunks || reserved > max_chunks)
		return sgp_fail(EINVAL,
				"%zu chunks with a reserve of %zu: at most %zu are possible",
				max_chunks, reserved, cls->max_chunks);
	pthread_mutex_lock(&cls->lock);
	cls->cap = max_chunks;
	cls->reserve = reserved;
	/* What sits in the caches, or is put from now on, must not get around the new limits. */
	cls->pressure = true;
	sgp_reclaim_locked(cls);
	sgp_serve_locked(cls, &served);
	pthread_mutex_unlock(&cls->lock);
	sgp_served_run(served);
	return 0;
}
