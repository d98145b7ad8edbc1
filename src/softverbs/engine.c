/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The wire. sw_run takes requests from a send queue, in order, and does each one wholly: checks the
 * local memory, finds the peer, checks the remote memory, moves the bytes, makes the completions.
 * A request that can't be done yet (no receive posted, no peer) stays at the front with a deadline;
 * it is tried again when the peer changes (sw_kick) and given up when its time is over (sw_due).
 *
 * If the peer is in another process a request that was sent is under way (from sq.una to sq.next)
 * till wire_send.c has the answer; completions come in the order of the queue all the same.
 *
 * An error's completion comes first, then its queue pair goes to the error state, which flushes the
 * rest (law 2.6).
 */
#include "softverbs/net.h"

static struct sw_list waiting = {&waiting, &waiting};

static enum ibv_wc_opcode wc_opcode(enum ibv_wr_opcode op)
{
	switch (op) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return IBV_WC_RDMA_WRITE;
	case IBV_WR_RDMA_READ:
		return IBV_WC_RDMA_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return IBV_WC_COMP_SWAP;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return IBV_WC_FETCH_ADD;
	case IBV_WR_LOCAL_INV:
		return IBV_WC_LOCAL_INV;
	case IBV_WR_BIND_MW:
		return IBV_WC_BIND_MW;
	default:
		return IBV_WC_SEND;
	}
}

void sw_complete_send(struct sw_qp *qp, uint32_t at, enum ibv_wc_status status, uint32_t byte_len)
{
	struct sw_swqe *w = &qp->swqe[at & qp->sq.mask];
	struct sw_cqe e;

	qp->sq.una = at + 1;
	if ((int32_t)(qp->sq.una - qp->sq.next) > 0)
		qp->sq.next = qp->sq.una;
	if (sw_early_slots(qp->dev))
		qp->sq.tail = at + 1;
	if (status == IBV_WC_SUCCESS && !qp->sig_all && !(w->flags & IBV_SEND_SIGNALED))
		return;
	e.wc = (struct ibv_wc){
		.wr_id = w->wr_id,
		.status = status,
		.opcode = wc_opcode(w->op),
		.byte_len = byte_len,
		.qp_num = qp->ibv.qp_base.qp_num,
	};
	if (status != IBV_WC_SUCCESS && qp->dev->p.garbage_opcode)
		e.wc.opcode = (enum ibv_wc_opcode)0x5a; /* law 2.11 */
	e.qp = qp;
	e.srq = NULL;
	e.upto = at + 1;
	e.side = SW_SEND;
	e.solicited = false;
	sw_cq_push(qp->scq, &e);
}

void sw_complete_recv(struct sw_qp *qp, struct ibv_wc *wc, uint32_t upto, bool solicited)
{
	struct sw_cqe e;

	if (sw_early_slots(qp->dev)) {
		if (qp->srq)
			qp->srq->unpolled--;
		else
			qp->rq.q.tail = upto;
	}
	wc->qp_num = qp->ibv.qp_base.qp_num;
	if (wc->status != IBV_WC_SUCCESS && qp->dev->p.garbage_opcode)
		wc->opcode = (enum ibv_wc_opcode)0x5a; /* law 2.11 */
	if (wc->status == IBV_WC_SUCCESS && qp->dev->p.recv_grh)
		wc->wc_flags |= IBV_WC_GRH;
	e.wc = *wc;
	e.qp = qp->xrcd ? NULL : qp; /* XRC: it belongs to the SRQ */
	e.srq = sw_early_slots(qp->dev) ? NULL : qp->srq;
	e.upto = upto;
	e.side = SW_RECV;
	e.solicited = solicited && !qp->dev->p.no_solicited;
	sw_cq_push(qp->rcq, &e);
}

/* ---- waiting ---- */

/* The channel that a sleeper may be waiting on learns when this is over. */
static void set_alarm(struct sw_channel *ch)
{
	uint64_t when = SW_NEVER;
	struct sw_list *l;

	if (!ch)
		return;
	sw_each (l, &waiting) {
		struct sw_qp *qp = sw_outer(l, struct sw_qp, waiting);

		if (qp->scq->ch == ch && qp->deadline < when)
			when = qp->deadline;
	}
	sw_pollq_at(&ch->q, when);
}

