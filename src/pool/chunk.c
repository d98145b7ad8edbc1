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
	return chunk->owner->region.mr->rkey;
}

void sgp_owner_describe(struct sgp_owner *owner, struct sgp_chunk *chunk, void *addr, uint32_t size)
{
	*chunk = (struct sgp_chunk){
		.addr = addr, .owner = owner, .size = size, .lkey = owner->region.mr->lkey};
}

struct sgp_pool *sgp_chunk_pool(const struct sgp_chunk *chunk)
{
	return chunk->owner->pool;
}

struct sgp_chunk *sgp_pool_chunk_at(struct sgp_pool *pool, const void *addr)
{
	size_t granule = sgp_memory_granule(&pool->mem, addr);
	struct sgp_chunk *chunk = NULL;
	struct sgp_owner *owner = NULL;

	if (granule < pool->mem.granules)
		owner = atomic_load_explicit(&pool->owner_at[granule], memory_order_acquire);
	if (owner)
		chunk = owner->kind->find(owner, addr);
	if (!chunk)
		return sgp_fail_null(EFAULT, "the address is in no chunk of the pool");
	return chunk;
}
