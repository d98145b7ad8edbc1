/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "pair.h"

#define MS 30000

static void expect(struct rdma_event_channel *events, enum rdma_cm_event_type type,
		   struct rdma_cm_id **id, struct sgp_ep *ep)
{
	struct rdma_cm_event *event;

	NEED(!rdma_get_cm_event(events, &event), "errno %d", errno);
	NEED(event->event == type, "%s, and not %s", rdma_event_str(event->event),
	     rdma_event_str(type));
	if (id)
		*id = event->id;
	if (ep)
		DO(sgp_ep_event(ep, event));
	DO(rdma_ack_cm_event(event));
}

static struct sockaddr_in in(const char *addr)
{
	struct sockaddr_in sin = {.sin_family = AF_INET};

	NEED(inet_pton(AF_INET, addr, &sin.sin_addr) == 1, "%s", addr);
	return sin;
}

void pair_resolve(struct pair *pair, const char *addr)
{
	struct sockaddr_in sin = in(addr);
	struct rdma_cm_id *id;

	memset(pair, 0, sizeof *pair);
	for (int i = 0; i < 2; i++)
		NEED((pair->side[i].events = rdma_create_event_channel()), "errno %d", errno);
	DO(rdma_create_id(pair->side[1].events, &pair->listener, NULL, RDMA_PS_TCP));
	DO(rdma_bind_addr(pair->listener, (struct sockaddr *)&sin));
	DO(rdma_listen(pair->listener, 1));
	sin.sin_port = rdma_get_src_port(pair->listener);
	DO(rdma_create_id(pair->side[0].events, &pair->side[0].id, NULL, RDMA_PS_TCP));
	id = pair->side[0].id;
	DO(rdma_resolve_addr(id, NULL, (struct sockaddr *)&sin, MS));
	expect(pair->side[0].events, RDMA_CM_EVENT_ADDR_RESOLVED, NULL, NULL);
	DO(rdma_resolve_route(id, MS));
	expect(pair->side[0].events, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL, NULL);
	pair->name = ibv_get_device_name(id->verbs->device);
	pair->iwarp = id->verbs->device->transport_type == IBV_TRANSPORT_IWARP;
	NEED((pair->pd = ibv_alloc_pd(id->verbs)), "errno %d", errno);
}

static void make_side(struct pair *pair, int end)
{
	struct sgp_cq_attr cq = {.cqe = 16};
	struct sgp_ep_attr ep = {.pd = pair->pd,
				 .cap = {.max_send_wr = 8,
					 .max_recv_wr = 8,
					 .max_send_sge = PAIR_SGES,
					 .max_recv_sge = PAIR_SGES}};
	struct rdma_cm_id *id = pair->side[end].id;

	pair->side[end].cq = sgp_cq_create(id->verbs, &cq);
	NEED(pair->side[end].cq, "%s", sgp_errmsg());
	pair->side[end].wc = sgp_wc_alloc(pair->side[end].cq, 1);
	ep.cq = pair->side[end].cq;
	pair->side[end].ep = sgp_ep_create(id, &ep);
	NEED(pair->side[end].wc && pair->side[end].ep, "%s", sgp_errmsg());
}

void pair_connect(struct pair *pair)
{
	struct rdma_conn_param param = {.responder_resources = 1,
					.initiator_depth = 1,
					.rnr_retry_count = 7,
					.retry_count = 7};

	make_side(pair, 0);
	DO(rdma_connect(pair->side[0].id, &param));
	expect(pair->side[1].events, RDMA_CM_EVENT_CONNECT_REQUEST, &pair->side[1].id, NULL);
	make_side(pair, 1);
	DO(rdma_accept(pair->side[1].id, &param));
	expect(pair->side[0].events, RDMA_CM_EVENT_ESTABLISHED, NULL, pair->side[0].ep);
	expect(pair->side[1].events, RDMA_CM_EVENT_ESTABLISHED, NULL, pair->side[1].ep);
}

void pair_reap(struct pair *pair, int end)
{
	struct sgp_wc *wc = pair->side[end].wc;
	int n = sgp_wait(pair->side[end].cq, 1, wc, MS);

	NEED(n == 1, "%s, end %d: %s", pair->name, end, n ? sgp_errmsg() : "no completion");
	NEED(wc->status == IBV_WC_SUCCESS, "%s, end %d: %s", pair->name, end,
	     ibv_wc_status_str(wc->status));
	NEED(wc->ep == pair->side[end].ep, "another endpoint's");
}

void pair_close(struct pair *pair)
{
	for (int end = 0; end < 2; end++) {
		struct sgp_wc *wc = pair->side[end].wc;

		DO(sgp_ep_close(pair->side[end].ep, MS));
		while (sgp_poll(pair->side[end].cq, 1, wc) > 0)
			;
		DO(sgp_ep_destroy(pair->side[end].ep));
		sgp_wc_free(wc);
		DO(sgp_cq_destroy(pair->side[end].cq));
	}
	/* An identifier waits for its events to be acknowledged; nobody has asked for the last ones. */
	for (int end = 0; end < 2; end++)
		DO(rdma_destroy_id(pair->side[end].id));
	DO(rdma_destroy_id(pair->listener));
	for (int end = 0; end < 2; end++)
		rdma_destroy_event_channel(pair->side[end].events);
}