static void wait_start(struct sw_qp *qp, enum sw_wait kind, uint64_t ns)
{
	if (qp->wait == kind)
		return;
	sw_wait_stop(qp);
	qp->wait = kind;
	qp->deadline = ns == SW_NEVER ? SW_NEVER : sw_now() + ns;
	sw_list_append(&waiting, &qp->waiting);
	set_alarm(qp->scq->ch);
}

void sw_wait_stop(struct sw_qp *qp)
{
	if (!qp->wait)
		return;
	qp->wait = SW_WAIT_NO;
	sw_list_del(&qp->waiting);
	set_alarm(qp->scq->ch);
}

static struct sw_qp *first_due(uint64_t now)
{
	struct sw_qp *first = NULL;
	struct sw_list *l;

	sw_each (l, &waiting) {
		struct sw_qp *qp = sw_outer(l, struct sw_qp, waiting);

		if (qp->deadline <= now && (!first || qp->deadline < first->deadline))
			first = qp;
	}
	return first;
}

void sw_due(void)
{
	struct sw_qp *qp;
	uint64_t now;

	sw_cm_due();
	sw_late_due();
	if (sw_list_empty(&waiting))
		return;
	now = sw_now();
	while ((qp = first_due(now))) {
		enum ibv_wc_status status =
			qp->wait == SW_WAIT_RNR ? IBV_WC_RNR_RETRY_EXC_ERR : IBV_WC_RETRY_EXC_ERR;

		sw_wait_stop(qp);
		sw_complete_send(qp, qp->sq.una, status, 0);
		sw_qp_error(qp);
	}
}

/* InfiniBand specification, table 46: the RNR NAK timer field, in units of 10 us. */
static const uint16_t rnr_10us[32] = {
	65535, 1,    2,    3,    4,    6,     8,     12,    16,    24,    32,
	48,    64,   96,   128,  192,  256,   384,   512,   768,   1024,  1536,
	2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
};

static uint64_t rnr_time(const struct sw_qp *qp, uint8_t timer)
{
	if (qp->attr.rnr_retry == 7)
		return SW_NEVER; /* law 3: 7 is for ever */
	return (uint64_t)rnr_10us[timer & 31] * 10000u * qp->attr.rnr_retry;
}

static uint64_t peer_time(const struct sw_qp *qp)
{
	if (!qp->attr.timeout)
		return SW_NEVER;
	return (4096ull << qp->attr.timeout) * (qp->attr.retry_cnt + 1u);
}

void sw_wait_rnr(struct sw_qp *qp, uint8_t timer)
{
	wait_start(qp, SW_WAIT_RNR, rnr_time(qp, timer));
}

void sw_wait_forever(struct sw_qp *qp)
{
	wait_start(qp, SW_WAIT_PEER, SW_NEVER);
}

void sw_wait_peer(struct sw_qp *qp)
{
	wait_start(qp, SW_WAIT_PEER, peer_time(qp));
}

bool sw_link_up(const struct sw_qp *qp)
{
	return qp->dev->port[qp->attr.port_num].state == IBV_PORT_ACTIVE;
}

/* The queue pair at the other end, if it answers. */
struct sw_qp *sw_peer(const struct sw_qp *qp)
{
	struct sw_qp *peer = sw_qp_find(qp->dest, qp->attr.dest_qp_num);

	if (qp->remote || !peer || peer->dev->removed || peer->dest != qp->dev ||
	    peer->attr.dest_qp_num != qp->ibv.qp_base.qp_num || !sw_link_up(qp) ||
	    !sw_link_up(peer) ||
	    peer->ibv.qp_base.qp_type != (qp->ibv.qp_base.qp_type == IBV_QPT_XRC_SEND
						  ? IBV_QPT_XRC_RECV
						  : qp->ibv.qp_base.qp_type))
		return NULL;
	return peer->state == IBV_QPS_RTR || peer->state == IBV_QPS_RTS ||
			       peer->state == IBV_QPS_SQD
		       ? peer
		       : NULL;
}

/* ---- running ---- */

static int step(struct sw_qp *qp, uint32_t at, uint32_t *byte_len)
{
	if (qp->dev->p.null)
		return IBV_WC_SUCCESS;
	if (qp->ibv.qp_base.qp_type == IBV_QPT_UD)
		return sw_op_ud(qp, at);
	return sw_op(qp, at, byte_len);
}

