/* SPDX-License-Identifier: BSD-2-Clause */
/* The packets: read, refused and written. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../suite.h"
#include "mqtt.h"

static const struct mqtt_limits wide = {.head = MQTT_HEAD_MAX, .payload = MQTT_REMAINING_MAX};

static struct mqtt_bytes text(const char *s)
{
	return (struct mqtt_bytes){.p = (const uint8_t *)s, .n = (uint16_t)strlen(s)};
}

static void expect_text(struct mqtt_bytes b, const char *s)
{
	ck_assert_uint_eq(b.n, strlen(s));
	ck_assert_mem_eq(b.p, s, b.n);
}

/*
 * Read n bytes that are a whole head, in memory that ends with them, after every beginning of them
 * was too short.
 */
static int parse_all(const uint8_t *bytes, size_t n, struct mqtt_packet *packet, uint8_t **copy)
{
	for (size_t i = 0; i < n; i++) {
		uint8_t *part = malloc(i ? i : 1);

		if (i)
			memcpy(part, bytes, i);
		ck_assert_int_eq(mqtt_parse(part, i, &wide, packet), 0);
		free(part);
	}
	*copy = malloc(n);
	memcpy(*copy, bytes, n);
	return mqtt_parse(*copy, n, &wide, packet);
}

static int refused(const uint8_t *bytes, size_t n, const struct mqtt_limits *limits)
{
	struct mqtt_packet packet;
	uint8_t *copy = malloc(n);
	int ret;

	memcpy(copy, bytes, n);
	errno = 0;
	ret = mqtt_parse(copy, n, limits, &packet);
	free(copy);
	ck_assert_int_eq(ret, -1);
	return errno;
}

#define REFUSED(...)                                                                               \
	refused((const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__}), &wide)

START_TEST(test_connect)
{
	const struct mqtt_connect connect = {.level = MQTT_LEVEL,
					     .clean_session = true,
					     .has_will = true,
					     .will_retain = true,
					     .will_qos = 1,
					     .keep_alive = 300,
					     .client_id = text("me"),
					     .will_topic = text("gone/me"),
					     .will_message = {.p = (const uint8_t *)"\0x", .n = 2},
					     .user = text("u"),
					     .password = text("")};
	uint8_t bytes[128], *copy;
	const size_t n = mqtt_put_connect(bytes, &connect);
	struct mqtt_packet p;

	ck_assert_uint_le(n, mqtt_connect_bytes(&connect));
	ck_assert_int_eq(parse_all(bytes, n, &p, &copy), 1);
	ck_assert_int_eq(p.type, MQTT_CONNECT);
	ck_assert_uint_eq(p.head, n);
	ck_assert_uint_eq(p.payload, 0);
	ck_assert_uint_eq(p.connect.level, MQTT_LEVEL);
	ck_assert(p.connect.clean_session && p.connect.has_will && p.connect.will_retain);
	ck_assert_uint_eq(p.connect.will_qos, 1);
	ck_assert_uint_eq(p.connect.keep_alive, 300);
	expect_text(p.connect.client_id, "me");
	expect_text(p.connect.will_topic, "gone/me");
	ck_assert_uint_eq(p.connect.will_message.n, 2);
	ck_assert_mem_eq(p.connect.will_message.p, "\0x", 2);
	expect_text(p.connect.user, "u");
	ck_assert_ptr_nonnull(p.connect.password.p);
	ck_assert_uint_eq(p.connect.password.n, 0);
	free(copy);
}
END_TEST

