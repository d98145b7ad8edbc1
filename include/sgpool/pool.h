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
 * otherwise. A forked child may do nothing with them but exec or exit: calls fail with EPERM there.
 * Where the pool is NULL they fail with EINVAL.
 */
#ifndef SGPOOL_POOL_H
#define SGPOOL_POOL_H

#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>
#include <sgpool/export.h>
#include <sgpool/inline.h>

SGP_BEGIN_DECLS

/* struct sgp_pool and struct sgp_chunk are opaque: what inline.h shows of them is the library's. */

/*
 * What backs a pool's memory. PREFER takes the next smaller kind where one cannot be had, and for a
 * region that is smaller than one such page. sgp_pool_stats() tells what it came to.
 */
enum sgp_pages {
	SGP_PAGES_PREFER_2M = 0, /* 2 MiB hugepages, else transparent ones, else base pages */
	SGP_PAGES_PREFER_1G,     /* 1 GiB hugepages, else as PREFER_2M */
	SGP_PAGES_REQUIRE_2M,    /* ENOMEM without */
	SGP_PAGES_REQUIRE_1G,    /* ENOMEM without */
	SGP_PAGES_THP,           /* base pages with MADV_HUGEPAGE */
	SGP_PAGES_BASE,          /* base pages only */
};

/*
 * Flags of a pool. Without one of those for access the memory is for this end only: LOCAL_WRITE.
 *
 * With REMOTE_* a peer that learns the key of one chunk (sgp_chunk_rkey()) reaches the chunk's whole
 * region, chunks that others hold included, as long as the region stands and without a completion at
 * this end. Give what peers are to reach a pool of its own, or use WINDOWS.
 */
enum {
	SGP_POOL_NUMA = 1 << 0,          /* place the memory on numa_node */
	SGP_POOL_REMOTE_READ = 1 << 1,   /* peers may READ it */
	SGP_POOL_REMOTE_WRITE = 1 << 2,  /* peers may WRITE it */
	SGP_POOL_REMOTE_ATOMIC = 1 << 3, /* peers may do atomic operations on it */
	/*
	 * This end's READs may go into it. Nothing on InfiniBand and RoCE; on iWARP, where the answer to
	 * a READ is a write by the peer, it is REMOTE_WRITE.
	 */
	SGP_POOL_READ_SINK = 1 << 4,
	SGP_POOL_WINDOWS = 1 << 5, /* memory windows may be bound to it */
	/*
	 * Devices may write it in any order (IBV_ACCESS_RELAXED_ORDERING): only a completion says that
	 * data is there, never its last byte. Where the system or the device does not know or refuses
	 * it, the memory is registered without.
	 */
	SGP_POOL_RELAXED_ORDERING = 1 << 6,
	SGP_POOL_CHECKED = 1 << 8, /* mistakes are found, at a price: see check.h */
	/*
	 * Free memory is zero: each last put clears the chunk, so that nobody finds in it what another
	 * had there. It costs the clearing, and gets and puts go by the calls and a lock.
	 */
	SGP_POOL_SCRUB = 1 << 9,
};

/* A size class: chunks of one size. */
struct sgp_class_attr {
	size_t size;       /* bytes a chunk; 1 .. 2^31 - 1 */
	size_t chunks;     /* how many to make at creation */
	size_t max_chunks; /* how many growth may make it; 0: as chunks */
	uint32_t align;    /* a power of two on which each chunk starts, at most a page; 0: chosen */
	uint32_t flags;    /* 0 */
	size_t reserve;    /* so many chunks only SGP_GET_RESERVED may have; fewer are for the others */
	size_t low_water;  /* a helper thread makes more when fewer are free; 0: none */
};

struct sgp_import;

