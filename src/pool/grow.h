/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How a pool gets memory and gives it back. All of it is serialised by the pool's growth lock, and
 * none of it runs on the data path but for a get with SGP_MAY_GROW.
 */
#ifndef SGP_GROW_H
#define SGP_GROW_H

#include "pool/pool.h"

/* The chunks of a new pool's class. Returns 0, or -1 with errno. */
int sgp_grow_first(struct sgp_class *cls, size_t n);

/*
 * A get that may grow found fewer than n chunks, of made at that time: make more, in geometric
 * steps, unless somebody else just has. Returns 0 when trying again is worth it; -1 with ENOBUFS or
 * the errno of sgp_pool_grow().
 */
int sgp_grow_for_get(struct sgp_class *cls, size_t n, int flags, size_t made);

/* Deregister everything. Returns 0; -1 with errno, and what could not be deregistered stays. */
int sgp_drop_all(struct sgp_pool *pool);

/* Grow each class that is below its low water. */
void sgp_top_up(struct sgp_pool *pool);

/* Wake the helper if the class is below its low water. The class's lock is held. */
void sgp_want_growth_locked(struct sgp_class *cls);

/* Start and stop the pool's helper, if its attributes ask for one. 0, or -1 with EAGAIN. */
int sgp_helper_start(struct sgp_pool *pool, uint32_t idle_ms);
void sgp_helper_stop(struct sgp_pool *pool);

#endif
