/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The broker's numbers, see stats.h. A shard's numbers are its own thread's: a message that collects
 * them goes through all shards and comes back to shard 0, which answers.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "link_rdma.h"
#include "session.h"
#include "stats.h"

enum {
	CLIENTS = 16,       /* at once */
	REQUEST = 4096,     /* bytes that are read of one */
	ANSWER = 64 * 1024, /* bytes of one at most */
	CLIENT_MS = 5000,
};

struct http {
	struct loop_message message; /* collects */
	struct loop_fd fd;
	struct loop_timer timer;
	struct broker *broker;
	unsigned int at; /* the shard that it's at */
	struct counters sum;
	struct link_stats links;
	uint64_t queued_bytes, queued_messages, blocked, paused, receives;
	size_t n, sent; /* of text */
	char text[ANSWER];
};

static atomic_int clients;

static void end(struct http *h)
{
	close(h->fd.fd);
	free(h);
	atomic_fetch_sub_explicit(&clients, 1, memory_order_relaxed);
}

static void leave(struct http *h)
{
	struct loop *loop = h->broker->shards[0].loop;

	loop_timer_stop(loop, &h->timer);
	loop_remove(loop, &h->fd);
}

/* ---- the text ---- */

__attribute__((format(printf, 2, 3))) static void put(struct http *h, const char *format, ...)
{
	va_list ap;
	int n;

	va_start(ap, format);
	n = vsnprintf(h->text + h->n, sizeof h->text - h->n, format, ap);
	va_end(ap);
	h->n += n < 0 ? 0 : (size_t)n;
	if (h->n >= sizeof h->text)
		h->n = sizeof h->text - 1;
}

static void put_one(struct http *h, const char *name, const char *type, const char *help,
		    uint64_t n)
{
	put(h, "# HELP sgpool_broker_%s %s\n# TYPE sgpool_broker_%s %s\nsgpool_broker_%s %llu\n",
	    name, help, name, type, name, (unsigned long long)n);
}

static void put_endings(struct http *h)
{
	static const char *const why[ENDINGS] = {
		[END_CLEAN] = "clean",           [END_LOST] = "lost",
		[END_PROTOCOL] = "protocol",     [END_TOO_LARGE] = "too_large",
		[END_KEEP_ALIVE] = "keep_alive", [END_SLOW] = "slow",
		[END_MEMORY] = "memory",         [END_TAKEN_OVER] = "taken_over",
		[END_REFUSED] = "refused",       [END_SHUTDOWN] = "shutdown",
	};

	put(h, "# HELP sgpool_broker_ended_total Sessions that ended, by reason.\n"
	       "# TYPE sgpool_broker_ended_total counter\n");
	for (int i = 0; i < ENDINGS; i++)
		put(h, "sgpool_broker_ended_total{why=\"%s\"} %llu\n", why[i],
		    (unsigned long long)h->sum.endings[i]);
}

static void put_sessions(struct http *h)
{
	const struct counters *c = &h->sum;

	put_one(h, "sessions", "gauge", "Clients that are connected.", c->sessions);
	put_one(h, "subscriptions", "gauge", "Subscriptions.", c->subscriptions);
	put_one(h, "accepted_total", "counter", "Connections that were accepted.", c->accepted);
	put_one(h, "refused_total", "counter", "Connections that were refused.", c->refused);
	put_endings(h);
	put_one(h, "published_total", "counter", "Messages that came.", c->published);
	put_one(h, "published_bytes_total", "counter", "Bytes of their payloads.",
		c->published_bytes);
	put_one(h, "queued_total", "counter", "Messages that were queued for a subscriber.",
		c->deliveries);
	put_one(h, "delivered_total", "counter", "Messages that were sent to a subscriber.",
		c->delivered);
	put_one(h, "delivered_bytes_total", "counter", "Bytes of their payloads.",
		c->delivered_bytes);
	put_one(h, "acknowledged_total", "counter", "Messages that subscribers acknowledged.",
		c->acked);
	put_one(h, "dropped_total", "counter", "Messages of QoS 0 that were not delivered.",
		c->dropped);
	put_one(h, "publisher_pauses_total", "counter", "Times that a publisher had to wait.",
		c->pauses);
	put_one(h, "sheds_total", "counter", "Times that a queue gave since memory was short.",
		c->sheds);
	put_one(h, "queued_messages", "gauge", "Messages in queues now.", h->queued_messages);
	put_one(h, "queued_bytes", "gauge", "What the queues refer to, each for itself.",
		h->queued_bytes);
	put_one(h, "blocked_sessions", "gauge", "Clients that do not take what is sent.",
		h->blocked);
	put_one(h, "paused_sessions", "gauge", "Clients that are not read from.", h->paused);
}

static void put_links(struct http *h)
{
	const struct link_stats *l = &h->links;

	put_one(h, "packets_in_total", "counter", "Packets that came.", l->packets_in);
	put_one(h, "packets_out_total", "counter", "Packets that went.", l->packets_out);
	put_one(h, "bytes_in_total", "counter", "Bytes that came.", l->bytes_in);
	put_one(h, "bytes_out_total", "counter", "Bytes that went.", l->bytes_out);
	put_one(h, "reads_total", "counter", "Calls of readv, and receives.", l->reads);
	put_one(h, "writes_total", "counter", "Calls of writev, and posts.", l->writes);
	put_one(h, "payload_bytes_copied_total", "counter",
		"Bytes of messages in so many pieces that they were copied into one.",
		l->payload_copied);
	put_one(h, "shared_receives", "gauge", "Receives that stand posted for all RDMA clients.",
		h->receives);
	put_one(h, "starved_total", "counter", "Times that there was no memory for what came.",
		l->starved);
}

