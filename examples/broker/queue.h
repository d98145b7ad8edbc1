/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What waits for one subscriber: messages by reference, in their order, within limits. One thread.
 */
#ifndef BROKER_QUEUE_H
#define BROKER_QUEUE_H

#include "message.h"

struct queue_entry {
	struct message *message;
	uint8_t qos; /* of the delivery */
	bool retain; /* the flag that goes out with it */
};

/* A ring that grows. Zeroed, with its budget set, it is empty. */
struct queue {
	struct budget *budget;
	struct queue_entry *ring;
	size_t room, first, n; /* room is 0 or a power of two */
	size_t bytes;          /* message_cost() of all */
	size_t qos0;           /* entries of QoS 0 */
};

struct queue_limits {
	size_t messages, bytes;
};

/* Would one more message of that cost be above the limits? One message is never too much. */
bool queue_full(const struct queue *queue, const struct queue_limits *limits, size_t cost);

/* Append; it takes a reference of its own. Returns 0; -1 with ENOMEM. */
int queue_push(struct queue *queue, struct message *message, uint8_t qos, bool retain);

/* Entry i from the front, i < n. */
static inline struct queue_entry *queue_at(struct queue *queue, size_t i)
{
	return &queue->ring[(queue->first + i) & (queue->room - 1)];
}

/* Drop the first count entries, which have been sent. An emptied queue gives its ring back. */
void queue_pop(struct queue *queue, size_t count);

/*
 * Drop entries of QoS 0, the oldest first, until there are at most so many messages and bytes, or no
 * more such entries. Returns how many went.
 */
size_t queue_drop_qos0(struct queue *queue, size_t messages, size_t bytes);

void queue_clear(struct queue *queue);

#endif
