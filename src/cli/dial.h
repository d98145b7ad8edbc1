/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The active side of a connection: finds the RDMA device that leads to a name, and connects. The
 * identifiers' events come over one channel that does not block; a signal ends each wait.
 */
#ifndef SGP_CLI_DIAL_H
#define SGP_CLI_DIAL_H

#include "cli/addr.h"
#include "cli/cm.h"

enum {
	/* For an answer: emulated machines take their time, librdmacm would go on for a minute. */
	DIAL_MS = 15000,
};

struct dial {
	const char *command; /* for errors */
	const char *nobody;  /* what to say when nobody listens there */
	struct rdma_event_channel *channel;
	int signal_fd;
	int timeout_ms;        /* for each answer */
	struct addr_text peer; /* the address that was tried last */
};

/* Make an id whose device leads to this address, its route resolved. Returns NULL, or why not. */
const char *dial_resolve(struct dial *d, struct sockaddr *sa, struct rdma_cm_id **id);

/* The first of a name's addresses that an RDMA device leads to. Returns NULL if none; it's said. */
struct rdma_cm_id *dial_find(struct dial *d, const struct addr *addr);

/*
 * Connect; the id has its queue pair. Returns NULL, and *event is ESTABLISHED with the peer's private
 * data; or why not, and *event is REJECTED, with what the peer said, if that is why.
 */
const char *dial_connect(struct dial *d, struct rdma_cm_id *id, struct rdma_conn_param *param,
			 struct cm_event *event);

#endif
