/* SPDX-License-Identifier: BSD-2-Clause */
/* A pool compared with its invariants, see sgp_pool_check(). */
#include "pool/cache.h"
#include "pool/pool.h"

static const char *check_slab(struct sgp_pool *pool, const struct sgp_slab *slab)
{
	const struct sgp_piece *piece = &slab->owner.region.piece;
	size_t i;

	if (slab->made > slab->room || sgp_cut_bytes(&slab->cut, slab->room) > piece->bytes)
		return "a slab has more chunks than room";
	if ((uintptr_t)piece->addr % piece->page_size || piece->bytes % piece->page_size)
		return "a region is not aligned to its pages";
	for (i = 0; i < slab->made; i++) {
		struct sgp_chunk *chunk = &slab->chunks[i];
		char *end = (char *)chunk->addr + slab->cut.size - 1;

		if (sgp_pool_find(pool, chunk->addr) != chunk || sgp_pool_find(pool, end) != chunk)
			return "an address does not lead to its chunk";
		if (chunk->owner != &slab->owner || chunk->slot != slab->cls->slot ||
		    (slab->owner.region.home &&
		     chunk->lkey != sgp_region_lkey(&slab->owner.region)))
			return "a descriptor does not fit its slab";
	}
	return NULL;
}

/* Free chunks in an array: each is marked as it is met, so that one that is met twice shows. */
static const char *check_free(const struct sgp_class *cls, struct sgp_chunk *const free[], size_t n)
{
	size_t i;

	for (i = 0; i < n; i++) {
		struct sgp_chunk *chunk = free[i];
		struct sgp_slab *slab = sgp_slab_of(chunk);

		if (slab->cls != cls || chunk < slab->chunks || chunk >= slab->chunks + slab->made)
			return "a free chunk is not of this class";
		if (chunk->mark & SGP_MARK_MET)
			return "a chunk is free twice";
		if (chunk->refs || chunk->mark)
			return "a free chunk has references, or counts as reserved";
		chunk->mark = SGP_MARK_MET;
	}
	return NULL;
}

/* A mark keeps a chunk off the short ways of put, so none may stay. */
static void unmark(struct sgp_slab *slab)
{
	for (size_t i = 0; i < slab->made; i++)
		slab->chunks[i].mark &= (uint16_t)~SGP_MARK_MET;
}

static const char *check_class(struct sgp_class *cls)
{
	size_t made = 0, free = cls->nfree;
	struct sgp_cache *cache;
	struct sgp_slab *slab;
	const char *wrong;

	for (slab = cls->slabs; slab; slab = slab->next) {
		made += slab->made;
		wrong = check_slab(cls->pool, slab);
		if (wrong)
			return wrong;
		unmark(slab);
	}
	wrong = check_free(cls, cls->free, cls->nfree);
	for (cache = cls->caches; cache && !wrong; cache = cache->next_of_class) {
		size_t n = sgp_cache_count(cache);

		free += n;
		wrong = n > cls->cache_chunks ? "a cache is too full"
					      : check_free(cls, cache->items, n);
	}
	for (slab = cls->slabs; slab; slab = slab->next)
		unmark(slab);
	if (!wrong && (made != cls->made || free > made || made > cls->max_chunks))
		wrong = "chunks are not free + live";
	return wrong;
}

const char *sgp_pool_check(struct sgp_pool *pool)
{
	const char *wrong = NULL;
	uint32_t i;

	for (i = 0; i < pool->nclasses && !wrong; i++)
		wrong = check_class(&pool->classes[i]);
	return wrong ? wrong : sgp_imports_check(&pool->imports);
}
