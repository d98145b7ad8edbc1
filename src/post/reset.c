/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A queue pair's new life: through RESET, with everything of the old one accounted for.
 *
 * RESET drops work requests silently, and some providers take their completions out of the queue
 * too, while others leave them there (law 2.7). So what has come is kept first; then, as the device
 * is finished with the memory, the rest of our own table ends as flushed; and the slots get a new
 * generation, so that a completion of the old life that still turns up matches nothing. The queue
 * is polled empty in between, since what the old life left in it has no room beside the new one's.
 *
 * Not on iWARP, whose queue pairs live as long as a TCP connection. soft-iWARP answers 0 to RESET and
 * stays as it was: its receives would take messages into memory that the caller has back already.
 */
#include <errno.h>
#include <string.h>

#include "pool/errmsg.h"
#include "pool/mode.h"
#include "pool/served.h"
#include "post/ep.h"
#include "post/refill.h"
#include "post/srq.h"

/* Remember what the queue pair's INIT was made of, to give it again. Nothing, if it was not made. */
static int query(struct sgp_ep *ep)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
	struct ibv_qp_init_attr init;
	int err;

	errno = 0;
	err = sgp_provider_errno(
		ibv_query_qp(ep->qp, &attr,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				     (ep->type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS),
			     &init));
	if (err)
		return sgp_fail(err, "the queue pair's state: %s", strerror(err));
	if (attr.qp_state == IBV_QPS_RESET || !attr.port_num)
		return 0;
	ep->init.due = true;
	ep->init.port_num = attr.port_num;
	ep->init.pkey_index = attr.pkey_index;
	ep->init.access = attr.qp_access_flags;
	ep->init.qkey = attr.qkey;
	return 0;
}

static int modify(struct sgp_ep *ep, struct ibv_qp_attr attr, int mask)
{
	errno = 0;
	return sgp_provider_errno(ibv_modify_qp(ep->qp, &attr, mask));
}

static int to_init(struct sgp_ep *ep)
{
	const struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
					 .port_num = ep->init.port_num,
					 .pkey_index = ep->init.pkey_index,
					 .qp_access_flags = ep->init.access,
					 .qkey = ep->init.qkey};

	return modify(ep, attr,
		      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			      (ep->type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
}

/*
 * Both sides begin anew. Slots that wait in the pending list are free when they are polled; those of
 * receives that the library keeps stay, to be posted again, and belong to the new life from here on,
 * whatever becomes of that.
 */
static void renew_locked(struct sgp_ep *ep)
{
	struct sgp_side *recv = &ep->recv;

	sgp_lock(&ep->send.lock);
	sgp_lock(&recv->lock);
	sgp_cq_renew_locked(ep->cq, ep);
	ep->send.reaped = ep->send.head;
	ep->send.unsignalled = 0;
	for (uint32_t seq = recv->tail; ep->refill && seq != recv->head; seq++) {
		struct sgp_slot *slot = sgp_side_slot(recv, seq);

		if (atomic_load_explicit(&slot->tag, memory_order_relaxed) && !slot->ended)
			atomic_store_explicit(&slot->tag, recv->wr_base | seq,
					      memory_order_release);
	}
	sgp_unlock(&recv->lock);
	sgp_unlock(&ep->send.lock);
}

static int to_reset(struct sgp_ep *ep)
{
	const struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
	struct sgp_cq *cq = ep->cq;
	int err;

	sgp_served_hold();
	sgp_lock(&cq->lock);
	sgp_cq_keep_all_locked(cq);
	err = modify(ep, attr, IBV_QP_STATE);
	if (!err) {
		sgp_cq_keep_all_locked(cq);
		sgp_cq_flush_locked(cq, ep, !ep->refill);
		renew_locked(ep);
		if (ep->srq)
			sgp_srq_qp_reset_locked(ep);
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
	bool was_made;
	int err;

	if (sgp_check_fork())
		return -1;
	if (!ep || !ep->qp)
		return sgp_fail(EINVAL, "reset: an open endpoint is needed");
	if (ep->iwarp)
		return sgp_fail(EOPNOTSUPP, "an iWARP queue pair is not used again: close it");
	if (query(ep))
		return -1;
	was_made = ep->init.due;
	sgp_ep_stop_posts(ep);
	err = to_reset(ep);
	if (!err && was_made)
		err = to_init(ep);
	if (!err && was_made && ep->refill)
		err = receive_again(ep);
	if (err)
		return sgp_fail(err, "the queue pair cannot be reset: %s", strerror(err));
	ep->init.due = false;
	atomic_store(&ep->life, 0);
	if (was_made && ep->refill)
		sgp_refill_resume(ep->refill); /* a close that failed had stopped it */
	return 0;
}
