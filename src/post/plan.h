/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The steps of a post: plan.c says what an operation would take, or refuses it; gather.c makes its
 * slots and work requests; ring.c gives them to the device; post.c has the calls. All of it runs
 * under the side's lock.
 */
#ifndef SGP_PLAN_H
#define SGP_PLAN_H

#include "post/ep.h"

/* What an operation would take. */
struct sgp_plan {
	uint32_t parts; /* work requests; 0: several, to be counted */
	int sge_a_part;
	uint8_t opcode; /* enum ibv_wc_opcode */
	uint8_t flags;  /* enum sgp_slot_flags */
	bool goes_inline;
	bool linearise;
	bool own_signal; /* never left to a later completion */
};

/* What both sides refuse: 0; -1 with ESHUTDOWN or EXDEV. */
int sgp_check_list(const struct sgp_ep *ep, const struct sgp_sgl *sgl);

/* Whether the queue pair may send: 0; -1 with ENOTCONN, ESHUTDOWN, or the errno of ibv_query_qp(3).
 */
int sgp_check_connected(struct sgp_ep *ep);

/* Fill in *plan. Returns 0; -1 with the errors of sgp_post() that do not depend on the queue's
 * room. */
int sgp_plan(struct sgp_ep *ep, const struct sgp_wr *wr, struct sgp_plan *plan);

/* Plan and gather one operation. Returns 0; -1 with errno, nothing gathered and no slot taken. */
int sgp_gather(struct sgp_ep *ep, const struct sgp_wr *wr);

/* The slot at head, filled in but for holds and SGEs. */
struct sgp_slot *sgp_fill_slot(struct sgp_side *side, void *context, uint8_t opcode, uint8_t flags);

/* The holds that the slot keeps; and what it needs besides to hand the list back. */
void sgp_fill_holds(struct sgp_slot *slot, struct sgp_chunk *const *chunk, int n);
void sgp_fill_handover(struct sgp_slot *slot, const struct sgp_sgl *sgl);

#endif
