/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One connection with its pools: what the programs of this example share.
 *
 *      link_start()      the address, the device; endpoint, completion queue, messages' pool
 *      link_add_pool()   memory for anything else, registered before the connection is made
 *      link_establish()  receives are posted, then the two ends are connected
 *      link_send(), link_wait(), and any sgp_post_*() on link.ep
 *      link_close()
 *
 * All return 0 or more; -1 after one line on stderr that says what went wrong.
 */
#ifndef LINK_H
#define LINK_H

#include <stdbool.h>
#include <stdint.h>

#include <sgpool/sgpool.h>

#define LINK_MESSAGE 16 /* bytes of every message */
#define LINK_POOLS   3

struct link {
	struct rdma_event_channel *events;
	struct rdma_cm_id *listener, *id;
	struct ibv_pd *pd;
	struct sgp_pool *pools[LINK_POOLS]; /* [npools]; the first one is the messages' */
	int npools;
	struct sgp_cq *cq;
	struct sgp_wc *wc; /* the completion that link_wait() found */
	struct sgp_ep *ep;
	char message[LINK_MESSAGE]; /* the last one that came */
	bool server;
	bool gone; /* the peer has disconnected */
};

/* Resolve addr as a client; listen on it and take one request as a server. */
int link_start(struct link *l, bool server, const char *addr, const char *port);

/* A pool of n chunks of size bytes; flags: SGP_POOL_*. It ends with the link. NULL on errors. */
struct sgp_pool *link_add_pool(struct link *l, size_t size, size_t n, uint32_t flags);

int link_establish(struct link *l);

/* Send a message of LINK_MESSAGE bytes. flags: as sgp_post_send()'s. */
int link_send(struct link *l, const void *message, int flags);

/*
 * Wait for a completion, which must be of this kind. A message is in l->message then, and its
 * receive has been posted again. Returns 1; 0 when the peer has disconnected instead.
 */
int link_wait(struct link *l, enum ibv_wc_opcode opcode);

/* The same where a disconnect is an error. Returns 0. */
int link_need(struct link *l, enum ibv_wc_opcode opcode);

/*
 * Disconnect and destroy the queue pair: from then on the peer reaches none of our memory.
 * link_close() does it too.
 */
int link_disconnect(struct link *l);

/* Give everything back. -1 if something could not be. */
int link_close(struct link *l);

/* Print a line and return -1: with why sgpool, or the system (errno), failed; or as it stands. */
int fail_sgp(const char *what);
int fail_sys(const char *what);
int fail(const char *what);

#endif
