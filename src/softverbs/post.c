/* SPDX-License-Identifier: BSD-2-Clause */
/* Posting: what can be refused at once is refused here, the rest goes into the queue and is run. */
#include "softverbs/ops.h"

static bool is_inline_op(enum ibv_wr_opcode op)
{
	return op == IBV_WR_SEND || op == IBV_WR_SEND_WITH_IMM || op == IBV_WR_SEND_WITH_INV ||
	       op == IBV_WR_RDMA_WRITE || op == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static bool known_op(const struct sw_qp *qp, enum ibv_wr_opcode op)
{
	const struct sw_persona *p = &qp->dev->p;
	bool rc = qp->ibv.qp_base.qp_type == IBV_QPT_RC ||
		  qp->ibv.qp_base.qp_type == IBV_QPT_XRC_SEND || p->any_opcode;
	bool writes = rc || qp->ibv.qp_base.qp_type == IBV_QPT_UC;

	switch (op) {
	case IBV_WR_SEND:
		return true;
	case IBV_WR_SEND_WITH_IMM:
		return !p->no_imm;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return writes && !p->no_imm;
	case IBV_WR_RDMA_WRITE:
		return writes;
	case IBV_WR_RDMA_READ:
		return rc;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return rc && !p->no_atomic;
	case IBV_WR_SEND_WITH_INV:
		return rc && (p->attr.max_mw || p->bare_inv);
	case IBV_WR_LOCAL_INV:
	case IBV_WR_BIND_MW:
		return rc && p->attr.max_mw;
	default:
		return p->any_opcode;
	}
}

/* The errno this request is refused with, or 0; `ahead` requests of its chain come before it. */
static int check_send(const struct sw_qp *qp, const struct ibv_send_wr *wr, uint32_t ahead,
		      uint64_t *len)
{
	const struct sw_persona *p = &qp->dev->p;
	uint64_t sum = 0;

	if (!known_op(qp, wr->opcode))
		return p->err_opcode;
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->sq.max_sge)
		return p->err_sge;
	/* Law 3: READs may be allowed fewer SGEs; siw takes more and fills only the first. */
	if (wr->opcode == IBV_WR_RDMA_READ && wr->num_sge > p->attr.max_sge_rd && !p->read_first)
		return p->err_sge;
	for (int i = 0; i < wr->num_sge; i++)
		sum += wr->sg_list[i].length;
	if (p->checks_atomic &&
	    (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	     wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) &&
	    (sum < sizeof(uint64_t) || wr->wr.atomic.remote_addr % sizeof(uint64_t)))
		return EINVAL;
	if (wr->send_flags & IBV_SEND_INLINE &&
	    (!is_inline_op(wr->opcode) || sum > qp->cap.max_inline_data ||
	     (p->bare_inv && wr->opcode == IBV_WR_SEND_WITH_INV)))
		return p->err_inline;
	if (sum > p->max_msg)
		return p->err_inline;
	if (qp->ibv.qp_base.qp_type == IBV_QPT_UD &&
	    (!wr->wr.ud.ah || (sum > SW_MTU && !p->ud_any_length)))
		return p->err_inline;
	if (qp->sq.head - qp->sq.tail + ahead >= qp->sq.depth)
		return p->err_full;
	*len = sum;
	return 0;
}

/* Case 25: some devices carry only the first SGE of an inline send. */
static uint32_t copy_inline(const struct sw_persona *p, uint8_t *to, const struct ibv_send_wr *wr)
{
	int n = p->inline_first && wr->num_sge > 1 ? 1 : wr->num_sge;
	uint32_t sum = 0;

	for (int i = 0; i < n; i++) {
		if (!wr->sg_list[i].length)
			continue;
		memcpy(to + sum, (const void *)(uintptr_t)wr->sg_list[i].addr,
		       wr->sg_list[i].length);
		sum += wr->sg_list[i].length;
	}
	return sum;
}

