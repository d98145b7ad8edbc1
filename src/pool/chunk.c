/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Get, ref and put, and what a chunk tells about itself.
 *
 * A descriptor counts the references beyond the first, so that a free chunk and one with a sole
 * owner look the same and neither get nor put writes the descriptor or executes a locked
 * instruction.
 */
#include <errno.h>

#include "pool/chunk.h"
#include "pool/errmsg.h"
#include "pool/pool.h"

int sgp_pool_get_bulk(struct sgp_pool *pool, size_t size, int flags, struct sgp_chunk *chunks[],
		      size_t n)
{
	struct sgp_class *cls = sgp_pool_class(pool, size);

	if (!cls)
		return -1;
	if (flags)
		return sgp_fail(EINVAL, "flags 0x%x of a get", flags);
	if (!sgp_centre_get(cls, chunks, n))
		return sgp_fail(ENOBUFS, "no %zu chunks of %u bytes are free", n, cls->cut.size);
	return 0;
}

struct sgp_chunk *sgp_pool_get(struct sgp_pool *pool, size_t size, int flags)
{
	struct sgp_chunk *chunk;

	return sgp_pool_get_bulk(pool, size, flags, &chunk, 1) ? NULL : chunk;
}

void sgp_chunk_ref(struct sgp_chunk *chunk)
{
	atomic_fetch_add_explicit(&chunk->refs, 1, memory_order_relaxed);
}

/*
 * Drop one reference; true if it was the last. Whoever sees 0 is alone: the load acquires what the
 * other holders did before their decrements, which release it.
 */
static bool last_drop(struct sgp_chunk *chunk)
{
	if (atomic_load_explicit(&chunk->refs, memory_order_acquire) == 0)
		return true;
	if (atomic_fetch_sub_explicit(&chunk->refs, 1, memory_order_acq_rel) != 0)
		return false;
	/* The other holder was faster: the count went below its resting value. */
	atomic_store_explicit(&chunk->refs, 0, memory_order_relaxed);
	return true;
}

void sgp_chunk_put(struct sgp_chunk *chunk)
{
	if (chunk && last_drop(chunk))
		sgp_centre_put(chunk->slab->cls, &chunk, 1);
}

void sgp_chunk_put_bulk(struct sgp_chunk *const chunks[], size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		sgp_chunk_put(chunks[i]);
}

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

struct sgp_pool *sgp_chunk_pool(const struct sgp_chunk *chunk)
{
	return chunk->slab->pool;
}

uint64_t sgp_chunk_pds(const struct sgp_chunk *chunk)
{
	return chunk->slab->region.pds;
}

uint32_t sgp_chunk_access(const struct sgp_chunk *chunk)
{
	return chunk->slab->region.access;
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

const void *sgp_chunk_region(const struct sgp_chunk *chunk)
{
	return &chunk->slab->region;
}
