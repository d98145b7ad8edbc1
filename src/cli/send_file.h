/* SPDX-License-Identifier: BSD-2-Clause */
/* The sender's side of a transfer, once the connection stands. */
#ifndef SGP_CLI_SEND_FILE_H
#define SGP_CLI_SEND_FILE_H

#include "cli/conn.h"
#include "cli/digest.h"
#include "cli/pipeline.h"
#include "cli/progress.h"

struct send_file {
	int fd;        /* the file, open for reading */
	int signal_fd; /* of signals_open() */
	struct rdma_event_channel *channel;
	struct conn *conn;

	struct pipeline pipeline; /* read, hash */
	struct message messages[TRANSFER_MESSAGES];
	struct message *unused;
	struct message *ready, **ready_end; /* read and hashed, to be posted in this order */
	struct digest digest;
	struct progress progress;
	uint64_t size; /* of a regular file; else 0 */
	bool sized;
	bool at_end;   /* the reading thread's */
	bool read_all; /* everything has been through the pipeline */
	bool said_start, said_end;
	bool has_verdict, interrupted;
	struct wire_header verdict;

	char why[200];  /* it failed: why */
	uint64_t bytes; /* posted */
	double seconds;
	uint64_t registrations; /* made while it was sent */
};

/* Send it. The first four members and conn are set, the rest is zero. Returns 0; -1, s->why says
 * why. */
int send_file(struct send_file *s);

#endif
