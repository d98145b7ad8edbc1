/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The scatter-gather list: slices of chunks, in the order in which they are to travel.
 *
 * A list is two arrays that the caller provides, on the stack if he likes:
 *
 *      sge[]    what the device reads: address, length, lkey. Neighbours that are adjacent in memory
 *               under one key are joined, so there may be fewer of these than slices.
 *      chunk[]  the holds: one reference for each sgp_sgl_append(). Never joined.
 *
 * The list owns its holds until a post moves them into the queue (the list is empty then), or
 * sgp_sgl_clear() drops them. A call that fails leaves the list as it was.
 *
 * Threads: a list has one owner.
 */
#ifndef SGPOOL_SGL_H
#define SGPOOL_SGL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include <sgpool/import.h>
#include <sgpool/pool.h>

SGP_BEGIN_DECLS

/* Flags of a list. */
enum {
	SGP_SGL_FOREIGN = 1 << 0, /* some of it is neither registered nor held: inline only */
	SGP_SGL_OBJECTS = 1 << 1, /* some of it is a heap's: sgpool/heap.h */
};

/*
 * A list may be posted on every protection domain that its pools are on (sgp_pool_add_pd()). As it is
 * built, sge[] has the lkeys of each pool's first one; a post on another puts that domain's into sge[],
 * also when it is refused for another reason. The bits of pds and keys are the library's.
 *
 * Read the members; change them through the functions only. */
struct sgp_sgl {
	struct ibv_sge *sge;       /* [num_sge of max_sge] */
	struct sgp_chunk **chunk;  /* [num_chunk of max_chunk] */
	int num_sge, num_chunk;
	int max_sge, max_chunk;
	uint64_t length;           /* bytes in all */
	uint64_t pds;              /* protection domains on which every slice is registered */
	uint64_t keys;             /* those for which the lkeys in sge[] are good; see below */
	uint32_t access;           /* IBV_ACCESS_* that every slice's registration has, and more bits */
	uint32_t flags;            /* SGP_SGL_* */
};

/*
 * Declare a list called name on the stack, empty, with room for n SGEs and n holds.
 * (A declaration and an initialiser: put it where declarations may stand. The members are not named,
 * since C++ can't before C++20.)
 */
#define SGP_SGL(name, n)                                                                           \
	struct ibv_sge name##_sge[n];                                                              \
	struct sgp_chunk *name##_chunk[n];                                                         \
	struct sgp_sgl name = {name##_sge, name##_chunk, 0, 0, (n), (n), 0,                         \
			       UINT64_MAX, UINT64_MAX, UINT32_MAX, 0}

/*
 * Make *sgl an empty list over the caller's arrays sge[max_sge] and chunk[max_chunk], which must
 * stand as long as the list is used.
 */
SGP_API void sgp_sgl_init(struct sgp_sgl *sgl, struct ibv_sge *sge, int max_sge,
			  struct sgp_chunk **chunk, int max_chunk);

/*
 * Append length bytes of chunk from offset on; one reference of the caller's moves into the list.
 *
 * A length of 0 appends no SGE, but takes the reference all the same. Two slices of one chunk need a
 * sgp_chunk_ref() between them.
 * Returns 0; -1 with errno, the list and the reference as they were:
 *   EFAULT    the slice leaves the chunk
 *   E2BIG     no room for another SGE or hold
 *   EINVAL    the slice is longer than 2^31 - 1 bytes; or there is no list or no chunk
 *   EXDEV     no protection domain would have all of the list's memory (but of pools that are on none
 *             a list can be made; no queue takes it before they are on one)
 *   ESTALE    in a checked pool: nobody holds the chunk, or the handle is none
 */
SGP_HOT_API int sgp_sgl_append(struct sgp_sgl *sgl, struct sgp_chunk *chunk, size_t offset,
			   size_t length);

/*
 * Take n chunks of at least size bytes and append size bytes of each: one call for "n chunks as a
 * list".
 *
 * Returns 0; -1 with errno, nothing taken and the list as it was: as sgp_pool_get_bulk() and
 * sgp_sgl_append().
 */
SGP_HOT_API int sgp_sgl_get(struct sgp_sgl *sgl, struct sgp_pool *pool, size_t size, int n, int flags);

