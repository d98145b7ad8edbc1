/* SPDX-License-Identifier: BSD-2-Clause */
/* MQTT packets over RDMA: how connections begin and end, and the devices of a loop. See mqr.h. */
#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mqr_parts.h"

#define MAGIC   "MQRD"
#define VERSION 1

enum {
	CQE = 256,    /* of a queue at first; it grows with its connections */
	INLINE = 128, /* bytes of a message that goes without a chunk */
	PACKET_MAX = 5 + 268435455,
};

/* ---- devices ---- */

struct mqr_device *mqr_loop_device(struct mqr_loop *loop, struct ibv_context *verbs,
				   struct ibv_pd *pd)
{
	const struct sgp_cq_attr attr = {.cqe = CQE, .max_sge = MQR_SGES, .max_chunk = MQR_SGES};
	struct mqr_device *d = &loop->device[loop->devices];

	for (int i = 0; i < loop->devices; i++)
		if (loop->device[i].verbs == verbs)
			return &loop->device[i];
	if (loop->devices == MQR_DEVICES) {
		errno = ENOSPC;
		return NULL;
	}
	*d = (struct mqr_device){.verbs = verbs, .pd = pd};
	d->iwarp = verbs->device->transport_type == IBV_TRANSPORT_IWARP;
	d->cq = sgp_cq_create(verbs, &attr);
	if (!d->cq)
		return NULL;
	d->wc = sgp_wc_alloc(d->cq, MQR_BATCH);
	if (!d->wc) {
		sgp_cq_destroy(d->cq);
		return NULL;
	}
	loop->devices++;
	return d;
}

void mqr_device_failed(struct mqr_loop *loop, struct mqr_device *device, const char *why)
{
	for (struct mqr_conn *c = loop->conns; c; c = c->next)
		if (c->device == device)
			mqr_conn_fail(c, EIO, "the completion queue failed: %s", why);
	mqr_look_after_all(loop);
}

int mqr_loop_end(struct mqr_loop *loop)
{
	int ret = 0;

	for (int i = 0; i < loop->devices; i++) {
		struct mqr_device *d = &loop->device[i];

		mqr_loop_run(loop, d, 0);
		/* The last completions' chunks are still in the array: it goes first. */
		sgp_wc_free(d->wc);
		if (sgp_cq_destroy(d->cq))
			ret = -1;
	}
	loop->devices = 0;
	return ret;
}

int mqr_loop_wait(const struct mqr_loop *loop)
{
	return loop->touched || loop->ending ? 5 : -1;
}

/* ---- receives ---- */

/*
 * A receive's parts: a chunk of each of the pool's classes from the smallest up, and then of the
 * largest as many as it takes. Returns how many parts; *bytes is what they take in all, at most what
 * it was.
 */
static int make_parts(struct sgp_pool *pool, int max_parts, uint32_t *bytes,
		      struct sgp_recv_part part[MQR_PARTS])
{
	struct sgp_pool_stats stats;
	struct sgp_class_stats cls = {0};
	uint64_t sum = 0;
	int n = 0;

	sgp_pool_stats(pool, &stats);
	while (sum < *bytes && n < max_parts) {
		if ((uint32_t)n < stats.nclasses)
			sgp_pool_class_stats(pool, (uint32_t)n, &cls);
		part[n].pool = pool;
		part[n].size = *bytes - sum < cls.size ? *bytes - sum : cls.size;
		sum += part[n++].size;
	}
	*bytes = (uint32_t)sum;
	return n;
}

/* ---- connections ---- */

static int open_ep(struct mqr_conn *c, const struct mqr_attr *a, uint32_t *bytes)
{
	struct sgp_recv_part part[MQR_PARTS] = {0};
	struct ibv_device_attr dev;
	struct sgp_ep_attr attr = {.cq = c->device->cq, .pd = c->device->pd};
	int sges, err = ibv_query_device(c->device->verbs, &dev);

	if (err) {
		errno = err;
		return -1;
	}
	sges = dev.max_sge < MQR_SGES ? dev.max_sge : MQR_SGES;
	attr.num_recv = make_parts(c->loop->pool, dev.max_sge < MQR_PARTS ? dev.max_sge : MQR_PARTS,
				   bytes, part);
	/* What a flow would refuse: once there are queues they share, it's too late. */
	if (*bytes < MQR_RECEIVE_MIN || a->depth > SGP_FLOW_DEPTH_MAX) {
		errno = EINVAL;
		return -1;
	}
	attr.recv = part;
	attr.recv_context = c;
	/* What the peer may be granted, updates, and what the queue has not heard of yet. */
	attr.cap = (struct ibv_qp_cap){.max_send_wr = MQR_SENDS,
				       .max_recv_wr = a->depth + SGP_FLOW_RESERVE,
				       .max_send_sge = (uint32_t)sges,
				       .max_recv_sge = (uint32_t)attr.num_recv,
				       .max_inline_data = INLINE};
	attr.max_chunk = MQR_SGES;
	c->ep = sgp_ep_create(c->id, &attr);
	c->max_sge = sges;
	return c->ep ? 0 : -1;
}

