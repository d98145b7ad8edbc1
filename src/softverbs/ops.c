/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The operations of connected queue pairs. Each one checks the local memory first, then the peer,
 * then what the peer allows, and moves the bytes last: a request that fails has moved nothing.
 *
 * On UC nobody answers: what does not arrive, or is not allowed to, is lost and has succeeded.
 */
#include "softverbs/net.h"

static bool unreliable(const struct sw_qp *qp)
{
	return qp->ibv.qp_base.qp_type == IBV_QPT_UC;
}

/* The connection is over. On InfiniBand the requester is told why; on iWARP its request has
 * succeeded, since TCP had taken it, and its next one won't (law 2.3). */
static int ended(struct sw_qp *qp, struct sw_qp *peer, enum ibv_wc_status status)
{
	bool iwarp = qp->dev->p.transport == IBV_TRANSPORT_IWARP;

	if (unreliable(qp))
		return IBV_WC_SUCCESS;
	qp->broken = iwarp;
	sw_qp_error(peer);
	return (int)(iwarp ? IBV_WC_SUCCESS : status);
}

/* siw makes no event for a key that it doesn't know. */
void sw_refusal(struct sw_qp *peer, enum ibv_wc_status status, uint32_t rkey)
{
	bool access = status == IBV_WC_REM_ACCESS_ERR;

	if (unreliable(peer) || peer->dev->p.no_access_event ||
	    (access && peer->dev->p.siw_events && !sw_rkey_known(peer->dev, rkey)))
		return;
	sw_async_qp(peer, access ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR);
}

/* The responder refuses: what the requester sees, and what it means for the responder's QP. */
static int refused(struct sw_qp *qp, struct sw_qp *peer, enum ibv_wc_status status, uint32_t rkey)
{
	sw_refusal(peer, status, rkey);
	return ended(qp, peer, status);
}

/* No receive is posted. InfiniBand tries again; iWARP ends the connection, and the sender learns of
 * it by its next request: law 3. */
static int no_receive(struct sw_qp *qp, struct sw_qp *peer)
{
	if (!qp->dev->p.no_rnr) {
		sw_wait_rnr(qp, peer->attr.min_rnr_timer);
		return SW_WAITING;
	}
	return ended(qp, peer, IBV_WC_SUCCESS);
}

static int do_send(struct sw_qp *qp, uint32_t at, struct sw_qp *peer, const struct sw_piece *src,
		   uint32_t nsrc)
{
	struct sw_swqe *w = &qp->swqe[at & qp->sq.mask];
	enum ibv_wc_status st;
	struct sw_taken t;

	if (!sw_take(peer, &t))
		return unreliable(qp) ? IBV_WC_SUCCESS : no_receive(qp, peer);
	st = sw_scatter(peer, &t, src, nsrc, w->len);
	if (st != IBV_WC_SUCCESS) {
		/* Law 3: too small a receive kills both. */
		if (peer->dev->p.siw_events && st == IBV_WC_LOC_LEN_ERR)
			sw_async_qp(peer, IBV_EVENT_QP_FATAL);
		sw_receive_failed(peer, &t, st);
		return ended(qp, peer,
			     st == IBV_WC_LOC_LEN_ERR ? peer->dev->p.wc_rem_len
						      : peer->dev->p.wc_rem_op);
	}

	struct ibv_wc wc = {
		.wr_id = t.wqe->wr_id,
		.opcode = IBV_WC_RECV,
		.byte_len = w->len,
		.src_qp = qp->ibv.qp_base.qp_num,
	};

	if (w->op == IBV_WR_SEND_WITH_IMM) {
		wc.wc_flags = IBV_WC_WITH_IMM;
		wc.imm_data = w->imm;
	} else if (w->op == IBV_WR_SEND_WITH_INV) {
		if (!sw_mw_invalidate(peer, w->imm)) {
			sw_receive_failed(peer, &t, IBV_WC_LOC_QP_OP_ERR);
			return IBV_WC_REM_ACCESS_ERR;
		}
		wc.wc_flags = peer->dev->p.inv_flag;
		wc.invalidated_rkey = w->imm;
	}
	sw_complete_recv(peer, &wc, t.upto, (w->flags & IBV_SEND_SOLICITED) != 0);
	return IBV_WC_SUCCESS;
}

