/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The wire. sw_run takes requests from a send queue, in order, and does each one wholly: checks the
 * local memory, finds the peer, checks the remote memory, moves the bytes, makes the completions.
 * A request that can't be done yet (no receive posted, no peer) stays at the front with a deadline;
 * it is tried again when the peer changes (sw_kick) and given up when its time is over (sw_due).
 *
 * An error's completion comes first, then its queue pair goes to the error state, which flushes the
 * rest (law 2.6).
 */
#include "softverbs/sw.h"

#define SW_MAX_SGE 256
#define SW_WAITING 0x10000 /* not a status: try again later */

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

	if (qp->dev->p.early_slots)
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
		e.wc.opcode = 0x5a; /* law 2.11 */
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

	if (qp->dev->p.early_slots) {
		if (qp->srq)
			qp->srq->unpolled--;
		else
			qp->rq.q.tail = upto;
	}
	wc->qp_num = qp->ibv.qp_base.qp_num;
	if (wc->status != IBV_WC_SUCCESS && qp->dev->p.garbage_opcode)
		wc->opcode = 0x5a; /* law 2.11 */
	e.wc = *wc;
	e.qp = qp;
	e.srq = qp->dev->p.early_slots ? NULL : qp->srq;
	e.upto = upto;
	e.side = SW_RECV;
	e.solicited = solicited;
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
	sw_each(l, &waiting)
	{
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

	sw_each(l, &waiting)
	{
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

	if (sw_list_empty(&waiting))
		return;
	now = sw_now();
	while ((qp = first_due(now))) {
		enum ibv_wc_status status =
			qp->wait == SW_WAIT_RNR ? IBV_WC_RNR_RETRY_EXC_ERR : IBV_WC_RETRY_EXC_ERR;

		sw_wait_stop(qp);
		sw_complete_send(qp, qp->sq.next++, status, 0);
		sw_qp_error(qp);
	}
}

/* InfiniBand specification, table 46: the RNR NAK timer field, in units of 10 us. */
static const uint16_t rnr_10us[32] = {
	65535, 1,    2,    3,    4,    6,     8,     12,    16,    24,    32,
	48,    64,   96,   128,  192,  256,   384,   512,   768,   1024,  1536,
	2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
};

static uint64_t rnr_time(const struct sw_qp *qp, const struct sw_qp *peer)
{
	if (qp->attr.rnr_retry == 7)
		return SW_NEVER; /* law 3: 7 is for ever */
	return (uint64_t)rnr_10us[peer->attr.min_rnr_timer & 31] * 10000u * qp->attr.rnr_retry;
}

static uint64_t peer_time(const struct sw_qp *qp)
{
	if (!qp->attr.timeout)
		return SW_NEVER;
	return (4096ull << qp->attr.timeout) * (qp->attr.retry_cnt + 1u);
}

/* ---- moving bytes ---- */

static void copy(struct sw_piece *dst, const struct sw_piece *src, uint32_t nsrc)
{
	for (uint32_t i = 0; i < nsrc; i++) {
		const uint8_t *from = src[i].p;
		uint32_t left = src[i].n;

		while (left) {
			uint32_t n = left < dst->n ? left : dst->n;

			memmove(dst->p, from, n);
			from += n;
			left -= n;
			dst->p += n;
			dst->n -= n;
			if (!dst->n)
				dst++;
		}
	}
}

/* The local memory of a request, for reading. */
static enum ibv_wc_status gather(struct sw_qp *qp, uint32_t at, struct sw_piece *out, uint32_t *n)
{
	struct sw_swqe *w = &qp->swqe[at & qp->sq.mask];
	uint64_t len;

	if (w->inl) {
		out->p = qp->inl + (size_t)(at & qp->sq.mask) * qp->cap.max_inline_data;
		out->n = w->len;
		*n = w->len != 0;
		return IBV_WC_SUCCESS;
	}
	return sw_sges(qp->dev, qp->pd, qp->ssge + (size_t)(at & qp->sq.mask) * qp->sq.max_sge,
		       w->num_sge, 0, UINT64_MAX, out, n, &len);
}

/* The queue pair at the other end, if it answers. */
static struct sw_qp *peer_of(const struct sw_qp *qp)
{
	struct sw_qp *peer = sw_qp_find(qp->dest, qp->attr.dest_qp_num);

	if (!peer || peer->dev->removed || peer->dest != qp->dev ||
	    peer->attr.dest_qp_num != qp->ibv.qp_base.qp_num ||
	    peer->ibv.qp_base.qp_type != qp->ibv.qp_base.qp_type)
		return NULL;
	return peer->state == IBV_QPS_RTR || peer->state == IBV_QPS_RTS ||
			       peer->state == IBV_QPS_SQD
		       ? peer
		       : NULL;
}

/* ---- receiving ---- */

/* A receive taken from the peer's queue, or from its SRQ. */
struct taken {
	const struct sw_rwqe *wqe;
	const struct ibv_sge *sge;
	struct sw_pd *pd;
	uint32_t upto;
};

static bool take(struct sw_qp *peer, struct taken *t)
{
	struct sw_rq *rq = peer->srq ? &peer->srq->rq : &peer->rq;
	uint32_t at = rq->q.next & rq->q.mask;

	if (rq->q.next == rq->q.head)
		return false;
	t->wqe = &rq->wqe[at];
	t->sge = rq->sge + (size_t)at * rq->q.max_sge;
	t->pd = peer->srq ? peer->srq->pd : peer->pd;
	t->upto = ++rq->q.next;
	if (peer->srq)
		sw_srq_taken(peer->srq);
	return true;
}

/* The receive that came in last fails, and its queue pair with it. */
static void fail_recv(struct sw_qp *peer, const struct taken *t, enum ibv_wc_status status)
{
	struct ibv_wc wc = {.wr_id = t->wqe->wr_id, .status = status, .opcode = IBV_WC_RECV};

	sw_complete_recv(peer, &wc, t->upto, false);
	sw_qp_error(peer);
}

static int do_send(struct sw_qp *qp, uint32_t at)
{
	struct sw_swqe *w = &qp->swqe[at & qp->sq.mask];
	struct sw_piece src[SW_MAX_SGE], dst[SW_MAX_SGE];
	uint32_t nsrc, ndst;
	enum ibv_wc_status st;
	struct sw_qp *peer;
	struct taken t;
	uint64_t len;

	st = gather(qp, at, src, &nsrc);
	if (st != IBV_WC_SUCCESS)
		return st;
	peer = peer_of(qp);
	if (!peer) {
		wait_start(qp, SW_WAIT_PEER, peer_time(qp));
		return SW_WAITING;
	}
	if (!take(peer, &t)) {
		wait_start(qp, SW_WAIT_RNR, rnr_time(qp, peer));
		return SW_WAITING;
	}
	st = sw_sges(peer->dev, t.pd, t.sge, t.wqe->num_sge, IBV_ACCESS_LOCAL_WRITE, w->len, dst,
		     &ndst, &len);
	if (st != IBV_WC_SUCCESS) {
		fail_recv(peer, &t, st);
		return IBV_WC_REM_OP_ERR;
	}
	if (len < w->len) {
		/* Law 3: too small a receive kills both. */
		fail_recv(peer, &t, IBV_WC_LOC_LEN_ERR);
		return IBV_WC_REM_INV_REQ_ERR;
	}
	copy(dst, src, nsrc);

	struct ibv_wc wc = {
		.wr_id = t.wqe->wr_id,
		.status = IBV_WC_SUCCESS,
		.opcode = IBV_WC_RECV,
		.byte_len = w->len,
		.src_qp = qp->ibv.qp_base.qp_num,
	};
	if (w->op == IBV_WR_SEND_WITH_IMM) {
		wc.wc_flags = IBV_WC_WITH_IMM;
		wc.imm_data = w->imm;
	}
	sw_complete_recv(peer, &wc, t.upto, (w->flags & IBV_SEND_SOLICITED) != 0);
	return IBV_WC_SUCCESS;
}

/* ---- running ---- */

static int step(struct sw_qp *qp, uint32_t at, uint32_t *byte_len)
{
	*byte_len = 0;
	if (qp->dev->p.null)
		return IBV_WC_SUCCESS;
	switch (qp->swqe[at & qp->sq.mask].op) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		return do_send(qp, at);
	default:
		return IBV_WC_LOC_QP_OP_ERR;
	}
}

