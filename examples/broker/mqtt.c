/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reading packets, see mqtt.h. Numbers in brackets are the standard's requirements.
 *
 * Everything is read through a cursor that never leaves its bytes: a read behind the end sets bad and
 * gives zeros, so that a parser can read to its end and ask once.
 */
#include <errno.h>
#include <string.h>

#include "mqtt.h"

struct cursor {
	const uint8_t *p, *end;
	bool bad;
};

static uint8_t get_u8(struct cursor *c)
{
	if (c->p == c->end) {
		c->bad = true;
		return 0;
	}
	return *c->p++;
}

static uint16_t get_u16(struct cursor *c)
{
	const uint8_t high = get_u8(c);

	return (uint16_t)(high << 8 | get_u8(c));
}

/* A field with its length before it. */
static struct mqtt_bytes get_bytes(struct cursor *c)
{
	const uint16_t n = get_u16(c);
	struct mqtt_bytes b = {0};

	if (c->bad || n > c->end - c->p) {
		c->bad = true;
		return b;
	}
	b = (struct mqtt_bytes){.p = c->p, .n = n};
	c->p += n;
	return b;
}

static struct mqtt_bytes get_string(struct cursor *c)
{
	const struct mqtt_bytes b = get_bytes(c);

	if (!c->bad && !mqtt_utf8(b.p, b.n))
		c->bad = true; /* [MQTT-1.5.3-1], [MQTT-1.5.3-2] */
	return b;
}

/* ---- the packets' own ---- */

enum {
	CONNECT_RESERVED = 1 << 0,
	CONNECT_CLEAN = 1 << 1,
	CONNECT_WILL = 1 << 2,
	CONNECT_WILL_RETAIN = 1 << 5,
	CONNECT_PASSWORD = 1 << 6,
	CONNECT_USER = 1 << 7,
};

static bool wrong_connect_flags(uint8_t flags)
{
	const int will_qos = flags >> 3 & 3;

	if (flags & CONNECT_RESERVED)
		return true; /* [MQTT-3.1.2-3] */
	if (!(flags & CONNECT_WILL) && (will_qos || flags & CONNECT_WILL_RETAIN))
		return true; /* [MQTT-3.1.2-11], [MQTT-3.1.2-13] */
	if (will_qos == 3)
		return true;                                        /* [MQTT-3.1.2-14] */
	return flags & CONNECT_PASSWORD && !(flags & CONNECT_USER); /* [MQTT-3.1.2-22] */
}

static void get_connect(struct cursor *c, struct mqtt_connect *connect)
{
	const struct mqtt_bytes name = get_bytes(c);
	uint8_t flags;

	*connect = (struct mqtt_connect){.level = get_u8(c)};
	if (c->bad || name.n != 4 || memcmp(name.p, "MQTT", 4) != 0) {
		c->bad = true; /* [MQTT-3.1.2-1] */
		return;
	}
	if (connect->level != MQTT_LEVEL) { /* what follows may be anything [MQTT-3.1.2-2] */
		c->p = c->end;
		return;
	}
	flags = get_u8(c);
	if (wrong_connect_flags(flags)) {
		c->bad = true;
		return;
	}
	connect->clean_session = flags & CONNECT_CLEAN;
	connect->keep_alive = get_u16(c);
	connect->client_id = get_string(c);
	if (flags & CONNECT_WILL) {
		connect->has_will = true;
		connect->will_qos = flags >> 3 & 3;
		connect->will_retain = flags & CONNECT_WILL_RETAIN;
		connect->will_topic = get_string(c);
		if (!mqtt_topic_name(connect->will_topic.p, connect->will_topic.n))
			c->bad = true;
		connect->will_message = get_bytes(c);
	}
	if (flags & CONNECT_USER)
		connect->user = get_string(c);
	if (flags & CONNECT_PASSWORD)
		connect->password = get_bytes(c);
}

static void get_filters(struct cursor *c, struct mqtt_list *list, bool with_qos)
{
	*list = (struct mqtt_list){.p = c->p, .bytes = (uint32_t)(c->end - c->p)};
	while (!c->bad && c->p < c->end) {
		const struct mqtt_bytes filter = get_string(c);

		/* [MQTT-3.8.3-4], [MQTT-4.7.1-2], [MQTT-4.7.1-3], [MQTT-4.7.3-1] */
		if (!mqtt_topic_filter(filter.p, filter.n) || (with_qos && get_u8(c) > 2))
			c->bad = true;
		list->n++;
	}
	if (list->n == 0)
		c->bad = true; /* [MQTT-3.8.3-3], [MQTT-3.10.3-2] */
}

static void get_codes(struct cursor *c, struct mqtt_list *list)
{
	const uint32_t n = (uint32_t)(c->end - c->p);

	*list = (struct mqtt_list){.p = c->p, .bytes = n, .n = n};
	while (c->p < c->end)
		if (get_u8(c) > 2 && c->p[-1] != MQTT_SUBACK_FAILURE)
			c->bad = true; /* [MQTT-3.9.3-2] */
	if (n == 0)
		c->bad = true;
}

static uint16_t get_id(struct cursor *c)
{
	const uint16_t id = get_u16(c);

	if (id == 0)
		c->bad = true; /* [MQTT-2.3.1-1] */
	return id;
}

static void get_connack(struct cursor *c, struct mqtt_packet *packet)
{
	const uint8_t flags = get_u8(c);

	packet->connack.session_present = flags & 1;
	packet->connack.code = get_u8(c);
	if (flags > 1)
		c->bad = true;
}

