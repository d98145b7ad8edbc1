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
#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/format.h"
#include "link_rdma.h"

enum {
	IDS = 65536,
	TOPIC_MAX = 64,
	SEQ = 8, /* bytes of a message's number */
};

struct peer {
	struct load *load;
	struct link *link;
	bool connected, ready; /* CONNACK; SUBACK */
	bool stalled;
	uint64_t got;
	uint16_t *acks; /* identifiers to be acknowledged, that could not go */
	size_t nacks, room;
};

struct load {
	/* What was asked for. */
	const char *host, *port;
	bool rdma, json;
	uint32_t subscribers, stalled, size;
	uint8_t qos;
	uint64_t messages, warmup, window;
	long pid;
	struct mqr_attr attr;
	size_t mib;
	uint64_t seconds;

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

/* ---- the clock, and the broker's ---- */

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Seconds on a processor of all threads of the broker, from /proc (proc(5)). */
static double broker_cpu(long pid)
{
	char path[80], name[400];
	double sum = 0;
	unsigned long long ns;
	struct dirent *entry;
	DIR *dir;
	FILE *file;

	if (!pid)
		return 0;
	snprintf(path, sizeof path, "/proc/%ld/task", pid);
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		snprintf(name, sizeof name, "%s/%s/schedstat", path, entry->d_name);
		file = fopen(name, "r");
		if (file && fscanf(file, "%llu", &ns) == 1)
			sum += (double)ns * 1e-9;
		if (file)
			fclose(file);
	}
	if (dir)
		closedir(dir);
	return sum;
}

/* The same in user mode only; in ticks. */
static double broker_user(long pid)
{
	char path[80];
	unsigned long long ticks = 0;
	FILE *file;

	if (!pid)
		return 0;
	snprintf(path, sizeof path, "/proc/%ld/stat", pid);
	file = fopen(path, "r");
	if (file && fscanf(file, "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu",
			   &ticks) != 1)
		ticks = 0;
	if (file)
		fclose(file);
	return (double)ticks / (double)sysconf(_SC_CLK_TCK);
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

	if (!send_packet(p, bytes, mqtt_put_subscribe(bytes, 1, &filter, &p->load->qos, 1), NULL))
		die("a SUBSCRIBE can't be sent");
}

/* ---- publishing ---- */

static bool publish_one(struct load *l)
{
	const struct mqtt_publish publish = {.topic = topic_of(l), .qos = l->qos};
	const uint16_t id = (uint16_t)(l->published % (IDS - 1) + 1);
	uint8_t head[MQTT_PUBLISH_HEAD(TOPIC_MAX)];
	struct sgp_chunk *chunk = sgp_pool_get(l->memory.pool, SEQ, 0);
	struct sgp_sgl list = {0};
	const size_t n = mqtt_put_publish(head, &publish, id, l->size);
	bool sent;

	if (!chunk)
		return false;
	for (int i = 0; i < SEQ; i++)
		((uint8_t *)sgp_chunk_addr(chunk))[i] = (uint8_t)(l->published >> 8 * i);
	if (mqr_list_reserve(&list, l->body.num_sge + 1, l->body.num_chunk + 1) ||
	    sgp_sgl_append(&list, chunk, 0, SEQ) ||
	    (l->body.num_sge && sgp_sgl_clone(&list, &l->body)))
		die("no memory for a message");
	sent = send_packet(&l->publisher, head, n, &list);
	mqr_list_free(&list);
	l->published += sent;
	return sent;
}

static void publish(struct load *l)
{
	while (l->published < l->until && l->published - l->complete < l->window &&
	       (!l->qos || l->published - l->acked < l->window) && publish_one(l))
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
	for (uint32_t i = l->readers; i < l->subscribers; i++)
		link_pause(l->subscriber[i].link);
	l->measuring = true;
	l->until = l->warmup + l->messages;
	l->t0 = now();
	l->cpu0 = broker_cpu(l->pid);
	l->user0 = broker_user(l->pid);
}

static void phase_done(struct load *l)
{
	if (!l->measuring) {
		begin_measuring(l);
		loop_defer(l->loop, &l->more);
		return;
	}
	l->t1 = now();
	l->cpu1 = broker_cpu(l->pid);
	l->user1 = broker_user(l->pid);
	l->status = 0;
	loop_stop(l->loop);
}

static void one_is_ready(struct load *l)
{
	if (++l->ready < l->subscribers + 1)
		return;
	l->until = l->warmup;
	if (l->warmup)
		publish(l);
	else
		phase_done(l);
}

/* ---- what comes ---- */

