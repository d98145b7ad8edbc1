/* SPDX-License-Identifier: BSD-2-Clause */
/* Chunks that are kept for long, see pins.h. */
#include <assert.h>

#include "hash.h"
#include "pins.h"

struct pin {
	const struct sgp_chunk *chunk;
	struct pin *next;
	size_t users; /* slices of it in lists */
};

int pins_open(struct pins *pins, struct budget *budget, struct sgp_pool *pool)
{
	struct sgp_class_stats stats;
	size_t chunks = 0;

	*pins = (struct pins){.budget = budget, .nbuckets = 64};
	while (pins->nclasses < PINS_CLASSES &&
	       !sgp_pool_class_stats(pool, pins->nclasses, &stats)) {
		pins->classes[pins->nclasses].size = stats.size;
		pins->classes[pins->nclasses++].max_bytes = stats.size * stats.max_chunks / 2;
		chunks += stats.max_chunks;
	}
	while (pins->nbuckets < chunks / 4)
		pins->nbuckets *= 2;
	pins->buckets = budget_alloc(budget, pins->nbuckets * sizeof(void *));
	return pins->buckets ? 0 : -1;
}

void pins_close(struct pins *pins)
{
	budget_free(pins->budget, pins->buckets, pins->nbuckets * sizeof(void *));
}

static struct pin **find(struct pins *pins, const struct sgp_chunk *chunk)
{
	const uint32_t hash = hash_bytes(HASH_START, &chunk, sizeof chunk);
	struct pin **at = &pins->buckets[hash & (pins->nbuckets - 1)];

	while (*at && (*at)->chunk != chunk)
		at = &(*at)->next;
	return at;
}

static uint32_t class_of(const struct pins *pins, const struct sgp_chunk *chunk)
{
	uint32_t i = 0;

	while (i + 1 < pins->nclasses && pins->classes[i].size < sgp_chunk_size(chunk))
		i++;
	return i;
}

static int add_one(struct pins *pins, const struct sgp_chunk *chunk)
{
	const uint32_t class_ = class_of(pins, chunk);
	const size_t size = pins->classes[class_].size;
	struct pin **at = find(pins, chunk);

	if (!*at) {
		if (pins->classes[class_].bytes + size > pins->classes[class_].max_bytes)
			return -1;
		*at = budget_alloc(pins->budget, sizeof **at);
		if (!*at)
			return -1;
		(*at)->chunk = chunk;
		pins->classes[class_].bytes += size;
	}
	(*at)->users++;
	return 0;
}

static void remove_one(struct pins *pins, const struct sgp_chunk *chunk)
{
	struct pin **at = find(pins, chunk), *pin = *at;

	assert(pin); /* whatever is removed was added */
	if (--pin->users)
		return;
	*at = pin->next;
	pins->classes[class_of(pins, chunk)].bytes -= pins->classes[class_of(pins, chunk)].size;
	budget_free(pins->budget, pin, sizeof *pin);
}

int pins_add(struct pins *pins, const struct sgp_sgl *sgl)
{
	for (int i = 0; i < sgl->num_chunk; i++) {
		if (!add_one(pins, sgl->chunk[i]))
			continue;
		while (i-- > 0)
			remove_one(pins, sgl->chunk[i]);
		return -1;
	}
	return 0;
}

void pins_remove(struct pins *pins, const struct sgp_sgl *sgl)
{
	for (int i = 0; i < sgl->num_chunk; i++)
		remove_one(pins, sgl->chunk[i]);
}

size_t pins_bytes(const struct pins *pins)
{
	size_t bytes = 0;

	for (uint32_t i = 0; i < pins->nclasses; i++)
		bytes += pins->classes[i].bytes;
	return bytes;
}
