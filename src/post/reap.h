/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Between a completion of the device and what the caller hears of it: how slots and their groups end.
 * Everything here is the poller's, under the queue's lock.
 *
 *      ibv_wc --- match.c ---> a group that has ended --- reap.c ---> sgp_wc, or nothing owed
 */
#ifndef SGP_REAP_H
#define SGP_REAP_H

#include "post/ep.h"

/*
 * The group that a completion ends, if it ends one: its leader, and the endpoint. Only wr_id,
 * status and vendor_err are read of a failed one (law 2.11); the direction is in wr_id.
 */
struct sgp_slot *sgp_cq_match(struct sgp_cq *cq, const struct ibv_wc *raw, struct sgp_ep **which);

/*
 * The signalled request at seq has completed: so have the unsignalled ones before it (law 3).
 * Signalled ones are left for their own completion, and those that the device did not take for
 * the inbox, where they are linked.
 */
void sgp_cq_retire_before(struct sgp_cq *cq, struct sgp_ep *ep, uint32_t seq);

/* A group that has ended gives up its holds, and its slots are free. */
void sgp_group_drop(struct sgp_cq *cq, struct sgp_side *side, struct sgp_slot *leader);

/* sgp_group_end_slot() where there is more to it than one ordinary slot. */
struct sgp_slot *sgp_group_end_special(struct sgp_ep *ep, struct sgp_side *side,
				       struct sgp_slot *slot);

/*
 * The slot has ended as slot->done says. Returns the leader if that was the last of its group, with
 * leader->done what the caller is to hear: the group's first failure, or success.
 */
static inline struct sgp_slot *sgp_group_end_slot(struct sgp_ep *ep, struct sgp_side *side,
						  struct sgp_slot *slot)
{
	slot->ended = true;
	if (slot->parts != 1 || slot->flags & (SGP_SLOT_WINDOW | SGP_SLOT_CANCELLED))
		return sgp_group_end_special(ep, side, slot);
	return slot;
}

#endif
