/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Completion queues: a ring of CQEs. Polling one is what frees the slots of the queue it came from
 * (law 3), so each CQE remembers its QP and how far the poll frees it.
 */
#include <sched.h>

#include "softverbs/net.h"

uint32_t sw_pow2(uint32_t n)
{
	uint32_t p = 1;

	while (p < n)
		p *= 2;
	return p;
}

uint32_t sw_rounded(uint32_t n, enum sw_rounding how)
{
	return how == SW_POW2 ? sw_pow2(n) : how == SW_POW2_LESS_1 ? sw_pow2(n + 1) - 1 : n;
}

static struct sw_cq *alloc_cq(uint32_t cqe)
{
	struct sw_cq *cq = calloc(1, sizeof *cq);

	if (cq)
		cq->ring = calloc(sw_pow2(cqe), sizeof *cq->ring);
	if (!cq || !cq->ring) {
		free(cq);
		return NULL;
	}
	pthread_mutex_init(&cq->ibv.mutex, NULL);
	pthread_cond_init(&cq->ibv.cond, NULL);
	cq->mask = sw_pow2(cqe) - 1;
	cq->cap = cqe;
	cq->ibv.cqe = (int)cqe;
	sw_list_init(&cq->ready);
	return cq;
}

static void free_cq(struct sw_cq *cq)
{
	pthread_cond_destroy(&cq->ibv.cond);
	pthread_mutex_destroy(&cq->ibv.mutex);
	free(cq->held);
	free(cq->ring);
	free(cq);
}

/* It becomes one of the context's. */
static int enter(struct sw_cq *cq, struct ibv_context *c)
{
	struct sw_device *dev = sw_dev(c);

	if (dev->removed)
		return EIO;
	if (dev->count[SV_CQS] >= dev->p.attr.max_cq)
		return ENOMEM;
	if (cq->ibv.channel) {
		cq->ch = sw_outer(cq->ibv.channel, struct sw_channel, ibv);
		cq->ibv.channel->refcnt++;
	}
	cq->ibv.handle = (uint32_t)dev->count[SV_CQS]++;
	sw_ctx(c)->objects++;
	sw_count(SV_CQS, 1);
	return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *c, int cqe, void *cq_context,
			     struct ibv_comp_channel *channel, int comp_vector)
{
	const struct sw_persona *p = &sw_dev(c)->p;
	struct sw_cq *cq;
	int err = SW_FAULT(create_cq);

	if (!err && (cqe < 1 || cqe > p->attr.max_cqe || comp_vector < 0 ||
		     comp_vector >= c->num_comp_vectors))
		err = EINVAL;
	if (err)
		return sw_null(err);
	cq = alloc_cq(sw_rounded((uint32_t)cqe, p->cq_round));
	if (!cq)
		return sw_null(ENOMEM);
	cq->ibv.context = c;
	cq->ibv.channel = channel;
	cq->ibv.cq_context = cq_context;
	sw_lock();
	err = enter(cq, c);
	sw_unlock();
	if (err) {
		free_cq(cq);
		return sw_null(err);
	}
	return ibv_cq_ex_to_cq(&cq->ibv);
}

int ibv_resize_cq(struct ibv_cq *ibv, int cqe)
{
	struct sw_cq *cq = sw_cq(ibv);
	struct sw_device *dev = sw_dev(ibv->context);
	int err = SW_FAULT(resize_cq);
	struct sw_cqe *ring;

	if (err)
		return err;
	if (dev->p.no_cq_resize)
		return EOPNOTSUPP;
	if (cqe < 1 || cqe > dev->p.attr.max_cqe)
		return EINVAL;
	cqe = (int)sw_rounded((uint32_t)cqe, dev->p.cq_round);
	ring = calloc(sw_pow2((uint32_t)cqe), sizeof *ring);
	if (!ring)
		return ENOMEM;
	sw_lock();
	if ((uint32_t)cqe < cq->head - cq->tail) {
		sw_unlock();
		free(ring);
		return EINVAL;
	}
	for (uint32_t i = cq->tail; i != cq->head; i++)
		ring[i & (sw_pow2((uint32_t)cqe) - 1)] = cq->ring[i & cq->mask];
	free(cq->ring);
	cq->ring = ring;
	cq->mask = sw_pow2((uint32_t)cqe) - 1;
	cq->cap = (uint32_t)cqe;
	cq->ibv.cqe = cqe;
	sw_unlock();
	return 0;
}

int ibv_destroy_cq(struct ibv_cq *ibv)
{
	struct sw_cq *cq = sw_cq(ibv);
	int err = SW_FAULT(destroy_cq);

	if (err)
		return err;
	sw_lock();
	if (cq->refs) {
		sw_strict("ibv_destroy_cq: %u queues of queue pairs still use it", cq->refs);
		sw_unlock();
		return EBUSY;
	}
	while (cq->pending) {
		sw_pollq_sub(&cq->ch->q);
		cq->pending--;
	}
	sw_list_del(&cq->ready);
	/* Law 2.14: every fetched event must have been acknowledged. */
	if (cq->comp_got != cq->ibv.comp_events_completed)
		sw_strict("ibv_destroy_cq: %u events were fetched and %u acknowledged",
			  cq->comp_got, cq->ibv.comp_events_completed);
	while (cq->comp_got != cq->ibv.comp_events_completed)
		sw_sleep();
	sw_async_forget(sw_ctx(ibv->context), ibv, &cq->async_got, &cq->ibv.async_events_completed);
	if (cq->ch)
		cq->ch->ibv.refcnt--;
	sw_dev(ibv->context)->count[SV_CQS]--;
	sw_ctx(ibv->context)->objects--;
	sw_count(SV_CQS, -1);
	sw_unlock();
	free_cq(cq);
	return 0;
}

