/* SPDX-License-Identifier: BSD-2-Clause */
/* What sgpool-pub and sgpool-sub have in common: the connection. See client.h. */
#include <errno.h>
#include <netdb.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "client.h"

enum {
	MIB = 1 << 20,
	OWN_MIB = 8, /* for receives and heads */
};

void client_error(const struct client *c, const char *fmt, ...)
{
	char line[1024];
	va_list ap;

	if (c->quiet)
		return;
	va_start(ap, fmt);
	vsnprintf(line, sizeof line, fmt, ap);
	va_end(ap);
	/* An argument may hold anything: what could move the cursor is not printed. */
	for (char *p = line; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = '?';
	fprintf(stderr, "%s: %s\n", c->name, line);
}

void client_fail(struct client *c, const char *fmt, ...)
{
	char line[512];
	va_list ap;

	if (c->ending)
		return;
	va_start(ap, fmt);
	vsnprintf(line, sizeof line, fmt, ap);
	va_end(ap);
	client_error(c, "%s", line);
	c->ending = true;
	c->status = CLIENT_FAILED;
	link_close(c->link, false);
}

/* ---- packets ---- */

/* One that could not go yet. */
struct client_out {
	struct client_out *next;
	size_t n;
	uint8_t bytes[];
};

bool client_publish(struct client *c, const void *head, size_t n, const struct sgp_sgl *payload)
{
	const struct link_packet packet = {
		.head = head, .head_bytes = (uint32_t)n, .payload = payload};

	/* What waits goes first; and timers may come after the end of the link. */
	if (c->ending || c->out || link_send(c->link, &packet, 1) != 1)
		return false;
	c->said = true;
	return true;
}

void client_send(struct client *c, const void *bytes, size_t n)
{
	struct client_out *out;

	if (c->ending || client_publish(c, bytes, n, NULL))
		return;
	out = malloc(sizeof *out + n);
	if (!out) {
		client_fail(c, "no memory");
		return;
	}
	out->next = NULL;
	out->n = n;
	memcpy(out->bytes, bytes, n);
	*c->last_out = out;
	c->last_out = &out->next;
}

/* Returns whether all has gone. */
static bool send_waiting(struct client *c)
{
	struct client_out *out;

	while ((out = c->out)) {
		const struct link_packet packet = {.head = out->bytes,
						   .head_bytes = (uint32_t)out->n};

		if (link_send(c->link, &packet, 1) != 1)
			return false;
		c->said = true;
		c->out = out->next;
		if (!c->out)
			c->last_out = &c->out;
		free(out);
	}
	return true;
}

static void may_write(struct link *link)
{
	struct client *c = link->owner;

	if (!send_waiting(c) || c->ending)
		return;
	if (c->finishing) {
		c->ending = true;
		link_close(link, true);
	} else if (c->up && c->writable) {
		c->writable(c);
	}
}

void client_finish(struct client *c, int status)
{
	uint8_t bytes[MQTT_EMPTY_BYTES];

	if (c->ending || c->finishing)
		return;
	c->finishing = true;
	c->status = status;
	if (c->up)
		client_send(c, bytes, mqtt_put_empty(bytes, MQTT_DISCONNECT));
	/* Before it is connected only its CONNECT waits. */
	if (c->ending || (c->up && c->out))
		return;
	c->ending = true;
	link_close(c->link, c->up);
}

static void say_connect(struct client *c)
{
	uint8_t *bytes = malloc(mqtt_connect_bytes(&c->connect));

	if (!bytes) {
		client_fail(c, "no memory");
		return;
	}
	client_send(c, bytes, mqtt_put_connect(bytes, &c->connect));
	free(bytes);
}

static const char *code_text(uint8_t code)
{
	switch (code) {
	case MQTT_BAD_VERSION:
		return "it does not speak MQTT 3.1.1";
	case MQTT_BAD_CLIENT_ID:
		return "it does not take this client identifier";
	case MQTT_UNAVAILABLE:
		return "it is not available";
	case MQTT_BAD_LOGIN:
		return "user or password are wrong";
	default:
		return "not authorised";
	}
}

static void got_connack(struct client *c, const struct mqtt_packet *packet)
{
	if (c->up) {
		client_fail(c, "the broker broke the protocol: a second CONNACK");
		return;
	}
	if (packet->connack.code) {
		client_fail(c, "the broker refused: %s", code_text(packet->connack.code));
		return;
	}
	c->up = true;
	c->connected(c);
}

static void came(struct link *link, const struct mqtt_packet *packet, struct sgp_sgl *payload)
{
	struct client *c = link->owner;

	if (c->ending || c->finishing)
		return;
	if (packet->type == MQTT_CONNACK)
		got_connack(c, packet);
	else if (!c->up)
		client_fail(c, "the broker broke the protocol: no CONNACK first");
	else if (packet->type == MQTT_PINGRESP)
		c->pinged = false;
	else
		c->packet(c, packet, payload);
}

static void closed(struct link *link, int err)
{
	struct client *c = link->owner;

	c->link = NULL;
	if (!c->ending && !c->finishing) {
		const char *why = link_rdma_why(link);

		client_error(c, "%s: %s", link->peer, why ? why : strerror(err));
		c->status = CLIENT_FAILED;
	}
	c->ending = true;
	loop_stop(c->loop);
}

/* ---- time ---- */

static void look_alive(struct loop_timer *timer)
{
	struct client *c =
		(struct client *)(void *)((char *)timer - offsetof(struct client, alive));
	uint8_t bytes[MQTT_EMPTY_BYTES];

	/* Half the interval, so that a packet is sent in each. */
	loop_timer_set(c->loop, timer, (int64_t)c->connect.keep_alive * 500);
	if (c->up && !c->said && !c->finishing) {
		if (c->pinged) {
			client_fail(c, "the broker does not answer any more");
			return;
		}
		c->pinged = true;
		client_send(c, bytes, mqtt_put_empty(bytes, MQTT_PINGREQ));
	}
	c->said = false;
}

static void time_is_up(struct loop_timer *timer)
{
	struct client *c =
		(struct client *)(void *)((char *)timer - offsetof(struct client, limit));

	client_finish(c, CLIENT_TIMEOUT);
}

static void signalled(struct loop_fd *fd, uint32_t events)
{
	struct client *c = (struct client *)(void *)((char *)fd - offsetof(struct client, signals));
	struct signalfd_siginfo info;

	(void)events;
	if (read(fd->fd, &info, sizeof info) == (ssize_t)sizeof info)
		client_finish(c, CLIENT_OK);
}

/* ---- all of it ---- */

static int watch_signals(struct client *c)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	c->signals = (struct loop_fd){.ready = signalled,
				      .fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC)};
	return c->signals.fd < 0 ? -1 : loop_add(c->loop, &c->signals, EPOLLIN);
}

