/* SPDX-License-Identifier: BSD-2-Clause */
/* What a client says, see session.h. */
#include <errno.h>
#include <string.h>

#include "session.h"

/* ---- CONNECT ---- */

static void refuse(struct session *s, enum mqtt_code code)
{
	uint8_t packet[MQTT_ACK_BYTES];

	session_control(s, packet, mqtt_put_connack(packet, false, (uint8_t)code));
	session_end_politely(s, END_REFUSED);
}

/* Another session asks that this one ends, since it has its identifier. */
struct takeover {
	struct loop_message message;
	struct shard *shard;
	uint64_t session;
};

static void taken_over(struct loop_message *message)
{
	struct takeover *t = (struct takeover *)message;
	struct session *s = session_find(t->shard, t->session);

	if (s)
		session_end(s, END_TAKEN_OVER); /* [MQTT-3.1.4-2] */
	free(t);
}

static int take_over(struct session *s, uint64_t before)
{
	struct takeover *t = malloc(sizeof *t);

	if (!t)
		return -1;
	*t = (struct takeover){.message.run = taken_over,
			       .shard = session_shard(s->shard->broker, before),
			       .session = before};
	loop_post(t->shard->loop, &t->message);
	return 0;
}

/* A client without a name gets none: nobody can take it over. */
static int take_id(struct session *s, struct mqtt_bytes id)
{
	struct broker *broker = s->shard->broker;
	uint64_t before;

	if (!id.n)
		return 0;
	s->client_id = budget_alloc(&broker->budget, id.n);
	if (!s->client_id)
		return -1;
	memcpy(s->client_id, id.p, id.n);
	s->client_id_bytes = id.n;
	if (registry_claim(&broker->registry, id, s->id, &before))
		return -1;
	return before ? take_over(s, before) : 0;
}

/* The will's message stays where it came, in the packet's chunks. */
static int take_will(struct session *s, const struct mqtt_connect *c)
{
	const struct mqtt_publish publish = {
		.topic = c->will_topic, .qos = c->will_qos, .retain = c->will_retain};
	/* A packet is not longer than a chunk, and may have come in two classes. */
	SGP_SGL(payload, 32);

	if (!c->has_will)
		return 0;
	if (c->will_message.n && sgp_sgl_append_addr(&payload, s->shard->broker->memory.pool,
						     c->will_message.p, c->will_message.n))
		return -1;
	s->will = shard_message(s->shard, &publish, &payload);
	if (!s->will) {
		sgp_sgl_clear(&payload);
		return -1;
	}
	s->will->publisher = s->id;
	return 0;
}

static void connect_(struct session *s, const struct mqtt_connect *c)
{
	uint8_t packet[MQTT_ACK_BYTES];

	if (c->level != MQTT_LEVEL) {
		refuse(s, MQTT_BAD_VERSION);
		return;
	}
	if (!c->clean_session) {
		refuse(s, c->client_id.n ? MQTT_UNAVAILABLE : MQTT_BAD_CLIENT_ID);
		return;
	}
	if (c->has_will && (c->will_qos > 1 || !topics_can_hold(c->will_topic))) {
		session_end(s, END_PROTOCOL);
		return;
	}
	if (take_id(s, c->client_id) || take_will(s, c)) {
		refuse(s, MQTT_UNAVAILABLE);
		return;
	}
	s->state = SESSION_UP;
	s->keep_alive_ms = (int64_t)c->keep_alive * 1500;
	loop_timer_stop(s->shard->loop, &s->timer);
	if (s->keep_alive_ms && loop_timer_set(s->shard->loop, &s->timer, s->keep_alive_ms)) {
		session_end(s, END_MEMORY);
		return;
	}
	session_control(s, packet, mqtt_put_connack(packet, false, MQTT_ACCEPTED));
}

/* ---- the others ---- */

