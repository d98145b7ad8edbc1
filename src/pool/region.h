/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A region: a piece of memory and its registrations, one on each of the pool's protection domains.
 * The only code that registers and deregisters.
 *
 * A region of the pool's own is aligned to the page size that backs it, shares no page with other
 * data, and is never longer than the device's max_mr_size: some stacks cut a longer one silently.
 *
 *      keys[]   | 0 | 1 | 2 | ... | 63 |    by the domain's process-wide index, see pd.h
 *      pds        1   0   1   ...   0       a bit each: registered there, and the keys are good
 *      home       1   0   0   ...   0       the domain whose lkey the descriptors have; or none
 *
 * A key may be 0, so the bit says whether there is one. home is the pool's first domain when the
 * region was made; it becomes none when that domain goes, and the descriptors stay as they are.
 *
 * Locking: the pool's growth lock serialises what changes a region. Posting threads read pds, home,
 * access and keys meanwhile: keys are written before the bit of pds is set (release, acquire), and
 * never changed while somebody may use them: see sgp_pd_retire().
 */
#ifndef SGP_REGION_H
#define SGP_REGION_H

#include <stdatomic.h>
#include <stdbool.h>

#include "pool/memory.h"
#include "pool/pd.h"

/* Not a right of verbs': the processor can reach the memory too. In the words of a list's access. */
#define SGP_ACCESS_CPU (1u << 31)

struct sgp_registrar;

struct sgp_region {
	/* What a list asks of each slice. */
	_Atomic uint64_t pds, home;
	_Atomic uint32_t access; /* IBV_ACCESS_* of the registrations, and SGP_ACCESS_CPU */

	bool whole;     /* registered on every domain, and announced: chunks of it may be used */
	bool announced; /* the owner of the pool has been told of it */
	bool read_only; /* the devices may not write it */
	bool unmapped;  /* the processor can't reach it */
	int dmabuf_fd;  /* of a dma-buf, -1 if it isn't one */
	uint64_t dmabuf_offset;
	struct sgp_piece piece;  /* of a dma-buf: the addresses by which devices know it */
	struct sgp_region *next; /* of its registrar's */
	void *import;            /* the public handle, of imported memory */
	void *cookie;            /* of whoever was told of it */
	struct ibv_mr *mr[SGP_MAX_PDS];
	struct {
		_Atomic uint32_t lkey, rkey;
	} keys[SGP_MAX_PDS];
};

/* Make *region one of nothing, not registered. */
void sgp_region_init(struct sgp_region *region);

/*
 * Make a region in two steps, so that what depends on its size can be had before it is registered:
 * memory for at least bytes, then the registrations.
 *
 * Each returns 0; -1 with the errno of sgp_memory_commit(), ibv_reg_mr(3), or of who refused to be
 * told of the region, and nothing changed. A region that is not registered is undone by
 * sgp_memory_decommit() of its piece. A registered one may not be moved.
 */
int sgp_region_back(struct sgp_region *region, struct sgp_memory *mem, size_t bytes,
		    const struct sgp_backing *backing);
int sgp_region_register(struct sgp_region *region, struct sgp_registrar *reg);

/*
 * Deregister it and return its pages (mem NULL: they are not the pool's). Nobody holds any of it.
 *
 * Returns 0; -1 with the errno of ibv_dereg_mr(3), and the region stands as before; or, if it could
 * not be registered again where it had been deregistered, with whole false: to be ended later.
 */
int sgp_region_end(struct sgp_region *region, struct sgp_memory *mem, struct sgp_registrar *reg);

/* The lkey that the region's descriptors have. */
static inline uint32_t sgp_region_lkey(const struct sgp_region *region)
{
	uint64_t home = atomic_load_explicit(&region->home, memory_order_relaxed);

	return home ? atomic_load_explicit(&region->keys[__builtin_ctzll(home)].lkey,
					   memory_order_relaxed)
		    : 0;
}

#endif
