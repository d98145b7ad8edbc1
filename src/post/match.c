/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a completion of the device ends: the slot that its wr_id names, the unsignalled ones before it,
 * and of a group the last. What becomes of that is reap.c's. All of it is the poller's and runs under
 * the queue's lock.
 */
#include "post/datagram.h"
#include "post/reap.h"
#include "post/srq.h"
#include "post/window.h"

static inline struct sgp_side *side_of(struct sgp_ep *ep, uint64_t wr_id)
{
	return wr_id & SGP_WR_RECV ? &ep->recv : &ep->send;
}

void sgp_cq_retire_before(struct sgp_cq *cq, struct sgp_ep *ep, uint32_t seq)
{
	struct sgp_side *side = &ep->send;

	while ((int32_t)(seq - side->reaped) > 0) {
		uint64_t wr_id = side->wr_base | side->reaped++;
		struct sgp_slot *slot = sgp_side_find(side, wr_id);

		if (!slot || slot->ended || slot->flags & (SGP_SLOT_SIGNALLED | SGP_SLOT_UNTAKEN))
			continue;
		if (!atomic_load_explicit(&slot->error, memory_order_relaxed) &&
		    !(slot->flags & SGP_SLOT_CANCELLED)) {
			sgp_group_drop(cq, side, slot);
			continue;
		}
		/* Queued with an error, which is owed; or cancelled. */
		sgp_cq_end_locked(cq, ep, side, slot, IBV_WC_GENERAL_ERR);
	}
	if (seq == side->reaped)
		side->reaped++;
}

/* The slot of an endpoint's own queues that a completion names, if it is to end. */
static inline struct sgp_slot *find(struct sgp_cq *cq, uint64_t wr_id, struct sgp_ep **which)
{
	struct sgp_ep *ep = sgp_cq_ep_of(cq, wr_id);
	struct sgp_slot *slot = ep ? sgp_side_find(side_of(ep, wr_id), wr_id) : NULL;

	*which = ep;
	return slot && !slot->ended ? slot : NULL;
}

struct sgp_slot *sgp_cq_match(struct sgp_cq *cq, const struct ibv_wc *raw, struct sgp_ep **which)
{
	struct sgp_ep *ep = NULL;
	struct sgp_slot *slot;
	struct sgp_side *side;
	struct sgp_done *done;

	slot = sgp_wr_is_shared(raw->wr_id) ? sgp_srq_claim_locked(cq, raw->wr_id, raw->qp_num, &ep)
					    : find(cq, raw->wr_id, &ep);
	if (!slot) {
		cq->stale++;
		return NULL;
	}
	side = raw->wr_id & SGP_WR_RECV ? ep->in : &ep->send;
	done = &slot->done;
	done->status = raw->status;
	done->error = atomic_load_explicit(&slot->error, memory_order_relaxed);
	done->vendor_err = raw->vendor_err;
	if (raw->status != IBV_WC_SUCCESS)
		atomic_fetch_or(&ep->life, SGP_EP_STOPPED);
	else if (done->error)
		done->status = IBV_WC_GENERAL_ERR;
	*which = ep;
	if (side == &ep->send) {
		sgp_cq_retire_before(cq, ep, (uint32_t)raw->wr_id);
	} else if (raw->status == IBV_WC_SUCCESS) {
		done->byte_len = raw->byte_len;
		done->imm_data = raw->imm_data;
		done->wc_flags = raw->wc_flags;
		/* rxe gives the kernel's number for WITH_INV: here a flag that RC does not have. */
		if (ep->type == IBV_QPT_RC && raw->wc_flags & IBV_WC_IP_CSUM_OK)
			done->wc_flags ^= IBV_WC_IP_CSUM_OK | IBV_WC_WITH_INV;
		if (done->wc_flags & IBV_WC_WITH_INV)
			sgp_window_invalidated_locked(ep, raw->invalidated_rkey);
		if (ep->type == IBV_QPT_UD)
			sgp_note_origin(slot, raw);
		if (raw->opcode == IBV_WC_RECV_RDMA_WITH_IMM)
			slot->opcode = IBV_WC_RECV_RDMA_WITH_IMM;
		/* A plain queue pair receives in RTR already, and may not send then. */
		if (!sgp_ep_was_connected(ep) && ep->id)
			atomic_fetch_or(&ep->life, SGP_EP_CONNECTED);
	}
	return sgp_group_end_slot(ep, side, slot);
}
