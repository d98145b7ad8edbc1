/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The list that a completion hands back, made of what its slots have: SGEs and holds. The slots are the
 * poller's still; all of it runs under the queue's lock.
 */
#include <string.h>

#include "post/checked.h"
#include "post/ep.h"
#include "post/sgl.h"

/* Whether an SGE goes on where the list ends: the message limit had cut it in two. */
static bool continues(const struct sgp_sgl *sgl, const struct ibv_sge *next)
{
	const struct ibv_sge *last = sgl->sge + sgl->num_sge - 1;

	return sgl->num_sge && last->addr + last->length == next->addr &&
	       last->lkey == next->lkey &&
	       (uint64_t)last->length + next->length <= SGP_MAX_SGE_LENGTH;
}

void sgp_hand_over(struct sgp_side *side, const struct sgp_slot *leader, struct sgp_sgl *sgl)
{
	uint32_t first = sgp_slot_seq(leader) - leader->parts + 1u;

	for (uint32_t i = 0; i < leader->parts; i++) {
		const struct sgp_slot *slot = sgp_side_slot(side, first + i);
		int cut = i && slot->num_sge && continues(sgl, slot->sge);

		sgp_slot_writes_no_more(slot);
		sgp_check_ended(slot);
		if (cut)
			sgl->sge[sgl->num_sge - 1].length += slot->sge[0].length;
		memcpy(sgl->sge + sgl->num_sge, slot->sge + cut,
		       (size_t)(slot->num_sge - cut) * sizeof *slot->sge);
		memcpy(sgl->chunk + sgl->num_chunk, slot->chunk,
		       slot->num_chunk * sizeof(struct sgp_chunk *));
		sgl->num_chunk += slot->num_chunk;
		for (int j = 0; j < slot->num_sge; j++)
			sgl->length += slot->sge[j].length;
		sgl->num_sge += slot->num_sge - cut;
	}
	sgl->pds = leader->pds;
	sgl->keys = side->pd_bit;
	sgl->access = leader->access;
	if (leader->flags & SGP_SLOT_OBJECTS)
		sgl->flags |= SGP_SGL_OBJECTS;
}
