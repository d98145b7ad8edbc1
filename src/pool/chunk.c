/* SPDX-License-Identifier: BSD-2-Clause */
/* What a chunk tells about itself, and which one an address lies in. */
#define SGP_NO_INLINE
#include <errno.h>

#include "pool/chunk.h"
#include "pool/errmsg.h"
#include "pool/pool.h"

void *sgp_chunk_addr(const struct sgp_chunk *chunk)
{
	return chunk->addr;
}

size_t sgp_chunk_size(const struct sgp_chunk *chunk)
{
	return chunk->size;
}

uint32_t sgp_chunk_lkey(const struct sgp_chunk *chunk)
{
	return chunk->lkey;
}

uint32_t sgp_chunk_rkey(const struct sgp_chunk *chunk)
{
	return chunk->slab->region.mr->rkey;
}

struct sgp_pool *sgp_chunk_pool(const struct sgp_chunk *chunk)
{
	return chunk->slab->pool;
}

struct sgp_chunk *sgp_pool_chunk_at(struct sgp_pool *pool, const void *addr)
{
	size_t granule = sgp_memory_granule(&pool->mem, addr);
	struct sgp_chunk *chunk = NULL;
	struct sgp_slab *slab = NULL;

	if (granule < pool->mem.granules)
		slab = atomic_load_explicit(&pool->slab_at[granule], memory_order_acquire);
	if (slab)
		chunk = sgp_slab_chunk_at(slab, addr);
	if (!chunk)
		return sgp_fail_null(EFAULT, "the address is in no chunk of the pool");
	return chunk;
}
