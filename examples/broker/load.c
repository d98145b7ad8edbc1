/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * broker-load: one publisher and many subscribers of any MQTT broker, in one process and one loop, over
 * TCP or over RDMA; and what that costs the broker.
 *
 *      publisher --- message k, at most --window ahead of ---> the slowest subscriber that reads
 *
 * So no broker has to drop anything, and all of them do the same work. Each message carries its
 * number; each subscriber must see them all, in order. With --stalled some subscribers stop reading
 * when the measurement begins; they don't count from then on.
 */
#include <errno.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "link_rdma.h"
#include "load.h"

enum {
	IDS = 65536,
	TOPIC_MAX = 64,
};

struct peer {
	struct load *load;
	struct link *link;
	bool connected, ready; /* CONNACK; SUBACK */
	uint64_t got;
	uint16_t *acks; /* identifiers to be acknowledged, that could not go */
	size_t nacks, room;
};

struct load {
	struct load_options want;
	struct loop *loop;
	struct memory memory;
	struct link_host links;
	struct link_rdma *link_rdma;
	struct peer publisher, *subscriber;
	char topic[TOPIC_MAX];
	struct sgp_sgl body;     /* of each message, behind its number */
	uint32_t readers, ready; /* subscribers that count; that are subscribed, or connected */
	uint64_t published, acked, complete;
	uint32_t *done; /* [window]: readers that have message k, at k % window */
	bool measuring;
	uint64_t until; /* the phase ends with this many messages */
	struct loop_timer limit;
	struct loop_task more;
	int status;
	double t0, t1, cpu0, cpu1, user0, user1;
};