START_TEST(test_bad_connects)
{
	struct mqtt_packet p;
	const uint8_t other[] = {0x10, 8, 0, 4, 'M', 'Q', 'T', 'T', 5, 99};

	/* Another version is for the caller to answer, whatever follows. */
	ck_assert_int_eq(mqtt_parse(other, sizeof other, &wide, &p), 1);
	ck_assert_uint_eq(p.connect.level, 5);
	/* The name, the reserved flag, will flags without a will, will QoS 3, a password alone. */
	ck_assert_int_eq(REFUSED(0x10, 12, 0, 4, 'M', 'Q', 'X', 'T', 4, 2, 0, 0, 0, 0), EPROTO);
	ck_assert_int_eq(REFUSED(0x10, 12, 0, 4, 'M', 'Q', 'T', 'T', 4, 3, 0, 0, 0, 0), EPROTO);
	ck_assert_int_eq(REFUSED(0x10, 12, 0, 4, 'M', 'Q', 'T', 'T', 4, 0x0a, 0, 0, 0, 0), EPROTO);
	ck_assert_int_eq(REFUSED(0x10, 12, 0, 4, 'M', 'Q', 'T', 'T', 4, 0x22, 0, 0, 0, 0), EPROTO);
	ck_assert_int_eq(
		REFUSED(0x10, 17, 0, 4, 'M', 'Q', 'T', 'T', 4, 0x1e, 0, 0, 0, 0, 0, 1, 'w', 0, 0),
		EPROTO);
	ck_assert_int_eq(REFUSED(0x10, 14, 0, 4, 'M', 'Q', 'T', 'T', 4, 0x42, 0, 0, 0, 0, 0, 0),
			 EPROTO);
	/* A byte too many, one too few, a string that leaves the packet, a will for a wildcard. */
	ck_assert_int_eq(REFUSED(0x10, 13, 0, 4, 'M', 'Q', 'T', 'T', 4, 2, 0, 0, 0, 0, 7), EPROTO);
	ck_assert_int_eq(REFUSED(0x10, 11, 0, 4, 'M', 'Q', 'T', 'T', 4, 2, 0, 0, 0), EPROTO);
	ck_assert_int_eq(REFUSED(0x10, 12, 0, 4, 'M', 'Q', 'T', 'T', 4, 2, 0, 0, 0, 1), EPROTO);
	ck_assert_int_eq(
		REFUSED(0x10, 17, 0, 4, 'M', 'Q', 'T', 'T', 4, 0x06, 0, 0, 0, 0, 0, 1, '#', 0, 0),
		EPROTO);
	/* Two bytes that are no UTF-8 as the client's name. */
	ck_assert_int_eq(REFUSED(0x10, 14, 0, 4, 'M', 'Q', 'T', 'T', 4, 2, 0, 0, 0, 2, 0xc3, 0x28),
			 EPROTO);
}
END_TEST

START_TEST(test_publish)
{
	static const uint32_t payloads[] = {0, 1, 110, 120, 16376, 16380, 2097140, 268435000};

	for (size_t i = 0; i < sizeof payloads / sizeof *payloads; i++) {
		for (uint8_t qos = 0; qos < 3; qos++) {
			const struct mqtt_publish publish = {.topic = text("a/b"),
							     .qos = qos,
							     .retain = i & 1,
							     .dup = qos && i & 2};
			uint8_t bytes[32], *copy;
			const size_t n = mqtt_put_publish(bytes, &publish, 7, payloads[i]);
			struct mqtt_packet p;

			ck_assert_uint_le(n, MQTT_PUBLISH_HEAD(3));
			ck_assert_int_eq(parse_all(bytes, n, &p, &copy), 1);
			ck_assert_int_eq(p.type, MQTT_PUBLISH);
			ck_assert_uint_eq(p.head, n);
			ck_assert_uint_eq(p.payload, payloads[i]);
			ck_assert_uint_eq(p.id, qos ? 7 : 0);
			ck_assert_uint_eq(p.publish.qos, qos);
			ck_assert_int_eq(p.publish.retain, publish.retain);
			ck_assert_int_eq(p.publish.dup, publish.dup);
			expect_text(p.publish.topic, "a/b");
			free(copy);
		}
	}
}
END_TEST

