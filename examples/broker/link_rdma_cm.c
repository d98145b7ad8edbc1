/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Links over RDMA: how they come about, and the devices and completion queues of a thread.
 *
 *      connect:  resolve address -> resolve route -> queues, receives -> rdma_connect() -> established
 *      accept:   request -> queues, receives -> rdma_accept() -> established
 *
 * An event of the connection manager is copied and acknowledged before it's looked at, since an id that
 * has unacknowledged events can't be destroyed.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "link_rdma_parts.h"

enum {
	BACKLOG = 128,
	RESOLVE_MS = 5000,
	BUDGET = 16,  /* rounds of polling before others have their turn */
	LATER_MS = 5, /* until what could not be done is tried again */
};

/* ---- completion queues in the loop ---- */

void rdma_kick(struct link_rdma *rdma)
{
	if (mqr_loop_wait(&rdma->mqr) >= 0)
		loop_defer(rdma->host->loop, &rdma->task);
}

static void count(struct link_rdma *rdma)
{
	rdma->host->stats.reads += rdma->mqr.receives;
	rdma->host->stats.writes += rdma->mqr.posts;
	rdma->host->stats.payload_copied += rdma->mqr.copied;
	rdma->mqr.receives = rdma->mqr.posts = rdma->mqr.copied = 0;
}

/* What is left to do is done somewhat later: chunks, or completions, have to come first. */
static void run(struct link_rdma *rdma, struct mqr_device *device)
{
	struct loop *loop = rdma->host->loop;
	const bool more = mqr_loop_run(&rdma->mqr, device, BUDGET) > 0;

	count(rdma);
	if (more)
		loop_timer_set(loop, &rdma->timer, 0);
	else if (mqr_loop_wait(&rdma->mqr) >= 0 && !rdma->timer.place)
		loop_timer_set(loop, &rdma->timer, LATER_MS);
}

static void run_all(struct link_rdma *rdma)
{
	for (int i = 0; i < rdma->mqr.devices; i++)
		run(rdma, &rdma->mqr.device[i]);
}

static void run_task(struct loop_task *task)
{
	run_all(container_of(task, struct link_rdma, task));
}

static void run_timer(struct loop_timer *timer)
{
	run_all(container_of(timer, struct link_rdma, timer));
}

static void completed(struct loop_fd *fd, uint32_t events)
{
	struct rdma_cq_fd *cq = container_of(fd, struct rdma_cq_fd, fd);

	(void)events;
	cq->device->armed = false;
	run(cq->rdma, cq->device);
}

/* Device i, whose completions the loop tells of; NULL with errno, and it may be asked for again. */
static struct mqr_device *watch(struct link_rdma *rdma, int i)
{
	struct mqr_device *d = &rdma->mqr.device[i];
	struct rdma_cq_fd *cq = &rdma->cq[i];

	if (cq->rdma)
		return d;
	*cq = (struct rdma_cq_fd){.fd = {.ready = completed, .fd = sgp_cq_fd(d->cq)}, .device = d};
	if (loop_add(rdma->host->loop, &cq->fd, EPOLLIN))
		return NULL;
	if (sgp_cq_arm(d->cq)) {
		const int err = errno;

		loop_remove(rdma->host->loop, &cq->fd);
		errno = err;
		return NULL;
	}
	cq->rdma = rdma;
	return d;
}

static struct mqr_device *need_device(struct link_rdma *rdma, struct ibv_context *verbs)
{
	struct ibv_pd *pd;

	for (int i = 0; i < rdma->mqr.devices; i++)
		if (rdma->mqr.device[i].verbs == verbs)
			return watch(rdma, i);
	pd = rdma_domain_get(verbs, rdma->host->memory->pool);
	if (!pd)
		return NULL;
	if (!mqr_loop_device(&rdma->mqr, verbs, pd)) {
		rdma_domain_put(pd);
		return NULL;
	}
	return watch(rdma, rdma->mqr.devices - 1);
}

/* ---- links ---- */

static void name_peer(struct rdma_link *l, const struct sockaddr *sa)
{
	char host[INET6_ADDRSTRLEN] = "?";
	uint16_t port = 0;

	if (sa->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)sa;

		inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
		port = ntohs(in->sin_port);
	} else if (sa->sa_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)sa;

		inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof host);
		port = ntohs(in6->sin6_port);
	}
	snprintf(l->link.peer, sizeof l->link.peer, "%s port %u over RDMA", host, port);
}

static struct rdma_link *make_link(struct link_rdma *rdma, const struct link_events *events,
				   void *owner)
{
	struct rdma_link *l = calloc(1, sizeof *l);

	if (!l)
		return NULL;
	l->link = (struct link){.ops = &rdma_link_ops,
				.events = events,
				.owner = owner,
				.host = rdma->host,
				.heard = loop_now(rdma->host->loop)};
	l->rdma = rdma;
	l->last_late = &l->late;
	l->task.run = rdma_link_task;
	l->timer.fire = rdma_link_look;
	l->conn.arg = l;
	l->id_owner.link = l;
	return l;
}

