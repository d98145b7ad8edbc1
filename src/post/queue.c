/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pool/errmsg.h"
#include "pool/owner.h"
#include "post/queue.h"

int sgp_side_init(struct sgp_side *side, uint32_t depth, int max_sge, int max_chunk, bool unlocked)
{
	uint32_t ring = 1;

	while (ring < depth)
		ring *= 2;
	*side = (struct sgp_side){
		.depth = depth, .mask = ring - 1, .max_sge = max_sge, .max_chunk = max_chunk};
	side->slot = aligned_alloc(_Alignof(struct sgp_slot), ring * sizeof *side->slot);
	side->chunks = calloc((size_t)ring * (size_t)max_chunk, sizeof(struct sgp_chunk *));
	side->sges = calloc((size_t)ring * (size_t)max_sge, sizeof *side->sges);
	if (!side->slot || !side->chunks || !side->sges) {
		free(side->sges);
		free(side->chunks);
		free(side->slot);
		return sgp_fail(ENOMEM, "no memory for a queue of %u slots", depth);
	}
	memset(side->slot, 0, ring * sizeof *side->slot);
	for (uint32_t i = 0; i < ring; i++) {
		side->slot[i].chunk = side->chunks + (size_t)i * (size_t)max_chunk;
		side->slot[i].sge = side->sges + (size_t)i * (size_t)max_sge;
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

/*
 * The tail moves in order only: a slot in the middle that ended early waits for those before it, as
 * the device's own queue does.
 */
uint32_t sgp_side_room(struct sgp_side *side)
{
	while (side->tail != side->head &&
	       !atomic_load_explicit(&sgp_side_slot(side, side->tail)->tag, memory_order_acquire))
		side->tail++;
	return side->depth - (side->head - side->tail);
}

void sgp_side_withdraw(struct sgp_side *side, uint32_t seq)
{
	while (side->head != seq) {
		side->head--;
		atomic_store_explicit(&sgp_side_slot(side, side->head)->tag, 0,
				      memory_order_relaxed);
	}
}

void sgp_side_recount(struct sgp_side *side)
{
	side->unsignalled = 0;
	for (uint32_t seq = side->head; seq != side->tail; seq--) {
		const struct sgp_slot *slot = sgp_side_slot(side, seq - 1);

		/* Neither signalled for those before it, nor retired with them. */
		if (slot->flags & SGP_SLOT_UNTAKEN)
			continue;
		/* A free one was retired, and so were all before it. */
		if (!atomic_load_explicit(&slot->tag, memory_order_acquire) ||
		    slot->flags & SGP_SLOT_SIGNALLED)
			return;
		side->unsignalled++;
	}
}

void sgp_slot_tell_sinks(const struct sgp_slot *slot, bool posted)
{
	if (!(slot->opcode & IBV_WC_RECV) && slot->opcode != IBV_WC_RDMA_READ &&
	    slot->opcode != IBV_WC_COMP_SWAP && slot->opcode != IBV_WC_FETCH_ADD)
		return;
	for (int i = 0; i < slot->num_chunk; i++) {
		struct sgp_chunk *chunk = slot->chunk[i];

		if (chunk->owner->kind->sink)
			chunk->owner->kind->sink(chunk, posted);
	}
}
