/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is done to a thread's magazine outside of the inline get and put: fill it, empty it, close
 * it so that its chunks can be taken while its owner sleeps; see sgpool/inline.h for the protocol.
 *
 * Locking: everything here happens under the class's lock, which therefore decides between the
 * owner in its slow path and who reclaims. Only the owner opens a magazine.
 */
#ifndef SGP_CACHE_H
#define SGP_CACHE_H

#include "pool/centre.h"
#include "pool/thread.h"
#include "pool/wait.h"

/* A new cache, closed and empty, on no list. NULL without memory. */
struct sgp_cache *sgp_cache_make(struct sgp_class *cls);
void sgp_cache_init(struct sgp_cache *cache, struct sgp_class *cls);

/* Its class goes, its memory stays: make it serve no pool and take no chunk. */
void sgp_cache_kill(struct sgp_cache *cache);

/* Put it on its class's list. */
void sgp_cache_attach(struct sgp_cache *cache);

/* Its owner ends: return its chunks and take it off its class's list. *served as
 * sgp_serve_locked(). */
void sgp_cache_detach(struct sgp_cache *cache, struct sgp_waiter **served);

/* Chunks in it; exact while its owner is outside. */
static inline size_t sgp_cache_count(const struct sgp_cache *cache)
{
	uintptr_t top = __atomic_load_n(&cache->mag.top, __ATOMIC_RELAXED);

	if (__atomic_load_n(&cache->emptied, __ATOMIC_RELAXED))
		return 0;
	return (top - (uintptr_t)cache->items) / sizeof cache->items[0];
}

/* By the owner: let the inline forms in. */
void sgp_cache_open_locked(struct sgp_cache *cache);

/* By the owner: take up to n chunks from the centre, or put n back there, the oldest first. */
void sgp_cache_fill_locked(struct sgp_cache *cache, size_t n);
void sgp_cache_spill_locked(struct sgp_cache *cache, size_t n);

/* By the owner: put n chunks in, for which there is room. */
void sgp_cache_store_locked(struct sgp_cache *cache, struct sgp_chunk *const chunks[], size_t n);

/*
 * Close all caches of a class and empty into the centre those whose owner is outside; says in
 * cls->unsettled whether one was inside. It returns how many chunks came.
 */
size_t sgp_reclaim_locked(struct sgp_class *cls);

#endif