START_TEST(test_bad_publishes)
{
	/* QoS 3, DUP at QoS 0, no topic, a wildcard, U+0000, an identifier of 0, no identifier. */
	ck_assert_int_eq(REFUSED(0x36, 5, 0, 1, 'a', 0, 1), EPROTO);
	ck_assert_int_eq(REFUSED(0x38, 3, 0, 1, 'a'), EPROTO);
	ck_assert_int_eq(REFUSED(0x30, 2, 0, 0), EPROTO);
	ck_assert_int_eq(REFUSED(0x30, 5, 0, 3, 'a', '/', '+'), EPROTO);
	ck_assert_int_eq(REFUSED(0x30, 4, 0, 2, 'a', 0), EPROTO);
	ck_assert_int_eq(REFUSED(0x32, 5, 0, 1, 'a', 0, 0), EPROTO);
	ck_assert_int_eq(REFUSED(0x32, 3, 0, 1, 'a'), EPROTO);
	/* A topic that leaves the packet is known before all of it is there; a packet too short for one. */
	ck_assert_int_eq(REFUSED(0x30, 5, 0, 200), EPROTO);
	ck_assert_int_eq(REFUSED(0x30, 1), EPROTO);
}
END_TEST

START_TEST(test_limits)
{
	const struct mqtt_limits narrow = {.head = 16, .payload = 10};
	const uint8_t fits[] = {0x30, 13, 0, 1, 'a'}, payload[] = {0x30, 14, 0, 1, 'a'};
	const uint8_t topic[] = {0x30, 120, 0, 100}, filters[] = {0x82, 100};
	struct mqtt_packet p;

	ck_assert_int_eq(mqtt_parse(fits, sizeof fits, &narrow, &p), 1);
	ck_assert_uint_eq(p.payload, 10);
	ck_assert_int_eq(refused(payload, sizeof payload, &narrow), EMSGSIZE);
	ck_assert_int_eq(refused(topic, sizeof topic, &narrow), EMSGSIZE);
	ck_assert_int_eq(refused(filters, sizeof filters, &narrow), EMSGSIZE);
}
END_TEST

START_TEST(test_fixed_header)
{
	struct mqtt_packet p;
	const uint8_t padded[] = {0xc0, 0x80, 0x80, 0x00};

	/* A fifth byte of length; types of nobody, and of QoS 2; flags that are reserved. */
	ck_assert_int_eq(REFUSED(0x30, 0x80, 0x80, 0x80, 0x80), EPROTO);
	ck_assert_int_eq(REFUSED(0x00), EPROTO);
	ck_assert_int_eq(REFUSED(0xf0), EPROTO);
	for (uint8_t type = 5; type <= 7; type++)
		for (uint8_t flags = 0; flags < 16; flags++)
			ck_assert_int_eq(REFUSED((uint8_t)(type << 4 | flags)), EPROTO);
	ck_assert_int_eq(REFUSED(0x80), EPROTO);
	ck_assert_int_eq(REFUSED(0xa0), EPROTO);
	ck_assert_int_eq(REFUSED(0x11), EPROTO);
	ck_assert_int_eq(REFUSED(0xc1), EPROTO);
	/* Bodies where there are none, or of another length. */
	ck_assert_int_eq(REFUSED(0xc0, 1), EPROTO);
	ck_assert_int_eq(REFUSED(0xe0, 2), EPROTO);
	ck_assert_int_eq(REFUSED(0x40, 3), EPROTO);
	ck_assert_int_eq(REFUSED(0x40, 2, 0, 0), EPROTO);
	ck_assert_int_eq(mqtt_parse(padded, sizeof padded, &wide, &p), 1);
	ck_assert_int_eq(p.type, MQTT_PINGREQ);
	ck_assert_uint_eq(p.head, 4);
}
END_TEST

