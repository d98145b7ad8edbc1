/* SPDX-License-Identifier: BSD-2-Clause */
/* Queue pairs: making, asking, destroying; the way to the error state and to RESET. */
#include "softverbs/net.h"

int sw_rq_init(struct sw_rq *rq, uint32_t depth, uint32_t max_sge)
{
	uint32_t slots = sw_pow2(depth);

	rq->q = (struct sw_queue){.depth = depth, .mask = slots - 1, .max_sge = max_sge};
	rq->wqe = calloc(slots, sizeof *rq->wqe);
	rq->sge = calloc((size_t)slots * (max_sge ? max_sge : 1), sizeof *rq->sge);
	if (rq->wqe && rq->sge)
		return 0;
	sw_rq_fini(rq);
	return ENOMEM;
}

void sw_rq_fini(struct sw_rq *rq)
{
	free(rq->wqe);
	free(rq->sge);
	rq->wqe = NULL;
	rq->sge = NULL;
}

uint32_t sw_sge_room(const struct sw_device *dev, uint32_t asked)
{
	return dev->p.device_sges ? (uint32_t)dev->p.attr.max_sge : asked;
}

static int sq_init(struct sw_qp *qp)
{
	uint32_t slots = sw_pow2(qp->cap.max_send_wr);
	uint32_t sges = sw_sge_room(qp->dev, qp->cap.max_send_sge);

	qp->sq =
		(struct sw_queue){.depth = qp->cap.max_send_wr, .mask = slots - 1, .max_sge = sges};
	qp->swqe = calloc(slots, sizeof *qp->swqe);
	qp->ssge = calloc((size_t)slots * (sges ? sges : 1), sizeof *qp->ssge);
	qp->inl = qp->cap.max_inline_data ? malloc((size_t)slots * qp->cap.max_inline_data) : NULL;
	return qp->swqe && qp->ssge && (qp->inl || !qp->cap.max_inline_data) ? 0 : ENOMEM;
}

static void free_qp(struct sw_qp *qp)
{
	free(qp->swqe);
	free(qp->ssge);
	free(qp->inl);
	sw_rq_fini(&qp->rq);
	sw_builder_free(qp->builder);
	free(qp);
}

static bool known_type(const struct sw_device *dev, enum ibv_qp_type type)
{
	switch (type) {
	case IBV_QPT_RC:
		return true;
	case IBV_QPT_UC:
	case IBV_QPT_UD:
		return !dev->p.no_ud;
	case IBV_QPT_XRC_SEND:
	case IBV_QPT_XRC_RECV:
		return !dev->p.no_xrc;
	default:
		return false;
	}
}

/* An XRC queue pair has one side only, and the receiving one borrows what it needs. */
static void leave_out(struct ibv_qp_init_attr *a)
{
	if (a->qp_type != IBV_QPT_XRC_SEND && a->qp_type != IBV_QPT_XRC_RECV)
		return;
	a->srq = NULL;
	a->recv_cq = a->qp_type == IBV_QPT_XRC_SEND ? a->send_cq : NULL;
	a->cap.max_recv_wr = a->cap.max_recv_sge = 0;
	if (a->qp_type == IBV_QPT_XRC_RECV) {
		a->send_cq = NULL;
		a->cap = (struct ibv_qp_cap){0};
	}
}

static int check_init(struct sw_device *dev, const struct ibv_qp_init_attr *a)
{
	const struct ibv_device_attr *d = &dev->p.attr;

	if (dev->removed)
		return EIO;
	if (!known_type(dev, a->qp_type))
		return EOPNOTSUPP;
	if (a->qp_type != IBV_QPT_XRC_RECV && (!a->send_cq || !a->recv_cq))
		return EINVAL;
	if (a->cap.max_send_wr > (uint32_t)d->max_qp_wr ||
	    a->cap.max_send_sge > (uint32_t)d->max_sge ||
	    a->cap.max_inline_data > dev->p.max_inline)
		return EINVAL;
	if (!a->srq && (a->cap.max_recv_wr > (uint32_t)d->max_qp_wr ||
			a->cap.max_recv_sge > (uint32_t)d->max_sge))
		return EINVAL;
	if (dev->p.no_depth_0 && (!a->cap.max_send_wr || (!a->srq && !a->cap.max_recv_wr)))
		return EINVAL;
	if (dev->count[SV_QPS] >= d->max_qp)
		return ENOMEM;
	return 0;
}

