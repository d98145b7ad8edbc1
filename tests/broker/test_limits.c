/* SPDX-License-Identifier: BSD-2-Clause */
/* Slow subscribers, floods, and memory that runs out. */
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../suite.h"
#include "broker_rig.h"

#define BLOCK 65536

static uint8_t block[BLOCK];

static void number(uint32_t i)
{
	memcpy(block, &i, sizeof i);
}

/* A subscriber that takes nothing more after its SUBACK. */
static int slow_subscriber(uint8_t qos)
{
	int fd = client_connect_to(client_socket(4096), "slow", NULL, 0);

	client_subscribe(fd, "t", qos, qos);
	return fd;
}

/* Messages from first on, at QoS 1, each accepted before the next. */
static void publish_some(int pub, uint32_t first, uint32_t n)
{
	for (uint32_t i = first; i < first + n; i++) {
		number(i);
		client_publish(pub, "t", block, BLOCK, 1, false, (uint16_t)i);
		client_expect_puback(pub, (uint16_t)i);
	}
}

static void expect_some(int sub, uint32_t first, uint32_t n)
{
	for (uint32_t i = first; i < first + n; i++) {
		number(i);
		client_puback(sub, client_expect_publish(sub, "t", block, BLOCK, 1, false));
	}
}

enum {
	MANY = 100, /* messages that no socket's buffers hold */
};

static void open_with(enum policy policy)
{
	rig_setup();
	rig_settings.policy = policy;
	rig_buffer = 65536;
	rig_settings.queue = (struct queue_limits){.messages = 20, .bytes = 4 << 20};
	rig_open();
}

/* The oldest of QoS 0 go, the newest stay; another subscriber misses nothing. */
START_TEST(test_drop_oldest)
{
	int slow, good, pub;
	uint32_t last = 0, seen = 0;

	open_with(POLICY_DROP);
	slow = slow_subscriber(0);
	good = client_connect("good", NULL);
	client_subscribe(good, "t", 1, 1);
	pub = client_connect("pub", NULL);
	for (uint32_t i = 1; i <= MANY; i++) {
		publish_some(pub, i, 1);
		expect_some(good, i, 1);
	}
	ck_assert_uint_gt(rig_stat("dropped_total"), 0);
	ck_assert_uint_le(rig_stat("queued_messages"), 20);
	while (last != MANY) {
		const uint32_t before = last;
		uint8_t head[8];

		client_read(slow, head, 7); /* 3 bytes of length, then "t" */
		ck_assert_uint_eq(head[0], 0x30);
		client_read(slow, block, BLOCK);
		memcpy(&last, block, sizeof last);
		ck_assert_uint_gt(last, before);
		seen++;
	}
	ck_assert_uint_eq(seen + rig_stat("dropped_total"), MANY);
	client_expect_nothing(slow);
	close(slow);
	close(good);
	close(pub);
	rig_close();
}
END_TEST

/* Of QoS 1 nothing is dropped: the session goes, and only that. */
START_TEST(test_drop_qos1)
{
	int slow, good, pub;

	open_with(_i ? POLICY_DISCONNECT : POLICY_DROP);
	slow = slow_subscriber(1);
	good = client_connect("good", NULL);
	client_subscribe(good, "t", 1, 1);
	pub = client_connect("pub", NULL);
	for (uint32_t i = 1; i <= MANY; i++) {
		publish_some(pub, i, 1);
		expect_some(good, i, 1);
	}
	rig_await("ended_total{why=\"slow\"}", 1);
	ck_assert_uint_eq(rig_stat("ended_total{why=\"slow\"}"), 1);
	ck_assert_uint_eq(rig_stat("dropped_total"), 0);
	ck_assert_uint_eq(rig_stat("sessions"), 2);
	close(slow);
	close(good);
	close(pub);
	rig_close();
}
END_TEST

static void *publish_all(void *arg)
{
	publish_some(*(int *)arg, 1, MANY);
	return NULL;
}

