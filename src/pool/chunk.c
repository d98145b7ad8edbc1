/* SPDX-License-Identifier: BSD-2-Clause */
/* What a chunk tells about itself, and which one an address lies in. */
#define SGP_NO_INLINE
#include <errno.h>

#include "pool/chunk.h"
#include "pool/errmsg.h"
#include "pool/mode.h"
#include "pool/pool.h"
#include "pool/watch.h"

void *sgp_chunk_addr(const struct sgp_chunk *chunk)
{
	return chunk->addr;
}

size_t sgp_chunk_size(const struct sgp_chunk *chunk)
{
	return chunk->size;
}

/* The index of the pool's first domain; -1: it has none. */
static int first_domain(const struct sgp_chunk *chunk)
{
	return atomic_load_explicit(&chunk->owner->pool->reg.first, memory_order_acquire);
}

uint32_t sgp_chunk_first_lkey(const struct sgp_chunk *chunk)
{
	int first = first_domain(chunk);

	return first < 0 ? 0 : sgp_chunk_lkey_on(chunk, first);
}

uint32_t sgp_chunk_lkey(const struct sgp_chunk *chunk)
{
	return sgp_chunk_home(chunk) ? chunk->lkey : sgp_chunk_first_lkey(chunk);
}

uint32_t sgp_chunk_rkey(const struct sgp_chunk *chunk)
{
	int first = first_domain(chunk);

	return first < 0 ? 0
			 : atomic_load_explicit(&chunk->owner->region.keys[first].rkey,
						memory_order_relaxed);
}

int sgp_chunk_keys(const struct sgp_chunk *chunk, const struct ibv_pd *pd, uint32_t *lkey,
		   uint32_t *rkey)
{
	int index = sgp_pd_find(pd);

	if (index < 0 || !sgp_chunk_is_on(chunk, index))
		return sgp_fail(EXDEV, "the chunk is not registered on the protection domain");
	if (lkey)
		*lkey = sgp_chunk_lkey_on(chunk, index);
	if (rkey)
		*rkey = atomic_load_explicit(&chunk->owner->region.keys[index].rkey,
					     memory_order_relaxed);
	return 0;
}

void sgp_owner_describe(struct sgp_owner *owner, struct sgp_chunk *chunk, void *addr, uint32_t size)
{
	*chunk = (struct sgp_chunk){.addr = addr,
				    .owner = owner,
				    .size = size,
				    .lkey = sgp_region_lkey(&owner->region)};
}

struct sgp_pool *sgp_chunk_pool(const struct sgp_chunk *chunk)
{
	return chunk->owner->pool;
}

struct sgp_chunk *sgp_pool_find(struct sgp_pool *pool, const void *addr)
{
	size_t granule = sgp_memory_granule(&pool->mem, addr);
	struct sgp_owner *owner = NULL;

	if (granule < pool->mem.granules)
		owner = atomic_load_explicit(&pool->owner_at[granule], memory_order_acquire);
	return owner ? owner->kind->find(owner, addr) : NULL;
}

static struct sgp_chunk *none_at(void)
{
	return sgp_fail_null(EFAULT, "the address is in no chunk of the pool");
}

struct sgp_chunk *sgp_pool_chunk_at(struct sgp_pool *pool, const void *addr)
{
	struct sgp_chunk *chunk;

	if (!pool)
		return sgp_fail_null(EINVAL, "no pool");
	chunk = sgp_pool_find(pool, addr);
	if (!chunk)
		return none_at();
	return sgp_refuse_stale(chunk) ? NULL : chunk;
}

struct sgp_chunk *sgp_pool_hold_at(struct sgp_pool *pool, const void *addr)
{
	struct sgp_chunk *chunk = sgp_pool_find(pool, addr);

	if (chunk) {
		if (sgp_refuse_stale(chunk))
			return NULL;
		sgp_chunk_ref(chunk);
		return chunk;
	}
	/* A child may have been forked while the table was being changed, which it would wait for. */
	if (sgp_check_fork())
		return NULL;
	chunk = sgp_imports_hold(&pool->imports, addr);
	return chunk ? chunk : none_at();
}
