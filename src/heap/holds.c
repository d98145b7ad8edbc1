/* SPDX-License-Identifier: BSD-2-Clause */
/* The table of what is held, see holds.h; and the append that makes a hold. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "heap/cache.h"
#include "heap/holds.h"
#include "pool/errmsg.h"

/* Descriptors are made so many at a time, and stay until the heap ends. */
struct sgp_hold_block {
	struct sgp_hold_block *next;
	_Alignas(64) struct sgp_hold hold[63];
};

_Static_assert(sizeof(struct sgp_hold) <= 64, "a cache line each");

struct sgp_hold_table *sgp_holds_make(void)
{
	struct sgp_hold_table *table =
		aligned_alloc(_Alignof(struct sgp_hold_table), sizeof *table);

	if (!table)
		return sgp_fail_null(ENOMEM, "no memory for a heap's holds");
	memset(table, 0, sizeof *table);
	for (int i = 0; i < SGP_HOLD_SHARDS; i++)
		pthread_mutex_init(&table->shard[i].lock, NULL);
	return table;
}

void sgp_holds_free(struct sgp_hold_table *table)
{
	struct sgp_hold_block *block;

	for (int i = 0; table && i < SGP_HOLD_SHARDS; i++) {
		struct sgp_hold_shard *shard = &table->shard[i];

		while ((block = shard->blocks)) {
			shard->blocks = block->next;
			free(block);
		}
		pthread_mutex_destroy(&shard->lock);
	}
	free(table);
}

uint64_t sgp_holds_count(struct sgp_hold_table *table, uint64_t *bytes)
{
	uint64_t n = 0, sum = 0;

	for (int i = 0; i < SGP_HOLD_SHARDS; i++) {
		n += atomic_load_explicit(&table->shard[i].count, memory_order_relaxed);
		sum += atomic_load_explicit(&table->shard[i].bytes, memory_order_relaxed);
	}
	if (bytes)
		*bytes = sum;
	return n;
}

/* ---- a shard; its lock is held ---- */

static struct sgp_hold_shard *shard_of(struct sgp_hold_table *table, size_t bucket)
{
	return &table->shard[bucket % SGP_HOLD_SHARDS];
}

