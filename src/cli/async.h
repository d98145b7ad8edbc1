/* SPDX-License-Identifier: BSD-2-Clause */
/* The asynchronous events of a device, for the completion queues on it. */
#ifndef SGP_CLI_ASYNC_H
#define SGP_CLI_ASYNC_H

#include "sgpool/sgpool.h"

/* Make verbs->async_fd one that does not block, fit for poll(2). Returns 0; -1 with errno. */
int async_open(struct ibv_context *verbs);

/*
 * Take the events there are and tell them to each of cq[0 .. n - 1]. Returns what ended: NULL; or,
 * in words, that the device or a queue has failed.
 */
const char *async_take(struct ibv_context *verbs, struct sgp_cq *const cq[], int n);

#endif
