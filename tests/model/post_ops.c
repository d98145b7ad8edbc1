/* SPDX-License-Identifier: BSD-2-Clause */
/* The random operations: which one is next, and those that are neither a post nor a poll. */
#include <errno.h>

#include "../plain.h"
#include "post_model.h"

static void do_cancel(void)
{
	struct op *op = &w.op[pick(OPS)];
	struct sgp_ep *ep = w.ep[op->ep].ep;

	for (int n = 0; n < 50 && !op->out; n++)
		op = &w.op[pick(OPS)];
	ep = w.ep[op->ep].ep;
	if (!op->out) {
		/* One that never was has the context of an endpoint's own receives, or nobody's. */
		CHECK(!ep || sgp_cancel(ep, op_context(op)) == -1);
		CHECK(!ep || errno == ENOENT || (errno == EOPNOTSUPP && is_ring(op_context(op))));
		return;
	}
	if (!sgp_cancel(ep, op_context(op))) {
		CHECK(!op->recv && !op->cancelled);
		op->cancelled = true;
		w.count.cancels++;
		return;
	}
	CHECK(errno == ENOENT || (errno == EOPNOTSUPP && op->recv));
}

static void do_close(void)
{
	struct model_ep *e = some_ep();

	if (!e)
		return;
	if (sgp_ep_close(e->ep, 0)) { /* no time: how often it polls would not be the seed's */
		CHECK(w.faulty);
		return;
	}
	e->closed = true;
	w.count.closes++;
}

static void do_destroy(void)
{
	struct model_ep *e = &w.ep[pick((uint32_t)w.eps)];

	if (!e->ep) {
		if (!w.removed && !w.dead)
			make_endpoint(e);
		return;
	}
	if (!sgp_ep_destroy(e->ep)) {
		CHECK(e->closed);
		e->ep = NULL;
		/* At once, so that what is late of the old one's meets a new one in its place. */
		if (!w.removed && !w.dead && one_in(2))
			make_endpoint(e);
		return;
	}
	CHECK(errno == EBUSY);
}

/* Of a pair that does not work any more; now and then of one that does. */
static bool is_working(const struct model_ep *e)
{
	return e->ep && !e->closed && !sgp_ep_is_stopped(e->ep) &&
	       sgp_ep_qp(e->ep)->state == IBV_QPS_RTS;
}

static void do_reset(void)
{
	int pair = (int)pick((uint32_t)w.eps) & ~1;

	if (is_working(&w.ep[pair]) && (pair + 1 == w.eps || is_working(&w.ep[pair + 1])) &&
	    !one_in(20))
		return;
	for (int i = pair; i < pair + 2 && i < w.eps; i++) {
		struct model_ep *e = &w.ep[i];

		if (!e->ep || e->closed)
			continue;
		if (sgp_ep_reset(e->ep)) {
			CHECK(w.faulty || w.removed);
			continue;
		}
		w.count.resets++;
		if (sgp_ep_qp(e->ep)->state == IBV_QPS_RESET)
			start_endpoint(e);
	}
	connect_endpoints(pair);
}

/* The connection breaks, in one of the ways in which the endpoint hears of it or not. */
static void do_break(void)
{
	struct model_ep *e = some_ep();
	struct rdma_cm_event event = {.event = RDMA_CM_EVENT_DISCONNECTED};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	if (!e || e->closed)
		return;
	if (one_in(2))
		(void)ibv_modify_qp(sgp_ep_qp(e->ep), &attr, IBV_QP_STATE);
	else
		CHECK(sgp_ep_event(e->ep, &event) == 0);
}

static void do_submit(void)
{
	struct model_ep *e = some_ep();

	if (!e)
		return;
	if (one_in(2) ? sgp_ep_submit(e->ep) : sgp_ep_sync(e->ep))
		CHECK(w.faulty || w.removed || errno == ESHUTDOWN || errno == EAGAIN);
}

static void do_sleep(void)
{
	if (sgp_cq_arm(w.cq))
		CHECK(w.faulty);
	pass_time(1000u << pick(16));
	take_events();
}

static void do_put(void)
{
	if (w.nheld)
		drop_held((int)pick((uint32_t)w.nheld));
}

static void do_remove(void)
{
	if (w.removed || !one_in(200))
		return;
	CHECK(sv_device_remove(w.device) == 0);
	w.removed = true;
	take_events();
}

/* More completions at once than the queue has room for, where there is no room for duplicates. */
static void do_overrun(void)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	if (!w.small_cq || !one_in(15))
		return;
	w.faulty = true;
	CHECK(sv_faults("completion duplicate", NULL) == 0);
	for (int i = 0; i < w.eps; i++)
		if (w.ep[i].ep && !w.ep[i].closed)
			(void)ibv_modify_qp(sgp_ep_qp(w.ep[i].ep), &attr, IBV_QP_STATE);
	take_events();
}

void random_operation(void)
{
	static const struct {
		unsigned int weight;
		void (*what)(void);
	} menu[] = {
		{260, do_recv},  {260, do_send}, {240, do_poll},   {40, do_forward},
		{50, do_cancel}, {30, do_put},   {20, do_submit},  {20, do_sleep},
		{3, do_break},   {8, do_close},  {40, do_destroy}, {60, do_reset},
		{4, new_faults}, {1, do_remove}, {4, do_overrun},
	};
	unsigned int all = 0, n;

	for (size_t i = 0; i < sizeof menu / sizeof *menu; i++)
		all += menu[i].weight;
	n = pick(all);
	for (size_t i = 0; i < sizeof menu / sizeof *menu; i++) {
		if (n < menu[i].weight) {
			menu[i].what();
			return;
		}
		n -= menu[i].weight;
	}
}
