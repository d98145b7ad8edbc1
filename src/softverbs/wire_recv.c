/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The responder's end of a connection from a queue pair of another process: requests, one at a
 * time, each checked as ops.c checks those of this process.
 *
 *	      hello             a queue pair that answers
 *	accept ----> waiting_for ----> IDLE --request--> PAYLOAD --all of it--> IDLE
 *	                                |  ^\-- no receive --> STALLED --posted--^
 *	                                |   \-- READ, atomic --> REPLY (wire_reply.c) --> IDLE
 *	                                +-- the queue pair stops answering --> DRAIN, till the peer closes
 *	STALLED, and the peer closes --> SKIP: what it had sent is thrown away, to see whether it said BYE
 *
 * Payload goes into the memory it is meant for, which is checked anew for each piece that arrives. A
 * receive stays in its queue till its message is complete; only one of a shared queue is taken out
 * before, and given back as flushed if the message never comes to its end.
 */
#include <sys/epoll.h>

#include "softverbs/wire_recv.h"

#define BUDGET 64 /* steps, before others have their turn */

/* ---- the receive that a message gets ---- */

static bool takes_receive(const struct sw_req *r)
{
	return r->op == SW_REQ_SEND || r->op == SW_REQ_SEND_IMM || r->op == SW_REQ_SEND_INV ||
	       r->op == SW_REQ_WRITE_IMM;
}

static bool sends(const struct sw_req *r)
{
	return takes_receive(r) && r->op != SW_REQ_WRITE_IMM;
}

static bool claim(struct sw_rx *rx)
{
	struct sw_taken t;

	if (!rx->qp->srq || rx->took)
		return rx->took || sw_can_take(rx->qp);
	if (!sw_take(rx->qp, &t))
		return false;
	rx->took = true;
	rx->wqe = *t.wqe;
	memcpy(rx->sge, t.sge, t.wqe->num_sge * sizeof *t.sge);
	return true;
}

/* As sw_take, but an own queue's is only looked at. */
static void look(const struct sw_rx *rx, struct sw_taken *t)
{
	struct sw_qp *qp = rx->qp;
	uint32_t at = qp->rq.q.next & qp->rq.q.mask;

	if (rx->took)
		*t = (struct sw_taken){&rx->wqe, rx->sge, qp->srq->pd, 0};
	else
		*t = (struct sw_taken){&qp->rq.wqe[at], qp->rq.sge + (size_t)at * qp->rq.q.max_sge,
				       qp->pd, 0};
}

static void take(struct sw_rx *rx, struct sw_taken *t)
{
	look(rx, t);
	if (!rx->took)
		sw_take(rx->qp, t);
	rx->took = false;
}

/* The message doesn't come to its end, and the queue pair is in error, is about to be, or forgets. */
void sw_rx_give_back(struct sw_rx *rx, bool flushed)
{
	struct ibv_wc wc = {.status = IBV_WC_WR_FLUSH_ERR, .opcode = IBV_WC_RECV};

	if (!rx->took)
		return;
	rx->took = false;
	wc.wr_id = rx->wqe.wr_id;
	if (flushed)
		sw_complete_recv(rx->qp, &wc, 0, false);
	else
		rx->qp->srq->unpolled--; /* law 2.7: without a completion */
}

/* ---- ends ---- */

/* It isn't what a requester says: nothing it says is believed any more. */
static enum sw_io wrong(struct sw_rx *rx)
{
	struct sw_qp *qp = rx->qp;

	sw_rx_drop(rx);
	if (qp)
		sw_qp_error(qp);
	return SW_IO_END;
}

enum sw_io sw_rx_refuse(struct sw_rx *rx, enum ibv_wc_status status)
{
	struct sw_qp *qp = rx->qp;

	sw_rx_say(rx, SW_RSP_NAK, rx->req.seq, (uint8_t)status);
	sw_qp_error(qp);
	return SW_IO_AGAIN;
}

enum sw_io sw_rx_no_access(struct sw_rx *rx)
{
	sw_refusal(rx->qp, IBV_WC_REM_ACCESS_ERR, rx->req.rkey);
	return sw_rx_refuse(rx, IBV_WC_REM_ACCESS_ERR);
}

