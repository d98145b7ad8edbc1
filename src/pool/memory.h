/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Address space and pages; no verbs.
 *
 * A pool reserves one range of addresses for its whole life and backs pieces of it with memory:
 *
 *      base                                                              base + bytes
 *      | piece 0    | piece 1 (hugepages)   | free       | piece 2 | free ...     |
 *      |granule|granule|granule|granule|granule|granule|granule|granule|  ...     |
 *
 * A piece starts on a granule and owns its granules whole, so an address leads to its piece by a
 * shift. What is not backed is PROT_NONE and costs nothing. The whole range is MADV_DONTFORK, else
 * a fork would copy every pinned page, and MADV_DONTDUMP.
 *
 * Locking: none; the pool serialises all calls on one range. Errors are told by sgp_fail().
 */
#ifndef SGP_MEMORY_H
#define SGP_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sgpool/pool.h"

struct sgp_memory {
	char *base;
	size_t bytes;
	unsigned int shift; /* a granule is 1 << shift bytes */
	size_t granules;
	size_t used_up_to; /* no granule from here on has ever been used */
	uint8_t *state;    /* [granules] */
};

/* Addresses with memory behind them. */
struct sgp_piece {
	char *addr;
	size_t bytes;     /* of memory, a multiple of page_size; its granules may be more */
	size_t page_size; /* what backs it; transparent hugepages count as base pages */
};

/* How a piece is to be backed. */
struct sgp_backing {
	enum sgp_pages pages;
	int node;         /* NUMA node, or -1 */
	size_t max_bytes; /* a piece may not become larger than this by rounding up */
	size_t align;     /* a power of two that it starts on; 0: that of its pages */
	uint32_t threads; /* that make a large piece present; 0: as many as processors */
	void (*progress)(void *progress_arg, size_t bytes_done, size_t bytes); /* or NULL */
	void *progress_arg;
};

SGP_API size_t sgp_page_size(void);

/* The smallest pages that may back a region. */
static inline size_t sgp_least_page(enum sgp_pages pages)
{
	if (pages == SGP_PAGES_REQUIRE_2M)
		return (size_t)1 << 21;
	return pages == SGP_PAGES_REQUIRE_1G ? (size_t)1 << 30 : sgp_page_size();
}

/* Round up to a multiple of to, a power of two. */
static inline size_t sgp_round_up(size_t n, size_t to)
{
	return (n + to - 1) & ~(to - 1);
}

/*
 * Reserve at least bytes of addresses in granules of 1 << shift bytes, on a boundary of align (a
 * power of two). Returns 0, or -1 with ENOMEM and nothing reserved.
 */
int sgp_memory_reserve(struct sgp_memory *mem, size_t bytes, unsigned int shift, size_t align);

/* Give the addresses back. Pieces still in it go too. */
void sgp_memory_release(struct sgp_memory *mem);

/*
 * Back bytes of the range with memory, all of it present.
 *
 * Returns 0 and fills in *piece; -1 with ENOBUFS (no addresses left), ENOMEM, or the errno of
 * mbind(2), and the range is as it was.
 */
int sgp_memory_commit(struct sgp_memory *mem, size_t bytes, const struct sgp_backing *backing,
		      struct sgp_piece *piece);

/* Return the piece's pages to the system; its addresses stay reserved. errno is left alone. */
void sgp_memory_decommit(struct sgp_memory *mem, const struct sgp_piece *piece);

/* The granule an address lies in; granules or more when it is not in the range. */
static inline size_t sgp_memory_granule(const struct sgp_memory *mem, const void *addr)
{
	return ((uintptr_t)addr - (uintptr_t)mem->base) >> mem->shift;
}

#endif
