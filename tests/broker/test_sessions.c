/* SPDX-License-Identifier: BSD-2-Clause */
/* What the standard asks of a broker, byte for byte. */
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../suite.h"
#include "broker_rig.h"

static void setup(void)
{
	rig_setup();
	rig_settings.queue.bytes = 16 << 20; /* nothing is dropped here */
	rig_open();
}

/* ---- CONNECT ---- */

START_TEST(test_refusals)
{
	int fd = client_socket(0);

	client_say(fd, 0x10, 12, 0, 4, 'M', 'Q', 'T', 'T', 5, 2, 0, 0, 0, 0);
	client_hear(fd, 0x20, 2, 0, MQTT_BAD_VERSION);
	client_expect_end(fd);
	fd = client_socket(0); /* CleanSession 0, with a name and without */
	client_say(fd, 0x10, 13, 0, 4, 'M', 'Q', 'T', 'T', 4, 0, 0, 0, 0, 1, 'x');
	client_hear(fd, 0x20, 2, 0, MQTT_UNAVAILABLE);
	client_expect_end(fd);
	fd = client_socket(0);
	client_say(fd, 0x10, 12, 0, 4, 'M', 'Q', 'T', 'T', 4, 0, 0, 0, 0, 0);
	client_hear(fd, 0x20, 2, 0, MQTT_BAD_CLIENT_ID);
	client_expect_end(fd);
	fd = client_socket(0); /* a will at QoS 2 */
	client_say(fd, 0x10, 17, 0, 4, 'M', 'Q', 'T', 'T', 4, 0x16, 0, 0, 0, 0, 0, 1, 'w', 0, 0);
	client_expect_end(fd);
	fd = client_socket(0); /* another protocol's name */
	client_say(fd, 0x10, 12, 0, 4, 'H', 'T', 'T', 'P', 4, 2, 0, 0, 0, 0);
	client_expect_end(fd);
	rig_await_exactly("sessions", 0); /* who was refused politely is gone after its own end */
}
END_TEST

/* Each of these closes a connection that is up, and one that is not. */
static const struct {
	uint8_t n, bytes[16];
} wrong[] = {
	{2, {0x20, 2}},                      /* what only a broker says, and part of it */
	{4, {0x20, 2, 0, 0}},                /* the same, whole */
	{5, {0x90, 3, 0, 1, 0}},             /* SUBACK */
	{2, {0xd0, 0}},                      /* PINGRESP */
	{2, {0xf0, 0}},                      /* no type */
	{4, {0x62, 2, 0, 1}},                /* PUBREL */
	{7, {0x34, 5, 0, 1, 'a', 0, 1}},     /* PUBLISH at QoS 2 */
	{5, {0x30, 3, 0, 1, '+'}},           /* to a wildcard */
	{8, {0x80, 6, 0, 1, 0, 1, 'a', 0}},  /* SUBSCRIBE with other flags */
	{8, {0x82, 6, 0, 1, 0, 1, 'a', 7}},  /* QoS 7 */
	{5, {0x30, 0xff, 0xff, 0xff, 0xff}}, /* a length of five bytes */
	{5, {0x30, 0xff, 0xff, 0xff, 0x7f}}, /* a topic is to come, of the longest packet */
};

START_TEST(test_wrong_packets)
{
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		int fd = client_connect("w", NULL);

		client_send(fd, wrong[i].bytes, wrong[i].n);
		if (wrong[i].n == 2 && wrong[i].bytes[0] == 0x20)
			client_say(fd, 0, 0);
		if (wrong[i].bytes[4] == 0x7f)
			client_say(fd, 0, 1, 'a');
		client_expect_end(fd);
	}
	rig_await_exactly("sessions", 0);
	ck_assert_uint_eq(rig_stat("ended_total{why=\"too_large\"}"), 1);
	ck_assert_uint_eq(rig_stat("ended_total{why=\"protocol\"}"),
			  sizeof wrong / sizeof *wrong - 1);
}
END_TEST