static enum sw_io refuse_request(struct sw_rx *rx)
{
	sw_refusal(rx->qp, IBV_WC_REM_INV_REQ_ERR, 0);
	return sw_rx_refuse(rx, IBV_WC_REM_INV_REQ_ERR);
}

/* The receive is no good: both are told, as in ops.c. */
static enum sw_io bad_receive(struct sw_rx *rx, enum ibv_wc_status st)
{
	struct sw_qp *qp = rx->qp;
	struct sw_taken t;

	if (qp->dev->p.siw_events && st == IBV_WC_LOC_LEN_ERR)
		sw_async_qp(qp, IBV_EVENT_QP_FATAL);
	sw_rx_say(rx, SW_RSP_NAK, rx->req.seq,
		  (uint8_t)(st == IBV_WC_LOC_LEN_ERR     ? qp->dev->p.wc_rem_len
			    : st == IBV_WC_LOC_QP_OP_ERR ? IBV_WC_REM_ACCESS_ERR
							 : qp->dev->p.wc_rem_op));
	take(rx, &t);
	sw_receive_failed(qp, &t, st);
	return SW_IO_AGAIN;
}

/* ---- requests ---- */

/* Where the payload goes; nothing has moved yet if it fails. */
static enum ibv_wc_status sink(struct sw_rx *rx, struct sw_piece *p, uint32_t *n)
{
	struct sw_req *r = &rx->req;
	enum ibv_wc_status st;
	struct sw_taken t;
	uint64_t room;

	*n = 0;
	if (!sends(r)) {
		p->n = r->len;
		*n = r->len != 0;
		return sw_remote(rx->qp, r->rkey, r->raddr, r->len, IBV_ACCESS_REMOTE_WRITE, &p->p)
			       ? IBV_WC_SUCCESS
			       : IBV_WC_REM_ACCESS_ERR;
	}
	look(rx, &t);
	st = sw_sges(rx->qp->dev, t.pd, t.sge, t.wqe->num_sge, IBV_ACCESS_LOCAL_WRITE, r->len, p, n,
		     &room);
	return st == IBV_WC_SUCCESS && room < r->len ? IBV_WC_LOC_LEN_ERR : st;
}

static enum sw_io done(struct sw_rx *rx)
{
	rx->state = SW_RX_IDLE;
	rx->ack = true;
	rx->upto = rx->req.seq;
	return SW_IO_OK;
}

/* The message is complete. */
static enum sw_io arrived(struct sw_rx *rx)
{
	struct sw_req *r = &rx->req;
	struct sw_qp *qp = rx->qp;
	struct ibv_wc wc = {.byte_len = r->len, .src_qp = qp->attr.dest_qp_num};
	struct sw_taken t;

	if (qp->late)
		sw_late_wait(qp, r->imm);
	if (!takes_receive(r))
		return done(rx);
	wc.opcode = sends(r) ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM;
	if (r->op == SW_REQ_SEND_INV) {
		if (!sw_mw_invalidate(qp, r->imm))
			return bad_receive(rx, IBV_WC_LOC_QP_OP_ERR);
		wc.wc_flags = qp->dev->p.inv_flag;
		wc.invalidated_rkey = r->imm;
	} else if (r->op != SW_REQ_SEND) {
		wc.wc_flags = IBV_WC_WITH_IMM;
		wc.imm_data = r->imm;
	}
	take(rx, &t);
	if (sw_strict_on && !qp->srq && sends(r))
		sw_strict_received(qp, t.upto - 1, r->len);
	wc.wr_id = t.wqe->wr_id;
	done(rx);
	sw_complete_recv(qp, &wc, t.upto, (r->flags & SW_REQ_SOLICITED) != 0);
	return rx->state == SW_RX_IDLE ? SW_IO_OK : SW_IO_AGAIN;
}

/* Of a payload that goes nowhere. */
static enum sw_io eat(struct sw_rx *rx)
{
	enum sw_io io = sw_in_need(rx->s.fd, &rx->in, 1);
	uint64_t left = rx->req.len - rx->done;
	uint32_t have = rx->in.end - rx->in.at;

