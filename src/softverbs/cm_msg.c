/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages of the connection manager: what one id says, and what it does to the one that hears it. */
#include "softverbs/net.h"

size_t sw_cm_pad(const struct sw_id *id, size_t n)
{
	return sw_cm_iwarp(id) ? 0 : n;
}

uint8_t sw_cm_depth(uint8_t asked, uint8_t offered, int max)
{
	int n = asked != UINT8_MAX ? asked : offered < max ? offered : max;

	return (uint8_t)(n > UINT8_MAX ? UINT8_MAX : n);
}

struct sw_qp *sw_cm_qp(const struct sw_id *id)
{
	return id->qp ? id->qp : sw_qp_find(id->dev->dev, id->param.qp_num);
}

/* ---- saying ---- */

static void put_addr(struct sw_cm_addr *a, const struct sockaddr *from)
{
	const struct sockaddr_in *in4 = (const void *)from;
	const struct sockaddr_in6 *in6 = (const void *)from;

	a->family = from->sa_family;
	a->port = in4->sin_port;
	if (from->sa_family == AF_INET)
		memcpy(a->ip, &in4->sin_addr, sizeof in4->sin_addr);
	else
		memcpy(a->ip, &in6->sin6_addr, sizeof in6->sin6_addr);
}

void sw_cm_addr_get(const struct sw_cm_addr *a, struct sockaddr_storage *to)
{
	struct sockaddr_in *in4 = (void *)to;
	struct sockaddr_in6 *in6 = (void *)to;

	memset(to, 0, sizeof *to);
	to->ss_family = a->family;
	in4->sin_port = a->port;
	if (a->family == AF_INET)
		memcpy(&in4->sin_addr, a->ip, sizeof in4->sin_addr);
	else
		memcpy(&in6->sin6_addr, a->ip, sizeof in6->sin6_addr);
}

void sw_cm_say(const struct sw_id *id, enum sw_cm_kind kind, const void *priv, size_t len,
	       struct sw_cm_msg *m)
{
	const struct rdma_addr *a = &id->id.route.addr;

	memset(m, 0, sizeof *m);
	m->kind = (uint8_t)kind;
	m->ud = sw_cm_ud(id);
	m->ps = id->id.ps;
	m->qpn = id->param.qp_num;
	m->initiator_depth = id->initiator_depth;
	m->responder_resources = id->responder_resources;
	m->flow_control = id->param.flow_control;
	m->srq = id->param.srq;
	m->retry_count = id->param.retry_count;
	m->rnr_retry_count = id->param.rnr_retry_count;
	m->ece_vendor = id->local_ece.vendor_id;
	m->ece_options = id->local_ece.options;
	m->ece_mask = id->local_ece.comp_mask;
	m->gid = a->addr.ibaddr.sgid;
	put_addr(&m->src, &a->src_addr);
	put_addr(&m->dst, &a->dst_addr);
	m->priv_len = (uint16_t)(len < SW_PRIV_MAX ? len : SW_PRIV_MAX);
	if (m->priv_len)
		memcpy(m->priv, priv, m->priv_len);
}

static void get_ece(struct sw_id *id, const struct sw_cm_msg *m)
{
	id->remote_ece = (struct ibv_ece){
		.vendor_id = m->ece_vendor, .options = m->ece_options, .comp_mask = m->ece_mask};
}

/* ---- a request ---- */

struct sw_id *sw_cm_listener(uint32_t ps, const struct sockaddr *dst)
{
	struct sw_id *any = NULL;
	struct sw_list *l;

