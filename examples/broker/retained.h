/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The retained messages, one a topic, for all threads: a tree of topics under one lock, which is held
 * for steps in memory only. They stay in the chunks that they came in.
 *
 * Each message that is told to it gets a number, its place in one order. A subscriber that is given
 * what is retained learns the number of the last one: of those that are on their way to it still, it
 * has seen the ones up to that number (or a newer one of the same topic), and must not get them twice.
 */
#ifndef BROKER_RETAINED_H
#define BROKER_RETAINED_H

#include <pthread.h>

#include "message.h"
#include "pins.h"
#include "topics.h"

struct retained {
	pthread_mutex_t lock;
	struct topics topics;
	struct pins pins;
	size_t messages;
	uint64_t order;   /* of the last one */
	uint64_t refused; /* not kept: too much memory (pins.h), or too many levels */
};

/* pool: where messages are. Returns 0; -1 with ENOMEM. */
int retained_open(struct retained *retained, struct budget *budget, struct sgp_pool *pool);
void retained_close(struct retained *retained);

/*
 * A message with the retain flag has come: it replaces the topic's, or, when it's empty, removes it.
 * Sets message->retain_order; nobody else may have the message yet.
 */
void retained_set(struct retained *retained, struct message *message);

/*
 * Call found() for each message whose topic the filter matches, under the lock: it must not call
 * back. Returns the order of the last one.
 */
uint64_t retained_match(struct retained *retained, struct mqtt_bytes filter,
			void (*found)(void *arg, struct message *message), void *arg);

/* bytes: of the chunks that they keep. */
void retained_numbers(struct retained *retained, size_t *messages, size_t *bytes,
		      uint64_t *refused);

#endif
