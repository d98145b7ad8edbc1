/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Get, ref and put.
 *
 * The short way is inline, in sgpool/inline.h: the thread's own magazine. Here is the long way,
 * taken when that is empty, full or closed:
 *
 *      get   the centre serves, and fills the magazine while it is at it. When the centre is short,
 *            the chunks in other threads' magazines are taken away from them; then the pool grows,
 *            if the caller allows it.
 *      put   the older half of a full magazine moves to the centre. When chunks are short
 * (pressure) all of it does, and waiters are served.
 *
 * Locking: the class's lock, for the copy of a few hundred pointers at most.
 */
#define SGP_NO_INLINE
#include <errno.h>
#include <sched.h>
#include <string.h>

#include "pool/errmsg.h"
#include "pool/get.h"
#include "pool/grow.h"
#include "pool/probe.h"
#include "pool/watch.h"

#define YIELDS 64
#define BATCH  256

/* Chunks are not short any more when so many are in the centre. */
static bool relieved_locked(const struct sgp_class *cls)
{
	size_t enough = atomic_load_explicit(&cls->made, memory_order_relaxed) / 16 + 1;

	return !sgp_waited_for_locked(cls, 0) && sgp_centre_avail_locked(cls, 0) >= enough;
}

/* How much to move between a magazine and the centre at once. */
static size_t trip(const struct sgp_class *cls)
{
	return cls->cache_chunks / 2;
}

/* Collect for a get that the centre can't serve: what the thread itself has, then what all have. */
static void collect_locked(struct sgp_class *cls, struct sgp_cache *cache, size_t n, int flags,
			   struct sgp_waiter **served)
{
	if (cache && sgp_cache_count(cache))
		sgp_cache_spill_locked(cache, sgp_cache_count(cache));
	if (sgp_centre_avail_locked(cls, flags) < n) {
		cls->pressure = true;
		sgp_reclaim_locked(cls);
	}
	sgp_serve_locked(cls, served);
}

static void exhausted_locked(struct sgp_class *cls, size_t n)
{
	sgp_count(&cls->count.exhausted);
	SGP_PROBE3(exhausted, cls->pool, cls->cut.size, n);
}

/*
 * Fill the thread's magazine while the lock is held, after a get of n: together they are a trip, so that
 * what two of them brought fits in when it's put.
 */
static void refill_locked(struct sgp_class *cls, struct sgp_cache *cache, size_t n)
{
	/* Half of what is there at most: the others want some too. */
	size_t spare = sgp_centre_avail_locked(cls, 0) / 2;
	size_t wanted = n < trip(cls) ? trip(cls) - n : 0;

	sgp_cache_fill_locked(cache, spare < wanted ? spare : wanted);
	sgp_cache_open_locked(cache);
}

static bool take_locked(struct sgp_class *cls, struct sgp_cache *cache, size_t n, int flags,
			struct sgp_chunk *chunks[], struct sgp_waiter **served)
{
	if (sgp_centre_avail_locked(cls, flags) < n)
		collect_locked(cls, cache, n, flags, served);
	if (sgp_centre_avail_locked(cls, flags) < n || sgp_waited_for_locked(cls, flags))
		return false;
	sgp_centre_get_locked(cls, chunks, n, flags);
	if (cls->pressure && relieved_locked(cls))
		cls->pressure = false;
	if (cache && !cls->pressure)
		refill_locked(cls, cache, n);
	return true;
}

