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

/* Those that are gone, and those that are there. */
static void add_endpoints(const struct target *t, struct stats *s)
{
	for (const struct queue *q = t->queues; q; q = q->next) {
		struct sgp_ep_stats ep;

		if (q->closed || sgp_ep_stats(q->ep, &ep))
			continue;
		s->posts += ep.posts;
		s->doorbells += ep.doorbells;
		s->signalled += ep.signalled;
		s->split += ep.split;
		s->queue_full += ep.queue_full;
	}
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

static void print_hosts(FILE *f, const struct target *t, const struct stats *s)
{
	unsigned int queues = 0, ctrls = 0;

	for (const struct queue *q = t->queues; q; q = q->next)
		queues += !q->ending;
	for (int i = 0; i < MAX_CTRLS; i++)
		ctrls += t->ctrl[i] != NULL;
	fprintf(f,
		",\"connections\":{\"queues\":%u,\"controllers\":%u,\"accepted\":%" PRIu64
		",\"refused\":%" PRIu64 ",\"broken\":%" PRIu64 ",\"keep_alive_expired\":%" PRIu64
		"}",
		queues, ctrls, s->connections, s->refused_connections, s->broken_connections,
		s->keep_alive_expired);
}

static void print_memory(FILE *f, const struct target *t)
{
	const struct {
		const char *name;
		struct sgp_pool *pool;
	} pools[] = {{"control", t->budget.control}, {"data", t->budget.data}};
	uint64_t registrations = 0, registered = 0;
	char text[8192];

	fprintf(f, ",\"memory\":{\"limit\":%" PRIu64 ",\"waits\":%" PRIu64 ",\"waiting\":%" PRIu64,
		t->opt->memory, t->budget.waits, t->budget.waiting);
	for (size_t i = 0; i < 2; i++) {
		struct sgp_pool_stats stats;

		if (!pools[i].pool || sgp_pool_stats(pools[i].pool, &stats))
			continue;
		registrations += stats.registrations;
		registered += stats.bytes_registered;
		if (sgp_pool_stats_print(pools[i].pool, pools[i].name, SGP_STATS_JSON, text,
					 sizeof text) < (int)sizeof text) {
			text[strcspn(text, "\n")] = 0;
			fprintf(f, ",\"%s\":%s", pools[i].name, text);
		}
	}
	fprintf(f, ",\"registered\":%" PRIu64 ",\"registrations\":%" PRIu64 "}", registered,
		registrations);
}

static void print_receives(FILE *f, const struct target *t)
{
	fprintf(f, ",\"receives\":[");
	for (const struct device *dev = t->devices; dev; dev = dev->next) {
		struct sgp_srq_stats s;

		sgp_srq_stats(dev->srq, &s);
		fprintf(f,
			"%s{\"depth\":%u,\"posted\":%u,\"missing\":%u,\"lost\":%u,\"taken\":"
			"%" PRIu64 ",\"dry\":%" PRIu64 "}",
			dev == t->devices ? "" : ",", s.depth, s.posted, s.missing, s.lost, s.recvs,
			s.dry);
	}
	fprintf(f, "]");
}

static void print(FILE *f, const struct target *t)
{
	struct stats s = t->stats;

	add_endpoints(t, &s);
	fprintf(f, "{\"seconds\":%.3f,\"in_flight\":%" PRIu64 ",",
		(double)(t->now - t->started) / 1e9, t->in_flight);
	print_commands(f, &s);
	print_traffic(f, &s);
	print_hosts(f, t, &s);
	print_memory(f, t);
	print_receives(f, t);
	fprintf(f, "}\n");
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

	if (path && strcmp(path, "-")) {
		replace_file(t, path);
	} else if (asked) {
		print(stdout, t);
		fflush(stdout);
	}
}
