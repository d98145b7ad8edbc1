/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pools that are watched: what is done to a chunk whenever it changes hands, besides moving it.
 *
 *      pool->watch   SGP_WATCH_CHECK     mistakes are found, see sgpool/check.h
 *                    SGP_WATCH_SCRUB     free memory is zero
 *                    SGP_WATCH_MEMCHECK  valgrind is told
 *                    SGP_WATCH_SHOWN     AddressSanitizer is not, as peers may come at any time
 *
 * A watched pool's classes have no magazines, so that every get and put comes here.
 *
 * A checked pool's slabs have a track for each chunk:
 *
 *      NONE   no chunk now: its region is gone, or its pool
 *      FREE   in the centre; its memory has the pattern, its descriptor's size is 0, so that who
 *             slices it is stopped by the check of bounds that is made anyway
 *      HELD   by somebody
 *
 * When a checked pool ends its slabs stay, up to a limit, as graves: a handle of it is still one that
 * can be read, and told.
 *
 * Locking: none of its own but for the graves'. A chunk's track belongs to who has the chunk; only its
 * state is looked at by others.
 */
#ifndef SGP_WATCH_H
#define SGP_WATCH_H

#include <stdatomic.h>

#include "pool/finding.h"
#include "pool/mode.h"
#include "pool/pool.h"

enum {
	SGP_WATCH_CHECK = 1 << 0,
	SGP_WATCH_SCRUB = 1 << 1,
	SGP_WATCH_MEMCHECK = 1 << 2,
	SGP_WATCH_SHOWN = 1 << 3,
};

enum sgp_track_state {
	SGP_TRACK_NONE = 0,
	SGP_TRACK_FREE,
	SGP_TRACK_HELD,
};

struct sgp_track {
	_Atomic uint32_t state;
	struct sgp_who got, put;
	struct sgp_flight *flights; /* see flight.h */
};

/* How a pool with these flags is watched; 0: not at all. Reads the environment once. */
uint32_t sgp_watch_for(uint32_t pool_flags);

/* The pool begins and ends, as far as valgrind is concerned. */
void sgp_watch_pool_begin(struct sgp_pool *pool);
void sgp_watch_pool_end(struct sgp_pool *pool);

/* A slab's chunks are new; are about to go (they are all free); could not go; are gone. */
void sgp_watch_begin(struct sgp_slab *slab);
void sgp_watch_leaving(struct sgp_slab *slab);
void sgp_watch_staying(struct sgp_slab *slab);
void sgp_watch_gone(struct sgp_slab *slab);

/* The chunks are the caller's now. errno is left alone. */
void sgp_watch_got_slowly(struct sgp_pool *pool, struct sgp_chunk *const chunks[], size_t n);

static inline void sgp_watch_got(struct sgp_pool *pool, struct sgp_chunk *const chunks[], size_t n)
{
	if (SGP_ASAN || __builtin_expect(pool->watch != 0, 0))
		sgp_watch_got_slowly(pool, chunks, n);
}

/* The last reference was dropped: nobody has the chunks, and they are about to be free. */
void sgp_watch_put_slowly(struct sgp_pool *pool, struct sgp_chunk *const chunks[], size_t n);

static inline void sgp_watch_put(struct sgp_pool *pool, struct sgp_chunk *const chunks[], size_t n)
{
	if (SGP_ASAN || __builtin_expect(pool->watch != 0, 0))
		sgp_watch_put_slowly(pool, chunks, n);
}

/*
 * For the process in checked mode: is this a handle whose reference can be used, or (put) given back?
 * Returns 0, also for what is not checked; -1 with ESTALE and a finding.
 */
int sgp_watch_use(const struct sgp_chunk *chunk);
int sgp_watch_can_put(const struct sgp_chunk *chunk);

/* The same, asked by the calls of the data path: nothing but a branch in an ordinary process. */
static inline int sgp_refuse_stale(const struct sgp_chunk *chunk)
{
	return sgp_mode_is_ordinary() ? 0 : sgp_watch_use(chunk);
}

/* The last reference was dropped. False, and a finding: somebody else has just done so too. */
bool sgp_watch_last(const struct sgp_chunk *chunk);

/* Compare a free chunk of a checked pool with the pattern: 0; -1, and a finding. */
int sgp_watch_verify(const struct sgp_chunk *chunk);

/* Who holds chunks of the class, as a phrase ": taken by ..." or "". Returns buf. */
char *sgp_watch_holders(const struct sgp_class *cls, char *buf, size_t size);

/* A slab of a pool that ends: keep it as a grave, or free it. */
void sgp_watch_bury(struct sgp_slab *slab);

/* The chunk's track; NULL: it is not of a checked pool. */
struct sgp_track *sgp_track_of(const struct sgp_chunk *chunk);

#endif