/*
 * Append length bytes at addr, which lie in one or several neighbouring chunks of the pool, or in
 * memory that was imported into it; the list takes a reference of its own on each of these, and the
 * caller must hold each chunk (an import must stand). Imports are looked for among all there are, by
 * bisection and without a lock.
 *
 * Returns 0; -1 with errno, list and chunks as they were: EFAULT where the range leaves the pool's
 * chunks, or as sgp_sgl_append().
 */
SGP_API int sgp_sgl_append_addr(struct sgp_sgl *sgl, struct sgp_pool *pool, const void *addr,
				size_t length);

/*
 * Append length bytes of imported memory from offset on (import.h); the list takes references of its
 * own to it.
 *
 * Returns 0; -1 with errno, the list as it was: EFAULT when the range leaves the import, or as
 * sgp_sgl_append(). A length of 0 appends nothing.
 */
SGP_API int sgp_sgl_append_region(struct sgp_sgl *sgl, struct sgp_import *region, size_t offset,
				  size_t length);

/* Append n iovecs, each as sgp_sgl_append_addr(): all or none. Those of length 0 are skipped. */
SGP_API int sgp_sgl_append_iov(struct sgp_sgl *sgl, struct sgp_pool *pool, const struct iovec *iov,
			       int n);

/*
 * Append n SGEs as rdma_post_sendv(3) takes them, each as sgp_sgl_append_addr(): all or none. Their
 * lkeys are not read: the list finds its own.
 */
SGP_API int sgp_sgl_append_sge(struct sgp_sgl *sgl, struct sgp_pool *pool,
			       const struct ibv_sge *sge, int n);

/*
 * Append memory that is not registered and that nobody holds. Only a post that goes inline takes
 * such a list (ibv_post_send(3), IBV_SEND_INLINE): it copies the bytes. Any other post is EFAULT.
 *
 * Returns 0; -1 with E2BIG or EINVAL, the list as it was.
 */
SGP_API int sgp_sgl_append_foreign(struct sgp_sgl *sgl, const void *addr, size_t length);

/* Put a slice in front: as sgp_sgl_append() in everything else. */
SGP_API int sgp_sgl_prepend(struct sgp_sgl *sgl, struct sgp_chunk *chunk, size_t offset,
			    size_t length);

/* Drop everything that the list holds and empty it. */
SGP_HOT_API void sgp_sgl_clear(struct sgp_sgl *sgl);

/*
 * Move all of src to the end of dst; src is empty then.
 *
 * Returns 0; -1 with E2BIG, EXDEV or EINVAL (both are one), both lists as they were.
 */
SGP_API int sgp_sgl_move(struct sgp_sgl *dst, struct sgp_sgl *src);

/*
 * Append all of src to dst and leave src as it is: the same memory, one reference more per hold. This
 * is how one message goes to many.
 *
 * Returns and errors as sgp_sgl_move().
 */
SGP_API int sgp_sgl_clone(struct sgp_sgl *dst, const struct sgp_sgl *src);

/*
 * Keep the first length bytes. Holds whose memory is not in the list any more are dropped.
 *
 * Returns 0; -1 with EINVAL when the list is shorter.
 */
SGP_API int sgp_sgl_trim(struct sgp_sgl *sgl, uint64_t length);

/*
 * Move what lies behind the first length bytes to dst, which must be empty. A chunk that is in both
 * lists then has a reference more.
 *
 * Returns 0; -1 with EINVAL (the list is shorter, or dst is not empty) or E2BIG, both as they were.
 */
SGP_API int sgp_sgl_split(struct sgp_sgl *sgl, uint64_t length, struct sgp_sgl *dst);

/*
 * Copy the list's bytes into one chunk of the pool; the list is that chunk's slice then, and what it
 * held is dropped. This is the only function of the library that copies a list, but for inline posts
 * and those flagged SGP_LINEARISE.
 *
 * Returns 0, also for a list without bytes, which stays as it is; -1 with errno, the list as it was:
 * as sgp_pool_get(), E2BIG (the list has no room for an SGE and a hold), EINVAL, or EOPNOTSUPP (memory
 * that the processor can't reach: import.h).
 */
SGP_API int sgp_sgl_linearise(struct sgp_sgl *sgl, struct sgp_pool *pool);

