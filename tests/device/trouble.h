/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A pair of programs whose traffic goes on whatever becomes of the link, of the other one, or of the
 * connection; see trouble.c for what they say to each other. trouble_link.c makes and ends
 * connections.
 */
#ifndef TROUBLE_H
#define TROUBLE_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "sgpool/sgpool.h"

enum {
	TROUBLE_HELLO = SGP_FLOW_HELLO + 12, /* bytes: the flow's, the run, a message's number */
	TROUBLE_DEPTH = 64,                  /* messages on the way, at most */
	TROUBLE_SILENCE_MS = 8000,           /* without progress: connect anew */
};

/* A message to be sent: one that came and goes back. */
struct echo {
	struct sgp_sgl sgl;
	struct ibv_sge sge[1];
	struct sgp_chunk *chunk[1];
};

struct end {
	/* asked for */
	bool serves;
	const char *addr, *port; /* the server's */
	int seconds;             /* to run; 0: until a signal */
	uint32_t depth;          /* of the flow and of the send queue */
	uint32_t bytes;          /* of a message, at most */
	uint32_t spare;          /* chunks beside those of receives and updates */

	/* as long as the program runs */
	struct rdma_event_channel *channel;
	struct rdma_cm_id *anchor; /* the listener's; the client's holds the device */
	struct ibv_pd *pd;
	struct sgp_pool *pool;
	struct sgp_cq *cq;
	struct sgp_wc *wc;
	uint32_t run;      /* the client's, by which the server knows it again */
	uint64_t next;     /* client: number of the message to send; server: that must come */
	uint64_t answered; /* client: all below have come back */
	uint64_t messages, bytes_moved, connections, refused, resumed;

	/* of a connection */
	struct rdma_cm_id *id; /* NULL: there is none */
	struct sgp_ep *ep;
	struct sgp_flow flow;
	bool over;
	const char *why;                 /* it's over */
	int64_t moved;                   /* ms: when there was progress last */
	uint32_t lacking;                /* receives that are to be posted again */
	struct echo echo[TROUBLE_DEPTH]; /* [echo_first .. echo_last), modulo TROUBLE_DEPTH */
	unsigned int echo_first, echo_last;
};

int64_t now_ms(void);

/* Something happened that must not: say it and exit with status 1. */
void die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

/* The connection is over; the first reason stays. */
void end_connection(struct end *e, const char *why);

/* The device at the address, pool and completion queue; the server listens. */
void link_open(struct end *e);

/* The client: one try to connect. Returns whether there is a connection. */
bool link_connect(struct end *e);

/* Take the connection manager's events; the server accepts who asks. */
void link_events(struct end *e);

/* End the connection and check that every chunk is home. */
void link_close(struct end *e);

/* Post the receives that are lacking, as far as there are chunks. */
void link_post_receives(struct end *e);

/* All of it; checks that nothing is left. */
void link_end(struct end *e);

#endif
