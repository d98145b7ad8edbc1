/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The steps of a post: plan.c says what an operation would take, or refuses it; gather.c makes its
 * slots and work requests; ring.c gives them to the device; post.c has the calls. All of it runs
 * under the side's lock.
 */
#ifndef SGP_PLAN_H
#define SGP_PLAN_H

#include "pool/get.h"
#include "post/ep.h"

/* What is to know of an operation's opcode. */
enum sgp_kind {
	SGP_KIND_KNOWN = 1 << 0,
	SGP_KIND_MESSAGE = 1 << 1, /* one message at the peer: never split */
	SGP_KIND_SEND = 1 << 2,    /* what a UD queue pair can do, but for: */
	SGP_KIND_INV = 1 << 3,
	SGP_KIND_IMM = 1 << 4,
	SGP_KIND_ATOMIC = 1 << 5,
	SGP_KIND_SINK = 1 << 6, /* the device writes into the list */
	SGP_KIND_ONE_SIDED = 1 << 7,
};

/* What an operation would take. */
struct sgp_plan {
	uint32_t parts; /* work requests; 0: several, to be counted */
	int sge_a_part;
	uint8_t flags; /* enum sgp_slot_flags */
	bool goes_inline;
	bool linearise;
	bool own_signal; /* never left to a later completion */
};

/* What both sides refuse, and the list's keys made the endpoint's: 0; -1 with ESHUTDOWN or EXDEV. */
int sgp_check_list(const struct sgp_ep *ep, struct sgp_sgl *sgl);

/* Whether the queue pair may send: 0; -1 with ENOTCONN, ESHUTDOWN, or the errno of ibv_query_qp(3).
 */
SGP_COLD int sgp_check_connected(struct sgp_ep *ep);

/*
 * Plan an operation that is more than a plain message or WRITE of one request. It's known to be one
 * of the queue pair's. Returns 0; -1 with the errors of sgp_post() that do not depend on the
 * queue's room.
 */
int sgp_plan(const struct sgp_ep *ep, const struct sgp_wr *wr, unsigned int kind,
	     struct sgp_plan *plan);

/* Why the operation is not one of the queue pair's: -1 with EINVAL or EOPNOTSUPP. */
int sgp_refuse_operation(const struct sgp_ep *ep, const struct sgp_wr *wr, unsigned int kind);

/* Find out what is plain on the endpoint, of which everything else is known. */
void sgp_ep_find_plain(struct sgp_ep *ep);

/* Plan and gather one operation. Returns 0; -1 with errno, nothing gathered and no slot taken. */
int sgp_gather(struct sgp_ep *ep, const struct sgp_wr *wr);

/* Does the operation need no planning, and has the queue room for it? */
bool sgp_is_plain(struct sgp_ep *ep, const struct sgp_wr *wr);

/*
 * Such a one becomes ep->wr[0], for sgp_ep_ring_alone_locked(); nothing waits for the doorbell. Not counted as
 * waiting, nor in ep->stats.
 */
void sgp_fill_alone(struct sgp_ep *ep, const struct sgp_wr *wr);

/* Such a one, with SGP_BATCH, waits with the others. Not counted in ep->stats. */
void sgp_gather_plain(struct sgp_ep *ep, const struct sgp_wr *wr);

/* A refused post: statistics and probe. */
SGP_COLD void sgp_count_refusal(struct sgp_ep *ep, int err);

/* What was posted, in the caller's terms. */
void sgp_sum_posts(const struct sgp_ep *ep, struct sgp_ep_stats *stats);

/* The last refusals (the connection, the room), before parts slots are taken. 0; -1 with errno. */
int sgp_begin(struct sgp_ep *ep, uint32_t parts);

/* Offer the slot at head with a request made elsewhere, but for its wr_id and flags. */
void sgp_add_request(struct sgp_ep *ep, struct sgp_slot *slot, const struct ibv_send_wr *wr,
		     unsigned int send_flags);

/* Fill a free slot in, but for holds and SGEs. */
static inline void sgp_init_slot(struct sgp_slot *slot, void *context, uint8_t opcode,
				 uint8_t flags)
{
	slot->context = context;
	slot->parts = 1;
	slot->to_lead = 0;
	slot->flags = flags;
	slot->opcode = opcode;
	slot->ended = false;
	atomic_store_explicit(&slot->error, 0, memory_order_relaxed);
}

/* The slot at head, filled in so. */
static inline struct sgp_slot *sgp_fill_slot(struct sgp_side *side, void *context, uint8_t opcode,
					     uint8_t flags)
{
	struct sgp_slot *slot = sgp_side_slot(side, side->head);

	sgp_init_slot(slot, context, opcode, flags);
	return slot;
}

/* The holds that the slot keeps. */
static inline void sgp_fill_holds(struct sgp_slot *slot, struct sgp_chunk *const *chunk, int n)
{
	slot->num_chunk = (uint16_t)n;
	sgp_chunks_copy(slot->chunk, chunk, (size_t)n, true);
}

/* What it needs besides to hand the list back; its holds are there. */
void sgp_fill_handover(struct sgp_slot *slot, const struct sgp_sgl *sgl);

#endif