/* A region, as those are told of it who register the same memory elsewhere. */
struct sgp_region_info {
	void *addr;                /* its first byte; what devices call it, if it is not mapped */
	size_t bytes;
	size_t page_size;          /* of what backs it; 0 of imported memory: not known */
	struct sgp_import *import; /* whose it is, NULL: the pool's own (sgpool/import.h) */
	int mapped;                /* the processor can reach it */
};

/*
 * What a pool is made of. Zero the whole structure first: 0 means the default everywhere.
 *
 * align: up to 64 the chunks are strided: an odd number of cache lines apart, so that their first
 * lines spread over the processor's cache; above, each starts on a multiple of align. By default
 * chunks of a page or more are aligned to a page, smaller ones strided.
 */
struct sgp_pool_attr {
	uint32_t comp_mask; /* 0; a later version's members come with a bit each */
	uint32_t flags;     /* SGP_POOL_* */
	const struct sgp_class_attr *classes; /* of different sizes, in any order */
	uint32_t nclasses; /* 0: no chunks, only max_bytes for heaps (sgpool/heap.h) */
	enum sgp_pages pages;
	int numa_node;       /* with SGP_POOL_NUMA */
	size_t max_bytes;    /* addresses to reserve, for ever; 0: what max_chunks needs */
	size_t region_bytes; /* the largest region; 0: chosen. The device's max_mr_size cuts it too */
	/* What nobody needed for so long is given back by a helper thread, down to chunks; 0: never. */
	uint32_t idle_ms;
	/* Threads that make a large region's pages present; 0: as many as processors. */
	uint32_t populate_threads;
	/* Called now and then while they do, by the thread that grows the pool; NULL: not. */
	void (*progress)(void *progress_arg, size_t bytes_done, size_t bytes);
	void *progress_arg;
	/*
	 * For those who register the same memory elsewhere, as io_uring's fixed buffers: told of each
	 * region once it is registered and before any of it is handed out, and of its end before it is
	 * deregistered and unmapped. Regions come with creation and growth, go with trim and destroy;
	 * imported memory is one too. *cookie is theirs, kept for the second call. They run in the thread
	 * that grows, trims, imports or ends; they must not call the pool. NULL: not called.
	 *
	 * region_add returns 0; or -1 with an errno, which becomes that of the call that wanted the
	 * memory (ECANCELED if it is 0), and the region is undone (region_remove is not called for it).
	 */
	int (*region_add)(void *region_arg, const struct sgp_region_info *region, void **cookie);
	void (*region_remove)(void *region_arg, const struct sgp_region_info *region, void *cookie);
	void *region_arg;
};

/*
 * Make a pool and register its memory on one protection domain; sgp_pool_add_pd() adds others.
 *
 * pd: stays the caller's, and must outlive the pool, or be removed from it first. NULL: the pool is on
 * none yet, on a machine without RDMA for ever: its memory can be used for anything but posts.
 * attr: read during the call only, but for what progress_arg and region_arg point to.
 * Returns the pool, to be ended by sgp_pool_destroy(); NULL with errno, and nothing is left behind
 * (but for memory that the device would not let go of again, which stays mapped):
 *   EINVAL      an attribute is wrong (which one: sgp_errmsg())
 *   EOPNOTSUPP  SGP_POOL_WINDOWS, and the device has no type 2 memory windows; SGP_POOL_NUMA, and
 *               the library was built without libnuma
 *   ENOMEM      no memory, no hugepages where they were required, or over RLIMIT_MEMLOCK
 *   ENOBUFS     max_bytes is too small for the chunks asked for
 *   ENOSPC      64 protection domains are in use by sgpool
 *   EAGAIN      no thread for low_water or idle_ms
 *   EPERM       in a forked child, or as another
 *   another: the errno of ibv_reg_mr(3), ibv_query_device(3), mbind(2) or region_add()
 */
SGP_API struct sgp_pool *sgp_pool_create(struct ibv_pd *pd, const struct sgp_pool_attr *attr);

