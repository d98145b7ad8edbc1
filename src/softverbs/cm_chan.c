/* SPDX-License-Identifier: BSD-2-Clause */
/* Event channels: queueing, fetching and acknowledging connection events. */
#include "softverbs/net.h"

struct sw_cm_chan *sw_cm_chan_new(int *err)
{
	struct sw_cm_chan *ch = calloc(1, sizeof *ch);

	if (!ch || sw_pollq_init(&ch->q)) {
		*err = ch ? errno : ENOMEM;
		free(ch);
		return NULL;
	}
	sw_list_init(&ch->events);
	ch->ibv.fd = ch->q.ep;
	return ch;
}

void sw_cm_chan_free(struct sw_cm_chan *ch)
{
	sw_pollq_fini(&ch->q);
	free(ch);
}

struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct sw_cm_chan *ch;
	int err = SW_FAULT(create_event_channel);

	if (err)
		return sw_null(err);
	ch = sw_cm_chan_new(&err);
	if (!ch)
		return sw_null(err);
	sw_lock();
	sw_count(SV_CM_CHANNELS, 1);
	sw_unlock();
	return &ch->ibv;
}

void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	struct sw_list *l;

	sw_lock();
	sw_each (l, sw_cm_ids()) {
		if (sw_outer(l, struct sw_id, link)->id.channel == channel)
			sw_strict("rdma_destroy_event_channel: an id still uses it");
	}
	sw_count(SV_CM_CHANNELS, -1);
	sw_unlock();
	sw_cm_chan_free(sw_cm_chan(channel));
}

struct sw_event *sw_cm_event(struct sw_id *id, enum rdma_cm_event_type type, int status)
{
	struct sw_cm_chan *ch = sw_cm_chan(id->id.channel);
	struct sw_event *e = calloc(1, sizeof *e);

	if (!e)
		return NULL;
	e->id = id;
	e->ev.id = &id->id;
	e->ev.event = type;
	e->ev.status = status;
	sw_list_append(&ch->events, &e->link);
	sw_pollq_add(&ch->q);
	return e;
}

void sw_cm_event_priv(struct sw_event *e, const void *data, size_t len, size_t pad)
{
	if (!e)
		return;
	if (len > SW_PRIV_MAX)
		len = SW_PRIV_MAX;
	if (len)
		memcpy(e->priv, data, len);
	if (pad > len)
		len = pad;
	/* rdma_conn_param and rdma_ud_param begin alike. */
	e->ev.param.conn.private_data = len ? e->priv : NULL;
	e->ev.param.conn.private_data_len = (uint8_t)(len > UINT8_MAX ? UINT8_MAX : len);
}

void sw_cm_event_conn(struct sw_event *e, const struct sw_cm_msg *m)
{
	struct rdma_conn_param *p = &e->ev.param.conn;

	p->responder_resources = m->initiator_depth;
	p->initiator_depth = m->responder_resources;
	p->flow_control = m->flow_control;
	p->retry_count = m->retry_count;
	p->rnr_retry_count = m->rnr_retry_count;
	p->srq = m->srq;
	p->qp_num = m->qpn;
}

static void drop_queued(struct sw_id *id)
{
	struct sw_cm_chan *ch = sw_cm_chan(id->id.channel);
	struct sw_list *l, *n;

	sw_each_safe (l, n, &ch->events) {
		struct sw_event *e = sw_outer(l, struct sw_event, link);

		if (e->id != id)
			continue;
		sw_list_del(l);
		sw_pollq_sub(&ch->q);
		if (e->passive) {
			sw_cm_hangup(e->passive);
			sw_cm_id_free(e->passive);
		}
		free(e);
	}
}

void sw_cm_forget(struct sw_id *id)
{
	/* The lock is given back below: nobody finds it any more, and what comes all the same goes. */
	id->state = SW_CM_CLOSED;
	sw_cm_await(id, SW_CM_NOTHING);
	drop_queued(id);
	if (id->events != id->acked)
		sw_strict("rdma_destroy_id: %u events were fetched and %u acknowledged", id->events,
			  id->acked);
	while (id->events != id->acked) {
		sw_sleep();
		drop_queued(id);
	}
}

