/* SPDX-License-Identifier: BSD-2-Clause */
/* Connection manager events, copied and acknowledged at once, so that no id waits for them. */
#ifndef SGP_CLI_CM_H
#define SGP_CLI_CM_H

#include <rdma/rdma_cma.h>

struct cm_event {
	enum rdma_cm_event_type type;
	struct rdma_cm_id *id; /* may be gone by now, but for CONNECT_REQUEST's */
	int status;
	uint8_t data[UINT8_MAX]; /* the peer's private data */
	uint8_t length;
};

/* A channel that does not block. NULL with errno. */
struct rdma_event_channel *cm_open(void);

/* The next event. Returns 1; 0 when there is none; -1 with errno. */
int cm_next(struct rdma_event_channel *channel, struct cm_event *event);

/*
 * Wait for one, at most timeout_ms milliseconds. Returns as cm_next(), 0 when the time is over; -1
 * with EINTR when a signal came in at signal_fd.
 */
int cm_wait(struct rdma_event_channel *channel, int signal_fd, int timeout_ms,
	    struct cm_event *event);

#endif
