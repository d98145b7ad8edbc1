/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The threads' caches: an explicit tcache of jemalloc's for each thread and heap.
 *
 *      self.last --> cache --> cache ...   of the thread
 *                      |
 *      heap.caches --> cache --> cache ... of the heap
 *
 * When the heap goes before the thread the cache stays with the thread, dead: it matches no heap. When
 * the thread goes its caches go back, whatever the order of destructors: what a later one allocates or
 * frees goes to the arena directly. So it does beyond jemalloc's 4094 caches.
 *
 * Locking: a registry lock, taken at a thread's first use of a heap, at its end, and at a heap's end.
 */
#ifndef SGP_HEAP_CACHE_H
#define SGP_HEAP_CACHE_H

#include "heap/heap.h"

struct sgp_heap_cache {
	_Atomic(struct sgp_heap *) heap; /* NULL: dead */
	int flags;                       /* for jemalloc: arena and tcache */
	unsigned int tcache;
	bool has_tcache;
	struct sgp_heap_cache *next_of_thread, *next_of_heap;
};

struct sgp_heap_self {
	struct sgp_heap_cache *last;   /* never NULL */
	struct sgp_heap_cache *caches; /* of the thread */
	bool ended;
};

extern __thread struct sgp_heap_self sgp_heap_self __attribute__((tls_model("initial-exec")));

/* Prepare the process: a thread's end, fork. Once is enough. Returns 0, or -1 with EAGAIN. */
int sgp_heap_threads_init(void);

/* The same as below when the thread's last cache is another. -1 with EPERM in a forked child. */
int sgp_heap_find_flags(struct sgp_heap *heap);

/* jemalloc's flags for this thread and heap: 0 or more; -1 with EPERM in a forked child. */
static inline int sgp_heap_flags(struct sgp_heap *heap)
{
	const struct sgp_heap_cache *cache = sgp_heap_self.last;

	if (SGP_LIKELY(atomic_load_explicit(&cache->heap, memory_order_relaxed) == heap))
		return cache->flags;
	return sgp_heap_find_flags(heap);
}

/* Give back what the calling thread's cache of the heap has. */
void sgp_heap_cache_flush(struct sgp_heap *heap);

/* The heap goes, or wants to know what is in use: end its caches, of all threads. */
void sgp_heap_caches_end(struct sgp_heap *heap);

#endif
