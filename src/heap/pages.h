/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which pages of a region are in use: a bit each, and the run that fits best.
 *
 *      map    1 1 1 0 0 1 0 0 0 0 1 1 ...        hint: no free page before it
 *                   ^hint  |<---->| longest      longest: no free run is longer
 *
 * Pure bookkeeping: the pages themselves are never touched. Locking: the caller's.
 */
#ifndef SGP_HEAP_PAGES_H
#define SGP_HEAP_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sgp_page_map {
	size_t n, used;
	size_t hint;
	size_t longest;
	uint64_t *map; /* [sgp_page_map_words(n)] */
};

static inline size_t sgp_page_map_words(size_t n)
{
	return (n + 63) / 64;
}

/* All n pages free; map: zeroed. */
void sgp_page_map_init(struct sgp_page_map *pages, uint64_t *map, size_t n);

/* A run of free pages. */
struct sgp_run {
	size_t first, n;
};

/*
 * Look for the shortest run of at least n > 0 free pages on a multiple of align (a power of two), page 0
 * being number base; the first one among equals. If it is shorter than *best, *best becomes it, its
 * first page the aligned one, and true is returned.
 */
bool sgp_page_map_fit(struct sgp_page_map *pages, size_t n, size_t align, size_t base,
		      struct sgp_run *best);

/* Take n free pages. */
void sgp_page_map_take(struct sgp_page_map *pages, size_t first, size_t n);

/* Give n pages from first on back. */
void sgp_page_map_give(struct sgp_page_map *pages, size_t first, size_t n);

#endif
