/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * When memory is short, the largest queue of all shards gives: what it has of QoS 0 above half of its
 * bytes, or, when that is not what makes it large, all of it, with its session. Queues that are a
 * small part of the memory are not to blame, and are left alone. When there is no large one, clients
 * are who began a long packet and do not go on with it: the one that holds the most is disconnected,
 * in each shard. If that is not the reason either, who waits goes on waiting, for some seconds.
 */
#include "session.h"

enum {
	RELIEF_MS = 2,     /* between two requests of a shard */
	SMALL = 64,        /* a queue of less than this part of the memory */
	STOPPED_MS = 2000, /* a packet of which nothing more came */
};

static struct session *largest(const struct shard *shard)
{
	struct session *most = NULL;

	for (size_t i = 0; i < shard->nslots; i++) {
		struct session *s = shard->slots[i];

		if (s && s->state == SESSION_UP && (!most || s->queue.bytes > most->queue.bytes))
			most = s;
	}
	return most;
}

static size_t small(const struct shard *shard)
{
	return (shard->broker->settings.memory_mib << 20) / SMALL;
}

static void shorten(struct session *s)
{
	struct counters *counters = &s->shard->counters;
	const size_t bytes = s->queue.bytes / 2;

	counters->dropped += queue_drop_qos0(&s->queue, SIZE_MAX, bytes);
	counters->sheds++;
	if (s->queue.bytes > bytes)
		session_end(s, END_SLOW);
}

/* Who holds the most of a packet that has stopped coming, while we would read it. */
static struct session *stopped(const struct shard *shard)
{
	const int64_t since = loop_now(shard->loop) - STOPPED_MS;
	struct session *most = NULL;

	for (size_t i = 0; i < shard->nslots; i++) {
		struct session *s = shard->slots[i];

		if (s && s->state != SESSION_ENDING && !s->link_paused && s->link->heard < since &&
		    link_partial(s->link) > (most ? link_partial(most->link) : 0))
			most = s;
	}
	return most;
}

static void shed(struct shard *shard)
{
	struct session *s = largest(shard);

	if (s && s->queue.bytes >= small(shard)) {
		shorten(s);
		s = largest(shard);
	} else {
		struct session *idle = stopped(shard);

		if (idle)
			session_end(idle, END_MEMORY);
	}
	atomic_store_explicit(&shard->largest, s ? s->queue.bytes : 0, memory_order_relaxed);
}

void shard_shed(struct loop_message *message)
{
	struct shard *shard = (struct shard *)((char *)message - offsetof(struct shard, shed));

	atomic_store_explicit(&shard->shed_posted, false, memory_order_release);
	shed(shard);
}

/* By a message to itself too: who asks may be in the middle of a queue. */
static void ask(struct shard *shard)
{
	if (!atomic_exchange_explicit(&shard->shed_posted, true, memory_order_acq_rel))
		loop_post(shard->loop, &shard->shed);
}

void shard_starved(struct link_host *host)
{
	struct shard *shard = host->owner;
	struct broker *broker = shard->broker;
	unsigned int most = broker->nshards; /* none has more than the one that starves */
	size_t bytes = small(shard);

	if (loop_now(shard->loop) - shard->relieved_at < RELIEF_MS)
		return;
	shard->relieved_at = loop_now(shard->loop);
	for (unsigned int i = 0; i < broker->nshards; i++) {
		const size_t n =
			atomic_load_explicit(&broker->shards[i].largest, memory_order_relaxed);

		if (n >= bytes) {
			most = i;
			bytes = n;
		}
	}
	for (unsigned int i = 0; i < broker->nshards; i++)
		if (most == broker->nshards || most == i)
			ask(&broker->shards[i]);
}
