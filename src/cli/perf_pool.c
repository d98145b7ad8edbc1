/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Mode pool: sgpool as a program would use it. Each message has chunks of its own from the pool, which
 * nobody fills; sends are not signalled; the library keeps receives posted, and its flow control sees
 * to it that one stands ready for each message. All threads share one pool.
 */
#include <errno.h>
#include <string.h>

#include "cli/perf_test.h"

enum {
	CLASSES = 3,
	CLOSE_MS = 50,
};

/* Receives that a link keeps posted. */
static uint32_t receives(const struct perf_params *p)
{
	return p->op == PERF_SEND ? p->rx + SGP_FLOW_RESERVE : 0;
}

static void add_class(struct sgp_pool_attr *attr, struct sgp_class_attr *classes, size_t size,
		      size_t chunks)
{
	for (uint32_t i = 0; i < attr->nclasses; i++)
		if (classes[i].size == size) {
			classes[i].chunks += chunks;
			return;
		}
	classes[attr->nclasses++] = (struct sgp_class_attr){.size = size, .chunks = chunks};
}

static int pool_open(struct perf_test *t)
{
	const struct perf_params *p = &t->p;
	const size_t conns = p->conns;
	struct sgp_class_attr classes[CLASSES];
	struct sgp_pool_attr attr = {.classes = classes,
				     .flags = p->op == PERF_READ ? SGP_POOL_READ_SINK : 0};

	add_class(&attr, classes, p->size / p->sges, conns * p->sges * (p->tx + 1));
	if (p->op == PERF_SEND) {
		/* Updates are not signalled: a queue full of them may be out. */
		add_class(&attr, classes, SGP_FLOW_HEADER, conns * (p->tx + SGP_FLOW_RESERVE));
		add_class(&attr, classes, p->size,
			  conns * receives(p) + (size_t)p->threads * PERF_BATCH);
	}
	t->pool = sgp_pool_create(t->pd, &attr);
	return t->pool ? 0 : -1;
}

static uint32_t send_depth(const struct perf_params *p)
{
	return p->tx + SGP_FLOW_RESERVE;
}

static int pool_open_worker(struct perf_worker *w)
{
	const struct perf_params *p = &w->test->p;
	const uint32_t links = (p->conns + p->threads - 1) / p->threads;
	const struct sgp_cq_attr attr = {.flags = SGP_CQ_SINGLE_THREADED,
					 .cqe = (int)(links * (send_depth(p) + receives(p) + 1)),
					 .max_sge = PERF_SGES_MAX};

	w->cq = sgp_cq_create(w->test->verbs, &attr);
	if (w->cq)
		w->wc = sgp_wc_alloc(w->cq, PERF_BATCH);
	return w->wc ? 0 : -1;
}

static int pool_open_link(struct perf_link *l)
{
	const struct perf_worker *w = l->worker;
	const struct perf_params *p = &w->test->p;
	const bool two_sided = p->op == PERF_SEND;
	const struct sgp_recv_part part = {.pool = w->test->pool, .size = p->size};
	struct sgp_ep_attr attr = {.cq = w->cq,
				   .pd = w->test->pd,
				   .cap = {.max_send_wr = send_depth(p),
					   .max_recv_wr = two_sided ? receives(p) : 1,
					   .max_send_sge = p->sges,
					   .max_recv_sge = 1,
					   .max_inline_data = p->inlined},
				   .max_chunk = (int)p->sges,
				   .recv = two_sided ? &part : NULL,
				   .num_recv = two_sided,
				   .recv_context = l};
	struct sgp_flow_attr flow = {.pool = w->test->pool, .depth = p->rx, .bytes = p->size};

	l->ep = flow.ep = sgp_ep_create(l->id, &attr);
	if (!l->ep)
		return -1;
	return two_sided ? sgp_flow_init(&l->flow, &flow) : 0;
}

/* Of a post that failed: later it may go. */
static bool later(int err)
{
	return err == EAGAIN || err == ENOBUFS || err == ENOTCONN;
}

static int post(struct perf_link *l, struct sgp_sgl *sgl)
{
	switch (l->worker->test->p.op) {
	case PERF_SEND:
		return sgp_flow_sendv(&l->flow, l, sgl, 0);
	case PERF_WRITE:
		return sgp_post_writev(l->ep, l, sgl, 0, l->peer_addr, l->peer_rkey);
	default:
		return sgp_post_readv(l->ep, l, sgl, 0, l->peer_addr, l->peer_rkey);
	}
}