	have = have < left ? have : (uint32_t)left;
	rx->in.at += have;
	rx->done += have;
	return io;
}

static enum sw_io lose(struct sw_rx *rx)
{
	enum sw_io io = SW_IO_OK;

	rx->lost = true;
	rx->state = SW_RX_PAYLOAD;
	if (rx->done < rx->req.len)
		io = eat(rx);
	return rx->done < rx->req.len ? io : done(rx);
}

static bool unreliable(const struct sw_rx *rx)
{
	return rx->qp->ibv.qp_base.qp_type == IBV_QPT_UC;
}

static enum sw_io payload(struct sw_rx *rx)
{
	struct sw_piece p[SW_MAX_SGE];
	enum ibv_wc_status st;
	enum sw_io io;
	uint64_t k;
	uint32_t n;

	if (rx->lost)
		return lose(rx);
	st = sink(rx, p, &n);
	if (st == IBV_WC_REM_ACCESS_ERR)
		return unreliable(rx) ? lose(rx) : sw_rx_no_access(rx);
	if (st != IBV_WC_SUCCESS)
		return bad_receive(rx, st);
	if (rx->qp->late)
		n = sw_late_pieces(rx->qp, p, rx->req.len);
	n = sw_skip(p, n, rx->done);
	io = sw_in_memory(rx->s.fd, &rx->in, p, n, &k);
	rx->done += k;
	return rx->done < rx->req.len ? io : arrived(rx);
}

/* The header is there. */
static enum sw_io begin(struct sw_rx *rx)
{
	struct sw_req *r = &rx->req;
	struct sw_qp *qp = rx->qp;

	if (rx->state != SW_RX_STALLED)
		rx->done = 0;
	rx->lost = false;
	if (takes_receive(r) && !claim(rx)) {
		if (unreliable(rx))
			return lose(rx);
		if (qp->dev->p.no_rnr)
			return sw_rx_refuse(rx, IBV_WC_REM_OP_ERR); /* law 3 */
		if (rx->state != SW_RX_STALLED)
			sw_rx_say(rx, SW_RSP_RNR, r->seq, qp->attr.min_rnr_timer & 31);
		rx->state = SW_RX_STALLED;
		return SW_IO_AGAIN;
	}
	if (r->flags & SW_REQ_LATE) {
		struct sw_piece p[2];

		sw_late_begin(qp, r->rkey, r->raddr, r->len, p);
	}
	rx->state = SW_RX_PAYLOAD;
	return payload(rx);
}

static bool sane(const struct sw_rx *rx, const struct sw_req *r)
{
	if (!r->op || r->op >= SW_REQ_OPS || r->zero ||
	    r->flags & ~(SW_REQ_SOLICITED | SW_REQ_LATE) ||
	    (r->flags & SW_REQ_LATE && r->op != SW_REQ_WRITE))
		return false;
	if (r->op == SW_REQ_BYE)
		return true;
	if (r->srqn && !rx->qp->xrcd)
		return false;
	if ((r->op == SW_REQ_CMP_SWAP || r->op == SW_REQ_FETCH_ADD) && r->len != sizeof(uint64_t))
		return false;
	/* Requests of the peer's own have numbers too, so some may be missing. */
	return r->len <= rx->qp->dev->p.max_msg && (!rx->begun || (int32_t)(r->seq - rx->last) > 0);
}

static enum sw_io request(struct sw_rx *rx)
{
	struct sw_req *r = &rx->req;
	struct sw_qp *qp = rx->qp;
	enum sw_io io;

