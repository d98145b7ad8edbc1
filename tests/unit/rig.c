/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>

#include "../asserts.h"
#include "rig.h"

#define TIMEOUT_MS 60000

void rig_expect_event(struct rdma_event_channel *events, enum rdma_cm_event_type type,
		      struct rdma_cm_id **id, struct sgp_ep *ep)
{
	struct pollfd pfd = {.fd = events->fd, .events = POLLIN};
	struct rdma_cm_event *event;

	ck_assert_int_eq(poll(&pfd, 1, TIMEOUT_MS), 1);
	ck_assert_int_eq(rdma_get_cm_event(events, &event), 0);
	ck_assert_str_eq(rdma_event_str(event->event), rdma_event_str(type));
	if (id)
		*id = event->id;
	if (ep)
		ck_assert_int_eq(sgp_ep_event(ep, event), 0);
	ck_assert_int_eq(rdma_ack_cm_event(event), 0);
}

static void make_side(struct rig *rig, struct rig_side *side)
{
	const struct rig_attr *a = &rig->attr;
	struct sgp_class_attr classes[] = {
		{.size = a->chunk_size, .chunks = a->chunks, .reserve = a->reserve},
		{.size = 64, .chunks = a->small}};
	struct sgp_pool_attr pool = {.classes = classes,
				     .nclasses = a->small ? 2 : 1,
				     .flags = a->pool_flags,
				     .pages = SGP_PAGES_BASE};
	struct sgp_cq_attr cq = {.cqe = a->cqe, .flags = a->cq_flags, .max_sge = a->cq_sge};
	struct sgp_ep_attr ep = {.cap = {.max_send_wr = a->depth,
					 .max_recv_wr = a->depth,
					 .max_send_sge = a->max_sge,
					 .max_recv_sge = a->max_sge,
					 .max_inline_data = a->max_inline}};

	side->pd = ibv_alloc_pd(side->id->verbs);
	ck_assert_ptr_nonnull(side->pd);
	side->pool = a->pool ? a->pool : sgp_pool_create(side->pd, &pool);
	ck_assert_msg(side->pool != NULL, "%s", sgp_errmsg());
	if (a->pool)
		ck_assert_msg(!sgp_pool_add_pd(a->pool, side->pd), "%s", sgp_errmsg());
	side->cq = sgp_cq_create(side->id->verbs, &cq);
	ck_assert_msg(side->cq != NULL, "%s", sgp_errmsg());
	side->wc = sgp_wc_alloc(side->cq, RIG_WC);
	ck_assert_ptr_nonnull(side->wc);
	ep.cq = side->cq;
	ep.pd = side->pd;
	side->number = side != &rig->side[0];
	if (a->tune)
		a->tune(side, &ep);
	side->ep = sgp_ep_create(side->id, &ep);
	ck_assert_msg(side->ep != NULL, "%s", sgp_errmsg());
}

void rig_prepare(struct rig *rig, const struct rig_attr *attr)
{
	struct sockaddr_in addr = {.sin_family = AF_INET};
	struct rdma_conn_param param = {.responder_resources = 4,
					.initiator_depth = 4,
					.rnr_retry_count = 7,
					.retry_count = 7};
	struct rig_side *a = &rig->side[0], *b = &rig->side[1];

	memset(rig, 0, sizeof *rig);
	if (attr)
		rig->attr = *attr;
	if (!rig->attr.chunk_size)
		rig->attr.chunk_size = 4096;
	if (!rig->attr.chunks)
		rig->attr.chunks = 32;
	if (!rig->attr.depth)
		rig->attr.depth = 8;
	if (!rig->attr.max_sge)
		rig->attr.max_sge = 4;
	if (!rig->attr.cqe)
		rig->attr.cqe = 2 * (int)rig->attr.depth;

	ck_assert_int_eq(
		inet_pton(AF_INET, attr && attr->addr ? attr->addr : "127.0.0.1", &addr.sin_addr),
		1);
	rig->listen_events = rdma_create_event_channel();
	a->events = rdma_create_event_channel();
	ck_assert(rig->listen_events && a->events);
	ck_assert_int_eq(rdma_create_id(rig->listen_events, &rig->listen_id, NULL, RDMA_PS_TCP), 0);
	ck_assert_int_eq(rdma_bind_addr(rig->listen_id, (struct sockaddr *)&addr), 0);
	ck_assert_int_eq(rdma_listen(rig->listen_id, 4), 0);
	addr.sin_port = rdma_get_src_port(rig->listen_id);

	ck_assert_int_eq(rdma_create_id(a->events, &a->id, NULL, RDMA_PS_TCP), 0);
	ck_assert_int_eq(rdma_resolve_addr(a->id, NULL, (struct sockaddr *)&addr, TIMEOUT_MS), 0);
	rig_expect_event(a->events, RDMA_CM_EVENT_ADDR_RESOLVED, NULL, NULL);
	ck_assert_int_eq(rdma_resolve_route(a->id, TIMEOUT_MS), 0);
	rig_expect_event(a->events, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL, NULL);
	make_side(rig, a);
	param.rnr_retry_count = (uint8_t)(rig->attr.rnr_retry ? rig->attr.rnr_retry : 7);
	ck_assert_int_eq(rdma_connect(a->id, &param), 0);
	rig_expect_event(rig->listen_events, RDMA_CM_EVENT_CONNECT_REQUEST, &b->id, NULL);
	make_side(rig, b);
}

