/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared receive queues. Receives are taken in order but their completions are polled in any order,
 * so the ring gives its slot back when the receive is taken and `unpolled` counts the rest of what
 * still occupies the queue.
 */
#include "softverbs/sw.h"

static void free_srq(struct sw_srq *srq)
{
	pthread_cond_destroy(&srq->ibv.cond);
	pthread_mutex_destroy(&srq->ibv.mutex);
	sw_rq_fini(&srq->rq);
	free(srq);
}

/* xrcd and cq: NULL, or it is one of XRC. */
static struct ibv_srq *create(struct ibv_pd *ibv, const struct ibv_srq_init_attr *a,
			      struct sw_xrcd *xrcd, struct ibv_cq *cq)
{
	struct sw_pd *pd = sw_outer(ibv, struct sw_pd, ibv);
	struct sw_device *dev = sw_dev(ibv->context);
	struct sw_srq *srq;
	int err = SW_FAULT(create_srq);

	if (!err && !dev->p.attr.max_srq)
		err = EOPNOTSUPP;
	if (!err && (!a->attr.max_wr || a->attr.max_wr > (uint32_t)dev->p.attr.max_srq_wr ||
		     a->attr.max_sge > (uint32_t)dev->p.attr.max_srq_sge))
		err = EINVAL;
	if (err)
		return sw_null(err);
	srq = calloc(1, sizeof *srq);
	if (!srq || sw_rq_init(&srq->rq, sw_rounded(a->attr.max_wr, dev->p.srq_round),
			       sw_sge_room(dev, a->attr.max_sge))) {
		free(srq);
		return sw_null(ENOMEM);
	}
	srq->dev = dev;
	srq->pd = pd;
	srq->limit = a->attr.srq_limit;
	srq->ibv.context = ibv->context;
	srq->ibv.srq_context = a->srq_context;
	srq->ibv.pd = ibv;
	pthread_mutex_init(&srq->ibv.mutex, NULL);
	pthread_cond_init(&srq->ibv.cond, NULL);
	sw_lock();
	if (dev->removed || dev->count[SV_SRQS] >= dev->p.attr.max_srq) {
		err = dev->removed ? EIO : ENOMEM;
		sw_unlock();
		free_srq(srq);
		return sw_null(err);
	}
	srq->ibv.handle = (uint32_t)dev->count[SV_SRQS]++;
	if (xrcd)
		sw_xrc_enter(srq, xrcd, sw_cq(cq));
	pd->refs++;
	sw_ctx(ibv->context)->objects++;
	sw_count(SV_SRQS, 1);
	sw_unlock();
	return &srq->ibv;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *a)
{
	return create(pd, a, NULL, NULL);
}

/* The plain kind is sent to ibv_create_srq by verbs.h itself. */
struct ibv_srq *sw_create_srq_ex(struct ibv_context *c, struct ibv_srq_init_attr_ex *a)
{
	const uint32_t all = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;

	if (sw_dev(c)->p.no_xrc || a->srq_type != IBV_SRQT_XRC)
		return sw_null(EOPNOTSUPP);
	if (a->comp_mask != all || !a->pd || !a->xrcd || !a->cq)
		return sw_null(EINVAL);
	return create(a->pd, (struct ibv_srq_init_attr *)a, sw_outer(a->xrcd, struct sw_xrcd, ibv),
		      a->cq);
}

int sw_get_srq_num(struct ibv_srq *ibv, uint32_t *num)
{
	struct sw_srq *srq = sw_srq(ibv);

	*num = srq->xrcd ? srq->num : ibv->handle;
	return 0;
}

