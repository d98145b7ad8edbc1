/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How connections end. On InfiniBand a goodbye is answered: the peer's DISCONNECTED comes at once,
 * one's own when the peer has disconnected too or has gone. On iWARP both learn of it together, and
 * both queue pairs end with it.
 */
#include "softverbs/net.h"

static bool joined(const struct sw_id *id)
{
	return id->state == SW_CM_ACCEPTED || id->state == SW_CM_CONNECTED;
}

static void disconnected(struct sw_id *id)
{
	sw_cm_event(id, RDMA_CM_EVENT_DISCONNECTED, 0);
}

/* Over, on this side; InfiniBand keeps the QP number back for a while. */
static void closed(struct sw_id *id)
{
	id->state = SW_CM_CLOSED;
	sw_cm_await(id, sw_cm_iwarp(id) ? SW_CM_NOTHING : SW_CM_TIMEWAIT);
}

static void iwarp_end(struct sw_id *id)
{
	struct sw_id *peer = id->peer;

	if (!joined(id))
		return;
	closed(id);
	disconnected(id);
	if (peer && joined(peer)) {
		closed(peer);
		disconnected(peer);
	}
	if (id->wire)
		sw_cm_wire_say(id, SW_CM_DREQ, 0, NULL, 0);
	/* Their states are set: what the QPs' ends set off finds nothing more to do here. */
	if (id->qp)
		sw_qp_error(id->qp);
	if (peer && peer->qp)
		sw_qp_error(peer->qp);
}

void sw_cm_qp_ended(struct sw_qp *qp)
{
	struct sw_list *l;

	sw_each (l, sw_cm_ids()) {
		struct sw_id *id = sw_outer(l, struct sw_id, link);

		if (id->qp == qp) {
			iwarp_end(id);
			return;
		}
	}
}

/* Neither the id's messages, which come in at any time, nor its calls find a queue pair that has gone. */
void sw_cm_qp_gone(const struct sw_qp *qp)
{
	struct sw_list *l;

	sw_each (l, sw_cm_ids()) {
		struct sw_id *id = sw_outer(l, struct sw_id, link);

		if (id->qp != qp)
			continue;
		id->qp = NULL;
		if (id->id.qp == &qp->ibv.qp_base)
			id->id.qp = NULL;
	}
}

void sw_cm_take_goodbye(struct sw_id *id)
{
	if (sw_cm_iwarp(id)) {
		iwarp_end(id);
	} else if (id->state == SW_CM_CLOSING) {
		/* Both have said it at once. */
		closed(id);
		disconnected(id);
	} else if (joined(id) && !id->peer_closed) {
		id->peer_closed = true;
		sw_cm_await(id, SW_CM_NOTHING);
		disconnected(id);
	}
}

void sw_cm_take_answer(struct sw_id *id)
{
	if (id->state != SW_CM_CLOSING)
		return;
	closed(id);
	disconnected(id);
}

static int disconnect(struct sw_id *id)
{
	struct sw_id *peer = id->peer;

	if (id->state == SW_CM_CLOSED || id->state == SW_CM_CLOSING)
		return 0;
	if (!joined(id))
		return EINVAL;
	if (sw_cm_iwarp(id)) {
		iwarp_end(id);
		return 0;
	}
	if (id->peer_closed || (!peer && !id->wire)) {
		/* The answer: the side that began gets its event now. */
		closed(id);
		if (peer)
			sw_cm_take_answer(peer);
		else if (id->wire)
			sw_cm_wire_say(id, SW_CM_DREP, 0, NULL, 0);
		return 0;
	}
	id->state = SW_CM_CLOSING;
	sw_cm_await(id, SW_CM_GOODBYE);
	if (peer)
		sw_cm_take_goodbye(peer);
	else
		sw_cm_wire_say(id, SW_CM_DREQ, 0, NULL, 0);
	return 0;
}

int rdma_disconnect(struct rdma_cm_id *rid)
{
	struct sw_id *id = sw_id(rid);
	int err = SW_FAULT(disconnect);

	if (!err && !rid->verbs)
		err = EINVAL;
	if (err)
		return sw_fail(err);
	if (!sw_cm_iwarp(id) && sw_cm_qp_error(rid))
		return -1;
	sw_lock();
	err = disconnect(id);
	sw_unlock();
	return err ? sw_fail(err) : sw_cm_complete(rid);
}

void sw_cm_take_hangup(struct sw_id *id)
{
	id->peer = NULL;
	if (id->state == SW_CM_CONNECT)
		sw_cm_refused(id, SW_REJ_CONSUMER, NULL, 0);
	else if (id->state == SW_CM_CLOSING)
		sw_cm_take_answer(id);
	else
		sw_cm_take_goodbye(id);
	/* A passive id whose asker has gone is not told: it finds out when it accepts. */
}

void sw_cm_hangup(struct sw_id *id)
{
	struct sw_id *peer = id->peer;

	if (sw_cm_iwarp(id) && joined(id))
		iwarp_end(id);
	id->peer = NULL;
	sw_cm_wire_end(id);
	if (peer)
		sw_cm_take_hangup(peer);
}
