/* SPDX-License-Identifier: BSD-2-Clause */
/* A heap's numbers: jemalloc's of its arena, and our own. */
#include <stdio.h>

#include "heap/holds.h"
#include "pool/errmsg.h"
#include "pool/thread.h"

static size_t of_arena(const struct sgp_heap *heap, const char *entry)
{
	size_t value = 0, size = sizeof value;
	char name[64];

	snprintf(name, sizeof name, "stats.arenas.%u.%s", heap->arena, entry);
	sgp_je_mallctl(name, &value, &size, NULL, 0);
	return value;
}

int sgp_heap_stats(struct sgp_heap *heap, struct sgp_heap_stats *stats)
{
	uint64_t epoch = 1;

	if (sgp_check_fork())
		return -1;
	/* jemalloc's numbers are those of the last epoch. */
	sgp_je_mallctl("epoch", NULL, NULL, &epoch, sizeof epoch);
	*stats = (struct sgp_heap_stats){
		.allocated = of_arena(heap, "small.allocated") + of_arena(heap, "large.allocated"),
		.active = of_arena(heap, "pactive") * heap->page,
		.registered = heap->bytes,
		.regions = heap->nregions,
	};
	stats->held = sgp_holds_count(heap->holds, &stats->in_flight);
	pthread_mutex_lock(&heap->lock);
	stats->resident = heap->used_pages * heap->page;
	pthread_mutex_unlock(&heap->lock);
	if (stats->registered > stats->allocated)
		stats->fragmentation = 1 - (double)stats->allocated / (double)stats->registered;
	return 0;
}
