/* SPDX-License-Identifier: BSD-2-Clause */
/* A message with payload on its way through a transfer: what it holds, and where its bytes are. */
#ifndef SGP_CLI_MESSAGE_H
#define SGP_CLI_MESSAGE_H

#include "cli/transfer.h"
#include "cli/wire.h"
#include "sgpool/sgpool.h"

enum {
	MESSAGE_SGES = TRANSFER_CHUNKS + 1
}; /* the header's and the payload's */

struct message {
	struct message *next; /* in the queue or the list of free ones that it is in */
	struct wire_header header;
	struct sgp_sgl sgl; /* over the arrays below */
	struct ibv_sge sge[MESSAGE_SGES];
	struct sgp_chunk *chunk[MESSAGE_SGES];
	struct sgp_chunk *held[MESSAGE_SGES]; /* not in the list yet: the header's first */
	int holds;
	struct iovec payload[TRANSFER_CHUNKS];
	int pieces;   /* of payload */
	int error;    /* errno of the step that failed, else 0 */
	bool last;    /* nothing comes after it */
	bool differs; /* END: the digests are not the same */
};

/* Set up all of n messages and return them as a list. */
struct message *messages_init(struct message *messages, int n);

/* Make it ready for use again. What it holds is dropped. */
void message_reset(struct message *m);

#endif
