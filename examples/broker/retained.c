/* SPDX-License-Identifier: BSD-2-Clause */
/* The retained messages, see retained.h. */
#include "retained.h"

int retained_open(struct retained *retained, struct budget *budget, struct sgp_pool *pool)
{
	*retained = (struct retained){.messages = 0};
	if (pins_open(&retained->pins, budget, pool))
		return -1;
	if (topics_open(&retained->topics, budget)) {
		pins_close(&retained->pins);
		return -1;
	}
	pthread_mutex_init(&retained->lock, NULL);
	return 0;
}

static struct message *take(struct retained *retained, struct topic_node *node)
{
	struct message *old = node ? node->value : NULL;

	if (old) {
		node->value = NULL;
		retained->messages--;
		pins_remove(&retained->pins, &old->payload);
	}
	return old;
}

static void drop(void *arg, struct topic_node *node)
{
	message_put(take(arg, node));
}

void retained_close(struct retained *retained)
{
	topics_each(&retained->topics, drop, retained);
	topics_close(&retained->topics);
	pins_close(&retained->pins);
	pthread_mutex_destroy(&retained->lock);
}

/* The node that keeps it from now on; NULL when it can't be kept. */
static struct topic_node *keep(struct retained *retained, struct message *message)
{
	struct topic_node *node;

	if (!topics_can_hold(message->topic) || pins_add(&retained->pins, &message->payload))
		return NULL;
	node = topics_add(&retained->topics, message->topic);
	if (!node) {
		pins_remove(&retained->pins, &message->payload);
		return NULL;
	}
	message_ref(message);
	node->value = message;
	retained->messages++;
	return node;
}

/* Returns what was there before, for the caller to put without the lock. */
static struct message *replace(struct retained *retained, struct message *message)
{
	struct topic_node *node = topics_find(&retained->topics, message->topic);
	struct message *old = take(retained, node);

	/* An empty one removes the topic's [MQTT-3.3.1-10], [MQTT-3.3.1-11]. */
	if (message->payload.length) {
		if (keep(retained, message))
			return old;
		/* Nor is the old one the topic's last message any more. */
		retained->refused++;
		node = topics_find(&retained->topics, message->topic);
	}
	if (node)
		topics_prune(&retained->topics, node);
	return old;
}

void retained_set(struct retained *retained, struct message *message)
{
	struct message *old;

	pthread_mutex_lock(&retained->lock);
	message->retain_order = ++retained->order;
	old = replace(retained, message);
	pthread_mutex_unlock(&retained->lock);
	message_put(old);
}

struct matching {
	void (*found)(void *arg, struct message *message);
	void *arg;
};

static void tell(void *arg, struct topic_node *node)
{
	const struct matching *m = arg;

	m->found(m->arg, node->value);
}

uint64_t retained_match(struct retained *retained, struct mqtt_bytes filter,
			void (*found)(void *arg, struct message *message), void *arg)
{
	struct matching m = {.found = found, .arg = arg};
	uint64_t order;

	pthread_mutex_lock(&retained->lock);
	topics_match_filter(&retained->topics, filter, tell, &m);
	order = retained->order;
	pthread_mutex_unlock(&retained->lock);
	return order;
}

void retained_numbers(struct retained *retained, size_t *messages, size_t *bytes, uint64_t *refused)
{
	pthread_mutex_lock(&retained->lock);
	*messages = retained->messages;
	*bytes = pins_bytes(&retained->pins);
	*refused = retained->refused;
	pthread_mutex_unlock(&retained->lock);
}
