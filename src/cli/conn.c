/* SPDX-License-Identifier: BSD-2-Clause */
/* One end of a transfer's connection. */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cli/async.h"
#include "cli/clock.h"
#include "cli/conn.h"

enum {
	BATCH = 16,     /* completions a poll */
	DRAIN_MS = 500, /* at an end: for the queue pair's flush, for the last word */
	RETRY_MS = 100, /* when something due can't go now */
};

static uint32_t receives(enum wire_role role)
{
	return role == WIRE_RECEIVER ? TRANSFER_MESSAGES : TRANSFER_CONTROLS;
}

void conn_fail(struct conn *c, const char *fmt, ...)
{
	va_list ap;

	c->over = true;
	if (c->why[0])
		return;
	va_start(ap, fmt);
	vsnprintf(c->why, sizeof c->why, fmt, ap);
	va_end(ap);
}

/* The same, where nothing can be said to the peer any more. */
static void break_off(struct conn *c, const char *why, const char *detail)
{
	c->broken = true;
	conn_fail(c, "%s%s%s", why, detail ? ": " : "", detail ? detail : "");
}

/* A post failed. If that is since the peer went away, its event is on its way. */
static void refused(struct conn *c)
{
	c->over = c->broken = true;
	if (!c->refusal[0])
		snprintf(c->refusal, sizeof c->refusal, "%s", sgp_errmsg());
}

/* Returns 0; -1, and the connection has failed. */
static int post_receive(struct conn *c)
{
	struct sgp_chunk *chunk[TRANSFER_CHUNKS];
	const int n = c->role == WIRE_RECEIVER ? TRANSFER_CHUNKS : 0;
	SGP_SGL(sgl, MESSAGE_SGES);
	struct sgp_chunk *header = sgp_pool_get(c->buffers->headers, WIRE_HEADER, 0);

	if (!header || sgp_sgl_append(&sgl, header, 0, WIRE_HEADER)) {
		sgp_chunk_put(header);
		goto failed;
	}
	if (n && sgp_pool_get_bulk(c->buffers->payload, TRANSFER_CHUNK, 0, chunk, (size_t)n))
		goto failed;
	for (int i = 0; i < n; i++)
		if (sgp_sgl_append(&sgl, chunk[i], 0, TRANSFER_CHUNK)) {
			sgp_chunk_put_bulk(chunk + i, (size_t)(n - i));
			goto failed;
		}
	if (sgp_post_recvv(c->ep, NULL, &sgl))
		goto failed;
	return 0;
failed:
	refused(c);
	sgp_sgl_clear(&sgl);
	return -1;
}

static int begin_flow(struct conn *c)
{
	const struct sgp_flow_attr attr = {
		.ep = c->ep,
		.pool = c->buffers->headers,
		.depth = receives(c->role) - SGP_FLOW_RESERVE,
		.bytes = WIRE_HEADER + (c->role == WIRE_RECEIVER ? TRANSFER_PAYLOAD : 0)};

	return sgp_flow_init(&c->flow, &attr);
}

int conn_open(struct conn *c, struct rdma_cm_id *id, struct buffers *buffers, enum wire_role role)
{
	const int depth = TRANSFER_MESSAGES + TRANSFER_CONTROLS;
	const struct sgp_cq_attr cq_attr = {.cqe = 2 * depth, .max_sge = MESSAGE_SGES};
	struct sgp_ep_attr attr = {.pd = buffers->pd,
				   .cap = {.max_send_wr = (uint32_t)depth,
					   .max_recv_wr = (uint32_t)depth,
					   .max_send_sge = MESSAGE_SGES,
					   .max_recv_sge = MESSAGE_SGES}};

	c->id = id;
	c->buffers = buffers;
	c->role = role;
	c->heard = c->said = clock_ms();
	c->silence_ms = c->silence_ms ? c->silence_ms : CONN_SILENCE_MS;
	if (async_open(id->verbs)) {
		conn_fail(c, "the device's events: %s", strerror(errno));
		return -1;
	}
	c->cq = sgp_cq_create(id->verbs, &cq_attr);
	attr.cq = c->cq;
	if (c->cq)
		c->wc = sgp_wc_alloc(c->cq, BATCH);
	if (c->wc)
		c->ep = sgp_ep_create(id, &attr);
	if (!c->ep) {
		conn_fail(c, "no queues: %s", sgp_errmsg());
		return -1;
	}
	if (begin_flow(c)) {
		conn_fail(c, "no flow control: %s", sgp_errmsg());
		return -1;
	}
	for (uint32_t i = 0; i < receives(role); i++)
		if (post_receive(c)) {
			conn_fail(c, "a receive can't be posted: %s", c->refusal);
			return -1;
		}
	return 0;
}

