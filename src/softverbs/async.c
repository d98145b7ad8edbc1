/* SPDX-License-Identifier: BSD-2-Clause */
/* Asynchronous events: a queue per context, readable at context->async_fd. */
#include "softverbs/net.h"

static void post(struct sw_context *ctx, const struct ibv_async_event *ev)
{
	struct sw_async *a = malloc(sizeof *a);

	if (!a)
		return; /* as a kernel without memory: the event is lost */
	a->ev = *ev;
	sw_list_append(&ctx->async, &a->link);
	sw_pollq_add(&ctx->async_q);
}

void sw_async_cq(struct sw_cq *cq, enum ibv_event_type type)
{
	struct ibv_async_event ev = {.event_type = type};

	ev.element.cq = ibv_cq_ex_to_cq(&cq->ibv);
	post(sw_ctx(cq->ibv.context), &ev);
}

void sw_async_qp(struct sw_qp *qp, enum ibv_event_type type)
{
	struct ibv_async_event ev = {.event_type = type};

	ev.element.qp = &qp->ibv.qp_base;
	post(sw_ctx(qp->ibv.qp_base.context), &ev);
}

void sw_async_srq(struct sw_srq *srq, enum ibv_event_type type)
{
	struct ibv_async_event ev = {.event_type = type};

	ev.element.srq = &srq->ibv;
	post(sw_ctx(srq->ibv.context), &ev);
}

void sw_async_device(struct sw_context *ctx, enum ibv_event_type type)
{
	struct ibv_async_event ev = {.event_type = type};

	post(ctx, &ev);
}

void sw_async_port(struct sw_device *dev, int port, enum ibv_event_type type)
{
	struct ibv_async_event ev = {.event_type = type};
	struct sw_list *l;

	ev.element.port_num = port;
	sw_each (l, &dev->contexts)
		post(sw_outer(l, struct sw_context, link), &ev);
}

/* The counter of fetched events, and that of acknowledged ones, of the object an event is about. */
static bool counters(const struct ibv_async_event *ev, unsigned int **got, uint32_t **acked)
{
	switch (ev->event_type) {
	case IBV_EVENT_CQ_ERR:
		*got = &sw_cq(ev->element.cq)->async_got;
		*acked = &ev->element.cq->async_events_completed;
		return true;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		*got = &sw_srq(ev->element.srq)->async_got;
		*acked = &ev->element.srq->events_completed;
		return true;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		*got = &sw_qp(ev->element.qp)->async_got;
		*acked = &ev->element.qp->events_completed;
		return true;
	default:
		return false;
	}
}

int ibv_get_async_event(struct ibv_context *c, struct ibv_async_event *event)
{
	struct sw_context *ctx = sw_ctx(c);
	int err = SW_FAULT(get_async_event);
	unsigned int *got;
	uint32_t *acked;

	if (err)
		return sw_fail(err);
	sw_lock();
	while (sw_net_progress(), sw_due(), sw_list_empty(&ctx->async)) {
		sw_unlock();
		if (sw_pollq_wait(&ctx->async_q))
			return -1;
		sw_lock();
	}
	struct sw_async *a = sw_outer(ctx->async.next, struct sw_async, link);

	sw_list_del(&a->link);
	sw_pollq_sub(&ctx->async_q);
	*event = a->ev;
	if (counters(event, &got, &acked))
		++*got;
	sw_unlock();
	free(a);
	return 0;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	unsigned int *got;
	uint32_t *acked;

	sw_lock();
	if (counters(event, &got, &acked)) {
		++*acked;
		sw_wake();
	}
	sw_unlock();
}

void sw_async_forget(struct sw_context *ctx, const void *object, uint32_t *got, uint32_t *acked)
{
	struct sw_list *l, *n;

	sw_each_safe (l, n, &ctx->async) {
		struct sw_async *a = sw_outer(l, struct sw_async, link);
		unsigned int *g;
		uint32_t *k;

		if (!counters(&a->ev, &g, &k) || (const void *)a->ev.element.cq != object)
			continue;
		sw_list_del(l);
		sw_pollq_sub(&ctx->async_q);
		free(a);
	}
	if (*got != *acked)
		sw_strict(
			"an object goes while %u asynchronous events about it were fetched and %u "
			"acknowledged",
			*got, *acked);
	while (*got != *acked)
		sw_sleep();
}
