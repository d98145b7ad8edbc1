/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What jemalloc calls for its pages, see EXTENT HOOKS in jemalloc(3).
 *
 * Pages are registered and present, and stay so: there is nothing to commit, and no purge hook, since
 * madvise(2) would part a page from its registration. What decays is given back to the regions. jemalloc
 * may split a run anywhere, and merges runs of one region only.
 */
#include <errno.h>
#include <string.h>

#include "heap/heap.h"

static __thread int hook_error __attribute__((tls_model("initial-exec")));

static struct sgp_heap *heap_of(extent_hooks_t *hooks)
{
	return (struct sgp_heap *)(void *)hooks;
}

static void *alloc(extent_hooks_t *hooks, void *at, size_t size, size_t alignment, bool *zero,
		   bool *commit, unsigned int arena)
{
	struct sgp_heap *heap = heap_of(hooks);
	size_t align = alignment / heap->page;
	void *addr;

	(void)arena;
	if (at)
		return NULL; /* growing in place is left to merge */
	addr = sgp_heap_take_pages(heap, size / heap->page, align ? align : 1);
	if (!addr) {
		hook_error = errno;
		return NULL;
	}
	if (*zero)
		memset(addr, 0, size);
	*commit = true;
	return addr;
}

static void give(struct sgp_heap *heap, void *addr, size_t size)
{
	sgp_heap_give_pages(heap, addr, size / heap->page);
}

static bool dalloc(extent_hooks_t *hooks, void *addr, size_t size, bool committed,
		   unsigned int arena)
{
	(void)committed;
	(void)arena;
	give(heap_of(hooks), addr, size);
	return false;
}

static void destroy(extent_hooks_t *hooks, void *addr, size_t size, bool committed,
		    unsigned int arena)
{
	(void)committed;
	(void)arena;
	give(heap_of(hooks), addr, size);
}

static bool split(extent_hooks_t *hooks, void *addr, size_t size, size_t size_a, size_t size_b,
		  bool committed, unsigned int arena)
{
	(void)hooks;
	(void)addr;
	(void)size;
	(void)size_a;
	(void)size_b;
	(void)committed;
	(void)arena;
	return false;
}

static bool merge(extent_hooks_t *hooks, void *a, size_t size_a, void *b, size_t size_b,
		  bool committed, unsigned int arena)
{
	(void)hooks;
	(void)size_a;
	(void)size_b;
	(void)committed;
	(void)arena;
	return sgp_heap_region_at(a) != sgp_heap_region_at(b);
}

const extent_hooks_t sgp_heap_hooks = {
	.alloc = alloc, .dalloc = dalloc, .destroy = destroy, .split = split, .merge = merge};

int sgp_heap_hook_error(void)
{
	int err = hook_error;

	hook_error = 0;
	return err;
}