START_TEST(test_first_and_only)
{
	int fd = client_socket(0);

	client_say(fd, 0xc0, 0); /* anything but a CONNECT */
	client_expect_end(fd);
	fd = client_connect("a", NULL);
	client_say(fd, 0x10, 13, 0, 4, 'M', 'Q', 'T', 'T', 4, 2, 0, 0, 0, 1, 'a');
	client_expect_end(fd);
}
END_TEST

START_TEST(test_takeover)
{
	int first = client_connect("me", "gone/me"), other = client_connect("other", NULL), next;
	uint16_t id;

	client_subscribe(other, "gone/#", 1, 1);
	next = client_connect("me", NULL);
	client_expect_end(first);
	id = client_expect_publish(other, "gone/me", "gone", 4, 1, false);
	client_puback(other, id);
	client_expect_nothing(next); /* it stays */
	close(next);
	close(other);
}
END_TEST

START_TEST(test_wills)
{
	int watcher = client_connect("watcher", NULL), fd;

	client_subscribe(watcher, "will/+", 0, 0);
	fd = client_connect("a", "will/a");
	client_say(fd, 0xe0, 0); /* DISCONNECT takes it back */
	client_expect_end(fd);
	fd = client_connect("b", "will/b");
	close(fd);
	client_expect_publish(watcher, "will/b", "gone", 4, 0, false);
	fd = client_connect("c", "will/c");
	client_say(fd, 0xf0); /* a wrong byte does not */
	client_expect_end(fd);
	client_expect_publish(watcher, "will/c", "gone", 4, 0, false);
	fd = client_connect_to(client_socket(0), "d", "will/d", 1);
	client_expect_publish(watcher, "will/d", "gone", 4, 0, false); /* nor does silence */
	client_expect_end(fd);
	rig_await_exactly("ended_total{why=\"keep_alive\"}", 1);
	client_expect_nothing(watcher);
	close(watcher);
}
END_TEST

/* ---- messages ---- */

START_TEST(test_qos)
{
	int sub[3], pub = client_connect("pub", NULL);
	uint16_t id;

	for (uint8_t i = 0; i < 3; i++) {
		char name[2] = {(char)('0' + i)};

		sub[i] = client_connect(name, NULL);
		client_subscribe(sub[i], "t/#", i, i ? 1 : 0); /* QoS 2 is granted as 1 */
	}
	client_publish(pub, "t", "zero", 4, 0, false, 0);
	client_publish(pub, "t/x", "one", 3, 1, false, 9);
	client_expect_puback(pub, 9);
	for (int i = 0; i < 3; i++) {
		client_expect_publish(sub[i], "t", "zero", 4, 0, false);
		id = client_expect_publish(sub[i], "t/x", "one", 3, i ? 1 : 0, false);
		if (i)
			client_puback(sub[i], id);
		client_expect_nothing(sub[i]);
		close(sub[i]);
	}
	close(pub);
}
END_TEST

START_TEST(test_filters_overlap)
{
	int sub = client_connect("sub", NULL), pub = client_connect("pub", NULL);

	client_subscribe(sub, "a/+", 0, 0);
	client_subscribe(sub, "a/#", 1, 1);
	client_subscribe(sub, "a/b", 0, 0);
	client_subscribe(sub, "a/b", 0, 0); /* the same anew */
	client_publish(pub, "a/b", "x", 1, 1, false, 1);
	client_expect_puback(pub, 1);
	client_expect_publish(sub, "a/b", "x", 1, 1, false); /* once, at the best QoS */
	client_expect_nothing(sub);
	client_say(sub, 0xa2, 7, 0, 5, 0, 3, 'a', '/', '#');
	client_hear(sub, 0xb0, 2, 0, 5);
	client_publish(pub, "a/b", "y", 1, 1, false, 2);
	client_expect_puback(pub, 2);
	client_expect_publish(sub, "a/b", "y", 1, 0, false);
	client_say(sub, 0xa2, 12, 0, 6, 0, 3, 'a', '/', 'b', 0, 3, 'a', '/', '+');
	client_hear(sub, 0xb0, 2, 0, 6);
	client_publish(pub, "a/b", "z", 1, 1, false, 3);
	client_expect_puback(pub, 3);
	client_expect_nothing(sub);
	ck_assert_uint_eq(rig_stat("subscriptions"), 0);
	close(sub);
	close(pub);
}
END_TEST