void sw_cm_migrate(struct sw_id *id, struct sw_cm_chan *to)
{
	struct sw_cm_chan *from = sw_cm_chan(id->id.channel);
	struct sw_list *l, *n;

	id->id.channel = &to->ibv;
	if (from == to)
		return;
	sw_each_safe (l, n, &from->events) {
		if (sw_outer(l, struct sw_event, link)->id != id)
			continue;
		sw_list_del(l);
		sw_pollq_sub(&from->q);
		sw_list_append(&to->events, l);
		sw_pollq_add(&to->q);
	}
	sw_cm_alarm_moved(id);
}

/* The reply has come: the QP goes to RTS, and the passive side is told. Without the lock. */
static void response(struct sw_event *e)
{
	struct sw_id *id = e->id;

	if (!id->id.qp)
		return; /* the user moves the QP and calls rdma_establish */
	if (sw_cm_qp_rts(&id->id, RDMA_MAX_RESP_RES, RDMA_MAX_INIT_DEPTH)) {
		e->ev.event = RDMA_CM_EVENT_CONNECT_ERROR;
		e->ev.status = -errno;
		sw_cm_qp_error(&id->id);
		sw_lock();
		sw_cm_hangup(id);
		sw_unlock();
		return;
	}
	e->ev.event = RDMA_CM_EVENT_ESTABLISHED;
	sw_cm_established(id);
}

/* A request is fetched: the passive id becomes the user's. */
static int request(struct sw_event *e)
{
	struct sw_id *listener = e->id, *id = e->passive;
	struct sw_cm_chan *own = NULL;
	int err = 0;

	if (listener->sync)
		own = sw_cm_chan_new(&err);
	if (err)
		return err;
	id->sync = listener->sync;
	sw_cm_migrate(id, own ? own : sw_cm_chan(listener->id.channel));
	e->ev.id = &id->id;
	e->ev.listen_id = &listener->id;
	listener->queued--;
	sw_count(SV_CM_IDS, 1);
	return 0;
}

static struct sw_event *next(struct sw_cm_chan *ch)
{
	struct sw_event *e = NULL;

	while (sw_net_progress(), sw_due(), sw_list_empty(&ch->events)) {
		sw_unlock();
		if (sw_pollq_wait(&ch->q)) {
			sw_lock();
			return NULL;
		}
		sw_lock();
	}
	e = sw_outer(ch->events.next, struct sw_event, link);
	sw_list_del(&e->link);
	sw_pollq_sub(&ch->q);
	e->id->events++;
	sw_count(SV_CM_EVENTS, 1);
	return e;
}

int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
	struct sw_event *e;
	int err = SW_FAULT(get_cm_event);

	if (err)
		return sw_fail(err);
	if (!event)
		return sw_fail(EINVAL);
	sw_lock();
	e = next(sw_cm_chan(channel));
	if (!e) {
		err = errno;
		sw_unlock();
		return sw_fail(err);
	}
	if (e->passive) {
		err = request(e);
		if (err) {
			sw_cm_hangup(e->passive);
			sw_cm_id_free(e->passive);
			e->id->acked++;
			sw_count(SV_CM_EVENTS, -1);
			free(e);
		}
	}
	sw_unlock();
	if (err)
		return sw_fail(err);
	if (e->ev.event == RDMA_CM_EVENT_CONNECT_RESPONSE)
		response(e);
	else if (e->ev.event == RDMA_CM_EVENT_REJECTED)
		sw_cm_qp_error(e->ev.id);
	*event = &e->ev;
	return 0;
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	struct sw_event *e;

	if (!event)
		return sw_fail(EINVAL);
	e = sw_outer(event, struct sw_event, ev);
	sw_lock();
	e->id->acked++;
	sw_count(SV_CM_EVENTS, -1);
	sw_wake();
	sw_unlock();
	free(e);
	return 0;
}

int sw_cm_complete(struct rdma_cm_id *id)
{
	struct rdma_cm_event *event = NULL;
	int status;

	if (!sw_id(id)->sync)
		return 0;
	if (id->event) {
		rdma_ack_cm_event(id->event);
		id->event = NULL;
	}
	if (rdma_get_cm_event(id->channel, &event) || !event)
		return -1;
	id->event = event;
	status = event->status;
	if (!status)
		return 0;
	if (event->event == RDMA_CM_EVENT_REJECTED)
		return sw_fail(ECONNREFUSED);
	return sw_fail(status < 0 ? -status : status);
}
