/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A pool's inside: one range of memory, one registrar, a table from addresses to slabs, and the
 * size classes.
 *
 * Locking: grow serialises whatever changes the pool's memory (growth, its end); it is taken before
 * a class's lock. The table is written under it and read without.
 */
#ifndef SGP_POOL_INTERNAL_H
#define SGP_POOL_INTERNAL_H

#include "pool/centre.h"

struct sgp_pool {
	pthread_mutex_t grow;
	struct sgp_memory mem;
	struct sgp_registrar reg;
	struct sgp_backing backing;
	_Atomic(struct sgp_slab *) *slab_at; /* [mem.granules] */
	_Atomic size_t page_size;            /* of the first region */
	uint32_t nclasses;
	struct sgp_class *classes; /* [nclasses], the smallest size first */
};

/*
 * Compare the whole of a pool with its invariants: every free chunk is there once, has no
 * references and belongs to a slab of its class; chunks = free + live; the table leads to each
 * chunk.
 *
 * Returns NULL, or what is wrong. No other thread may be using the pool. For tests and debugging.
 */
const char *sgp_pool_check(struct sgp_pool *pool);

/* The class that serves size; NULL with EINVAL or EMSGSIZE. */
struct sgp_class *sgp_pool_class(struct sgp_pool *pool, size_t size);

#endif