/*
 * End a pool: deregister and free its memory.
 *
 * Returns 0; -1 with EBUSY while a chunk is held (by the caller, a list, a queue or a window),
 * somebody waits for one, imported memory stands, or a heap has memory of the pool, and nothing is
 * torn down; -1 with the errno of ibv_dereg_mr(3), and what could not be deregistered stays, so that
 * the call may be made again: it is the only one that the pool still takes. No other thread may be
 * using the pool.
 */
SGP_API int sgp_pool_destroy(struct sgp_pool *pool);

/*
 * Register the pool's memory on one protection domain more, of the same device or another, while
 * others use the pool: all regions that there are, imported ones too, and those that come.
 *
 * From the return on, chunks go through queue pairs of that domain as well, also those that were got
 * before; lists find the right keys by themselves. pd: stays the caller's; it must not be deallocated
 * before sgp_pool_remove_pd() or sgp_pool_destroy(). Up to 64 domains are in use by sgpool at once.
 * Returns 0; -1 with errno, and the memory is registered where it was:
 *   EEXIST      it has been added before
 *   EOPNOTSUPP  the device takes no regions as long as the pool has or may need (its max_mr_size), or
 *               lacks what SGP_POOL_WINDOWS, or a dma-buf that was imported, needs
 *   ENOSPC      64 protection domains are in use by sgpool
 *   EINVAL      no pool or no protection domain
 *   EPERM       in a forked child
 *   another: the errno of ibv_query_device(3) or ibv_reg_mr(3)
 */
SGP_API int sgp_pool_add_pd(struct sgp_pool *pool, struct ibv_pd *pd);

/*
 * Deregister the pool's memory from a protection domain, while others use the pool: so that its
 * device can go. Any domain may be removed, also the first and the last one; a pool without any still
 * keeps and hands out memory, but nothing of it can be posted until one is added.
 *
 * Chunks that are held keep their memory, and lists their chunks: posted on a queue pair of that
 * domain they are refused with EXDEV, also if the list was built before. Keys that were told to
 * others are dead.
 * Returns 0; -1 with errno:
 *   EBUSY   an endpoint or a shared receive queue of sgpool is on the domain; nothing changed
 *   EINVAL  the pool is not on it
 *   EPERM   in a forked child
 *   another: of ibv_dereg_mr(3). Nothing can be posted there any more, but some of the registrations
 *           stand; the call, or sgp_pool_add_pd(), may be made again.
 */
SGP_API int sgp_pool_remove_pd(struct sgp_pool *pool, struct ibv_pd *pd);

/*
 * Add at least nchunks chunks of the class that serves size: more memory, registered now.
 *
 * Returns 0; -1 with errno, and the pool is as it was:
 *   EINVAL    nchunks or size is 0
 *   EMSGSIZE  size is larger than the largest class
 *   ENOBUFS   the class would pass its max_chunks, or the pool its max_bytes
 *   ENOMEM or another: as sgp_pool_create(), on any of the pool's protection domains
 */
SGP_API int sgp_pool_grow(struct sgp_pool *pool, size_t size, size_t nchunks);

/*
 * Give free regions back: deregister them and return their pages, while others use the pool.
 *
 * size: of the class that serves it; 0: all classes. keep: chunks that each class keeps at least.
 * Chunks that other threads hold in their caches are collected first. A region goes when all of its
 * chunks are free.
 * Returns 0, also when there was nothing to give; -1 with errno: EMSGSIZE, or the errno of
 * ibv_dereg_mr(3), and that region stays in use.
 */
SGP_API int sgp_pool_trim(struct sgp_pool *pool, size_t size, size_t keep);

/*
 * Change a class's limits while it is in use.
 *
 * max_chunks: at most so many may be out of the pool's centre at once; more of them stay with their
 * owners until they are put. reserve: so many of them only SGP_GET_RESERVED may have.
 * Returns 0; -1 with EMSGSIZE, or EINVAL when size is 0, max_chunks is 0 or above what the pool was
 * made with, or reserve above max_chunks.
 */
