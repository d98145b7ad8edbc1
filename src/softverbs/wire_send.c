/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The requester's end of a connection to a queue pair of another process.
 *
 *	tail        una             next          head
 *	  |          |               |             |
 *	  v          v               v             v
 *	[ polled?   ][ under way: no ][ to be sent ] free ...
 *	             [ answer yet    ]
 *
 * A request is written from the memory it names, checked anew each time the socket has room, since
 * a region may go between. Short ones are copied, and go out together when sw_run has done what it
 * can. Answers come in the order of the requests. What fails here waits in sw_run till all before it
 * have their answers. When the responder's queue pair is gone, what has no answer goes back to the
 * queue and waits for a peer, as if it had been lost.
 */
#include <sys/epoll.h>
#include <unistd.h>

#include "softverbs/net.h"

struct sw_tx {
	struct sw_sock s;
	struct sw_qp *qp;
	bool up;   /* the responder has said READY */
	bool part; /* the request in slot `at` is not yet written wholly */
	uint32_t at;
	uint64_t sent; /* of it, header included */
	struct sw_req req;
	uint64_t got;         /* of what the first request under way reads */
	uint32_t left;        /* of the DATA that is coming in */
	struct sw_outbuf out; /* goes before the request in slot `at` */
	struct sw_inbuf in;
};

#define SHORT 1024u /* bytes of a request that is copied, header included */

static struct sw_swqe *slot(const struct sw_qp *qp, uint32_t at)
{
	return &qp->swqe[at & qp->sq.mask];
}

static bool alive(const struct sw_tx *tx)
{
	return tx->s.fd >= 0;
}

static void drop(struct sw_tx *tx)
{
	tx->qp->tx = NULL;
	sw_net_open--;
	sw_sock_close(&tx->s);
}

void sw_wire_tx_close(struct sw_qp *qp)
{
	struct sw_req bye = {.op = SW_REQ_BYE};
	struct sw_tx *tx = qp->tx;

	if (!tx || !alive(tx))
		return;
	if (!tx->part && sw_out_room(&tx->out, sizeof bye)) {
		sw_out_put(&tx->out, &bye, sizeof bye);
		sw_out_flush(tx->s.fd, &tx->out);
	}
	drop(tx);
}

/* ---- requests ---- */

static enum sw_req_op req_op(enum ibv_wr_opcode op)
{
	switch (op) {
	case IBV_WR_SEND_WITH_IMM:
		return SW_REQ_SEND_IMM;
	case IBV_WR_SEND_WITH_INV:
		return SW_REQ_SEND_INV;
	case IBV_WR_RDMA_WRITE:
		return SW_REQ_WRITE;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return SW_REQ_WRITE_IMM;
	case IBV_WR_RDMA_READ:
		return SW_REQ_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return SW_REQ_CMP_SWAP;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return SW_REQ_FETCH_ADD;
	default:
		return SW_REQ_SEND;
	}
}

/* Its answer is data. A READ of nothing is acknowledged like any other request. */
static bool reads(const struct sw_swqe *w)
{
	return sw_reads(w->op) && w->len;
}