/*
 * Describe the list's memory for writev(2) and its like in iov[0 .. max - 1]. (For verbs it stands in
 * sgl->sge[0 .. num_sge - 1].)
 *
 * The list keeps its holds: the iovecs are good as long as these are.
 * Returns the number of iovecs; -1 with E2BIG when max are too few, EOPNOTSUPP for memory that the
 * processor can't reach, EINVAL without a list or an array.
 */
SGP_API int sgp_sgl_iovec(const struct sgp_sgl *sgl, struct iovec *iov, int max);

/* The SGE of a chunk's first size bytes: most of it stands in the descriptor as it is. */
static inline void sgp_sge_whole(struct ibv_sge *sge, const struct sgp_chunk *chunk, uint32_t size)
{
	if (sizeof chunk->addr == sizeof sge->addr) {
		__builtin_memcpy(sge, chunk, sizeof *sge);
	} else {
		sge->addr = (uintptr_t)chunk->addr;
		sge->lkey = chunk->lkey;
	}
	sge->length = size;
}

/*
 * sgp_sgl_get() as far as the magazine of the thread's last get can serve it, into an empty list. Returns 1;
 * 0 when anything is out of the ordinary, and nothing has changed.
 */
static inline int sgp_sgl_take(struct sgp_sgl *sgl, struct sgp_pool *pool, size_t size, int n,
			       int flags)
{
	struct sgp_mag *mag = sgp_thread.last_get;
	const size_t count = (unsigned int)n;
	const struct sgp_rights *rights;
	struct sgp_chunk **from, **chunks;
	uintptr_t end = 0; /* of the last SGE's memory */
	struct ibv_sge *sge;
	size_t i;

	if (!SGP_LIKELY(sgl != NULL) || !SGP_LIKELY(!(sgl->num_chunk | sgl->num_sge)) ||
	    !SGP_LIKELY(count - 1 < (unsigned int)sgl->max_chunk) ||
	    !SGP_LIKELY(n <= sgl->max_sge) || !SGP_LIKELY((flags & ~SGP_MAY_GROW) == 0) ||
	    !sgp_mag_serves(mag, pool, size))
		return 0;
	from = sgp_mag_take_some(mag, count);
	if (!SGP_LIKELY(from != NULL))
		return 0;
	rights = (const struct sgp_rights *)from[0]->owner;
	chunks = sgl->chunk;
	sge = sgl->sge;
	i = 0;
	do {
		struct sgp_chunk *chunk = from[i];

		/* One that begins where another ended is joined with it: not here. */
		if (!SGP_LIKELY((uintptr_t)chunk->addr != end))
			goto special;
		end = (uintptr_t)chunk->addr + size;
		SGP_SHOW(chunk->addr, chunk->size);
		chunks[i] = chunk;
		sgp_sge_whole(&sge[i], chunk, (uint32_t)size);
		if (!SGP_LIKELY((const struct sgp_rights *)chunk->owner == rights))
			goto special;
	} while (++i != count);
	sgl->num_sge = sgl->num_chunk = n;
	sgl->length = (uint64_t)count * size;
	sgl->pds &= __atomic_load_n(&rights->pds, __ATOMIC_RELAXED);
	sgl->keys &= __atomic_load_n(&rights->home, __ATOMIC_RELAXED);
	sgl->access &= __atomic_load_n(&rights->access, __ATOMIC_RELAXED);
	return 1;
special:
	for (i = 0; i != count; i++) {
		SGP_SHOW(from[i]->addr, from[i]->size);
		chunks[i] = from[i];
	}
	sgp_sgl_fill(sgl, size, n);
	return 1;
}

#ifndef SGP_NO_INLINE
/* The same function, inline as sgp_pool_get() is. */
static inline int sgp_sgl_get_inline(struct sgp_sgl *sgl, struct sgp_pool *pool, size_t size, int n,
				     int flags)
{
	if (SGP_LIKELY(sgp_sgl_take(sgl, pool, size, n, flags)))
		return 0;
	return sgp_sgl_get(sgl, pool, size, n, flags);
}
#define sgp_sgl_get(sgl, pool, size, n, flags) sgp_sgl_get_inline(sgl, pool, size, n, flags)
#endif

SGP_END_DECLS

#endif