/* A place in the device's table; its number is the QP's. 0, or an errno. */
static int number(struct sw_device *dev, struct sw_qp *qp)
{
	struct sw_qp **t;
	uint32_t from = dev->p.reuse_qpn ? 0 : dev->qp_next, n;
	int err = sw_net_wanted() && !dev->block ? sw_net_claim_qpns(dev) : 0;

	if (err)
		return err;
	for (uint32_t i = 0; i < dev->nqp; i++) {
		uint32_t at = from + i;

		at = at >= dev->nqp ? at - dev->nqp : at;
		if (!dev->qp[at]) {
			dev->qp[at] = qp;
			dev->qp_next = at + 1;
			qp->ibv.qp_base.qp_num = at + dev->qpn_base;
			qp->ibv.qp_base.handle = at;
			return 0;
		}
	}
	n = dev->nqp ? dev->nqp * 2 : 64;
	if (dev->block && n > SW_QPN_BLOCK)
		return ENOMEM;
	t = realloc(dev->qp, n * sizeof(struct sw_qp *));
	if (!t)
		return ENOMEM;
	memset(t + dev->nqp, 0, (n - dev->nqp) * sizeof(struct sw_qp *));
	dev->qp = t;
	dev->qp_next = dev->nqp;
	dev->nqp = n;
	return number(dev, qp);
}

struct sw_qp *sw_qp_find(struct sw_device *dev, uint32_t qpn)
{
	uint32_t at = dev ? qpn - dev->qpn_base : 0;

	return dev && at < dev->nqp ? dev->qp[at] : NULL;
}

/* What it was made of can't go before it. */
static void hold(struct sw_qp *qp, int by)
{
	const struct ibv_qp *ibv = &qp->ibv.qp_base;
	const unsigned int n = (unsigned int)by;

	if (ibv->pd)
		sw_outer(ibv->pd, struct sw_pd, ibv)->refs += n;
	if (qp->xrcd)
		qp->xrcd->refs += n;
	if (ibv->send_cq)
		sw_cq(ibv->send_cq)->refs += n;
	if (ibv->recv_cq)
		sw_cq(ibv->recv_cq)->refs += n;
	if (ibv->srq)
		sw_srq(ibv->srq)->refs += n;
	qp->dev->count[SV_QPS] += by;
	sw_ctx(ibv->context)->objects += n;
	sw_count(SV_QPS, by);
}

/* pd: not for XRC_RECV, which has a domain instead. */
static struct sw_qp *new_qp(struct ibv_context *c, struct ibv_pd *pd, struct sw_xrcd *xrcd,
			    struct ibv_qp_init_attr *a, bool builder, int *err)
{
	struct sw_device *dev = sw_dev(c);
	struct ibv_qp *ibv;
	struct sw_qp *qp;