/* Queues and receives. The id is the connection's then. Returns 0; -1 with errno. */
static int open_queues(struct rdma_link *l, struct rdma_cm_id *id)
{
	struct mqr_device *device = need_device(l->rdma, id->verbs);

	if (!device || mqr_conn_open(&l->conn, &l->rdma->mqr, device, id))
		return -1;
	l->id = NULL;
	return 0;
}

struct link *link_rdma_accept(struct link_rdma *rdma, const struct link_rdma_request *request,
			      const struct link_events *events, void *owner)
{
	struct rdma_link *l = make_link(rdma, events, owner);
	struct rdma_cm_id *id = request->id;
	uint8_t hello[MQR_HELLO];
	struct rdma_conn_param param;
	int err;

	if (!l || (id->channel != rdma->channel && rdma_migrate_id(id, rdma->channel)) ||
	    open_queues(l, id)) {
		err = errno;
		mqr_refuse(id, MQR_REFUSED_BUSY);
		free(l);
		errno = err;
		return NULL;
	}
	id->context = &l->id_owner;
	name_peer(l, rdma_get_peer_addr(id));
	mqr_conn_param(&l->conn, hello, &param);
	rdma->links++;
	/* It was a good hello before. */
	if (mqr_conn_greet(&l->conn, request->data, request->n) || rdma_accept(id, &param)) {
		mqr_conn_fail(&l->conn, errno, "it can't be accepted: %s", strerror(errno));
		rdma_kick(rdma);
	} else {
		mqr_conn_accepted(&l->conn);
	}
	l->state = RDMA_UP;
	return &l->link;
}

void link_rdma_refuse(const struct link_rdma_request *request)
{
	mqr_refuse(request->id, MQR_REFUSED_BUSY);
}

/* ---- connecting ---- */

struct link *link_rdma_connect(struct link_rdma *rdma, const struct sockaddr *addr,
			       const struct link_events *events, void *owner)
{
	struct rdma_link *l = make_link(rdma, events, owner);
	int err;

	if (!l)
		return NULL;
	/* rdma_resolve_addr(3) does not write to the address, but says so only in newer versions. */
	if (!rdma_create_id(rdma->channel, &l->id, &l->id_owner, RDMA_PS_TCP)) {
		name_peer(l, addr);
		if (!rdma_resolve_addr(l->id, NULL, (struct sockaddr *)(uintptr_t)addr,
				       RESOLVE_MS)) {
			rdma->links++;
			return &l->link;
		}
	}
	err = errno;
	if (l->id)
		rdma_destroy_id(l->id);
	free(l);
	errno = err;
	return NULL;
}

static void connect_failed(struct rdma_link *l, int err, const char *why)
{
	l->why = why;
	rdma_link_end(l, err ? err : ECONNREFUSED);
}

static void connect_now(struct rdma_link *l)
{
	uint8_t hello[MQR_HELLO];
	struct rdma_conn_param param;

	if (open_queues(l, l->id)) {
		connect_failed(l, errno, "no queues or no memory for the connection");
		return;
	}
	mqr_conn_param(&l->conn, hello, &param);
	if (rdma_connect(l->conn.id, &param))
		connect_failed(l, errno, "it can't be connected");
}

/* An event before the connection is established. */
static void connecting(struct rdma_link *l, const struct rdma_cm_event *event)
{
	const struct rdma_conn_param *param = &event->param.conn;

	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		if (rdma_resolve_route(l->id, RESOLVE_MS))
			connect_failed(l, errno, "there is no route");
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		connect_now(l);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		if (mqr_conn_greet(&l->conn, param->private_data, param->private_data_len)) {
			connect_failed(l, EPROTO, "what answers is no broker");
			break;
		}
		l->state = RDMA_UP;
		mqr_conn_pause(&l->conn, l->paused);
		mqr_conn_event(&l->conn, event);
		break;
	case RDMA_CM_EVENT_REJECTED:
		connect_failed(l, ECONNREFUSED,
			       mqr_refusal_text(param->private_data, param->private_data_len));
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
		connect_failed(l, EADDRNOTAVAIL, "no RDMA device leads there");
		break;
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_ROUTE_ERROR:
		connect_failed(l, EHOSTUNREACH, "it does not answer");
		break;
	default:
		connect_failed(l, ECONNRESET, rdma_event_str(event->event));
	}
}

/* ---- events ---- */

static void asked(struct link_rdma_listener *listener, const struct rdma_cm_event *event)
{
	struct link_rdma_request request = {.id = event->id};
	const struct rdma_conn_param *param = &event->param.conn;

	event->id->context = NULL;
	if (!param->private_data || mqr_hello_check(param->private_data, param->private_data_len)) {
		mqr_refuse(event->id, MQR_REFUSED_WIRE);
		return;
	}
	request.n = sizeof request.data;
	memcpy(request.data, param->private_data, sizeof request.data);
	listener->request(listener, &request);
}

