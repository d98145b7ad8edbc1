/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two connected ends under flow control, over a rig, for the tests of it. Every step checks that no
 * receive of either end is lost count of.
 */
#ifndef FLOW_ENDS_H
#define FLOW_ENDS_H

#include "rig.h"

enum {
	BYTES = 64, /* a message's, header included */
	HELD = 16,
};

/* One end of a connection, and what it has received and not posted again. */
struct end {
	struct rig_side *side;
	struct sgp_flow flow;
	struct sgp_chunk *held[HELD];
	int nheld;
	uint32_t sent, got; /* messages, by number */
	int sending;        /* operations without a completion */
};

extern struct end ends[2];

/* Both ends of a connection on a device of this persona, with these depths; and their end. */
void ends_open(const char *persona, uint32_t depth0, uint32_t depth1, uint32_t flags);
void ends_close(void);

void end_check(const struct end *e);

/* Send the next message, numbered; flags: 0 or SGP_FLOW_LAST. Returns as sgp_flow_sendv(). */
int end_send(struct end *e, int flags);

/* As sgp_flow_update(). */
int end_update(struct end *e, int flags);

/* Post the receive of one message that is held again. */
void end_repost(struct end *e);

/* Take what has come; an update's receive is posted again. Returns how many completions. */
int end_reap(struct end *e);

/* Both listen and answer until nothing comes any more. */
void ends_settle(void);

#endif
