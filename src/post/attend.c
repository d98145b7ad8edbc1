/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the poller does besides reaping the device's completions: it ends what no completion will end
 * (what posters sent back, what a close or a reset flushes), and sees to endpoints that need it. All
 * of it runs under the queue's lock.
 */
#include "post/ep.h"

void sgp_cq_take_untaken_locked(struct sgp_cq *cq)
{
	struct sgp_slot *slot, *next;

	sgp_lock(&cq->inbox_lock);
	slot = cq->untaken;
	cq->untaken = NULL;
	cq->untaken_end = &cq->untaken;
	atomic_store_explicit(&cq->inbox, cq->attention != NULL, memory_order_relaxed);
	sgp_unlock(&cq->inbox_lock);
	for (; slot; slot = next) {
		struct sgp_ep *ep =
			sgp_cq_ep_of(cq, atomic_load_explicit(&slot->tag, memory_order_relaxed));

		next = slot->untaken;
		if (slot->ended) /* flushed meanwhile */
			continue;
		sgp_cq_end_locked(cq, ep, &ep->send, slot, IBV_WC_GENERAL_ERR);
	}
}

static void flush_side(struct sgp_cq *cq, struct sgp_ep *ep, struct sgp_side *side)
{
	sgp_lock(&side->lock);
	for (uint32_t seq = side->tail; seq != side->head; seq++) {
		struct sgp_slot *slot = sgp_side_find(side, side->wr_base | seq);

		if (!slot || slot->ended)
			continue;
		sgp_cq_end_locked(cq, ep, side, slot, IBV_WC_WR_FLUSH_ERR);
	}
	sgp_unlock(&side->lock);
}

void sgp_cq_flush_locked(struct sgp_cq *cq, struct sgp_ep *ep, bool receives)
{
	sgp_cq_take_untaken_locked(cq);
	flush_side(cq, ep, &ep->send);
	if (receives)
		flush_side(cq, ep, &ep->recv);
	if (cq->pending)
		sgp_cq_wake(cq);
}

/*
 * Returns whether the endpoint needs to be seen to once more. Full: a signalled request is on its way,
 * and its completion brings the poller back. A stopped one's tail is flushed; what it had gathered ends
 * with the error.
 */
static bool attend(struct sgp_ep *ep, bool tails)
{
	int err;

	if (tails && !sgp_ep_is_stopped(ep))
		return sgp_ep_sync_locked(ep) == EAGAIN;
	sgp_ep_ring_locked(ep, &err);
	return ep->send.unsignalled && !sgp_ep_is_stopped(ep);
}

void sgp_cq_attend_locked(struct sgp_cq *cq, bool tails)
{
	struct sgp_ep *ep, *next;

	sgp_lock(&cq->inbox_lock);
	ep = cq->attention;
	cq->attention = NULL;
	atomic_store_explicit(&cq->inbox, cq->untaken != NULL, memory_order_relaxed);
	sgp_unlock(&cq->inbox_lock);
	for (; ep; ep = next) {
		next = ep->next;
		sgp_lock(&ep->send.lock);
		ep->listed = false;
		if (attend(ep, tails))
			sgp_cq_list(cq, ep);
		sgp_unlock(&ep->send.lock);
	}
}
