/* SPDX-License-Identifier: BSD-2-Clause */
/* MQTT packets over RDMA: how connections begin and end, and the devices of a loop. See mqr.h. */
#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mqr_parts.h"

#define VERSION 1

static const uint8_t magic[4] = {'M', 'Q', 'R', 'D'};

enum {
	CQE = 256,         /* of a queue at first; it grows with its connections */
	CQE_FIXED = 65536, /* of one that can't: room for some hundreds of them */
	INLINE = 128,      /* bytes of a message that goes without a chunk */
	RNR_TIMER = 8,     /* 0.16 ms */
	PACKET_MAX = 5 + 268435455,
};

/* ---- devices ---- */

/*
 * A receive's parts: a chunk of each of the pool's classes from the smallest up, and then of the
 * largest as many as it takes, at most max_parts in all.
 */
static void make_parts(struct mqr_device *d, const struct mqr_loop *loop, int max_parts)
{
	struct sgp_pool_stats stats;
	struct sgp_class_stats cls = {0};
	const uint32_t wanted = loop->attr.receive;

	sgp_pool_stats(loop->pool, &stats);
	d->parts = 0;
	d->bytes = 0;
	while (d->bytes < wanted && d->parts < max_parts) {
		struct sgp_recv_part *part = &d->part[d->parts];

		if ((uint32_t)d->parts < stats.nclasses)
			sgp_pool_class_stats(loop->pool, (uint32_t)d->parts, &cls);
		*part = (struct sgp_recv_part){.pool = loop->pool};
		part->size = wanted - d->bytes < cls.size ? wanted - d->bytes : cls.size;
		d->bytes += (uint32_t)part->size;
		d->parts++;
	}
}

static int lesser(int a, int b)
{
	return a < b ? a : b;
}

/* One stock of receives for all connections, where the device can do that. Returns 0; -1. */
static int make_shared(struct mqr_device *d, const struct mqr_loop *loop,
		       const struct ibv_device_attr *dev)
{
	struct sgp_srq_attr attr = {.pd = d->pd, .recv = d->part, .depth = loop->attr.shared};

	if (!attr.depth || d->iwarp || dev->max_srq <= 0 || dev->max_srq_wr <= SGP_FLOW_RESERVE)
		return 0;
	if (attr.depth > (uint32_t)dev->max_srq_wr)
		attr.depth = (uint32_t)dev->max_srq_wr;
	make_parts(d, loop, lesser(dev->max_srq_sge, MQR_PARTS));
	attr.num_recv = d->parts;
	d->srq = sgp_srq_create(&attr);
	return d->srq ? 0 : -1;
}

static int make_queues(struct mqr_device *d, const struct mqr_loop *loop)
{
	const struct sgp_cq_attr attr = {
		.cqe = CQE, .cqe_fixed = CQE_FIXED, .max_sge = MQR_SGES, .max_chunk = MQR_SGES};
	struct ibv_device_attr dev;
	const int err = ibv_query_device(d->verbs, &dev);

	if (err) {
		errno = err;
		return -1;
	}
	d->iwarp = d->verbs->device->transport_type == IBV_TRANSPORT_IWARP;
	d->max_sge = lesser(dev.max_sge, MQR_SGES);
	make_parts(d, loop, lesser(dev.max_sge, MQR_PARTS));
	d->cq = sgp_cq_create(d->verbs, &attr);
	if (!d->cq)
		return -1;
	d->wc = sgp_wc_alloc(d->cq, MQR_BATCH);
	return d->wc ? make_shared(d, loop, &dev) : -1;
}

/* Returns 0; -1 when something is in use. */
static int end_queues(struct mqr_device *d)
{
	const int err = errno;
	int ret = 0;

	/* The last completions' chunks are still in the array: it goes first. */
	sgp_wc_free(d->wc);
	if (d->srq && sgp_srq_destroy(d->srq))
		ret = -1;
	if (d->cq && sgp_cq_destroy(d->cq))
		ret = -1;
	errno = err;
	return ret;
}

static void set_defaults(struct mqr_attr *a)
{
	if (!a->receive)
		a->receive = MQR_RECEIVE;
	if (!a->depth)
		a->depth = MQR_DEPTH;
	if (!a->max_packet)
		a->max_packet = PACKET_MAX;
	if (a->shared && a->shared <= SGP_FLOW_RESERVE)
		a->shared = SGP_FLOW_RESERVE + 1;
}

struct mqr_device *mqr_loop_device(struct mqr_loop *loop, struct ibv_context *verbs,
				   struct ibv_pd *pd)
{
	struct mqr_device *d = &loop->device[loop->devices];

	for (int i = 0; i < loop->devices; i++)
		if (loop->device[i].verbs == verbs)
			return &loop->device[i];
	if (loop->devices == MQR_DEVICES) {
		errno = ENOSPC;
		return NULL;
	}
	set_defaults(&loop->attr);
	*d = (struct mqr_device){.verbs = verbs, .pd = pd};
	if (make_queues(d, loop)) {
		end_queues(d);
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
		mqr_loop_run(loop, &loop->device[i], 0);
		if (end_queues(&loop->device[i]))
			ret = -1;
	}
	loop->devices = 0;
	return ret;
}

