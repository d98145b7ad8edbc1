/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections: listen, connect, accept, reject, establish, disconnect. */
#include "softverbs/cm.h"

/* Room for private data in the messages of the InfiniBand connection manager; what is not used
 * arrives as zeros. The connect request shares its 92 bytes with the IP addresses. */
#define PRIV_REQ      56
#define PRIV_REP      196
#define PRIV_REJ      148
#define PRIV_SIDR_REQ 180
#define PRIV_SIDR_REP 136
/* Of a service ID resolution. */
#define SIDR_UNSUPPORTED 1
#define SIDR_REJECT      2
#define PRIV_MAX_BACKLOG 1024

static size_t pad(const struct sw_id *id, size_t n)
{
	return sw_cm_iwarp(id) ? 0 : n;
}

int rdma_listen(struct rdma_cm_id *rid, int backlog)
{
	struct sw_id *id = sw_id(rid);
	struct sockaddr_in any = {.sin_family = AF_INET};
	int err = SW_FAULT(listen);

	if (err)
		return sw_fail(err);
	sw_lock();
	if (id->state == SW_CM_IDLE)
		err = sw_cm_bind(id, (struct sockaddr *)&any);
	if (!err && id->state != SW_CM_BOUND)
		err = EINVAL;
	if (!err)
		err = sw_cm_port_shared(id) ? EADDRINUSE : 0;
	if (!err) {
		id->backlog =
			backlog > 0 && backlog < PRIV_MAX_BACKLOG ? backlog : PRIV_MAX_BACKLOG;
		id->state = SW_CM_LISTEN;
	}
	sw_unlock();
	return err ? sw_fail(err) : 0;
}

/* The listener that a request for this address finds: an exact address before a wildcard. */
static struct sw_id *listener_for(const struct sw_id *id)
{
	const struct sockaddr *dst = &id->id.route.addr.dst_addr;
	struct sw_id *any = NULL;
	struct sw_list *l;

	sw_each (l, sw_cm_ids()) {
		struct sw_id *o = sw_outer(l, struct sw_id, link);
		const struct sockaddr *at = &o->id.route.addr.src_addr;

		if (o->state != SW_CM_LISTEN || o->port != sw_get_port(dst) ||
		    o->id.ps != id->id.ps)
			continue;
		if (sw_is_any(at) &&
		    (at->sa_family == dst->sa_family || (at->sa_family == AF_INET6 && !o->afonly)))
			any = o;
		else if (at->sa_family == dst->sa_family && !memcmp(at, dst, sw_addrlen(dst)))
			return o;
	}
	return any;
}

/* The id that the listener's user will get. */
static struct sw_id *passive_id(struct sw_id *listener, struct sw_id *active, int *err)
{
	struct sw_id *id =
		sw_cm_id_new(listener->id.context, listener->id.ps, listener->id.qp_type);
	const struct rdma_addr *from = &active->id.route.addr;
	struct rdma_addr *a;
	struct sw_device *dev;
	int port;

	if (!id) {
		*err = ENOMEM;
		return NULL;
	}
	a = &id->id.route.addr;
	a->src_storage = from->dst_storage;
	a->dst_storage = from->src_storage;
	dev = sw_port_by_addr(&a->src_addr, &port);
	*err = dev ? sw_cm_attach(id, dev, port) : ENODEV;
	if (*err) {
		sw_cm_id_free(id);
		return NULL;
	}
	a->addr.ibaddr.dgid = from->addr.ibaddr.sgid;
	id->id.channel = listener->id.channel;
	id->state = SW_CM_REQUESTED;
	id->remote_qpn = active->param.qp_num;
	id->initiator_depth = active->responder_resources;
	id->responder_resources = active->initiator_depth;
	id->remote_ece = active->local_ece;
	id->peer = active;
	active->peer = id;
	return id;
}