static void fill_rest(struct sw_qp *qp, struct sw_swqe *w, const struct ibv_send_wr *wr)
{
	if (qp->ibv.qp_base.qp_type == IBV_QPT_UD) {
		w->ud.av = sw_outer(wr->wr.ud.ah, struct sw_ah, ibv)->attr;
		w->ud.qpn = wr->wr.ud.remote_qpn;
		w->ud.qkey = wr->wr.ud.remote_qkey;
		return;
	}
	switch (wr->opcode) {
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		w->raddr = wr->wr.atomic.remote_addr;
		w->rkey = wr->wr.atomic.rkey;
		w->atomic.compare_add = wr->wr.atomic.compare_add;
		w->atomic.swap = wr->wr.atomic.swap;
		break;
	case IBV_WR_BIND_MW:
		w->bind.mw = sw_outer(wr->bind_mw.mw, struct sw_mw, ibv);
		w->bind.rkey = wr->bind_mw.rkey;
		w->bind.info = wr->bind_mw.bind_info;
		break;
	default:
		w->raddr = wr->wr.rdma.remote_addr;
		w->rkey = wr->wr.rdma.rkey;
		break;
	}
}

static void enqueue(struct sw_qp *qp, const struct ibv_send_wr *wr, uint64_t len)
{
	uint32_t at = qp->sq.head & qp->sq.mask;
	struct sw_swqe *w = &qp->swqe[at];

	w->wr_id = wr->wr_id;
	w->op = wr->opcode;
	w->flags = wr->send_flags;
	w->num_sge = (uint32_t)wr->num_sge;
	w->len = (uint32_t)len;
	w->imm = wr->imm_data;
	w->inl = (wr->send_flags & IBV_SEND_INLINE) != 0;
	w->done = false;
	w->late = 0;
	w->srqn = qp->ibv.qp_base.qp_type == IBV_QPT_XRC_SEND ? wr->qp_type.xrc.remote_srqn : 0;
	if (w->op == IBV_WR_RDMA_READ && qp->dev->p.read_first && w->num_sge > 1)
		w->num_sge = 1;
	if (w->inl)
		w->len = copy_inline(&qp->dev->p, qp->inl + (size_t)at * qp->cap.max_inline_data,
				     wr);
	else if (w->num_sge)
		memcpy(qp->ssge + (size_t)at * qp->sq.max_sge, wr->sg_list,
		       w->num_sge * sizeof *wr->sg_list);
	if (w->op != IBV_WR_SEND || qp->ibv.qp_base.qp_type == IBV_QPT_UD)
		fill_rest(qp, w, wr);
	if (sw_strict_on) {
		sw_strict_sent(qp, qp->sq.head);
		if (w->op == IBV_WR_RDMA_READ && wr->num_sge > 0)
			sw_strict_sinks(qp->dev, wr->sg_list, w->num_sge, w->wr_id);
	}
	qp->sq.head++;
}

static int send_state(const struct sw_qp *qp)
{
	const struct sw_persona *p = &qp->dev->p;

	if (qp->dev->removed)
		return EIO;
	if (qp->state == IBV_QPS_ERR && p->late_send_eio)
		return EIO; /* erdma: law 2.6 */
	if (qp->state < IBV_QPS_RTS)
		return p->err_state;
	return 0;
}

/* Errors are positive by contract; some providers return them negative (law 1). */
static int refuse(const struct sw_persona *p, int err)
{
	if (p->doorbell_errno && err == p->err_state) {
		errno = err;
		return -1;
	}
	return p->negative ? -err : err;
}

/* What was queued moves, or is flushed. */
static void ring(struct sw_qp *qp)
{
	if (qp->state == IBV_QPS_RTS)
		sw_run(qp);
	else if (qp->state == IBV_QPS_ERR && !qp->dev->p.late_send_stuck)
		sw_qp_error(qp); /* law 2.6: siw doesn't */
}

