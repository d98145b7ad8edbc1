/* SPDX-License-Identifier: BSD-2-Clause */
/* What waits for one subscriber, see queue.h. */
#include <string.h>

#include "queue.h"

enum {
	ROOM_MIN = 8,
};

bool queue_full(const struct queue *queue, const struct queue_limits *limits, size_t cost)
{
	if (queue->n == 0)
		return false;
	return queue->n >= limits->messages || queue->bytes + cost > limits->bytes;
}

static size_t ring_bytes(size_t room)
{
	return room * sizeof(struct queue_entry);
}

static int grow(struct queue *queue)
{
	const size_t room = queue->room ? 2 * queue->room : ROOM_MIN;
	struct queue_entry *ring = budget_alloc(queue->budget, ring_bytes(room));

	if (!ring)
		return -1;
	for (size_t i = 0; i < queue->n; i++)
		ring[i] = *queue_at(queue, i);
	budget_free(queue->budget, queue->ring, ring_bytes(queue->room));
	queue->ring = ring;
	queue->room = room;
	queue->first = 0;
	return 0;
}

int queue_push(struct queue *queue, struct message *message, uint8_t qos, bool retain)
{
	if (queue->n == queue->room && grow(queue))
		return -1;
	message_ref(message);
	*queue_at(queue, queue->n++) =
		(struct queue_entry){.message = message, .qos = qos, .retain = retain};
	queue->bytes += message_cost(message);
	queue->qos0 += qos == 0;
	return 0;
}

/* An entry that leaves. */
static void release(struct queue *queue, const struct queue_entry *entry)
{
	queue->bytes -= message_cost(entry->message);
	queue->qos0 -= entry->qos == 0;
	message_put(entry->message);
}

static void give_back(struct queue *queue)
{
	if (queue->n || queue->room <= ROOM_MIN)
		return;
	budget_free(queue->budget, queue->ring, ring_bytes(queue->room));
	queue->ring = NULL;
	queue->room = queue->first = 0;
}

void queue_pop(struct queue *queue, size_t count)
{
	for (size_t i = 0; i < count; i++)
		release(queue, queue_at(queue, i));
	queue->n -= count;
	queue->first = queue->room ? (queue->first + count) & (queue->room - 1) : 0;
	give_back(queue);
}

size_t queue_drop_qos0(struct queue *queue, size_t messages, size_t bytes)
{
	size_t kept = 0, dropped = 0;

	if (!queue->qos0)
		return 0;
	for (size_t i = 0; i < queue->n; i++) {
		const struct queue_entry entry = *queue_at(queue, i);

		if (entry.qos == 0 && (queue->n - dropped > messages || queue->bytes > bytes)) {
			release(queue, &entry);
			dropped++;
		} else {
			*queue_at(queue, kept++) = entry;
		}
	}
	queue->n = kept;
	give_back(queue);
	return dropped;
}

void queue_clear(struct queue *queue)
{
	queue_pop(queue, queue->n);
	budget_free(queue->budget, queue->ring, ring_bytes(queue->room));
	queue->ring = NULL;
	queue->room = queue->first = 0;
}
