/* SPDX-License-Identifier: BSD-2-Clause */
/* One connection with its pools, see link.h. */
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "link.h"

#define RESOLVE_MS 5000
#define END_MS     3000 /* for the last events and completions of a connection that ends */

enum {
	SENDS = 16,
	RECVS = 2
};

int fail(const char *what)
{
	fprintf(stderr, "rping: %s\n", what);
	return -1;
}

int fail_sgp(const char *what)
{
	fprintf(stderr, "rping: %s: %s\n", what, sgp_errmsg());
	return -1;
}

int fail_sys(const char *what)
{
	fprintf(stderr, "rping: %s: %s\n", what, strerror(errno));
	return -1;
}

/* Take the next event of the connection manager. Returns its type; -1. */
static int take_event(struct link *l)
{
	struct rdma_cm_event *event;
	int type;

	if (rdma_get_cm_event(l->events, &event))
		return fail_sys("rdma_get_cm_event");
	type = event->event;
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
		l->id = event->id;
	/* The endpoint learns from events when it may send, and when it can't any more. */
	if (l->ep)
		sgp_ep_event(l->ep, event);
	if (type == RDMA_CM_EVENT_DISCONNECTED)
		l->gone = true;
	rdma_ack_cm_event(event);
	return type;
}

static int expect(struct link *l, enum rdma_cm_event_type want)
{
	int type = take_event(l);

	if (type < 0 || type == (int)want)
		return type < 0 ? -1 : 0;
	if (type == RDMA_CM_EVENT_REJECTED)
		return fail("nobody listens there; start the server first");
	if (type == RDMA_CM_EVENT_ADDR_ERROR || type == RDMA_CM_EVENT_ROUTE_ERROR)
		return fail("no RDMA device leads there; see 'sgpool doctor' and 'ip route get'");
	fprintf(stderr, "rping: %s came instead of %s\n",
		rdma_event_str((enum rdma_cm_event_type)type), rdma_event_str(want));
	return -1;
}

/* ---- the beginning ---- */

static int listen_for_one(struct link *l, struct sockaddr *addr)
{
	if (rdma_bind_addr(l->listener, addr) || rdma_listen(l->listener, 1))
		return fail_sys("can't listen");
	if (expect(l, RDMA_CM_EVENT_CONNECT_REQUEST))
		return -1;
	rdma_destroy_id(l->listener);
	l->listener = NULL;
	return 0;
}

