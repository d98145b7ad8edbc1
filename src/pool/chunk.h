/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the rooms above the pool may know of a chunk: where it is, its keys and rights, and the
 * process-wide small number of a protection domain.
 *
 * A protection domain in use by a pool or an endpoint has an index of 0 .. 63, so that "registered
 * on this domain" is one bit of a word: a list ANDs the words of its slices, a post tests one bit.
 */
#ifndef SGP_CHUNK_H
#define SGP_CHUNK_H

#include "pool/owner.h"

/*
 * The index of pd, one use more. Returns 0 .. 63; -1 with ENOSPC when 64 are in use. Thread-safe.
 * Ended by sgp_pd_release().
 */
int sgp_pd_acquire(struct ibv_pd *pd);
void sgp_pd_release(int index);

/* The domains on which the chunk's region is registered, a bit each. */
static inline uint64_t sgp_chunk_pds(const struct sgp_chunk *chunk)
{
	return chunk->owner->region.pds;
}

/* What tells one registration from another: equal for chunks of one region. */
static inline const void *sgp_chunk_region(const struct sgp_chunk *chunk)
{
	return &chunk->owner->region;
}

/* The IBV_ACCESS_* rights of the region's registration. */
static inline uint32_t sgp_chunk_access(const struct sgp_chunk *chunk)
{
	return chunk->owner->region.access;
}

#endif