void rig_connect(struct rig *rig)
{
	struct rdma_conn_param param = {.responder_resources = 4,
					.initiator_depth = 4,
					.rnr_retry_count = 7,
					.retry_count = 7};
	struct rig_side *a = &rig->side[0], *b = &rig->side[1];

	ck_assert_int_eq(rdma_accept(b->id, &param), 0);
	rig_expect_event(a->events, RDMA_CM_EVENT_ESTABLISHED, NULL, a->ep);
	rig_expect_event(rig->listen_events, RDMA_CM_EVENT_ESTABLISHED, NULL, b->ep);
}

void rig_open(struct rig *rig, const struct rig_attr *attr)
{
	rig_prepare(rig, attr);
	rig_connect(rig);
}

int rig_close_ep(struct rig_side *side)
{
	int polled = 0, n;

	ck_assert_int_eq(sgp_ep_close(side->ep, 100), 0);
	while ((n = sgp_poll(side->cq, RIG_WC, side->wc)) > 0) {
		for (int i = 0; i < n; i++)
			sgp_sgl_clear(&side->wc[i].sgl);
		polled += n;
	}
	ck_assert_int_eq(n, 0);
	ck_assert_int_eq(sgp_ep_destroy(side->ep), 0);
	ck_assert_int_eq(rdma_destroy_id(side->id), 0);
	side->ep = NULL;
	side->id = NULL;
	return polled;
}

static void close_side(struct rig *rig, struct rig_side *side)
{
	if (side->ep)
		rig_close_ep(side);
	sgp_wc_free(side->wc);
	ck_assert_int_eq(sgp_cq_destroy(side->cq), 0);
	if (rig->attr.pool) {
		ck_assert_msg(!sgp_pool_remove_pd(side->pool, side->pd), "%s", sgp_errmsg());
	} else {
		rig_check_live(side, 0);
		ck_assert_int_eq(sgp_pool_destroy(side->pool), 0);
	}
	ck_assert_int_eq(ibv_dealloc_pd(side->pd), 0);
	if (side->events)
		rdma_destroy_event_channel(side->events);
}

/* Events that nobody waits for any more: identifiers can't go while one is unacknowledged. */
static void drop_events(struct rdma_event_channel *events)
{
	struct pollfd pfd = {.fd = events->fd, .events = POLLIN};
	struct rdma_cm_event *event;

	while (poll(&pfd, 1, 0) == 1 && !rdma_get_cm_event(events, &event))
		rdma_ack_cm_event(event);
}

void rig_close(struct rig *rig)
{
	drop_events(rig->side[0].events);
	drop_events(rig->listen_events);
	close_side(rig, &rig->side[0]);
	close_side(rig, &rig->side[1]);
	ck_assert_int_eq(rdma_destroy_id(rig->listen_id), 0);
	rdma_destroy_event_channel(rig->listen_events);
}

void rig_check_live(struct rig_side *side, uint64_t live)
{
	struct sgp_pool_stats stats;

	ck_assert_int_eq(sgp_pool_stats(side->pool, &stats), 0);
	ck_assert_uint_eq(stats.live, live);
	ck_assert_uint_eq(stats.free + stats.live, stats.chunks);
}

struct sgp_chunk *rig_chunk(struct rig_side *side, int byte)
{
	struct sgp_chunk *chunk = sgp_pool_get(side->pool, 1, 0);

	ck_assert_msg(chunk != NULL, "%s", sgp_errmsg());
	memset(sgp_chunk_addr(chunk), byte, sgp_chunk_size(chunk));
	return chunk;
}

static void list_of_one(struct rig_side *side, struct sgp_sgl *sgl, int byte)
{
	struct sgp_chunk *chunk = rig_chunk(side, byte);

	ck_assert_int_eq(sgp_sgl_append(sgl, chunk, 0, sgp_chunk_size(chunk)), 0);
}

/* One assertion for all: Check makes each a write to a file. */
void rig_check_bytes(const struct sgp_sgl *sgl, int byte)
{
	int wrong = 0;

	for (int i = 0; i < sgl->num_sge; i++) {
		const char *at = (const char *)(uintptr_t)sgl->sge[i].addr;

		for (uint32_t j = 0; j < sgl->sge[i].length; j++)
			wrong += at[j] != (char)byte;
	}
	ck_assert_int_eq(wrong, 0);
}

void rig_post_recv(struct rig_side *side, void *context)
{
	SGP_SGL(sgl, 1);

	list_of_one(side, &sgl, 0);
	ck_assert_msg(!sgp_post_recvv(side->ep, context, &sgl), "%s", sgp_errmsg());
	ck_assert_int_eq(sgl.num_chunk, 0);
}

void rig_post_send(struct rig_side *side, void *context, int byte)
{
	SGP_SGL(sgl, 1);

	list_of_one(side, &sgl, byte);
	ck_assert_msg(!sgp_post_sendv(side->ep, context, &sgl, IBV_SEND_SIGNALED), "%s",
		      sgp_errmsg());
	ck_assert_int_eq(sgl.num_chunk, 0);
}

void rig_reap(struct rig_side *side, int n)
{
	int got = 0;

	ck_assert_int_le(n, RIG_WC);
	while (got < n) {
		int k = sgp_wait(side->cq, n - got, side->wc + got, TIMEOUT_MS);

		ck_assert_msg(k > 0, "%d of %d completions: %s", got, n,
			      k ? sgp_errmsg() : "time out");
		got += k;
	}
}

void rig_idle(struct rig_side *side)
{
	for (int i = 0; i < 5000; i++)
		ck_assert_int_eq(sgp_poll(side->cq, RIG_WC, side->wc), 0);
}

void rig_check_no_leak(void)
{
	for (int what = SV_PDS; what < SV_NCOUNTERS; what++)
		ck_assert_msg(sv_live((enum sv_counter)what) == 0, "%d objects of kind %d left",
			      sv_live((enum sv_counter)what), what);
}
