/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the broker makes of any bytes that a client may send: mqtt_parse() takes them as a packet,
 * refuses them, or wants more. An input:
 *
 *      0      2         6
 *      | head | payload | packet ...        limits, little-endian
 *
 * What is checked: a packet is in its bytes and its limits; more bytes never change what was decided;
 * what is taken and written again is taken again, and is the same.
 */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "mqtt.h"

enum {
	LIMITS = 6,
	PREFIXES = 64, /* of so many lengths at most */
};

#define CHECK(what)                                                                                \
	do {                                                                                       \
		if (!(what)) {                                                                     \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what);         \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

static void check_inside(struct mqtt_bytes b, const uint8_t *bytes, const struct mqtt_packet *p)
{
	CHECK(!b.p || (b.p >= bytes && b.p + b.n <= bytes + p->head));
}

static bool same(struct mqtt_bytes a, struct mqtt_bytes b)
{
	return a.n == b.n && !a.p == !b.p && (!a.n || memcmp(a.p, b.p, a.n) == 0);
}

/* ---- written again ---- */

static void again_publish(const struct mqtt_packet *p, const struct mqtt_limits *limits)
{
	uint8_t *out = malloc(MQTT_PUBLISH_HEAD(p->publish.topic.n));
	const size_t n = mqtt_put_publish(out, &p->publish, p->id, p->payload);
	struct mqtt_packet q;

	CHECK(mqtt_topic_name(p->publish.topic.p, p->publish.topic.n));
	CHECK(n <= p->head); /* the shortest form of the length */
	CHECK(mqtt_parse(out, n, limits, &q) == 1);
	CHECK(q.head == n && q.payload == p->payload && q.id == p->id);
	CHECK(same(q.publish.topic, p->publish.topic) && q.publish.qos == p->publish.qos);
	CHECK(q.publish.retain == p->publish.retain && q.publish.dup == p->publish.dup);
	free(out);
}

static void again_connect(const uint8_t *bytes, const struct mqtt_packet *p,
			  const struct mqtt_limits *limits)
{
	const struct mqtt_connect *a = &p->connect, *b;
	struct mqtt_packet q;
	uint8_t *out;
	size_t n;

	check_inside(a->client_id, bytes, p);
	check_inside(a->will_topic, bytes, p);
	check_inside(a->will_message, bytes, p);
	check_inside(a->user, bytes, p);
	check_inside(a->password, bytes, p);
	if (a->level != MQTT_LEVEL)
		return;
	out = malloc(mqtt_connect_bytes(a));
	n = mqtt_put_connect(out, a);
	CHECK(n <= p->head);
	CHECK(mqtt_parse(out, n, limits, &q) == 1 && q.head == n);
	b = &q.connect;
	CHECK(same(a->client_id, b->client_id) && same(a->will_topic, b->will_topic));
	CHECK(same(a->will_message, b->will_message) && same(a->user, b->user));
	CHECK(same(a->password, b->password) && a->keep_alive == b->keep_alive);
	CHECK(a->clean_session == b->clean_session && a->has_will == b->has_will);
	CHECK(a->will_qos == b->will_qos && a->will_retain == b->will_retain);
	free(out);
}

static void again_filters(const uint8_t *bytes, const struct mqtt_packet *p,
			  const struct mqtt_limits *limits)
{
	const bool subscribe = p->type == MQTT_SUBSCRIBE;
	struct mqtt_bytes *filters = calloc(p->list.n, sizeof *filters);
	uint8_t *qos = calloc(p->list.n, 1), *out;
	struct mqtt_list list = p->list;
	struct mqtt_packet q;
	uint32_t n = 0;
	size_t length;

	CHECK(p->list.n <= p->head);
	while (mqtt_next_filter(&list, &filters[n], subscribe ? &qos[n] : NULL)) {
		check_inside(filters[n], bytes, p);
		CHECK(mqtt_topic_filter(filters[n].p, filters[n].n) && qos[n] <= 2);
		/* A filter is matched by what it is if it has no wildcards. */
		if (mqtt_topic_name(filters[n].p, filters[n].n))
			CHECK(mqtt_matches(filters[n], filters[n]));
		mqtt_matches(filters[n], filters[0]);
		if (++n == p->list.n)
			break;
	}
	CHECK(n == p->list.n && list.bytes == 0);
	out = malloc(mqtt_filters_bytes(filters, n, subscribe));
	length = subscribe ? mqtt_put_subscribe(out, p->id, filters, qos, n)
			   : mqtt_put_unsubscribe(out, p->id, filters, n);
	CHECK(length <= p->head);
	CHECK(mqtt_parse(out, length, limits, &q) == 1);
	CHECK(q.type == p->type && q.id == p->id && q.list.n == n);
	free(out);
	free(qos);
	free(filters);
}

/* ---- one packet ---- */

static void check_taken(const uint8_t *bytes, size_t n, const struct mqtt_limits *limits,
			const struct mqtt_packet *p)
{
	CHECK(p->head <= n && p->head <= limits->head);
	CHECK(p->payload <= limits->payload && (p->type == MQTT_PUBLISH || !p->payload));
	switch (p->type) {
	case MQTT_CONNECT:
		again_connect(bytes, p, limits);
		break;
	case MQTT_PUBLISH:
		check_inside(p->publish.topic, bytes, p);
		again_publish(p, limits);
		break;
	case MQTT_SUBSCRIBE:
	case MQTT_UNSUBSCRIBE:
		again_filters(bytes, p, limits);
		break;
	case MQTT_SUBACK:
		CHECK(p->list.p + p->list.n == bytes + p->head);
		break;
	default:
		break;
	}
}

/* Parse each beginning of the packet, from memory of just its size. */
static void check_prefixes(const uint8_t *bytes, size_t n, const struct mqtt_limits *limits)
{
	int before = 0, err = 0;
	struct mqtt_packet first = {0};

	for (size_t i = 0; i <= n && i < PREFIXES; i++) {
		uint8_t *copy = malloc(i ? i : 1);
		struct mqtt_packet p;
		int ret;

		memcpy(copy, bytes, i);
		ret = mqtt_parse(copy, i, limits, &p);
		CHECK(ret >= -1 && ret <= 1);
		CHECK(ret >= 0 || errno == EPROTO || errno == EMSGSIZE);
		if (before) {
			CHECK(ret == before);
			CHECK(ret < 0 ? errno == err
				      : p.type == first.type && p.head == first.head &&
						p.payload == first.payload && p.id == first.id);
		} else if (ret) {
			before = ret;
			err = errno;
			first = p;
		}
		free(copy);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct mqtt_limits limits;
	struct mqtt_packet packet;
	uint16_t head;
	uint32_t payload;

	if (size < LIMITS)
		return 0;
	memcpy(&head, data, sizeof head);
	memcpy(&payload, data + 2, sizeof payload);
	/* All of the heads that there may be, too. */
	limits = (struct mqtt_limits){.head = le16toh(head) ? le16toh(head) : MQTT_HEAD_MAX,
				      .payload = le32toh(payload)};
	data += LIMITS;
	size -= LIMITS;
	if (mqtt_parse(data, size, &limits, &packet) == 1)
		check_taken(data, size, &limits, &packet);
	check_prefixes(data, size, &limits);
	return 0;
}
