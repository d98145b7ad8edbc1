/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One side of a queue pair: a ring of slots, one for each work request that the device has, each
 * with the caller's context and the holds that keep its memory.
 *
 *      tail                     head
 *       |  done  posted  posted  |   free ...
 *
 * Two parties touch it. The poster (whoever holds the side's lock) owns head and tail: it fills the
 * slot at head, and moves tail over slots that have become free when it needs room. The poller
 * (whoever holds the completion queue's lock) only ever ends slots. What passes between them is the
 * slot's tag: the work request's wr_id while the device or the poller has the slot, 0 when the
 * poster does. It's stored with release and read with acquire, so neither needs the other's lock.
 *
 * A wr_id is never taken from elsewhere: a completion whose wr_id is not in the slot that it names
 * is stale, or a duplicate, or garbage, and touches nothing.
 *
 *      bit 63   62..48        47..32     31..0
 *      [ side | generation  | endpoint | sequence ]      slot = sequence modulo ring
 *
 * The generation is that of the endpoint's place in the completion queue's table and starts at 1,
 * so that no wr_id is 0.
 */
#ifndef SGP_QUEUE_H
#define SGP_QUEUE_H

#include <stdatomic.h>
#include <stdint.h>

#include "post/lock.h"
#include "sgpool/post.h"

#define SGP_WR_RECV       (UINT64_C(1) << 63)
#define SGP_WR_GENERATION 0x7fff /* the highest; 1 comes after it */
#define SGP_MAX_ENDPOINTS 0x10000
#define SGP_MAX_DEPTH     0x8000

/* What a completion says, kept while it waits to be handed out. */
struct sgp_done {
	enum ibv_wc_status status;
	int error;
	uint32_t vendor_err;
	uint32_t byte_len;
	uint32_t imm_data;
	unsigned int wc_flags;
};

enum sgp_slot_flags {
	SGP_SLOT_WANTED = 1 << 0, /* a success owes the caller a completion too */
	SGP_SLOT_DONE = 1 << 1,   /* ended; waits in the completion queue's pending list */
};

struct sgp_slot {
	_Atomic uint64_t tag; /* wr_id, or 0: free */
	void *context;
	uint16_t num_chunk, num_sge;
	uint8_t op; /* enum sgp_opcode */
	uint8_t flags;
	/* Of a post that the provider half took: what its completion is to report. */
	int error;
	uint64_t length; /* with sge: the list's, as they were */
	uint64_t pds;
	uint32_t access;
	struct sgp_chunk **chunk; /* [max_chunk] of the side */
	struct ibv_sge *sge;      /* [max_sge], on a side that hands lists back; else NULL */
	struct sgp_slot *next;    /* pending */
	struct sgp_done done;
};

struct sgp_side {
	struct sgp_lock lock;
	uint64_t wr_base; /* side, generation, endpoint */
	uint32_t depth;   /* that the device was asked for; never more is posted */
	uint32_t mask;    /* ring - 1 */
	uint32_t head, tail;
	uint32_t reaped; /* the poller's: the next sequence that a later completion would retire */
	int max_sge, max_chunk;
	struct sgp_slot *slot;
	struct sgp_chunk **chunks; /* storage of all slots */
	struct ibv_sge *sges;
};

/* Make the ring. keep_sges: the side hands lists back. Returns 0, or -1 with ENOMEM. */
int sgp_side_init(struct sgp_side *side, uint32_t depth, int max_sge, int max_chunk, bool keep_sges,
		  bool unlocked);

/* Free it; every slot is free or its holds are given up by the caller. */
void sgp_side_fini(struct sgp_side *side);

/*
 * The slot for the next post, or NULL when the queue is full. The poster's. The slot is not taken
 * until sgp_side_commit().
 */
struct sgp_slot *sgp_side_next(struct sgp_side *side);

/* Posts that would be accepted now. The poster's. */
uint32_t sgp_side_room(struct sgp_side *side);

/*
 * Copy the list's holds (and SGEs) into the slot and hand it to the poller; returns the wr_id. The
 * list keeps them until sgp_sgl_reset(): on a refusal sgp_side_withdraw() makes all as it was.
 */
uint64_t sgp_side_offer(struct sgp_side *side, struct sgp_slot *slot, const struct sgp_sgl *sgl,
			void *context, enum sgp_opcode op, uint8_t flags);
void sgp_side_withdraw(struct sgp_slot *slot);
void sgp_side_commit(struct sgp_side *side);

/* The slot that a wr_id names, if it is the one that is posted there; else NULL. The poller's. */
static inline struct sgp_slot *sgp_side_find(struct sgp_side *side, uint64_t wr_id)
{
	struct sgp_slot *slot = &side->slot[wr_id & side->mask];

	return atomic_load_explicit(&slot->tag, memory_order_acquire) == wr_id ? slot : NULL;
}

/* Give the slot back to the poster. Its holds have gone elsewhere. The poller's. */
static inline void sgp_slot_free(struct sgp_slot *slot)
{
	atomic_store_explicit(&slot->tag, 0, memory_order_release);
}

#endif