/* One that has ended while others are under way keeps its completion till it's its turn. */
static bool keeps_order(struct sw_qp *qp, uint32_t at, int st)
{
	qp->stalled = st != IBV_WC_SUCCESS;
	if (qp->stalled)
		qp->sq.next--; /* it is tried again when the others are through */
	else
		qp->swqe[at & qp->sq.mask].done = true;
	return qp->stalled;
}

/* A fault strikes the request that is next, once. Returns whether it never arrives. */
static bool struck(struct sw_qp *qp)
{
	struct sw_swqe *w = &qp->swqe[qp->sq.next & qp->sq.mask];
	struct sw_strike s;

	if (qp->wait || qp->stalled)
		return false;
	s = SW_STRIKE(SW_MESSAGE);
	/* On UC a completion says nothing of the peer anyway. */
	if (s.action == SW_LATE && w->op == IBV_WR_RDMA_WRITE &&
	    qp->ibv.qp_base.qp_type == IBV_QPT_RC)
		w->late = s.arg < UINT32_MAX ? (uint32_t)s.arg : UINT32_MAX;
	return s.action == SW_KILL;
}

static void run(struct sw_qp *qp)
{
	while (qp->state == IBV_QPS_RTS && qp->sq.next != qp->sq.head) {
		bool killed = struck(qp);
		uint32_t at, byte_len = 0;
		int st;

		if (qp->state != IBV_QPS_RTS)
			return; /* the fault took the device away */
		if (killed && qp->sq.una != qp->sq.next) {
			sw_complete_send(qp, qp->sq.una, IBV_WC_RETRY_EXC_ERR, 0);
			sw_qp_error(qp);
			return;
		}
		at = qp->sq.next++;
		if (!qp->remote)
			qp->sq.una = qp->sq.next; /* it ends here, whatever ends with it */
		qp->stepping = !qp->remote;
		st = killed                            ? IBV_WC_RETRY_EXC_ERR
		     : qp->swqe[at & qp->sq.mask].done ? IBV_WC_SUCCESS
						       : step(qp, at, &byte_len);
		qp->stepping = false;

		if (st == SW_SENT) {
			qp->stalled = false;
			continue;
		}
		if (st == SW_WAITING) {
			qp->stalled = !qp->wait; /* a fault has had its chance */
			qp->sq.next--;
			if (!qp->remote)
				qp->sq.una = qp->sq.next;
			return;
		}
		if (qp->remote && qp->sq.una != at) {
			if (keeps_order(qp, at, st))
				return;
			continue;
		}
		if (qp->wait)
			sw_wait_stop(qp);
		qp->stalled = false;
		sw_complete_send(qp, at, (enum ibv_wc_status)st, byte_len);
		/* Or the step itself has ended it, and left the rest to be flushed here. */
		if (st != IBV_WC_SUCCESS || qp->broken || qp->state == IBV_QPS_ERR)
			sw_qp_error(qp);
	}
}

void sw_run(struct sw_qp *qp)
{
	run(qp);
	if (qp->tx)
		sw_wire_flush(qp);
}

void sw_kick(struct sw_qp *qp)
{
	struct sw_qp *peer =
		sw_list_empty(&waiting) ? NULL : sw_qp_find(qp->dest, qp->attr.dest_qp_num);

	if (qp->rx)
		sw_wire_kick(qp);
	if (peer && peer->wait && !peer->remote)
		sw_run(peer);
}

void sw_leave(struct sw_qp *qp)
{
	struct sw_qp *peer =
		sw_list_empty(&waiting) ? NULL : sw_qp_find(qp->dest, qp->attr.dest_qp_num);

	if (peer && peer != qp && peer->wait == SW_WAIT_RNR && !peer->remote)
		sw_run(peer);
}

/* The longest waiting sender that the SRQ's next receive is for. */
static struct sw_qp *next_sender(const struct sw_srq *srq)
{
	struct sw_list *l;

	sw_each (l, &waiting) {
		struct sw_qp *qp = sw_outer(l, struct sw_qp, waiting), *peer = sw_peer(qp);

		if (qp->state == IBV_QPS_RTS && peer && !qp->remote && peer->srq == srq)
			return qp;
	}
	return NULL;
}

void sw_kick_srq(struct sw_srq *srq)
{
	struct sw_qp *qp;

	while (srq->rq.q.next != srq->rq.q.head && (qp = next_sender(srq)))
		sw_run(qp);
	if (sw_net_open)
		sw_wire_kick_srq(srq);
}
