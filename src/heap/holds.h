/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What lists and queues hold of a heap: a descriptor for each append, in a table keyed by object.
 *
 *      bucket[hash(object)] --> hold --> hold --> ...
 *                               | chunk: what lists and queues have (pool/owner.h)
 *                               | freed: the object is to be freed with its last hold
 *                               | sinks: posted operations that write to it
 *
 * The holds of one object are all in one bucket; the newest comes first, and has what freed says. A
 * shard is the buckets that share a lock.
 *
 * An empty bucket is seen without the lock: whoever frees an object has done with appending it, so a
 * hold of it that is still there has been there before; and the last put, if that is what emptied the
 * bucket, is seen by the acquiring load.
 */
#ifndef SGP_HEAP_HOLDS_H
#define SGP_HEAP_HOLDS_H

#include "heap/heap.h"

#define SGP_HOLD_BUCKETS_LOG 14
#define SGP_HOLD_SHARDS      64

struct sgp_hold {
	struct sgp_chunk chunk; /* first */
	struct sgp_hold *next;
	_Atomic(struct sgp_hold *) *from; /* what points to this one */
	_Atomic uint32_t sinks;
	bool freed;
};

struct sgp_hold_shard {
	_Alignas(64) pthread_mutex_t lock;
	struct sgp_hold *spare; /* by next */
	struct sgp_hold_block *blocks;
	_Atomic uint64_t count, bytes; /* holds, and their objects' sizes */
};

struct sgp_hold_table {
	struct sgp_hold_shard shard[SGP_HOLD_SHARDS];
	_Atomic(struct sgp_hold *) bucket[1 << SGP_HOLD_BUCKETS_LOG];
};

/* What the holds' descriptors are to the pool: the last put comes here. */
extern const struct sgp_owner_kind sgp_hold_kind;

/* NULL with ENOMEM. */
struct sgp_hold_table *sgp_holds_make(void);
void sgp_holds_free(struct sgp_hold_table *table); /* nothing is held; NULL does nothing */

/* How many holds there are; *bytes, if wanted: the sizes of their objects. */
uint64_t sgp_holds_count(struct sgp_hold_table *table, uint64_t *bytes);

static inline size_t sgp_hold_bucket(const void *obj)
{
	uint64_t hash = ((uintptr_t)obj >> 3) * UINT64_C(0x9e3779b97f4a7c15);

	return (size_t)(hash >> (64 - SGP_HOLD_BUCKETS_LOG));
}

/* Whether the object may be held: quick, and right when it says no. */
static inline bool sgp_hold_maybe(const struct sgp_hold_table *table, const void *obj)
{
	return atomic_load_explicit(&table->bucket[sgp_hold_bucket(obj)], memory_order_acquire) !=
	       NULL;
}

/* The object is to be freed with its last hold. False: it has none, so the caller frees it. */
bool sgp_hold_free(struct sgp_hold_table *table, const void *obj);

enum sgp_hold_state {
	SGP_HOLD_NONE,
	SGP_HOLD_HELD,
	SGP_HOLD_SINK, /* a posted operation writes to it */
	SGP_HOLD_FREED
};

enum sgp_hold_state sgp_hold_state(struct sgp_hold_table *table, const void *obj);

#endif
