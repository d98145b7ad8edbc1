/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A heap's inside: one jemalloc arena, whose extent hooks take runs of pages from regions, which are
 * extents of the pool (pool/extent.h).
 *
 *      sgp_malloc --> thread's tcache --> arena --> hooks --> regions: page map, page map ...
 *                                                                |
 *                                                                v
 *                                                     pool: memory and registration
 *
 * heap.c makes and ends it, alloc.c has the calls, cache.c the threads' caches, regions.c pages and the
 * way from an address to its region, hooks.c what jemalloc calls, holds.c what is in lists and queues,
 * stats.c the numbers. jemalloc's own data lie elsewhere: the device never sees them.
 *
 * Locking: grow serialises making and ending regions; lock protects the list of regions and their page
 * maps, and is innermost. Order: the threads' registry (cache.c), jemalloc's, grow, the pool's.
 */
#ifndef SGP_HEAP_INTERNAL_H
#define SGP_HEAP_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "heap/jemalloc.h"
#include "heap/pages.h"
#include "pool/extent.h"
#include "sgpool/heap.h"

struct sgp_heap_cache;
struct sgp_hold_table;

struct sgp_heap_region {
	struct sgp_extent extent; /* first */
	struct sgp_heap *heap;
	struct sgp_heap_region *prev, *next; /* of the heap's, by address */
	uint64_t free_since;                 /* in ms: no page of it has been in use since then */
	struct sgp_page_map pages;
	uint64_t map[];
};

struct sgp_heap {
	extent_hooks_t hooks; /* first: all that the hooks are given */
	struct sgp_pool *pool;
	struct sgp_hold_table *holds;
	unsigned int arena;
	bool ended; /* the arena is gone, only regions are left */
	size_t page;
	size_t most; /* the largest object */
	size_t keep; /* bytes of regions that stay */
	size_t max_bytes;
	uint32_t decay_ms;
	struct sgp_heap_cache *caches;

	pthread_mutex_t grow;
	struct sgp_heap_region *broken; /* not used any more: the device kept a part; by next */
	_Alignas(64) pthread_mutex_t lock;
	struct sgp_heap_region *first, *last; /* by address */
	size_t used_pages;
	size_t nempty;    /* regions without a page in use */
	uint64_t look_at; /* in ms: when to look again for those that have been so for long */
	_Atomic size_t bytes, nregions;
};

/* What jemalloc calls to get and give pages. */
extern const extent_hooks_t sgp_heap_hooks;

/* ---- regions.c ---- */

/*
 * n pages on a multiple of align pages: from the regions that there are, or from a new one; contents
 * unknown. NULL with errno, as sgp_extent_make().
 */
void *sgp_heap_take_pages(struct sgp_heap *heap, size_t n, size_t align);
void sgp_heap_give_pages(struct sgp_heap *heap, void *addr, size_t n);

/* Regions up to at least so many bytes. Returns 0, or -1 with errno and some made. */
int sgp_heap_grow_to(struct sgp_heap *heap, size_t bytes);

/*
 * Give regions back to the pool that have been free since then (in ms; UINT64_MAX: that are free), as
 * long as keep bytes of regions are left. Returns 0, or -1 with the errno of ibv_dereg_mr(3).
 */
int sgp_heap_shrink(struct sgp_heap *heap, size_t keep, uint64_t then);

/* The region that an address lies in; NULL when it is in no heap's. */
struct sgp_heap_region *sgp_heap_region_at(const void *addr);

/* While a thread releases what a queue held, nothing is deregistered: the queue's locks are held. */
extern __thread int sgp_heap_releasing __attribute__((tls_model("initial-exec")));

/* The errno of the thread's last hook that failed, and 0 again. */
int sgp_heap_hook_error(void);

/* ---- heap.c ---- */

/* mallctl of one of the arena's entries, e.g. "purge" for arena.<i>.purge. Returns a positive errno. */
int sgp_heap_ctl(const struct sgp_heap *heap, const char *entry, void *value, size_t size);

#endif