static int begin_connecting(struct client *c)
{
	static const struct link_events events = {
		.packet = came, .writable = may_write, .closed = closed};
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	struct addrinfo *list;
	const int err = getaddrinfo(c->host, c->port, &hints, &list);

	if (err) {
		client_error(c, "%s: %s", c->host, gai_strerror(err));
		return -1;
	}
	c->link = link_rdma_connect(c->link_rdma, list->ai_addr, &events, c);
	if (!c->link)
		client_error(c, "%s port %s: %s", c->host, c->port, strerror(errno));
	freeaddrinfo(list);
	if (!c->link)
		return -1;
	say_connect(c); /* it waits until the link is up */
	return 0;
}

static int open_all(struct client *c)
{
	const size_t mib = OWN_MIB + 2 * (c->memory + MIB - 1) / MIB +
			   4 * ((size_t)c->rdma.receive * (c->rdma.depth + 2) / MIB);

	c->loop = loop_create();
	if (!c->loop || watch_signals(c)) {
		client_error(c, "no event loop: %s", strerror(errno));
		return -1;
	}
	if (memory_open(&c->pool, mib, c->rdma.receive)) {
		client_error(c, "no memory: %s", sgp_errmsg());
		return -1;
	}
	c->links =
		(struct link_host){.loop = c->loop,
				   .memory = &c->pool,
				   .limits = {.head = MQTT_HEAD_MAX, .payload = MQTT_REMAINING_MAX},
				   .owner = c};
	c->link_rdma = link_rdma_open(&c->links, &c->rdma);
	if (c->link_rdma)
		return begin_connecting(c);
	client_error(c, "no RDMA: %s; see 'sgpool doctor'", strerror(errno));
	return -1;
}

int client_run(struct client *c, uint64_t seconds)
{
	c->status = CLIENT_FAILED;
	c->alive.fire = look_alive;
	c->limit.fire = time_is_up;
	c->signals.fd = -1;
	c->last_out = &c->out;
	if (!open_all(c)) {
		if (c->connect.keep_alive)
			loop_timer_set(c->loop, &c->alive, (int64_t)c->connect.keep_alive * 500);
		if (seconds)
			loop_timer_set(c->loop, &c->limit, (int64_t)seconds * 1000);
		if (loop_run(c->loop))
			client_error(c, "event loop: %s", strerror(errno));
	}
	if (c->link_rdma)
		link_rdma_close(c->link_rdma);
	while (c->out) {
		struct client_out *next = c->out->next;

		free(c->out);
		c->out = next;
	}
	if (c->done)
		c->done(c);
	memory_close(&c->pool);
	if (c->signals.fd >= 0)
		close(c->signals.fd);
	if (c->loop)
		loop_destroy(c->loop);
	return c->status;
}