int sw_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct sw_strike s = sw_strike(SW_CALL_post_send, 0);
	struct sw_qp *qp = sw_qp(ibv);
	struct ibv_send_wr *first = wr;
	uint64_t len = 0;
	int err;

	if (s.action == SW_FAIL) {
		*bad = wr;
		return refuse(&qp->dev->p, s.err);
	}
	sw_lock();
	for (err = send_state(qp); wr && !err; wr = wr->next) {
		err = check_send(qp, wr, 0, &len);
		if (err)
			break;
		enqueue(qp, wr, len);
		/* Law 1, siw: a chain that stopped midway, and 0 all the same. */
		if (s.action == SW_MIDWAY && wr->next) {
			*bad = wr->next;
			break;
		}
	}
	if (err)
		*bad = wr;
	ring(qp);
	sw_unlock();
	/* Law 1, siw: a chain that failed midway; the doorbell's 0 overwrites the error. */
	if (err && wr != first && qp->dev->p.doorbell_errno)
		err = 0;
	/* Law 1, rxe and siw: all is queued, only the doorbell failed; bad_wr isn't written. */
	if (!err && s.action == SW_DOORBELL)
		err = s.err;
	return err ? refuse(&qp->dev->p, err) : 0;
}

int sw_post_all(struct sw_qp *qp, struct ibv_send_wr *chain)
{
	int err = SW_FAULT(post_send);
	uint64_t len = 0;
	uint32_t n = 0;

	if (err)
		return err;
	sw_lock();
	err = send_state(qp);
	for (struct ibv_send_wr *wr = chain; wr && !err; wr = wr->next)
		err = check_send(qp, wr, n++, &len);
	for (struct ibv_send_wr *wr = chain; wr && !err; wr = wr->next) {
		check_send(qp, wr, 0, &len);
		enqueue(qp, wr, len);
	}
	ring(qp);
	sw_unlock();
	return err;
}

int sw_rq_put(struct sw_rq *rq, const struct ibv_recv_wr *wr, const struct sw_persona *p)
{
	uint32_t at = rq->q.head & rq->q.mask;

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > rq->q.max_sge ||
	    (p->no_empty_recv && !wr->num_sge))
		return p->err_sge;
	if (rq->q.head - rq->q.tail >= rq->q.depth)
		return p->err_full;
	rq->wqe[at].wr_id = wr->wr_id;
	rq->wqe[at].num_sge = (uint32_t)wr->num_sge;
	rq->wqe[at].summed = false;
	if (wr->num_sge)
		memcpy(rq->sge + (size_t)at * rq->q.max_sge, wr->sg_list,
		       (uint32_t)wr->num_sge * sizeof *wr->sg_list);
	rq->q.head++;
	return 0;
}

int sw_post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct sw_strike s = sw_strike(SW_CALL_post_recv, 0);
	struct sw_qp *qp = sw_qp(ibv);
	const struct sw_persona *p = &qp->dev->p;
	int err = 0;

	if (s.action == SW_FAIL) {
		*bad = wr;
		return refuse(p, s.err);
	}
	sw_lock();
	if (qp->dev->removed)
		err = EIO;
	else if (qp->srq || (qp->state == IBV_QPS_RESET && p->transport != IBV_TRANSPORT_IWARP))
		err = EINVAL;
	for (; wr && !err; wr = wr->next) {
		if (sw_strict_on && wr->num_sge > 0)
			sw_strict_sinks(qp->dev, wr->sg_list, (uint32_t)wr->num_sge, wr->wr_id);
		err = sw_rq_put(&qp->rq, wr, p);
		if (err)
			break;
		if (s.action == SW_MIDWAY && wr->next) {
			*bad = wr->next;
			break;
		}
	}
	if (err)
		*bad = wr;
	if (qp->state == IBV_QPS_ERR && !p->late_recv_stuck)
		sw_qp_error(qp); /* law 2.6: rxe and siw don't */
	else if (qp->state >= IBV_QPS_RTR)
		sw_kick(qp);
	sw_unlock();
	if (!err && s.action == SW_DOORBELL)
		err = s.err;
	return err ? refuse(p, err) : 0;
}
