/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A tree of topics or filters, a node for each level of a name:
 *
 *      a/b/c, a/+/c, a/#      root -- a --+-- b -- c
 *                                         +-- + -- c
 *                                         +-- #
 *
 * What is kept at a node is the caller's: he allocates nothing, but sets value. One tree is used for
 * subscriptions, whose filters are matched against a topic, and one for retained messages, whose
 * topics are matched against a filter.
 *
 * All nodes are found by one hash table of parent and level, so that a node of a million children
 * costs no more than one of two. A node without value and children goes. Locking is the caller's.
 */
#ifndef BROKER_TOPICS_H
#define BROKER_TOPICS_H

#include "budget.h"
#include "mqtt.h"

enum {
	TOPIC_LEVELS =
		128, /* of a topic or filter at most: what walks the tree calls itself so deep */
};

struct topic_node {
	void *value;
	struct topic_node *parent, *children, *next, **prev; /* prev: what points to it */
	struct topic_node *same;                             /* of one bucket */
	uint32_t hash;
	uint16_t n;
	uint8_t level[];
};

struct topics {
	struct budget *budget;
	struct topic_node *root;
	struct topic_node **buckets;
	size_t nbuckets, nodes;
};

/* Returns 0; -1 with ENOMEM. */
int topics_open(struct topics *topics, struct budget *budget);
void topics_close(struct topics *topics); /* values are not looked at */

/* Not more levels than can be handled? */
bool topics_can_hold(struct mqtt_bytes name);

/* The node of a name; topics_add() makes it. Return NULL when there is none, or with ENOMEM. */
struct topic_node *topics_find(struct topics *topics, struct mqtt_bytes name);
struct topic_node *topics_add(struct topics *topics, struct mqtt_bytes name);

/* Call this when a node's value has become NULL, or topics_add() was in vain. */
void topics_prune(struct topics *topics, struct topic_node *node);

typedef void topics_found(void *arg, struct topic_node *node);

/* Every node with a value; found() may set it to NULL, and nothing else. */
void topics_each(struct topics *topics, topics_found *found, void *arg);

/* Every node with a value whose filter matches the topic. */
void topics_match_topic(struct topics *topics, struct mqtt_bytes topic, topics_found *found,
			void *arg);

/* Every node with a value whose topic the filter matches; found() must not change the tree. */
void topics_match_filter(struct topics *topics, struct mqtt_bytes filter, topics_found *found,
			 void *arg);

#endif
