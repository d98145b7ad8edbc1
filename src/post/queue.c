/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pool/errmsg.h"
#include "post/queue.h"

int sgp_side_init(struct sgp_side *side, uint32_t depth, int max_sge, int max_chunk, bool keep_sges,
		  bool unlocked)
{
	uint32_t ring = 1;

	while (ring < depth)
		ring *= 2;
	*side = (struct sgp_side){
		.depth = depth, .mask = ring - 1, .max_sge = max_sge, .max_chunk = max_chunk};
	side->slot = calloc(ring, sizeof *side->slot);
	side->chunks = calloc((size_t)ring * max_chunk, sizeof(struct sgp_chunk *));
	side->sges = keep_sges ? calloc((size_t)ring * max_sge, sizeof *side->sges) : NULL;
	if (!side->slot || !side->chunks || (keep_sges && !side->sges)) {
		free(side->sges);
		free(side->chunks);
		free(side->slot);
		return sgp_fail(ENOMEM, "no memory for a queue of %u slots", depth);
	}
	for (uint32_t i = 0; i < ring; i++) {
		side->slot[i].chunk = side->chunks + (size_t)i * max_chunk;
		side->slot[i].sge = keep_sges ? side->sges + (size_t)i * max_sge : NULL;
	}
	sgp_lock_init(&side->lock, unlocked);
	return 0;
}

void sgp_side_fini(struct sgp_side *side)
{
	sgp_lock_destroy(&side->lock);
	free(side->sges);
	free(side->chunks);
	free(side->slot);
}

static bool slot_is_free(struct sgp_side *side, uint32_t seq)
{
	return !atomic_load_explicit(&side->slot[seq & side->mask].tag, memory_order_acquire);
}

/*
 * In order only: a slot in the middle that was ended early waits for those before it, as the
 * device's own queue does.
 */
static void advance(struct sgp_side *side)
{
	while (side->tail != side->head && slot_is_free(side, side->tail))
		side->tail++;
}

uint32_t sgp_side_room(struct sgp_side *side)
{
	advance(side);
	return side->depth - (side->head - side->tail);
}

struct sgp_slot *sgp_side_next(struct sgp_side *side)
{
	if (side->head - side->tail >= side->depth && !sgp_side_room(side))
		return NULL;
	return &side->slot[side->head & side->mask];
}

uint64_t sgp_side_offer(struct sgp_side *side, struct sgp_slot *slot, const struct sgp_sgl *sgl,
			void *context, enum sgp_opcode op, uint8_t flags)
{
	uint64_t wr_id = side->wr_base | side->head;

	slot->context = context;
	slot->op = (uint8_t)op;
	slot->flags = flags;
	slot->error = 0;
	slot->num_chunk = (uint16_t)sgl->num_chunk;
	memcpy(slot->chunk, sgl->chunk, sgl->num_chunk * sizeof(struct sgp_chunk *));
	if (slot->sge) {
		slot->length = sgl->length;
		slot->pds = sgl->pds;
		slot->access = sgl->access;
		slot->num_sge = (uint16_t)sgl->num_sge;
		memcpy(slot->sge, sgl->sge, sgl->num_sge * sizeof(struct ibv_sge));
	}
	atomic_store_explicit(&slot->tag, wr_id, memory_order_release);
	return wr_id;
}

void sgp_side_withdraw(struct sgp_slot *slot)
{
	atomic_store_explicit(&slot->tag, 0, memory_order_relaxed);
}

void sgp_side_commit(struct sgp_side *side)
{
	side->head++;
}
