/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench_transfer's messages by sgpool, as a program would move them: each has a chunk of its own from
 * the pool, sends are not signalled, receives are kept posted by the library, and flow control sees
 * to it that a receive stands ready. The chunk of what came goes back to the pool.
 */
#include <errno.h>
#include <stdlib.h>

#include "sgpool/sgpool.h"
#include "transfer.h"

enum {
	BATCH = 16
};

struct end {
	struct transfer_cm cm;
	struct ibv_pd *pd;
	struct sgp_pool *pool;
	struct sgp_cq *cq;
	struct sgp_ep *ep;
	struct sgp_wc *wc;
	struct sgp_flow flow;
	size_t size;
	bool sleeps;
	size_t received;  /* messages */
	size_t completed; /* signalled sends */
};

static void must(int failed, const char *what)
{
	if (failed)
		transfer_die(what);
}

static void end_close(void *arg)
{
	struct end *e = arg;

	if (!e)
		return;
	if (e->ep) {
		sgp_ep_close(e->ep, 100);
		while (sgp_poll(e->cq, BATCH, e->wc) > 0)
			;
	}
	sgp_wc_free(e->wc);
	if (e->ep)
		sgp_ep_destroy(e->ep);
	if (e->cq)
		sgp_cq_destroy(e->cq);
	if (e->pool)
		sgp_pool_destroy(e->pool);
	if (e->pd)
		ibv_dealloc_pd(e->pd);
	transfer_cm_end(&e->cm);
	free(e);
}

static int make_objects(struct end *e, const struct transfer *t)
{
	const size_t chunks = 2 * ((size_t)t->depth + SGP_FLOW_RESERVE) + BATCH;
	/* Updates are not signalled: a queue full of them may be out. */
	const struct sgp_class_attr classes[] = {
		{.size = SGP_FLOW_HEADER, .chunks = t->depth + SGP_FLOW_RESERVE},
		{.size = t->size, .chunks = chunks}};
	const struct sgp_pool_attr pool = {.classes = classes, .nclasses = 2};
	const uint32_t depth = t->depth + SGP_FLOW_RESERVE;
	const struct sgp_cq_attr cq = {.flags = SGP_CQ_SINGLE_THREADED, .cqe = 2 * (int)depth};
	struct sgp_recv_part part = {.size = t->size};
	struct sgp_ep_attr ep = {.cap = {.max_send_wr = depth,
					 .max_recv_wr = depth,
					 .max_send_sge = 1,
					 .max_recv_sge = 1},
				 .recv = &part,
				 .num_recv = 1};
	struct sgp_flow_attr flow = {.depth = t->depth, .bytes = (uint32_t)t->size};

	e->pd = ep.pd = ibv_alloc_pd(e->cm.id->verbs);
	if (!e->pd)
		return -1;
	e->pool = part.pool = flow.pool = sgp_pool_create(e->pd, &pool);
	if (!e->pool)
		return -1;
	e->cq = ep.cq = sgp_cq_create(e->cm.id->verbs, &cq);
	if (!e->cq)
		return -1;
	e->wc = sgp_wc_alloc(e->cq, BATCH);
	e->ep = flow.ep = sgp_ep_create(e->cm.id, &ep);
	return !e->wc || !e->ep || sgp_flow_init(&e->flow, &flow) ? -1 : 0;
}

static void *end_open(const struct transfer *t)
{
	struct end *e = calloc(1, sizeof *e);
	uint8_t hello[SGP_FLOW_HELLO];
	int err;

	if (!e)
		return NULL;
	e->size = t->size;
	e->sleeps = t->kind == TRANSFER_SLEEPS;
	if (!transfer_cm_begin(&e->cm, t) && !make_objects(e, t)) {
		sgp_flow_hello(&e->flow, hello);
		if (!transfer_cm_finish(&e->cm, t, hello, sizeof hello) &&
		    !sgp_flow_greet(&e->flow, hello, sizeof hello))
			return e;
	}
	err = errno;
	end_close(e);
	errno = err;
	return NULL;
}

static void take(struct end *e, const struct sgp_wc *wc)
{
	int kind;

	if (wc->status != IBV_WC_SUCCESS) {
		errno = EIO;
		transfer_die(ibv_wc_status_str(wc->status));
	}
	if (wc->opcode != IBV_WC_RECV) {
		e->completed++;
		return;
	}
	kind = sgp_flow_received(&e->flow, wc);
	must(kind < 0, sgp_errmsg());
	e->received += (size_t)kind;
}

/* Take what there is. With nothing to do for now: wait for it, if this case sleeps. */
static void reap(struct end *e, bool idle)
{
	const int n = idle && e->sleeps ? sgp_wait(e->cq, BATCH, e->wc, -1)
					: sgp_poll(e->cq, BATCH, e->wc);

	must(n < 0, sgp_errmsg());
	for (int i = 0; i < n; i++) {
		take(e, &e->wc[i]);
		sgp_sgl_clear(&e->wc[i].sgl);
	}
	if (n > 0) {
		/* The pool has more chunks than there are receives: none is missing. */
		must(sgp_flow_posted(&e->flow, e->flow.used + e->flow.used_slots), sgp_errmsg());
		must(sgp_flow_update(&e->flow, NULL, 0) < 0 && errno != EAGAIN, sgp_errmsg());
	}
}

/* Returns whether it went; if not, reaping helps. */
static bool send_one(struct end *e, int flags)
{
	SGP_SGL(sgl, 1);

	if (!e->flow.credits)
		return false;
	if (sgp_sgl_get(&sgl, e->pool, e->size, 1, 0)) {
		must(errno != ENOBUFS, sgp_errmsg());
		return false;
	}
	if (!sgp_flow_sendv(&e->flow, NULL, &sgl, flags))
		return true;
	must(errno != EAGAIN && errno != ENOTCONN, sgp_errmsg());
	sgp_sgl_clear(&sgl);
	return false;
}

static void send_stream(struct end *e, size_t n)
{
	const size_t before = e->completed;

	for (size_t sent = 0; sent < n;) {
		if (send_one(e, sent + 1 == n ? IBV_SEND_SIGNALED : 0)) {
			/* Now and then, or the peer's updates would wait till the credits are gone. */
			if (++sent % BATCH == 0)
				reap(e, false);
		} else {
			reap(e, true);
		}
	}
	while (e->completed == before)
		reap(e, true);
}

static void await(struct end *e, size_t received)
{
	while (e->received < received)
		reap(e, true);
}

static void receive_stream(struct end *e, size_t n)
{
	await(e, n);
	e->received -= n;
}

static void stream(void *arg, size_t n)
{
	struct end *e = arg;

	if (e->cm.listener)
		receive_stream(e, n);
	else
		send_stream(e, n);
}

static void pingpong(void *arg, size_t n)
{
	struct end *e = arg;

	for (size_t i = 0; i < n; i++) {
		if (e->cm.listener)
			await(e, 1);
		while (!send_one(e, 0))
			reap(e, true);
		if (!e->cm.listener)
			await(e, 1);
		e->received--;
	}
}

const struct transfer_way transfer_sgpool = {.name = "sgpool",
					     .ours = true,
					     .open = end_open,
					     .stream = stream,
					     .pingpong = pingpong,
					     .close = end_close};
