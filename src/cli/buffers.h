/* SPDX-License-Identifier: BSD-2-Clause */
/* The registered memory of a transfer on one device: made once, used by every transfer there. */
#ifndef SGP_CLI_BUFFERS_H
#define SGP_CLI_BUFFERS_H

#include <stdbool.h>

#include "cli/transfer.h"
#include "cli/wire.h"
#include "sgpool/sgpool.h"

struct buffers {
	struct ibv_context *verbs; /* librdmacm's */
	struct ibv_pd *pd;         /* ours: librdmacm's own goes away with its last connection */
	struct sgp_pool *headers;  /* chunks of WIRE_HEADER */
	struct sgp_pool *payload;  /* chunks of TRANSFER_CHUNK; NULL without */
};

/*
 * Make them, those for payload too if they are wanted; command is for the error message that it
 * prints. Returns 0, or -1.
 */
int buffers_open(struct buffers *b, struct ibv_context *verbs, bool payload, const char *command);

/* End them. Safe on what was zeroed. */
void buffers_close(struct buffers *b);

/* Registrations made by both pools so far. */
uint64_t buffers_registrations(const struct buffers *b);

#endif
