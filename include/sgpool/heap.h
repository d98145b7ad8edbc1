/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The heap: registered memory of any size, as from malloc(3). In a library of its own, libsgpool-heap.
 *
 * A heap takes regions from a pool's reserved addresses and hands objects out of them, with jemalloc's
 * size classes and thread caches. A slice of an object goes into a list like a chunk's; until the last
 * list and queue have dropped it the object is held: a free takes effect then, without copying and
 * without waiting.
 *
 * sgp_malloc() and its like register memory when the heap has none left (see bytes below), and
 * sgp_free() may give some back: neither is for a data path that must never wait for the device. Posts
 * and completions never do.
 *
 * Threads: every call from any thread at once, unless it says otherwise. As with malloc(3), an object
 * that one thread frees or reallocates no other may be using meanwhile. In a forked child calls fail
 * with EPERM. sgpool-heap(7) tells what to know about linking and dlopen(3).
 */
#ifndef SGPOOL_HEAP_H
#define SGPOOL_HEAP_H

#include <stddef.h>
#include <stdint.h>

#include <sgpool/sgl.h>

SGP_BEGIN_DECLS

struct sgp_heap;

/* What a heap is made of. Zero the whole structure first: 0 means the default everywhere. */
struct sgp_heap_attr {
	uint32_t comp_mask; /* 0; a later version's members come with a bit each */
	uint32_t flags;     /* 0 */
	size_t bytes;       /* registered at creation, and kept; 0: none */
	size_t max_bytes;   /* registered at most; 0: what the pool has addresses for */
	uint32_t
		decay_ms; /* how long a region is free before a later free gives it back; 0: 1000 */
};

/*
 * Make a heap in a pool that has addresses left: sgp_pool_attr's max_bytes is for these too.
 *
 * attr: read during the call only; NULL: all default. The pool must outlive the heap.
 * Returns the heap, to be ended by sgp_heap_destroy(); NULL with errno, and nothing is left behind:
 *   EINVAL   an attribute is wrong, or the pool's regions are below 2 MiB
 *   ENOMEM   no memory, or over RLIMIT_MEMLOCK
 *   ENOBUFS  the pool has not as many addresses as bytes
 *   EAGAIN   4094 heaps and thread caches are all that can be in a process
 *   another: as sgp_pool_grow()
 */
SGP_API struct sgp_heap *sgp_heap_create(struct sgp_pool *pool, const struct sgp_heap_attr *attr);

/*
 * End a heap and give its memory back to the pool.
 *
 * Returns 0; -1 with EBUSY while an object is allocated, or held by a list or a queue, and nothing is
 * torn down; -1 with the errno of ibv_dereg_mr(3), and what could not be deregistered stays, so that
 * the call may be made again: it is the only one that the heap still takes. No other thread may be
 * using the heap.
 */
SGP_API int sgp_heap_destroy(struct sgp_heap *heap);

/*
 * Give back what nobody uses: the calling thread's cache, freed pages, and the regions that are free
 * then, but for attr's bytes. Returns 0, also when there was nothing to give; -1 with the errno of
 * ibv_dereg_mr(3).
 */
SGP_API int sgp_heap_trim(struct sgp_heap *heap);

/*
 * Allocate size bytes, aligned for any type. Size 0 is as size 1. The memory is not initialised.
 *
 * Returns the object, to be ended by sgp_free(); NULL with errno:
 *   ENOBUFS   the heap or its pool is at its max_bytes: temporary
 *   ENOMEM    no memory, or over RLIMIT_MEMLOCK
 *   EMSGSIZE  larger than the pool's regions (sgp_pool_attr's region_bytes): can never be had here
 *   EPERM     in a forked child
 *   another: as sgp_pool_grow()
 */
SGP_API void *sgp_malloc(struct sgp_heap *heap, size_t size);

/* The same for n objects of size bytes each, all bytes 0. ENOMEM also when the product overflows. */
SGP_API void *sgp_calloc(struct sgp_heap *heap, size_t n, size_t size);

/* The same on a multiple of alignment. EINVAL when that is no power of two. */
SGP_API void *sgp_aligned_alloc(struct sgp_heap *heap, size_t alignment, size_t size);

/*
 * Make the object ptr size bytes large, in its place or elsewhere; what fits of the contents is kept.
 *
 * ptr NULL: as sgp_malloc(). size 0: as sgp_free(), and NULL is returned. An object that a list or a
 * queue holds moves; the old one goes when the last of them has dropped it.
 * Returns the object; NULL with errno, and ptr as it was: as sgp_malloc(), EFAULT when ptr is not the
 * heap's, or freed; EBUSY when a receive, a READ or an atomic operation that was posted is to write to
 * the object: what it writes would be lost.
 */
SGP_API void *sgp_realloc(struct sgp_heap *heap, void *ptr, size_t size);

/*
 * Free an object. The caller may not touch it after the call; if it is held, lists and queues keep it
 * as it is until the last of them has dropped it. NULL does nothing, and so does an address that is no
 * heap's. errno is left alone.
 */
SGP_API void sgp_free(void *ptr);

/* The bytes that the object really has, all of which may be used. 0 for NULL and what is no heap's. */
SGP_API size_t sgp_usable_size(const void *ptr);

/*
 * Append length bytes of the object obj (as sgp_malloc() returned it) from offset on. The list has a
 * hold of its own; the object stays the caller's, to be freed at any time.
 *
 * Returns 0; -1 with errno, the list as it was: EFAULT when the slice leaves the object, or obj is no
 * heap's, or freed; ENOMEM; EPERM; or as sgp_sgl_append().
 */
SGP_API int sgp_sgl_append_ptr(struct sgp_sgl *sgl, void *obj, size_t offset, size_t length);

/* What a heap has, in bytes unless told otherwise. */
struct sgp_heap_stats {
	uint64_t allocated;   /* objects, those in threads' caches included */
	uint64_t active;      /* pages with objects in them */
	uint64_t resident;    /* these, and what jemalloc keeps of freed ones */
	uint64_t registered;  /* all of the heap's regions; pinned */
	uint64_t in_flight;   /* objects that lists and queues hold */
	uint64_t held;        /* how many objects these are, one counted for each append */
	uint64_t regions;     /* how many */
	double fragmentation; /* what part of the registered bytes is not allocated; 0 .. 1 */
};

/*
 * Fill in *stats. The numbers are read one after the other while others use the heap, and fit together
 * when nobody does. Returns 0; -1 with EPERM.
 */
SGP_API int sgp_heap_stats(struct sgp_heap *heap, struct sgp_heap_stats *stats);

SGP_END_DECLS

#endif