START_TEST(test_subscribe)
{
	const struct mqtt_bytes filters[] = {text("a/+"), text("#"), text("x")};
	const uint8_t qos[] = {0, 1, 2};
	uint8_t bytes[64], *copy, granted;
	struct mqtt_bytes filter;
	struct mqtt_packet p;
	size_t n = mqtt_put_subscribe(bytes, 9, filters, qos, 3);

	ck_assert_uint_le(n, mqtt_filters_bytes(filters, 3, true));
	ck_assert_int_eq(parse_all(bytes, n, &p, &copy), 1);
	ck_assert_int_eq(p.type, MQTT_SUBSCRIBE);
	ck_assert_uint_eq(p.id, 9);
	ck_assert_uint_eq(p.list.n, 3);
	for (int i = 0; i < 3; i++) {
		ck_assert(mqtt_next_filter(&p.list, &filter, &granted));
		ck_assert_uint_eq(granted, qos[i]);
		ck_assert_uint_eq(filter.n, filters[i].n);
		ck_assert_mem_eq(filter.p, filters[i].p, filter.n);
	}
	ck_assert(!mqtt_next_filter(&p.list, &filter, &granted));
	free(copy);
	n = mqtt_put_unsubscribe(bytes, 10, filters, 2);
	ck_assert_uint_le(n, mqtt_filters_bytes(filters, 2, false));
	ck_assert_int_eq(parse_all(bytes, n, &p, &copy), 1);
	ck_assert_int_eq(p.type, MQTT_UNSUBSCRIBE);
	ck_assert(mqtt_next_filter(&p.list, &filter, NULL));
	expect_text(filter, "a/+");
	ck_assert(mqtt_next_filter(&p.list, &filter, NULL));
	expect_text(filter, "#");
	ck_assert(!mqtt_next_filter(&p.list, &filter, NULL));
	free(copy);
	/* None at all; QoS 3; no QoS; a filter that is none. */
	ck_assert_int_eq(REFUSED(0x82, 2, 0, 1), EPROTO);
	ck_assert_int_eq(REFUSED(0xa2, 2, 0, 1), EPROTO);
	ck_assert_int_eq(REFUSED(0x82, 6, 0, 1, 0, 1, 'a', 3), EPROTO);
	ck_assert_int_eq(REFUSED(0x82, 5, 0, 1, 0, 1, 'a'), EPROTO);
	ck_assert_int_eq(REFUSED(0x82, 7, 0, 1, 0, 2, 'a', '#', 0), EPROTO);
	ck_assert_int_eq(REFUSED(0x82, 6, 0, 0, 0, 1, 'a', 0), EPROTO);
}
END_TEST

START_TEST(test_answers)
{
	const uint8_t codes[] = {0, 1, 2, MQTT_SUBACK_FAILURE};
	static const enum mqtt_type acks[] = {MQTT_PUBACK, MQTT_UNSUBACK};
	static const enum mqtt_type empty[] = {MQTT_PINGREQ, MQTT_PINGRESP, MQTT_DISCONNECT};
	uint8_t bytes[16], *copy;
	struct mqtt_packet p;
	size_t n = mqtt_put_suback(bytes, 300, codes, 4);

	ck_assert_uint_le(n, MQTT_SUBACK_BYTES(4));
	ck_assert_int_eq(parse_all(bytes, n, &p, &copy), 1);
	ck_assert_int_eq(p.type, MQTT_SUBACK);
	ck_assert_uint_eq(p.id, 300);
	ck_assert_uint_eq(p.list.n, 4);
	ck_assert_mem_eq(p.list.p, codes, 4);
	free(copy);
	ck_assert_int_eq(REFUSED(0x90, 3, 0, 1, 3), EPROTO);
	ck_assert_int_eq(REFUSED(0x90, 2, 0, 1), EPROTO);
	n = mqtt_put_connack(bytes, true, MQTT_UNAVAILABLE);
	ck_assert_uint_eq(n, MQTT_ACK_BYTES);
	ck_assert_int_eq(parse_all(bytes, n, &p, &copy), 1);
	ck_assert_int_eq(p.type, MQTT_CONNACK);
	ck_assert(p.connack.session_present);
	ck_assert_uint_eq(p.connack.code, MQTT_UNAVAILABLE);
	free(copy);
	ck_assert_int_eq(REFUSED(0x20, 2, 2, 0), EPROTO);
	for (int i = 0; i < 2; i++) {
		n = mqtt_put_ack(bytes, acks[i], 0xabcd);
		ck_assert_uint_eq(n, MQTT_ACK_BYTES);
		ck_assert_int_eq(parse_all(bytes, n, &p, &copy), 1);
		ck_assert_int_eq(p.type, acks[i]);
		ck_assert_uint_eq(p.id, 0xabcd);
		free(copy);
	}
	for (int i = 0; i < 3; i++) {
		n = mqtt_put_empty(bytes, empty[i]);
		ck_assert_uint_eq(n, MQTT_EMPTY_BYTES);
		ck_assert_int_eq(parse_all(bytes, n, &p, &copy), 1);
		ck_assert_int_eq(p.type, empty[i]);
		free(copy);
	}
}
END_TEST

