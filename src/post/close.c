/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How an endpoint is closed, in this order: no post any more (both sides' locks are passed once, so
 * that none is on its way), the queue pair into the error state, its completions kept until all are
 * there or the time is over, the queue pair destroyed, and only then what is left of our own table
 * ended as flushed: providers lose completions at destroy, or never flush (law 2.6, 2.8), but after a
 * successful ibv_destroy_qp(3) the device is finished with the memory.
 */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "pool/errmsg.h"
#include "pool/mode.h"
#include "pool/served.h"
#include "post/ep.h"
#include "post/refill.h"
#include "post/srq.h"

void sgp_ep_stop_posts(struct sgp_ep *ep)
{
	struct sgp_side *side = &ep->send;

	sgp_lock(&side->lock);
	if (!ep->nwr && !sgp_ep_is_stopped(ep))
		(void)sgp_ep_sync_locked(ep);
	atomic_fetch_or(&ep->life, SGP_EP_STOPPED);
	for (uint32_t seq = side->head - ep->nwr; seq != side->head; seq++)
		sgp_side_slot(side, seq)->flags |= SGP_SLOT_UNTAKEN;
	ep->nwr = ep->accepted = 0;
	sgp_unlock(&side->lock);
	sgp_lock(&ep->recv.lock);
	sgp_unlock(&ep->recv.lock);
}

/*
 * Whether the device owes no completion. For an unsignalled request that had succeeded before it
 * gives none.
 */
static bool is_idle_side(struct sgp_side *side)
{
	bool idle = true;

	sgp_lock(&side->lock);
	for (uint32_t seq = side->tail; seq != side->head; seq++) {
		struct sgp_slot *slot = sgp_side_find(side, side->wr_base | seq);

		if (slot && !slot->ended &&
		    (slot->flags & (SGP_SLOT_SIGNALLED | SGP_SLOT_UNTAKEN)) == SGP_SLOT_SIGNALLED)
			idle = false;
	}
	sgp_unlock(&side->lock);
	return idle;
}

/* Keep completions until none of ep is due any more, or the time is over. */
static void drain(struct sgp_ep *ep, int timeout_ms)
{
	struct sgp_cq *cq = ep->cq;
	struct timespec nap = {.tv_nsec = 20000}, start, now;

	clock_gettime(CLOCK_MONOTONIC, &start);
	for (;;) {
		bool idle;
		int64_t ms;

		sgp_served_hold();
		sgp_lock(&cq->lock);
		idle = !sgp_cq_keep_all_locked(cq) ||
		       (is_idle_side(&ep->send) && is_idle_side(&ep->recv));
		sgp_unlock(&cq->lock);
		sgp_served_release();
		clock_gettime(CLOCK_MONOTONIC, &now);
		ms = (int64_t)(now.tv_sec - start.tv_sec) * 1000 +
		     (now.tv_nsec - start.tv_nsec) / 1000000;
		if (idle || (timeout_ms >= 0 && ms >= timeout_ms))
			return;
		nanosleep(&nap, NULL);
		if (nap.tv_nsec < 1000000)
			nap.tv_nsec *= 2;
	}
}

int sgp_ep_destroy_qp(struct sgp_ep *ep)
{
	int err;

	/* rdma_destroy_qp(3) would do for an identifier's, but tells no error (law 1). */
	errno = 0;
	err = sgp_provider_errno(ibv_destroy_qp(ep->qp));
	if (err)
		return err;
	sgp_lock(&ep->cq->places_lock);
	ep->qp = NULL;
	sgp_unlock(&ep->cq->places_lock);
	if (ep->id)
		ep->id->qp = NULL;
	return 0;
}

int sgp_ep_close(struct sgp_ep *ep, int timeout_ms)
{
	struct ibv_qp_attr to_error = {.qp_state = IBV_QPS_ERR};
	struct sgp_cq *cq;
	int err;

	if (sgp_check_fork())
		return -1;
	if (!ep)
		return sgp_fail(EINVAL, "no endpoint");
	if (!ep->qp)
		return 0;
	cq = ep->cq;
	sgp_ep_stop_posts(ep);
	if (ep->refill)
		sgp_refill_stop(ep->refill);
	/* A provider that refuses it flushes nothing; the time limit serves for that as well. */
	(void)ibv_modify_qp(ep->qp, &to_error, IBV_QP_STATE);
	drain(ep, timeout_ms);

	sgp_served_hold();
	sgp_lock(&cq->lock);
	if (ep->srq) /* what is lost with the queue pair stays lost (law 2.9) */
		sgp_cq_keep_all_locked(cq);
	err = sgp_ep_destroy_qp(ep);
	ep->stuck = err;
	if (!err) {
		if (ep->srq) {
			sgp_cq_keep_all_locked(cq);
			sgp_srq_qp_gone_locked(ep);
		}
		sgp_cq_flush_locked(cq, ep, true);
		sgp_cq_await_empty_locked(cq, ep);
	} else if (cq->pending) {
		sgp_cq_wake(cq);
	}
	sgp_unlock(&cq->lock);
	sgp_served_release();
	if (err)
		return sgp_fail(err,
				"the queue pair cannot be destroyed (%s): what was posted "
				"stays held",
				strerror(err));
	return 0;
}