static void happened(const struct rdma_cm_event *event)
{
	const struct rdma_id_owner *owner = event->id->context;
	struct link_rdma *rdma;

	if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
		owner = event->listen_id->context;
		asked(owner->listener, event);
		return;
	}
	/* Of a listener: a device goes. Of one that has not been accepted yet: accepting will fail. */
	if (!owner || !owner->link)
		return;
	rdma = owner->link->rdma;
	if (owner->link->state == RDMA_CONNECTING)
		connecting(owner->link, event);
	else
		mqr_conn_event(&owner->link->conn, event);
	count(rdma);
	rdma_kick(rdma);
}

static void take_events(struct loop_fd *fd, uint32_t events)
{
	struct link_rdma *rdma = container_of(fd, struct link_rdma, events);
	struct rdma_cm_event *event, copy;
	uint8_t data[UINT8_MAX];

	(void)events;
	while (rdma_get_cm_event(rdma->channel, &event) == 0) {
		copy = *event;
		if (copy.param.conn.private_data) {
			memcpy(data, copy.param.conn.private_data,
			       copy.param.conn.private_data_len);
			copy.param.conn.private_data = data;
		}
		rdma_ack_cm_event(event);
		happened(&copy);
	}
}

/* ---- listening ---- */

int link_rdma_listen(struct link_rdma *rdma, struct link_rdma_listener *listener,
		     const struct sockaddr *addr)
{
	int err;

	listener->owner = (struct rdma_id_owner){.listener = listener};
	if (rdma_create_id(rdma->channel, &listener->id, &listener->owner, RDMA_PS_TCP))
		return -1;
	/* Where the address tells the device, memory is registered there now, and not with a client. */
	if (!rdma_bind_addr(listener->id, (struct sockaddr *)(uintptr_t)addr) &&
	    (!listener->id->verbs || need_device(rdma, listener->id->verbs)) &&
	    !rdma_listen(listener->id, BACKLOG))
		return 0;
	err = errno;
	link_rdma_unlisten(listener);
	errno = err;
	return -1;
}

void link_rdma_unlisten(struct link_rdma_listener *listener)
{
	if (listener->id)
		rdma_destroy_id(listener->id);
	listener->id = NULL;
}

uint16_t link_rdma_port(const struct link_rdma_listener *listener)
{
	return ntohs(rdma_get_src_port(listener->id));
}

/* ---- a thread's ---- */

static int open_channel(struct link_rdma *rdma)
{
	int flags;

	rdma->channel = rdma_create_event_channel();
	if (!rdma->channel)
		return -1;
	flags = fcntl(rdma->channel->fd, F_GETFL);
	if (flags < 0 || fcntl(rdma->channel->fd, F_SETFL, flags | O_NONBLOCK))
		return -1;
	rdma->events = (struct loop_fd){.ready = take_events, .fd = rdma->channel->fd};
	return loop_add(rdma->host->loop, &rdma->events, EPOLLIN);
}

struct link_rdma *link_rdma_open(struct link_host *host, const struct mqr_attr *attr)
{
	struct link_rdma *rdma = calloc(1, sizeof *rdma);
	int err;

	if (!rdma)
		return NULL;
	rdma->host = host;
	rdma->mqr =
		(struct mqr_loop){.pool = host->memory->pool, .ops = &rdma_mqr_ops, .attr = *attr};
	rdma->mqr.attr.max_packet = (uint64_t)host->limits.head + host->limits.payload;
	rdma->task.run = run_task;
	rdma->timer.fire = run_timer;
	if (!open_channel(rdma))
		return rdma;
	err = errno;
	if (rdma->channel)
		rdma_destroy_event_channel(rdma->channel);
	free(rdma);
	errno = err;
	return NULL;
}

uint64_t link_rdma_shared(const struct link_rdma *rdma)
{
	return mqr_loop_shared(&rdma->mqr);
}

int link_rdma_close(struct link_rdma *rdma)
{
	struct loop *loop = rdma->host->loop;
	struct ibv_pd *pd[MQR_DEVICES];
	const int n = rdma->mqr.devices;
	int ret;

	loop_defer_cancel(loop, &rdma->task);
	loop_timer_stop(loop, &rdma->timer);
	loop_remove(loop, &rdma->events);
	for (int i = 0; i < n; i++) {
		if (rdma->cq[i].rdma)
			loop_remove(loop, &rdma->cq[i].fd);
		pd[i] = rdma->mqr.device[i].pd;
	}
	ret = mqr_loop_end(&rdma->mqr);
	for (int i = 0; i < n; i++)
		if (rdma_domain_put(pd[i]))
			ret = -1;
	rdma_destroy_event_channel(rdma->channel);
	mqr_list_free(&rdma->payload);
	free(rdma);
	return ret;
}