static int resolve(struct link *l, struct sockaddr *addr)
{
	if (rdma_resolve_addr(l->id, NULL, addr, RESOLVE_MS))
		return fail_sys("rdma_resolve_addr");
	if (expect(l, RDMA_CM_EVENT_ADDR_RESOLVED))
		return -1;
	if (rdma_resolve_route(l->id, RESOLVE_MS))
		return fail_sys("rdma_resolve_route");
	return expect(l, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

/* As soon as the device is known: everything that is made on it. */
static int open_queues(struct link *l)
{
	struct sgp_ep_attr attr = {.cap = {.max_send_wr = SENDS, .max_recv_wr = RECVS}};

	l->pd = ibv_alloc_pd(l->id->verbs);
	if (!l->pd)
		return fail_sys("ibv_alloc_pd");
	l->cq = sgp_cq_create(l->id->verbs, &(struct sgp_cq_attr){.cqe = SENDS + RECVS});
	if (!l->cq)
		return fail_sgp("no completion queue");
	l->wc = sgp_wc_alloc(l->cq, 1);
	attr.cq = l->cq;
	attr.pd = l->pd;
	l->ep = l->wc ? sgp_ep_create(l->id, &attr) : NULL;
	if (!l->ep)
		return fail_sgp("no endpoint");
	return link_add_pool(l, LINK_MESSAGE, SENDS + RECVS, 0) ? 0 : -1;
}

int link_start(struct link *l, bool server, const char *addr, const char *port)
{
	struct addrinfo hints = {.ai_flags = server ? AI_PASSIVE : 0, .ai_socktype = SOCK_STREAM};
	struct addrinfo *to;
	int ret;

	*l = (struct link){.server = server};
	ret = getaddrinfo(addr, port, &hints, &to);
	if (ret)
		return fail(gai_strerror(ret));
	l->events = rdma_create_event_channel();
	if (!l->events ||
	    rdma_create_id(l->events, server ? &l->listener : &l->id, NULL, RDMA_PS_TCP))
		ret = fail_sys("no RDMA here, see 'sgpool doctor'");
	else
		ret = server ? listen_for_one(l, to->ai_addr) : resolve(l, to->ai_addr);
	freeaddrinfo(to);
	return ret ? -1 : open_queues(l);
}

struct sgp_pool *link_add_pool(struct link *l, size_t size, size_t n, uint32_t flags)
{
	struct sgp_class_attr cls = {.size = size, .chunks = n};
	struct sgp_pool_attr attr = {
		.classes = &cls, .nclasses = 1, .flags = flags, .pages = SGP_PAGES_BASE};
	struct sgp_pool *pool = sgp_pool_create(l->pd, &attr);

	if (pool)
		l->pools[l->npools++] = pool;
	else
		fail_sgp("no pool");
	return pool;
}

int link_establish(struct link *l)
{
	struct rdma_conn_param param = {.responder_resources = 1,
					.initiator_depth = 1,
					.retry_count = 7,
					.rnr_retry_count = 7};

	/* Before the peer can send: on iWARP a message without a receive ends the connection. */
	for (int i = 0; i < RECVS; i++) {
		struct sgp_chunk *chunk = sgp_pool_get(l->pools[0], LINK_MESSAGE, 0);

		if (!chunk || sgp_post_recv(l->ep, NULL, chunk, 0, LINK_MESSAGE)) {
			sgp_chunk_put(chunk); /* a post that fails leaves it with us */
			return fail_sgp("no receive");
		}
	}
	if (l->server ? rdma_accept(l->id, &param) : rdma_connect(l->id, &param))
		return fail_sys("can't connect");
	return expect(l, RDMA_CM_EVENT_ESTABLISHED);
}

/* ---- messages ---- */

int link_send(struct link *l, const void *message, int flags)
{
	struct sgp_chunk *chunk = sgp_pool_get(l->pools[0], LINK_MESSAGE, 0);

	if (chunk) {
		memcpy(sgp_chunk_addr(chunk), message, LINK_MESSAGE);
		if (sgp_post_send(l->ep, NULL, chunk, 0, LINK_MESSAGE, flags) == 0)
			return 0; /* the queue owns the chunk, and puts it when it has gone */
	}
	sgp_chunk_put(chunk);
	return fail_sgp("can't send");
}

/* What link_wait() found: the message is copied, and the same list is posted again. */
static int take_message(struct link *l)
{
	if (l->wc->byte_len != LINK_MESSAGE)
		return fail("a message that is not 16 bytes long");
	memcpy(l->message, (void *)(uintptr_t)l->wc->sgl.sge[0].addr, LINK_MESSAGE);
	/* A peer that has said its last word may have gone already. */
	if (sgp_post_recvv(l->ep, NULL, &l->wc->sgl) && !l->gone)
		return fail_sgp("no receive");
	return 1;
}

/* Sleep until there may be a completion or an event. Returns 0 when the time is over. */
static int sleep_on(struct link *l, int timeout_ms)
{
	struct pollfd fds[] = {{.fd = sgp_cq_fd(l->cq), .events = POLLIN},
			       {.fd = l->events->fd, .events = POLLIN}};
	int n = poll(fds, 2, timeout_ms);

	if (n < 0)
		return errno == EINTR ? 1 : fail_sys("poll");
	return fds[1].revents && take_event(l) < 0 ? -1 : n;
}

int link_wait(struct link *l, enum ibv_wc_opcode opcode)
{
	bool flushed = false;

	for (;;) {
		/* Armed before it's polled: what comes after the poll turns the descriptor
		 * readable. */
		int n = sgp_cq_arm(l->cq) ? -1 : sgp_poll(l->cq, 1, l->wc);

		if (n < 0)
			return fail_sgp("the completion queue failed");
		if (n == 0) {
			if (l->gone)
				return 0;
			n = sleep_on(l, flushed ? END_MS : -1);
			if (n < 0)
				return -1;
			if (n == 0)
				return fail("the connection broke");
		} else if (l->wc->status == IBV_WC_WR_FLUSH_ERR) {
			flushed = true; /* why comes as another completion, or as an event */
		} else if (l->wc->status) {
			return fail(ibv_wc_status_str(l->wc->status));
		} else if (l->wc->opcode != opcode) {
			return fail("the peer does not keep to the protocol");
		} else {
			return opcode == IBV_WC_RECV ? take_message(l) : 1;
		}
	}
}

int link_need(struct link *l, enum ibv_wc_opcode opcode)
{
	int ret = link_wait(l, opcode);

	return ret == 0 ? fail("the peer left before all was done") : ret > 0 ? 0 : -1;
}

/* ---- the end ---- */

int link_disconnect(struct link *l)
{
	struct pollfd fd = {.fd = l->events->fd, .events = POLLIN};

	/* Also when the peer went first: that one waits for our answer. */
	if (rdma_disconnect(l->id) == 0)
		while (!l->gone && poll(&fd, 1, END_MS) > 0 && take_event(l) >= 0)
			;
	return sgp_ep_close(l->ep, END_MS) ? fail_sgp("the endpoint does not close") : 0;
}

static int close_ep(struct link *l)
{
	int n;

	if (sgp_ep_qp(l->ep) && link_disconnect(l))
		return -1;
	/* What had not completed comes out as flushed, with its chunks. */
	while ((n = sgp_poll(l->cq, 1, l->wc)) > 0)
		;
	return n || sgp_ep_destroy(l->ep) ? fail_sgp("the endpoint does not end") : 0;
}

/* From the last made to the first. Whatever is still in use stays: that is the error it returns. */
int link_close(struct link *l)
{
	int ret = l->ep ? close_ep(l) : 0;

	sgp_wc_free(l->wc); /* puts what its list holds */
	if (!ret && l->cq && sgp_cq_destroy(l->cq))
		ret = fail_sgp("the completion queue does not end");
	while (!ret && l->npools > 0)
		if (sgp_pool_destroy(l->pools[--l->npools]))
			ret = fail_sgp("a pool does not end");
	if (!ret && l->pd && ibv_dealloc_pd(l->pd))
		ret = fail("the protection domain is in use");
	if (!ret && l->id)
		rdma_destroy_id(l->id);
	if (!ret && l->listener)
		rdma_destroy_id(l->listener);
	if (!ret && l->events)
		rdma_destroy_event_channel(l->events);
	return ret;
}
