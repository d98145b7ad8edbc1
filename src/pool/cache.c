/* SPDX-License-Identifier: BSD-2-Clause */
/* A thread's magazine outside of the inline get and put, see cache.h. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "pool/cache.h"

/* A thread is inside its magazine for a few instructions; if it is not out by then, it was
 * preempted. */
#define SPINS 64

/* By the owner: a magazine of n chunks. */
static void set_count(struct sgp_cache *cache, size_t n)
{
	__atomic_store_n(&cache->mag.top, (uintptr_t)(cache->items + n), __ATOMIC_RELAXED);
	__atomic_store_n(&cache->emptied, false, __ATOMIC_RELAXED);
}

static void set_limits(struct sgp_cache *cache, struct sgp_chunk **floor, struct sgp_chunk **ceil)
{
	__atomic_store_n(&cache->mag.floor, floor, SGP_MAG_ORDER);
	__atomic_store_n(&cache->mag.ceil, ceil, SGP_MAG_ORDER);
}

static bool closed(const struct sgp_cache *cache)
{
	return __atomic_load_n(&cache->mag.ceil, __ATOMIC_RELAXED) == SGP_MAG_CEIL_CLOSED;
}

static void close_cache(struct sgp_cache *cache)
{
	set_limits(cache, SGP_MAG_FLOOR_CLOSED, SGP_MAG_CEIL_CLOSED);
}

/*
 * A cache that its thread has known in an earlier life is looked at by that thread all the time; so
 * what it asks first, the two keys, is stored atomically, and last.
 */
void sgp_cache_init(struct sgp_cache *cache, struct sgp_class *cls)
{
	close_cache(cache);
	set_count(cache, 0);
	cache->cls = cls;
	cache->mag.size = cls->cut.size;
	cache->mag.least = cls->least;
	__atomic_store_n(&cache->mag.pool_key, SGP_POOL_KEY(cls->pool), __ATOMIC_RELEASE);
	__atomic_store_n(&cache->mag.state_key, SGP_STATE_KEY(cls->slot), __ATOMIC_RELEASE);
}

void sgp_cache_kill(struct sgp_cache *cache)
{
	close_cache(cache);
	__atomic_store_n(&cache->mag.pool_key, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&cache->mag.state_key, SGP_STATE_KEY(SGP_SLOTS), __ATOMIC_RELEASE);
}

struct sgp_cache *sgp_cache_make(struct sgp_class *cls)
{
	size_t bytes = sizeof(struct sgp_cache) + cls->cache_chunks * sizeof(struct sgp_chunk *);
	struct sgp_cache *cache = aligned_alloc(64, sgp_round_up(bytes, 64));

	if (!cache)
		return NULL;
	memset(cache, 0, sizeof *cache);
	cache->capacity = cls->cache_chunks;
	sgp_cache_init(cache, cls);
	return cache;
}

void sgp_cache_attach(struct sgp_cache *cache)
{
	struct sgp_class *cls = cache->cls;

	pthread_mutex_lock(&cls->lock);
	cache->next_of_class = cls->caches;
	cls->caches = cache;
	pthread_mutex_unlock(&cls->lock);
}

void sgp_cache_detach(struct sgp_cache *cache, struct sgp_waiter **served)
{
	struct sgp_class *cls = cache->cls;
	struct sgp_cache **p;

	pthread_mutex_lock(&cls->lock);
	sgp_cache_spill_locked(cache, sgp_cache_count(cache));
	for (p = &cls->caches; *p != cache; p = &(*p)->next_of_class)
		;
	*p = cache->next_of_class;
	sgp_serve_locked(cls, served);
	pthread_mutex_unlock(&cls->lock);
}

void sgp_cache_open_locked(struct sgp_cache *cache)
{
	if (cache->emptied)
		set_count(cache, 0);
	set_limits(cache, cache->items, cache->items + cache->capacity);
}

void sgp_cache_fill_locked(struct sgp_cache *cache, size_t n)
{
	size_t count = sgp_cache_count(cache);

	if (n > cache->capacity - count)
		n = cache->capacity - count;
	sgp_centre_take_locked(cache->cls, cache->items + count, n);
	set_count(cache, count + n);
}

void sgp_cache_spill_locked(struct sgp_cache *cache, size_t n)
{
	size_t rest = sgp_cache_count(cache) - n;

	/* The newest stay: their descriptors and first lines are still in the processor's cache. */
	sgp_centre_give_locked(cache->cls, cache->items, n);
	memmove(cache->items, cache->items + n, rest * sizeof cache->items[0]);
	set_count(cache, rest);
}

void sgp_cache_store_locked(struct sgp_cache *cache, struct sgp_chunk *const chunks[], size_t n)
{
	size_t count = sgp_cache_count(cache);

	assert(n <= cache->capacity - count);
	memcpy(cache->items + count, chunks, n * sizeof chunks[0]);
	set_count(cache, count + n);
}

static bool owner_is_outside(const struct sgp_cache *cache)
{
	for (int i = 0; i < SPINS; i++) {
		/* Acquire: what the owner did to its magazine before it left is seen. */
		if (!(__atomic_load_n(&cache->mag.top, __ATOMIC_SEQ_CST) & SGP_MAG_INSIDE))
			return true;
#if defined(__x86_64__) || defined(__i386__)
		__builtin_ia32_pause();
#endif
	}
	return false;
}

size_t sgp_reclaim_locked(struct sgp_class *cls)
{
	bool opened = false, any = false;
	struct sgp_cache *cache;
	size_t n, sum = 0;

	for (cache = cls->caches; cache; cache = cache->next_of_class) {
		any |= sgp_cache_count(cache) > 0;
		if (!closed(cache)) {
			opened = true;
			close_cache(cache);
		}
	}
	/*
	 * After this a thread either sees its magazine closed, or has said already that it is
	 * inside. Those that were closed earlier had their barrier then.
	 */
	if (opened)
		sgp_membarrier();
	if (!opened && !any && !cls->unsettled)
		return 0;
	cls->unsettled = false;
	for (cache = cls->caches; cache; cache = cache->next_of_class) {
		if (!owner_is_outside(cache)) {
			cls->unsettled = true;
			continue;
		}
		n = sgp_cache_count(cache);
		sgp_centre_give_locked(cls, cache->items, n);
		__atomic_store_n(&cache->emptied, true, __ATOMIC_RELAXED);
		sum += n;
	}
	if (sum)
		sgp_count(&cls->count.reclaims);
	return sum;
}
