/* SPDX-License-Identifier: BSD-2-Clause */
/* The receiver's side of a transfer, once the connection was accepted. */
#ifndef SGP_CLI_RECV_FILE_H
#define SGP_CLI_RECV_FILE_H

#include "cli/conn.h"
#include "cli/digest.h"
#include "cli/outfile.h"
#include "cli/pipeline.h"
#include "cli/progress.h"

struct recv_file {
	const char *path; /* where the file goes */
	struct rdma_event_channel *channel;
	int signal_fd;
	/* Take the connection manager's events, and give the connection its own by conn_event(). */
	void (*take_events)(void *arg);
	void *arg;
	struct conn *conn;

	struct pipeline pipeline; /* write; hash, and finish */
	struct message messages[TRANSFER_MESSAGES];
	struct message *unused;
	struct outfile file;
	struct digest digest;
	struct progress progress;
	int64_t began;
	bool has_end;  /* the sender's, and so all of its data */
	bool finished; /* the end has been through the pipeline */
	bool complete; /* the file is on disk and has its name */
	bool differs;  /* it is not what the sender sent */
	bool said_verdict, interrupted;

	enum wire_code code; /* it failed: what the peer is told */
	char why[200];       /* it failed: why */
	double seconds;
	uint64_t registrations; /* made while it was received */
};

/*
 * Receive it. The first six members and conn (opened, its callbacks set by recv_file_setup()) are
 * set, the rest is zero. Returns 0; -1, r->why says why, and the path has what it had.
 */
int recv_file(struct recv_file *r);

/* Set the connection's callbacks, before it is opened. */
void recv_file_setup(struct recv_file *r, struct conn *c);

#endif
