/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections within one process: the asynchronous flow in one thread, the synchronous one in two.
 */
#ifndef TESTS_SOFTVERBS_CM_RIG_H
#define TESTS_SOFTVERBS_CM_RIG_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_verbs.h>
#include <stdlib.h>
#include <string.h>
#include <sgpool/softverbs.h>

#include "../asserts.h"

static struct rdma_event_channel *ch;

static inline struct sockaddr_in at(const char *ip, uint16_t port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};

	ck_assert_int_eq(inet_pton(AF_INET, ip, &a.sin_addr), 1);
	return a;
}

static inline struct rdma_cm_event *event(enum rdma_cm_event_type type, struct rdma_cm_id *id)
{
	struct pollfd p = {.fd = ch->fd, .events = POLLIN};
	struct rdma_cm_event *e;

	ck_assert_msg(poll(&p, 1, 60000) == 1, "no %s", rdma_event_str(type));
	ck_assert_int_eq(rdma_get_cm_event(ch, &e), 0);
	ck_assert_msg(e->event == type, "%s, not %s", rdma_event_str(e->event),
		      rdma_event_str(type));
	if (id)
		ck_assert_ptr_eq(e->id, id);
	return e;
}

static inline void ack(enum rdma_cm_event_type type, struct rdma_cm_id *id, int status)
{
	struct rdma_cm_event *e = event(type, id);

	ck_assert_int_eq(e->status, status);
	ck_assert_int_eq(rdma_ack_cm_event(e), 0);
}

static inline void no_event(void)
{
	struct pollfd p = {.fd = ch->fd, .events = POLLIN};

	ck_assert_int_eq(poll(&p, 1, 0), 0);
}

static inline struct rdma_cm_id *listener(uint16_t port, int backlog)
{
	struct sockaddr_in a = at("0.0.0.0", port);
	struct rdma_cm_id *id;

	ck_assert_int_eq(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP), 0);
	ck_assert_int_eq(rdma_bind_addr(id, (struct sockaddr *)&a), 0);
	ck_assert_int_eq(rdma_listen(id, backlog), 0);
	return id;
}

static inline struct rdma_cm_id *routed(const char *ip, uint16_t port)
{
	struct sockaddr_in a = at(ip, port);
	struct rdma_cm_id *id;

	ck_assert_int_eq(rdma_create_id(ch, &id, (void *)&ch, RDMA_PS_TCP), 0);
	ck_assert_int_eq(rdma_resolve_addr(id, NULL, (struct sockaddr *)&a, 1000), 0);
	ack(RDMA_CM_EVENT_ADDR_RESOLVED, id, 0);
	ck_assert_ptr_nonnull(id->verbs);
	ck_assert_ptr_nonnull(id->pd);
	ck_assert_int_eq(rdma_resolve_route(id, 1000), 0);
	ack(RDMA_CM_EVENT_ROUTE_RESOLVED, id, 0);
	return id;
}

static inline void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RC, .cap = {8, 8, 2, 2, 64}};

	ck_assert_int_eq(rdma_create_qp(id, NULL, &a), 0);
}

/* A connection with "hi" one way and "there" the other way. */
static inline void join(struct rdma_cm_id *l, struct rdma_cm_id *a, struct rdma_cm_id **b)
{
	struct rdma_conn_param p = {.private_data = "hi",
				    .private_data_len = 3,
				    .responder_resources = 2,
				    .initiator_depth = 1,
				    .retry_count = 5,
				    .rnr_retry_count = 7};
	struct rdma_cm_id *first;
	struct rdma_cm_event *e;

	make_qp(a);
	ck_assert_int_eq(rdma_connect(a, &p), 0);
	e = event(RDMA_CM_EVENT_CONNECT_REQUEST, NULL);
	ck_assert_ptr_eq(e->listen_id, l);
	ck_assert_str_eq(e->param.conn.private_data, "hi");
	ck_assert_uint_eq(e->param.conn.initiator_depth, 2);
	ck_assert_uint_eq(e->param.conn.responder_resources, 1);
	*b = e->id;
	ck_assert_int_eq(rdma_ack_cm_event(e), 0);
	ck_assert_ptr_eq((*b)->channel, ch);
	make_qp(*b);
	p.private_data = "there";
	p.private_data_len = 6;
	p.initiator_depth = 2;
	p.responder_resources = 1;
	ck_assert_int_eq(rdma_accept(*b, &p), 0);
	/* On iWARP who accepts is told first. */
	e = event(RDMA_CM_EVENT_ESTABLISHED, NULL);
	first = e->id;
	ck_assert(first == a || first == *b);
	if (first == a)
		ck_assert_str_eq(e->param.conn.private_data, "there");
	ck_assert_int_eq(rdma_ack_cm_event(e), 0);
	ack(RDMA_CM_EVENT_ESTABLISHED, first == a ? *b : a, 0);
	no_event();
}

static inline void drop(struct rdma_cm_id *id)
{
	if (id->qp)
		rdma_destroy_qp(id);
	ck_assert_int_eq(rdma_destroy_id(id), 0);
}

static inline void setup(void)
{
	ch = rdma_create_event_channel();
	ck_assert_ptr_nonnull(ch);
}

static inline void teardown(void)
{
	rdma_destroy_event_channel(ch);
	for (int i = 0; i < SV_NCOUNTERS; i++)
		ck_assert_msg(sv_live((enum sv_counter)i) == 0, "counter %d: %d alive", i,
			      sv_live((enum sv_counter)i));
}

#endif