/* *made: how many chunks the class had then. */
static bool take(struct sgp_class *cls, size_t n, int flags, struct sgp_chunk *chunks[],
		 size_t *made)
{
	struct sgp_cache *cache = sgp_cache_of(cls);
	struct sgp_waiter *served = NULL;
	bool taken;

	sgp_centre_prefetch(cls, n < trip(cls) ? trip(cls) : n, false);
	pthread_mutex_lock(&cls->lock);
	taken = take_locked(cls, cache, n, flags, chunks, &served);
	/* Somebody was preempted inside its magazine, perhaps with what is wanted: let it out. */
	for (int i = 0; !taken && cls->unsettled && i < YIELDS; i++) {
		pthread_mutex_unlock(&cls->lock);
		sched_yield();
		pthread_mutex_lock(&cls->lock);
		taken = take_locked(cls, cache, n, flags, chunks, &served);
	}
	if (!taken)
		exhausted_locked(cls, n);
	*made = cls->made;
	sgp_want_growth_locked(cls);
	pthread_mutex_unlock(&cls->lock);
	sgp_served_run(served);
	return taken;
}

static __attribute__((noinline)) int get_slowly(struct sgp_pool *pool, size_t size, int flags,
						struct sgp_chunk *chunks[], size_t n)
{
	struct sgp_class *cls;
	size_t made;

	if (sgp_check_fork())
		return -1;
	cls = sgp_pool_class(pool, size);
	if (!cls)
		return -1;
	if (flags & ~SGP_GET_FLAGS)
		return sgp_fail(EINVAL, "flags 0x%x of a get", (unsigned int)flags);
	/* Another class's turn; or, without a reserve, a flag that means nothing. */
	if ((sgp_fast_flags(flags) || cls->reserve == 0) && n <= SGP_CHUNKS_MOST) {
		struct sgp_mag *mag = sgp_thread.mags[cls->slot];

		sgp_thread.last_get = mag;
		if (sgp_mag_take_bulk(mag, chunks, n))
			return 0;
	}
	while (!take(cls, n, flags, chunks, &made)) {
		if (!(flags & SGP_MAY_GROW))
			return sgp_fail(ENOBUFS,
					"%zu chunk%s of %u bytes asked for, and not so many are "
					"free: put some, wait (sgp_pool_get_wait) or make more",
					n, n == 1 ? "" : "s", cls->cut.size);
		if (sgp_grow_for_get(cls, n, flags, made))
			return -1;
	}
	sgp_watch_got(pool, chunks, n);
	return 0;
}

static __attribute__((noinline)) struct sgp_chunk *get_one_slowly(struct sgp_pool *pool,
								  size_t size, int flags)
{
	struct sgp_chunk *chunk;

	if (sgp_fast_flags(flags) && sgp_mag_get(&sgp_thread, pool, size, &chunk))
		return chunk;
	return get_slowly(pool, size, flags, &chunk, 1) ? NULL : chunk;
}

/* From the magazine of the last get, or by a jump: so this function needs no frame. */
struct sgp_chunk *sgp_pool_get(struct sgp_pool *pool, size_t size, int flags)
{
	struct sgp_mag *mag = sgp_thread.last_get;
	struct sgp_chunk *chunk;

	if (SGP_LIKELY(sgp_fast_flags(flags)) && SGP_LIKELY(sgp_mag_serves(mag, pool, size)) &&
	    SGP_LIKELY(sgp_mag_take(mag, &chunk)))
		return chunk;
	return get_one_slowly(pool, size, flags);
}

int sgp_pool_get_bulk(struct sgp_pool *pool, size_t size, int flags, struct sgp_chunk *chunks[],
		      size_t n)
{
	if (SGP_LIKELY(sgp_get_bulk_shortly(pool, size, flags, chunks, n)))
		return 0;
	return get_slowly(pool, size, flags, chunks, n);
}

int sgp_pool_get_sge(struct sgp_pool *pool, size_t size, int flags, struct sgp_chunk *chunks[],
		     struct ibv_sge sge[], size_t n)
{
	size_t i;

	if (size > UINT32_MAX)
		size = SIZE_MAX; /* no class has this: EMSGSIZE */
	if (sgp_pool_get_bulk(pool, size, flags, chunks, n))
		return -1;
	for (i = 0; i < n; i++)
		sge[i] = (struct ibv_sge){.addr = (uintptr_t)chunks[i]->addr,
					  .length = (uint32_t)size,
					  .lkey = sgp_chunk_lkey(chunks[i])};
	return 0;
}

