/* SPDX-License-Identifier: BSD-2-Clause */
/* Regions that are not cut into chunks, see extent.h. */
#include <errno.h>

#include "pool/errmsg.h"
#include "pool/extent.h"
#include "pool/known.h"
#include "pool/slabs.h"

size_t sgp_extent_most(const struct sgp_pool *pool)
{
	return pool->backing.max_bytes & ~(SGP_EXTENT_BYTES - 1);
}

int sgp_extent_make(struct sgp_extent *extent, struct sgp_pool *pool, size_t bytes,
		    const struct sgp_owner_kind *kind)
{
	struct sgp_backing backing = pool->backing;
	struct sgp_owner *owner = &extent->owner;
	int ret = -1;

	backing.align = SGP_EXTENT_BYTES;
	pthread_mutex_lock(&pool->grow);
	if (sgp_region_back(&owner->region, &pool->mem, bytes, &backing))
		goto out;
	if (sgp_region_register(&owner->region, &pool->reg)) {
		sgp_memory_decommit(&pool->mem, &owner->region.piece);
		goto out;
	}
	owner->kind = kind;
	owner->pool = pool;
	sgp_known_add(owner);
	extent->next = pool->extents;
	pool->extents = extent;
	sgp_pool_map(pool, &owner->region, owner);
	if (pool->page_size == 0)
		pool->page_size = owner->region.piece.page_size;
	ret = 0;
out:
	pthread_mutex_unlock(&pool->grow);
	return ret;
}

int sgp_extent_end(struct sgp_extent *extent)
{
	struct sgp_owner *owner = &extent->owner;
	struct sgp_pool *pool = owner->pool;
	struct sgp_extent **p;
	int ret;

	pthread_mutex_lock(&pool->grow);
	sgp_pool_map(pool, &owner->region, NULL);
	ret = sgp_region_end(&owner->region, &pool->mem, &pool->reg);
	if (ret) {
		sgp_pool_map(pool, &owner->region, owner);
	} else {
		sgp_known_remove(owner);
		for (p = &pool->extents; *p != extent; p = &(*p)->next)
			;
		*p = extent->next;
	}
	pthread_mutex_unlock(&pool->grow);
	return ret;
}
