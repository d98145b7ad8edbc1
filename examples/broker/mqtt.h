/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The packets of MQTT 3.1.1 (OASIS standard, 29 October 2014), read from and written to contiguous
 * bytes. No I/O, no memory of its own, no state: every function may be called from any thread.
 *
 *      | type, flags | remaining length | variable header and payload ...
 *           1 byte       1 to 4 bytes
 *
 * What is read here is a packet's head: of a PUBLISH all that stands before its payload, of any other
 * packet the whole. A PUBLISH's payload is never looked at, and need not be there.
 *
 * Packets of both directions are known; whether one may come from that side, and when, is the
 * caller's business. Those of QoS 2's handshake are not known at all: EPROTO.
 */
#ifndef BROKER_MQTT_H
#define BROKER_MQTT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum mqtt_type {
	MQTT_CONNECT = 1,
	MQTT_CONNACK = 2,
	MQTT_PUBLISH = 3,
	MQTT_PUBACK = 4,
	MQTT_SUBSCRIBE = 8,
	MQTT_SUBACK = 9,
	MQTT_UNSUBSCRIBE = 10,
	MQTT_UNSUBACK = 11,
	MQTT_PINGREQ = 12,
	MQTT_PINGRESP = 13,
	MQTT_DISCONNECT = 14,
};

/* Return codes of a CONNACK (3.2.2.3). */
enum mqtt_code {
	MQTT_ACCEPTED = 0,
	MQTT_BAD_VERSION = 1,
	MQTT_BAD_CLIENT_ID = 2,
	MQTT_UNAVAILABLE = 3,
	MQTT_BAD_LOGIN = 4,
	MQTT_NOT_AUTHORISED = 5,
};

enum {
	MQTT_LEVEL = 4,     /* the protocol level of 3.1.1 */
	MQTT_FIXED_MAX = 5, /* bytes before the variable header */
	MQTT_REMAINING_MAX = 268435455,
	MQTT_SUBACK_FAILURE = 0x80, /* a SUBACK's code for a filter that was not taken */
	MQTT_ACK_BYTES = 4,         /* of a CONNACK, PUBACK, UNSUBACK */
	MQTT_EMPTY_BYTES = 2,       /* of a PINGREQ, PINGRESP, DISCONNECT */
	/* Of the longest head that is read, so that one fits into a chunk of 64 KiB: a topic may have
	 * 8 bytes less than the standard's most. */
	MQTT_HEAD_MAX = 65536,
	MQTT_TOPIC_MAX = MQTT_HEAD_MAX - MQTT_FIXED_MAX - 4,
};

/* A string or a field of bytes, where it stands in the packet; p is NULL where there is none. */
struct mqtt_bytes {
	const uint8_t *p;
	uint16_t n;
};

struct mqtt_connect {
	uint8_t level; /* not checked: the answer to another one is a CONNACK */
	bool clean_session;
	bool has_will, will_retain;
	uint8_t will_qos;    /* 0 .. 2 */
	uint16_t keep_alive; /* seconds; 0: none */
	struct mqtt_bytes client_id, will_topic, will_message, user, password;
};

struct mqtt_publish {
	struct mqtt_bytes topic;
	uint8_t qos; /* 0 .. 2 */
	bool retain, dup;
};

/* The filters of a SUBSCRIBE or UNSUBSCRIBE, or the codes of a SUBACK: to be gone through. */
struct mqtt_list {
	const uint8_t *p;
	uint32_t bytes;
	uint32_t n; /* how many */
};

struct mqtt_packet {
	enum mqtt_type type;
	uint32_t head;    /* bytes of the head */
	uint32_t payload; /* bytes of a PUBLISH's payload, which follow it */
	uint16_t id;      /* packet identifier, where the packet has one; else 0 */
	union {
		struct mqtt_connect connect;
		struct mqtt_publish publish;
		struct mqtt_list list;
		struct {
			bool session_present;
			uint8_t code;
		} connack;
	};
};

/* What is refused with EMSGSIZE. */
struct mqtt_limits {
	uint32_t head;    /* bytes of a head, at most MQTT_HEAD_MAX */
	uint32_t payload; /* bytes of a PUBLISH's payload */
};

/*
 * Read the packet that begins at bytes, of which n are there.
 *
 * Returns 1 when *packet is filled in; it points into bytes. 0 when more of the head is needed. -1
 * with errno, as soon as it is known: EPROTO when the standard forbids it, EMSGSIZE when it is longer
 * than limits.
 */
int mqtt_parse(const uint8_t *bytes, size_t n, const struct mqtt_limits *limits,
	       struct mqtt_packet *packet);

/*
 * The next filter of a list that was read from a SUBSCRIBE or UNSUBSCRIBE; qos: of a SUBSCRIBE, else
 * NULL. Returns false at the end.
 */
bool mqtt_next_filter(struct mqtt_list *list, struct mqtt_bytes *filter, uint8_t *qos);

/* Well-formed UTF-8 without U+0000 (1.5.3); a topic name, a topic filter (4.7). */
bool mqtt_utf8(const uint8_t *p, size_t n);
bool mqtt_topic_name(const uint8_t *p, size_t n);
bool mqtt_topic_filter(const uint8_t *p, size_t n);

/* Does the filter match the topic name? A topic that begins with '$' is for filters that do so too. */
bool mqtt_matches(struct mqtt_bytes filter, struct mqtt_bytes topic);

/*
 * Writing: each puts a packet, or a PUBLISH's head, to out and returns how many bytes that are. There
 * must be room. Nothing is checked.
 */
size_t mqtt_put_connack(uint8_t *out, bool session_present, uint8_t code);
size_t mqtt_put_ack(uint8_t *out, enum mqtt_type type, uint16_t id); /* PUBACK, UNSUBACK */
size_t mqtt_put_empty(uint8_t *out, enum mqtt_type type); /* PINGREQ, PINGRESP, DISCONNECT */
size_t mqtt_put_suback(uint8_t *out, uint16_t id, const uint8_t *codes, uint32_t n);
size_t mqtt_put_publish(uint8_t *out, const struct mqtt_publish *publish, uint16_t id,
			uint32_t payload);
size_t mqtt_put_connect(uint8_t *out, const struct mqtt_connect *connect);
size_t mqtt_put_subscribe(uint8_t *out, uint16_t id, const struct mqtt_bytes *filters,
			  const uint8_t *qos, uint32_t n);
size_t mqtt_put_unsubscribe(uint8_t *out, uint16_t id, const struct mqtt_bytes *filters,
			    uint32_t n);

/* Bytes that mqtt_put_publish() writes at most, and that the others do. */
#define MQTT_PUBLISH_HEAD(topic_bytes) (MQTT_FIXED_MAX + 4 + (size_t)(topic_bytes))
size_t mqtt_connect_bytes(const struct mqtt_connect *connect);
size_t mqtt_filters_bytes(const struct mqtt_bytes *filters, uint32_t n, bool with_qos);
#define MQTT_SUBACK_BYTES(n) (MQTT_FIXED_MAX + 2 + (size_t)(n))

#endif