void conn_refuse(struct rdma_cm_id *id, enum wire_code reason)
{
	const struct wire_hello hello = {.role = WIRE_REFUSAL, .reason = reason};
	uint8_t bytes[WIRE_HELLO];

	wire_put_hello(bytes, &hello);
	rdma_reject(id, bytes, sizeof bytes);
	rdma_destroy_id(id);
}

const char *conn_refusal(const struct cm_event *event, const char *why)
{
	struct wire_hello hello;

	if (event->type == RDMA_CM_EVENT_REJECTED &&
	    !wire_get_hello(event->data, event->length, &hello) && hello.role == WIRE_REFUSAL)
		return wire_code_text(hello.reason);
	return why;
}

void conn_param(const struct conn *c, uint8_t bytes[WIRE_HELLO], struct rdma_conn_param *param)
{
	const struct wire_hello hello = {.role = (uint16_t)c->role};

	wire_put_hello(bytes, &hello);
	sgp_flow_hello(&c->flow, bytes + WIRE_FLOW);
	/* Credits make a receiver that is not ready impossible: a retry would only hide a fault. */
	*param = (struct rdma_conn_param){.private_data = bytes,
					  .private_data_len = WIRE_HELLO,
					  .responder_resources = 1,
					  .initiator_depth = 1,
					  .retry_count = 7,
					  .rnr_retry_count = 0};
}

/* Check the hello of a peer of this role, and begin the flow with it. */
static const char *read_hello(struct sgp_flow *flow, const void *data, size_t n,
			      enum wire_role role)
{
	static const char *const not_of[] = {[WIRE_SENDER] = "it is no sender",
					     [WIRE_RECEIVER] = "it is no receiver",
					     [WIRE_CLIENT] = "it is no 'sgpool perf'",
					     [WIRE_SERVER] = "it is no 'sgpool perf'"};
	struct wire_hello hello;
	const char *wrong = wire_get_hello(data, n, &hello);

	if (wrong)
		return wrong;
	if (hello.role != role)
		return not_of[role];
	if (sgp_flow_greet(flow, (const char *)data + WIRE_FLOW, n - WIRE_FLOW))
		return sgp_errmsg();
	/* A receiver's receives take some payload, the others' headers only. */
	if (flow->peer_bytes < (role == WIRE_RECEIVER ? WIRE_HEADER + 1 : WIRE_HEADER))
		return "its receives are too short";
	return NULL;
}

const char *conn_check(const void *data, size_t n, enum wire_role role)
{
	struct sgp_flow flow = {0};

	return read_hello(&flow, data, n, role);
}

const char *conn_greet(struct conn *c, const void *data, size_t n)
{
	static const enum wire_role other[] = {[WIRE_SENDER] = WIRE_RECEIVER,
					       [WIRE_RECEIVER] = WIRE_SENDER,
					       [WIRE_CLIENT] = WIRE_SERVER,
					       [WIRE_SERVER] = WIRE_CLIENT};
	const enum wire_role role = other[c->role];
	const char *wrong = read_hello(&c->flow, data, n, role);

	if (wrong)
		return wrong;
	c->peer = (struct wire_peer){
		.role = role, .payload_max = c->role == WIRE_RECEIVER ? TRANSFER_PAYLOAD : 0};
	c->payload = c->flow.peer_bytes - WIRE_HEADER;
	return NULL;
}

/* A message without payload has its list on the stack. */
static int post_control(struct conn *c, const uint8_t bytes[WIRE_HEADER], int flags)
{
	SGP_SGL(sgl, 1);
	struct sgp_chunk *chunk = sgp_pool_get(c->buffers->headers, WIRE_HEADER, 0);

	if (!chunk)
		return -1;
	memcpy(sgp_chunk_addr(chunk), bytes, WIRE_HEADER);
	if (sgp_sgl_append(&sgl, chunk, 0, WIRE_HEADER)) {
		sgp_chunk_put(chunk);
		return -1;
	}
	if (sgp_flow_sendv(&c->flow, NULL, &sgl, flags)) {
		const int err = errno;

		sgp_sgl_clear(&sgl);
		errno = err;
		return -1;
	}
	return 0;
}

