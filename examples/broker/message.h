/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A message: topic and payload, shared by all who have it queued and by the store of retained ones.
 * The payload is a list of the chunks that it came in, and stays in them: whoever sends it does so
 * from there. Nothing of a message changes once it has been made.
 *
 * Threads: a message may be held by several at once.
 */
#ifndef BROKER_MESSAGE_H
#define BROKER_MESSAGE_H

#include <sgpool/sgpool.h>

#include "budget.h"
#include "mqtt.h"

struct message {
	atomic_uint refs;
	uint8_t qos;
	bool retain;
	struct budget *budget;
	uint64_t publisher;    /* session that sent it */
	uint64_t retain_order; /* among all that were retained, from 1 on; 0: not */
	size_t bytes;          /* of this structure, with its arrays */
	size_t chunk_bytes;    /* of its chunks, which it may share with others */
	struct mqtt_bytes topic;
	struct sgp_sgl payload; /* sge, chunk, the caller's memory and the topic stand behind */
	void *extra;
};

/*
 * Make one, with a reference for the caller; what payload holds moves into it (NULL: no payload).
 * extra: bytes of zeros that the message has for the caller, a multiple of 8.
 * Returns NULL with ENOMEM, and payload is as it was.
 */
struct message *message_create(struct budget *budget, const struct mqtt_publish *publish,
			       struct sgp_sgl *payload, size_t extra);
void message_ref(struct message *message);
void message_put(struct message *message); /* NULL does nothing */

/* What it may keep of memory by itself: a short one the whole chunk that it's in. */
static inline size_t message_cost(const struct message *message)
{
	return message->bytes + message->chunk_bytes;
}

#endif
