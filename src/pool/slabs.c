/* SPDX-License-Identifier: BSD-2-Clause */
/* A pool's slabs as a set, see slabs.h. */
#include "pool/slabs.h"
#include "pool/watch.h"

void sgp_pool_map(struct sgp_pool *pool, const struct sgp_region *region, struct sgp_owner *to)
{
	const struct sgp_piece *piece = &region->piece;
	size_t first = sgp_memory_granule(&pool->mem, piece->addr);
	size_t last = sgp_memory_granule(&pool->mem, piece->addr + piece->bytes - 1), i;

	for (i = first; i <= last; i++)
		atomic_store_explicit(&pool->owner_at[i], to, memory_order_release);
}

int sgp_slabs_add(struct sgp_class *cls, size_t n)
{
	struct sgp_pool *pool = cls->pool;
	struct sgp_slab *slab = sgp_slab_make(&pool->mem, &pool->reg, &cls->cut, n, cls->slot,
					      &pool->backing, &pool->spares);

	if (!slab)
		return -1;
	slab->cls = cls;
	slab->owner.pool = pool;
	slab->next = cls->slabs;
	cls->slabs = slab;
	sgp_watch_begin(slab);
	sgp_pool_map(pool, &slab->owner.region, &slab->owner);
	cls->bytes += slab->owner.region.piece.bytes;
	if (pool->page_size == 0)
		pool->page_size = slab->owner.region.piece.page_size;
	return 0;
}

int sgp_slabs_drop(struct sgp_class *cls, struct sgp_slab *slab)
{
	struct sgp_pool *pool = cls->pool;
	size_t bytes = slab->owner.region.piece.bytes;
	struct sgp_slab **p;

	for (p = &cls->slabs; *p != slab; p = &(*p)->next)
		;
	*p = slab->next;
	sgp_pool_map(pool, &slab->owner.region, NULL);
	sgp_watch_leaving(slab);
	if (sgp_slab_end(slab, &pool->mem, &pool->reg, &pool->spares)) {
		sgp_watch_staying(slab);
		slab->next = *p;
		*p = slab;
		sgp_pool_map(pool, &slab->owner.region, &slab->owner);
		return -1;
	}
	sgp_watch_gone(slab);
	cls->bytes -= bytes;
	return 0;
}