void sw_cm_refused(struct sw_id *id, int reason, const void *priv, size_t len)
{
	struct sw_event *e;

	sw_cm_await(id, SW_CM_NOTHING);
	id->state = SW_CM_CLOSED;
	if (sw_cm_ud(id)) {
		e = sw_cm_event(id, RDMA_CM_EVENT_UNREACHABLE,
				reason == SW_REJ_INVALID_SID ? SIDR_UNSUPPORTED : SIDR_REJECT);
		sw_cm_event_priv(e, priv, len, PRIV_SIDR_REP);
		return;
	}
	e = sw_cm_event(id, RDMA_CM_EVENT_REJECTED, sw_cm_iwarp(id) ? -ECONNRESET : reason);
	sw_cm_event_priv(e, priv, len, pad(id, PRIV_REJ));
}

static int send_request(struct sw_id *id, const void *priv, size_t len)
{
	struct sw_id *listener = listener_for(id), *passive;
	struct sw_event *e;
	int err;

	/* iWARP: TCP says so at once, and nothing has happened. */
	if (!listener && sw_cm_iwarp(id))
		return ECONNREFUSED;
	id->state = SW_CM_CONNECT;
	if (!listener) {
		sw_cm_refused(id, SW_REJ_INVALID_SID, NULL, 0);
		return 0;
	}
	if (listener->queued >= listener->backlog && sw_cm_iwarp(id)) {
		sw_cm_refused(id, SW_REJ_CONSUMER, NULL, 0);
		return 0;
	}
	sw_cm_await(id, SW_CM_ANSWER);
	if (listener->queued >= listener->backlog)
		return 0; /* the request is dropped */
	passive = passive_id(listener, id, &err);
	e = passive ? sw_cm_event(listener, RDMA_CM_EVENT_CONNECT_REQUEST, 0) : NULL;
	if (!e) {
		if (passive) {
			id->peer = NULL;
			sw_cm_id_free(passive);
		}
		sw_cm_refused(id, SW_REJ_NO_RESOURCES, NULL, 0);
		return 0;
	}
	e->passive = passive;
	listener->queued++;
	if (sw_cm_ud(id)) {
		sw_cm_event_priv(e, priv, len, PRIV_SIDR_REQ);
		return 0;
	}
	sw_cm_event_conn(e, id);
	if (sw_cm_iwarp(id)) /* its messages carry no more than the depths */
		e->ev.param.conn.retry_count = e->ev.param.conn.rnr_retry_count = 0;
	if (sw_cm_iwarp(id))
		e->ev.param.conn.qp_num = 0;
	sw_cm_event_priv(e, priv, len, pad(id, PRIV_REQ));
	return 0;
}

/* What both connect and accept check and remember. */
static int set_param(struct sw_id *id, const struct rdma_conn_param *p, size_t max_priv)
{
	const struct ibv_device_attr *d = &id->dev->dev->p.attr;

	if (!p && !id->id.qp && !sw_cm_ud(id))
		return EINVAL;
	if (p && p->responder_resources != RDMA_MAX_RESP_RES &&
	    p->responder_resources > d->max_qp_rd_atom)
		return EINVAL;
	if (p && p->initiator_depth != RDMA_MAX_INIT_DEPTH &&
	    p->initiator_depth > d->max_qp_init_rd_atom)
		return EINVAL;
	if (p && p->private_data_len && !sw_cm_iwarp(id) && p->private_data_len > max_priv)
		return EINVAL;
	if (p)
		id->param = *p;
	else
		id->param = (struct rdma_conn_param){.retry_count = 7, .rnr_retry_count = 7};
	id->param.private_data = NULL;
	if (id->id.qp) {
		id->param.qp_num = id->id.qp->qp_num;
		id->param.srq = id->id.qp->srq != NULL;
	}
	return 0;
}

static uint8_t depth(uint8_t asked, uint8_t offered, int max)
{
	int n = asked != UINT8_MAX ? asked : offered < max ? offered : max;

	return (uint8_t)(n > UINT8_MAX ? UINT8_MAX : n);
}

static void set_depths(struct sw_id *id, const struct rdma_conn_param *p)
{
	const struct ibv_device_attr *d = &id->dev->dev->p.attr;

	id->initiator_depth = depth(p ? p->initiator_depth : UINT8_MAX, id->initiator_depth,
				    d->max_qp_init_rd_atom);
	id->responder_resources = depth(p ? p->responder_resources : UINT8_MAX,
					id->responder_resources, d->max_qp_rd_atom);
}