uint64_t mqr_loop_shared(const struct mqr_loop *loop)
{
	struct sgp_srq_stats stats;
	uint64_t sum = 0;

	for (int i = 0; i < loop->devices; i++)
		if (loop->device[i].srq && !sgp_srq_stats(loop->device[i].srq, &stats))
			sum += stats.posted;
	return sum;
}

int mqr_loop_wait(const struct mqr_loop *loop)
{
	return loop->touched || loop->ending ? 5 : -1;
}

/* ---- connections ---- */

static int open_ep(struct mqr_conn *c, uint32_t depth)
{
	struct mqr_device *d = c->device;
	struct sgp_ep_attr attr = {.cq = d->cq, .pd = d->pd, .recv_context = c, .srq = d->srq};

	if (!d->srq) {
		attr.recv = d->part;
		attr.num_recv = d->parts;
	}
	/* What the peer may be granted, updates, and what the queue has not heard of yet. */
	attr.cap = (struct ibv_qp_cap){.max_send_wr = MQR_SENDS,
				       .max_recv_wr = depth + SGP_FLOW_RESERVE,
				       .max_send_sge = (uint32_t)d->max_sge,
				       .max_recv_sge = (uint32_t)d->parts,
				       .max_inline_data = INLINE};
	attr.max_chunk = MQR_SGES;
	c->ep = sgp_ep_create(c->id, &attr);
	c->max_sge = d->max_sge;
	return c->ep ? 0 : -1;
}

/*
 * What a flow would refuse: once there are queues they share, it's too late. Of shared receives it is
 * granted no more than there are; what is lost (srq.h) makes them fewer.
 */
static int check_depth(const struct mqr_conn *c, uint32_t *depth)
{
	const struct mqr_device *d = c->device;
	struct sgp_srq_stats stats;
	uint32_t all;

	if (d->bytes < MQR_RECEIVE_MIN || *depth > SGP_FLOW_DEPTH_MAX) {
		errno = EINVAL;
		return -1;
	}
	if (!d->srq)
		return 0;
	if (sgp_srq_stats(d->srq, &stats))
		return -1;
	all = stats.posted - stats.lost + stats.missing;
	if (all <= SGP_FLOW_RESERVE) {
		errno = ENOBUFS;
		return -1;
	}
	if (*depth > all - SGP_FLOW_RESERVE)
		*depth = all - SGP_FLOW_RESERVE;
	return 0;
}

int mqr_conn_open(struct mqr_conn *c, struct mqr_loop *loop, struct mqr_device *device,
		  struct rdma_cm_id *id)
{
	struct sgp_flow_attr flow = {
		.pool = loop->pool, .depth = loop->attr.depth, .bytes = device->bytes};
	void *arg = c->arg;
	int ret;

	*c = (struct mqr_conn){.loop = loop, .device = device, .id = id, .arg = arg};
	if (check_depth(c, &flow.depth) || open_ep(c, flow.depth)) {
		c->id = NULL;
		c->ep = NULL;
		return -1;
	}
	flow.ep = c->ep;
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
	memcpy(bytes, magic, sizeof magic);
	bytes[5] = VERSION;
	bytes[7] = refusal;
}

void mqr_conn_param(const struct mqr_conn *c, uint8_t bytes[MQR_HELLO],
		    struct rdma_conn_param *param)
{
	put_hello(bytes, 0);
	sgp_flow_hello(&c->flow, bytes + 8);
	/*
	 * What the peer does when there is no receive. Without shared ones credits make that impossible:
	 * a retry would only hide a fault.
	 */
	*param = (struct rdma_conn_param){.private_data = bytes,
					  .private_data_len = MQR_HELLO,
					  .retry_count = 7,
					  .rnr_retry_count = c->device->srq ? 7 : 0};
}

void mqr_conn_accepted(struct mqr_conn *c)
{
	/* librdmacm leaves it at 0, which is 655 ms (InfiniBand specification, table 46). */
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .min_rnr_timer = RNR_TIMER};

	/* Where it can't be changed, the wait is longer. */
	if (c->device->srq)
		(void)ibv_modify_qp(sgp_ep_qp(c->ep), &attr, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER);
}

static int read_hello(struct sgp_flow *flow, const void *data, size_t n)
{
	const uint8_t *at = data;
	const uint8_t rest[4] = {0, VERSION, 0, 0};

	if (!data || n < MQR_HELLO || memcmp(at, magic, sizeof magic) != 0 ||
	    memcmp(at + 4, rest, 4) != 0) {
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

	if (data && n >= 8 && memcmp(at, magic, sizeof magic) == 0 && at[7] == MQR_REFUSED_BUSY)
		return "it has no memory for another connection";
	if (data && n >= 8 && memcmp(at, magic, sizeof magic) == 0 && at[7] == MQR_REFUSED_WIRE)
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