/* Everything but a PUBLISH: c is the whole packet. Returns 1; -1 with EPROTO. */
static int get_body(struct cursor *c, struct mqtt_packet *packet)
{
	switch (packet->type) {
	case MQTT_CONNECT:
		get_connect(c, &packet->connect);
		break;
	case MQTT_CONNACK:
		get_connack(c, packet);
		break;
	case MQTT_PUBACK:
	case MQTT_UNSUBACK:
		packet->id = get_id(c);
		break;
	case MQTT_SUBSCRIBE:
	case MQTT_UNSUBSCRIBE:
		packet->id = get_id(c);
		get_filters(c, &packet->list, packet->type == MQTT_SUBSCRIBE);
		break;
	case MQTT_SUBACK:
		packet->id = get_id(c);
		get_codes(c, &packet->list);
		break;
	default: /* PINGREQ, PINGRESP, DISCONNECT have none */
		break;
	}
	if (!c->bad && c->p == c->end)
		return 1;
	errno = EPROTO;
	return -1;
}

/* ---- PUBLISH ---- */

static int wrong(int err)
{
	errno = err;
	return -1;
}

/*
 * fixed: bytes of the fixed header; remaining: what it says follows; there: of these, the bytes that
 * came. Returns as mqtt_parse().
 */
static int get_publish(const uint8_t *bytes, uint32_t fixed, uint32_t remaining, size_t there,
		       const struct mqtt_limits *limits, struct mqtt_packet *packet)
{
	struct mqtt_publish *publish = &packet->publish;
	const uint8_t *p = bytes + fixed;
	uint32_t head;

	*publish = (struct mqtt_publish){
		.qos = bytes[0] >> 1 & 3, .retain = bytes[0] & 1, .dup = bytes[0] & 8};
	/* [MQTT-3.3.1-4], [MQTT-3.3.1-2] */
	if (publish->qos == 3 || (publish->dup && publish->qos == 0) || remaining < 2)
		return wrong(EPROTO);
	if (there < 2)
		return 0;
	publish->topic = (struct mqtt_bytes){.p = p + 2, .n = (uint16_t)(p[0] << 8 | p[1])};
	head = 2u + publish->topic.n + (publish->qos ? 2 : 0);
	if (head > remaining)
		return wrong(EPROTO);
	if (fixed + head > limits->head || remaining - head > limits->payload)
		return wrong(EMSGSIZE);
	if (there < head)
		return 0;
	if (!mqtt_topic_name(publish->topic.p, publish->topic.n))
		return wrong(EPROTO); /* [MQTT-3.3.2-1], [MQTT-3.3.2-2] */
	if (publish->qos) {
		packet->id = (uint16_t)(p[head - 2] << 8 | p[head - 1]);
		if (packet->id == 0)
			return wrong(EPROTO);
	}
	packet->head = fixed + head;
	packet->payload = remaining - head;
	return 1;
}

/* ---- any packet ---- */

/* The flags that each type must have (2.2.2); -1: the type is none of ours. */
static int flags_of(int type)
{
	static const int8_t flags[16] = {-1, 0, 0, -1, 0, -1, -1, -1, 2, 0, 2, 0, 0, 0, 0, -1};

	return flags[type];
}

/*
 * The remaining length behind the first byte. Returns how many bytes it takes; 0 when more are
 * needed; -1 with EPROTO. The shortest form is not demanded by the standard.
 */
static int get_remaining(const uint8_t *p, size_t n, uint32_t *remaining)
{
	*remaining = 0;
	for (int i = 0; i < 4; i++) {
		if ((size_t)i == n)
			return 0;
		*remaining |= (uint32_t)(p[i] & 0x7f) << 7 * i;
		if (!(p[i] & 0x80))
			return i + 1;
	}
	return wrong(EPROTO);
}

/* Whether a packet of that type may have so long a body. */
static bool wrong_length(enum mqtt_type type, uint32_t remaining)
{
	switch (type) {
	case MQTT_CONNACK:
	case MQTT_PUBACK:
	case MQTT_UNSUBACK:
		return remaining != 2;
	case MQTT_PINGREQ:
	case MQTT_PINGRESP:
	case MQTT_DISCONNECT:
		return remaining != 0;
	default:
		return false;
	}
}

int mqtt_parse(const uint8_t *bytes, size_t n, const struct mqtt_limits *limits,
	       struct mqtt_packet *packet)
{
	struct cursor c;
	uint32_t remaining;
	int length, type;

	if (n == 0)
		return 0;
	type = bytes[0] >> 4;
	if (type != MQTT_PUBLISH && flags_of(type) != (bytes[0] & 15))
		return wrong(EPROTO); /* [MQTT-2.2.2-2] */
	*packet = (struct mqtt_packet){.type = (enum mqtt_type)type};
	length = get_remaining(bytes + 1, n - 1, &remaining);
	if (length <= 0)
		return length;
	if (type == MQTT_PUBLISH)
		return get_publish(bytes, 1u + (uint32_t)length, remaining, n - 1 - (size_t)length,
				   limits, packet);
	if (wrong_length(packet->type, remaining))
		return wrong(EPROTO);
	packet->head = 1u + (uint32_t)length + remaining;
	if (packet->head > limits->head)
		return wrong(EMSGSIZE);
	if (n < packet->head)
		return 0;
	c = (struct cursor){.p = bytes + 1 + length, .end = bytes + packet->head};
	return get_body(&c, packet);
}

bool mqtt_next_filter(struct mqtt_list *list, struct mqtt_bytes *filter, uint8_t *qos)
{
	struct cursor c = {.p = list->p, .end = list->p + list->bytes};

	if (list->n == 0)
		return false;
	*filter = get_bytes(&c);
	if (qos)
		*qos = get_u8(&c);
	list->p = c.p;
	list->bytes = (uint32_t)(c.end - c.p);
	list->n--;
	return true;
}
