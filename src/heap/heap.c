/* SPDX-License-Identifier: BSD-2-Clause */
/* A heap's beginning and end, see heap.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "heap/cache.h"
#include "heap/holds.h"
#include "pool/errmsg.h"
#include "pool/thread.h"

#define DECAY_MS 1000

/* jemalloc's largest size class whose length is still an SGE's. */
#define OBJECT_MOST ((size_t)7 << 28)

int sgp_heap_ctl(const struct sgp_heap *heap, const char *entry, void *value, size_t size)
{
	char name[64];

	snprintf(name, sizeof name, "arena.%u.%s", heap->arena, entry);
	return sgp_je_mallctl(name, NULL, NULL, value, size);
}

static int create_arena(struct sgp_heap *heap)
{
	struct sgp_je_arena_config config = {.extent_hooks = &heap->hooks};
	size_t size = sizeof heap->arena;
	ssize_t none = 0;

	/* metadata_use_hooks false: jemalloc's own data stay out of registered memory. */
	if (sgp_je_mallctl("experimental.arenas_create_ext", &heap->arena, &size, &config,
			   sizeof config))
		return sgp_fail(EAGAIN, "jemalloc has no arena left");
	/* Freed pages go back to the regions at once: there all sizes share them. */
	sgp_heap_ctl(heap, "dirty_decay_ms", &none, sizeof none);
	sgp_heap_ctl(heap, "muzzy_decay_ms", &none, sizeof none);
	return 0;
}

static int check(struct sgp_pool *pool, const struct sgp_heap_attr *attr)
{
	if (!pool || attr->comp_mask || attr->flags)
		return sgp_fail(EINVAL, "heap: no pool, or a comp_mask or flags that this version "
					"does not know");
	if (attr->max_bytes && attr->max_bytes < attr->bytes)
		return sgp_fail(EINVAL, "heap: max_bytes %zu is below bytes %zu", attr->max_bytes,
				attr->bytes);
	if (sgp_extent_most(pool) == 0)
		return sgp_fail(EINVAL, "heap: the pool's regions (region_bytes, or the device's "
					"max_mr_size) are below 2 MiB");
	return 0;
}

static void free_heap(struct sgp_heap *heap)
{
	int err = errno;

	sgp_holds_free(heap->holds);
	pthread_mutex_destroy(&heap->grow);
	pthread_mutex_destroy(&heap->lock);
	free(heap);
	errno = err;
}

/* The arena has nothing allocated: it goes, and then the regions. */
static int end_heap(struct sgp_heap *heap)
{
	if (!heap->ended)
		sgp_heap_ctl(heap, "destroy", NULL, 0);
	heap->ended = true;
	return sgp_heap_shrink(heap, 0, UINT64_MAX);
}

struct sgp_heap *sgp_heap_create(struct sgp_pool *pool, const struct sgp_heap_attr *attr)
{
	static const struct sgp_heap_attr none;
	struct sgp_heap *heap;
	int err;

	if (!attr)
		attr = &none;
	if (sgp_check_fork() || check(pool, attr) || sgp_heap_threads_init())
		return NULL;
	heap = aligned_alloc(_Alignof(struct sgp_heap), sizeof *heap);
	if (!heap)
		return sgp_fail_null(ENOMEM, "no memory for a heap");
	memset(heap, 0, sizeof *heap);
	heap->hooks = sgp_heap_hooks;
	heap->pool = pool;
	heap->page = sgp_page_size();
	heap->most = sgp_extent_most(pool) < OBJECT_MOST ? sgp_extent_most(pool) : OBJECT_MOST;
	heap->keep = attr->bytes;
	heap->decay_ms = attr->decay_ms ? attr->decay_ms : DECAY_MS;
	heap->max_bytes = attr->max_bytes ? attr->max_bytes : SIZE_MAX;
	pthread_mutex_init(&heap->grow, NULL);
	pthread_mutex_init(&heap->lock, NULL);
	heap->holds = sgp_holds_make();
	if (!heap->holds || create_arena(heap)) {
		free_heap(heap);
		return NULL;
	}
	if (sgp_heap_grow_to(heap, attr->bytes)) {
		err = errno;
		/* What the device keeps must stay mapped: such a heap is abandoned as it is. */
		if (end_heap(heap) == 0)
			free_heap(heap);
		errno = err;
		return NULL;
	}
	return heap;
}

int sgp_heap_destroy(struct sgp_heap *heap)
{
	uint64_t held;

	if (sgp_check_fork())
		return -1;
	if (!heap)
		return sgp_fail(EINVAL, "no heap");
	if (!heap->ended) {
		held = sgp_holds_count(heap->holds, NULL);
		if (held)
			return sgp_fail(EBUSY, "%llu objects are still held by lists or queues",
					(unsigned long long)held);
		/* What the caches have is free; then only what is allocated keeps pages. */
		sgp_heap_caches_end(heap);
		sgp_heap_ctl(heap, "purge", NULL, 0);
		if (heap->used_pages)
			return sgp_fail(EBUSY, "objects in %zu pages are still allocated",
					heap->used_pages);
	}
	if (end_heap(heap))
		return -1;
	free_heap(heap);
	return 0;
}

int sgp_heap_trim(struct sgp_heap *heap)
{
	if (sgp_check_fork())
		return -1;
	if (!heap)
		return sgp_fail(EINVAL, "no heap");
	sgp_heap_cache_flush(heap);
	sgp_heap_ctl(heap, "purge", NULL, 0);
	return sgp_heap_shrink(heap, heap->keep, UINT64_MAX);
}