int rdma_connect(struct rdma_cm_id *rid, struct rdma_conn_param *p)
{
	struct sw_id *id = sw_id(rid);
	int err = SW_FAULT(connect);

	if (err)
		return sw_fail(err);
	sw_lock();
	if (id->state != SW_CM_ROUTE)
		err = EINVAL;
	if (!err)
		err = set_param(id, p, sw_cm_ud(id) ? PRIV_SIDR_REQ : PRIV_REQ);
	if (!err) {
		set_depths(id, p);
		err = send_request(id, p ? p->private_data : NULL, p ? p->private_data_len : 0);
	}
	sw_unlock();
	return err ? sw_fail(err) : sw_cm_complete(rid);
}

/* The answer to a service ID resolution: both sides are done. */
static int send_sidr_reply(struct sw_id *id, const struct rdma_conn_param *p)
{
	struct sw_event *e;

	if (id->state != SW_CM_REQUESTED || !id->peer)
		return EINVAL;
	e = sw_cm_event(id->peer, RDMA_CM_EVENT_ESTABLISHED, 0);
	if (!e)
		return ENOMEM;
	sw_cm_await(id->peer, SW_CM_NOTHING);
	sw_cm_event_ud(e, id->peer, &id->id.route.addr.addr.ibaddr.sgid, id->param.qp_num);
	sw_cm_event_priv(e, p ? p->private_data : NULL, p ? p->private_data_len : 0, PRIV_SIDR_REP);
	id->peer->state = SW_CM_CONNECTED;
	id->state = SW_CM_CONNECTED;
	id->peer->peer = NULL;
	id->peer = NULL;
	return 0;
}

static struct sw_qp *qp_of(const struct sw_id *id)
{
	return id->id.qp ? sw_qp(id->id.qp) : sw_qp_find(id->dev->dev, id->param.qp_num);
}

/* iWARP: the kernel makes the connection, there is no third message. */
static int iwarp_reply(struct sw_id *id, const struct rdma_conn_param *p)
{
	struct sw_qp *a = qp_of(id->peer), *b = qp_of(id);
	struct sw_event *own, *e;

	if (!a || !b)
		return EINVAL;
	sw_iwarp_connect(a, b, id->peer->initiator_depth, id->peer->responder_resources);
	sw_iwarp_connect(b, a, id->initiator_depth, id->responder_resources);
	own = sw_cm_event(id, RDMA_CM_EVENT_ESTABLISHED, 0);
	sw_cm_event_priv(own, NULL, 0, 0);
	e = sw_cm_event(id->peer, RDMA_CM_EVENT_ESTABLISHED, 0);
	sw_cm_event_priv(e, p ? p->private_data : NULL, p ? p->private_data_len : 0, 0);
	id->state = id->peer->state = SW_CM_CONNECTED;
	sw_cm_await(id->peer, SW_CM_NOTHING);
	return own && e ? 0 : ENOMEM;
}

