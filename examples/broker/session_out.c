/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What goes to a client, see session.h: answers first, then the queue in its order.
 *
 * All that a turn of the loop has brought for a client goes at its end, in one call of the link for
 * up to BATCH packets. Each PUBLISH has a head of its own, written to the shard's scratch memory, and
 * the payload of the message, where it is. A message leaves the queue when the link has taken it.
 */
#include <string.h>

#include "session.h"

enum {
	BATCH = 64, /* packets a call */
};

struct batch {
	struct link_packet packets[BATCH];
	int n;
	size_t used; /* of the scratch memory */
	unsigned int controls, acks;
	size_t messages;
};

/* ---- answers ---- */

static void answer_later(struct session *s)
{
	const bool before = s->backlog;

	if (!s->blocked)
		loop_defer(s->shard->loop, &s->flush);
	s->backlog =
		s->nacks == ACKS || s->ncontrols >= CONTROLS || s->control_bytes >= CONTROL_BYTES;
	session_update_pause(s);
	if (before || !s->backlog)
		return;
	s->answered = loop_now(s->shard->loop);
	session_unread(&s->unread);
}

/* Nothing is read of a client that leaves its answers unread: it can't be heard, and must not stay. */
void session_unread(struct loop_timer *timer)
{
	struct session *s = (struct session *)((char *)timer - offsetof(struct session, unread));
	const int64_t patience = s->shard->broker->settings.unread_ms;
	int64_t left;

	if (!s->backlog)
		return;
	left = s->answered + patience - loop_now(s->shard->loop);
	if (left <= 0)
		session_end(s, END_SLOW);
	else if (loop_timer_set(s->shard->loop, timer, left))
		session_end(s, END_MEMORY);
}

void session_ack(struct session *session, uint16_t id)
{
	/* The backlog has stopped the link before there could be one more. */
	session->acks[(session->first_ack + session->nacks++) % ACKS] = id;
	answer_later(session);
}

void session_control(struct session *session, const uint8_t *packet, size_t bytes)
{
	struct control *c = budget_alloc(&session->shard->broker->budget, sizeof *c + bytes);

	if (!c) {
		session_end(session, END_MEMORY);
		return;
	}
	memcpy(c->packet, packet, bytes);
	c->bytes = (uint32_t)bytes;
	*session->last_control = c;
	session->last_control = &c->next;
	session->ncontrols++;
	session->control_bytes += bytes;
	answer_later(session);
}

static void drop_control(struct session *s)
{
	struct control *c = s->controls;

	s->controls = c->next;
	if (!s->controls)
		s->last_control = &s->controls;
	s->ncontrols--;
	s->control_bytes -= c->bytes;
	budget_free(&s->shard->broker->budget, c, sizeof *c + c->bytes);
}

/* ---- a batch ---- */

static void put_controls(struct session *s, struct batch *b)
{
	for (struct control *c = s->controls; c && b->n < BATCH; c = c->next, b->controls++)
		b->packets[b->n++] =
			(struct link_packet){.head = c->packet, .head_bytes = c->bytes};
}

static void put_acks(struct session *s, struct batch *b)
{
	for (; b->acks < s->nacks && b->n < BATCH; b->acks++) {
		uint8_t *out = s->shard->scratch + b->used;
		const uint16_t id = s->acks[(s->first_ack + b->acks) % ACKS];

		b->used += mqtt_put_ack(out, MQTT_PUBACK, id);
		b->packets[b->n++] =
			(struct link_packet){.head = out, .head_bytes = MQTT_ACK_BYTES};
	}
}

static bool in_flight(const struct session *s, uint16_t id)
{
	for (unsigned int i = 0; i < s->ninflight; i++)
		if (s->inflight[i] == id)
			return true;
	return false;
}

/* The next identifier that is not in use. */
static uint16_t next_id(const struct session *s, uint16_t id)
{
	do
		id = id == UINT16_MAX ? 1 : (uint16_t)(id + 1);
	while (in_flight(s, id));
	return id;
}

static void put_messages(struct session *s, struct batch *b, uint16_t ids[BATCH])
{
	unsigned int ninflight = s->ninflight;
	uint16_t id = s->next_packet;

	for (; b->messages < s->queue.n && b->n < BATCH; b->messages++) {
		const struct queue_entry *e = queue_at(&s->queue, b->messages);
		const struct message *m = e->message;
		const struct mqtt_publish publish = {
			.topic = m->topic, .qos = e->qos, .retain = e->retain};
		uint8_t *out = s->shard->scratch + b->used;
		size_t head;

		if (b->used + MQTT_PUBLISH_HEAD(m->topic.n) > SCRATCH)
			return;
		if (e->qos) {
			if (ninflight == INFLIGHT)
				return; /* those behind it wait too, for the order */
			ninflight++;
			id = next_id(s, id);
			ids[b->messages] = id;
		}
		head = mqtt_put_publish(out, &publish, e->qos ? id : 0,
					(uint32_t)m->payload.length);
		b->used += head;
		b->packets[b->n++] =
			(struct link_packet){.head = out,
					     .head_bytes = (uint32_t)head,
					     .payload = m->payload.length ? &m->payload : NULL};
	}
}