static int do_write(struct sw_qp *qp, uint32_t at, struct sw_qp *peer, const struct sw_piece *src,
		    uint32_t nsrc)
{
	struct sw_swqe *w = &qp->swqe[at & qp->sq.mask];
	bool imm = w->op == IBV_WR_RDMA_WRITE_WITH_IMM;
	struct sw_piece dst[2] = {{.n = w->len}};
	struct sw_taken t;

	if (imm && !sw_can_take(peer))
		return unreliable(qp) ? IBV_WC_SUCCESS : no_receive(qp, peer);
	if (!sw_remote(peer, w->rkey, w->raddr, w->len, IBV_ACCESS_REMOTE_WRITE, &dst[0].p))
		return refused(qp, peer, IBV_WC_REM_ACCESS_ERR, w->rkey);
	if (w->late)
		sw_late_begin(peer, w->rkey, w->raddr, w->len, dst);
	sw_copy(dst, src, nsrc);
	if (peer->late)
		sw_late_wait(peer, w->late);
	if (imm) {
		struct ibv_wc wc = {
			.opcode = IBV_WC_RECV_RDMA_WITH_IMM,
			.byte_len = w->len,
			.wc_flags = IBV_WC_WITH_IMM,
			.src_qp = qp->ibv.qp_base.qp_num,
			.imm_data = w->imm,
		};

		sw_take(peer, &t);
		wc.wr_id = t.wqe->wr_id;
		sw_complete_recv(peer, &wc, t.upto, (w->flags & IBV_SEND_SOLICITED) != 0);
	}
	return IBV_WC_SUCCESS;
}

enum ibv_wc_status sw_sink(struct sw_qp *qp, uint32_t at, struct sw_piece *out, uint32_t *n,
			   uint64_t *len)
{
	struct sw_swqe *w = &qp->swqe[at & qp->sq.mask];
	unsigned int access = IBV_ACCESS_LOCAL_WRITE;

	/* Law 5: on iWARP the answer to a READ comes as a remote write. */
	if (qp->dev->p.sink_remote)
		access |= IBV_ACCESS_REMOTE_WRITE;
	return sw_sges(qp->dev, qp->pd, qp->ssge + (size_t)(at & qp->sq.mask) * qp->sq.max_sge,
		       w->num_sge, access, UINT64_MAX, out, n, len);
}

/* The QP was told never to have a READ or an atomic under way. */
static int no_resources(struct sw_qp *qp)
{
	if (!qp->dev->p.reads_wait)
		return IBV_WC_LOC_QP_OP_ERR;
	sw_wait_forever(qp);
	return SW_WAITING;
}

static int do_read(struct sw_qp *qp, uint32_t at, struct sw_qp *peer, struct sw_piece *dst,
		   uint64_t len)
{
	struct sw_swqe *w = &qp->swqe[at & qp->sq.mask];
	struct sw_piece src = {.n = (uint32_t)len};

	if (!qp->attr.max_rd_atomic)
		return no_resources(qp);
	if (!peer->attr.max_dest_rd_atomic)
		return refused(qp, peer, IBV_WC_REM_INV_REQ_ERR, 0);
	if (!sw_remote(peer, w->rkey, w->raddr, len, IBV_ACCESS_REMOTE_READ, &src.p))
		return refused(qp, peer, IBV_WC_REM_ACCESS_ERR, w->rkey);
	if (len)
		sw_copy(dst, &src, 1);
	return IBV_WC_SUCCESS;
}

