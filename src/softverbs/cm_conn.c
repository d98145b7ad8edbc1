/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections: listen, connect, accept, reject, establish, disconnect. */
#include "softverbs/net.h"

/* Of a service ID resolution. */
#define SIDR_UNSUPPORTED 1
#define SIDR_REJECT      2
#define PRIV_MAX_BACKLOG 1024
/* How long a request is said again while nobody listens. */
#define PATIENCE_NS 500000000u

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
	/* Whoever shares the port with others of this process has it among the processes by now. */
	if (!err && sw_net_wanted())
		err = sw_net_claim_port(id);
	if (!err)
		err = sw_net_listen(id);
	if (!err) {
		id->backlog =
			backlog > 0 && backlog < PRIV_MAX_BACKLOG ? backlog : PRIV_MAX_BACKLOG;
		id->state = SW_CM_LISTEN;
	}
	sw_unlock();
	return err ? sw_fail(err) : 0;
}

void sw_cm_refused(struct sw_id *id, int reason, const void *priv, size_t len)
{
	struct sw_event *e;

	sw_cm_await(id, SW_CM_NOTHING);
	id->state = SW_CM_CLOSED;
	if (sw_cm_ud(id)) {
		e = sw_cm_event(id, RDMA_CM_EVENT_UNREACHABLE,
				reason == SW_REJ_INVALID_SID ? SIDR_UNSUPPORTED : SIDR_REJECT);
		sw_cm_event_priv(e, priv, len, SW_PRIV_SIDR_REP);
		return;
	}
	e = sw_cm_event(id, RDMA_CM_EVENT_REJECTED, sw_cm_iwarp(id) ? -ECONNRESET : reason);
	sw_cm_event_priv(e, priv, len, sw_cm_pad(id, SW_PRIV_REJ));
}

/* 0: an answer will come, or has come. ECONNREFUSED: nobody listens. */
static int ask(struct sw_id *id)
{
	struct sw_id *listener = sw_cm_listener(id->id.ps, &id->id.route.addr.dst_addr), *passive;
	int reason;

	if (!listener)
		return sw_net_wanted() ? sw_cm_wire_request(id, id->asked) : ECONNREFUSED;
	reason = sw_cm_take_request(listener, id->asked, &passive);
	if (reason > 0)
		sw_cm_refused(id, reason, NULL, 0);
	if (!reason) {
		passive->peer = id;
		id->peer = passive;
	}
	return 0;
}

/* A listener that is about to be made is found by a client that was too quick, as it would be over
 * a network that takes its time. In one process everything is at once. */
bool sw_cm_nobody(struct sw_id *id)
{
	if (!sw_net_wanted() || sw_now() >= id->patience)
		return false;
	sw_cm_await(id, SW_CM_AGAIN);
	return true;
}

void sw_cm_ask_again(struct sw_id *id)
{
	if (ask(id)) {
		if (!sw_cm_nobody(id))
			sw_cm_refused(id, SW_REJ_INVALID_SID, NULL, 0);
	} else if (id->state == SW_CM_CONNECT) {
		sw_cm_await(id, SW_CM_ANSWER);
	}
}

static int send_request(struct sw_id *id, const void *priv, size_t len)
{
	enum sw_cm_state was = id->state;

	if (!id->asked)
		id->asked = malloc(sizeof *id->asked);
	if (!id->asked)
		return ENOMEM;
	sw_cm_say(id, SW_CM_REQ, priv, len, id->asked);
	id->patience = sw_now() + PATIENCE_NS;
	id->state = SW_CM_CONNECT;
	if (!sw_cm_iwarp(id)) {
		sw_cm_ask_again(id);
		return 0;
	}
	/* iWARP: TCP says so at once, and nothing has happened. */
	if (ask(id)) {
		id->state = was;
		return ECONNREFUSED;
	}
	if (id->state == SW_CM_CONNECT)
		sw_cm_await(id, SW_CM_ANSWER);
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
		id->qp = sw_qp(id->id.qp);
		id->param.qp_num = id->id.qp->qp_num;
		id->param.srq = id->id.qp->srq != NULL;
	}
	return 0;
}