/* The link has taken so many of the batch's packets. */
static void commit(struct session *s, const struct batch *b, const uint16_t ids[BATCH],
		   unsigned int taken)
{
	struct counters *counters = &s->shard->counters;
	unsigned int n;

	if (taken && (b->controls || b->acks))
		s->answered = loop_now(s->shard->loop);
	for (n = 0; n < b->controls && taken; n++, taken--)
		drop_control(s);
	n = taken < b->acks ? taken : b->acks;
	s->first_ack = (s->first_ack + n) % ACKS;
	s->nacks -= n;
	taken -= n;
	for (n = 0; n < taken; n++) {
		const struct queue_entry *e = queue_at(&s->queue, n);

		if (e->qos) {
			s->inflight[s->ninflight++] = ids[n];
			s->next_packet = ids[n];
		}
		counters->delivered_bytes += e->message->payload.length;
	}
	if (!taken)
		return;
	counters->delivered += taken;
	queue_pop(&s->queue, taken);
	s->progress = loop_now(s->shard->loop);
}

/* Has the queue become short enough for those who wait? */
static bool relaxed(const struct session *s)
{
	const struct queue_limits *limits = &s->shard->broker->settings.queue;

	return s->queue.n <= limits->messages / 2 && s->queue.bytes <= limits->bytes / 2;
}

static void send_all(struct session *s)
{
	for (;;) {
		uint16_t ids[BATCH] = {0};
		struct batch b = {.n = 0};
		int taken;

		put_controls(s, &b);
		put_acks(s, &b);
		put_messages(s, &b, ids);
		if (!b.n)
			return;
		taken = link_send(s->link, b.packets, b.n);
		commit(s, &b, ids, (unsigned int)taken);
		if (taken < b.n) {
			s->blocked = true;
			return;
		}
	}
}

void session_flush(struct loop_task *task)
{
	struct session *s = (struct session *)((char *)task - offsetof(struct session, flush));

	if (s->state == SESSION_ENDING || s->blocked)
		return;
	send_all(s);
	if (s->pauses && relaxed(s))
		session_resume_publishers(s);
	s->backlog = s->nacks > ACKS / 2 || s->ncontrols > CONTROLS / 2 ||
		     s->control_bytes > CONTROL_BYTES / 2;
	session_update_pause(s);
}

void session_writable(struct link *link)
{
	struct session *s = link->owner;

	s->blocked = false;
	session_flush(&s->flush);
}

void session_out_end(struct session *session)
{
	while (session->controls)
		drop_control(session);
	session->nacks = 0;
	queue_clear(&session->queue);
}

/* ---- what comes for the client ---- */

/* The queue has no room. Returns whether the message is queued all the same. */
static bool make_room(struct session *s, struct message *m, uint8_t qos)
{
	const struct settings *settings = &s->shard->broker->settings;
	const struct queue_limits *limits = &settings->queue;
	const size_t cost = message_cost(m);
	/* What publishers sent before they heard that they are to wait. */
	const struct queue_limits hard = {.messages = 2 * limits->messages,
					  .bytes = 2 * limits->bytes};

	if (settings->policy == POLICY_PAUSE && m->publisher != s->id) {
		session_pause_publisher(s, m->publisher);
		if (s->state != SESSION_UP)
			return false;
		if (!queue_full(&s->queue, &hard, cost))
			return true;
	}
	if (settings->policy != POLICY_DISCONNECT) {
		/* A quarter at once, so that not every message goes through the queue. */
		const size_t bytes = limits->bytes / 4 * 3;

		s->shard->counters.dropped += queue_drop_qos0(&s->queue, limits->messages * 3 / 4,
							      cost < bytes ? bytes - cost : 0);
		if (!queue_full(&s->queue, limits, cost))
			return true;
		if (qos == 0) {
			s->shard->counters.dropped++;
			return false;
		}
	}
	session_end(s, END_SLOW);
	return false;
}

void session_enqueue(struct session *session, struct message *message, uint8_t qos, bool retain,
		     bool unlimited)
{
	struct shard *shard = session->shard;

	if (session->state != SESSION_UP)
		return;
	if (!unlimited &&
	    queue_full(&session->queue, &shard->broker->settings.queue, message_cost(message)) &&
	    !make_room(session, message, qos))
		return;
	if (queue_push(&session->queue, message, qos, retain)) {
		shard_starved(&shard->host);
		if (qos && session->state == SESSION_UP)
			session_end(session, END_MEMORY);
		else
			shard->counters.dropped++;
		return;
	}
	shard->counters.deliveries++;
	if (session->queue.bytes > atomic_load_explicit(&shard->largest, memory_order_relaxed))
		atomic_store_explicit(&shard->largest, session->queue.bytes, memory_order_relaxed);
	if (!session->blocked)
		loop_defer(shard->loop, &session->flush);
}
