/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections (see server.h). */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctrl.h"
#include "device.h"
#include "queue.h"
#include "server.h"
#include "threads.h"
#include "wire.h"

enum {
	BACKLOG = 128,
	RETRIES = 7,
	MAX_READS = 16, /* RDMA READs on the way at once */
};

/* ---- connect requests ---- */

/* Returns 0 or why it is refused; fills in what the host says of its queue. */
static int check_request(const struct target *t, const struct rdma_conn_param *param, uint16_t *qid,
			 uint32_t *depth)
{
	struct wire_cm_request req;
	uint32_t most;

	if (param->private_data_len < sizeof req)
		return WIRE_CM_INVALID_LENGTH;
	memcpy(&req, param->private_data, sizeof req);
	if (req.recfmt)
		return WIRE_CM_INVALID_RECFMT;
	*qid = le16toh(req.qid);
	if (*qid > CTRL_IO_QUEUES)
		return WIRE_CM_INVALID_QID;
	most = *qid ? t->opt->depth : CTRL_ADMIN_DEPTH;
	*depth = (uint32_t)le16toh(req.hsqsize) + 1;
	if (*depth < 2 || *depth > most)
		return WIRE_CM_INVALID_HSQSIZE;
	/* Each of its commands has a response, for which it must have a receive. */
	return le16toh(req.hrqsize) < *depth - 1 ? WIRE_CM_INVALID_HRQSIZE : 0;
}

static void reject(struct target *t, struct rdma_cm_id *id, int status)
{
	const struct wire_cm_reject rej = {.status = htole16((uint16_t)status)};

	t->stats.refused_connections++;
	(void)rdma_reject(id, &rej, sizeof rej);
	id->context = NULL;
	rdma_destroy_id(id);
}

static int accept_host(struct queue *q, uint8_t reads)
{
	const struct wire_cm_accept reply = {.crqsize = htole16(q->depth)};
	struct ibv_device_attr attr;
	struct rdma_conn_param param = {
		.private_data = &reply,
		.private_data_len = sizeof reply,
		.initiator_depth = reads,
		.rnr_retry_count = RETRIES,
		.flow_control = 1,
	};

	if (ibv_query_device(q->id->verbs, &attr))
		return -1;
	if (param.initiator_depth > attr.max_qp_init_rd_atom)
		param.initiator_depth = (uint8_t)attr.max_qp_init_rd_atom;
	return rdma_accept(q->id, &param);
}

/*
 * What the queues may send at once has room, whatever they all do: memory to carry it out and, where
 * nothing waits for a receive, those.
 */
static bool has_room(const struct target *t, const struct device *dev, const struct mail *mail)
{
	uint32_t taken = atomic_load(&t->promised);

	if (!dev->srq && t->budget.receives > taken)
		taken = t->budget.receives;
	if (taken + mail->depth <= t->budget.capsules)
		return true;
	fprintf(stderr,
		"sgpool-nvmf-target: queue %u of %u commands is refused: there is --memory for %u, "
		"of which %u are taken\n",
		mail->qid, mail->depth, t->budget.capsules, taken);
	return false;
}

static void accept_request(struct target *t, const struct mail *mail)
{
	struct device *dev = t->stopping ? NULL : device_get(t, mail->id->verbs);
	struct queue *q;

	if (!dev || !has_room(t, dev, mail)) {
		reject(t, mail->id, WIRE_CM_NO_RESOURCES);
		return;
	}
	q = queue_create(dev, mail->id, mail->qid, mail->depth);
	if (!q)
		reject(t, mail->id, WIRE_CM_NO_RESOURCES);
	else if (accept_host(q, mail->reads))
		queue_end(q, strerror(errno));
}

/* From here on its events are this thread's. */
static void take_over(struct target *t, const struct mail *mail)
{
	if (rdma_migrate_id(mail->id, t->events))
		reject(t, mail->id, WIRE_CM_NO_RESOURCES);
	else
		accept_request(t, mail);
}

void server_mail(struct target *t)
{
	struct mail *mail = atomic_exchange(&t->mail, NULL), *next;

	/* Whichever comes first: hosts wait for one before they ask for the next. */
	for (; mail; mail = next) {
		next = mail->next;
		take_over(t, mail);
		free(mail);
	}
}