	leave_out(a);
	*err = check_init(dev, a);
	if (*err)
		return NULL;
	qp = calloc(1, sizeof *qp);
	if (!qp) {
		*err = ENOMEM;
		return NULL;
	}
	qp->dev = dev;
	qp->cap = a->cap;
	if (a->srq)
		qp->cap.max_recv_wr = qp->cap.max_recv_sge = 0;
	if (dev->p.inline_rounded &&
	    qp->cap.max_inline_data < qp->cap.max_send_sge * sizeof(struct ibv_sge))
		qp->cap.max_inline_data = qp->cap.max_send_sge * (uint32_t)sizeof(struct ibv_sge);
	if (sq_init(qp) ||
	    sw_rq_init(&qp->rq, qp->cap.max_recv_wr, sw_sge_room(dev, qp->cap.max_recv_sge)) ||
	    (builder && sw_builder_new(qp)))
		*err = ENOMEM;
	else
		*err = number(dev, qp);
	if (*err) {
		free_qp(qp);
		return NULL;
	}
	ibv = &qp->ibv.qp_base;
	qp->attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RESET, .cap = qp->cap};
	qp->pd = pd ? sw_outer(pd, struct sw_pd, ibv) : NULL;
	qp->xrcd = xrcd;
	qp->scq = a->send_cq ? sw_cq(a->send_cq) : NULL;
	qp->rcq = a->recv_cq ? sw_cq(a->recv_cq) : NULL;
	qp->srq = a->srq ? sw_srq(a->srq) : NULL;
	qp->sig_all = a->sq_sig_all != 0;
	sw_list_init(&qp->waiting);
	sw_list_init(&qp->busy);
	ibv->context = c;
	ibv->qp_context = a->qp_context;
	ibv->pd = pd;
	ibv->send_cq = a->send_cq;
	ibv->recv_cq = a->recv_cq;
	ibv->srq = a->srq;
	ibv->state = IBV_QPS_RESET;
	ibv->qp_type = a->qp_type;
	pthread_mutex_init(&ibv->mutex, NULL);
	pthread_cond_init(&ibv->cond, NULL);
	a->cap = qp->cap;
	hold(qp, 1);
	return qp;
}

static struct ibv_qp *create(struct ibv_context *c, struct ibv_pd *pd, struct sw_xrcd *xrcd,
			     struct ibv_qp_init_attr *a, bool builder)
{
	struct sw_qp *qp;
	int err = SW_FAULT(create_qp);

	if (err)
		return sw_null(err);
	sw_lock();
	qp = new_qp(c, pd, xrcd, a, builder, &err);
	sw_unlock();
	return qp ? &qp->ibv.qp_base : sw_null(err);
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	if (a->qp_type == IBV_QPT_XRC_RECV)
		return sw_null(EINVAL); /* there is no domain */
	return create(pd->context, pd, NULL, a, false);
}

struct ibv_qp *sw_create_qp_ex(struct ibv_context *c, struct ibv_qp_init_attr_ex *a)
{
	const uint64_t ops = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
			     IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
			     IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
			     IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV |
			     IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV;

	const uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	const bool builder = (a->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;

	if (a->qp_type == IBV_QPT_XRC_RECV) {
		/* A PD is not looked at. */
		if (!(a->comp_mask & IBV_QP_INIT_ATTR_XRCD) || !a->xrcd)
			return sw_null(EINVAL);
		if (a->comp_mask & ~(uint32_t)(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD))
			return sw_null(EOPNOTSUPP);
		return create(c, NULL, sw_outer(a->xrcd, struct sw_xrcd, ibv),
			      (struct ibv_qp_init_attr *)a, false);
	}
	if (!(a->comp_mask & IBV_QP_INIT_ATTR_PD) || !a->pd)
		return sw_null(EINVAL);
	if (a->comp_mask & ~known ||
	    (builder && (a->send_ops_flags & ~ops || sw_dev(c)->p.no_qp_ex)))
		return sw_null(EOPNOTSUPP);
	return create(c, a->pd, NULL, (struct ibv_qp_init_attr *)a, builder);
}

/* ---- what no device here has ---- */

int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	(void)qp, (void)op, (void)flags;
	return 0;
}

int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	(void)qp;
	return ece->vendor_id ? EOPNOTSUPP : 0;
}

int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	(void)qp;
	memset(ece, 0, sizeof *ece);
	return EOPNOTSUPP;
}

int ibv_query_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask,
		 struct ibv_qp_init_attr *init)
{
	struct sw_qp *qp = sw_qp(ibv);
	int err = SW_FAULT(query_qp);

	(void)mask; /* more than what was asked for may be filled */
	if (err)
		return err;
	sw_lock();
	*attr = qp->attr;
	attr->qp_state = attr->cur_qp_state = qp->dev->p.no_query_state ? IBV_QPS_RESET : qp->state;
	attr->cap = qp->cap;
	attr->sq_draining = 0;
	if (qp->dev->p.no_query_state)
		attr->dest_qp_num = 0;
	*init = (struct ibv_qp_init_attr){
		.qp_context = ibv->qp_context,
		.send_cq = ibv->send_cq,
		.recv_cq = ibv->recv_cq,
		.srq = ibv->srq,
		.cap = qp->cap,
		.qp_type = ibv->qp_type,
		.sq_sig_all = qp->sig_all,
	};
	ibv->state = qp->state;
	sw_unlock();
	return 0;
}

