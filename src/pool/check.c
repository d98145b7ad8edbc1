/* SPDX-License-Identifier: BSD-2-Clause */
/* A pool compared with its invariants, see sgp_pool_check(). */
#include <stdlib.h>

#include "pool/pool.h"

static const char *check_slab(struct sgp_pool *pool, const struct sgp_slab *slab)
{
	const struct sgp_piece *piece = &slab->region.piece;
	size_t i;

	if (slab->made > slab->room || sgp_cut_bytes(&slab->cut, slab->room) > piece->bytes)
		return "a slab has more chunks than room";
	if ((uintptr_t)piece->addr % piece->page_size || piece->bytes % piece->page_size)
		return "a region is not aligned to its pages";
	for (i = 0; i < slab->made; i++) {
		struct sgp_chunk *chunk = &slab->chunks[i];
		char *end = (char *)chunk->addr + chunk->size - 1;

		if (sgp_pool_chunk_at(pool, chunk->addr) != chunk ||
		    sgp_pool_chunk_at(pool, end) != chunk)
			return "an address does not lead to its chunk";
		if (chunk->slab != slab || chunk->lkey != slab->region.mr->lkey)
			return "a descriptor does not fit its slab";
	}
	return NULL;
}

static int by_address(const void *a, const void *b)
{
	const struct sgp_chunk *x = *(struct sgp_chunk *const *)a;
	const struct sgp_chunk *y = *(struct sgp_chunk *const *)b;

	return x < y ? -1 : x > y;
}

static const char *check_free(const struct sgp_class *cls)
{
	struct sgp_chunk **sorted = calloc(cls->nfree + 1, sizeof sorted[0]);
	const char *wrong = NULL;
	size_t i;

	if (!sorted)
		return "no memory for the check";
	for (i = 0; i < cls->nfree; i++)
		sorted[i] = cls->free[i];
	qsort(sorted, cls->nfree, sizeof sorted[0], by_address);
	for (i = 0; i < cls->nfree && !wrong; i++) {
		const struct sgp_slab *slab = sorted[i]->slab;

		if (i && sorted[i] == sorted[i - 1])
			wrong = "a chunk is free twice";
		else if (sorted[i]->refs)
			wrong = "a free chunk has references";
		else if (slab->cls != cls || sorted[i] < slab->chunks ||
			 sorted[i] >= slab->chunks + slab->made)
			wrong = "a free chunk is not of this class";
	}
	free(sorted);
	return wrong;
}

const char *sgp_pool_check(struct sgp_pool *pool)
{
	const char *wrong = NULL;
	uint32_t i;

	for (i = 0; i < pool->nclasses && !wrong; i++) {
		struct sgp_class *cls = &pool->classes[i];
		struct sgp_slab *slab;
		size_t made = 0;

		for (slab = cls->slabs; slab && !wrong; slab = slab->next) {
			made += slab->made;
			wrong = check_slab(pool, slab);
		}
		if (!wrong && (made != cls->made || cls->nfree > made))
			wrong = "chunks are not free + live";
		if (!wrong)
			wrong = check_free(cls);
	}
	return wrong;
}