SGP_API int sgp_pool_set_limits(struct sgp_pool *pool, size_t size, size_t max_chunks,
				size_t reserve);

/* Flags of a get. */
enum {
	SGP_MAY_GROW = 1 << 0,     /* register more memory when none is free: not for a data path */
	SGP_GET_RESERVED = 1 << 1, /* the class's reserve may be used: for receives, and for control */
};

/*
 * Take a chunk of at least size bytes; the caller gets one reference.
 *
 * The smallest class that is large enough serves; finding it takes the same few steps whatever the
 * number of classes. The chunk's memory is registered and holds whatever was in it before, or zeros
 * with SGP_POOL_SCRUB. flags: SGP_MAY_GROW, SGP_GET_RESERVED, or 0. Free chunks in the caches of other
 * threads are found too. Not for signal handlers.
 * Returns the chunk, to be ended by sgp_chunk_put(), sgp_sgl_append() or another call that takes
 * the reference over; NULL with errno:
 *   ENOBUFS   none is free, or only the reserve: temporary, put one, wait or grow
 *   EMSGSIZE  size is larger than the largest class: can never be had here
 *   EINVAL    size is 0, or flags are wrong
 *   EPERM     in a forked child
 *   with SGP_MAY_GROW also the errno of sgp_pool_grow()
 */
SGP_HOT_API struct sgp_chunk *sgp_pool_get(struct sgp_pool *pool, size_t size, int flags);

/*
 * Take n chunks of at least size bytes each into chunks[0 .. n - 1]: all of them or none.
 *
 * Returns 0, or -1 with errno as sgp_pool_get() and nothing taken. n 0 does nothing.
 */
SGP_HOT_API int sgp_pool_get_bulk(struct sgp_pool *pool, size_t size, int flags,
			      struct sgp_chunk *chunks[], size_t n);

/*
 * The same, and describe each chunk's first size bytes in sge[0 .. n - 1], under the keys of the
 * pool's first protection domain.
 */
SGP_HOT_API int sgp_pool_get_sge(struct sgp_pool *pool, size_t size, int flags,
			     struct sgp_chunk *chunks[], struct ibv_sge sge[], size_t n);

/*
 * The same as sgp_pool_get_bulk(), but wait for at most timeout_ms milliseconds, -1 for ever.
 *
 * Those who wait are served in order, each with all of its n chunks at once, by whichever thread
 * puts; those with SGP_GET_RESERVED before the others. A get does not overtake them.
 * Returns 0; -1 with errno as sgp_pool_get(), but ETIMEDOUT instead of ENOBUFS; EINVAL also when n
 * is more than the class can ever have.
 */
SGP_API int sgp_pool_get_wait(struct sgp_pool *pool, size_t size, int flags,
			      struct sgp_chunk *chunks[], size_t n, int timeout_ms);

/*
 * A wait that blocks nobody, for event loops. The caller provides the storage, zeroes it, sets the
 * first three members, and may embed it in a structure of its own.
 */
struct sgp_waiter {
	/* Called once the chunks are there, by the thread that put the last one, with no lock held. */
	void (*ready)(struct sgp_waiter *waiter);
	struct sgp_chunk **chunks; /* [n], filled in then */
	size_t n;
	/* The library's. */
	struct sgp_class *cls;
	struct sgp_waiter *next;
	void *cond;
	int flags, state;
};

/*
 * Take waiter->n chunks as soon as they can be had. It queues with those of sgp_pool_get_wait(), and
 * may block for as long as a preempted thread of the process needs to go on.
 *
 * Returns 1 when they are there already (ready() is not called), 0 when ready() will be called; the
 * waiter and its array must stand until then. -1 with errno as sgp_pool_get_wait() (EINVAL also
 * without ready or chunks), and it is not queued.
 */
