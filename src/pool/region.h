/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A region: a piece of memory and its registration. The only code that registers and deregisters.
 *
 * A region is aligned to the page size that backs it, shares no page with other data, and is never
 * longer than the device's max_mr_size: some stacks cut a longer one silently.
 *
 * Locking: none; the pool serialises what is done to a region. The keys do not change while a chunk
 * of it is held.
 */
#ifndef SGP_REGION_H
#define SGP_REGION_H

#include <stdatomic.h>

#include "pool/memory.h"

struct sgp_region {
	struct sgp_piece piece;
	struct ibv_mr *mr;
	uint64_t pds; /* a bit for each protection domain that it is registered on, see chunk.h */
	uint32_t access; /* IBV_ACCESS_* */
};

/* What a pool registers with. */
struct sgp_registrar {
	struct ibv_pd *pd;
	int pd_index;
	uint32_t access;
	size_t max_bytes; /* the longest region the device takes */
	/* Written by who serialises the pool's growth, read by sgp_pool_stats() at any time. */
	_Atomic uint64_t registrations, deregistrations; /* calls that succeeded */
	_Atomic uint64_t bytes;                          /* registered now */
};

/*
 * Set *reg up for pd, with the access that a pool's flags ask for. Returns 0, to be ended by
 * sgp_registrar_close(); -1 with ENOSPC (see sgp_pd_acquire()), EOPNOTSUPP (no windows) or the
 * errno of ibv_query_device(3).
 */
int sgp_registrar_open(struct sgp_registrar *reg, struct ibv_pd *pd, uint32_t flags);
void sgp_registrar_close(struct sgp_registrar *reg);

/*
 * Make a region in two steps, so that what depends on its size can be had before it is registered:
 * memory for at least bytes, then the registration.
 *
 * Each returns 0; -1 with the errno of sgp_memory_commit() or ibv_reg_mr(3), and nothing changed.
 * A region that is not registered is undone by sgp_memory_decommit() of its piece.
 */
int sgp_region_back(struct sgp_region *region, struct sgp_memory *mem, size_t bytes,
		    const struct sgp_backing *backing);
int sgp_region_register(struct sgp_region *region, struct sgp_registrar *reg);

/*
 * Deregister it and return its pages. Returns 0; -1 with the errno of ibv_dereg_mr(3), and the
 * region stands as before.
 */
int sgp_region_end(struct sgp_region *region, struct sgp_memory *mem, struct sgp_registrar *reg);

#endif