static void publish(struct session *s, const struct mqtt_packet *packet, struct sgp_sgl *payload)
{
	struct counters *counters = &s->shard->counters;
	struct message *m;

	if (packet->publish.qos > 1 || !topics_can_hold(packet->publish.topic)) {
		session_end(s, END_PROTOCOL);
		return;
	}
	counters->published++;
	counters->published_bytes += packet->payload;
	m = shard_message(s->shard, &packet->publish, payload);
	if (!m) {
		shard_starved(&s->shard->host);
		/* One that can't be acknowledged must be sent again: on another connection. */
		if (packet->publish.qos)
			session_end(s, END_MEMORY);
		else
			counters->dropped++;
		return;
	}
	m->publisher = s->id;
	shard_publish(s->shard, m);
	message_put(m);
	if (packet->publish.qos && s->state == SESSION_UP)
		session_ack(s, packet->id);
}

static void subscribe(struct session *s, const struct mqtt_packet *packet)
{
	struct budget *budget = &s->shard->broker->budget;
	const size_t n = packet->list.n, bytes = MQTT_SUBACK_BYTES(n) + n;
	uint8_t *codes = budget_alloc(budget, bytes), *answer, qos;
	struct mqtt_list list = packet->list;
	struct mqtt_bytes filter;

	if (!codes) {
		session_end(s, END_MEMORY);
		return;
	}
	answer = codes + n;
	for (size_t i = 0; mqtt_next_filter(&list, &filter, &qos); i++)
		codes[i] = session_subscribe(s, filter, qos);
	session_control(s, answer, mqtt_put_suback(answer, packet->id, codes, (uint32_t)n));
	list = packet->list;
	for (size_t i = 0; mqtt_next_filter(&list, &filter, &qos); i++)
		if (codes[i] != MQTT_SUBACK_FAILURE && s->state == SESSION_UP)
			session_send_retained(s, filter);
	budget_free(budget, codes, bytes);
}

static void unsubscribe(struct session *s, const struct mqtt_packet *packet)
{
	struct mqtt_list list = packet->list;
	uint8_t answer[MQTT_ACK_BYTES];
	struct mqtt_bytes filter;

	while (mqtt_next_filter(&list, &filter, NULL))
		session_unsubscribe(s, filter);
	session_control(s, answer, mqtt_put_ack(answer, MQTT_UNSUBACK, packet->id));
}

static void acknowledged(struct session *s, uint16_t id)
{
	unsigned int i = 0;

	/* In their order, mostly: it is the first. One that is not known is of no consequence. */
	while (i < s->ninflight && s->inflight[i] != id)
		i++;
	if (i == s->ninflight)
		return;
	s->ninflight--;
	memmove(&s->inflight[i], &s->inflight[i + 1], (s->ninflight - i) * sizeof s->inflight[0]);
	s->shard->counters.acked++;
	if (!s->blocked)
		loop_defer(s->shard->loop, &s->flush);
}

void session_packet(struct link *link, const struct mqtt_packet *packet, struct sgp_sgl *payload)
{
	struct session *s = link->owner;
	uint8_t answer[MQTT_EMPTY_BYTES];

	if (s->state == SESSION_ENDING)
		return;
	/* The first packet, and no other, is a CONNECT [MQTT-3.1.0-1], [MQTT-3.1.0-2]. */
	if ((s->state == SESSION_AWAITED) != (packet->type == MQTT_CONNECT)) {
		session_end(s, END_PROTOCOL);
		return;
	}
	switch (packet->type) {
	case MQTT_CONNECT:
		connect_(s, &packet->connect);
		break;
	case MQTT_PUBLISH:
		publish(s, packet, payload);
		break;
	case MQTT_PUBACK:
		acknowledged(s, packet->id);
		break;
	case MQTT_SUBSCRIBE:
		subscribe(s, packet);
		break;
	case MQTT_UNSUBSCRIBE:
		unsubscribe(s, packet);
		break;
	case MQTT_PINGREQ:
		session_control(s, answer, mqtt_put_empty(answer, MQTT_PINGRESP));
		break;
	case MQTT_DISCONNECT:
		message_put(s->will);
		s->will = NULL;
		session_end_politely(s, END_CLEAN);
		break;
	default: /* what only a broker says */
		session_end(s, END_PROTOCOL);
		break;
	}
}
