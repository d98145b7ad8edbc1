/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * From gathered work requests to the device: one chain, one doorbell, and exact account of what it
 * took. All of it runs under the send side's lock.
 */
#include <errno.h>
#include <string.h>

#include "pool/errmsg.h"
#include "pool/mode.h"
#include "pool/probe.h"
#include "post/plan.h"
#include "post/wr.h"

/*
 * What becomes of the slots from first on, which the device did not take. Slots of posts that have
 * returned 0, and the rest of a list of which it took a part, end with err; behind these the slots
 * are withdrawn. Returns the sequence of the first withdrawn one.
 */
static uint32_t give_up(struct sgp_ep *ep, uint32_t first, int err)
{
	struct sgp_side *side = &ep->send;
	uint32_t accepted_end = ep->doorbell_seq + ep->accepted, end = first;

	/* A group that has begun before is half taken. */
	if (first != side->head && first != ep->doorbell_seq) {
		const struct sgp_slot *before = sgp_side_slot(side, first - 1);

		end = first + before->to_lead;
	}
	if ((int32_t)(accepted_end - end) > 0)
		end = accepted_end;
	sgp_side_withdraw(side, end);
	for (uint32_t seq = first; seq != end; seq++) {
		struct sgp_slot *slot = sgp_side_slot(side, seq);

		slot->flags |= SGP_SLOT_UNTAKEN;
		atomic_store_explicit(&slot->error, err, memory_order_relaxed);
		sgp_cq_send_back(ep->cq, slot);
	}
	sgp_side_recount(side);
	if (side->unsignalled)
		sgp_cq_list(ep->cq, ep);
	return end;
}

/* Nothing waits for the doorbell any more. */
static inline void forget_requests(struct sgp_ep *ep)
{
	ep->nwr = 0;
	ep->accepted = 0;
}

/* The endpoint is stopped: what was gathered before is never sent. */
static SGP_COLD uint32_t not_sent(struct sgp_ep *ep, int *err)
{
	uint32_t withdrawn;

	*err = ESHUTDOWN;
	withdrawn = give_up(ep, ep->doorbell_seq, *err);
	forget_requests(ep);
	return withdrawn;
}

/* The device did not take all requests, or says so. */
static SGP_COLD uint32_t half_taken(struct sgp_ep *ep, int ret, struct ibv_send_wr *bad_wr,
				    int *err)
{
	struct sgp_side *side = &ep->send;
	uint32_t withdrawn = side->head;
	void *untaken;

	*err = sgp_wr_judge(ret, bad_wr, &untaken);
	if (untaken) {
		withdrawn = give_up(
			ep, ep->doorbell_seq + (uint32_t)((struct ibv_send_wr *)untaken - ep->wr),
			*err);
	} else {
		/*
		 * All of it is queued (law 1), and the device may have been at it: what the poller has
		 * ended by now was told as the device told it, and rightly. An ended slot stays the poller's,
		 * or is free, and who fills it next clears the error.
		 */
		for (uint32_t seq = ep->doorbell_seq; seq != side->head; seq++)
			atomic_store_explicit(&sgp_side_slot(side, seq)->error, *err,
					      memory_order_relaxed);
		*err = 0; /* all of it is queued */
	}
	forget_requests(ep);
	return withdrawn;
}

uint32_t sgp_ep_ring_locked(struct sgp_ep *ep, int *err)
{
	struct ibv_send_wr *bad_wr = NULL;
	int ret;

	*err = 0;
	if (!ep->nwr)
		return ep->send.head;
	if (sgp_ep_is_stopped(ep))
		return not_sent(ep, err);
	SGP_PROBE3(doorbell, ep, ep->nwr, ep->send.head - ep->send.tail);
	errno = 0;
	ret = ibv_post_send(ep->qp, ep->wr, &bad_wr);
	ep->stats.doorbells++;
	if (!SGP_LIKELY(ret == 0) || !SGP_LIKELY(bad_wr == NULL))
		return half_taken(ep, ret, bad_wr, err);
	forget_requests(ep);
	return ep->send.head;
}

/* The same of the one request. Returns its errno, or 0 if it's queued all the same. */
static SGP_COLD int not_taken(struct sgp_ep *ep, int ret, struct ibv_send_wr *bad_wr)
{
	int err;

	ep->nwr = 1;
	ep->doorbell_seq = ep->send.head - 1;
	half_taken(ep, ret, bad_wr, &err);
	return err;
}

int sgp_ep_ring_alone_locked(struct sgp_ep *ep)
{
	struct ibv_send_wr *bad_wr = NULL;
	int ret;

	SGP_PROBE3(doorbell, ep, 1, ep->send.head - ep->send.tail);
	errno = 0;
	ret = ibv_post_send(ep->qp, ep->wr, &bad_wr);
	if (SGP_LIKELY(ret == 0) && SGP_LIKELY(bad_wr == NULL))
		return 0;
	return not_taken(ep, ret, bad_wr);
}

/* One request more, whose completion retires those before it. */
static int post_sync(struct sgp_ep *ep)
{
	struct sgp_side *side = &ep->send;
	struct sgp_slot *slot;
	int err;

	if (!sgp_side_has_room(side, 1))
		return EAGAIN;
	slot = sgp_fill_slot(side, NULL, IBV_WC_RDMA_WRITE, SGP_SLOT_OURS | SGP_SLOT_SIGNALLED);
	slot->num_chunk = slot->num_sge = 0;
	ep->doorbell_seq = side->head;
	sgp_wr_fill_nothing(&ep->wr[0], sgp_side_offer(side, slot), IBV_SEND_SIGNALED);
	ep->nwr = 1;
	side->unsignalled = 0;
	ep->stats.syncs++;
	sgp_ep_ring_locked(ep, &err);
	return err;
}

int sgp_ep_sync_locked(struct sgp_ep *ep)
{
	int err;

	sgp_ep_ring_locked(ep, &err);
	if (err || !ep->send.unsignalled)
		return err;
	return post_sync(ep);
}

int sgp_ep_submit(struct sgp_ep *ep)
{
	int err;

	if (sgp_check_fork())
		return -1;
	if (!ep)
		return sgp_fail(EINVAL, "no endpoint");
	sgp_lock(&ep->send.lock);
	sgp_ep_ring_locked(ep, &err);
	sgp_unlock(&ep->send.lock);
	return err ? sgp_fail(err, "the device did not take all that was gathered: %s",
			      strerror(err))
		   : 0;
}

int sgp_ep_sync(struct sgp_ep *ep)
{
	int err;

	if (sgp_check_fork())
		return -1;
	if (!ep)
		return sgp_fail(EINVAL, "no endpoint");
	sgp_lock(&ep->send.lock);
	err = sgp_ep_sync_locked(ep);
	sgp_unlock(&ep->send.lock);
	return err ? sgp_fail(err, "the send queue's tail cannot be retired now: %s", strerror(err))
		   : 0;
}