static void connect_request(struct target *t, const struct rdma_cm_event *event)
{
	struct mail mail = {.id = event->id, .reads = event->param.conn.initiator_depth};
	uint32_t depth = 0;
	int status = check_request(t, &event->param.conn, &mail.qid, &depth);
	struct target *to;

	mail.depth = (uint16_t)depth;
	if (mail.reads > MAX_READS)
		mail.reads = MAX_READS;
	/* This thread has every device that any has: it hears of their events for all. */
	if (!status && (t->stopping || !device_get(t, mail.id->verbs)))
		status = WIRE_CM_NO_RESOURCES;
	if (status) {
		reject(t, mail.id, status);
		return;
	}
	to = mail.qid ? threads_choose(t->common) : t;
	if (to == t)
		accept_request(t, &mail);
	else if (threads_send(to, &mail))
		reject(t, mail.id, WIRE_CM_NO_RESOURCES);
}

static void handle_event(struct target *t, struct rdma_cm_event *event)
{
	struct queue *q = event->id->context;

	if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
		connect_request(t, event);
		return;
	}
	if (event->id == t->listener || !q)
		return;
	if (!q->closed)
		sgp_ep_event(q->ep, event);
	switch (event->event) {
	case RDMA_CM_EVENT_DISCONNECTED:
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		queue_end(q, NULL);
		break;
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_REJECTED:
	case RDMA_CM_EVENT_CONNECT_ERROR:
		queue_end(q, rdma_event_str(event->event));
		break;
	default:
		break;
	}
}

static void cm_ready(struct uring_watch *watch)
{
	struct target *t = watch->owner;
	struct rdma_cm_event *event;

	while (rdma_get_cm_event(t->events, &event) == 0) {
		handle_event(t, event);
		rdma_ack_cm_event(event);
	}
	uring_watch(&t->uring, watch);
}

/* ---- the listener ---- */

static int bind_listener(struct target *t)
{
	struct addrinfo *list;
	const char *why = addr_resolve(&t->opt->listen, AI_PASSIVE, &list);
	int ret;

	if (why) {
		fprintf(stderr, "sgpool-nvmf-target: %s: %s\n", t->opt->listen.host, why);
		return -1;
	}
	ret = rdma_bind_addr(t->listener, list->ai_addr);
	freeaddrinfo(list);
	return ret ? fail_sys(t->opt->listen.host) : 0;
}

static int open_events(struct target *t)
{
	t->events = rdma_create_event_channel();
	if (!t->events)
		return fail_sys("no RDMA here, see 'sgpool doctor'");
	fcntl(t->events->fd, F_SETFL, fcntl(t->events->fd, F_GETFL) | O_NONBLOCK);
	t->cm = (struct uring_watch){.fd = t->events->fd, .ready = cm_ready, .owner = t};
	uring_watch(&t->uring, &t->cm);
	return 0;
}

int server_open(struct target *t)
{
	if (open_events(t))
		return -1;
	if (rdma_create_id(t->events, &t->listener, NULL, RDMA_PS_TCP))
		return fail_sys("no RDMA here, see 'sgpool doctor'");
	if (bind_listener(t))
		return -1;
	/* Bound to a device: what's wrong with it shows now. */
	if (t->listener->verbs && !device_get(t, t->listener->verbs))
		return -1;
	return rdma_listen(t->listener, BACKLOG) ? fail_sys("can't listen") : 0;
}

int server_join(struct target *t)
{
	if (open_events(t))
		return -1;
	for (struct device *dev = t->common->thread->devices; dev; dev = dev->next)
		if (!device_get(t, dev->verbs))
			return -1;
	return 0;
}

void server_stop(struct target *t)
{
	if (t->listener)
		rdma_destroy_id(t->listener);
	t->listener = NULL;
}

int server_close(struct target *t)
{
	server_stop(t);
	server_mail(t); /* what has come too late: refused */
	while (t->devices)
		if (device_close(t->devices))
			return -1;
	if (t->events)
		rdma_destroy_event_channel(t->events);
	t->events = NULL;
	return 0;
}

/* ---- completions ---- */

int server_poll(struct target *t)
{
	int total = 0;

	for (struct device *dev = t->devices; dev; dev = dev->next) {
		int n = sgp_poll(dev->cq, DEVICE_BATCH, dev->wc);

		if (n < 0)
			return fail_sgp("a completion queue has failed");
		for (int i = 0; i < n; i++)
			queue_complete(t, &dev->wc[i]);
		total += n;
	}
	return total;
}

int server_arm(struct target *t)
{
	uring_watch(&t->uring, &t->cm);
	for (struct device *dev = t->devices; dev; dev = dev->next) {
		/* It stays armed until it has woken us, also if something else did before. */
		if (!dev->armed && sgp_cq_arm(dev->cq))
			return fail_sgp("a completion queue has failed");
		dev->armed = true;
		uring_watch(&t->uring, &dev->completions);
		if (t->index == 0)
			uring_watch(&t->uring, &dev->events);
	}
	return 0;
}