static _Noreturn void die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static void die(const char *fmt, ...)
{
	va_list ap;

	fputs("broker-load: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- packets ---- */

static bool send_packet(struct peer *p, const void *head, size_t n, const struct sgp_sgl *payload)
{
	const struct link_packet packet = {
		.head = head, .head_bytes = (uint32_t)n, .payload = payload};

	return link_send(p->link, &packet, 1) == 1;
}

static void say_connect(struct peer *p)
{
	const struct load *l = p->load;
	char id[40];
	uint8_t bytes[80];
	struct mqtt_connect connect = {.level = MQTT_LEVEL, .clean_session = true};
	const int n = snprintf(id, sizeof id, "load-%d-%td", (int)getpid(),
			       p == &l->publisher ? -1 : p - l->subscriber);

	connect.client_id = (struct mqtt_bytes){.p = (const uint8_t *)id, .n = (uint16_t)n};
	/* Over RDMA it waits for the connection, and is asked for again. */
	send_packet(p, bytes, mqtt_put_connect(bytes, &connect), NULL);
}

static struct mqtt_bytes topic_of(const struct load *l)
{
	return (struct mqtt_bytes){.p = (const uint8_t *)l->topic, .n = (uint16_t)strlen(l->topic)};
}

static void say_subscribe(struct peer *p)
{
	uint8_t bytes[TOPIC_MAX + 20];
	const struct mqtt_bytes filter = topic_of(p->load);

	if (!send_packet(p, bytes, mqtt_put_subscribe(bytes, 1, &filter, &p->load->want.qos, 1),
			 NULL))
		die("a SUBSCRIBE can't be sent");
}

/* ---- publishing ---- */

static bool publish_one(struct load *l)
{
	const struct mqtt_publish publish = {.topic = topic_of(l), .qos = l->want.qos};
	const uint16_t id = (uint16_t)(l->published % (IDS - 1) + 1);
	uint8_t head[MQTT_PUBLISH_HEAD(TOPIC_MAX)];
	struct sgp_chunk *chunk = sgp_pool_get(l->memory.pool, LOAD_SEQ, 0);
	struct sgp_sgl list = {0};
	const size_t n = mqtt_put_publish(head, &publish, id, l->want.size);
	bool sent;

	if (!chunk)
		return false;
	for (int i = 0; i < LOAD_SEQ; i++)
		((uint8_t *)sgp_chunk_addr(chunk))[i] = (uint8_t)(l->published >> 8 * i);
	if (mqr_list_reserve(&list, l->body.num_sge + 1, l->body.num_chunk + 1) ||
	    sgp_sgl_append(&list, chunk, 0, LOAD_SEQ) ||
	    (l->body.num_sge && sgp_sgl_clone(&list, &l->body)))
		die("no memory for a message");
	sent = send_packet(&l->publisher, head, n, &list);
	mqr_list_free(&list);
	l->published += sent;
	return sent;
}

static void publish(struct load *l)
{
	while (l->published < l->until && l->published - l->complete < l->want.window &&
	       (!l->want.qos || l->published - l->acked < l->want.window) && publish_one(l))
		;
}

static void publish_more(struct loop_task *task)
{
	struct load *l = (struct load *)(void *)((char *)task - offsetof(struct load, more));

	publish(l);
}

/* ---- phases ---- */

static void begin_measuring(struct load *l)
{
	for (uint32_t i = l->readers; i < l->want.subscribers; i++)
		link_pause(l->subscriber[i].link);
	l->measuring = true;
	l->until = l->want.warmup + l->want.messages;
	l->t0 = now();
	l->cpu0 = load_cpu(l->want.pid);
	l->user0 = load_user(l->want.pid);
}

static void phase_done(struct load *l)
{
	if (!l->measuring) {
		begin_measuring(l);
		loop_defer(l->loop, &l->more);
		return;
	}
	l->t1 = now();
	l->cpu1 = load_cpu(l->want.pid);
	l->user1 = load_user(l->want.pid);
	l->status = 0;
	loop_stop(l->loop);
}

static void one_is_ready(struct load *l)
{
	if (++l->ready < l->want.subscribers + 1)
		return;
	l->until = l->want.warmup;
	if (l->want.warmup)
		publish(l);
	else
		phase_done(l);
}

/* ---- what comes ---- */

static void complete_some(struct load *l)
{
	while (l->complete < l->published && l->done[l->complete % l->want.window] == l->readers)
		l->done[l->complete++ % l->want.window] = 0;
	if (l->complete == l->until && (!l->want.qos || l->acked >= l->until))
		phase_done(l);
	else
		loop_defer(l->loop, &l->more);
}

static void send_acks(struct peer *p)
{
	uint8_t bytes[MQTT_ACK_BYTES];
	size_t i = 0;

	while (i < p->nacks &&
	       send_packet(p, bytes, mqtt_put_ack(bytes, MQTT_PUBACK, p->acks[i]), NULL))
		i++;
	p->nacks -= i;
	if (i && p->nacks)
		memmove(p->acks, p->acks + i, p->nacks * sizeof *p->acks);
}

static void acknowledge(struct peer *p, uint16_t id)
{
	if (p->nacks == p->room) {
		p->room = p->room ? 2 * p->room : 64;
		p->acks = realloc(p->acks, p->room * sizeof *p->acks);
		if (!p->acks)
			die("no memory");
	}
	p->acks[p->nacks++] = id;
	send_acks(p);
}

static void got_publish(struct peer *p, const struct mqtt_packet *packet,
			const struct sgp_sgl *payload)
{
	struct load *l = p->load;
	uint64_t seq = 0;
	int at = 0;

	for (int i = 0; i < payload->num_sge && at < LOAD_SEQ; i++)
		for (uint32_t k = 0; k < payload->sge[i].length && at < LOAD_SEQ; k++, at++)
			seq |= (uint64_t)((const uint8_t *)(uintptr_t)payload->sge[i].addr)[k]
			       << 8 * at;
	if (payload->length != l->want.size || seq != p->got)
		die("subscriber %td has message %llu of %llu bytes instead of %llu",
		    p - l->subscriber, (unsigned long long)seq, (unsigned long long)payload->length,
		    (unsigned long long)p->got);
	p->got++;
	if (packet->publish.qos)
		acknowledge(p, packet->id);
	if (p - l->subscriber < (ptrdiff_t)l->readers) {
		l->done[seq % l->want.window]++;
		complete_some(l);
	}
}

static void came(struct link *link, const struct mqtt_packet *packet, struct sgp_sgl *payload)
{
	struct peer *p = link->owner;
	struct load *l = p->load;

	switch (packet->type) {
	case MQTT_CONNACK:
		if (packet->connack.code)
			die("the broker refuses: %u", packet->connack.code);
		p->connected = true;
		if (p == &l->publisher)
			one_is_ready(l);
		else
			say_subscribe(p);
		break;
	case MQTT_SUBACK:
		one_is_ready(l);
		break;
	case MQTT_PUBACK:
		l->acked++;
		complete_some(l);
		break;
	case MQTT_PUBLISH:
		if (p->load->measuring && p - l->subscriber >= (ptrdiff_t)l->readers)
			break; /* what a stalled one had been sent already */
		got_publish(p, packet, payload);
		break;
	default:
		die("a packet that nobody asked for");
	}
}

static void may_write(struct link *link)
{
	struct peer *p = link->owner;

	if (!p->connected)
		say_connect(p);
	else if (p == &p->load->publisher)
		publish(p->load);
	else
		send_acks(p);
}

static void closed(struct link *link, int err)
{
	struct peer *p = link->owner;
	struct load *l = p->load;

	p->link = NULL;
	/* The broker's policy may end the stalled. */
	if (l->status >= 0 ||
	    (l->measuring && p - l->subscriber >= (ptrdiff_t)l->readers && p != &l->publisher))
		return;
	die("%s: closed: %s", link->peer, err ? strerror(err) : "by the broker");
}

/* ---- all of it ---- */

static void open_peer(struct load *l, struct peer *p, const struct addrinfo *to)
{
	static const struct link_events events = {
		.packet = came, .writable = may_write, .closed = closed};

	p->load = l;
	p->link = l->want.rdma
			  ? link_rdma_connect(l->link_rdma, to->ai_addr, &events, p)
			  : link_tcp_connect(&l->links, to->ai_addr, to->ai_addrlen, &events, p);
	if (!p->link)
		die("can't connect: %s", strerror(errno));
	say_connect(p);
}

static void open_peers(struct load *l)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	struct addrinfo *to;
	const int err = getaddrinfo(l->want.host, l->want.port, &hints, &to);

	if (err)
		die("%s: %s", l->want.host, gai_strerror(err));
	l->subscriber = calloc(l->want.subscribers, sizeof *l->subscriber);
	l->done = calloc(l->want.window, sizeof *l->done);
	if (!l->subscriber || !l->done)
		die("no memory");
	open_peer(l, &l->publisher, to);
	for (uint32_t i = 0; i < l->want.subscribers; i++)
		open_peer(l, &l->subscriber[i], to);
	freeaddrinfo(to);
}

static void make_body(struct load *l)
{
	size_t left = l->want.size - LOAD_SEQ;

	while (left) {
		struct sgp_chunk *chunk = memory_chunk_for(&l->memory, left);
		const size_t take =
			chunk && left > sgp_chunk_size(chunk) ? sgp_chunk_size(chunk) : left;

		if (!chunk ||
		    mqr_list_reserve(&l->body, l->body.num_sge + 1, l->body.num_chunk + 1) ||
		    sgp_sgl_append(&l->body, chunk, 0, take))
			die("no memory for a message: %s", sgp_errmsg());
		memset(sgp_chunk_addr(chunk), 'x', take);
		left -= take;
	}
}

static void time_is_up(struct loop_timer *timer)
{
	struct load *l = (struct load *)(void *)((char *)timer - offsetof(struct load, limit));

	die("not done after %llu s: %llu of %llu messages are through, %u of %u clients ready",
	    (unsigned long long)l->want.seconds, (unsigned long long)l->complete,
	    (unsigned long long)l->until, l->ready, l->want.subscribers + 1);
}

static void report(const struct load *l)
{
	const double t = l->t1 - l->t0, cpu = l->cpu1 - l->cpu0, user = l->user1 - l->user0;
	const double n = (double)l->want.messages, delivered = n * l->readers;
	const char *name = l->want.rdma ? "rdma" : "tcp";

	if (l->want.json)
		printf("{\"transport\": \"%s\", \"subscribers\": %u, \"stalled\": %u, "
		       "\"bytes\": %u, \"qos\": %u, \"messages\": %llu, \"seconds\": %.6f, "
		       "\"published_per_s\": %.1f, \"delivered_per_s\": %.1f, "
		       "\"cpu_us_per_delivery\": %.3f, \"user_us_per_delivery\": %.3f, "
		       "\"cpu_us_per_message\": %.3f}\n",
		       name, l->readers, l->want.subscribers - l->readers, l->want.size,
		       l->want.qos, (unsigned long long)l->want.messages, t, n / t, delivered / t,
		       cpu * 1e6 / delivered, user * 1e6 / delivered, cpu * 1e6 / n);
	else
		printf("%s, %u subscribers (%u stalled), %u bytes, QoS %u: %llu messages in %.3f "
		       "s, "
		       "%.0f published/s, %.0f delivered/s; broker: %.3f us CPU a delivery (%.3f "
		       "in "
		       "user mode), %.3f a message\n",
		       name, l->readers, l->want.subscribers - l->readers, l->want.size,
		       l->want.qos, (unsigned long long)l->want.messages, t, n / t, delivered / t,
		       cpu * 1e6 / delivered, user * 1e6 / delivered, cpu * 1e6 / n);
}

static void run(struct load *l)
{
	l->loop = loop_create();
	if (!l->loop || memory_open(&l->memory, l->want.mib, l->want.attr.receive))
		die("no memory: %s", sgp_errmsg());
	l->links =
		(struct link_host){.loop = l->loop,
				   .memory = &l->memory,
				   .limits = {.head = MQTT_HEAD_MAX, .payload = MQTT_REMAINING_MAX},
				   .owner = l};
	if (l->want.rdma) {
		l->link_rdma = link_rdma_open(&l->links, &l->want.attr);
		if (!l->link_rdma)
			die("no RDMA: %s", strerror(errno));
	}
	make_body(l);
	l->more.run = publish_more;
	l->limit.fire = time_is_up;
	loop_timer_set(l->loop, &l->limit, (int64_t)l->want.seconds * 1000);
	l->status = -1;
	open_peers(l);
	if (loop_run(l->loop) || l->status)
		die("event loop: %s", strerror(errno));
	report(l);
}

int main(int argc, char **argv)
{
	static struct load l = {.want = {.host = "127.0.0.1",
					 .port = "1883",
					 .subscribers = 1,
					 .size = 256,
					 .messages = 10000,
					 .warmup = 1000,
					 .window = 64,
					 .mib = 256,
					 .seconds = 120}};

	load_parse(&l.want, argc, argv);
	l.readers = l.want.subscribers - l.want.stalled;
	snprintf(l.topic, sizeof l.topic, "load/%d", (int)getpid());
	run(&l);
	return 0;
}
