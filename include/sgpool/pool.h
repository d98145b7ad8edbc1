/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The pool: memory that is registered once and handed out in chunks.
 *
 * A pool reserves one range of addresses, fills it with regions (memory and its registration) and
 * cuts these into chunks of one or several size classes. A chunk has references: whoever holds one
 * may use the chunk's memory, and the last sgp_chunk_put() returns it to its pool. Between
 * sgp_pool_create() and sgp_pool_destroy() nothing that moves data registers memory.
 *
 * Threads: a pool and its chunks may be used by every thread at once, unless a function says
 * otherwise. A forked child may do nothing with them but exec or exit.
 */
#ifndef SGPOOL_POOL_H
#define SGPOOL_POOL_H

#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>
#include <sgpool/export.h>

SGP_BEGIN_DECLS

struct sgp_pool;
struct sgp_chunk;

/* What backs a pool's memory. PREFER takes the next smaller kind where one cannot be had. */
enum sgp_pages {
	SGP_PAGES_PREFER_2M = 0, /* 2 MiB hugepages, else transparent ones, else base pages */
	SGP_PAGES_PREFER_1G,     /* 1 GiB hugepages, else as PREFER_2M */
	SGP_PAGES_REQUIRE_2M,    /* ENOMEM without */
	SGP_PAGES_REQUIRE_1G,    /* ENOMEM without */
	SGP_PAGES_THP,           /* base pages with MADV_HUGEPAGE */
	SGP_PAGES_BASE,          /* base pages only */
};

/* Flags of a pool. */
enum {
	SGP_POOL_NUMA = 1 << 0, /* place the memory on numa_node */
};

/* A size class: chunks of one size. */
struct sgp_class_attr {
	size_t size;       /* bytes a chunk; 1 .. 2^31 - 1 */
	size_t chunks;     /* how many to make at creation */
	size_t max_chunks; /* how many growth may make it; 0: as chunks */
	uint32_t align;    /* a power of two on which each chunk starts, at most a page; 0: chosen */
	uint32_t flags;    /* 0 */
};

/* What a pool is made of. Zero the whole structure first: 0 means the default everywhere. */
struct sgp_pool_attr {
	uint32_t comp_mask; /* 0; a later version's members come with a bit each */
	uint32_t flags;     /* SGP_POOL_* */
	const struct sgp_class_attr *classes;
	uint32_t nclasses; /* 1 in this version */
	enum sgp_pages pages;
	int numa_node;       /* with SGP_POOL_NUMA */
	size_t max_bytes;    /* addresses to reserve, for ever; 0: what max_chunks needs */
	size_t region_bytes; /* the largest region; 0: chosen. The device's max_mr_size cuts it too */
};

/*
 * Make a pool and register its memory on one protection domain.
 *
 * pd: stays the caller's, and must outlive the pool. attr: read during the call only.
 * Returns the pool, to be ended by sgp_pool_destroy(); NULL with errno, and nothing is left behind:
 *   EINVAL  an attribute is wrong (which one: sgp_errmsg())
 *   ENOMEM  no memory, no hugepages where they were required, or over RLIMIT_MEMLOCK
 *   another: the errno of ibv_reg_mr(3)
 */
SGP_API struct sgp_pool *sgp_pool_create(struct ibv_pd *pd, const struct sgp_pool_attr *attr);

/*
 * End a pool: deregister and free its memory.
 *
 * Returns 0; -1 with EBUSY while a chunk is held (by the caller, a list, or a queue), and nothing is
 * torn down; -1 with the errno of ibv_dereg_mr(3), and what could not be deregistered stays, so that
 * the call may be made again. No other thread may be using the pool.
 */
SGP_API int sgp_pool_destroy(struct sgp_pool *pool);

/*
 * Add at least nchunks chunks of the class that serves size: more memory, registered now.
 *
 * Returns 0; -1 with errno, and the pool is as it was:
 *   EINVAL    nchunks is 0
 *   EMSGSIZE  size is larger than the largest class
 *   ENOBUFS   the class would pass its max_chunks, or the pool its max_bytes
 *   ENOMEM or another: as sgp_pool_create()
 */
SGP_API int sgp_pool_grow(struct sgp_pool *pool, size_t size, size_t nchunks);

/* Flags of a get: none in this version. */

/*
 * Take a chunk of at least size bytes; the caller gets one reference.
 *
 * The chunk's memory is registered and holds whatever was in it before. flags: 0.
 * Returns the chunk, to be ended by sgp_chunk_put(), sgp_sgl_append() or another call that takes
 * the reference over; NULL with errno:
 *   ENOBUFS   none is free: temporary, put one or grow
 *   EMSGSIZE  size is larger than the largest class: can never be had here
 *   EINVAL    size is 0, or flags are wrong
 */
SGP_API struct sgp_chunk *sgp_pool_get(struct sgp_pool *pool, size_t size, int flags);

/*
 * Take n chunks of at least size bytes each into chunks[0 .. n - 1]: all of them or none.
 *
 * Returns 0, or -1 with errno as sgp_pool_get() and nothing taken. n 0 does nothing.
 */
SGP_API int sgp_pool_get_bulk(struct sgp_pool *pool, size_t size, int flags,
			      struct sgp_chunk *chunks[], size_t n);

/* Take one reference more to a chunk that the caller holds. */
SGP_API void sgp_chunk_ref(struct sgp_chunk *chunk);

/*
 * Give one reference back; the last one returns the chunk to its pool. The caller may not touch the
 * chunk's memory after the call. NULL does nothing. errno is left alone.
 */
SGP_API void sgp_chunk_put(struct sgp_chunk *chunk);

/* Give one reference to each of chunks[0 .. n - 1] back, as sgp_chunk_put(). */
SGP_API void sgp_chunk_put_bulk(struct sgp_chunk *const chunks[], size_t n);

/* The chunk's memory: sgp_chunk_size() bytes, never moved. */
SGP_API void *sgp_chunk_addr(const struct sgp_chunk *chunk);

/* The chunk's size in bytes: that of its class, at least what was asked for. */
SGP_API size_t sgp_chunk_size(const struct sgp_chunk *chunk);

/* The local key of the chunk's memory on the pool's first protection domain. Any value is legal, 0 too. */
SGP_API uint32_t sgp_chunk_lkey(const struct sgp_chunk *chunk);

/* The pool that the chunk came from. */
SGP_API struct sgp_pool *sgp_chunk_pool(const struct sgp_chunk *chunk);

/*
 * The chunk that an address lies in; takes no reference. The caller must hold that chunk.
 *
 * Returns NULL with EFAULT when addr is in no chunk of this pool.
 */
SGP_API struct sgp_chunk *sgp_pool_chunk_at(struct sgp_pool *pool, const void *addr);

/* What a pool has and did. Numbers are read one after the other, while others use the pool. */
struct sgp_pool_stats {
	uint64_t chunks;           /* made so far */
	uint64_t free;             /* of these, in the pool */
	uint64_t live;             /* of these, held by someone */
	uint64_t regions;          /* pieces of memory, each registered once */
	uint64_t registrations;    /* calls of ibv_reg_mr(3) that succeeded, since creation */
	uint64_t deregistrations;  /* calls of ibv_dereg_mr(3) that succeeded */
	uint64_t bytes_registered; /* now */
	uint64_t bytes_reserved;   /* addresses */
	uint64_t page_size;        /* what the first region is backed by, in bytes */
};

/* Fill in *stats. Returns 0. */
SGP_API int sgp_pool_stats(struct sgp_pool *pool, struct sgp_pool_stats *stats);

SGP_END_DECLS

#endif