/* The publisher waits for a subscriber that is slow, and nothing is lost. */
START_TEST(test_pause)
{
	int slow, pub;
	pthread_t thread;

	open_with(POLICY_PAUSE);
	rig_broker.settings.patience_ms = 60000;
	/* Twice that is tolerated until the publisher hears of it, which may take its shard long. */
	rig_broker.settings.queue.messages = MANY / 2;
	slow = slow_subscriber(1);
	pub = client_connect("pub", NULL);
	ck_assert_int_eq(pthread_create(&thread, NULL, publish_all, &pub), 0);
	rig_await("publisher_pauses_total", 1);
	for (uint32_t i = 1; i <= MANY; i++) {
		uint32_t got;
		uint16_t id;
		uint8_t head[16];

		client_read(slow, head, 9);
		id = (uint16_t)(head[7] << 8 | head[8]);
		for (size_t left = BLOCK, first = 1; left; first = 0) {
			uint8_t part[4096];

			client_read(slow, part, sizeof part);
			if (first)
				memcpy(&got, part, sizeof got);
			left -= sizeof part;
		}
		ck_assert_uint_eq(got, i);
		client_puback(slow, id);
	}
	pthread_join(thread, NULL);
	ck_assert_uint_eq(rig_stat("dropped_total"), 0);
	rig_await_exactly("paused_sessions", 0);
	close(slow);
	close(pub);
	rig_close();
}
END_TEST

/* One that takes nothing at all does not make it wait for ever. */
START_TEST(test_pause_stalled)
{
	int slow, pub;

	open_with(POLICY_PAUSE);
	slow = slow_subscriber(1);
	pub = client_connect("pub", NULL);
	publish_some(pub, 1, MANY);
	rig_await_exactly("ended_total{why=\"slow\"}", 1);
	ck_assert_uint_ge(rig_stat("publisher_pauses_total"), 1);
	close(slow);
	close(pub);
	rig_close();
}
END_TEST

/* Limits of a queue that would let one subscriber have all memory: the pool's end makes it give. */
START_TEST(test_memory_short)
{
	int slow, good, pub;

	rig_setup();
	rig_settings.memory_mib = 16;
	rig_settings.max_message = 1 << 20;
	rig_settings.queue = (struct queue_limits){.messages = 1 << 20, .bytes = 1 << 30};
	rig_buffer = 65536;
	rig_open();
	slow = slow_subscriber((uint8_t)_i);
	good = client_connect("good", NULL);
	client_subscribe(good, "t", 1, 1);
	pub = client_connect("pub", NULL);
	for (uint32_t i = 1; i <= 2 * MANY; i++) {
		publish_some(pub, i, 1);
		expect_some(good, i, 1);
	}
	ck_assert_uint_gt(rig_stat("starved_total"), 0);
	ck_assert_uint_gt(rig_stat("sheds_total"), 0);
	if (_i)
		rig_await_exactly("ended_total{why=\"slow\"}", 1);
	else
		ck_assert_uint_gt(rig_stat("dropped_total"), 0);
	close(slow);
	close(good);
	close(pub);
	rig_close();
}
END_TEST

/* Clients that begin long packets and don't go on hold memory only until others need it. */
START_TEST(test_half_packets)
{
	static uint8_t part[900 << 10];
	int fd[16], pub;

	rig_setup();
	rig_settings.memory_mib = 16;
	rig_settings.max_message = 1 << 20;
	rig_open();
	for (int i = 0; i < 16; i++) {
		const struct mqtt_publish publish = {.topic = {.p = (const uint8_t *)"t", .n = 1}};
		uint8_t head[16];

		fd[i] = client_connect("", NULL);
		client_send(fd[i], head, mqtt_put_publish(head, &publish, 0, 1 << 20));
		if (i < 7) /* of some 8 MiB that payloads may have */
			client_send(fd[i], part, sizeof part);
	}
	pub = client_connect("pub", NULL);
	for (uint32_t i = 1; i <= 10; i++) {
		client_publish(pub, "t", part, sizeof part, 1, false, (uint16_t)i);
		client_expect_puback(pub, (uint16_t)i);
	}
	client_publish(pub, "t", block, BLOCK, 1, false, 11);
	client_expect_puback(pub, 11);
	for (int i = 0; i < 16; i++)
		close(fd[i]);
	close(pub);
	rig_close();
}
END_TEST

