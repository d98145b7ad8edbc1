/* SPDX-License-Identifier: BSD-2-Clause */
/* Writing packets, see mqtt.h. */
#include <string.h>

#include "mqtt.h"

static uint8_t *put_u16(uint8_t *out, uint16_t n)
{
	*out++ = (uint8_t)(n >> 8);
	*out++ = (uint8_t)n;
	return out;
}

static uint8_t *put_bytes(uint8_t *out, struct mqtt_bytes b)
{
	out = put_u16(out, b.n);
	if (b.n)
		memcpy(out, b.p, b.n);
	return out + b.n;
}

static uint8_t *put_fixed(uint8_t *out, enum mqtt_type type, int flags, size_t remaining)
{
	*out++ = (uint8_t)((unsigned int)type << 4 | (unsigned int)flags);
	do {
		*out++ = (uint8_t)((remaining & 0x7f) | (remaining > 0x7f ? 0x80 : 0));
		remaining >>= 7;
	} while (remaining);
	return out;
}

size_t mqtt_put_connack(uint8_t *out, bool session_present, uint8_t code)
{
	out = put_fixed(out, MQTT_CONNACK, 0, 2);
	out[0] = session_present;
	out[1] = code;
	return MQTT_ACK_BYTES;
}

size_t mqtt_put_ack(uint8_t *out, enum mqtt_type type, uint16_t id)
{
	put_u16(put_fixed(out, type, 0, 2), id);
	return MQTT_ACK_BYTES;
}

size_t mqtt_put_empty(uint8_t *out, enum mqtt_type type)
{
	put_fixed(out, type, 0, 0);
	return MQTT_EMPTY_BYTES;
}

size_t mqtt_put_suback(uint8_t *out, uint16_t id, const uint8_t *codes, uint32_t n)
{
	uint8_t *p = put_u16(put_fixed(out, MQTT_SUBACK, 0, 2 + (size_t)n), id);

	memcpy(p, codes, n);
	return (size_t)(p + n - out);
}

size_t mqtt_put_publish(uint8_t *out, const struct mqtt_publish *publish, uint16_t id,
			uint32_t payload)
{
	const int flags = publish->dup << 3 | publish->qos << 1 | publish->retain;
	const size_t head = 2u + publish->topic.n + (publish->qos ? 2u : 0u);
	uint8_t *p = put_bytes(put_fixed(out, MQTT_PUBLISH, flags, head + payload), publish->topic);

	if (publish->qos)
		p = put_u16(p, id);
	return (size_t)(p - out);
}

static size_t connect_remaining(const struct mqtt_connect *connect)
{
	size_t n = 10 + 2 + (size_t)connect->client_id.n;

	if (connect->has_will)
		n += 4 + (size_t)connect->will_topic.n + connect->will_message.n;
	if (connect->user.p)
		n += 2 + (size_t)connect->user.n;
	if (connect->password.p)
		n += 2 + (size_t)connect->password.n;
	return n;
}

size_t mqtt_connect_bytes(const struct mqtt_connect *connect)
{
	return MQTT_FIXED_MAX + connect_remaining(connect);
}

size_t mqtt_put_connect(uint8_t *out, const struct mqtt_connect *connect)
{
	static const uint8_t name[] = {'M', 'Q', 'T', 'T'};
	uint8_t *p = put_fixed(out, MQTT_CONNECT, 0, connect_remaining(connect));
	int flags = connect->clean_session << 1;

	if (connect->has_will)
		flags |= 1 << 2 | connect->will_qos << 3 | connect->will_retain << 5;
	flags |= (connect->password.p ? 1 << 6 : 0) | (connect->user.p ? 1 << 7 : 0);
	p = put_bytes(p, (struct mqtt_bytes){.p = name, .n = sizeof name});
	*p++ = connect->level;
	*p++ = (uint8_t)flags;
	p = put_u16(p, connect->keep_alive);
	p = put_bytes(p, connect->client_id);
	if (connect->has_will) {
		p = put_bytes(p, connect->will_topic);
		p = put_bytes(p, connect->will_message);
	}
	if (connect->user.p)
		p = put_bytes(p, connect->user);
	if (connect->password.p)
		p = put_bytes(p, connect->password);
	return (size_t)(p - out);
}

static size_t filters_remaining(const struct mqtt_bytes *filters, uint32_t n, bool with_qos)
{
	size_t bytes = 2;

	for (uint32_t i = 0; i < n; i++)
		bytes += 2 + (size_t)filters[i].n + with_qos;
	return bytes;
}

size_t mqtt_filters_bytes(const struct mqtt_bytes *filters, uint32_t n, bool with_qos)
{
	return MQTT_FIXED_MAX + filters_remaining(filters, n, with_qos);
}

/* qos NULL: an UNSUBSCRIBE. */
static size_t put_filters(uint8_t *out, uint16_t id, const struct mqtt_bytes *filters,
			  const uint8_t *qos, uint32_t n)
{
	uint8_t *p = put_fixed(out, qos ? MQTT_SUBSCRIBE : MQTT_UNSUBSCRIBE, 2,
			       filters_remaining(filters, n, qos != NULL));

	p = put_u16(p, id);
	for (uint32_t i = 0; i < n; i++) {
		p = put_bytes(p, filters[i]);
		if (qos)
			*p++ = qos[i];
	}
	return (size_t)(p - out);
}

size_t mqtt_put_subscribe(uint8_t *out, uint16_t id, const struct mqtt_bytes *filters,
			  const uint8_t *qos, uint32_t n)
{
	return put_filters(out, id, filters, qos, n);
}

size_t mqtt_put_unsubscribe(uint8_t *out, uint16_t id, const struct mqtt_bytes *filters, uint32_t n)
{
	return put_filters(out, id, filters, NULL, n);
}
