/* SPDX-License-Identifier: BSD-2-Clause */
/* A queue's beginning and end (see queue.h). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctrl.h"
#include "device.h"
#include "queue.h"
#include "wire.h"

#define SECOND   ((int64_t)1000000000)
#define FLUSH_NS SECOND        /* for the device to let go of what is posted */
#define JOIN_NS  (30 * SECOND) /* for a host to say what it wants */

static void free_queue(struct queue *q)
{
	free(q->requests);
	free(q);
}

static int make_requests(struct queue *q)
{
	q->requests = aligned_alloc(_Alignof(struct request), q->depth * sizeof *q->requests);
	if (!q->requests)
		return -1;
	memset(q->requests, 0, q->depth * sizeof *q->requests);
	for (uint16_t i = q->depth; i-- > 0;) {
		struct request *r = &q->requests[i];

		r->queue = q;
		sgp_sgl_init(&r->data, r->sge[0], REQUEST_CHUNKS, r->chunk[0], REQUEST_CHUNKS);
		sgp_sgl_init(&r->file, r->sge[1], REQUEST_CHUNKS, r->chunk[1], REQUEST_CHUNKS);
		r->next = q->free;
		q->free = r;
	}
	return 0;
}

static int make_endpoint(struct queue *q)
{
	struct device *dev = q->device;
	struct sgp_recv_part parts[DEVICE_PARTS];
	struct sgp_ep_attr attr = {
		.cq = dev->cq,
		.pd = dev->pd,
		.srq = dev->srq,
		.recv = dev->srq ? NULL : parts,
		.num_recv = dev->srq ? 0 : DEVICE_PARTS,
		.max_chunk = REQUEST_CHUNKS,
		/* A Read's data and its response, or a Write's READ: where that is too little (many
		 * SGEs, and a device that takes few) commands wait for room. */
		.cap = {.max_send_wr = 2 * (uint32_t)q->depth + 16,
			.max_recv_wr = q->depth,
			.max_send_sge = (uint32_t)dev->max_sge,
			.max_recv_sge = DEVICE_PARTS,
			.max_inline_data = sizeof(struct wire_response)},
	};
	struct sgp_ep_info info;

	device_parts(dev, parts);
	q->ep = sgp_ep_create(q->id, &attr);
	if (!q->ep)
		return fail_sgp("no endpoint");
	/* So that a message, which knows its endpoint only, finds its queue. */
	sgp_ep_qp(q->ep)->qp_context = q;
	sgp_ep_query(q->ep, &info);
	q->max_inline = info.max_inline;
	return 0;
}

struct queue *queue_create(struct device *dev, struct rdma_cm_id *id, uint16_t qid, uint16_t depth)
{
	struct queue *q = calloc(1, sizeof *q);
	struct target *t = dev->target;

	if (!q)
		return NULL;
	q->target = t;
	q->device = dev;
	q->id = id;
	q->qid = qid;
	q->depth = q->sq_size = depth;
	q->sq_flow = q->invalidates = true;
	q->unsent_end = &q->unsent;
	q->join_by = t->now + JOIN_NS;
	q->limits = (struct capsule_limits){.queue = CAPSULE_NEW,
					    .max_data = REQUEST_MAX_DATA,
					    .ns = t->limits,
					    .nns = t->opt->nns};
	if (make_requests(q) || make_endpoint(q)) {
		free_queue(q);
		return NULL;
	}
	id->context = q;
	if (!dev->srq)
		t->budget.receives += depth;
	t->promised += depth;
	q->next = t->queues;
	t->queues = q;
	t->stats.connections++;
	return q;
}

void queue_end(struct queue *q, const char *why)
{
	if (q->ending)
		return;
	if (why) {
		fprintf(stderr, "sgpool-nvmf-target: queue %u ends: %s\n", q->qid, why);
		q->target->stats.broken_connections++;
	}
	q->ending = true;
	q->close_at = q->target->now + FLUSH_NS;
	if (q->ctrl)
		ctrl_queue_gone(q);
	while (q->unsent) {
		struct request *r = q->unsent;

		q->unsent = r->next;
		queue_drop(r);
	}
	q->unsent_end = &q->unsent;
	for (uint16_t i = 0; i < q->depth; i++)
		if (q->requests[i].used && q->requests[i].waiting &&
		    budget_cancel(&q->target->budget, &q->requests[i]))
			queue_drop(&q->requests[i]);
	(void)rdma_disconnect(q->id); /* moves the queue pair to the error state */
}

/* Returns whether it's closed. */
static bool close_endpoint(struct queue *q)
{
	struct sgp_ep_info info;

	sgp_ep_query(q->ep, &info);
	if (info.send_posted && q->target->now < q->close_at)
		return false;
	/* Without waiting: what the device has not given back comes out of sgp_poll() as flushed. */
	if (sgp_ep_close(q->ep, 0)) {
		fail_sgp("a queue pair does not end");
		q->close_at = q->target->now + FLUSH_NS;
		return false;
	}
	q->closed = true;
	stats_endpoint(&q->target->stats, q->ep);
	return true;
}

/* Returns whether it could be freed. */
static bool free_closed(struct queue *q)
{
	/* EBUSY: sgp_poll() still has completions of it. */
	if (q->used || q->dirty || sgp_ep_destroy(q->ep))
		return false;
	rdma_destroy_id(q->id);
	if (!q->device->srq)
		q->target->budget.receives -= q->depth;
	q->target->promised -= q->depth;
	free_queue(q);
	return true;
}

int queue_reap(struct target *t)
{
	int done = 0;

	for (struct queue **link = &t->queues; *link;) {
		struct queue *q = *link, *next = q->next;

		if (atomic_load_explicit(&q->doomed, memory_order_relaxed))
			queue_end(q, NULL);
		if (!q->ending && !q->ctrl && t->now >= q->join_by)
			queue_end(q, "its host has not connected it to a controller");
		if (q->ending && !q->closed)
			done += close_endpoint(q);
		if (q->closed && free_closed(q))
			*link = next;
		else
			link = &q->next;
	}
	return done;
}