SGP_API int sgp_waiter_start(struct sgp_waiter *waiter, struct sgp_pool *pool, size_t size,
			     int flags);

/*
 * Take a waiter back. Returns 1: ready() will not be called. 0: it was served before; ready() has
 * been, is being or will be called, and the chunks are the caller's.
 */
SGP_API int sgp_waiter_cancel(struct sgp_waiter *waiter);

/* Take one reference more to a chunk that the caller holds. */
SGP_HOT_API void sgp_chunk_ref(struct sgp_chunk *chunk);

/*
 * Give one reference back; the last one returns the chunk to its pool. The caller may not touch the
 * chunk's memory after the call. NULL does nothing.
 *
 * Returns 0, and errno is left alone. -1, and nothing happens: EPERM in a forked child; ESTALE for a
 * chunk that nobody holds or a handle that is none, which checked pools alone notice (check.h).
 */
SGP_HOT_API int sgp_chunk_put(struct sgp_chunk *chunk);

/*
 * Give one reference to each of chunks[0 .. n - 1] back, as sgp_chunk_put(); none may be NULL. What
 * that would refuse is left out: in a forked child all.
 */
SGP_HOT_API void sgp_chunk_put_bulk(struct sgp_chunk *const chunks[], size_t n);

/* The chunk's memory: sgp_chunk_size() bytes, never moved. */
SGP_API void *sgp_chunk_addr(const struct sgp_chunk *chunk);

/* The chunk's size in bytes: that of its class, at least what was asked for. */
SGP_API size_t sgp_chunk_size(const struct sgp_chunk *chunk);

/*
 * The local key of the chunk's memory on the pool's first protection domain: the one that it was made
 * on, or, when that has been removed, the one that was added the longest ago. Any value is legal, 0
 * too; 0 also when the pool is on none.
 */
SGP_API uint32_t sgp_chunk_lkey(const struct sgp_chunk *chunk);

/*
 * The remote key of the chunk's memory on the pool's first protection domain, to be told to a peer
 * together with the address. It opens the chunk's whole region for what the pool's REMOTE_* flags
 * allow; what they don't ends at the peer with IBV_WC_REM_ACCESS_ERR, whatever the key.
 */
SGP_API uint32_t sgp_chunk_rkey(const struct sgp_chunk *chunk);

/*
 * The keys of the chunk's memory on one protection domain of the pool's. lkey, rkey: NULL where not
 * wanted. They are good until the domain is removed from the pool, or the chunk is put.
 *
 * Returns 0; -1 with EXDEV: the pool is not on that domain. It takes a lock for a moment.
 */
SGP_API int sgp_chunk_keys(const struct sgp_chunk *chunk, const struct ibv_pd *pd, uint32_t *lkey,
			   uint32_t *rkey);

/* The pool that the chunk came from. */
SGP_API struct sgp_pool *sgp_chunk_pool(const struct sgp_chunk *chunk);

/*
 * The chunk that an address lies in; takes no reference. The caller must hold that chunk.
 *
 * Returns NULL with EFAULT when addr is in no chunk of this pool; in a checked pool with ESTALE when
 * nobody holds the chunk.
 */
SGP_API struct sgp_chunk *sgp_pool_chunk_at(struct sgp_pool *pool, const void *addr);

/* What a class has and did. */
struct sgp_class_stats {
	size_t size;         /* bytes a chunk */
	uint64_t max_chunks; /* the limit, see sgp_pool_set_limits() */
	uint64_t reserve;
	uint64_t chunks;     /* made so far: free + cached + live */
	uint64_t free;       /* in the centre, for everybody */
	uint64_t cached;     /* in the threads' caches */
	uint64_t live;       /* held by someone */
	uint64_t peak;       /* the most that were cached or live at once */
	uint64_t exhausted;  /* gets that found none */
	uint64_t waits;      /* gets that had to wait */
	uint64_t reclaims;   /* times that the threads' caches were emptied since chunks were short */
	uint64_t growths, trims; /* regions made after the creation, and given back */
	uint64_t bytes;      /* of registered memory */
};