	sw_each (l, sw_cm_ids()) {
		struct sw_id *o = sw_outer(l, struct sw_id, link);
		const struct sockaddr *at = &o->id.route.addr.src_addr;

		if (o->state != SW_CM_LISTEN || o->port != sw_get_port(dst) ||
		    (uint32_t)o->id.ps != ps)
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
static struct sw_id *passive_id(struct sw_id *listener, const struct sw_cm_msg *m)
{
	struct sw_id *id =
		sw_cm_id_new(listener->id.context, listener->id.ps, listener->id.qp_type);
	struct rdma_addr *a;
	struct sw_device *dev;
	int port;

	if (!id)
		return NULL;
	a = &id->id.route.addr;
	sw_cm_addr_get(&m->dst, &a->src_storage);
	sw_cm_addr_get(&m->src, &a->dst_storage);
	id->id.channel = listener->id.channel;
	dev = sw_port_by_addr(&a->src_addr, &port);
	if (!dev || sw_cm_attach(id, dev, port)) {
		sw_cm_id_free(id);
		return NULL;
	}
	a->addr.ibaddr.dgid = m->gid;
	id->state = SW_CM_REQUESTED;
	id->remote_qpn = m->qpn;
	id->initiator_depth = m->responder_resources;
	id->responder_resources = m->initiator_depth;
	id->retry_count = m->retry_count;
	id->rnr_retry_count = m->rnr_retry_count;
	get_ece(id, m);
	return id;
}

int sw_cm_take_request(struct sw_id *listener, const struct sw_cm_msg *m, struct sw_id **passive)
{
	struct rdma_conn_param *p;
	struct sw_event *e;
	struct sw_id *id;

	id = passive_id(listener, m);
	if (id && listener->queued >= listener->backlog) {
		bool iwarp = sw_cm_iwarp(id);

		sw_cm_id_free(id);
		return iwarp ? SW_REJ_CONSUMER : -1;
	}
	e = id ? sw_cm_event(listener, RDMA_CM_EVENT_CONNECT_REQUEST, 0) : NULL;
	if (!e) {
		if (id)
			sw_cm_id_free(id);
		return SW_REJ_NO_RESOURCES;
	}
	e->passive = id;
	listener->queued++;
	*passive = id;
	if (sw_cm_ud(id)) {
		sw_cm_event_priv(e, m->priv, m->priv_len, SW_PRIV_SIDR_REQ);
		return 0;
	}
	sw_cm_event_conn(e, m);
	p = &e->ev.param.conn;
	if (sw_cm_iwarp(id)) /* its messages carry no more than the depths */
		p->retry_count = p->rnr_retry_count = 0;
	if (sw_cm_iwarp(id))
		p->qp_num = 0;
	sw_cm_event_priv(e, m->priv, m->priv_len, sw_cm_pad(id, SW_PRIV_REQ));
	return 0;
}

/* ---- a reply ---- */

void sw_cm_iwarp_join(struct sw_id *id, struct sw_device *dest)
{
	const struct sockaddr_in *in = &id->id.route.addr.dst_sin;
	struct sw_qp *qp = sw_cm_qp(id);

	/* The way to another machine is found by a GID. */
	if (!dest && in->sin_family == AF_INET) {
		union ibv_gid *g = &qp->attr.ah_attr.grh.dgid;

		qp->attr.ah_attr.is_global = 1;
		memset(g, 0, sizeof *g);
		g->raw[10] = g->raw[11] = 0xff;
		memcpy(g->raw + 12, &in->sin_addr, 4);
	}
	sw_iwarp_connect(qp, dest, id->remote_qpn, id->initiator_depth, id->responder_resources);
}

int sw_cm_take_reply(struct sw_id *id, const struct sw_cm_msg *m)
{
	enum rdma_cm_event_type type = sw_cm_iwarp(id) || sw_cm_ud(id)
					       ? RDMA_CM_EVENT_ESTABLISHED
					       : RDMA_CM_EVENT_CONNECT_RESPONSE;
	struct sw_event *e;

	id->remote_qpn = m->qpn;
	id->retry_count = id->param.retry_count;
	id->rnr_retry_count = m->rnr_retry_count;
	get_ece(id, m);
	id->initiator_depth = sw_cm_depth(id->initiator_depth, UINT8_MAX, m->responder_resources);
	id->responder_resources =
		sw_cm_depth(id->responder_resources, UINT8_MAX, m->initiator_depth);
	sw_cm_await(id, SW_CM_NOTHING);
	if (sw_cm_iwarp(id))
		sw_cm_iwarp_join(id, id->peer ? id->peer->dev->dev : NULL);
	e = sw_cm_event(id, type, 0);
	if (!e)
		return ENOMEM;
	id->state = type == RDMA_CM_EVENT_ESTABLISHED ? SW_CM_CONNECTED : SW_CM_ACCEPTED;
	if (sw_cm_ud(id)) {
		sw_cm_event_ud(e, id, &m->gid, m->qpn);
		sw_cm_event_priv(e, m->priv, m->priv_len, SW_PRIV_SIDR_REP);
		return 0;
	}
	if (!sw_cm_iwarp(id))
		sw_cm_event_conn(e, m);
	sw_cm_event_priv(e, m->priv, m->priv_len, sw_cm_pad(id, SW_PRIV_REP));
	return 0;
}

void sw_cm_take_rtu(struct sw_id *id)
{
	struct sw_event *e;

	if (id->state != SW_CM_ACCEPTED)
		return;
	e = sw_cm_event(id, RDMA_CM_EVENT_ESTABLISHED, 0);
	id->state = SW_CM_CONNECTED;
	sw_cm_await(id, SW_CM_NOTHING);
	sw_cm_event_priv(e, NULL, 0, 0);
}
