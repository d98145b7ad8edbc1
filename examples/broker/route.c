/* SPDX-License-Identifier: BSD-2-Clause */
/* From a publisher to the queues of all subscribers, see broker.h. */
#include "session.h"

/* A message on its way to another shard. Each has one for every shard, so that none can be lacking. */
struct delivery {
	struct loop_message message;
	struct message *what;
	struct shard *to;
};

size_t route_bytes(const struct broker *broker)
{
	return broker->nshards * sizeof(struct delivery);
}

struct message *shard_message(struct shard *shard, const struct mqtt_publish *publish,
			      struct sgp_sgl *payload)
{
	return message_create(&shard->broker->budget, publish, payload, route_bytes(shard->broker));
}

/* ---- one shard's subscribers ---- */

static int more_room(struct shard *shard)
{
	const size_t n = shard->room_matched ? 2 * shard->room_matched : MATCHES_MIN;
	struct matched *matched = realloc(shard->matched, n * sizeof *matched);

	if (!matched)
		return -1;
	shard->matched = matched;
	shard->room_matched = n;
	return 0;
}

struct matching {
	struct shard *shard;
	const struct message *m;
};

/* A session gets a message once, at the best QoS of its filters [MQTT-3.3.5-1]. */
static void add(struct shard *shard, const struct subscription *sub)
{
	struct session *s = sub->session;

	if (s->match == shard->match) {
		if (shard->matched[s->match_at].qos < sub->qos)
			shard->matched[s->match_at].qos = sub->qos;
		return;
	}
	if (shard->nmatched == shard->room_matched && more_room(shard)) {
		session_end(s, END_MEMORY);
		return;
	}
	s->match = shard->match;
	s->match_at = shard->nmatched;
	shard->matched[shard->nmatched++] = (struct matched){.session = s, .qos = sub->qos};
}

static void found(void *arg, struct topic_node *node)
{
	const struct matching *matching = arg;
	const struct message *m = matching->m;

	for (const struct subscription *sub = node->value; sub; sub = sub->next_of_node)
		if (!m->retain_order || m->retain_order > sub->seen)
			add(matching->shard, sub);
}

static void deliver(struct shard *shard, struct message *m)
{
	struct matching matching = {.shard = shard, .m = m};

	shard->match++;
	shard->nmatched = 0;
	topics_match_topic(&shard->subscriptions, m->topic, found, &matching);
	for (size_t i = 0; i < shard->nmatched; i++) {
		const struct matched *to = &shard->matched[i];

		session_enqueue(to->session, m, m->qos < to->qos ? m->qos : to->qos, false, false);
	}
}

/* ---- all shards ---- */

static void delivered(struct loop_message *message)
{
	struct delivery *d = (struct delivery *)message;
	struct message *m = d->what;

	deliver(d->to, m);
	message_put(m); /* d is a part of it */
}

void shard_publish(struct shard *shard, struct message *message)
{
	struct broker *broker = shard->broker;
	struct delivery *deliveries = message->extra;

	/*
	 * A subscriber that comes between these two gets it twice if nothing is done: sub->seen. One whose
	 * subscription is not counted below finds it in the store.
	 */
	if (message->retain)
		retained_set(&broker->retained, message);
	for (unsigned int i = 0; i < broker->nshards; i++) {
		struct shard *to = &broker->shards[i];

		if (to == shard || !atomic_load_explicit(&to->subscribed, memory_order_seq_cst))
			continue;
		deliveries[i] =
			(struct delivery){.message.run = delivered, .what = message, .to = to};
		message_ref(message);
		loop_post(to->loop, &deliveries[i].message);
	}
	deliver(shard, message);
}