static void complete_some(struct load *l)
{
	while (l->complete < l->published && l->done[l->complete % l->window] == l->readers)
		l->done[l->complete++ % l->window] = 0;
	if (l->complete == l->until && (!l->qos || l->acked >= l->until))
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

	for (int i = 0; i < payload->num_sge && at < SEQ; i++)
		for (uint32_t k = 0; k < payload->sge[i].length && at < SEQ; k++, at++)
			seq |= (uint64_t)((const uint8_t *)(uintptr_t)payload->sge[i].addr)[k]
			       << 8 * at;
	if (payload->length != l->size || seq != p->got)
		die("subscriber %td has message %llu of %llu bytes instead of %llu",
		    p - l->subscriber, (unsigned long long)seq, (unsigned long long)payload->length,
		    (unsigned long long)p->got);
	p->got++;
	if (packet->publish.qos)
		acknowledge(p, packet->id);
	if (p - l->subscriber < (ptrdiff_t)l->readers) {
		l->done[seq % l->window]++;
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
	p->link = l->rdma ? link_rdma_connect(l->link_rdma, to->ai_addr, &events, p)
			  : link_tcp_connect(&l->links, to->ai_addr, to->ai_addrlen, &events, p);
	if (!p->link)
		die("can't connect: %s", strerror(errno));
	say_connect(p);
}

static void open_peers(struct load *l)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	struct addrinfo *to;
	const int err = getaddrinfo(l->host, l->port, &hints, &to);

	if (err)
		die("%s: %s", l->host, gai_strerror(err));
	l->subscriber = calloc(l->subscribers, sizeof *l->subscriber);
	l->done = calloc(l->window, sizeof *l->done);
	if (!l->subscriber || !l->done)
		die("no memory");
	open_peer(l, &l->publisher, to);
	for (uint32_t i = 0; i < l->subscribers; i++)
		open_peer(l, &l->subscriber[i], to);
	freeaddrinfo(to);
}

static void make_body(struct load *l)
{
	size_t left = l->size - SEQ;

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
	    (unsigned long long)l->seconds, (unsigned long long)l->complete,
	    (unsigned long long)l->until, l->ready, l->subscribers + 1);
}

static void report(const struct load *l)
{
	const double t = l->t1 - l->t0, cpu = l->cpu1 - l->cpu0, user = l->user1 - l->user0;
	const double n = (double)l->messages, delivered = n * l->readers;
	const char *name = l->rdma ? "rdma" : "tcp";

	if (l->json)
		printf("{\"transport\": \"%s\", \"subscribers\": %u, \"stalled\": %u, "
		       "\"bytes\": %u, \"qos\": %u, \"messages\": %llu, \"seconds\": %.6f, "
		       "\"published_per_s\": %.1f, \"delivered_per_s\": %.1f, "
		       "\"cpu_us_per_delivery\": %.3f, \"user_us_per_delivery\": %.3f, "
		       "\"cpu_us_per_message\": %.3f}\n",
		       name, l->readers, l->subscribers - l->readers, l->size, l->qos,
		       (unsigned long long)l->messages, t, n / t, delivered / t,
		       cpu * 1e6 / delivered, user * 1e6 / delivered, cpu * 1e6 / n);
	else
		printf("%s, %u subscribers (%u stalled), %u bytes, QoS %u: %llu messages in %.3f "
		       "s, "
		       "%.0f published/s, %.0f delivered/s; broker: %.3f us CPU a delivery (%.3f "
		       "in "
		       "user mode), %.3f a message\n",
		       name, l->readers, l->subscribers - l->readers, l->size, l->qos,
		       (unsigned long long)l->messages, t, n / t, delivered / t,
		       cpu * 1e6 / delivered, user * 1e6 / delivered, cpu * 1e6 / n);
}

static void run(struct load *l)
{
	l->loop = loop_create();
	if (!l->loop || memory_open(&l->memory, l->mib, l->attr.receive))
		die("no memory: %s", sgp_errmsg());
	l->links =
		(struct link_host){.loop = l->loop,
				   .memory = &l->memory,
				   .limits = {.head = MQTT_HEAD_MAX, .payload = MQTT_REMAINING_MAX},
				   .owner = l};
	if (l->rdma) {
		l->link_rdma = link_rdma_open(&l->links, &l->attr);
		if (!l->link_rdma)
			die("no RDMA: %s", strerror(errno));
	}
	make_body(l);
	l->more.run = publish_more;
	l->limit.fire = time_is_up;
	loop_timer_set(l->loop, &l->limit, (int64_t)l->seconds * 1000);
	l->status = -1;
	open_peers(l);
	if (loop_run(l->loop) || l->status)
		die("event loop: %s", strerror(errno));
	report(l);
}

