/* SPDX-License-Identifier: BSD-2-Clause */
/* A broker inside the test, see broker_rig.h. */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../asserts.h"
#include "broker_rig.h"
#include "listen.h"
#include "stats.h"

struct settings rig_settings;
struct broker rig_broker;
int rig_buffer;

static struct listener door, stats;
static pthread_t thread;
static bool is_open;

static void *run(void *arg)
{
	return loop_run(rig_broker.shards[0].loop) ? NULL : arg;
}

static void accepted(struct listener *listener, int fd)
{
	if (rig_buffer) {
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &rig_buffer, sizeof rig_buffer);
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &rig_buffer, sizeof rig_buffer);
	}
	listener_client(listener, fd);
}

void rig_setup(void)
{
	rig_settings = (struct settings){.memory_mib = 32,
					 .max_message = 8 << 20,
					 .threads = 3,
					 .max_connections = 100,
					 .max_subscriptions = 100,
					 .queue = {.messages = 1000, .bytes = 4 << 20},
					 .policy = POLICY_DROP,
					 .patience_ms = 200,
					 .unread_ms = 60000};
	rig_buffer = 0;
	signal(SIGPIPE, SIG_IGN);
}

void rig_open(void)
{
	const struct addr addr = {.host = "127.0.0.1"};

	ck_assert_msg(!broker_open(&rig_broker, &rig_settings), "%s", sgp_errmsg());
	ck_assert_int_eq(listener_open(&door, &rig_broker, &addr, "test", accepted), 0);
	ck_assert_int_eq(listener_open(&stats, &rig_broker, &addr, "test", stats_client), 0);
	ck_assert_int_eq(broker_start(&rig_broker), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, run, &rig_broker), 0);
	is_open = true;
}

/* In shard 0's thread, whose listeners these are. */
static void stop(struct loop_message *message)
{
	(void)message;
	listener_close(&door);
	listener_close(&stats);
	broker_stop(&rig_broker);
}

void rig_close(void)
{
	static struct loop_message message = {.run = stop};
	void *ret;

	if (!is_open)
		return;
	is_open = false;
	loop_post(rig_broker.shards[0].loop, &message);
	pthread_join(thread, &ret);
	ck_assert_ptr_nonnull(ret);
	ck_assert_msg(!broker_close(&rig_broker), "%s", sgp_errmsg());
	ck_assert_uint_eq(rig_broker.connections, 0);
	ck_assert_uint_eq(rig_broker.budget.used, 0);
}

/* ---- sockets ---- */

static int socket_to(const struct listener *listener, int buffer)
{
	const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in sa;
	socklen_t len = sizeof sa;

	ck_assert_int_ge(fd, 0);
	if (buffer) {
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
	}
	ck_assert_int_eq(getsockname(listener->fd.fd, (struct sockaddr *)&sa, &len), 0);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&sa, len), 0);
	return fd;
}

int client_socket(int buffer)
{
	return socket_to(&door, buffer);
}

void client_send(int fd, const void *bytes, size_t n)
{
	const uint8_t *p = bytes;

	while (n) {
		const ssize_t sent = send(fd, p, n, MSG_NOSIGNAL);

		ck_assert_msg(sent > 0, "send: %s", strerror(errno));
		p += sent;
		n -= (size_t)sent;
	}
}

void client_read(int fd, void *bytes, size_t n)
{
	uint8_t *p = bytes;

	while (n) {
		const ssize_t got = read(fd, p, n);

		ck_assert_msg(got > 0, "%zu bytes did not come: %s", n,
			      got ? strerror(errno) : "the connection ended");
		p += got;
		n -= (size_t)got;
	}
}

void client_expect(int fd, const void *bytes, size_t n)
{
	uint8_t *got = malloc(n);

	client_read(fd, got, n);
	ck_assert_mem_eq(got, bytes, n);
	free(got);
}

void client_expect_end(int fd)
{
	uint8_t byte;
	const ssize_t n = read(fd, &byte, 1);

	ck_assert_msg(n == 0 || (n < 0 && errno == ECONNRESET), "a byte %02x", byte);
	close(fd);
}