static int resize(struct sw_srq *srq, uint32_t depth)
{
	struct sw_rq to, *from = &srq->rq;

	if (srq->dev->p.no_srq_resize)
		return EOPNOTSUPP;
	if (!depth || depth > (uint32_t)srq->dev->p.attr.max_srq_wr ||
	    depth < from->q.head - from->q.tail + srq->unpolled)
		return EINVAL;
	if (sw_rq_init(&to, depth, from->q.max_sge))
		return ENOMEM;
	for (; from->q.tail != from->q.head; from->q.tail++, to.q.head++) {
		uint32_t a = from->q.tail & from->q.mask, b = to.q.head & to.q.mask;

		to.wqe[b] = from->wqe[a];
		memcpy(to.sge + (size_t)b * to.q.max_sge, from->sge + (size_t)a * to.q.max_sge,
		       from->wqe[a].num_sge * sizeof *to.sge);
	}
	sw_rq_fini(from);
	*from = to;
	return 0;
}

int ibv_modify_srq(struct ibv_srq *ibv, struct ibv_srq_attr *a, int mask)
{
	struct sw_srq *srq = sw_srq(ibv);
	int err = SW_FAULT(modify_srq);

	if (!err && mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT))
		err = EINVAL;
	if (err)
		return err;
	sw_lock();
	if (mask & IBV_SRQ_LIMIT &&
	    a->srq_limit > (mask & IBV_SRQ_MAX_WR ? a->max_wr : srq->rq.q.depth))
		err = EINVAL;
	if (!err && mask & IBV_SRQ_MAX_WR)
		err = resize(srq, a->max_wr);
	if (!err && mask & IBV_SRQ_LIMIT)
		srq->limit = a->srq_limit;
	sw_unlock();
	return err;
}

int ibv_query_srq(struct ibv_srq *ibv, struct ibv_srq_attr *a)
{
	struct sw_srq *srq = sw_srq(ibv);
	int err = SW_FAULT(query_srq);

	if (!err && srq->dev->p.no_srq_query)
		err = EOPNOTSUPP;
	if (err)
		return err;
	sw_lock();
	a->max_wr = srq->rq.q.depth;
	a->max_sge = srq->rq.q.max_sge;
	a->srq_limit = srq->limit;
	sw_unlock();
	return 0;
}

int ibv_destroy_srq(struct ibv_srq *ibv)
{
	struct sw_srq *srq = sw_srq(ibv);
	int err = SW_FAULT(destroy_srq);

	if (err)
		return err;
	sw_lock();
	if (srq->refs) {
		sw_strict("ibv_destroy_srq: %u queue pairs still use it", srq->refs);
		sw_unlock();
		return EBUSY;
	}
	/* First, since the lock is given back while events aren't acknowledged: no request finds it. */
	if (srq->xrcd)
		sw_xrc_leave(srq);
	sw_async_forget(sw_ctx(ibv->context), ibv, &srq->async_got, &ibv->events_completed);
	srq->pd->refs--;
	srq->dev->count[SV_SRQS]--;
	sw_ctx(ibv->context)->objects--;
	sw_count(SV_SRQS, -1);
	sw_unlock();
	free_srq(srq);
	return 0;
}

void sw_srq_taken(struct sw_srq *srq)
{
	struct sw_queue *q = &srq->rq.q;

	q->tail = q->next;
	srq->unpolled++;
	if (srq->limit && q->head - q->next < srq->limit) {
		srq->limit = 0;
		sw_async_srq(srq, IBV_EVENT_SRQ_LIMIT_REACHED);
	}
}

int sw_post_srq_recv(struct ibv_srq *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct sw_srq *srq = sw_srq(ibv);
	const struct sw_persona *p = &srq->dev->p;
	int err = SW_FAULT(post_srq_recv);

	if (err) {
		*bad = wr;
		return p->negative ? -err : err;
	}
	sw_lock();
	if (srq->dev->removed)
		err = EIO;
	for (; wr && !err; wr = wr->next) {
		if (sw_strict_on && wr->num_sge > 0)
			sw_strict_sinks(srq->dev, wr->sg_list, (uint32_t)wr->num_sge, wr->wr_id);
		err = srq->rq.q.head - srq->rq.q.tail + srq->unpolled >= srq->rq.q.depth
			      ? p->err_full
			      : sw_rq_put(&srq->rq, wr, p);
		if (err)
			break;
	}
	if (err)
		*bad = wr;
	sw_kick_srq(srq);
	sw_unlock();
	return p->negative ? -err : err;
}
