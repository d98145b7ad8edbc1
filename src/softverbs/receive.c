/* SPDX-License-Identifier: BSD-2-Clause */
/* The receiving end: which receive a message gets, and the bytes put into it. */
#include "softverbs/ops.h"

void sw_copy(struct sw_piece *dst, const struct sw_piece *src, uint32_t nsrc)
{
	for (uint32_t i = 0; i < nsrc; i++) {
		const uint8_t *from = src[i].p;
		uint32_t left = src[i].n;

		while (left) {
			uint32_t n = left < dst->n ? left : dst->n;

			/* Both ends are in one process: they may overlap. */
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
enum ibv_wc_status sw_gather(struct sw_qp *qp, uint32_t at, struct sw_piece *out, uint32_t *n)
{
	uint32_t slot = at & qp->sq.mask;
	struct sw_swqe *w = &qp->swqe[slot];
	uint64_t len;

	if (w->inl) {
		out->p = qp->inl + (size_t)slot * qp->cap.max_inline_data;
		out->n = w->len;
		*n = w->len != 0;
		return IBV_WC_SUCCESS;
	}
	return sw_sges(qp->dev, qp->pd, qp->ssge + (size_t)slot * qp->sq.max_sge, w->num_sge, 0,
		       UINT64_MAX, out, n, &len);
}

static struct sw_rq *queue(const struct sw_qp *qp)
{
	return qp->srq ? &qp->srq->rq : (struct sw_rq *)&qp->rq;
}

bool sw_can_take(const struct sw_qp *qp)
{
	const struct sw_queue *q = &queue(qp)->q;

	return q->next != q->head;
}

bool sw_take(struct sw_qp *qp, struct sw_taken *t)
{
	struct sw_rq *rq = queue(qp);
	uint32_t at = rq->q.next & rq->q.mask;

	if (rq->q.next == rq->q.head)
		return false;
	t->wqe = &rq->wqe[at];
	t->sge = rq->sge + (size_t)at * rq->q.max_sge;
	t->pd = qp->srq ? qp->srq->pd : qp->pd;
	t->upto = ++rq->q.next;
	if (qp->srq)
		sw_srq_taken(qp->srq);
	return true;
}

enum ibv_wc_status sw_scatter(struct sw_qp *qp, const struct sw_taken *t,
			      const struct sw_piece *src, uint32_t nsrc, uint64_t len)
{
	struct sw_piece dst[SW_MAX_SGE];
	enum ibv_wc_status st;
	uint64_t room;
	uint32_t ndst;

	st = sw_sges(qp->dev, t->pd, t->sge, t->wqe->num_sge, IBV_ACCESS_LOCAL_WRITE, len, dst,
		     &ndst, &room);
	if (st != IBV_WC_SUCCESS)
		return st;
	if (room < len)
		return IBV_WC_LOC_LEN_ERR;
	sw_copy(dst, src, nsrc);
	if (sw_strict_on && !qp->srq)
		sw_strict_received(qp, t->upto - 1, (uint32_t)len);
	return IBV_WC_SUCCESS;
}

/* sw_sges tells a wrong key from wrong bounds; providers have their own words for both. */
enum ibv_wc_status sw_local_status(const struct sw_qp *qp, enum ibv_wc_status st)
{
	return st == IBV_WC_LOC_ACCESS_ERR ? qp->dev->p.wc_key
	       : st == IBV_WC_LOC_PROT_ERR ? qp->dev->p.wc_bounds
					   : st;
}

void sw_receive_failed(struct sw_qp *qp, const struct sw_taken *t, enum ibv_wc_status status)
{
	const struct sw_persona *p = &qp->dev->p;

	status = status == IBV_WC_LOC_LEN_ERR                                       ? p->wc_recv_len
		 : status == IBV_WC_LOC_PROT_ERR || status == IBV_WC_LOC_ACCESS_ERR ? p->wc_recv
										    : status;
	struct ibv_wc wc = {.wr_id = t->wqe->wr_id, .status = status, .opcode = IBV_WC_RECV};

	sw_complete_recv(qp, &wc, t->upto, false);
	sw_qp_error(qp);
}
