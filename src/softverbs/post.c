/* SPDX-License-Identifier: BSD-2-Clause */
/* Posting: what can be refused at once is refused here, the rest goes into the queue and is run. */
#include "softverbs/sw.h"

static bool is_inline_op(enum ibv_wr_opcode op)
{
	return op == IBV_WR_SEND || op == IBV_WR_SEND_WITH_IMM || op == IBV_WR_SEND_WITH_INV ||
	       op == IBV_WR_RDMA_WRITE || op == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static bool known_op(const struct sw_qp *qp, enum ibv_wr_opcode op)
{
	switch (op) {
	case IBV_WR_SEND:
		return true;
	case IBV_WR_SEND_WITH_IMM:
		return !qp->dev->p.no_imm;
	default:
		return false;
	}
}

/* The errno this request is refused with, or 0. */
static int check_send(const struct sw_qp *qp, const struct ibv_send_wr *wr, uint64_t *len)
{
	const struct sw_persona *p = &qp->dev->p;
	uint64_t sum = 0;

	if (!known_op(qp, wr->opcode))
		return p->err_opcode;
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->sq.max_sge)
		return p->err_sge;
	for (int i = 0; i < wr->num_sge; i++)
		sum += wr->sg_list[i].length;
	if (wr->send_flags & IBV_SEND_INLINE &&
	    (!is_inline_op(wr->opcode) || sum > qp->cap.max_inline_data))
		return p->err_inline;
	if (sum > p->max_msg)
		return p->err_inline;
	if (qp->sq.head - qp->sq.tail >= qp->sq.depth)
		return p->err_full;
	*len = sum;
	return 0;
}

static void copy_inline(struct sw_qp *qp, uint8_t *to, const struct ibv_send_wr *wr)
{
	int n = qp->dev->p.inline_first && wr->num_sge > 1 ? 1 : wr->num_sge;

	for (int i = 0; i < n; i++) {
		if (!wr->sg_list[i].length)
			continue;
		memcpy(to, (const void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
		to += wr->sg_list[i].length;
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
	if (w->inl)
		copy_inline(qp, qp->inl + (size_t)at * qp->cap.max_inline_data, wr);
	else if (wr->num_sge)
		memcpy(qp->ssge + (size_t)at * qp->sq.max_sge, wr->sg_list,
		       (uint32_t)wr->num_sge * sizeof *wr->sg_list);
	qp->sq.head++;
}

static int send_state(const struct sw_qp *qp)
{
	const struct sw_persona *p = &qp->dev->p;

	if (qp->dev->removed)
		return EIO;
	if (qp->state == IBV_QPS_ERR && p->late_send_eio)
		return EIO; /* erdma: law 2.6 */
	if (qp->state < IBV_QPS_RTS && !p->any_state)
		return p->err_state;
	return 0;
}

/* Errors are positive by contract; some providers return them negative (law 1). */
static int refuse(const struct sw_persona *p, int err)
{
	return p->negative ? -err : err;
}

int sw_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct sw_qp *qp = sw_qp(ibv);
	int err = SW_FAULT(post_send);
	uint64_t len = 0;

	if (err) {
		*bad = wr;
		return refuse(&qp->dev->p, err);
	}
	sw_lock();
	for (err = send_state(qp); wr && !err; wr = wr->next) {
		err = check_send(qp, wr, &len);
		if (err)
			break;
		enqueue(qp, wr, len);
	}
	if (err)
		*bad = wr;
	if (qp->state == IBV_QPS_RTS)
		sw_run(qp);
	else if (qp->state == IBV_QPS_ERR && !qp->dev->p.late_send_stuck)
		sw_qp_error(qp);
	sw_unlock();
	return err ? refuse(&qp->dev->p, err) : 0;
}

int sw_rq_put(struct sw_rq *rq, const struct ibv_recv_wr *wr, const struct sw_persona *p)
{
	uint32_t at = rq->q.head & rq->q.mask;

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > rq->q.max_sge)
		return p->err_sge;
	if (rq->q.head - rq->q.tail >= rq->q.depth)
		return p->err_full;
	rq->wqe[at].wr_id = wr->wr_id;
	rq->wqe[at].num_sge = (uint32_t)wr->num_sge;
	if (wr->num_sge)
		memcpy(rq->sge + (size_t)at * rq->q.max_sge, wr->sg_list,
		       (uint32_t)wr->num_sge * sizeof *wr->sg_list);
	rq->q.head++;
	return 0;
}

int sw_post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct sw_qp *qp = sw_qp(ibv);
	const struct sw_persona *p = &qp->dev->p;
	int err = SW_FAULT(post_recv);

	if (err) {
		*bad = wr;
		return refuse(p, err);
	}
	sw_lock();
	if (qp->dev->removed)
		err = EIO;
	else if (qp->srq || (qp->state == IBV_QPS_RESET && !p->any_state))
		err = EINVAL;
	for (; wr && !err; wr = wr->next) {
		err = sw_rq_put(&qp->rq, wr, p);
		if (err)
			break;
	}
	if (err)
		*bad = wr;
	if (qp->state == IBV_QPS_ERR && !p->late_recv_stuck)
		sw_qp_error(qp);
	else if (qp->state >= IBV_QPS_RTR)
		sw_kick(qp);
	sw_unlock();
	return err ? refuse(p, err) : 0;
}