static void put_memory(struct http *h)
{
	struct broker *broker = h->broker;
	struct sgp_class_stats class_;
	struct rusage usage;
	size_t messages, bytes;
	uint64_t refused, growths = 0;
	int n;

	retained_numbers(&broker->retained, &messages, &bytes, &refused);
	put_one(h, "retained_messages", "gauge", "Retained messages.", messages);
	put_one(h, "retained_bytes", "gauge", "Bytes of the chunks that they keep.", bytes);
	put_one(h, "retained_refused_total", "counter", "Messages that could not be retained.",
		refused);
	put_one(h, "described_bytes", "gauge", "Memory beside the pool, of messages and sessions.",
		atomic_load_explicit(&broker->budget.used, memory_order_relaxed));
	put_one(h, "described_bytes_limit", "gauge", "What there may be of it.",
		broker->budget.limit);
	for (uint32_t i = 0; !sgp_pool_class_stats(broker->memory.pool, i, &class_); i++)
		growths += class_.growths;
	put_one(h, "data_path_registrations_total", "counter",
		"Pieces of memory that were registered since the pool was made.", growths);
	if (!getrusage(RUSAGE_SELF, &usage))
		put(h,
		    "# HELP process_cpu_seconds_total User and system time.\n"
		    "# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total %.6f\n",
		    (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
			    1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec));
	n = sgp_pool_stats_print(broker->memory.pool, "broker", SGP_STATS_PROMETHEUS,
				 h->text + h->n, sizeof h->text - h->n);
	h->n += n < 0 ? 0 : (size_t)n;
	if (h->n >= sizeof h->text)
		h->n = sizeof h->text - 1;
}

/* ---- the answer ---- */

static void write_out(struct http *h)
{
	const ssize_t n = write(h->fd.fd, h->text + h->sent, h->n - h->sent);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	h->sent += n < 0 ? 0 : (size_t)n;
	if (n >= 0 && h->sent < h->n)
		return;
	leave(h);
	end(h);
}

static void writable(struct loop_fd *fd, uint32_t events)
{
	(void)events;
	write_out((struct http *)((char *)fd - offsetof(struct http, fd)));
}

static void too_late(struct loop_timer *timer)
{
	struct http *h = (struct http *)((char *)timer - offsetof(struct http, timer));

	leave(h);
	end(h);
}

static void answer(struct http *h)
{
	struct loop *loop = h->broker->shards[0].loop;

	h->n = h->sent = 0;
	put(h, "HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n"
	       "Connection: close\r\n\r\n");
	put_sessions(h);
	put_links(h);
	put_memory(h);
	h->fd.ready = writable;
	if (loop_timer_set(loop, &h->timer, CLIENT_MS) || loop_add(loop, &h->fd, EPOLLOUT))
		too_late(&h->timer);
}

/* ---- what the shards have ---- */

static void add_words(void *to, const void *from, size_t bytes)
{
	uint64_t *a = to;
	const uint64_t *b = from;

	for (size_t i = 0; i < bytes / sizeof *a; i++)
		a[i] += b[i];
}

static void collect(struct loop_message *message)
{
	struct http *h = (struct http *)message;
	struct shard *shard = &h->broker->shards[h->at % h->broker->nshards];

	if (shard->stopping) { /* the next one's loop may be gone */
		end(h);
		return;
	}
	if (h->at++ == h->broker->nshards) {
		answer(h);
		return;
	}
	add_words(&h->sum, &shard->counters, sizeof h->sum);
	add_words(&h->links, &shard->host.stats, sizeof h->links);
	if (shard->rdma)
		h->receives += link_rdma_shared(shard->rdma);
	for (size_t i = 0; i < shard->nslots; i++) {
		const struct session *s = shard->slots[i];

		if (!s)
			continue;
		h->queued_messages += s->queue.n;
		h->queued_bytes += s->queue.bytes;
		h->blocked += s->blocked;
		h->paused += s->link_paused;
	}
	loop_post(h->broker->shards[h->at % h->broker->nshards].loop, &h->message);
}

/* ---- the request: whatever it is ---- */

static void readable(struct loop_fd *fd, uint32_t events)
{
	struct http *h = (struct http *)((char *)fd - offsetof(struct http, fd));
	const ssize_t n = read(fd->fd, h->text + h->n, REQUEST - h->n);

	(void)events;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0) {
		h->n += (size_t)n;
		h->text[h->n] = 0;
		if (h->n < REQUEST && !strstr(h->text, "\r\n\r\n") && !strstr(h->text, "\n\n"))
			return;
	}
	leave(h);
	if (n <= 0) {
		end(h);
		return;
	}
	h->message.run = collect;
	loop_post(h->broker->shards[0].loop, &h->message);
}

void stats_client(struct listener *listener, int fd)
{
	struct loop *loop = listener->broker->shards[0].loop;
	struct http *h = NULL;

	if (atomic_fetch_add_explicit(&clients, 1, memory_order_relaxed) < CLIENTS)
		h = calloc(1, sizeof *h);
	if (!h) {
		close(fd);
		atomic_fetch_sub_explicit(&clients, 1, memory_order_relaxed);
		return;
	}
	h->broker = listener->broker;
	h->fd = (struct loop_fd){.ready = readable, .fd = fd};
	h->timer.fire = too_late;
	if (loop_add(loop, &h->fd, EPOLLIN)) {
		end(h);
		return;
	}
	if (loop_timer_set(loop, &h->timer, CLIENT_MS))
		too_late(&h->timer);
}
