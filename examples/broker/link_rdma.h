/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Links over RDMA (link.h): how they come about. What travels is told in mqr.h.
 *
 * A link_rdma belongs to one thread's links: its connection manager's channel, its completion queues.
 * Connections that come in may be given to another thread's (link_rdma_accept()).
 */
#ifndef BROKER_LINK_RDMA_H
#define BROKER_LINK_RDMA_H

#include <sys/socket.h>

#include "link.h"
#include "mqr.h"

struct link_rdma;

/*
 * attr: max_packet is taken from the host's limits. Returns what is to be ended by link_rdma_close();
 * NULL with errno: ENODEV and the like where there is no RDMA.
 */
struct link_rdma *link_rdma_open(struct link_host *host, const struct mqr_attr *attr);

/* All its links have been closed, and heard of. Its own memory, not the pool's. Returns 0; -1. */
int link_rdma_close(struct link_rdma *rdma);

/* Receives that stand posted for all its links together. */
uint64_t link_rdma_shared(const struct link_rdma *rdma);

/* A connection that is asked for. Copied about as one likes; to be accepted or refused once. */
struct link_rdma_request {
	struct rdma_cm_id *id;
	uint8_t n;
	uint8_t data[MQR_HELLO];
};

/* Who has an id: one of them. */
struct rdma_id_owner {
	struct rdma_link *link;
	struct link_rdma_listener *listener;
};

struct link_rdma_listener {
	void (*request)(struct link_rdma_listener *listener,
			const struct link_rdma_request *request);
	/* Ours. */
	struct rdma_cm_id *id;
	struct rdma_id_owner owner;
};

/* Listen; request is set. What can't be talked to is refused here. Returns 0; -1 with errno. */
int link_rdma_listen(struct link_rdma *rdma, struct link_rdma_listener *listener,
		     const struct sockaddr *addr);
void link_rdma_unlisten(struct link_rdma_listener *listener);

/* The port that it listens on. */
uint16_t link_rdma_port(const struct link_rdma_listener *listener);

/*
 * Accept on this thread. The request is used up either way: on an error it is refused. Returns the
 * link; NULL with errno.
 */
struct link *link_rdma_accept(struct link_rdma *rdma, const struct link_rdma_request *request,
			      const struct link_events *events, void *owner);
void link_rdma_refuse(const struct link_rdma_request *request);

/* Connect; failures come by closed(). Until it's made, link_send() takes nothing. */
struct link *link_rdma_connect(struct link_rdma *rdma, const struct sockaddr *addr,
			       const struct link_events *events, void *owner);

/* Why it was closed, for people; good until closed() returns. */
const char *link_rdma_why(const struct link *link);

#endif