	/* What comes later, an end too, is an event of its own. */
	if (rx->in.dry && rx->in.end - rx->in.at < sizeof *r)
		return SW_IO_AGAIN;
	io = sw_in_need(rx->s.fd, &rx->in, sizeof *r);
	if (io != SW_IO_OK)
		return io;
	memcpy(r, sw_in_take(&rx->in, sizeof *r), sizeof *r);
	if (!sane(rx, r))
		return wrong(rx);
	rx->begun = true;
	if (qp->late) { /* which may end it */
		sw_late_place(qp);
		if (rx->qp != qp)
			return SW_IO_AGAIN;
	}
	if (r->op == SW_REQ_BYE) {
		sw_rx_drop(rx);
		return SW_IO_END;
	}
	if (qp->xrcd && !sw_xrc_target(qp, r->srqn)) {
		rx->last = r->seq;
		return refuse_request(rx);
	}
	switch (r->op) {
	case SW_REQ_READ:
	case SW_REQ_CMP_SWAP:
	case SW_REQ_FETCH_ADD:
		rx->last = r->seq;
		if (!qp->attr.max_dest_rd_atomic ||
		    (r->op != SW_REQ_READ && (qp->dev->p.no_atomic || r->raddr % 8)))
			return refuse_request(rx);
		return sw_rx_reply(rx);
	case SW_REQ_SEND_INV:
		if (!qp->dev->p.attr.max_mw)
			return refuse_request(rx);
		break;
	case SW_REQ_SEND_IMM:
	case SW_REQ_WRITE_IMM:
		if (qp->dev->p.no_imm)
			return refuse_request(rx);
		break;
	default:
		break;
	}
	rx->last = r->seq;
	return begin(rx);
}

static enum sw_io discard(struct sw_rx *rx)
{
	rx->in.at = rx->in.end = 0;
	return sw_in_need(rx->s.fd, &rx->in, 1);
}

static enum sw_io skip(struct sw_rx *rx)
{
	bool carries =
		sends(&rx->req) || rx->req.op == SW_REQ_WRITE || rx->req.op == SW_REQ_WRITE_IMM;
	enum sw_io io;

	if (carries && rx->done < rx->req.len)
		return eat(rx);
	io = sw_in_need(rx->s.fd, &rx->in, sizeof rx->req);
	if (io != SW_IO_OK)
		return io;
	memcpy(&rx->req, sw_in_take(&rx->in, sizeof rx->req), sizeof rx->req);
	rx->done = 0;
	if (!sane(rx, &rx->req))
		return wrong(rx);
	rx->last = rx->req.seq;
	if (rx->req.op != SW_REQ_BYE)
		return SW_IO_OK;
	sw_rx_drop(rx);
	return SW_IO_AGAIN;
}

static enum sw_io step(struct sw_rx *rx)
{
	switch (rx->state) {
	case SW_RX_IDLE:
		/* Requests that have been read already make no event of their own. */
		if (!sw_rx_can_say(rx) && sw_rx_flush(rx) == SW_IO_END)
			return SW_IO_END;
		return sw_rx_can_say(rx) ? request(rx) : SW_IO_AGAIN;
	case SW_RX_PAYLOAD:
		return payload(rx);
	case SW_RX_STALLED:
		return begin(rx);
	case SW_RX_REPLY:
		return sw_rx_more(rx);
	case SW_RX_SKIP:
		return skip(rx);
	case SW_RX_DRAIN:
		return discard(rx);
	default:
		return SW_IO_AGAIN;
	}
}

uint32_t sw_rx_wants(const struct sw_rx *rx, bool more)
{
	uint32_t in = rx->state == SW_RX_STALLED ? EPOLLRDHUP
		      : rx->state == SW_RX_REPLY || (rx->state == SW_RX_IDLE && !sw_rx_can_say(rx))
			      ? 0
			      : EPOLLIN;

	/* A socket that takes bytes is reported at once, so it asks for another turn. */
	return in | (more || rx->state == SW_RX_REPLY || rx->out.at != rx->out.end ? EPOLLOUT : 0);
}

bool sw_rx_work(struct sw_rx *rx)
{
	enum sw_io io = SW_IO_OK;
	struct sw_qp *qp;

	rx->in.dry = false;
	for (int n = 0; n < BUDGET && io == SW_IO_OK && sw_rx_alive(rx); n++)
		io = step(rx);
	if (!sw_rx_alive(rx))
		return false;
	if (io != SW_IO_END && sw_rx_flush(rx) == SW_IO_END)
		io = SW_IO_END;
	if (io != SW_IO_END) {
		sw_sock_want(&rx->s, sw_rx_wants(rx, io == SW_IO_OK));
		return io == SW_IO_OK;
	}
	/* The peer has gone without a word. */
	qp = rx->qp;
	sw_rx_drop(rx);
	if (qp)
		sw_wire_died(qp);
	return false;
}