/*
 * A post that failed can be tried again when there was no credit, no room in the queue, no header: a
 * completion brings them back. Or if we are not connected yet: the passive end may hear the first
 * message before it hears of the connection.
 */
static void post_failed(struct conn *c)
{
	if (errno != EAGAIN && errno != ENOBUFS && errno != ENOTCONN)
		refused(c);
}

static void posted(struct conn *c)
{
	c->sending++;
	c->said = clock_ms();
}

int conn_post(struct conn *c, const struct wire_header *header, struct message *m)
{
	const bool last = header->type == WIRE_VERDICT || header->type == WIRE_ABORT;
	const int flags = IBV_SEND_SIGNALED | (last ? SGP_FLOW_LAST : 0);
	uint8_t bytes[WIRE_HEADER];
	int ret;

	if (c->broken || (c->over && header->type != WIRE_ABORT) || !c->up)
		return -1;
	wire_put_header(bytes, header);
	if (m) {
		memcpy(sgp_chunk_addr(m->sgl.chunk[0]), bytes, WIRE_HEADER);
		ret = sgp_flow_sendv(&c->flow, m, &m->sgl, flags);
	} else {
		ret = post_control(c, bytes, flags);
	}
	if (ret)
		post_failed(c);
	else
		posted(c);
	return ret;
}

void conn_repost(struct conn *c)
{
	if (!c->over && post_receive(c) == 0)
		sgp_flow_posted(&c->flow, 1);
}

/* Returns NULL, or what is wrong with it. */
static const char *read_message(struct conn *c, const struct sgp_wc *wc, bool *update,
				struct wire_header *header)
{
	const int kind = sgp_flow_received(&c->flow, wc);

	if (kind < 0)
		return sgp_errmsg();
	*update = kind == 0;
	if (*update)
		return NULL;
	return wire_get_message(&c->peer, sgp_chunk_addr(wc->sgl.chunk[0]), wc->byte_len, header);
}

static void receive(struct conn *c, struct sgp_wc *wc)
{
	struct wire_header header = {0};
	bool update = false;
	const char *wrong = read_message(c, wc, &update, &header);

	if (wrong) {
		const struct wire_header no = {.type = WIRE_ABORT, .code = WIRE_BAD_MESSAGE};

		conn_fail(c, "the other end broke the protocol: %s", wrong);
		conn_post(c, &no, NULL);
		return;
	}
	c->heard = clock_ms();
	c->up = true;
	if (update) {
		sgp_sgl_clear(&wc->sgl);
		conn_repost(c);
	} else if (header.type == WIRE_ABORT) {
		conn_fail(c, "the other end gave up: %s", wire_code_text(header.code));
	} else {
		c->received(c->arg, &header, &wc->sgl);
	}
}

static void complete(struct conn *c, struct sgp_wc *wc)
{
	if (wc->opcode == IBV_WC_SEND)
		c->sending--;
	if (wc->status == IBV_WC_WR_FLUSH_ERR) {
		c->over = c->broken = true; /* why comes as another completion, or as an event */
	} else if (wc->status == IBV_WC_RETRY_EXC_ERR) {
		break_off(c, "the other end does not answer any more", NULL);
	} else if (wc->status != IBV_WC_SUCCESS) {
		break_off(c, "the connection broke", ibv_wc_status_str(wc->status));
	} else if (wc->opcode == IBV_WC_RECV) {
		if (!c->over)
			receive(c, wc);
	} else if (wc->context) {
		c->sent(c->arg, wc->context);
	}
}

static int reap_some(struct conn *c)
{
	const int n = sgp_poll(c->cq, BATCH, c->wc);

	if (n < 0)
		break_off(c, "the completion queue failed", sgp_errmsg());
	for (int i = 0; i < n; i++)
		complete(c, &c->wc[i]);
	return n;
}

void conn_reap(struct conn *c)
{
	if (sgp_cq_arm(c->cq))
		break_off(c, "the completion queue failed", sgp_errmsg());
	while (reap_some(c) > 0)
		;
}

