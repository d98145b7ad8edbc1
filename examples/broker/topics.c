/* SPDX-License-Identifier: BSD-2-Clause */
/* A tree of topics, see topics.h. */
#include <assert.h>
#include <string.h>

#include "hash.h"
#include "topics.h"

enum {
	BUCKETS_MIN = 64,
};

/* ---- levels of a name ---- */

/* Cut the first level off; *last: there was no '/' behind it. */
static struct mqtt_bytes next_level(struct mqtt_bytes *name, bool *last)
{
	const uint8_t *slash = name->n ? memchr(name->p, '/', name->n) : NULL;
	struct mqtt_bytes level = *name;

	*last = !slash;
	if (slash) {
		level.n = (uint16_t)(slash - name->p);
		name->p += level.n + 1;
		name->n = (uint16_t)(name->n - level.n - 1);
	}
	return level;
}

bool topics_can_hold(struct mqtt_bytes name)
{
	int levels = 1;

	for (uint16_t i = 0; i < name.n; i++)
		levels += name.p[i] == '/';
	return levels <= TOPIC_LEVELS;
}

/* ---- the hash table ---- */

static uint32_t hash_of(const struct topic_node *parent, struct mqtt_bytes level)
{
	const uint32_t hash = hash_bytes(HASH_START, &parent, sizeof parent);

	return hash_bytes(hash, level.p, level.n);
}

static struct topic_node **bucket(struct topics *topics, uint32_t hash)
{
	return &topics->buckets[hash & (topics->nbuckets - 1)];
}

static struct topic_node *child(struct topics *topics, const struct topic_node *parent,
				struct mqtt_bytes level)
{
	const uint32_t hash = hash_of(parent, level);
	struct topic_node *node = *bucket(topics, hash);

	while (node && (node->hash != hash || node->parent != parent || node->n != level.n ||
			(level.n && memcmp(node->level, level.p, level.n) != 0)))
		node = node->same;
	return node;
}

static struct topic_node *child_named(struct topics *topics, const struct topic_node *parent,
				      const char *level)
{
	return child(topics, parent, (struct mqtt_bytes){.p = (const uint8_t *)level, .n = 1});
}

/* Twice the buckets, if there is memory for them: else it is slower, and right. */
static void widen(struct topics *topics)
{
	const size_t n = topics->nbuckets;
	struct topic_node **old = topics->buckets;
	struct topic_node **buckets = budget_alloc(topics->budget, 2 * n * sizeof(void *));

	if (!buckets)
		return;
	topics->buckets = buckets;
	topics->nbuckets = 2 * n;
	for (size_t i = 0; i < n; i++) {
		while (old[i]) {
			struct topic_node *node = old[i];

			old[i] = node->same;
			node->same = *bucket(topics, node->hash);
			*bucket(topics, node->hash) = node;
		}
	}
	budget_free(topics->budget, old, n * sizeof(void *));
}

/* ---- nodes ---- */

static struct topic_node *new_node(struct topics *topics, struct topic_node *parent,
				   struct mqtt_bytes level)
{
	struct topic_node *node = budget_alloc(topics->budget, sizeof(struct topic_node) + level.n);

	if (!node)
		return NULL;
	node->n = level.n;
	if (level.n)
		memcpy(node->level, level.p, level.n);
	topics->nodes++;
	if (!parent)
		return node;
	if (topics->nodes > topics->nbuckets)
		widen(topics);
	node->parent = parent;
	node->next = parent->children;
	if (node->next)
		node->next->prev = &node->next;
	node->prev = &parent->children;
	parent->children = node;
	node->hash = hash_of(parent, level);
	node->same = *bucket(topics, node->hash);
	*bucket(topics, node->hash) = node;
	return node;
}

static void free_node(struct topics *topics, struct topic_node *node)
{
	budget_free(topics->budget, node, sizeof(struct topic_node) + node->n);
	topics->nodes--;
}

void topics_prune(struct topics *topics, struct topic_node *node)
{
	while (node->parent && !node->value && !node->children) {
		struct topic_node *parent = node->parent;
		struct topic_node **at = bucket(topics, node->hash);

		while (*at != node)
			at = &(*at)->same;
		*at = node->same;
		*node->prev = node->next;
		if (node->next)
			node->next->prev = node->prev;
		free_node(topics, node);
		node = parent;
	}
}

int topics_open(struct topics *topics, struct budget *budget)
{
	*topics = (struct topics){.budget = budget, .nbuckets = BUCKETS_MIN};
	topics->buckets = budget_alloc(budget, BUCKETS_MIN * sizeof(void *));
	if (!topics->buckets)
		return -1;
	topics->root = new_node(topics, NULL, (struct mqtt_bytes){0});
	if (topics->root)
		return 0;
	budget_free(budget, topics->buckets, BUCKETS_MIN * sizeof(void *));
	return -1;
}