static int do_atomic(struct sw_qp *qp, uint32_t at, struct sw_qp *peer, struct sw_piece *dst,
		     uint64_t len)
{
	struct sw_swqe *w = &qp->swqe[at & qp->sq.mask];
	struct sw_piece src = {.n = sizeof(uint64_t)};
	uint64_t old, new;
	uint8_t *mem;

	if (len != sizeof old)
		return IBV_WC_LOC_LEN_ERR;
	if (!qp->attr.max_rd_atomic)
		return no_resources(qp);
	if (!peer->attr.max_dest_rd_atomic || w->raddr % sizeof old)
		return refused(qp, peer, IBV_WC_REM_INV_REQ_ERR, 0);
	if (!sw_remote(peer, w->rkey, w->raddr, sizeof old, IBV_ACCESS_REMOTE_ATOMIC, &mem))
		return refused(qp, peer, IBV_WC_REM_ACCESS_ERR, w->rkey);
	/* One lock guards every device: they are atomic to each other, not to the CPU. */
	memcpy(&old, mem, sizeof old);
	new = w->op == IBV_WR_ATOMIC_FETCH_AND_ADD ? old + w->atomic.compare_add
	      : old == w->atomic.compare_add       ? w->atomic.swap
						   : old;
	memcpy(mem, &new, sizeof new);
	src.p = (uint8_t *)&old;
	sw_copy(dst, &src, 1);
	return IBV_WC_SUCCESS;
}

bool sw_reads(enum ibv_wr_opcode op)
{
	return op == IBV_WR_RDMA_READ || op == IBV_WR_ATOMIC_CMP_AND_SWP ||
	       op == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* The peer is in another process; what needs no peer to be refused is refused here. */
static int remote(struct sw_qp *qp, uint32_t at, const struct sw_piece *local, uint32_t n,
		  uint64_t len)
{
	struct sw_swqe *w = &qp->swqe[at & qp->sq.mask];

	if (w->op > IBV_WR_ATOMIC_FETCH_AND_ADD && w->op != IBV_WR_SEND_WITH_INV)
		return IBV_WC_LOC_QP_OP_ERR;
	if (!sw_reads(w->op))
		return sw_wire_send(qp, at, local, n, w->len);
	if (w->op != IBV_WR_RDMA_READ && len != sizeof(uint64_t))
		return IBV_WC_LOC_LEN_ERR;
	return qp->attr.max_rd_atomic ? sw_wire_send(qp, at, local, n, len) : no_resources(qp);
}

int sw_op(struct sw_qp *qp, uint32_t at, uint32_t *byte_len)
{
	struct sw_swqe *w = &qp->swqe[at & qp->sq.mask];
	struct sw_piece local[SW_MAX_SGE];
	enum ibv_wc_status st;
	struct sw_qp *peer;
	uint64_t len = 0;
	uint32_t n;

	if (w->op == IBV_WR_BIND_MW)
		return sw_op_bind(qp, w);
	if (w->op == IBV_WR_LOCAL_INV)
		return sw_op_inv(qp, w->imm);
	st = sw_reads(w->op) ? sw_sink(qp, at, local, &n, &len) : sw_gather(qp, at, local, &n);
	if (st != IBV_WC_SUCCESS && sw_reads(w->op) && qp->dev->p.siw_events)
		sw_async_qp(qp, IBV_EVENT_QP_ACCESS_ERR);
	if (st != IBV_WC_SUCCESS)
		return (int)(sw_reads(w->op) ? IBV_WC_LOC_PROT_ERR : sw_local_status(qp, st));
	if (qp->remote)
		return remote(qp, at, local, n, len);
	peer = sw_peer(qp);
	if (peer && !sw_late_place(peer))
		return ended(qp, peer, IBV_WC_REM_ACCESS_ERR);
	if (!peer && unreliable(qp))
		return IBV_WC_SUCCESS;
	if (!peer) {
		sw_wait_peer(qp);
		return SW_WAITING;
	}
	if (peer->xrcd && !sw_xrc_target(peer, w->srqn))
		return refused(qp, peer, IBV_WC_REM_INV_REQ_ERR, 0);
	switch (w->op) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_SEND_WITH_INV:
		return do_send(qp, at, peer, local, n);
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return do_write(qp, at, peer, local, n);
	case IBV_WR_RDMA_READ:
		*byte_len = (uint32_t)len;
		return do_read(qp, at, peer, local, len);
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		*byte_len = sizeof(uint64_t);
		return do_atomic(qp, at, peer, local, len);
	default:
		return IBV_WC_LOC_QP_OP_ERR;
	}
}