int mqr_conn_open(struct mqr_conn *c, struct mqr_loop *loop, struct mqr_device *device,
		  struct rdma_cm_id *id)
{
	struct mqr_attr *a = &loop->attr;
	struct sgp_flow_attr flow = {.pool = loop->pool};
	void *arg = c->arg;
	int ret;

	if (!a->receive)
		a->receive = MQR_RECEIVE;
	if (!a->depth)
		a->depth = MQR_DEPTH;
	if (!a->max_packet)
		a->max_packet = PACKET_MAX;
	*c = (struct mqr_conn){.loop = loop, .device = device, .id = id, .arg = arg};
	flow.bytes = a->receive;
	if (open_ep(c, a, &flow.bytes)) {
		c->id = NULL;
		c->ep = NULL;
		return -1;
	}
	flow.ep = c->ep;
	flow.depth = a->depth;
	ret = sgp_flow_init(&c->flow, &flow);
	assert(!ret); /* all of it was checked, and the queue was made for it */
	(void)ret;
	c->next = loop->conns;
	if (c->next)
		c->next->prev = &c->next;
	c->prev = &loop->conns;
	loop->conns = c;
	return 0;
}

static void put_hello(uint8_t bytes[MQR_HELLO], uint8_t refusal)
{
	memset(bytes, 0, MQR_HELLO);
	memcpy(bytes, MAGIC, 4);
	bytes[5] = VERSION;
	bytes[7] = refusal;
}

void mqr_conn_param(const struct mqr_conn *c, uint8_t bytes[MQR_HELLO],
		    struct rdma_conn_param *param)
{
	put_hello(bytes, 0);
	sgp_flow_hello(&c->flow, bytes + 8);
	/* Credits make a receiver that is not ready impossible: a retry would only hide a fault. */
	*param = (struct rdma_conn_param){.private_data = bytes,
					  .private_data_len = MQR_HELLO,
					  .retry_count = 7,
					  .rnr_retry_count = 0};
}

static int read_hello(struct sgp_flow *flow, const void *data, size_t n)
{
	const uint8_t *at = data;
	const uint8_t rest[4] = {0, VERSION, 0, 0};

	if (!data || n < MQR_HELLO || memcmp(at, MAGIC, 4) != 0 || memcmp(at + 4, rest, 4) != 0) {
		errno = EPROTO;
		return -1;
	}
	if (sgp_flow_greet(flow, at + 8, n - 8))
		return -1;
	if (flow->peer_bytes < MQR_RECEIVE_MIN) {
		errno = EPROTO;
		return -1;
	}
	return 0;
}

int mqr_hello_check(const void *data, size_t n)
{
	struct sgp_flow flow = {0};

	return read_hello(&flow, data, n);
}

int mqr_conn_greet(struct mqr_conn *c, const void *data, size_t n)
{
	return read_hello(&c->flow, data, n);
}

void mqr_refuse(struct rdma_cm_id *id, enum mqr_refusal reason)
{
	uint8_t bytes[MQR_HELLO];

	put_hello(bytes, (uint8_t)reason);
	rdma_reject(id, bytes, sizeof bytes);
	rdma_destroy_id(id);
}

const char *mqr_refusal_text(const void *data, size_t n)
{
	const uint8_t *at = data;

	if (data && n >= 8 && memcmp(at, MAGIC, 4) == 0 && at[7] == MQR_REFUSED_BUSY)
		return "it has no memory for another connection";
	if (data && n >= 8 && memcmp(at, MAGIC, 4) == 0 && at[7] == MQR_REFUSED_WIRE)
		return "it speaks another protocol, or another version of it";
	return "nobody listens there";
}

void mqr_conn_event(struct mqr_conn *c, const struct rdma_cm_event *event)
{
	if (!c->id || c->over)
		return;
	/* What it said before it went counts first. */
	if (event->event == RDMA_CM_EVENT_DISCONNECTED)
		mqr_loop_run(c->loop, c->device, 0);
	if (!c->id)
		return;
	sgp_ep_event(c->ep, event);
	switch (event->event) {
	case RDMA_CM_EVENT_ESTABLISHED:
		mqr_is_up(c);
		mqr_touch(c);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		mqr_conn_fail(c, 0, "the other end has disconnected");
		break;
	default:
		mqr_conn_fail(c, ECONNRESET, "the connection broke: %s",
			      rdma_event_str(event->event));
	}
	mqr_look_after_all(c->loop);
}

void mqr_conn_end(struct mqr_conn *c, void (*freed)(struct mqr_conn *c))
{
	struct mqr_loop *loop = c->loop;

	c->over = c->told = true;
	*c->prev = c->next;
	if (c->next)
		c->next->prev = c->prev;
	mqr_list_free(&c->in);
	rdma_disconnect(c->id);
	sgp_ep_close(c->ep, 0);
	rdma_destroy_id(c->id);
	c->id = NULL;
	c->freed = freed;
	c->next = loop->ending;
	loop->ending = c;
}

void mqr_bury(struct mqr_loop *loop)
{
	struct mqr_conn **at = &loop->ending;

	while (*at) {
		struct mqr_conn *c = *at;

		/* If its queue pair could not be destroyed: again. Somebody may still refer to it. */
		if (sgp_ep_close(c->ep, 0) || c->is_touched || sgp_ep_destroy(c->ep)) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		c->freed(c);
	}
}
