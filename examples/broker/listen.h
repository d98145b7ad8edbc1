/* SPDX-License-Identifier: BSD-2-Clause */
/* Where connections come from: shard 0 accepts them, and deals them out to all shards in turn. */
#ifndef BROKER_LISTEN_H
#define BROKER_LISTEN_H

#include "broker.h"
#include "cli/addr.h"

struct listener {
	struct loop_fd fd;
	struct loop_timer timer; /* when there are no descriptors left */
	struct broker *broker;
	void (*accepted)(struct listener *listener, int fd);
};

/*
 * A stream socket that listens, in shard 0's loop; accepted() gets each connection, not blocking and
 * closed on exec. Returns 0; -1, after a line on stderr.
 */
int listener_open(struct listener *listener, struct broker *broker, const struct addr *addr,
		  const char *what, void (*accepted)(struct listener *, int));
void listener_close(struct listener *listener); /* safe on what was zeroed */

/* accepted() for clients: a session in the shard whose turn it is. */
void listener_client(struct listener *listener, int fd);

#endif
