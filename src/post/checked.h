/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What posts and completions do besides, where pools are checked (sgpool/check.h): a list's holds are
 * looked at, and what the device has of them is noted from before the doorbell until the holds leave
 * their slot.
 *
 * Locking: the side's lock for posts, the completion queue's for ends. In an ordinary process none of
 * it is called.
 */
#ifndef SGP_POST_CHECKED_H
#define SGP_POST_CHECKED_H

#include "pool/mode.h"
#include "post/queue.h"

/*
 * May the list be posted? sink: for the device to write. Returns 0; -1 with ESTALE and a finding, or
 * with EBUSY where another post has memory that this one would have written.
 */
int sgp_check_post(const struct sgp_sgl *sgl, bool sink);

/* The list's slots, from seq to the side's head, hold it, and the device may have it from here on. */
void sgp_check_posted(struct sgp_side *side, uint32_t seq, const struct sgp_sgl *sgl, bool sink);

/* The same for a slot of one receive, which has its own SGEs. */
void sgp_check_received_into(struct sgp_slot *slot);

/* The slot's holds leave it: the device does not have them any more. */
void sgp_check_ended_slowly(const struct sgp_slot *slot);

static inline void sgp_check_ended(const struct sgp_slot *slot)
{
	if (!sgp_mode_is_ordinary())
		sgp_check_ended_slowly(slot);
}

/* A receive's slot is given up outside of the pollers' way: its holds go. */
static inline void sgp_slot_drop_receive(struct sgp_slot *slot)
{
	sgp_slot_writes_no_more(slot);
	sgp_check_ended(slot);
	sgp_chunk_put_bulk(slot->chunk, slot->num_chunk);
}

#endif
