/* SPDX-License-Identifier: BSD-2-Clause */
/* The broker's threads, from the beginning to the end; see broker.h. */
#include <errno.h>
#include <string.h>

#include "link_rdma.h"
#include "session.h"

/* Of --memory, what is for messages' payloads; the rest is for what describes them. */
static size_t pool_mib(const struct settings *settings)
{
	return settings->memory_mib - settings->memory_mib / 4;
}

/* ---- a shard ---- */

static int open_shard(struct broker *broker, unsigned int index)
{
	struct shard *shard = &broker->shards[index];

	shard->broker = broker;
	shard->index = index;
	shard->shed.run = shard_shed;
	shard->scratch = malloc(SCRATCH);
	shard->loop = loop_create();
	if (!shard->scratch || !shard->loop || topics_open(&shard->subscriptions, &broker->budget))
		return -1;
	shard->host = (struct link_host){
		.loop = shard->loop,
		.memory = &broker->memory,
		.limits = {.head = MQTT_HEAD_MAX, .payload = broker->settings.max_message},
		.starved = shard_starved,
		.owner = shard};
	return 0;
}

static void close_shard(struct shard *shard)
{
	/* Messages that were on their way find nobody, and are let go. */
	if (shard->loop)
		loop_destroy(shard->loop);
	link_host_end(&shard->host);
	if (shard->subscriptions.root)
		topics_close(&shard->subscriptions);
	budget_free(&shard->broker->budget, shard->slots, shard->nslots * sizeof(void *));
	free(shard->matched);
	free(shard->scratch);
}

struct stopping {
	struct loop_message message;
	struct shard *shard;
};

/* The loop ends with its last session: session.c. */
static void stop_shard(struct loop_message *message)
{
	struct stopping *stopping = (struct stopping *)message;
	struct shard *shard = stopping->shard;

	free(stopping);
	shard->stopping = true;
	if (!shard->counters.sessions)
		loop_stop(shard->loop);
	for (size_t i = 0; i < shard->nslots; i++)
		if (shard->slots[i])
			session_end(shard->slots[i], END_SHUTDOWN);
}

static void *run_shard(void *arg)
{
	struct shard *shard = arg;

	return loop_run(shard->loop) ? shard : NULL;
}

/* ---- all of them ---- */

/* Returns 0; -1 when a queue does not end. */
static int close_rdma(struct broker *broker)
{
	int ret = 0;

	for (unsigned int i = 0; i < broker->nshards; i++)
		if (broker->shards[i].rdma && link_rdma_close(broker->shards[i].rdma))
			ret = -1;
	return ret;
}

static void close_shards(struct broker *broker)
{
	for (unsigned int i = 0; i < broker->nshards; i++)
		if (broker->shards[i].broker)
			close_shard(&broker->shards[i]);
	free(broker->shards);
	broker->shards = NULL;
}

static int open_shards(struct broker *broker)
{
	broker->nshards = broker->settings.threads;
	broker->shards = calloc(broker->nshards, sizeof *broker->shards);
	if (!broker->shards)
		return -1;
	for (unsigned int i = 0; i < broker->nshards; i++)
		if (open_shard(broker, i)) {
			close_shards(broker);
			return -1;
		}
	return 0;
}

int broker_open(struct broker *broker, const struct settings *settings)
{
	const size_t memory = settings->memory_mib << 20;
	int err;

	*broker = (struct broker){.settings = *settings, .budget.limit = memory / 4};
	if (memory_open(&broker->memory, pool_mib(settings), settings->receive))
		return -1;
	if (retained_open(&broker->retained, &broker->budget, broker->memory.pool))
		goto close_memory;
	if (registry_open(&broker->registry, &broker->budget))
		goto close_retained;
	if (!open_shards(broker))
		return 0;
	err = errno;
	registry_close(&broker->registry);
	errno = err;
close_retained:
	err = errno;
	retained_close(&broker->retained);
	errno = err;
close_memory:
	err = errno;
	memory_close(&broker->memory);
	errno = err;
	return -1;
}

int broker_start(struct broker *broker)
{
	for (unsigned int i = 1; i < broker->nshards; i++) {
		const int err = pthread_create(&broker->shards[i].thread, NULL, run_shard,
					       &broker->shards[i]);

		if (err) {
			errno = err;
			return -1;
		}
		broker->running++;
	}
	return 0;
}

void broker_stop(struct broker *broker)
{
	for (unsigned int i = 0; i < broker->nshards; i++) {
		struct stopping *stopping = malloc(sizeof *stopping);

		if (!stopping)
			abort(); /* there is no other way to end in good order */
		*stopping =
			(struct stopping){.message.run = stop_shard, .shard = &broker->shards[i]};
		loop_post(broker->shards[i].loop, &stopping->message);
	}
}

int broker_close(struct broker *broker)
{
	int rdma;

	for (unsigned int i = 1; i <= broker->running; i++)
		pthread_join(broker->shards[i].thread, NULL);
	rdma = close_rdma(broker);
	close_shards(broker);
	registry_close(&broker->registry);
	retained_close(&broker->retained);
	return memory_close(&broker->memory) || rdma ? -1 : 0;
}

struct shard *broker_next(struct broker *broker)
{
	const size_t n = atomic_fetch_add_explicit(&broker->connections, 1, memory_order_relaxed);
	struct shard *shard = &broker->shards[broker->next_shard];

	if (n >= broker->settings.max_connections) {
		atomic_fetch_sub_explicit(&broker->connections, 1, memory_order_relaxed);
		return NULL;
	}
	broker->next_shard = (broker->next_shard + 1) % broker->nshards;
	return shard;
}
