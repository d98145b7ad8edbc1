/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A heap's regions: pages out of them, new ones, free ones given back; and for the whole process the
 * way from an address to its region.
 *
 *      address   | 63 .. 48 | 47 .. 34 | 33 .. 21 | 20 .. 0 |
 *                  0           root[]     leaf[]    inside
 *
 * Extents are multiples of 2 MiB, so that each entry of a leaf is one region's. Leaves are made when
 * they are needed and stay. Whoever looks an address up has an object there, or no business with it:
 * so the entry does not change meanwhile, and no lock is needed.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "heap/holds.h"
#include "pool/errmsg.h"

#define LEAF_BITS 13
#define ROOT_BITS (48 - LEAF_BITS - SGP_EXTENT_SHIFT)
#define LEAF_SIZE ((size_t)1 << LEAF_BITS)

/* A new region is so large a part of what there is: few registrations, and little that is unused. */
#define STEP 16

struct leaf {
	_Atomic(struct sgp_heap_region *) region[LEAF_SIZE];
};

static _Atomic(struct leaf *) root[(size_t)1 << ROOT_BITS];

__thread int sgp_heap_releasing;

/* ---- the way from an address ---- */

struct sgp_heap_region *sgp_heap_region_at(const void *addr)
{
	uintptr_t block = (uintptr_t)addr >> SGP_EXTENT_SHIFT;
	struct leaf *leaf;

	if (block >> LEAF_BITS >= (uintptr_t)1 << ROOT_BITS)
		return NULL;
	leaf = atomic_load_explicit(&root[block >> LEAF_BITS], memory_order_acquire);
	if (!leaf)
		return NULL;
	return atomic_load_explicit(&leaf->region[block & (LEAF_SIZE - 1)], memory_order_acquire);
}

/* The leaf of a block, made if there is none. */
static struct leaf *leaf_of(uintptr_t block)
{
	_Atomic(struct leaf *) *slot = &root[block >> LEAF_BITS];
	struct leaf *leaf = atomic_load_explicit(slot, memory_order_acquire), *fresh;

	if (leaf)
		return leaf;
	fresh = calloc(1, sizeof *fresh);
	if (!fresh || atomic_compare_exchange_strong(slot, &leaf, fresh))
		return fresh;
	free(fresh); /* another heap's thread was faster */
	return leaf;
}

/* Enter the region for all of its addresses, or take it out (to NULL). */
static int publish(const struct sgp_heap_region *region, struct sgp_heap_region *to)
{
	const struct sgp_piece *piece = &region->extent.owner.region.piece;
	uintptr_t first = (uintptr_t)piece->addr >> SGP_EXTENT_SHIFT;
	uintptr_t end = first + (piece->bytes >> SGP_EXTENT_SHIFT), i;

	if (end >> LEAF_BITS > (uintptr_t)1 << ROOT_BITS)
		return sgp_fail(ENOMEM, "addresses above 2^48");
	for (i = first; i < end; i++)
		if (!leaf_of(i))
			return sgp_fail(ENOMEM, "no memory for the table of addresses");
	for (i = first; i < end; i++)
		atomic_store_explicit(&leaf_of(i)->region[i & (LEAF_SIZE - 1)], to,
				      memory_order_release);
	return 0;
}

/* ---- making and ending; the growth lock is held ---- */

static char *start_of(const struct sgp_heap_region *region)
{
	return region->extent.owner.region.piece.addr;
}

static size_t bytes_of(const struct sgp_heap_region *region)
{
	return region->extent.owner.region.piece.bytes;
}

static void insert_locked(struct sgp_heap *heap, struct sgp_heap_region *region)
{
	struct sgp_heap_region *before = heap->last, *after;

	while (before && start_of(before) > start_of(region))
		before = before->prev;
	after = before ? before->next : heap->first;
	region->prev = before;
	region->next = after;
	*(before ? &before->next : &heap->first) = region;
	*(after ? &after->prev : &heap->last) = region;
	heap->nempty++;
	heap->bytes += bytes_of(region);
	heap->nregions++;
}

static void remove_locked(struct sgp_heap *heap, struct sgp_heap_region *region)
{
	*(region->prev ? &region->prev->next : &heap->first) = region->next;
	*(region->next ? &region->next->prev : &heap->last) = region->prev;
	heap->nempty--;
	heap->bytes -= bytes_of(region);
	heap->nregions--;
}

/* A region of at least bytes. NULL with errno. */
static struct sgp_heap_region *make_region(struct sgp_heap *heap, size_t bytes)
{
	size_t n = bytes / heap->page, map = sgp_page_map_words(n) * sizeof(uint64_t);
	struct sgp_heap_region *region = calloc(1, sizeof *region + map);
	bool gone;
	int err;

	if (!region)
		return sgp_fail_null(ENOMEM, "no memory for a region's page map");
	if (sgp_extent_make(&region->extent, heap->pool, bytes, &sgp_hold_kind))
		goto free_region;
	region->heap = heap;
	sgp_page_map_init(&region->pages, region->map, n);
	if (publish(region, region))
		goto end_extent;
	pthread_mutex_lock(&heap->lock);
	insert_locked(heap, region);
	pthread_mutex_unlock(&heap->lock);
	return region;

end_extent:
	err = errno;
	gone = !sgp_extent_end(&region->extent);
	errno = err;
	if (!gone) /* the device keeps it, and the pool knows it for ever */
		return NULL;
free_region:
	free(region);
	return NULL;
}

