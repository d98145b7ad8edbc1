/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * When memory is short, the largest queue of all shards gives: what it has of QoS 0 above half of its
 * bytes, or, when that is not what makes it large, all of it, with its session. Queues that are a
 * small part of the memory are not to blame, and are left alone: then who waits goes on waiting.
 */
#include "session.h"

enum {
	RELIEF_MS = 2, /* between two requests of a shard */
	SMALL = 64,    /* a queue of less than this part of the memory */
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

static void shed(struct shard *shard)
{
	struct session *s = largest(shard);
	const size_t enough = (shard->broker->settings.memory_mib << 20) / SMALL;
	size_t bytes, dropped;

	if (s && s->queue.bytes >= enough) {
		bytes = s->queue.bytes / 2;
		dropped = queue_drop_qos0(&s->queue, SIZE_MAX, bytes);
		shard->counters.dropped += dropped;
		shard->counters.sheds++;
		if (s->queue.bytes > bytes)
			session_end(s, END_SLOW);
		s = largest(shard);
	}
	atomic_store_explicit(&shard->largest, s ? s->queue.bytes : 0, memory_order_relaxed);
}

void shard_shed(struct loop_message *message)
{
	struct shard *shard = (struct shard *)((char *)message - offsetof(struct shard, shed));

	atomic_store_explicit(&shard->shed_posted, false, memory_order_release);
	shed(shard);
}

void shard_starved(struct link_host *host)
{
	struct shard *shard = host->owner;
	struct broker *broker = shard->broker;
	struct shard *most = NULL;
	size_t bytes = 0;

	if (loop_now(shard->loop) - shard->relieved_at < RELIEF_MS)
		return;
	shard->relieved_at = loop_now(shard->loop);
	for (unsigned int i = 0; i < broker->nshards; i++) {
		const size_t n =
			atomic_load_explicit(&broker->shards[i].largest, memory_order_relaxed);

		if (!most || n > bytes) {
			most = &broker->shards[i];
			bytes = n;
		}
	}
	/* By a message to itself too: the caller may be in the middle of a queue. */
	if (!atomic_exchange_explicit(&most->shed_posted, true, memory_order_acq_rel))
		loop_post(most->loop, &most->shed);
}