START_TEST(test_retained)
{
	int old = client_connect("old", NULL), pub = client_connect("pub", NULL), sub;

	client_subscribe(old, "r/#", 1, 1);
	client_publish(pub, "r/a", "first", 5, 1, true, 1);
	client_publish(pub, "r/a", "second", 6, 1, true, 2);
	client_publish(pub, "r/b", "b", 1, 0, true, 0);
	client_expect_puback(pub, 1);
	client_expect_puback(pub, 2);
	client_expect_nothing(pub);
	/* For who was there they are like any others. */
	client_expect_publish(old, "r/a", "first", 5, 1, false);
	client_expect_publish(old, "r/a", "second", 6, 1, false);
	client_expect_publish(old, "r/b", "b", 1, 0, false);
	sub = client_connect("sub", NULL);
	client_subscribe(sub, "r/a", 1, 1);
	client_expect_publish(sub, "r/a", "second", 6, 1, true);
	client_subscribe(sub, "r/a", 0, 0); /* again, as the standard wants it */
	client_expect_publish(sub, "r/a", "second", 6, 0, true);
	client_subscribe(sub, "+/b", 1, 1);
	client_expect_publish(sub, "r/b", "b", 1, 0, true);
	client_publish(pub, "r/a", "", 0, 1, true, 3); /* no more; told as any other */
	client_expect_puback(pub, 3);
	client_expect_publish(sub, "r/a", "", 0, 0, false);
	client_expect_publish(old, "r/a", "", 0, 1, false);
	client_subscribe(sub, "r/a", 0, 0);
	client_expect_nothing(sub);
	ck_assert_uint_eq(rig_stat("retained_messages"), 1);
	close(old);
	close(sub);
	close(pub);
}
END_TEST

/* A client that does not acknowledge gets 128 messages and no more, and goes on where it stopped. */
START_TEST(test_in_flight)
{
	int sub = client_connect("sub", NULL), pub = client_connect("pub", NULL);
	uint16_t ids[200];

	client_subscribe(sub, "q", 1, 1);
	for (uint16_t i = 1; i <= 200; i++) {
		client_publish(pub, "q", &i, sizeof i, 1, false, i);
		client_expect_puback(pub, i);
	}
	for (uint16_t i = 1; i <= 128; i++) {
		ids[i - 1] = client_expect_publish(sub, "q", &i, sizeof i, 1, false);
		for (int k = 0; k < i - 1; k++)
			ck_assert_uint_ne(ids[k], ids[i - 1]);
	}
	client_expect_nothing(sub);
	client_puback(sub, 60000); /* of nothing */
	client_expect_nothing(sub);
	for (int i = 127; i >= 0; i--) /* in any order */
		client_puback(sub, ids[i]);
	for (uint16_t i = 129; i <= 200; i++)
		client_puback(sub, client_expect_publish(sub, "q", &i, sizeof i, 1, false));
	client_expect_nothing(sub);
	ck_assert_uint_eq(rig_stat("acknowledged_total"), 200);
	close(sub);
	close(pub);
}
END_TEST

/* ---- bytes in pieces ---- */

enum {
	STREAM = 300,
	LONGEST = 200000,
};

static void fill(uint8_t *payload, uint32_t n, uint32_t seed)
{
	for (uint32_t i = 0; i < n; i++)
		payload[i] = (uint8_t)(seed + i * 7 + (i >> 8));
}

/* Mostly short, around the sizes of chunks now and then. */
static uint32_t some_size(unsigned int *seed)
{
	static const uint32_t edges[] = {0, 1, 4075, 4096, 65536, 69632, 131072, LONGEST - 50};
	const int what = rand_r(seed) % 10;

	if (what == 0)
		return edges[rand_r(seed) % 8] + (uint32_t)rand_r(seed) % 40;
	return what < 8 ? (uint32_t)rand_r(seed) % 300 : (uint32_t)rand_r(seed) % 9000;
}

struct sender {
	int fd;
	const uint8_t *bytes;
	size_t n, most; /* in all, and at once */
	unsigned int seed;
};

