/* SPDX-License-Identifier: BSD-2-Clause */
/* Statistics as JSON (see stats.h). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "queue.h"
#include "target.h"

void stats_latency(struct stats *s, int64_t ns)
{
	const uint64_t us = (uint64_t)ns / 1000;
	const int i = us ? 63 - __builtin_clzll(us) : 0;

	s->latency[i < STATS_BUCKETS ? i : STATS_BUCKETS - 1]++;
}

void stats_endpoint(struct stats *s, struct sgp_ep *ep)
{
	struct sgp_ep_stats more;

	if (sgp_ep_stats(ep, &more))
		return;
	s->posts += more.posts;
	s->doorbells += more.doorbells;
	s->signalled += more.signalled;
	s->split += more.split;
	s->queue_full += more.queue_full;
	s->receives += more.recvs;
	s->receives_dry += more.recv_dry;
}

/* Those that are gone, and those that are there. */
static void add_endpoints(const struct target *t, struct stats *s)
{
	for (const struct queue *q = t->queues; q; q = q->next)
		if (!q->closed)
			stats_endpoint(s, q->ep);
}

/* What queues with receives of their own have posted. */
static void add_receives(const struct target *t, struct sgp_srq_stats *sum)
{
	for (const struct queue *q = t->queues; q; q = q->next) {
		struct sgp_ep_info info;

		if (q->closed || q->device->srq || sgp_ep_query(q->ep, &info))
			continue;
		sum->depth += q->depth;
		sum->posted += (uint32_t)info.recv_posted;
		sum->missing += (uint32_t)info.recv_missing;
	}
}

static struct sgp_srq_stats receives_of(const struct target *t)
{
	struct sgp_srq_stats sum = {0};

	for (const struct device *dev = t->devices; dev; dev = dev->next) {
		struct sgp_srq_stats s;

		if (!dev->srq || sgp_srq_stats(dev->srq, &s))
			continue;
		sum.depth += s.depth;
		sum.posted += s.posted;
		sum.missing += s.missing;
		sum.lost += s.lost;
		sum.recvs += s.recvs;
		sum.dry += s.dry;
	}
	add_receives(t, &sum);
	return sum;
}

void stats_report(struct target *t)
{
	struct report report = {
		.stats = t->stats,
		.in_flight = t->in_flight,
		.waits = t->budget.waits,
		.waiting = t->budget.waiting,
		.control = t->budget.control,
		.data = t->budget.data,
		.receives = receives_of(t),
	};

	add_endpoints(t, &report.stats);
	for (const struct queue *q = t->queues; q; q = q->next)
		report.queues += !q->ending;
	pthread_mutex_lock(&t->common->lock);
	t->report = report;
	pthread_mutex_unlock(&t->common->lock);
}

/* ---- the sum of the reports ---- */

static void add_stats(struct stats *sum, const struct stats *s)
{
	/* All of it is counters. */
	_Static_assert(sizeof *s % sizeof(uint64_t) == 0, "counters only");
	const uint64_t *from = (const void *)s;
	uint64_t *to = (void *)sum;

	for (size_t i = 0; i < sizeof *s / sizeof *from; i++)
		to[i] += from[i];
}

static void add_report(struct report *sum, const struct report *r)
{
	add_stats(&sum->stats, &r->stats);
	sum->in_flight += r->in_flight;
	sum->waits += r->waits;
	sum->waiting += r->waiting;
	sum->queues += r->queues;
}

static void print_commands(FILE *f, const struct stats *s)
{
	fprintf(f, "\"commands\":{");
	for (int i = 0; i < CAPSULE_KINDS; i++)
		fprintf(f, "%s\"%s\":%" PRIu64, i ? "," : "", capsule_name((enum capsule_kind)i),
			s->commands[i]);
	fprintf(f, "},\"refused\":%" PRIu64 ",\"failed\":%" PRIu64 ",\"dropped\":%" PRIu64,
		s->refused, s->failed, s->dropped);
}

static void print_traffic(FILE *f, const struct stats *s)
{
	fprintf(f,
		",\"bytes\":{\"read\":%" PRIu64 ",\"written\":%" PRIu64 ",\"in_capsule\":%" PRIu64
		",\"payload_copied\":%" PRIu64 "}",
		s->read_bytes, s->write_bytes, s->inside_bytes, s->copied_bytes);
	fprintf(f, ",\"latency_us\":[");
	for (int i = 0; i < STATS_BUCKETS; i++)
		fprintf(f, "%s%" PRIu64, i ? "," : "", s->latency[i]);
	fprintf(f,
		"],\"endpoints\":{\"posts\":%" PRIu64 ",\"doorbells\":%" PRIu64
		",\"signalled\":%" PRIu64 ",\"split\":%" PRIu64 ",\"queue_full\":%" PRIu64 "}",
		s->posts, s->doorbells, s->signalled, s->split, s->queue_full);
}