void sgp_chunk_ref(struct sgp_chunk *chunk)
{
	if (sgp_refuse_stale(chunk))
		return;
	__atomic_fetch_add(&chunk->refs, 1, __ATOMIC_RELAXED);
}

/* Return n chunks without references to their class. */
static void put_slowly(struct sgp_class *cls, struct sgp_chunk *const chunks[], size_t n)
{
	struct sgp_cache *cache = sgp_cache_of(cls);
	struct sgp_waiter *served = NULL;
	size_t count;

	sgp_watch_put(cls->pool, chunks, n);
	sgp_centre_prefetch(cls, n + trip(cls), true);
	pthread_mutex_lock(&cls->lock);
	count = cache ? sgp_cache_count(cache) : 0;
	if (sgp_centre_unmark_locked(cls, chunks, n) || !cache || cls->pressure || n > trip(cls)) {
		if (cls->pressure && count)
			sgp_cache_spill_locked(cache, count);
		sgp_centre_give_locked(cls, chunks, n);
		sgp_serve_locked(cls, &served);
		if (cls->pressure && relieved_locked(cls))
			cls->pressure = false;
	} else {
		if (n > cls->cache_chunks - count)
			sgp_cache_spill_locked(cache, trip(cls) < count ? trip(cls) : count);
		sgp_cache_store_locked(cache, chunks, n);
		sgp_cache_open_locked(cache);
	}
	pthread_mutex_unlock(&cls->lock);
	sgp_served_run(served);
}

static void put_last(struct sgp_class *cls, struct sgp_chunk *const chunks[], size_t n)
{
	int err = errno;

	put_slowly(cls, chunks, n);
	errno = err;
}

/* The last reference to what is not a slab's. */
static void release(struct sgp_chunk *chunk)
{
	int err = errno;

	chunk->owner->kind->release(chunk);
	errno = err;
}

static __attribute__((noinline)) int put_one_slowly(struct sgp_chunk *chunk)
{
	bool ordinary = sgp_mode_is_ordinary();

	if (!ordinary && (sgp_check_fork() || sgp_watch_can_put(chunk)))
		return -1;
	if (!sgp_last_drop(chunk))
		return 0;
	if (!ordinary && !sgp_watch_last(chunk))
		return -1;
	if (sgp_is_slabs(chunk))
		put_last(sgp_slab_of(chunk)->cls, &chunk, 1);
	else
		release(chunk);
	return 0;
}

int sgp_chunk_put(struct sgp_chunk *chunk)
{
	if (!chunk || SGP_LIKELY(sgp_mag_put(&sgp_thread, chunk)))
		return 0;
	return put_one_slowly(chunk);
}

/*
 * The same by the long way: references to chunks of one class, shared or not; or to one chunk that is
 * not a slab's. Returns how many.
 */
static size_t put_some(struct sgp_chunk *const chunks[], size_t n)
{
	struct sgp_chunk *last[BATCH];
	struct sgp_class *cls;
	size_t i, m = 0;

	if (!sgp_is_slabs(chunks[0])) {
		put_one_slowly(chunks[0]);
		return 1;
	}
	cls = sgp_slab_of(chunks[0])->cls;
	for (i = 0;
	     i < n && m < BATCH && sgp_is_slabs(chunks[i]) && sgp_slab_of(chunks[i])->cls == cls;
	     i++)
		if (sgp_last_drop(chunks[i]))
			last[m++] = chunks[i];
	if (m)
		put_last(cls, last, m);
	return i;
}

void sgp_chunk_put_bulk(struct sgp_chunk *const chunks[], size_t n)
{
	if (!sgp_mode_is_ordinary()) {
		for (size_t i = 0; i < n; i++)
			put_one_slowly(chunks[i]);
		return;
	}
	while (n) {
		size_t done = sgp_put_bulk_shortly(chunks, n);

		if (done == 0)
			done = put_some(chunks, n);
		chunks += done;
		n -= done;
	}
}