START_TEST(test_utf8)
{
	static const char *const good[] = {"",       "a",          "\x7f",      "\u00e9",
					   "\u07ff", "\u0800",     "\ud7ff",    "\ufeff",
					   "\uffff", "\U00010000", "\U0010ffff"};
	static const char *const bad[] = {"\x80",
					  "\xc0\x80",
					  "\xc1\xbf",
					  "\xc3",
					  "\xc3(",
					  "\xe0\x9f\xbf",
					  "\xe1\x80",
					  "\xed\xa0\x80" /* a surrogate */,
					  "\xf0\x8f\xbf\xbf",
					  "\xf4\x90\x80\x80",
					  "\xf5\x80\x80\x80",
					  "\xf1\x80\x80",
					  "\xff",
					  "a\xe2\x82"};

	for (size_t i = 0; i < sizeof good / sizeof *good; i++)
		ck_assert_msg(mqtt_utf8((const uint8_t *)good[i], strlen(good[i])), "good %zu", i);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		ck_assert_msg(!mqtt_utf8((const uint8_t *)bad[i], strlen(bad[i])), "bad %zu", i);
	ck_assert(!mqtt_utf8((const uint8_t *)"a\0b", 3));
}
END_TEST

START_TEST(test_names_and_filters)
{
	static const char *const filters[] = {"#",  "+",    "/",     "a/#", "+/+",
					      "/+", "a//b", "+/a/#", "$S/#"};
	static const char *const none[] = {"",   "a#",     "a/#/b", "#/",  "a+",
					   "+a", "a/b+/c", "##",    "a/+#"};

	for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
		ck_assert_msg(mqtt_topic_filter((const uint8_t *)filters[i], strlen(filters[i])),
			      "%s", filters[i]);
	for (size_t i = 0; i < sizeof none / sizeof *none; i++)
		ck_assert_msg(!mqtt_topic_filter((const uint8_t *)none[i], strlen(none[i])), "%s",
			      none[i]);
	ck_assert(mqtt_topic_name((const uint8_t *)"/", 1));
	ck_assert(!mqtt_topic_name((const uint8_t *)"a/#", 3));
	ck_assert(!mqtt_topic_name((const uint8_t *)"", 0));
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("mqtt");
	TCase *tc = tcase_create("packets");

	tcase_add_test(tc, test_connect);
	tcase_add_test(tc, test_bad_connects);
	tcase_add_test(tc, test_publish);
	tcase_add_test(tc, test_bad_publishes);
	tcase_add_test(tc, test_limits);
	tcase_add_test(tc, test_fixed_header);
	tcase_add_test(tc, test_subscribe);
	tcase_add_test(tc, test_answers);
	tcase_add_test(tc, test_utf8);
	tcase_add_test(tc, test_names_and_filters);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
