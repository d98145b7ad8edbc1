/* SPDX-License-Identifier: BSD-2-Clause */
/* The retained messages, see retained.h. */
#include "retained.h"

int retained_open(struct retained *retained, struct budget *budget, size_t max_bytes)
{
	*retained = (struct retained){.max_bytes = max_bytes};
	if (topics_open(&retained->topics, budget))
		return -1;
	pthread_mutex_init(&retained->lock, NULL);
	return 0;
}

static struct message *take(struct retained *retained, struct topic_node *node)
{
	struct message *old = node ? node->value : NULL;

	if (old) {
		node->value = NULL;
		retained->messages--;
		retained->bytes -= message_cost(old);
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
	pthread_mutex_destroy(&retained->lock);
}

/* Returns what was there before, for the caller to put without the lock. */
static struct message *replace(struct retained *retained, struct message *message)
{
	const size_t cost = message_cost(message);
	struct topic_node *node = topics_find(&retained->topics, message->topic);
	struct message *old = take(retained, node);

	if (!message->payload.length) { /* [MQTT-3.3.1-10], [MQTT-3.3.1-11] */
		if (node)
			topics_prune(&retained->topics, node);
		return old;
	}
	if (retained->bytes + cost > retained->max_bytes || !topics_can_hold(message->topic) ||
	    !(node = topics_add(&retained->topics, message->topic))) {
		/* The old one is not the topic's last message any more. */
		node = topics_find(&retained->topics, message->topic);
		if (node)
			topics_prune(&retained->topics, node);
		retained->refused++;
		return old;
	}
	message_ref(message);
	node->value = message;
	retained->messages++;
	retained->bytes += cost;
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
	*bytes = retained->bytes;
	*refused = retained->refused;
	pthread_mutex_unlock(&retained->lock);
}