static void *send_pieces(void *arg)
{
	struct sender *s = arg;

	for (size_t at = 0, n; at < s->n; at += n) {
		n = 1 + (size_t)rand_r(&s->seed) % s->most;
		n = n < s->n - at ? n : s->n - at;
		client_send(s->fd, s->bytes + at, n);
	}
	return NULL;
}

/* Messages of all sizes, cut anywhere, arrive whole and in their order. */
START_TEST(test_stream)
{
	static const size_t most[] = {200, 20000, 1000000};
	static uint8_t payload[LONGEST];
	unsigned int seed = 11 + (unsigned int)_i;
	int sub = client_connect("sub", NULL), pub = client_connect("pub", NULL);
	uint8_t *all = malloc((size_t)STREAM * 10000 + LONGEST * 60);
	struct sender sender = {.fd = pub, .bytes = all, .most = most[_i], .seed = seed};
	uint32_t sizes[STREAM];
	char topic[300] = "s/";
	pthread_t thread;

	memset(topic + 2, 't', sizeof topic - 3);
	client_subscribe(sub, "s/#", 0, 0);
	for (uint32_t i = 0; i < STREAM; i++) {
		const struct mqtt_publish publish = {
			.topic = {.p = (uint8_t *)topic, .n = (uint16_t)(3 + i % 290)}};

		sizes[i] = some_size(&seed);
		sender.n += mqtt_put_publish(all + sender.n, &publish, 0, sizes[i]);
		fill(all + sender.n, sizes[i], i);
		sender.n += sizes[i];
	}
	ck_assert_int_eq(pthread_create(&thread, NULL, send_pieces, &sender), 0);
	for (uint32_t i = 0; i < STREAM; i++) {
		char name[300];

		memcpy(name, topic, 3 + i % 290);
		name[3 + i % 290] = 0;
		fill(payload, sizes[i], i);
		client_expect_publish(sub, name, payload, sizes[i], 0, false);
	}
	pthread_join(thread, NULL);
	client_expect_nothing(sub);
	ck_assert_uint_eq(rig_stat("published_total"), STREAM);
	ck_assert_uint_eq(rig_stat("payload_bytes_copied_total"), 0);
	ck_assert_uint_eq(rig_stat("data_path_registrations_total"), 0);
	free(all);
	close(sub);
	close(pub);
}
END_TEST

/* A head longer than a small chunk: a topic of 60 000 bytes; and one that is refused. */
START_TEST(test_long_topic)
{
	int sub = client_connect("sub", NULL), pub = client_connect("pub", NULL);
	uint8_t *head = malloc(70000), *got = malloc(70000);
	char *topic = malloc(65535);
	struct mqtt_publish publish = {.topic = {.p = (uint8_t *)topic, .n = 60000}};
	size_t n;

	memset(topic, 'x', 65535);
	client_subscribe(sub, "+", 0, 0);
	n = mqtt_put_publish(head, &publish, 0, 3);
	for (size_t i = 0; i < n; i += 999)
		client_send(pub, head + i, n - i < 999 ? n - i : 999);
	client_say(pub, 'a', 'b', 'c');
	client_read(sub, got, n);
	ck_assert_mem_eq(got, head, n);
	client_hear(sub, 'a', 'b', 'c');
	publish.topic.n = 65535; /* longer than is taken */
	n = mqtt_put_publish(head, &publish, 0, 3);
	client_send(pub, head, 100);
	client_expect_end(pub);
	free(head);
	free(got);
	free(topic);
	close(sub);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("broker");
	TCase *tc = tcase_create("sessions");

	tcase_add_checked_fixture(tc, setup, rig_close);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_refusals);
	tcase_add_test(tc, test_wrong_packets);
	tcase_add_test(tc, test_first_and_only);
	tcase_add_test(tc, test_takeover);
	tcase_add_test(tc, test_wills);
	tcase_add_test(tc, test_qos);
	tcase_add_test(tc, test_filters_overlap);
	tcase_add_test(tc, test_retained);
	tcase_add_test(tc, test_in_flight);
	tcase_add_loop_test(tc, test_stream, 0, 3);
	tcase_add_test(tc, test_long_topic);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