/* ---- floods ---- */

START_TEST(test_connections)
{
	int fd[4], more;

	rig_setup();
	rig_settings.max_connections = 4;
	rig_open();
	for (int i = 0; i < 4; i++)
		fd[i] = client_connect("", NULL);
	more = client_socket(0);
	client_expect_end(more);
	rig_await("refused_total", 1);
	close(fd[0]);
	rig_await("ended_total{why=\"lost\"}", 1);
	fd[0] = client_connect("", NULL);
	for (int i = 0; i < 4; i++)
		close(fd[i]);
	rig_close();
}
END_TEST

START_TEST(test_subscriptions)
{
	int fd;
	char deep[300];

	rig_setup();
	rig_settings.max_subscriptions = 2;
	rig_open();
	fd = client_connect("a", NULL);
	client_subscribe(fd, "1", 0, 0);
	client_subscribe(fd, "2", 1, 1);
	client_subscribe(fd, "3", 0, MQTT_SUBACK_FAILURE);
	client_subscribe(fd, "2", 0, 0); /* no new one */
	client_say(fd, 0xa2, 5, 0, 5, 0, 1, '1');
	client_hear(fd, 0xb0, 2, 0, 5);
	memset(deep, '/', sizeof deep - 1);
	deep[sizeof deep - 1] = 0;
	client_subscribe(fd, deep, 0, MQTT_SUBACK_FAILURE);
	client_subscribe(fd, "3", 0, 0);
	close(fd);
	rig_close();
}
END_TEST

/* Topics without end: what describes them is limited too. */
START_TEST(test_topics)
{
	int fd, n = 0;
	bool full = false;

	rig_setup();
	rig_settings.memory_mib = 16;
	rig_settings.max_message = 1 << 20;
	rig_settings.max_subscriptions = 1 << 20;
	rig_open();
	fd = client_connect("a", NULL);
	for (; !full; n++) {
		static char topic[30000];
		const struct mqtt_bytes filter = {.p = (uint8_t *)topic, .n = sizeof topic - 1};
		static uint8_t packet[40000];
		uint8_t qos = 0, answer[5];

		memset(topic, 'x', sizeof topic);
		snprintf(topic, 12, "%d", n);
		topic[strlen(topic)] = 'x';
		client_send(fd, packet, mqtt_put_subscribe(packet, 1, &filter, &qos, 1));
		client_read(fd, answer, 5);
		full = answer[4] == MQTT_SUBACK_FAILURE;
	}
	ck_assert_int_gt(n, 10);
	ck_assert_uint_le(rig_stat("described_bytes"), rig_stat("described_bytes_limit"));
	client_expect_nothing(fd);
	close(fd);
	rig_close();
}
END_TEST

/* A client that asks and never reads: its answers wait within limits, then it isn't read any more. */
START_TEST(test_answers)
{
	static uint8_t pings[4096], answers[65536];
	int fd, other;
	uint64_t before;
	size_t sent = 0;

	rig_setup();
	rig_buffer = 16384;
	rig_open();
	for (size_t i = 0; i < sizeof pings; i += 2)
		pings[i] = 0xc0;
	fd = client_connect_to(client_socket(4096), "a", NULL, 0);
	for (;;) {
		const ssize_t n = send(fd, pings + sent % 2, sizeof pings - sent % 2,
				       MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n > 0) {
			sent += (size_t)n;
			continue;
		}
		ck_assert_int_eq(errno, EAGAIN);
		/* Nothing goes any more: because the broker does not read, or has not had its turn. */
		if (rig_stat("paused_sessions") && rig_stat("blocked_sessions"))
			break;
		poll(NULL, 0, 10);
	}
	ck_assert_uint_lt(rig_stat("described_bytes"), 1 << 20);
	other = client_connect("b", NULL);
	client_expect_nothing(other);
	before = rig_stat("packets_in_total");
	ck_assert_uint_lt(before, 3 + sent / 2);
	for (size_t n, left = sent / 2 * 2; left; left -= n) {
		n = left < sizeof answers ? left : sizeof answers;
		client_read(fd, answers, n);
		for (size_t i = 0; i < n; i += 2)
			ck_assert(answers[i] == 0xd0 && answers[i + 1] == 0);
	}
	if (sent % 2) {
		client_say(fd, 0);
		client_hear(fd, 0xd0, 0);
	}
	client_expect_nothing(fd);
	ck_assert_uint_gt(rig_stat("packets_in_total"), before); /* it's read again */
	close(fd);
	close(other);
	rig_close();
}
END_TEST

