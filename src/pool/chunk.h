/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the rooms above the pool may know of a chunk: where it is, its keys and rights. A protection
 * domain is named by its index, see pd.h.
 */
#ifndef SGP_CHUNK_H
#define SGP_CHUNK_H

#include "pool/owner.h"

/* The domains on which the chunk's region is registered, a bit each. */
static inline uint64_t sgp_chunk_pds(const struct sgp_chunk *chunk)
{
	return atomic_load_explicit(&chunk->owner->region.pds, memory_order_relaxed);
}

/* The domain for which chunk->lkey is the key, a bit; 0: none. */
static inline uint64_t sgp_chunk_home(const struct sgp_chunk *chunk)
{
	return atomic_load_explicit(&chunk->owner->region.home, memory_order_relaxed);
}

/* Is the chunk's region registered on this domain now? Then its keys there may be read. */
static inline bool sgp_chunk_is_on(const struct sgp_chunk *chunk, int index)
{
	return atomic_load_explicit(&chunk->owner->region.pds, memory_order_acquire) >> index & 1;
}

/* The chunk's lkey on a domain that it is on. */
static inline uint32_t sgp_chunk_lkey_on(const struct sgp_chunk *chunk, int index)
{
	return atomic_load_explicit(&chunk->owner->region.keys[index].lkey, memory_order_relaxed);
}

/* The registration there. A queue must be on the domain, so that it stands. */
static inline struct ibv_mr *sgp_chunk_mr_on(const struct sgp_chunk *chunk, int index)
{
	return chunk->owner->region.mr[index];
}

/* What tells one registration from another: equal for chunks of one region. */
static inline const void *sgp_chunk_region(const struct sgp_chunk *chunk)
{
	return &chunk->owner->region;
}

/* The IBV_ACCESS_* rights of the region's registrations, and SGP_ACCESS_CPU. */
static inline uint32_t sgp_chunk_access(const struct sgp_chunk *chunk)
{
	return atomic_load_explicit(&chunk->owner->region.access, memory_order_relaxed);
}

/* Can the processor read the chunk's memory? Else it may not be copied or looked at. */
static inline bool sgp_chunk_is_mapped(const struct sgp_chunk *chunk)
{
	return sgp_chunk_access(chunk) & SGP_ACCESS_CPU;
}

/*
 * The chunk that an address of the pool lies in, or the piece of an import, with a reference to it
 * more, the caller's. Returns NULL with EFAULT. The caller must hold the chunk, or the import must
 * stand.
 */
struct sgp_chunk *sgp_pool_hold_at(struct sgp_pool *pool, const void *addr);

/*
 * The chunk's keys on the pool's first domain, whether the region was made when that was the first
 * or not. 0 when there is no domain any more.
 */
uint32_t sgp_chunk_first_lkey(const struct sgp_chunk *chunk);

#endif