void sw_cq_ring_bell(struct sw_cq *cq, bool solicited)
{
	if (!cq->ch || cq->armed == SW_ARM_NONE || (cq->armed == SW_ARM_SOLICITED && !solicited))
		return;
	cq->armed = SW_ARM_NONE;
	if (cq->pending++ == 0)
		sw_list_append(&cq->ch->ready, &cq->ready);
	sw_pollq_add(&cq->ch->q);
}

void sw_cq_insert(struct sw_cq *cq, const struct sw_cqe *cqe)
{
	if (cq->dead)
		return;
	if (cq->skip) {
		cq->skip--;
		return;
	}
	if (cq->head - cq->tail >= cq->cap) {
		/* Law 3: overflow, and the CQ is gone; only rxe and siw go on with it. */
		cq->dead = !sw_dev(cq->ibv.context)->p.overrun_lives;
		sw_async_cq(cq, IBV_EVENT_CQ_ERR);
		return;
	}
	cq->ring[cq->head & cq->mask] = *cqe;
	if (cq->keeps_time)
		cq->ring[cq->head & cq->mask].at = sw_now();
	cq->head++;
	/* An error wakes even those who wait for solicited completions only. */
	sw_cq_ring_bell(cq, cqe->solicited || (cqe->wc.status != IBV_WC_SUCCESS &&
					       !sw_dev(cq->ibv.context)->p.no_solicited));
}

void sw_cq_push(struct sw_cq *cq, struct sw_cqe *cqe)
{
	bool faulty = cq->nheld || atomic_load_explicit(&sw_fault_rules, memory_order_relaxed) != 0;

	if (!faulty || !sw_cq_struck(cq, cqe))
		sw_cq_insert(cq, cqe);
}

/* What a polled completion frees. */
static void retire(struct sw_cqe *e)
{
	struct sw_queue *q;

	if (e->srq) {
		e->srq->unpolled--;
		return;
	}
	if (!e->qp)
		return;
	q = e->side == SW_SEND ? &e->qp->sq : &e->qp->rq.q;
	if (sw_strict_on)
		sw_strict_retire(e->qp, (enum sw_side)e->side, e->upto);
	if ((int32_t)(e->upto - q->tail) > 0)
		q->tail = e->upto;
}

static int poll_locked(struct sw_cq *cq, int n, struct ibv_wc *wc)
{
	int i;

	if (cq->head == cq->tail)
		sw_net_progress();
	sw_due();
	if (cq->nheld)
		sw_cq_held(cq);
	if (cq->dead && cq->head == cq->tail)
		return -2; /* what mlx4 and mlx5 say: law 1 */
	for (i = 0; i < n && cq->tail != cq->head; i++) {
		struct sw_cqe *e = &cq->ring[cq->tail++ & cq->mask];

		wc[i] = e->wc;
		cq->at = e->at;
		retire(e);
	}
	return i;
}

static int poll_cq(struct sw_cq *cq, int n, struct ibv_wc *wc)
{
	int got, err = SW_FAULT(poll_cq);
	bool idle;

	if (err)
		return -err;
	sw_lock();
	got = poll_locked(cq, n, wc);
	idle = !got && sw_net_idle();
	sw_unlock();
	if (idle)
		sched_yield();
	return got;
}

int sw_poll_one(struct sw_cq *cq, struct ibv_wc *wc)
{
	return poll_cq(cq, 1, wc);
}

int sw_poll_cq(struct ibv_cq *ibv, int n, struct ibv_wc *wc)
{
	return poll_cq(sw_cq(ibv), n, wc);
}

int sw_req_notify_cq(struct ibv_cq *ibv, int solicited_only)
{
	struct sw_cq *cq = sw_cq(ibv);
	enum sw_arm arm = solicited_only ? SW_ARM_SOLICITED : SW_ARM_NEXT;
	int err = SW_FAULT(req_notify_cq);

	if (err)
		return err;
	sw_lock();
	if (cq->ch && arm > cq->armed)
		cq->armed = arm;
	if (sw_net_open)
		sw_net_watch();
	/* A sleeper must come back for what a fault has kept back. */
	if (cq->nheld)
		sw_cq_ring_bell(cq, true);
	sw_unlock();
	return 0;
}

void sw_cq_forget(struct sw_cq *cq, struct sw_qp *qp, bool drop)
{
	uint32_t to = cq ? cq->tail : 0;

	if (!cq)
		return;
	sw_cq_held_forget(cq, qp, drop);
	for (uint32_t i = cq->tail; i != cq->head; i++) {
		struct sw_cqe *e = &cq->ring[i & cq->mask];

		if (e->qp == qp) {
			if (e->srq)
				e->srq->unpolled--;
			e->qp = NULL;
			e->srq = NULL;
			if (drop)
				continue;
		}
		cq->ring[to++ & cq->mask] = *e;
	}
	cq->head = to;
}

void sw_cq_forget_srq(struct sw_cq *cq, struct sw_srq *srq)
{
	for (uint32_t i = cq->tail; i != cq->head; i++)
		if (cq->ring[i & cq->mask].srq == srq)
			cq->ring[i & cq->mask].srq = NULL;
	sw_cq_held_forget_srq(cq, srq);
}
