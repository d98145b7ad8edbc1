/* SPDX-License-Identifier: BSD-2-Clause */
/* The passive side of connections: an identifier that listens. */
#ifndef SGP_CLI_LISTEN_H
#define SGP_CLI_LISTEN_H

#include <stdbool.h>
#include <stdio.h>

#include "cli/addr.h"
#include "cli/cm.h"

/* Listen at this address (port 0: any). Returns NULL if it can't; that has been said. */
struct rdma_cm_id *listen_open(const char *command, struct rdma_event_channel *channel,
			       const struct addr *addr);

/* Say where: as JSON in out, else on the standard error stream. */
void listen_say(const char *command, struct rdma_cm_id *listener, FILE *out, bool json);

/* The device that connections will come over, where that is clear already; else NULL. */
struct ibv_context *listen_device(const struct rdma_cm_id *listener);

#endif
