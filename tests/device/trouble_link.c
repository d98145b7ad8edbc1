/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections of the trouble program: made, ended, and made again. */
#include <endian.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "trouble.h"

enum {
	RESOLVE_MS = 2000,
	RESOLVE_TRIES = 15,
	CONNECT_MS = 6000,
	CLOSE_MS = 500,
	BATCH = 16,
};

/* ---- for as long as the program runs ---- */

static void resolve_name(const struct end *e, struct addrinfo **ai)
{
	const struct addrinfo hints = {.ai_family = AF_INET, .ai_flags = AI_NUMERICHOST};

	if (getaddrinfo(e->addr, e->port, &hints, ai))
		die("%s port %s is no address", e->addr, e->port);
}

/* Wait for an event of this type. Returns false when another one, or none, comes. */
static bool await(struct end *e, enum rdma_cm_event_type type, int ms, struct rdma_cm_event **event)
{
	struct pollfd pfd = {.fd = e->channel->fd, .events = POLLIN};

	if (poll(&pfd, 1, ms) != 1 || rdma_get_cm_event(e->channel, event))
		return false;
	if ((*event)->event == type)
		return true;
	end_connection(e, rdma_event_str((*event)->event));
	rdma_ack_cm_event(*event);
	return false;
}

static bool await_plain(struct end *e, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;

	return await(e, type, RESOLVE_MS, &event) && !rdma_ack_cm_event(event);
}

static bool resolve(struct end *e, struct rdma_cm_id **id)
{
	struct addrinfo *ai;
	bool ok;

	resolve_name(e, &ai);
	if (rdma_create_id(e->channel, id, NULL, RDMA_PS_TCP))
		die("rdma_create_id: %s", strerror(errno));
	ok = !rdma_resolve_addr(*id, NULL, ai->ai_addr, RESOLVE_MS) &&
	     await_plain(e, RDMA_CM_EVENT_ADDR_RESOLVED) && !rdma_resolve_route(*id, RESOLVE_MS) &&
	     await_plain(e, RDMA_CM_EVENT_ROUTE_RESOLVED);
	freeaddrinfo(ai);
	/* While the link is down, the route may lead elsewhere. */
	if (ok && (!e->anchor || e->anchor == *id || (*id)->verbs == e->anchor->verbs))
		return true;
	rdma_destroy_id(*id);
	*id = NULL;
	return false;
}