static int pool_send(struct perf_link *l)
{
	struct perf_worker *w = l->worker;
	const struct perf_params *p = &w->test->p;
	SGP_SGL(sgl, PERF_SGES_MAX);

	if (p->op == PERF_SEND && !l->flow.credits)
		return 0;
	if (sgp_sgl_get(&sgl, w->test->pool, p->size / p->sges, (int)p->sges, 0))
		return errno == ENOBUFS ? 0 : perf_fail(w, "no chunks", sgp_errmsg());
	if (p->latency && p->op == PERF_WRITE) {
		const struct ibv_sge *last = &sgl.sge[sgl.num_sge - 1];

		((uint8_t *)(uintptr_t)last->addr)[last->length - 1] = l->stamp;
	}
	if (post(l, &sgl) == 0)
		return 1;
	if (!later(errno))
		perf_fail(w, "can't be posted", sgp_errmsg());
	sgp_sgl_clear(&sgl);
	return w->why[0] ? -1 : 0;
}

static int pool_fence(struct perf_link *l)
{
	SGP_SGL(sgl, 1);

	sgp_chunk_ref(l->fence);
	if (sgp_sgl_append(&sgl, l->fence, 0, PERF_FENCE_BYTES)) {
		sgp_chunk_put(l->fence);
		return perf_fail(l->worker, "the fence", sgp_errmsg());
	}
	if (sgp_post_readv(l->ep, l, &sgl, IBV_SEND_SIGNALED, l->peer_addr, l->peer_rkey) == 0)
		return 1;
	if (!later(errno))
		perf_fail(l->worker, "the fence can't be posted", sgp_errmsg());
	sgp_sgl_clear(&sgl);
	return l->worker->why[0] ? -1 : 0;
}

/* Returns 0; -1, why is set. */
static int take(struct perf_worker *w, struct sgp_wc *wc)
{
	struct perf_link *l = wc->context;
	int kind;

	if (wc->status != IBV_WC_SUCCESS)
		return perf_fail(w, "the connection broke", ibv_wc_status_str(wc->status));
	if (wc->opcode == IBV_WC_RDMA_READ) {
		/* They complete in order: the fence is behind all others. */
		if (w->test->p.op == PERF_READ && l->done < l->sent)
			l->done++;
		else
			l->fenced = true;
	}
	if (wc->opcode != IBV_WC_RECV)
		return 0;
	kind = sgp_flow_received(&l->flow, wc);
	if (kind < 0)
		return perf_fail(w, "the other end broke the protocol", sgp_errmsg());
	if (kind && wc->byte_len != w->test->p.size)
		return perf_fail(w, "the other end broke the protocol",
				 "a message of another length");
	l->received += (uint64_t)kind;
	l->owes = true;
	return 0;
}

/* Receives have been posted again: tell the peer, if it may need to know. Returns 0; -1. */
static int grant(struct perf_link *l)
{
	const uint32_t used = l->flow.used + l->flow.used_slots;

	/* The pool has more chunks than there are receives: none is missing. */
	if (used && sgp_flow_posted(&l->flow, used))
		return perf_fail(l->worker, "flow control", sgp_errmsg());
	l->owes = false;
	if (sgp_flow_update(&l->flow, NULL, 0) >= 0)
		return 0;
	l->owes = true;
	return later(errno) ? 0 : perf_fail(l->worker, "an update can't be posted", sgp_errmsg());
}

static int pool_reap(struct perf_worker *w, bool idle)
{
	const struct perf_params *p = &w->test->p;
	const int n = idle && p->events ? sgp_wait(w->cq, PERF_BATCH, w->wc, PERF_SLEEP_MS)
					: sgp_poll(w->cq, PERF_BATCH, w->wc);

	if (n < 0 && errno != EINTR)
		return perf_fail(w, "the completion queue failed", sgp_errmsg());
	for (int i = 0; i < n; i++) {
		if (take(w, &w->wc[i]))
			return -1;
		sgp_sgl_clear(&w->wc[i].sgl);
	}
	for (struct perf_link *l = perf_first(w); l && p->op == PERF_SEND; l = perf_next(l))
		if (l->owes && grant(l))
			return -1;
	return n < 0 ? 0 : n;
}

static void pool_close_link(struct perf_link *l)
{
	const struct perf_worker *w = l->worker;

	if (!l->ep)
		return;
	sgp_ep_close(l->ep, CLOSE_MS);
	while (sgp_poll(w->cq, PERF_BATCH, w->wc) > 0)
		for (int i = 0; i < PERF_BATCH; i++)
			sgp_sgl_clear(&w->wc[i].sgl);
	sgp_ep_destroy(l->ep);
	l->ep = NULL;
}

static void pool_close_worker(struct perf_worker *w)
{
	sgp_wc_free(w->wc);
	if (w->cq)
		sgp_cq_destroy(w->cq);
}

static void pool_close(struct perf_test *t)
{
	if (t->pool)
		sgp_pool_destroy(t->pool);
}

const struct perf_way perf_pool = {.open = pool_open,
				   .open_worker = pool_open_worker,
				   .open_link = pool_open_link,
				   .send = pool_send,
				   .fence = pool_fence,
				   .reap = pool_reap,
				   .close_link = pool_close_link,
				   .close_worker = pool_close_worker,
				   .close = pool_close};