static bool takes_receive(const struct sw_swqe *w)
{
	return w->op == IBV_WR_SEND || w->op == IBV_WR_SEND_WITH_IMM ||
	       w->op == IBV_WR_SEND_WITH_INV || w->op == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/* What is unwritten of the request, from the memory. Called till it is through. */
static enum sw_io push(struct sw_tx *tx, const struct sw_piece *local, uint32_t n)
{
	struct sw_piece p[SW_MAX_SGE];
	uint64_t total = sizeof tx->req, k;
	const uint8_t *head = (const uint8_t *)&tx->req;
	uint32_t hn = tx->sent < sizeof tx->req ? (uint32_t)(sizeof tx->req - tx->sent) : 0;
	enum sw_io io;

	if (sw_reads(slot(tx->qp, tx->at)->op))
		n = 0;
	memcpy(p, local, n * sizeof *p);
	for (uint32_t i = 0; i < n; i++)
		total += p[i].n;
	if (!hn)
		n = sw_skip(p, n, tx->sent - sizeof tx->req);
	io = sw_out_memory(tx->s.fd, head + sizeof tx->req - hn, hn, p, n, &k);
	tx->sent += k;
	tx->part = tx->sent < total;
	return io;
}

/* Copies a short request to be sent with others; false: it is too long, or there is no room. */
static bool gather(struct sw_tx *tx, const struct sw_piece *local, uint32_t n)
{
	uint64_t total = sizeof tx->req;

	if (sw_reads(slot(tx->qp, tx->at)->op))
		n = 0;
	for (uint32_t i = 0; i < n; i++)
		total += local[i].n;
	if (total > SHORT)
		return false;
	if (!sw_out_room(&tx->out, (uint32_t)total) &&
	    (sw_out_flush(tx->s.fd, &tx->out), !sw_out_room(&tx->out, (uint32_t)total)))
		return false;
	sw_out_put(&tx->out, &tx->req, sizeof tx->req);
	for (uint32_t i = 0; i < n; i++)
		sw_out_put(&tx->out, local[i].p, local[i].n);
	return true;
}

void sw_wire_flush(struct sw_qp *qp)
{
	struct sw_tx *tx = qp->tx;

	if (tx && alive(tx) && tx->out.at != tx->out.end &&
	    sw_out_flush(tx->s.fd, &tx->out) == SW_IO_AGAIN)
		sw_sock_want(&tx->s, EPOLLIN | EPOLLOUT);
}

/* The request in slot `at` fails at this end, and with it the queue pair. */
static void fail(struct sw_qp *qp, uint32_t at, enum ibv_wc_status status)
{
	while (qp->sq.una != at)
		sw_complete_send(qp, qp->sq.una, IBV_WC_WR_FLUSH_ERR, 0);
	sw_complete_send(qp, at, status, 0);
	sw_qp_error(qp);
}

/* The socket has room again. */
static void go_on(struct sw_tx *tx)
{
	struct sw_piece p[SW_MAX_SGE];
	struct sw_qp *qp = tx->qp;
	enum ibv_wc_status st;
	enum sw_io io;
	uint32_t n = 0;

	io = sw_out_flush(tx->s.fd, &tx->out);
	if (io == SW_IO_OK && tx->part) {
		st = sw_gather(qp, tx->at, p, &n);
		if (st != IBV_WC_SUCCESS) {
			fail(qp, tx->at, sw_local_status(qp, st));
			return;
		}
		io = push(tx, p, n);
	}
	if (io == SW_IO_AGAIN)
		return;
	sw_sock_want(&tx->s, EPOLLIN);
	/* An end is seen by who reads, after what has arrived. */
	if (io == SW_IO_OK && tx->up)
		sw_run(qp);
}

static const union ibv_gid *gid_of(const struct sw_qp *qp)
{
	return qp->attr.ah_attr.is_global ? &qp->attr.ah_attr.grh.dgid : NULL;
}

static void on_event(struct sw_sock *s, uint32_t events);

static struct sw_tx *open_tx(struct sw_qp *qp)
{
	int fd = sw_net_to_qpn(gid_of(qp), qp->attr.dest_qp_num);
	struct sw_tx *tx = fd < 0 ? NULL : calloc(1, sizeof *tx);
	struct sw_hello h;

	if (!tx) {
		if (fd >= 0)
			close(fd);
		return NULL;
	}
	if (sw_sock_add(&tx->s, fd, EPOLLIN | EPOLLOUT, on_event)) {
		free(tx);
		return NULL;
	}
	sw_net_open++;
	tx->qp = qp;
	qp->tx = tx;
	sw_hello_fill(&h, SW_KIND_RC, qp->dev->p.transport == IBV_TRANSPORT_IWARP,
		      qp->ibv.qp_base.qp_num, qp->attr.dest_qp_num);
	sw_out_put(&tx->out, &h, sizeof h);
	if (sw_out_flush(fd, &tx->out) == SW_IO_OK)
		sw_sock_want(&tx->s, EPOLLIN);
	return tx;
}

int sw_wire_send(struct sw_qp *qp, uint32_t at, const struct sw_piece *local, uint32_t n,
		 uint64_t len)
{
	struct sw_tx *tx = qp->tx ? qp->tx : open_tx(qp);
	struct sw_swqe *w = slot(qp, at);
	enum sw_io io;

	if (!tx && qp->ibv.qp_base.qp_type == IBV_QPT_UC)
		return IBV_WC_SUCCESS; /* nobody is there, and nobody is told */
	if (!tx || !alive(tx) || !tx->up || !sw_link_up(qp)) {
		sw_wait_peer(qp);
		return SW_WAITING;
	}
	if (qp->wait == SW_WAIT_PEER)
		sw_wait_stop(qp);
	if (tx->part || (w->flags & IBV_SEND_FENCE && qp->sq.una != at))
		return SW_WAITING; /* till the socket has room; till the READs before it are through */
	w->len = (uint32_t)len;
	tx->req = (struct sw_req){
		.op = (uint8_t)req_op(w->op),
		.flags = (uint8_t)((w->flags & IBV_SEND_SOLICITED ? SW_REQ_SOLICITED : 0) |
				   (w->late ? SW_REQ_LATE : 0)),
		.seq = at,
		.len = w->len,
		.imm = w->late ? w->late : w->imm,
		.rkey = w->rkey,
		.srqn = w->srqn,
		.raddr = w->raddr,
	};
	if (sw_reads(w->op) && w->op != IBV_WR_RDMA_READ) {
		tx->req.compare_add = w->atomic.compare_add;
		tx->req.swap = w->atomic.swap;
	}
	tx->at = at;
	tx->sent = 0;
	if (gather(tx, local, n))
		return SW_SENT;
	tx->part = true;
	io = sw_out_flush(tx->s.fd, &tx->out);
	if (io == SW_IO_OK)
		io = push(tx, local, n);
	if (io == SW_IO_AGAIN)
		sw_sock_want(&tx->s, EPOLLIN | EPOLLOUT);
	return SW_SENT;
}

/* ---- answers ---- */

/* It isn't what a responder says: nothing it says is believed any more. */
static enum sw_io wrong(struct sw_tx *tx)
{
	struct sw_qp *qp = tx->qp;

	drop(tx);
	sw_wire_died(qp);
	return SW_IO_END;
}

/* All before seq have succeeded; false: one of them can't have. */
static bool through(struct sw_tx *tx, uint32_t seq)
{
	struct sw_qp *qp = tx->qp;

	while (alive(tx) && qp->sq.una != seq) {
		if (reads(slot(qp, qp->sq.una)) && !slot(qp, qp->sq.una)->done)
			return false;
		sw_complete_send(qp, qp->sq.una, IBV_WC_SUCCESS, 0);
	}
	/* Those of this end's own that stood behind it. */
	while (alive(tx) && qp->sq.una != qp->sq.next && slot(qp, qp->sq.una)->done)
		sw_complete_send(qp, qp->sq.una, IBV_WC_SUCCESS, 0);
	if (qp->wait == SW_WAIT_RNR)
		sw_wait_stop(qp);
	return true;
}

static enum sw_io nak(struct sw_tx *tx, uint32_t seq, uint8_t status)
{
	struct sw_qp *qp = tx->qp;
	bool iwarp = qp->dev->p.transport == IBV_TRANSPORT_IWARP;

	if (!iwarp && status != IBV_WC_REM_ACCESS_ERR && status != IBV_WC_REM_INV_REQ_ERR &&
	    status != IBV_WC_REM_OP_ERR)
		return wrong(tx);
	/* On iWARP it had been sent, and that was all that was wanted: law 2.3. */
	sw_complete_send(qp, seq, iwarp ? IBV_WC_SUCCESS : (enum ibv_wc_status)status, 0);
	sw_qp_error(qp);
	return SW_IO_END;
}

/* What was under way waits for another connection. */
static enum sw_io gone(struct sw_tx *tx)
{
	struct sw_qp *qp = tx->qp;

	drop(tx);
	sw_wait_stop(qp);
	qp->sq.next = qp->sq.una;
	if (qp->state == IBV_QPS_RTS)
		sw_run(qp);
	return SW_IO_END;
}

static enum sw_io about_request(struct sw_tx *tx, const struct sw_rsp *r)
{
	struct sw_qp *qp = tx->qp;
	struct sw_swqe *w = slot(qp, r->seq);
	bool part = tx->part && tx->at == r->seq;

	if (r->seq - qp->sq.una >= qp->sq.next - qp->sq.una || w->done || !through(tx, r->seq))
		return wrong(tx);
	if (!alive(tx))
		return SW_IO_END;
	switch (r->kind) {
	case SW_RSP_ACK:
		if (part || reads(w) || !through(tx, r->seq + 1))
			return wrong(tx);
		return SW_IO_OK;
	case SW_RSP_NAK:
		return nak(tx, r->seq, r->status);
	case SW_RSP_RNR:
		if (!takes_receive(w) || r->status > 31)
			return wrong(tx);
		sw_wait_rnr(qp, r->status);
		return SW_IO_OK;
	case SW_RSP_DATA:
		if (part || !reads(w) || !r->len || r->len > w->len - tx->got)
			return wrong(tx);
		tx->left = r->len;
		return SW_IO_OK;
	default:
		return wrong(tx);
	}
}

static enum sw_io frame(struct sw_tx *tx)
{
	struct sw_rsp r;
	enum sw_io io;

	/* What comes later, an end too, is an event of its own. */
	if (tx->in.dry && tx->in.end - tx->in.at < sizeof r)
		return SW_IO_AGAIN;
	io = sw_in_need(tx->s.fd, &tx->in, sizeof r);
	if (io != SW_IO_OK)
		return io;
	memcpy(&r, sw_in_take(&tx->in, sizeof r), sizeof r);
	if (r.zero || (r.kind != SW_RSP_DATA && r.len) ||
	    (r.kind != SW_RSP_NAK && r.kind != SW_RSP_RNR && r.status))
		return wrong(tx);
	if (r.kind == SW_RSP_GONE)
		return gone(tx);
	if (r.kind != SW_RSP_READY)
		return about_request(tx, &r);
	if (tx->up)
		return wrong(tx);
	tx->up = true;
	return SW_IO_OK;
}

/* Some of what the first request under way reads. */
static enum sw_io data(struct sw_tx *tx)
{
	struct sw_piece p[SW_MAX_SGE];
	struct sw_qp *qp = tx->qp;
	enum ibv_wc_status st;
	uint64_t len, k;
	enum sw_io io;
	uint32_t n, at = qp->sq.una;

	st = sw_sink(qp, at, p, &n, &len);
	if (st != IBV_WC_SUCCESS || len != slot(qp, at)->len) {
		fail(qp, at, IBV_WC_LOC_PROT_ERR);
		return SW_IO_END;
	}
	n = sw_cut(p, sw_skip(p, n, tx->got), tx->left);
	io = sw_in_memory(tx->s.fd, &tx->in, p, n, &k);
	tx->got += k;
	tx->left -= (uint32_t)k;
	if (tx->left)
		return io;
	if (tx->got == len) {
		tx->got = 0;
		sw_complete_send(qp, at, IBV_WC_SUCCESS, (uint32_t)len);
		if (alive(tx))
			through(tx, qp->sq.una);
	}
	return alive(tx) ? SW_IO_OK : SW_IO_END;
}

/* Takes in what answers there are. */
static void listen_to(struct sw_tx *tx)
{
	struct sw_qp *qp = tx->qp;
	enum sw_io io;

	tx->in.dry = false;
	do
		io = tx->left ? data(tx) : frame(tx);
	while (io == SW_IO_OK && alive(tx));
	if (!alive(tx))
		return;
	if (io == SW_IO_END) {
		drop(tx);
		sw_wire_died(qp);
	} else if (tx->up) {
		sw_run(qp);
	}
}

static void on_event(struct sw_sock *s, uint32_t events)
{
	struct sw_tx *tx = sw_outer(s, struct sw_tx, s);

	if (events & EPOLLOUT)
		go_on(tx);
	if (alive(tx) && events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		listen_to(tx);
}

void sw_wire_drain(struct sw_qp *qp)
{
	if (qp->tx && alive(qp->tx))
		listen_to(qp->tx);
	sw_wire_rx_drain(qp);
}

/* ---- the queue pair ---- */

void sw_wire_state(struct sw_qp *qp)
{
	if (qp->ibv.qp_base.qp_type == IBV_QPT_UD || (!qp->remote && !qp->tx && !qp->rx))
		return;
	if (qp->state == IBV_QPS_ERR || qp->dev->removed)
		sw_wire_tx_close(qp);
	else if (qp->state == IBV_QPS_RTS && !qp->tx && !qp->xrcd)
		open_tx(qp);
	sw_wire_rx_state(qp);
}

void sw_wire_forget(struct sw_qp *qp)
{
	sw_list_del(&qp->busy);
	sw_wire_tx_close(qp);
	sw_wire_rx_end(qp);
}

void sw_wire_died(struct sw_qp *qp)
{
	if (qp->state != IBV_QPS_RTR && qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_SQD)
		return;
	/* What it had sent before has arrived. */
	sw_wire_drain(qp);
	if (qp->state == IBV_QPS_ERR)
		return;
	if (qp->sq.una != qp->sq.head && qp->state != IBV_QPS_RTR &&
	    qp->dev->p.transport != IBV_TRANSPORT_IWARP)
		sw_complete_send(qp, qp->sq.una, IBV_WC_RETRY_EXC_ERR, 0);
	if (qp->state != IBV_QPS_ERR)
		sw_qp_error(qp);
}
