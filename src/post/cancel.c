/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Cancelling: the caller is told at once, the memory waits for the device.
 *
 * A time that is over is not a completion: the device may still read or write what was posted. So
 * the request's context is reported, once, and its holds are quarantined: they stay in the slot
 * until the completion that ends it, which nobody hears of, or until the queue pair is gone.
 *
 *      cancel          poll              completion, reset or close
 *        | to_tell -----> told                 | holds dropped, slot free
 *
 * Either may come first: the slot is free when both have.
 *
 * What is only gathered has not been given to the device, and never will be: its work requests
 * become RDMA WRITEs of nothing, which keep the order and the signals of the queue as they were
 * planned. (A datagram's can't, as a UD queue pair has no WRITE: it goes out.)
 */
#include <errno.h>

#include "pool/errmsg.h"
#include "pool/mode.h"
#include "pool/served.h"
#include "post/ep.h"
#include "post/wr.h"

/* The oldest operation with that context that the device or the gathering has. */
static struct sgp_slot *find_leader(struct sgp_side *side, const void *context)
{
	for (uint32_t seq = side->tail; seq != side->head; seq++) {
		struct sgp_slot *slot = sgp_side_find(side, side->wr_base | seq);

		if (slot && !slot->to_lead && slot->context == context &&
		    !(slot->flags & (SGP_SLOT_OURS | SGP_SLOT_CANCELLED)) &&
		    !sgp_group_has_ended(slot))
			return slot;
	}
	return NULL;
}

static unsigned int count_holds(struct sgp_side *side, const struct sgp_slot *leader)
{
	uint32_t last = (uint32_t)atomic_load_explicit(&leader->tag, memory_order_relaxed);
	unsigned int holds = 0;

	for (uint32_t i = 0; i < leader->parts; i++)
		holds += sgp_side_slot(side, last - i)->num_chunk;
	return holds;
}

/* Its requests wait for the doorbell: they do nothing then, and need no memory. */
static void empty_requests(struct sgp_ep *ep, struct sgp_slot *leader)
{
	uint32_t last = (uint32_t)atomic_load_explicit(&leader->tag, memory_order_relaxed);

	for (uint32_t i = 0; i < leader->parts; i++) {
		struct ibv_send_wr *wr = &ep->wr[last - i - ep->doorbell_seq];
		struct ibv_send_wr *next = wr->next;

		sgp_wr_fill_nothing(wr, wr->wr_id, wr->send_flags & IBV_SEND_SIGNALED);
		wr->next = next;
	}
	sgp_group_drop_holds(&ep->send, leader);
}

static bool is_gathered(const struct sgp_ep *ep, const struct sgp_slot *leader)
{
	uint32_t last = (uint32_t)atomic_load_explicit(&leader->tag, memory_order_relaxed);

	return ep->nwr && (int32_t)(last - ep->doorbell_seq) >= 0;
}

static int cancel_locked(struct sgp_ep *ep, void *context)
{
	struct sgp_slot *leader = find_leader(&ep->send, context);

	if (!leader) {
		bool is_recv;

		sgp_lock(&ep->recv.lock);
		is_recv = find_leader(&ep->recv, context);
		sgp_unlock(&ep->recv.lock);
		return is_recv ? sgp_fail(EOPNOTSUPP, "a posted receive cannot be cancelled: the "
						      "message that lands there would be lost")
			       : sgp_fail(ENOENT, "no operation with this context is posted: it "
						  "has completed");
	}
	if (is_gathered(ep, leader) && ep->type != IBV_QPT_UD)
		empty_requests(ep, leader);
	leader->flags |= SGP_SLOT_CANCELLED;
	leader->to_tell = true;
	ep->cancelled++;
	ep->quarantined += count_holds(&ep->send, leader);
	sgp_cq_tell_locked(ep->cq, ep, leader);
	sgp_cq_wake(ep->cq);
	return 0;
}

int sgp_cancel(struct sgp_ep *ep, void *context)
{
	int ret;

	if (sgp_check_fork())
		return -1;
	if (!ep)
		return sgp_fail(EINVAL, "no endpoint");
	sgp_served_hold();
	sgp_lock(&ep->cq->lock);
	sgp_lock(&ep->send.lock);
	ret = cancel_locked(ep, context);
	sgp_unlock(&ep->send.lock);
	sgp_unlock(&ep->cq->lock);
	sgp_served_release();
	return ret;
}

/* Holds of what the device may still have, though its queue pair was to be gone. */
static unsigned int stuck_holds(struct sgp_side *side)
{
	unsigned int holds = 0;

	sgp_lock(&side->lock);
	for (uint32_t seq = side->tail; seq != side->head; seq++) {
		const struct sgp_slot *slot = sgp_side_find(side, side->wr_base | seq);
		const struct sgp_slot *leader =
			slot ? sgp_side_slot(side, seq + slot->to_lead) : NULL;

		if (leader && !(leader->flags & SGP_SLOT_CANCELLED) && !sgp_group_has_ended(leader))
			holds += slot->num_chunk;
	}
	sgp_unlock(&side->lock);
	return holds;
}

unsigned int sgp_ep_quarantined_locked(struct sgp_ep *ep)
{
	return ep->quarantined + (ep->stuck ? stuck_holds(&ep->send) + stuck_holds(&ep->recv) : 0);
}
