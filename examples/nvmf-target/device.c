/* SPDX-License-Identifier: BSD-2-Clause */
/* Devices (see device.h). */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "wire.h"

enum {
	/* A device whose queues share receives posts such a part of those that are left. */
	PART = 4,
	MAX_SGE = REQUEST_CHUNKS,
};

static uint32_t lesser(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* All threads' queues of a device are told of each of its events. */
static void tell_all(struct common *c, const struct ibv_context *verbs,
		     const struct ibv_async_event *event)
{
	pthread_mutex_lock(&c->lock);
	for (unsigned int i = 0; i < c->nthreads; i++) {
		for (struct device *dev = c->thread[i].devices; dev; dev = dev->next) {
			if (dev->verbs != verbs)
				continue;
			sgp_cq_event(dev->cq, event);
			if (dev->srq)
				sgp_srq_event(dev->srq, event);
		}
	}
	pthread_mutex_unlock(&c->lock);
}

/* Events of the device, its queue pairs and queues, whichever thread's they are. */
static void device_event(struct uring_watch *watch)
{
	struct device *dev = watch->owner;
	struct ibv_async_event event;

	while (ibv_get_async_event(dev->verbs, &event) == 0) {
		tell_all(dev->target->common, dev->verbs, &event);
		ibv_ack_async_event(&event);
	}
	uring_watch(&dev->target->uring, watch);
}

/* The loop polls all devices anyhow; but the completion queue is to be armed before the next sleep. */
static void completions_ready(struct uring_watch *watch)
{
	struct device *dev = watch->owner;

	dev->armed = false;
}

void device_parts(const struct device *dev, struct sgp_recv_part part[DEVICE_PARTS])
{
	struct sgp_pool *pool = dev->target->budget.control;

	part[0] = (struct sgp_recv_part){.pool = pool, .size = sizeof(struct wire_command)};
	part[1] = (struct sgp_recv_part){.pool = pool, .size = BUDGET_INSIDE};
}

static int make_shared(struct device *dev, const struct ibv_device_attr *attr)
{
	struct budget *b = &dev->target->budget;
	struct sgp_recv_part parts[DEVICE_PARTS];
	const struct sgp_srq_attr srq = {
		.pd = dev->pd,
		.recv = parts,
		.num_recv = DEVICE_PARTS,
		.depth = lesser((b->capsules - b->receives) / PART, (uint32_t)attr->max_srq_wr),
	};

	if (!srq.depth) {
		fprintf(stderr, "sgpool-nvmf-target: a device finds no receives left: more "
				"--memory has some\n");
		return -1;
	}
	device_parts(dev, parts);
	dev->srq = sgp_srq_create(&srq);
	if (!dev->srq)
		return fail_sgp("no shared receive queue");
	dev->receives = srq.depth;
	b->receives += dev->receives;
	return 0;
}

static int make_queues(struct device *dev, const struct ibv_device_attr *attr)
{
	const uint32_t capsules = dev->target->budget.capsules;
	const struct sgp_cq_attr cq = {
		/* It grows with the queue pairs, where the device can do that. */
		.cqe = (int)lesser(4 * capsules, (uint32_t)attr->max_cqe),
		/* With queues of 2 each, which take the most entries: see queue_life.c. */
		.cqe_fixed = (int)(11 * capsules),
	};

	dev->cq = sgp_cq_create(dev->verbs, &cq);
	if (!dev->cq)
		return fail_sgp("no completion queue");
	dev->wc = sgp_wc_alloc(dev->cq, DEVICE_BATCH);
	if (!dev->wc)
		return fail_sgp("no completions");
	return dev->strict || attr->max_srq <= 0 ? 0 : make_shared(dev, attr);
}

static int end_queues(struct device *dev)
{
	sgp_wc_free(dev->wc);
	dev->wc = NULL;
	if ((dev->srq && sgp_srq_destroy(dev->srq)) || (dev->cq && sgp_cq_destroy(dev->cq)))
		return fail_sgp("a device's queues do not end");
	dev->target->budget.receives -= dev->receives;
	return 0;
}

/* The ring watches both descriptors; neither may block. */
static void watch(struct device *dev)
{
	const int events = dev->verbs->async_fd;

	fcntl(events, F_SETFL, fcntl(events, F_GETFL) | O_NONBLOCK);
	dev->completions = (struct uring_watch){
		.fd = sgp_cq_fd(dev->cq), .ready = completions_ready, .owner = dev};
	dev->events = (struct uring_watch){.fd = events, .ready = device_event, .owner = dev};
	if (dev->target->index == 0)
		uring_watch(&dev->target->uring, &dev->events);
}

static struct device *device_open(struct target *t, struct ibv_context *verbs)
{
	struct ibv_device_attr attr;
	struct device *dev;

	if (ibv_query_device(verbs, &attr)) {
		fail_sys("ibv_query_device");
		return NULL;
	}
	dev = aligned_alloc(_Alignof(struct device), sizeof *dev);
	if (!dev)
		return NULL;
	*dev = (struct device){
		.target = t,
		.verbs = verbs,
		.strict = verbs->device->transport_type == IBV_TRANSPORT_IWARP,
		.max_sge = (int)lesser(MAX_SGE, (uint32_t)attr.max_sge),
	};
	dev->pd = ibv_alloc_pd(verbs);
	if (!dev->pd) {
		fail_sys("ibv_alloc_pd");
		goto no_pd;
	}
	if (budget_add_device(&t->budget, dev->pd, t->opt->memory / t->common->nthreads, &t->uring))
		goto no_memory;
	if (make_queues(dev, &attr)) {
		end_queues(dev);
		goto no_queues;
	}
	watch(dev);
	pthread_mutex_lock(&t->common->lock);
	dev->next = t->devices;
	t->devices = dev;
	pthread_mutex_unlock(&t->common->lock);
	return dev;
no_queues:
	budget_remove_device(&t->budget, dev->pd);
no_memory:
	ibv_dealloc_pd(dev->pd);
no_pd:
	free(dev);
	return NULL;
}

struct device *device_get(struct target *t, struct ibv_context *verbs)
{
	for (struct device *dev = t->devices; dev; dev = dev->next)
		if (dev->verbs == verbs)
			return dev;
	return device_open(t, verbs);
}

int device_close(struct device *dev)
{
	struct target *t = dev->target;

	pthread_mutex_lock(&t->common->lock);
	t->devices = dev->next;
	pthread_mutex_unlock(&t->common->lock);
	if (end_queues(dev) || budget_remove_device(&t->budget, dev->pd))
		return -1;
	if (ibv_dealloc_pd(dev->pd))
		return fail_sys("ibv_dealloc_pd");
	free(dev);
	return 0;
}