/* So many filters of one byte that a SUBSCRIBE is as long as can be; its SUBACK is a quarter of that. */
enum {
	FILTERS = 16000,
};

/* The same with long answers: they are held within limits too, and not for ever. */
START_TEST(test_long_answers)
{
	static uint8_t packet[4 + 2 + 4 * FILTERS];
	uint64_t before;
	size_t at = 0;
	int fd;

	rig_setup();
	rig_buffer = 16384;
	rig_open();
	rig_broker.settings.unread_ms = 500;
	packet[at++] = 0x82;
	packet[at++] = 0x80 | ((sizeof packet - 4) & 0x7f);
	packet[at++] = 0x80 | ((sizeof packet - 4) >> 7 & 0x7f);
	packet[at++] = (sizeof packet - 4) >> 14;
	for (at += 1, packet[at++] = 1; at < sizeof packet; at += 4)
		memcpy(packet + at, (const uint8_t[]){0, 1, 'a', 0}, 4);
	fd = client_connect_to(client_socket(4096), "a", NULL, 0);
	before = rig_stat("described_bytes");
	/* Until nothing more of them is taken, or it's seen to be too much. */
	for (int i = 0; i < 64 && !rig_stat("ended_total{why=\"slow\"}"); i++)
		for (size_t sent = 0; sent < sizeof packet;) {
			const ssize_t n = send(fd, packet + sent, sizeof packet - sent,
					       MSG_DONTWAIT | MSG_NOSIGNAL);

			if (n > 0) {
				sent += (size_t)n;
				continue;
			}
			ck_assert_uint_lt(rig_stat("described_bytes"), before + 64 * 1024);
			if (errno != EAGAIN || rig_stat("ended_total{why=\"slow\"}"))
				break;
			poll(NULL, 0, 10);
		}
	rig_await_exactly("ended_total{why=\"slow\"}", 1);
	rig_await_exactly("sessions", 0);
	close(fd);
	rig_close();
}
END_TEST

/* The end, in the middle of everything. */
START_TEST(test_shutdown)
{
	int slow, fd[10];

	open_with(POLICY_PAUSE);
	rig_broker.settings.patience_ms = 60000;
	slow = slow_subscriber(1);
	for (int i = 0; i < 10; i++) {
		fd[i] = client_connect("", "will");
		number((uint32_t)i);
		for (uint16_t k = 1; k < 4; k++)
			client_publish(fd[i], "t", block, BLOCK, 1, k & 1, k);
		client_say(fd[i], 0x30, 0xff, 0x7f, 0, 1);
	}
	rig_close();
	for (int i = 0; i < 10; i++)
		close(fd[i]);
	close(slow);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("broker's limits");
	TCase *tc = tcase_create("slow");

	tcase_add_checked_fixture(tc, NULL, rig_close);
	tcase_set_timeout(tc, 90);
	tcase_add_test(tc, test_drop_oldest);
	tcase_add_loop_test(tc, test_drop_qos1, 0, 2);
	tcase_add_test(tc, test_pause);
	tcase_add_test(tc, test_pause_stalled);
	tcase_add_loop_test(tc, test_memory_short, 0, 2);
	tcase_add_test(tc, test_half_packets);
	suite_add_tcase(s, tc);
	tc = tcase_create("floods");
	tcase_add_checked_fixture(tc, NULL, rig_close);
	tcase_set_timeout(tc, 90);
	tcase_add_test(tc, test_connections);
	tcase_add_test(tc, test_subscriptions);
	tcase_add_test(tc, test_topics);
	tcase_add_test(tc, test_answers);
	tcase_add_test(tc, test_long_answers);
	tcase_add_test(tc, test_shutdown);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