static int send_reply(struct sw_id *id, const struct rdma_conn_param *p)
{
	struct sw_event *e;

	if (id->state != SW_CM_REQUESTED)
		return EINVAL;
	if (!id->peer) {
		/* The asker has gone. */
		return sw_cm_iwarp(id) ? ECONNRESET : EINVAL;
	}
	id->peer->remote_qpn = id->param.qp_num;
	id->peer->remote_ece = id->local_ece;
	id->peer->initiator_depth =
		depth(id->peer->initiator_depth, UINT8_MAX, id->responder_resources);
	id->peer->responder_resources =
		depth(id->peer->responder_resources, UINT8_MAX, id->initiator_depth);
	if (sw_cm_iwarp(id))
		return iwarp_reply(id, p);
	e = sw_cm_event(id->peer, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
	if (!e)
		return ENOMEM;
	sw_cm_event_conn(e, id);
	sw_cm_event_priv(e, p ? p->private_data : NULL, p ? p->private_data_len : 0,
			 pad(id, PRIV_REP));
	id->state = SW_CM_ACCEPTED;
	id->peer->state = SW_CM_ACCEPTED;
	sw_cm_await(id->peer, SW_CM_NOTHING);
	sw_cm_await(id, SW_CM_ANSWER);
	return 0;
}

int rdma_accept(struct rdma_cm_id *rid, struct rdma_conn_param *p)
{
	struct sw_id *id = sw_id(rid);
	int err = SW_FAULT(accept);

	if (err)
		return sw_fail(err);
	sw_lock();
	err = id->state != SW_CM_REQUESTED
		      ? EINVAL
		      : set_param(id, p, sw_cm_ud(id) ? PRIV_SIDR_REP : PRIV_REP);
	if (!err)
		set_depths(id, p);
	sw_unlock();
	if (err)
		return sw_fail(err);
	if (!sw_cm_ud(id) && sw_cm_qp_rts(rid, id->responder_resources, id->initiator_depth))
		return -1;
	sw_lock();
	err = sw_cm_ud(id) ? send_sidr_reply(id, p) : send_reply(id, p);
	sw_unlock();
	if (err) {
		sw_cm_qp_error(rid);
		return sw_fail(err);
	}
	return sw_cm_ud(id) ? 0 : sw_cm_complete(rid);
}

static int reject(struct sw_id *id, const void *priv, size_t len, int reason)
{
	if (id->state != SW_CM_REQUESTED)
		return EINVAL;
	if (!sw_cm_iwarp(id) && len > PRIV_REJ)
		return EINVAL;
	id->state = SW_CM_CLOSED;
	if (!id->peer)
		return 0;
	sw_cm_refused(id->peer, reason, priv, len);
	id->peer->peer = NULL;
	id->peer = NULL;
	return 0;
}

static int do_reject(struct rdma_cm_id *rid, const void *priv, uint8_t len, int reason)
{
	int err = SW_FAULT(reject);

	if (err)
		return sw_fail(err);
	sw_lock();
	err = reject(sw_id(rid), priv, priv ? len : 0, reason);
	sw_unlock();
	return err ? sw_fail(err) : 0;
}

int rdma_reject(struct rdma_cm_id *id, const void *priv, uint8_t len)
{
	return do_reject(id, priv, len, SW_REJ_CONSUMER);
}

int rdma_reject_ece(struct rdma_cm_id *id, const void *priv, uint8_t len)
{
	return do_reject(id, priv, len, 35); /* vendor option not supported */
}

void sw_cm_established(struct sw_id *id)
{
	sw_lock();
	id->state = SW_CM_CONNECTED;
	if (id->peer && id->peer->state == SW_CM_ACCEPTED) {
		struct sw_event *e = sw_cm_event(id->peer, RDMA_CM_EVENT_ESTABLISHED, 0);

		id->peer->state = SW_CM_CONNECTED;
		sw_cm_await(id->peer, SW_CM_NOTHING);
		sw_cm_event_priv(e, NULL, 0, 0);
	}
	sw_unlock();
}

int rdma_establish(struct rdma_cm_id *rid)
{
	struct sw_id *id = sw_id(rid);
	int err = SW_FAULT(establish);

	/* With a QP of its own the id does this by itself: rdma_establish(3). */
	if (!err && (rid->qp || id->state != SW_CM_ACCEPTED))
		err = EINVAL;
	if (err)
		return sw_fail(err);
	sw_cm_established(id);
	return 0;
}

/* A packet came from the peer before its message: rdma_notify(3). */
int rdma_notify(struct rdma_cm_id *rid, enum ibv_event_type event)
{
	struct sw_id *id = sw_id(rid);
	int err = 0;

	sw_lock();
	if (event != IBV_EVENT_COMM_EST || id->state < SW_CM_ACCEPTED) {
		err = EINVAL;
	} else if (id->state == SW_CM_ACCEPTED) {
		id->state = SW_CM_CONNECTED;
		sw_cm_await(id, SW_CM_NOTHING);
		if (!sw_cm_event(id, RDMA_CM_EVENT_ESTABLISHED, 0))
			err = ENOMEM;
	}
	sw_unlock();
	return err ? sw_fail(err) : 0;
}
