/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ways of a chunk between the centre, the caches and its owners, as far as other files need
 * them: the short way of many at once is inline, for a room above that does little else around it.
 */
#ifndef SGP_GET_H
#define SGP_GET_H

#include <string.h>

#include "pool/cache.h"
#include "pool/hide.h"

#define SGP_GET_FLAGS   (SGP_MAY_GROW | SGP_GET_RESERVED)
#define SGP_CHUNKS_MOST (SIZE_MAX / 16) /* so that a number of chunks can be in bytes, signed */

/*
 * Drop one reference; true if it was the last. Whoever sees 0 is alone: the load acquires what the
 * other holders did before their decrements, which release it.
 */
static inline bool sgp_last_drop(struct sgp_chunk *chunk)
{
	if (__atomic_load_n(&chunk->refs, __ATOMIC_ACQUIRE) == 0)
		return true;
	if (__atomic_fetch_sub(&chunk->refs, 1, __ATOMIC_ACQ_REL) != 0)
		return false;
	/* The other holder was faster: the count went below its resting value. */
	__atomic_store_n(&chunk->refs, 0, __ATOMIC_RELAXED);
	return true;
}

/* Copy n pointers. Where they are few, as a message's, a call costs more than the copy. */
static inline void sgp_chunks_copy(struct sgp_chunk **to, struct sgp_chunk *const *from, size_t n,
				   bool few)
{
	enum {
		AT_ONCE = 4
	};

	if (!few) {
		if (n > 0) /* of none there may be no array */
			memcpy(to, from, n * sizeof *to);
		return;
	}
	if (SGP_LIKELY(n >= AT_ONCE)) {
		memcpy(to, from, AT_ONCE * sizeof *to);
		if (n == AT_ONCE)
			return;
		for (size_t i = AT_ONCE; i + AT_ONCE <= n; i += AT_ONCE)
			memcpy(to + i, from + i, AT_ONCE * sizeof *to);
		/* The last ones, some of them once more. */
		memcpy(to + n - AT_ONCE, from + n - AT_ONCE, AT_ONCE * sizeof *to);
		return;
	}
	if (n & 2)
		memcpy(to, from, 2 * sizeof *to);
	if (n & 1)
		to[n - 1] = from[n - 1];
}

/* May a get with these flags be served by the thread's magazine, whatever its class is like? */
static inline bool sgp_fast_flags(int flags)
{
	return (flags & ~SGP_MAY_GROW) == 0;
}

/* n chunks at once out of a magazine of the thread's own; false when it has fewer. */
static inline bool sgp_mag_take_bulk(struct sgp_mag *mag, struct sgp_chunk *chunks[], size_t n)
{
	struct sgp_chunk **from = sgp_mag_take_some(mag, n);

	if (!SGP_LIKELY(from != NULL))
		return false;
	sgp_chunks_copy(chunks, from, n, false);
	if (SGP_ASAN)
		sgp_show_chunks(chunks, n);
	return true;
}

/* sgp_pool_get_bulk() as far as the magazine of the thread's last get can serve it; else false. */
static inline bool sgp_get_bulk_shortly(struct sgp_pool *pool, size_t size, int flags,
					struct sgp_chunk *chunks[], size_t n)
{
	struct sgp_mag *mag = sgp_thread.last_get;

	return SGP_LIKELY(sgp_fast_flags(flags)) && SGP_LIKELY(n <= SGP_CHUNKS_MOST) &&
	       sgp_mag_serves(mag, pool, size) && SGP_LIKELY(sgp_mag_take_bulk(mag, chunks, n));
}

/* Is this a sole reference of the class with slot? Only looked at: see sgp_sole_acquire(). */
static inline bool sgp_is_alike(const struct sgp_chunk *chunk, uint64_t slot)
{
	return SGP_LIKELY(SGP_PEEK(chunk->state) == slot);
}

/* Chunks were found to have a sole owner: what others did before they let go of them is seen from here. */
static inline void sgp_sole_acquire(void)
{
#ifndef SGP_TSAN /* where peeking acquires */
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
#endif
}

/* How many of chunks[0 .. n - 1], from the first one on, are sole references of the class with
 * slot. */
static inline size_t sgp_count_alike(struct sgp_chunk *const chunks[], size_t n, uint64_t slot)
{
	size_t i = 0;

	while (i + 4 <= n && sgp_is_alike(chunks[i], slot) && sgp_is_alike(chunks[i + 1], slot) &&
	       sgp_is_alike(chunks[i + 2], slot) && sgp_is_alike(chunks[i + 3], slot))
		i += 4;
	while (i < n && sgp_is_alike(chunks[i], slot))
		i++;
	sgp_sole_acquire();
	return i;
}

/*
 * sgp_chunk_put_bulk() as far as the thread's magazine takes the chunks at once: sole references of one
 * class, from the first one on. Returns how many. n is not 0.
 */
static inline size_t sgp_put_bulk_shortly(struct sgp_chunk *const chunks[], size_t n)
{
	uint64_t slot = chunks[0]->slot;
	struct sgp_chunk **top, **ceil;
	struct sgp_mag *mag;

	n = sgp_count_alike(chunks, n, slot);
	mag = sgp_thread.mags[slot];
	top = sgp_mag_enter(mag);
	ceil = __atomic_load_n(&mag->ceil, SGP_MAG_ORDER);
	if (!SGP_LIKELY(top + n <= ceil))
		n = top < ceil ? (size_t)(ceil - top) : 0;
	if (SGP_ASAN)
		sgp_hide_chunks(chunks, n);
	sgp_chunks_copy(top, chunks, n, false);
	sgp_mag_leave(mag, top + n);
	return n;
}

#endif
