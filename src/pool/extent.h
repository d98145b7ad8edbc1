/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An extent: a region of a pool's reserved range that is not cut into chunks. Whoever makes it hands
 * its memory out himself. It is registered, counted and found by address like any other region.
 *
 *      owner_at[]   | slab | slab | extent        | slab | ...
 *                                     |
 *                                     v
 *                           struct sgp_extent, first member of what its maker knows of it
 *
 * For the other libraries of this project (the heap's), to which the functions are exported; not for
 * programs.
 *
 * Locking: the pool's growth lock is taken inside.
 */
#ifndef SGP_EXTENT_H
#define SGP_EXTENT_H

#include "pool/owner.h"

/* Extents start on, and are multiples of, so much: no two share such a block. */
#define SGP_EXTENT_SHIFT 21
#define SGP_EXTENT_BYTES ((size_t)1 << SGP_EXTENT_SHIFT)

struct sgp_extent {
	struct sgp_owner owner;  /* first; its region's piece is the memory */
	struct sgp_extent *next; /* of the pool's */
};

/* The most bytes that one extent of the pool can have; 0 when it can have none. */
SGP_API size_t sgp_extent_most(const struct sgp_pool *pool);

/*
 * Make an extent of bytes, a multiple of SGP_EXTENT_BYTES: memory, all of it present and zero, and its
 * registration. *extent must stand until sgp_extent_end(). Its chunks are described by
 * sgp_owner_describe(); kind says what becomes of them (owner.h).
 *
 * It registers: not for a data path. Returns 0; -1 with ENOBUFS, ENOMEM or as sgp_pool_grow(), and
 * nothing changed.
 */
SGP_API int sgp_extent_make(struct sgp_extent *extent, struct sgp_pool *pool, size_t bytes,
			    const struct sgp_owner_kind *kind);

/*
 * End an extent of which nothing is held: deregister it and return its pages. Returns 0; -1 with the
 * errno of ibv_dereg_mr(3), and it stands.
 */
SGP_API int sgp_extent_end(struct sgp_extent *extent);

#endif
