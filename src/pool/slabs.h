/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A pool's slabs as a set: made and published, taken out of the table and ended. The growth lock is
 * held, or nobody else knows the pool yet.
 */
#ifndef SGP_SLABS_H
#define SGP_SLABS_H

#include "pool/pool.h"

/* Enter a region's owner into the table of addresses, or take it out (to NULL). */
void sgp_pool_map(struct sgp_pool *pool, const struct sgp_region *region, struct sgp_owner *to);

/* Make a slab for at least n chunks and publish it; none is in use yet. It becomes cls->slabs. */
int sgp_slabs_add(struct sgp_class *cls, size_t n);

/* End a slab of the class without chunks in use. Returns 0; -1 with errno, and the slab stays. */
int sgp_slabs_drop(struct sgp_class *cls, struct sgp_slab *slab);

#endif
