/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A session's subscriptions: each hangs at its filter's node in the shard's tree, in a list of those
 * of that filter, and in a list of the session's.
 */
#include "session.h"

static struct subscription *find(const struct session *s, const struct topic_node *node)
{
	struct subscription *sub = node ? node->value : NULL;

	while (sub && sub->session != s)
		sub = sub->next_of_node;
	return sub;
}

static void link_in(struct subscription *sub)
{
	struct subscription *first = sub->node->value;

	sub->next_of_node = first;
	sub->prev_of_node = (struct subscription **)&sub->node->value;
	if (first)
		first->prev_of_node = &sub->next_of_node;
	sub->node->value = sub;
	first = sub->session->subscriptions;
	sub->next_of_session = first;
	sub->prev_of_session = &sub->session->subscriptions;
	if (first)
		first->prev_of_session = &sub->next_of_session;
	sub->session->subscriptions = sub;
}

uint8_t session_subscribe(struct session *session, struct mqtt_bytes filter, uint8_t qos)
{
	struct shard *shard = session->shard;
	struct broker *broker = shard->broker;
	struct topic_node *node;
	struct subscription *sub;

	if (qos > 1)
		qos = 1; /* what there is [MQTT-3.8.4-6] */
	if (!topics_can_hold(filter))
		return MQTT_SUBACK_FAILURE;
	sub = find(session, topics_find(&shard->subscriptions, filter));
	if (sub) { /* the same anew [MQTT-3.8.4-3] */
		sub->qos = qos;
		return qos;
	}
	if (session->nsubscriptions >= broker->settings.max_subscriptions)
		return MQTT_SUBACK_FAILURE;
	sub = budget_alloc(&broker->budget, sizeof *sub);
	node = sub ? topics_add(&shard->subscriptions, filter) : NULL;
	if (!node) {
		budget_free(&broker->budget, sub, sizeof *sub);
		return MQTT_SUBACK_FAILURE;
	}
	sub->session = session;
	sub->node = node;
	sub->qos = qos;
	link_in(sub);
	session->nsubscriptions++;
	shard->counters.subscriptions++;
	atomic_fetch_add_explicit(&shard->subscribed, 1, memory_order_seq_cst);
	return qos;
}

static void drop(struct subscription *sub)
{
	struct session *s = sub->session;
	struct topic_node *node = sub->node;

	*sub->prev_of_node = sub->next_of_node;
	if (sub->next_of_node)
		sub->next_of_node->prev_of_node = sub->prev_of_node;
	*sub->prev_of_session = sub->next_of_session;
	if (sub->next_of_session)
		sub->next_of_session->prev_of_session = sub->prev_of_session;
	s->nsubscriptions--;
	s->shard->counters.subscriptions--;
	atomic_fetch_sub_explicit(&s->shard->subscribed, 1, memory_order_relaxed);
	budget_free(&s->shard->broker->budget, sub, sizeof *sub);
	topics_prune(&s->shard->subscriptions, node);
}

void session_unsubscribe(struct session *session, struct mqtt_bytes filter)
{
	struct subscription *sub =
		find(session, topics_find(&session->shard->subscriptions, filter));

	if (sub)
		drop(sub);
}

void session_unsubscribe_all(struct session *session)
{
	for (struct subscription *sub = session->subscriptions, *next; sub; sub = next) {
		next = sub->next_of_session;
		drop(sub);
	}
}

/* ---- what is retained ---- */

struct sending {
	struct subscription *sub;
	bool unlimited; /* they are kept anyway: a queue that has room takes all of them */
};

/* Under the store's lock: a session that ends by this is only marked and told to close. */
static void send_one(void *arg, struct message *m)
{
	const struct sending *sending = arg;
	const struct subscription *sub = sending->sub;
	const uint8_t qos = m->qos < sub->qos ? m->qos : sub->qos;

	session_enqueue(sub->session, m, qos, true, sending->unlimited);
}

void session_send_retained(struct session *session, struct mqtt_bytes filter)
{
	struct shard *shard = session->shard;
	const struct queue_limits *limits = &shard->broker->settings.queue;
	struct sending sending = {.sub = find(session, topics_find(&shard->subscriptions, filter)),
				  .unlimited = !queue_full(&session->queue, limits, 0)};

	if (sending.sub)
		sending.sub->seen =
			retained_match(&shard->broker->retained, filter, send_one, &sending);
}