/* A region with room for need bytes; larger as the heap gets larger, if that can be had. */
static int add_region(struct sgp_heap *heap, size_t need)
{
	size_t has = heap->bytes, left = heap->max_bytes - has;
	size_t most = sgp_extent_most(heap->pool), step = has / STEP;

	need = (need + SGP_EXTENT_BYTES - 1) & ~(SGP_EXTENT_BYTES - 1);
	if (need > left)
		return sgp_fail(ENOBUFS, "%zu bytes more: the heap has %zu of at most %zu", need,
				has, heap->max_bytes);
	if (step > most)
		step = most;
	if (step > left)
		step = left;
	step &= ~(SGP_EXTENT_BYTES - 1);
	if (step > need && make_region(heap, step))
		return 0;
	return make_region(heap, need) ? 0 : -1;
}

int sgp_heap_grow_to(struct sgp_heap *heap, size_t bytes)
{
	size_t most = sgp_extent_most(heap->pool);
	int ret = 0;

	pthread_mutex_lock(&heap->grow);
	while (!ret && heap->bytes < bytes) {
		size_t need = bytes - heap->bytes;

		ret = add_region(heap, need < most ? need : most);
	}
	pthread_mutex_unlock(&heap->grow);
	return ret;
}

/* Take a region out of use that has been free since before then, if keep bytes stay; NULL if none. */
static struct sgp_heap_region *pick_locked(struct sgp_heap *heap, size_t keep, uint64_t then)
{
	struct sgp_heap_region *region;

	for (region = heap->last; region; region = region->prev)
		if (region->pages.used == 0 && region->free_since <= then &&
		    heap->bytes - bytes_of(region) >= keep)
			break;
	if (region)
		remove_locked(heap, region);
	return region;
}

/* It is out of use: end it, or find a place for it if the device keeps it. */
static int end_region(struct sgp_heap *heap, struct sgp_heap_region *region)
{
	publish(region, NULL);
	if (!sgp_extent_end(&region->extent)) {
		free(region);
		return 0;
	}
	if (!region->extent.owner.region.whole) {
		region->next = heap->broken;
		heap->broken = region;
		return -1;
	}
	publish(region, region);
	pthread_mutex_lock(&heap->lock);
	insert_locked(heap, region);
	pthread_mutex_unlock(&heap->lock);
	return -1;
}

/* Those of which the device kept a part earlier. */
static int end_broken(struct sgp_heap *heap)
{
	struct sgp_heap_region *region = heap->broken, *next;
	int ret = 0;

	heap->broken = NULL;
	for (; region; region = next) {
		next = region->next;
		if (end_region(heap, region))
			ret = -1;
	}
	return ret;
}

int sgp_heap_shrink(struct sgp_heap *heap, size_t keep, uint64_t then)
{
	struct sgp_heap_region *region;
	int ret;

	pthread_mutex_lock(&heap->grow);
	ret = end_broken(heap);
	while (!ret) {
		pthread_mutex_lock(&heap->lock);
		region = pick_locked(heap, keep, then);
		pthread_mutex_unlock(&heap->lock);
		if (!region)
			break;
		ret = end_region(heap, region);
	}
	pthread_mutex_unlock(&heap->grow);
	return ret;
}

/* ---- pages ---- */

/*
 * The shortest run that is long enough, the lowest among equals: it leaves long runs whole, and high
 * regions free. The maps are small enough to be looked through.
 */
static void *take_locked(struct sgp_heap *heap, size_t n, size_t align)
{
	struct sgp_heap_region *region, *found = NULL;
	struct sgp_run best = {.n = SIZE_MAX};

	for (region = heap->first; region && best.n != n; region = region->next)
		if (sgp_page_map_fit(&region->pages, n, align,
				     (uintptr_t)start_of(region) / heap->page, &best))
			found = region;
	if (!found)
		return NULL;
	heap->nempty -= found->pages.used == 0;
	heap->used_pages += n;
	sgp_page_map_take(&found->pages, best.first, n);
	return start_of(found) + best.first * heap->page;
}

static void *take(struct sgp_heap *heap, size_t n, size_t align)
{
	void *addr;

	pthread_mutex_lock(&heap->lock);
	addr = take_locked(heap, n, align);
	pthread_mutex_unlock(&heap->lock);
	return addr;
}

void *sgp_heap_take_pages(struct sgp_heap *heap, size_t n, size_t align)
{
	size_t bytes = n * heap->page, boundary = align * heap->page;
	void *addr = take(heap, n, align);

	if (addr)
		return addr;
	if (boundary > SGP_EXTENT_BYTES)
		bytes += boundary - SGP_EXTENT_BYTES;
	if (bytes > sgp_extent_most(heap->pool))
		return sgp_fail_null(EMSGSIZE, "%zu bytes: the pool's regions are at most %zu",
				     bytes, sgp_extent_most(heap->pool));
	pthread_mutex_lock(&heap->grow);
	/* Others take of it as well, so it may take more than one. */
	while (!(addr = take(heap, n, align)) && !add_region(heap, bytes))
		;
	pthread_mutex_unlock(&heap->grow);
	return addr;
}

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void sgp_heap_give_pages(struct sgp_heap *heap, void *addr, size_t n)
{
	struct sgp_heap_region *region = sgp_heap_region_at(addr);
	uint64_t now = now_ms();
	bool shrink;

	pthread_mutex_lock(&heap->lock);
	sgp_page_map_give(&region->pages, (size_t)((char *)addr - start_of(region)) / heap->page,
			  n);
	heap->used_pages -= n;
	if (region->pages.used == 0) {
		region->free_since = now;
		heap->nempty++;
	}
	shrink = heap->nempty && heap->bytes > heap->keep && now >= heap->look_at &&
		 !sgp_heap_releasing;
	if (shrink)
		heap->look_at = now + heap->decay_ms / 2;
	pthread_mutex_unlock(&heap->lock);
	if (shrink)
		sgp_heap_shrink(heap, heap->keep, now - heap->decay_ms);
}