static void add(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

static struct sgp_hold *new_hold_locked(struct sgp_hold_shard *shard)
{
	struct sgp_hold *hold = shard->spare;
	struct sgp_hold_block *block;

	if (!hold) {
		block = aligned_alloc(64, sizeof *block);
		if (!block)
			return NULL;
		block->next = shard->blocks;
		shard->blocks = block;
		for (size_t i = 0; i < sizeof block->hold / sizeof block->hold[0]; i++) {
			block->hold[i].next = hold;
			hold = &block->hold[i];
		}
	}
	shard->spare = hold->next;
	return hold;
}

/* The newest hold of the object, from this one of its bucket on. */
static struct sgp_hold *find_locked(struct sgp_hold *hold, const void *obj)
{
	while (hold && hold->chunk.addr != obj)
		hold = hold->next;
	return hold;
}

static struct sgp_hold *first_locked(struct sgp_hold_table *table, size_t bucket, const void *obj)
{
	return find_locked(atomic_load_explicit(&table->bucket[bucket], memory_order_relaxed), obj);
}

static void link_locked(struct sgp_hold_table *table, size_t bucket, struct sgp_hold *hold)
{
	struct sgp_hold_shard *shard = shard_of(table, bucket);

	hold->from = &table->bucket[bucket];
	hold->next = atomic_load_explicit(hold->from, memory_order_relaxed);
	if (hold->next)
		hold->next->from = (_Atomic(struct sgp_hold *) *)&hold->next;
	atomic_store_explicit(hold->from, hold, memory_order_release);
	add(&shard->count, 1);
	add(&shard->bytes, hold->chunk.size);
}

static void unlink_locked(struct sgp_hold_shard *shard, struct sgp_hold *hold)
{
	atomic_store_explicit(hold->from, hold->next, memory_order_release);
	if (hold->next)
		hold->next->from = hold->from;
	add(&shard->count, UINT64_MAX);
	add(&shard->bytes, -(uint64_t)hold->chunk.size);
	hold->next = shard->spare;
	shard->spare = hold;
}

/* ---- the last put, and sinks ---- */

static struct sgp_heap *heap_of(const struct sgp_chunk *chunk)
{
	return ((struct sgp_heap_region *)(void *)chunk->owner)->heap;
}

/* The owner's descriptor was put for the last time. If the object was freed meanwhile, it goes now. */
static void release(struct sgp_chunk *chunk)
{
	struct sgp_hold *hold = (struct sgp_hold *)(void *)chunk, *other;
	struct sgp_heap *heap = heap_of(chunk);
	void *obj = chunk->addr;
	size_t bucket = sgp_hold_bucket(obj);
	struct sgp_hold_shard *shard = shard_of(heap->holds, bucket);
	bool freed;

	pthread_mutex_lock(&shard->lock);
	freed = hold->freed;
	unlink_locked(shard, hold);
	other = freed ? first_locked(heap->holds, bucket, obj) : NULL;
	if (other)
		other->freed = true;
	pthread_mutex_unlock(&shard->lock);
	if (!freed || other)
		return;
	sgp_heap_releasing++;
	sgp_je_dallocx(obj, sgp_heap_flags(heap));
	sgp_heap_releasing--;
}

static void sink(struct sgp_chunk *chunk, bool posted)
{
	struct sgp_hold *hold = (struct sgp_hold *)(void *)chunk;

	atomic_fetch_add_explicit(&hold->sinks, posted ? 1 : UINT32_MAX, memory_order_relaxed);
}

/* Raw addresses lead to no object: a list takes objects by sgp_sgl_append_ptr(). */
static struct sgp_chunk *find(struct sgp_owner *owner, const void *addr)
{
	(void)owner;
	(void)addr;
	return NULL;
}

const struct sgp_owner_kind sgp_hold_kind = {.release = release, .find = find, .sink = sink};

/* ---- for the calls ---- */

bool sgp_hold_free(struct sgp_hold_table *table, const void *obj)
{
	size_t bucket = sgp_hold_bucket(obj);
	struct sgp_hold_shard *shard = shard_of(table, bucket);
	struct sgp_hold *hold;

	pthread_mutex_lock(&shard->lock);
	hold = first_locked(table, bucket, obj);
	if (hold)
		hold->freed = true;
	pthread_mutex_unlock(&shard->lock);
	return hold != NULL;
}

enum sgp_hold_state sgp_hold_state(struct sgp_hold_table *table, const void *obj)
{
	size_t bucket = sgp_hold_bucket(obj);
	struct sgp_hold_shard *shard = shard_of(table, bucket);
	enum sgp_hold_state state = SGP_HOLD_NONE;
	struct sgp_hold *hold;

	if (!sgp_hold_maybe(table, obj))
		return SGP_HOLD_NONE;
	pthread_mutex_lock(&shard->lock);
	hold = first_locked(table, bucket, obj);
	if (hold)
		state = hold->freed ? SGP_HOLD_FREED : SGP_HOLD_HELD;
	for (; hold && state == SGP_HOLD_HELD; hold = find_locked(hold->next, obj))
		if (atomic_load_explicit(&hold->sinks, memory_order_relaxed))
			state = SGP_HOLD_SINK;
	pthread_mutex_unlock(&shard->lock);
	return state;
}

/* A new hold of an object, with the reference that the list is to have. NULL with errno. */
static struct sgp_chunk *hold_object(struct sgp_heap_region *region, void *obj, size_t size)
{
	struct sgp_hold_table *table = region->heap->holds;
	size_t bucket = sgp_hold_bucket(obj);
	struct sgp_hold_shard *shard = shard_of(table, bucket);
	struct sgp_hold *hold;
	int err = ENOMEM;

	pthread_mutex_lock(&shard->lock);
	hold = first_locked(table, bucket, obj);
	if (hold && hold->freed) {
		err = EFAULT;
		hold = NULL;
	} else {
		hold = new_hold_locked(shard);
	}
	if (hold) {
		sgp_owner_describe(&region->extent.owner, &hold->chunk, obj, (uint32_t)size);
		hold->freed = false;
		atomic_store_explicit(&hold->sinks, 0, memory_order_relaxed);
		link_locked(table, bucket, hold);
	}
	pthread_mutex_unlock(&shard->lock);
	if (!hold)
		return sgp_fail_null(err, err == EFAULT ? "slice: the object has been freed"
							: "no memory for a hold");
	return &hold->chunk;
}

int sgp_sgl_append_ptr(struct sgp_sgl *sgl, void *obj, size_t offset, size_t length)
{
	struct sgp_heap_region *region;
	struct sgp_chunk *chunk;
	size_t size;
	int err;

	if (!sgl)
		return sgp_fail(EINVAL, "slice: no list");
	region = sgp_heap_region_at(obj);
	if (!region)
		return sgp_fail(EFAULT, "slice: the address is no heap's");
	if (sgp_heap_flags(region->heap) < 0)
		return -1;
	size = sgp_je_sallocx(obj, 0);
	if (length > size || offset > size - length)
		return sgp_fail(EFAULT, "slice: %zu bytes from %zu on, of an object of %zu", length,
				offset, size);
	chunk = hold_object(region, obj, size);
	if (!chunk)
		return -1;
	if (sgp_sgl_append(sgl, chunk, offset, length)) {
		err = errno;
		sgp_chunk_put(chunk);
		errno = err;
		return -1;
	}
	sgl->flags |= SGP_SGL_OBJECTS;
	return 0;
}
