/* SPDX-License-Identifier: BSD-2-Clause */
/* Runs of pages in a bitmap, see pages.h. */
#include <stdbool.h>

#include "heap/pages.h"

void sgp_page_map_init(struct sgp_page_map *pages, uint64_t *map, size_t n)
{
	*pages = (struct sgp_page_map){.n = n, .longest = n, .map = map};
}

/* The first page from i on whose bit is as wanted; end if there is none before it. */
static size_t find(const struct sgp_page_map *pages, size_t i, size_t end, bool used)
{
	uint64_t flip = used ? 0 : UINT64_MAX;

	while (i < end) {
		uint64_t word = (pages->map[i / 64] ^ flip) >> i % 64;

		if (word) {
			i += (size_t)__builtin_ctzll(word);
			return i < end ? i : end;
		}
		i = (i / 64 + 1) * 64;
	}
	return end;
}

/* The first page of the run that ends before i. */
static size_t find_start(const struct sgp_page_map *pages, size_t i)
{
	while (i > 0) {
		uint64_t word = pages->map[(i - 1) / 64] << (63 - (i - 1) % 64);

		if (word) {
			size_t back = (size_t)__builtin_clzll(word);

			return i - back;
		}
		i = (i - 1) / 64 * 64;
	}
	return 0;
}

static void set(struct sgp_page_map *pages, size_t first, size_t n, bool used)
{
	while (n) {
		size_t bit = first % 64, bits = 64 - bit < n ? 64 - bit : n;
		uint64_t mask = (bits == 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1) << bit;

		if (used)
			pages->map[first / 64] |= mask;
		else
			pages->map[first / 64] &= ~mask;
		first += bits;
		n -= bits;
	}
}

bool sgp_page_map_fit(struct sgp_page_map *pages, size_t n, size_t align, size_t base,
		      struct sgp_run *best)
{
	size_t i, end, longest = 0;
	bool better = false;

	if (n > pages->longest)
		return false;
	i = pages->hint = find(pages, pages->hint, pages->n, false);
	while (i < pages->n && best->n != n) {
		size_t at = ((base + i + align - 1) & ~(align - 1)) - base;

		end = find(pages, i, pages->n, true);
		if (at < end && end - at >= n && end - i < best->n) {
			*best = (struct sgp_run){.first = at, .n = end - i};
			better = true;
		}
		if (end - i > longest)
			longest = end - i;
		i = find(pages, end, pages->n, false);
	}
	if (i >= pages->n)
		pages->longest = longest;
	return better;
}

void sgp_page_map_take(struct sgp_page_map *pages, size_t first, size_t n)
{
	set(pages, first, n, true);
	pages->used += n;
}

void sgp_page_map_give(struct sgp_page_map *pages, size_t first, size_t n)
{
	size_t run;

	set(pages, first, n, false);
	pages->used -= n;
	if (first < pages->hint)
		pages->hint = first;
	run = find(pages, first, pages->n, true) - find_start(pages, first);
	if (run > pages->longest)
		pages->longest = run;
}