static void listen_here(struct end *e)
{
	struct addrinfo *ai;

	resolve_name(e, &ai);
	if (rdma_create_id(e->channel, &e->anchor, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(e->anchor, ai->ai_addr) || rdma_listen(e->anchor, 4))
		die("can't listen: %s", strerror(errno));
	freeaddrinfo(ai);
}

void link_open(struct end *e)
{
	const uint32_t kept = e->depth + SGP_FLOW_RESERVE + 1; /* for receives and an update */
	const struct sgp_class_attr class = {
		.size = e->bytes, .chunks = kept + e->spare, .reserve = kept};
	const struct sgp_pool_attr pool = {
		.classes = &class, .nclasses = 1, .pages = SGP_PAGES_BASE};
	/* Two connections' worth: a closed one's room comes back with an empty poll only. */
	const struct sgp_cq_attr cq = {.cqe = 2 * (int)(2 * e->depth + SGP_FLOW_RESERVE)};

	e->channel = rdma_create_event_channel();
	if (!e->channel)
		die("no event channel: %s", strerror(errno));
	if (e->serves)
		listen_here(e);
	for (int i = 0; !e->anchor && !resolve(e, &e->anchor); i++)
		if (i == RESOLVE_TRIES)
			die("%s can't be resolved: %s", e->addr, e->why ? e->why : "time out");
	e->pd = ibv_alloc_pd(e->anchor->verbs);
	e->pool = e->pd ? sgp_pool_create(e->pd, &pool) : NULL;
	e->cq = e->pool ? sgp_cq_create(e->anchor->verbs, &cq) : NULL;
	e->wc = e->cq ? sgp_wc_alloc(e->cq, BATCH) : NULL;
	if (!e->wc)
		die("no pool or queue: %s", sgp_errmsg());
}

void link_end(struct end *e)
{
	struct sgp_pool_stats stats;

	sgp_wc_free(e->wc);
	sgp_pool_stats(e->pool, &stats);
	if (stats.registrations != 1 || stats.live)
		die("%llu registrations, %llu chunks out", (unsigned long long)stats.registrations,
		    (unsigned long long)stats.live);
	if (sgp_cq_destroy(e->cq) || sgp_pool_destroy(e->pool) || ibv_dealloc_pd(e->pd))
		die("the end: %s", sgp_errmsg());
	rdma_destroy_id(e->anchor);
	rdma_destroy_event_channel(e->channel);
}

/* ---- a connection ---- */

void link_post_receives(struct end *e)
{
	while (e->lacking) {
		struct sgp_chunk *chunk = sgp_pool_get(e->pool, e->bytes, SGP_GET_RESERVED);

		if (!chunk)
			return; /* one of ours is on its way: its completion brings it */
		if (sgp_post_recv(e->ep, NULL, chunk, 0, e->bytes)) {
			sgp_chunk_put(chunk);
			end_connection(e, "a receive was refused");
			return;
		}
		e->lacking--;
		if (e->flow.used + e->flow.used_slots && sgp_flow_posted(&e->flow, 1))
			die("flow: %s", sgp_errmsg());
	}
}

/* Queues over an id, with all receives posted. Returns whether it worked. */
static bool set_up(struct end *e, struct rdma_cm_id *id)
{
	const struct sgp_ep_attr attr = {.cq = e->cq,
					 .pd = e->pd,
					 .cap = {.max_send_wr = e->depth,
						 .max_recv_wr = e->depth + SGP_FLOW_RESERVE,
						 .max_send_sge = 1,
						 .max_recv_sge = 1}};
	struct sgp_flow_attr flow = {.pool = e->pool, .depth = e->depth, .bytes = e->bytes};

	e->id = id;
	e->over = false;
	e->why = NULL;
	e->moved = now_ms();
	e->echo_first = e->echo_last = 0;
	for (int i = 0; i < TROUBLE_DEPTH; i++)
		sgp_sgl_init(&e->echo[i].sgl, e->echo[i].sge, 1, e->echo[i].chunk, 1);
	flow.ep = e->ep = sgp_ep_create(id, &attr);
	if (!e->ep || sgp_flow_init(&e->flow, &flow)) {
		fprintf(stderr, "no endpoint: %s\n", sgp_errmsg());
		return false;
	}
	e->lacking = e->depth + SGP_FLOW_RESERVE;
	link_post_receives(e);
	if (e->lacking)
		die("receives can't be posted: %s", sgp_errmsg());
	return true;
}

/* What is said beside the flow's hello: which run, and the first message that is not settled. */
static void make_param(const struct end *e, uint8_t hello[TROUBLE_HELLO],
		       struct rdma_conn_param *param)
{
	const uint32_t run = htobe32(e->run);
	const uint64_t number = htobe64(e->serves ? e->next : e->answered);

	sgp_flow_hello(&e->flow, hello);
	memcpy(hello + SGP_FLOW_HELLO, &run, sizeof run);
	memcpy(hello + SGP_FLOW_HELLO + 4, &number, sizeof number);
	/* No retry of a receiver that is not ready: with credits there is none. */
	*param = (struct rdma_conn_param){.private_data = hello,
					  .private_data_len = TROUBLE_HELLO,
					  .responder_resources = 1,
					  .initiator_depth = 1,
					  .retry_count = 7,
					  .rnr_retry_count = 0};
}

static void greet(struct end *e, const struct rdma_cm_event *event, uint32_t *run, uint64_t *number)
{
	const struct rdma_conn_param *param = &event->param.conn;
	const uint8_t *at = param->private_data;

	if (param->private_data_len < TROUBLE_HELLO ||
	    sgp_flow_greet(&e->flow, at, param->private_data_len))
		die("this is no peer of ours: %s", sgp_errmsg());
	memcpy(run, at + SGP_FLOW_HELLO, sizeof *run);
	memcpy(number, at + SGP_FLOW_HELLO + 4, sizeof *number);
	*run = be32toh(*run);
	*number = be64toh(*number);
}

bool link_connect(struct end *e)
{
	struct rdma_cm_event *event;
	struct rdma_conn_param param;
	uint8_t hello[TROUBLE_HELLO];
	struct rdma_cm_id *id;
	uint64_t number;
	uint32_t run;

	if (!resolve(e, &id))
		return false;
	if (!set_up(e, id))
		goto failed;
	make_param(e, hello, &param);
	if (rdma_connect(id, &param) || !await(e, RDMA_CM_EVENT_ESTABLISHED, CONNECT_MS, &event))
		goto failed;
	greet(e, event, &run, &number);
	sgp_ep_event(e->ep, event);
	rdma_ack_cm_event(event);
	/* What it has had, of what we have sent, is neither more nor less than can be. */
	if (run != e->run || number < e->answered || number > e->next)
		die("the other end wants message %llu, but %llu to %llu are open",
		    (unsigned long long)number, (unsigned long long)e->answered,
		    (unsigned long long)e->next);
	e->resumed += number - e->answered;
	e->answered = e->next = number;
	e->connections++;
	e->moved = now_ms();
	return true;
failed:
	e->refused++;
	link_close(e);
	return false;
}

/* A client asks. Who was served before is gone, whether we have heard of it or not. */
static void accept_client(struct end *e, const struct rdma_cm_event *event)
{
	struct rdma_conn_param param;
	uint8_t hello[TROUBLE_HELLO];
	uint64_t number;
	uint32_t run;

	end_connection(e, "another client asks");
	link_close(e);
	if (!set_up(e, event->id)) {
		rdma_reject(event->id, NULL, 0);
		goto failed;
	}
	greet(e, event, &run, &number);
	if (run != e->run)
		e->next = number;
	e->run = run;
	make_param(e, hello, &param);
	if (rdma_accept(event->id, &param))
		goto failed;
	e->connections++;
	return;
failed:
	e->refused++;
	end_connection(e, "could not be accepted");
}

static void handle(struct end *e, const struct rdma_cm_event *event)
{
	if (event->id != e->id)
		return;
	sgp_ep_event(e->ep, event);
	if (event->event != RDMA_CM_EVENT_ESTABLISHED)
		end_connection(e, rdma_event_str(event->event));
}

void link_events(struct end *e)
{
	struct pollfd pfd = {.fd = e->channel->fd, .events = POLLIN};

	while (poll(&pfd, 1, 0) == 1) {
		struct rdma_cm_event *event, copy;
		uint8_t data[256];

		if (rdma_get_cm_event(e->channel, &event))
			return;
		/* An id can't go while its event isn't acknowledged: work on a copy. */
		copy = *event;
		if (copy.param.conn.private_data_len) {
			memcpy(data, copy.param.conn.private_data,
			       copy.param.conn.private_data_len);
			copy.param.conn.private_data = data;
		}
		rdma_ack_cm_event(event);
		if (copy.event == RDMA_CM_EVENT_CONNECT_REQUEST)
			accept_client(e, &copy);
		else
			handle(e, &copy);
	}
}

static void check_all_home(struct end *e)
{
	struct sgp_pool_stats stats;

	sgp_pool_stats(e->pool, &stats);
	if (stats.live || stats.free != stats.chunks)
		die("after a connection %llu of %llu chunks are out",
		    (unsigned long long)stats.live, (unsigned long long)stats.chunks);
}

void link_close(struct end *e)
{
	int n;

	if (!e->id)
		return;
	if (e->ep) {
		rdma_disconnect(e->id);
		if (sgp_ep_close(e->ep, CLOSE_MS))
			die("close: %s", sgp_errmsg());
		while ((n = sgp_poll(e->cq, BATCH, e->wc)) > 0)
			for (int i = 0; i < n; i++)
				sgp_sgl_clear(&e->wc[i].sgl);
		if (n < 0 || sgp_ep_destroy(e->ep))
			die("destroy: %s", sgp_errmsg());
	}
	for (; e->echo_first != e->echo_last; e->echo_first++)
		sgp_sgl_clear(&e->echo[e->echo_first % TROUBLE_DEPTH].sgl);
	rdma_destroy_id(e->id);
	e->ep = NULL;
	e->id = NULL;
	check_all_home(e);
}