static void set_depths(struct sw_id *id, const struct rdma_conn_param *p)
{
	const struct ibv_device_attr *d = &id->dev->dev->p.attr;

	id->initiator_depth = sw_cm_depth(p ? p->initiator_depth : UINT8_MAX, id->initiator_depth,
					  d->max_qp_init_rd_atom);
	id->responder_resources = sw_cm_depth(p ? p->responder_resources : UINT8_MAX,
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
		err = set_param(id, p, sw_cm_ud(id) ? SW_PRIV_SIDR_REQ : SW_PRIV_REQ);
	if (!err) {
		set_depths(id, p);
		err = send_request(id, p ? p->private_data : NULL, p ? p->private_data_len : 0);
	}
	sw_unlock();
	return err ? sw_fail(err) : sw_cm_complete(rid);
}

/* The peer's half of a reply. */
static int reply_to_peer(struct sw_id *id, const void *priv, size_t len)
{
	struct sw_cm_msg m;

	if (id->wire) {
		sw_cm_wire_say(id, SW_CM_REP, 0, priv, len);
		return 0;
	}
	sw_cm_say(id, SW_CM_REP, priv, len, &m);
	return sw_cm_take_reply(id->peer, &m);
}

/* The answer to a service ID resolution: both sides are done. */
static int send_sidr_reply(struct sw_id *id, const void *priv, size_t len)
{
	int err;

	if (id->state != SW_CM_REQUESTED || (!id->peer && !id->wire))
		return EINVAL;
	err = reply_to_peer(id, priv, len);
	if (err)
		return err;
	id->state = SW_CM_CONNECTED;
	sw_cm_wire_end(id);
	if (id->peer)
		id->peer->peer = NULL;
	id->peer = NULL;
	return 0;
}

/* iWARP: the kernel makes the connection, there is no third message. */
static int iwarp_reply(struct sw_id *id, const void *priv, size_t len)
{
	struct sw_event *own;

	if (!sw_cm_qp(id) || (id->peer && !sw_cm_qp(id->peer)))
		return EINVAL;
	sw_cm_iwarp_join(id, id->peer ? id->peer->dev->dev : NULL);
	own = sw_cm_event(id, RDMA_CM_EVENT_ESTABLISHED, 0);
	sw_cm_event_priv(own, NULL, 0, 0);
	id->state = SW_CM_CONNECTED;
	return reply_to_peer(id, priv, len) || !own ? ENOMEM : 0;
}

static int send_reply(struct sw_id *id, const void *priv, size_t len)
{
	int err;

	if (id->state != SW_CM_REQUESTED)
		return EINVAL;
	if (!id->peer && !id->wire) {
		/* The asker has gone. */
		return sw_cm_iwarp(id) ? ECONNRESET : EINVAL;
	}
	if (sw_cm_iwarp(id))
		return iwarp_reply(id, priv, len);
	err = reply_to_peer(id, priv, len);
	if (err)
		return err;
	id->state = SW_CM_ACCEPTED;
	sw_cm_await(id, SW_CM_ANSWER);
	return 0;
}

int rdma_accept(struct rdma_cm_id *rid, struct rdma_conn_param *p)
{
	const void *priv = p ? p->private_data : NULL;
	size_t len = p ? p->private_data_len : 0;
	struct sw_id *id = sw_id(rid);
	int err = SW_FAULT(accept);

	if (err)
		return sw_fail(err);
	sw_lock();
	err = id->state != SW_CM_REQUESTED
		      ? EINVAL
		      : set_param(id, p, sw_cm_ud(id) ? SW_PRIV_SIDR_REP : SW_PRIV_REP);
	if (!err)
		set_depths(id, p);
	sw_unlock();
	if (err)
		return sw_fail(err);
	if (!sw_cm_ud(id) && sw_cm_qp_rts(rid, id->responder_resources, id->initiator_depth))
		return -1;
	sw_lock();
	err = sw_cm_ud(id) ? send_sidr_reply(id, priv, len) : send_reply(id, priv, len);
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
	if (!sw_cm_iwarp(id) && len > SW_PRIV_REJ)
		return EINVAL;
	id->state = SW_CM_CLOSED;
	if (id->wire)
		sw_cm_wire_say(id, SW_CM_REJ, reason, priv, len);
	sw_cm_wire_end(id);
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
	if (id->peer)
		sw_cm_take_rtu(id->peer);
	else if (id->wire)
		sw_cm_wire_say(id, SW_CM_RTU, 0, NULL, 0);
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