static uint64_t number(const char *text, uint64_t min, uint64_t max)
{
	uint64_t n;

	if (parse_number(text, min, max, &n)) {
		fprintf(stderr, "broker-load: a number from %llu to %llu, not '%s'\n",
			(unsigned long long)min, (unsigned long long)max, text);
		exit(2);
	}
	return n;
}

static const char help[] =
	"usage: broker-load [OPTION]...\n\n"
	"Publishes messages to subscribers of its own, and tells what they cost the broker.\n\n"
	"  --rdma             over RDMA, not TCP\n"
	"  --host HOST        the broker (127.0.0.1)\n"
	"  --port PORT        (1883)\n"
	"  --subscribers N    (1)\n"
	"  --stalled N        so many of these stop reading\n"
	"  --size BYTES       of a message (256)\n"
	"  --qos QOS          0 or 1 (0)\n"
	"  --messages N       to measure (10000)\n"
	"  --warm-up N        to send before (1000)\n"
	"  --window N         messages that the slowest may be behind (64)\n"
	"  --pid PID          the broker's process, to measure\n"
	"  --receive-size N   bytes of a receive over RDMA\n"
	"  --receive-depth N  messages on the way to each client over RDMA\n"
	"  --memory MIB       for messages (256)\n"
	"  --seconds N        give up then (120)\n"
	"  --json             the result as JSON\n"
	"  --help             this text\n";

static void parse(struct load *l, int argc, char **argv)
{
	static const struct option options[] = {
		{"rdma", 0, NULL, 'R'},          {"host", 1, NULL, 'h'},
		{"port", 1, NULL, 'p'},          {"subscribers", 1, NULL, 's'},
		{"stalled", 1, NULL, 'x'},       {"size", 1, NULL, 'b'},
		{"qos", 1, NULL, 'q'},           {"messages", 1, NULL, 'n'},
		{"warm-up", 1, NULL, 'w'},       {"window", 1, NULL, 'W'},
		{"pid", 1, NULL, 'P'},           {"receive-size", 1, NULL, 'r'},
		{"receive-depth", 1, NULL, 'd'}, {"memory", 1, NULL, 'm'},
		{"seconds", 1, NULL, 't'},       {"json", 0, NULL, 'j'},
		{"help", 0, NULL, 'H'},          {NULL, 0, NULL, 0},
	};

	for (int opt; (opt = getopt_long_only(argc, argv, "", options, NULL)) != -1;)
		switch (opt) {
		case 'R':
			l->rdma = true;
			break;
		case 'h':
			l->host = optarg;
			break;
		case 'p':
			l->port = optarg;
			break;
		case 's':
			l->subscribers = (uint32_t)number(optarg, 1, 100000);
			break;
		case 'x':
			l->stalled = (uint32_t)number(optarg, 0, 100000);
			break;
		case 'b':
			l->size = (uint32_t)number(optarg, SEQ, 1 << 28);
			break;
		case 'q':
			l->qos = (uint8_t)number(optarg, 0, 1);
			break;
		case 'n':
			l->messages = number(optarg, 1, UINT32_MAX);
			break;
		case 'w':
			l->warmup = number(optarg, 0, UINT32_MAX);
			break;
		case 'W':
			l->window = number(optarg, 1, 60000);
			break;
		case 'P':
			l->pid = (long)number(optarg, 1, INT32_MAX);
			break;
		case 'r':
			l->attr.receive = (uint32_t)number(optarg, MQR_RECEIVE_MIN, 1 << 23);
			break;
		case 'd':
			l->attr.depth = (uint32_t)number(optarg, 1, 4096);
			break;
		case 'm':
			l->mib = number(optarg, MEMORY_MIN_MIB, 1 << 20);
			break;
		case 't':
			l->seconds = number(optarg, 1, 86400);
			break;
		case 'j':
			l->json = true;
			break;
		case 'H':
			fputs(help, stdout);
			exit(0);
		default:
			fputs("see broker-load --help\n", stderr);
			exit(2);
		}
	if (optind < argc || l->stalled >= l->subscribers) {
		fputs("broker-load: fewer stalled than subscribers, and no arguments\n", stderr);
		exit(2);
	}
	l->readers = l->subscribers - l->stalled;
}

int main(int argc, char **argv)
{
	static struct load l = {.host = "127.0.0.1",
				.port = "1883",
				.subscribers = 1,
				.size = 256,
				.messages = 10000,
				.warmup = 1000,
				.window = 64,
				.mib = 256,
				.seconds = 120};

	parse(&l, argc, argv);
	snprintf(l.topic, sizeof l.topic, "load/%d", (int)getpid());
	run(&l);
	return 0;
}