/* Leaves first. */
static void free_below(struct topics *topics, struct topic_node *node)
{
	while (node->children) {
		struct topic_node *first = node->children;

		node->children = first->next;
		free_below(topics, first);
		free_node(topics, first);
	}
}

void topics_close(struct topics *topics)
{
	free_below(topics, topics->root);
	free_node(topics, topics->root);
	budget_free(topics->budget, topics->buckets, topics->nbuckets * sizeof(void *));
}

struct topic_node *topics_find(struct topics *topics, struct mqtt_bytes name)
{
	struct topic_node *node = topics->root;
	bool last = false;

	while (node && !last) {
		const struct mqtt_bytes level = next_level(&name, &last);

		node = child(topics, node, level);
	}
	return node;
}

struct topic_node *topics_add(struct topics *topics, struct mqtt_bytes name)
{
	struct topic_node *node = topics->root;
	bool last = false;

	assert(node); /* there is one from the beginning */
	while (!last) {
		const struct mqtt_bytes level = next_level(&name, &last);
		struct topic_node *next = child(topics, node, level);

		if (!next)
			next = new_node(topics, node, level);
		if (!next) {
			topics_prune(topics, node);
			return NULL;
		}
		node = next;
	}
	return node;
}

/* ---- matching ---- */

struct match {
	struct topics *topics;
	topics_found *found;
	void *arg;
	bool dollar; /* a topic that begins with '$' is not for wildcards at the first level */
};

static void tell(const struct match *m, struct topic_node *node)
{
	if (node && node->value)
		m->found(m->arg, node);
}

/* Filters below node against the rest of a topic. */
static void match_topic(const struct match *m, struct topic_node *node, struct mqtt_bytes rest)
{
	const bool wild = node->parent || !m->dollar;
	struct topic_node *next[2];
	struct mqtt_bytes level;
	bool last;

	if (!node->children)
		return;
	level = next_level(&rest, &last);
	next[0] = child(m->topics, node, level);
	next[1] = wild ? child_named(m->topics, node, "+") : NULL;
	if (wild)
		tell(m, child_named(m->topics, node, "#"));
	for (int i = 0; i < 2; i++) {
		if (next[i] && last) {
			tell(m, next[i]);
			tell(m, child_named(m->topics, next[i], "#")); /* "a/#" is "a" too */
		} else if (next[i]) {
			match_topic(m, next[i], rest);
		}
	}
}

void topics_match_topic(struct topics *topics, struct mqtt_bytes topic, topics_found *found,
			void *arg)
{
	const struct match m = {.topics = topics,
				.found = found,
				.arg = arg,
				.dollar = topic.n && topic.p[0] == '$'};

	match_topic(&m, topics->root, topic);
}

/* Not for a wildcard at the first level [MQTT-4.7.2-1]. */
static bool hidden(const struct topic_node *node)
{
	return !node->parent->parent && node->n && node->level[0] == '$';
}

static void tell_all(const struct match *m, struct topic_node *node)
{
	tell(m, node);
	for (struct topic_node *c = node->children; c; c = c->next)
		if (!hidden(c))
			tell_all(m, c);
}

/* Topics below node against the rest of a filter. */
static void match_filter(const struct match *m, struct topic_node *node, struct mqtt_bytes rest)
{
	bool last;
	const struct mqtt_bytes level = next_level(&rest, &last);
	struct topic_node *next;

	if (level.n == 1 && level.p[0] == '#') {
		tell_all(m, node); /* the node itself too: "a/#" is "a" */
		return;
	}
	if (level.n == 1 && level.p[0] == '+') {
		for (next = node->children; next; next = next->next) {
			if (hidden(next))
				continue;
			if (last)
				tell(m, next);
			else
				match_filter(m, next, rest);
		}
		return;
	}
	next = child(m->topics, node, level);
	if (!next)
		return;
	if (last)
		tell(m, next);
	else
		match_filter(m, next, rest);
}

static void each(const struct match *m, struct topic_node *node)
{
	tell(m, node);
	for (struct topic_node *c = node->children; c; c = c->next)
		each(m, c);
}

void topics_each(struct topics *topics, topics_found *found, void *arg)
{
	const struct match m = {.topics = topics, .found = found, .arg = arg};

	each(&m, topics->root);
}

void topics_match_filter(struct topics *topics, struct mqtt_bytes filter, topics_found *found,
			 void *arg)
{
	const struct match m = {.topics = topics, .found = found, .arg = arg};

	match_filter(&m, topics->root, filter);
}