void client_expect_nothing(int fd)
{
	client_say(fd, 0xc0, 0);
	client_hear(fd, 0xd0, 0);
}

/* ---- packets ---- */

static struct mqtt_bytes text(const char *s)
{
	return (struct mqtt_bytes){.p = (const uint8_t *)s, .n = (uint16_t)strlen(s)};
}

int client_connect_to(int fd, const char *id, const char *will, uint16_t keep_alive)
{
	struct mqtt_connect connect = {.level = MQTT_LEVEL,
				       .clean_session = true,
				       .keep_alive = keep_alive,
				       .client_id = text(id)};
	uint8_t bytes[512];

	if (will) {
		connect.has_will = true;
		connect.will_qos = 1;
		connect.will_topic = text(will);
		connect.will_message = text("gone");
	}
	client_send(fd, bytes, mqtt_put_connect(bytes, &connect));
	client_hear(fd, 0x20, 2, 0, 0);
	return fd;
}

int client_connect(const char *id, const char *will)
{
	return client_connect_to(client_socket(0), id, will, 0);
}

void client_subscribe(int fd, const char *filter, uint8_t qos, uint8_t code)
{
	const struct mqtt_bytes filters[] = {text(filter)};
	uint8_t bytes[1024];

	client_send(fd, bytes, mqtt_put_subscribe(bytes, 77, filters, &qos, 1));
	client_hear(fd, 0x90, 3, 0, 77, code);
}

void client_publish(int fd, const char *topic, const void *payload, uint32_t n, uint8_t qos,
		    bool retain, uint16_t id)
{
	const struct mqtt_publish publish = {.topic = text(topic), .qos = qos, .retain = retain};
	uint8_t head[1024];

	client_send(fd, head, mqtt_put_publish(head, &publish, id, n));
	client_send(fd, payload, n);
}

void client_expect_puback(int fd, uint16_t id)
{
	uint8_t want[MQTT_ACK_BYTES];

	client_expect(fd, want, mqtt_put_ack(want, MQTT_PUBACK, id));
}

uint16_t client_expect_publish(int fd, const char *topic, const void *payload, uint32_t n,
			       uint8_t qos, bool retain)
{
	const struct mqtt_publish publish = {.topic = text(topic), .qos = qos, .retain = retain};
	uint8_t want[1024], got[1024];
	const size_t head = mqtt_put_publish(want, &publish, 1, n);
	const size_t known = qos ? head - 2 : head;

	client_read(fd, got, head);
	ck_assert_mem_eq(got, want, known);
	if (n)
		client_expect(fd, payload, n);
	return qos ? (uint16_t)(got[head - 2] << 8 | got[head - 1]) : 0;
}

void client_puback(int fd, uint16_t id)
{
	uint8_t bytes[MQTT_ACK_BYTES];

	client_send(fd, bytes, mqtt_put_ack(bytes, MQTT_PUBACK, id));
}

/* ---- statistics ---- */

uint64_t rig_stat(const char *name)
{
	static char answer[1 << 17];
	const int fd = socket_to(&stats, 0);
	char line[128];
	size_t n = 0;
	ssize_t got;
	char *at;

	client_send(fd, "GET /metrics HTTP/1.0\r\n\r\n", 25);
	while ((got = read(fd, answer + n, sizeof answer - 1 - n)) > 0)
		n += (size_t)got;
	ck_assert_int_eq(got, 0);
	answer[n] = 0;
	close(fd);
	ck_assert_ptr_eq(strstr(answer, "HTTP/1.0 200 "), answer);
	snprintf(line, sizeof line, "\nsgpool_broker_%s ", name);
	at = strstr(answer, line);
	ck_assert_msg(at != NULL, "there is no %s", name);
	return strtoull(at + strlen(line), NULL, 10);
}

void rig_await(const char *name, uint64_t n)
{
	while (rig_stat(name) < n)
		poll(NULL, 0, 10);
}

void rig_await_exactly(const char *name, uint64_t n)
{
	while (rig_stat(name) != n)
		poll(NULL, 0, 10);
}