void sw_run(struct sw_qp *qp)
{
	while (qp->state == IBV_QPS_RTS && qp->sq.next != qp->sq.head) {
		uint32_t at = qp->sq.next++, byte_len;
		int st = step(qp, at, &byte_len);

		if (st == SW_WAITING) {
			qp->sq.next--;
			return;
		}
		if (qp->wait)
			sw_wait_stop(qp);
		sw_complete_send(qp, at, (enum ibv_wc_status)st, byte_len);
		if (st != IBV_WC_SUCCESS)
			sw_qp_error(qp);
	}
}

void sw_kick(struct sw_qp *qp)
{
	struct sw_qp *peer =
		sw_list_empty(&waiting) ? NULL : sw_qp_find(qp->dest, qp->attr.dest_qp_num);

	if (peer && peer->wait)
		sw_run(peer);
}

/* The longest waiting sender that the SRQ's next receive is for. */
static struct sw_qp *next_sender(const struct sw_srq *srq)
{
	struct sw_list *l;

	sw_each(l, &waiting)
	{
		struct sw_qp *qp = sw_outer(l, struct sw_qp, waiting), *peer = peer_of(qp);

		if (qp->state == IBV_QPS_RTS && peer && peer->srq == srq)
			return qp;
	}
	return NULL;
}

void sw_kick_srq(struct sw_srq *srq)
{
	struct sw_qp *qp;

	while (srq->rq.q.next != srq->rq.q.head && (qp = next_sender(srq)))
		sw_run(qp);
}
