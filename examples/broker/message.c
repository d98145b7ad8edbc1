/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages, see message.h. */
#include <string.h>

#include "message.h"

struct message *message_create(struct budget *budget, const struct mqtt_publish *publish,
			       struct sgp_sgl *payload, size_t extra)
{
	const int sges = payload ? payload->num_sge : 0, chunks = payload ? payload->num_chunk : 0;
	const size_t bytes = sizeof(struct message) + (size_t)sges * sizeof(struct ibv_sge) +
			     (size_t)chunks * sizeof(struct sgp_chunk *) + extra + publish->topic.n;
	struct message *m = budget_alloc(budget, bytes);
	struct ibv_sge *sge;
	struct sgp_chunk **chunk;
	uint8_t *topic;

	if (!m)
		return NULL;
	sge = (struct ibv_sge *)(m + 1);
	chunk = (struct sgp_chunk **)(sge + sges);
	m->extra = chunk + chunks;
	topic = (uint8_t *)m->extra + extra;
	sgp_sgl_init(&m->payload, sge, sges, chunk, chunks);
	/* There is room for just that, and an empty list takes memory of any kind. */
	if (chunks && sgp_sgl_move(&m->payload, payload)) {
		budget_free(budget, m, bytes);
		return NULL;
	}
	for (int i = 0; i < m->payload.num_chunk; i++)
		m->chunk_bytes += sgp_chunk_size(m->payload.chunk[i]);
	memcpy(topic, publish->topic.p, publish->topic.n);
	m->topic = (struct mqtt_bytes){.p = topic, .n = publish->topic.n};
	m->qos = publish->qos;
	m->retain = publish->retain;
	m->budget = budget;
	m->bytes = bytes;
	atomic_init(&m->refs, 1);
	return m;
}

void message_ref(struct message *message)
{
	atomic_fetch_add_explicit(&message->refs, 1, memory_order_relaxed);
}

void message_put(struct message *message)
{
	if (!message)
		return;
	if (atomic_fetch_sub_explicit(&message->refs, 1, memory_order_acq_rel) != 1)
		return;
	sgp_sgl_clear(&message->payload);
	budget_free(message->budget, message, message->bytes);
}