void conn_event(struct conn *c, const struct cm_event *event)
{
	const struct rdma_cm_event told = {.id = event->id, .event = event->type};

	/* What it said before it went counts first: an abort's reason, a verdict. */
	if (event->type == RDMA_CM_EVENT_DISCONNECTED)
		conn_reap(c);
	sgp_ep_event(c->ep, &told);
	switch (event->type) {
	case RDMA_CM_EVENT_ESTABLISHED:
		return;
	case RDMA_CM_EVENT_DISCONNECTED:
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
	case RDMA_CM_EVENT_REJECTED: /* it went while we were accepting */
	case RDMA_CM_EVENT_CONNECT_ERROR:
		c->over = c->broken = c->gone = true;
		return;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		break_off(c, "the RDMA device was removed", NULL);
		return;
	case RDMA_CM_EVENT_ADDR_CHANGE:
		break_off(c, "the network address moved to another device", NULL);
		return;
	default:
		break_off(c, "the connection broke", rdma_event_str(event->type));
	}
}

int conn_tick(struct conn *c)
{
	const int64_t now = clock_ms();
	const int64_t next = c->said + CONN_ALIVE_MS - now;
	const char *failed = async_take(c->id->verbs, &c->cq, 1);
	int ret;

	if (failed)
		break_off(c, failed, NULL);
	if (c->over)
		return 0;
	if (now - c->heard > c->silence_ms) {
		break_off(c, "the other end has been silent for too long", NULL);
		return 0;
	}
	if (!c->up)
		return next > 0 ? (int)next : RETRY_MS;
	ret = sgp_flow_update(&c->flow, NULL, IBV_SEND_SIGNALED | (next > 0 ? 0 : SGP_FLOW_ALIVE));
	if (ret > 0) {
		posted(c);
		return CONN_ALIVE_MS;
	}
	if (ret < 0)
		post_failed(c);
	return ret == 0 && next > 0 ? (int)next : RETRY_MS;
}

void conn_sleep(const struct conn *c, const int *fds, int n, int timeout_ms)
{
	struct pollfd poll_fds[6] = {{.fd = sgp_cq_fd(c->cq), .events = POLLIN},
				     {.fd = c->id->verbs->async_fd, .events = POLLIN}};

	for (int i = 0; i < n; i++)
		poll_fds[i + 2] = (struct pollfd){.fd = fds[i], .events = POLLIN};
	/* Whatever it returns: the callers look at everything again. */
	poll(poll_fds, (nfds_t)n + 2, timeout_ms);
}

void conn_reason(struct conn *c, struct rdma_event_channel *channel, void (*take_events)(void *arg),
		 void *arg, char *why, size_t size)
{
	const int64_t end = clock_ms() + DRAIN_MS;
	const char *reason = "the connection broke";

	while (!c->why[0] && !c->gone && clock_ms() < end) {
		take_events(arg);
		conn_reap(c);
		if (!c->why[0] && !c->gone)
			conn_sleep(c, &channel->fd, 1, RETRY_MS);
	}
	if (c->why[0])
		reason = c->why;
	else if (c->gone)
		reason = "the other end went away before all was done; see what it says";
	else if (c->refusal[0])
		reason = c->refusal;
	snprintf(why, size, "%s", reason);
}

/* Let what was posted go out. */
static void drain(struct conn *c)
{
	const int64_t end = clock_ms() + DRAIN_MS;

	while (c->sending > 0 && !c->broken && clock_ms() < end) {
		conn_reap(c);
		if (c->sending > 0 && !c->broken)
			conn_sleep(c, NULL, 0, RETRY_MS);
	}
}

void conn_abort(struct conn *c, enum wire_code code)
{
	const struct wire_header abort_ = {.type = WIRE_ABORT, .code = code};

	c->over = true;
	if (c->ep && conn_post(c, &abort_, NULL) == 0)
		drain(c);
}

void conn_close(struct conn *c)
{
	c->over = true;
	if (c->ep) {
		drain(c);
		rdma_disconnect(c->id);
		sgp_ep_close(c->ep, DRAIN_MS);
		while (reap_some(c) > 0)
			;
	}
	/* The last completions' chunks are still in the array: it goes first. */
	sgp_wc_free(c->wc);
	if (c->ep)
		sgp_ep_destroy(c->ep);
	if (c->cq)
		sgp_cq_destroy(c->cq);
	c->wc = NULL;
	c->ep = NULL;
	c->cq = NULL;
}