static void print_hosts(FILE *f, const struct common *c, const struct report *sum)
{
	unsigned int ctrls = 0;

	for (int i = 0; i < MAX_CTRLS; i++)
		ctrls += c->ctrl[i] != NULL;
	fprintf(f,
		",\"connections\":{\"queues\":%u,\"controllers\":%u,\"accepted\":%" PRIu64
		",\"refused\":%" PRIu64 ",\"broken\":%" PRIu64 ",\"keep_alive_expired\":%" PRIu64
		"}",
		sum->queues, ctrls, sum->stats.connections, sum->stats.refused_connections,
		sum->stats.broken_connections, sum->stats.keep_alive_expired);
}

/* A pool of each thread's, and in *total what they have together. */
static void print_pools(FILE *f, const struct common *c, bool data, struct sgp_pool_stats *total)
{
	const char *name = data ? "data" : "control", *comma = "";
	char text[8192];

	fprintf(f, ",\"%s\":[", name);
	for (unsigned int i = 0; i < c->nthreads; i++) {
		const struct report *r = &c->thread[i].report;
		struct sgp_pool *pool = data ? r->data : r->control;
		struct sgp_pool_stats stats;

		if (!pool || sgp_pool_stats(pool, &stats))
			continue;
		total->registrations += stats.registrations;
		total->bytes_registered += stats.bytes_registered;
		if (sgp_pool_stats_print(pool, name, SGP_STATS_JSON, text, sizeof text) <
		    (int)sizeof text) {
			text[strcspn(text, "\n")] = 0;
			fprintf(f, "%s%s", comma, text);
			comma = ",";
		}
	}
	fprintf(f, "]");
}

static void print_memory(FILE *f, const struct common *c, const struct report *sum)
{
	struct sgp_pool_stats total = {0};

	fprintf(f, ",\"memory\":{\"limit\":%" PRIu64 ",\"waits\":%" PRIu64 ",\"waiting\":%" PRIu64,
		c->opt->memory, sum->waits, sum->waiting);
	print_pools(f, c, false, &total);
	print_pools(f, c, true, &total);
	fprintf(f, ",\"registered\":%" PRIu64 ",\"registrations\":%" PRIu64 "}",
		(uint64_t)total.bytes_registered, (uint64_t)total.registrations);
}

static void print_receives(FILE *f, const struct common *c)
{
	fprintf(f, ",\"receives\":[");
	for (unsigned int i = 0; i < c->nthreads; i++) {
		const struct sgp_srq_stats *s = &c->thread[i].report.receives;
		const struct stats *own = &c->thread[i].report.stats;

		fprintf(f,
			"%s{\"depth\":%u,\"posted\":%u,\"missing\":%u,\"lost\":%u,\"taken\":"
			"%" PRIu64 ",\"dry\":%" PRIu64 "}",
			i ? "," : "", s->depth, s->posted, s->missing, s->lost,
			s->recvs + own->receives, s->dry + own->receives_dry);
	}
	fprintf(f, "]");
}

static void print_locked(FILE *f, const struct target *t)
{
	const struct common *c = t->common;
	struct report sum = {0};

	for (unsigned int i = 0; i < c->nthreads; i++)
		add_report(&sum, &c->thread[i].report);
	fprintf(f, "{\"seconds\":%.3f,\"threads\":%u,\"in_flight\":%" PRIu64 ",",
		(double)(t->now - t->started) / 1e9, c->nthreads, sum.in_flight);
	print_commands(f, &sum.stats);
	print_traffic(f, &sum.stats);
	print_hosts(f, c, &sum);
	print_memory(f, c, &sum);
	print_receives(f, c);
	fprintf(f, "}\n");
}

static void print(FILE *f, const struct target *t)
{
	pthread_mutex_lock(&t->common->lock);
	print_locked(f, t);
	pthread_mutex_unlock(&t->common->lock);
}

/* Readers see the old file or the new one, never half of it. */
static void replace_file(const struct target *t, const char *path)
{
	static bool told;
	char temporary[4096];
	FILE *f;

	if (snprintf(temporary, sizeof temporary, "%s.new", path) >= (int)sizeof temporary)
		return;
	f = fopen(temporary, "w");
	if (f)
		print(f, t);
	if (f && !fclose(f) && !rename(temporary, path)) {
		told = false;
	} else if (!told) { /* once, and not every second */
		fail_sys(path);
		told = true;
	}
}

void stats_write(struct target *t, bool asked)
{
	const char *path = t->opt->stats;

	if (path && strcmp(path, "-") != 0) {
		replace_file(t, path);
	} else if (asked) {
		print(stdout, t);
		fflush(stdout);
	}
}