int ibv_destroy_qp(struct ibv_qp *ibv)
{
	struct sw_qp *qp = sw_qp(ibv);
	struct sw_device *dev = qp->dev;
	int err = SW_FAULT(destroy_qp);

	if (err)
		return err;
	sw_lock();
	if (qp->mcast) {
		sw_unlock();
		return EBUSY;
	}
	sw_wait_stop(qp);
	sw_late_end(qp);
	sw_late_sent(qp);
	sw_wire_forget(qp);
	sw_mw_forget_qp(qp);
	/* On iWARP the QP is the connection's end of the stream. */
	if (dev->p.transport == IBV_TRANSPORT_IWARP)
		sw_cm_qp_ended(qp);
	sw_cm_qp_gone(qp);
	/* Law 2.8: mlx5 and hns take the QP's CQEs out of the CQ, rxe and siw leave them. */
	sw_cq_forget(qp->scq, qp, !dev->p.keep_cqes);
	sw_cq_forget(qp->rcq, qp, !dev->p.keep_cqes);
	dev->qp[ibv->handle] = NULL;
	sw_leave(qp);
	sw_async_forget(sw_ctx(ibv->context), ibv, &qp->async_got, &ibv->events_completed);
	hold(qp, -1);
	sw_unlock();
	pthread_cond_destroy(&ibv->cond);
	pthread_mutex_destroy(&ibv->mutex);
	free_qp(qp);
	return 0;
}

/* ---- ends ---- */

static void flush_send(struct sw_qp *qp)
{
	while (qp->sq.una != qp->sq.head)
		sw_complete_send(qp, qp->sq.una, IBV_WC_WR_FLUSH_ERR, 0);
}

static void flush_recv(struct sw_qp *qp)
{
	struct sw_queue *q = &qp->rq.q;

	while (q->next != q->head) {
		struct ibv_wc wc = {
			.wr_id = qp->rq.wqe[q->next & q->mask].wr_id,
			.status = IBV_WC_WR_FLUSH_ERR,
			.opcode = qp->dev->p.flush_as_send ? IBV_WC_SEND : IBV_WC_RECV,
		};

		sw_complete_recv(qp, &wc, ++q->next, false);
	}
}

void sw_qp_error(struct sw_qp *qp)
{
	bool was = qp->state == IBV_QPS_ERR;

	sw_wait_stop(qp);
	sw_late_end(qp);
	qp->state = qp->ibv.qp_base.state = IBV_QPS_ERR;
	flush_recv(qp);
	if (!qp->stepping)
		flush_send(qp);
	sw_wire_state(qp);
	/* On iWARP the QP and its connection end together. */
	if (!was && qp->dev->p.transport == IBV_TRANSPORT_IWARP)
		sw_cm_qp_ended(qp);
	/* Law 2.9: nothing of the SRQ will be consumed by this QP any more. */
	if (!was && qp->srq && !qp->xrcd && !qp->dev->p.no_last_wqe)
		sw_async_qp(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
	sw_late_sent(qp);
}

/* Law 2.7: work is dropped without a completion, and what was completed is gone from the CQ. */
void sw_qp_reset(struct sw_qp *qp)
{
	sw_wait_stop(qp);
	sw_late_end(qp);
	sw_late_sent(qp);
	sw_wire_forget(qp);
	sw_cq_forget(qp->scq, qp, !qp->dev->p.keep_cqes);
	sw_cq_forget(qp->rcq, qp, !qp->dev->p.keep_cqes);
	qp->sq.tail = qp->sq.una = qp->sq.next = qp->sq.head;
	qp->rq.q.tail = qp->rq.q.next = qp->rq.q.head;
	qp->dest = NULL;
	qp->broken = qp->remote = qp->stalled = false;
	sw_mw_forget_qp(qp);
	qp->attr = (struct ibv_qp_attr){.cap = qp->cap};
	qp->state = qp->ibv.qp_base.state = IBV_QPS_RESET;
}
