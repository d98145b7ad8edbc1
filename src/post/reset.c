/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A queue pair's new life: through RESET, with everything of the old one accounted for.
 *
 * RESET drops work requests silently, and some providers take their completions out of the queue
 * too, while others leave them there (law 2.7). So what has come is kept first; then, as the device
 * is finished with the memory, the rest of our own table ends as flushed; and the slots get a new
 * generation, so that a completion of the old life that still turns up matches nothing. The queue
 * is polled empty in between, since what the old life left in it has no room beside the new one's.
 */
#include <errno.h>
#include <string.h>

#include "pool/errmsg.h"
#include "pool/served.h"
#include "post/ep.h"
#include "post/refill.h"

/* What the queue pair's INIT was made of, to be given again. */
static int query(struct sgp_ep *ep, struct ibv_qp_attr *attr, int *mask)
{
	struct ibv_qp_init_attr init;
	int err;

	*mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		(ep->type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
	errno = 0;
	err = sgp_provider_errno(ibv_query_qp(ep->qp, attr, *mask, &init));
	return err ? sgp_fail(err, "the queue pair's state: %s", strerror(err)) : 0;
}

static int modify(struct sgp_ep *ep, struct ibv_qp_attr *attr, enum ibv_qp_state to, int mask)
{
	attr->qp_state = to;
	errno = 0;
	return sgp_provider_errno(ibv_modify_qp(ep->qp, attr, mask));
}

/* Both sides begin anew. Slots that wait in the pending list are free when they are polled. */
static void renew_locked(struct sgp_ep *ep)
{
	sgp_lock(&ep->send.lock);
	sgp_lock(&ep->recv.lock);
	sgp_cq_renew_locked(ep->cq, ep);
	ep->send.reaped = ep->send.head;
	ep->send.unsignalled = 0;
	sgp_unlock(&ep->recv.lock);
	sgp_unlock(&ep->send.lock);
}

static int to_reset(struct sgp_ep *ep, struct ibv_qp_attr *attr)
{
	struct sgp_cq *cq = ep->cq;
	int err;

	sgp_served_hold();
	sgp_lock(&cq->lock);
	sgp_cq_keep_all_locked(cq);
	err = modify(ep, attr, IBV_QPS_RESET, IBV_QP_STATE);
	if (!err) {
		sgp_cq_keep_all_locked(cq);
		sgp_cq_flush_locked(cq, ep, !ep->refill);
		renew_locked(ep);
	} else if (cq->pending) {
		sgp_cq_wake(cq);
	}
	sgp_unlock(&cq->lock);
	sgp_served_release();
	return err;
}

/* The receives that the library keeps posted are still in their slots (case 51b). */
static int receive_again(struct sgp_ep *ep)
{
	int err;

	sgp_lock(&ep->cq->lock);
	sgp_lock(&ep->recv.lock);
	err = sgp_recv_again_locked(ep);
	sgp_unlock(&ep->recv.lock);
	sgp_unlock(&ep->cq->lock);
	return err;
}

int sgp_ep_reset(struct sgp_ep *ep)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
	bool was_made;
	int mask, err;

	if (!ep || !ep->qp)
		return sgp_fail(EINVAL, "reset: an open endpoint is needed");
	if (query(ep, &attr, &mask))
		return -1;
	was_made = attr.qp_state != IBV_QPS_RESET && attr.port_num;
	sgp_ep_stop_posts(ep);
	err = to_reset(ep, &attr);
	if (!err && was_made)
		err = modify(ep, &attr, IBV_QPS_INIT, mask);
	if (!err && was_made && ep->refill)
		err = receive_again(ep);
	if (err)
		return sgp_fail(err, "the queue pair cannot be reset: %s", strerror(err));
	atomic_store(&ep->connected, false);
	atomic_store(&ep->stopped, false);
	if (was_made && ep->refill)
		(void)sgp_refill_now(ep->refill); /* what was missing; else the polls go on */
	return 0;
}