/* What a pool has and did, over all classes. */
struct sgp_pool_stats {
	uint64_t chunks;           /* made so far */
	uint64_t free;             /* of these, in the pool, caches included */
	uint64_t live;             /* of these, held by someone */
	uint64_t regions;          /* pieces of memory, each registered once a protection domain */
	uint64_t registrations;    /* calls of ibv_reg_mr(3) that succeeded, since creation */
	uint64_t deregistrations;  /* calls of ibv_dereg_mr(3) that succeeded */
	uint64_t bytes_registered; /* now: memory, however many domains it is registered on */
	uint64_t bytes_reserved;   /* addresses */
	uint64_t page_size;        /* what the first region is backed by, in bytes */
	uint64_t imports;          /* of the regions, those that were imported (import.h) */
	uint64_t bytes_imported;   /* of the bytes registered */
	uint64_t cached;           /* of the free ones, in the threads' caches */
	uint64_t findings;         /* mistakes found in it, see check.h */
	uint32_t nclasses;
};

/*
 * Fill in *stats. No lock of the data path is taken: the numbers are read one after the other while
 * others use the pool, and fit together when nobody does. Returns 0; -1 with EPERM.
 */
SGP_API int sgp_pool_stats(struct sgp_pool *pool, struct sgp_pool_stats *stats);

/* The same for class number index, the smallest size being number 0. Returns 0; -1 with EINVAL. */
SGP_API int sgp_pool_class_stats(struct sgp_pool *pool, uint32_t index,
				 struct sgp_class_stats *stats);

enum sgp_stats_format {
	SGP_STATS_TEXT = 0,   /* a table for people */
	SGP_STATS_JSON,       /* one object on one line */
	SGP_STATS_PROMETHEUS, /* Prometheus's text exposition, with the label pool="name" */
};

/*
 * Write the statistics as text into buf[0 .. size - 1], cut off and 0-terminated as by snprintf(3).
 *
 * name: tells this pool from others in the output; NULL: "sgpool".
 * Returns the length of the whole text; -1 with EINVAL.
 */
SGP_API int sgp_pool_stats_print(struct sgp_pool *pool, const char *name,
				 enum sgp_stats_format format, char *buf, size_t size);

#ifndef SGP_NO_INLINE
/*
 * The same functions, inline as long as the calling thread has what it needs at hand. Each is still a
 * function: its address can be taken, and (sgp_pool_get)(pool, size, 0) calls it.
 */
static inline struct sgp_chunk *sgp_pool_get_inline(struct sgp_pool *pool, size_t size, int flags)
{
	struct sgp_chunk *chunk;

	if (SGP_LIKELY((flags & ~SGP_MAY_GROW) == 0) &&
	    SGP_LIKELY(sgp_mag_get(&sgp_thread, pool, size, &chunk)))
		return chunk;
	return sgp_pool_get(pool, size, flags);
}
#define sgp_pool_get(pool, size, flags) sgp_pool_get_inline(pool, size, flags)

static inline int sgp_chunk_put_inline(struct sgp_chunk *chunk)
{
	if (SGP_LIKELY(chunk != NULL) && SGP_LIKELY(sgp_mag_put(&sgp_thread, chunk)))
		return 0;
	return sgp_chunk_put(chunk);
}
#define sgp_chunk_put(chunk) sgp_chunk_put_inline(chunk)

static inline void *sgp_chunk_addr_inline(const struct sgp_chunk *chunk)
{
	return SGP_LIKELY(sgp_thread.layout == SGP_LAYOUT) ? chunk->addr : sgp_chunk_addr(chunk);
}
#define sgp_chunk_addr(chunk) sgp_chunk_addr_inline(chunk)
#endif

SGP_END_DECLS

#endif
