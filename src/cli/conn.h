/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One end of a transfer's connection: the endpoint with its receives, credits, the signs of life,
 * and the one reason for which it ended. What the messages mean is the commands' business.
 *
 * No thread but its owner's may use it.
 */
#ifndef SGP_CLI_CONN_H
#define SGP_CLI_CONN_H

#include "cli/buffers.h"
#include "cli/cm.h"
#include "cli/message.h"
#include "cli/wire.h"

enum {
	CONN_SILENCE_MS =
		15000, /* without a word from the peer: it is gone, if nothing else is said */
	CONN_ALIVE_MS = 1000, /* without a word to the peer: say one */
};

struct conn {
	struct buffers *buffers;
	struct rdma_cm_id *id;
	struct sgp_cq *cq;
	struct sgp_ep *ep;
	struct sgp_wc *wc;
	struct sgp_flow flow;  /* how many messages the peer can take */
	enum wire_role role;   /* ours: not REFUSAL */
	struct wire_peer peer; /* what it may say */
	uint32_t payload;      /* bytes that its receives take after a header */
	int silence_ms;        /* without a word from the peer: it is gone; 0: CONN_SILENCE_MS */
	bool up;               /* we may speak; the sender may first */
	bool over;             /* it ended, well or not: nothing is posted but an abort */
	bool broken;           /* not even that */
	bool gone;             /* the connection manager said that the peer is gone */
	char why[200];         /* it failed, and that's why; empty: see conn_reason() */
	char refusal[200];     /* what a post was refused with */
	int sending;           /* messages posted */
	int64_t heard, said;   /* ms */

	/*
	 * A message came. Its chunks are in *sgl, the header's first; the callee moves them out, or
	 * they are dropped. When it has dropped them, it calls conn_repost(), once for each
	 * message. Callbacks may post, but neither reap nor abort.
	 */
	void (*received)(void *arg, const struct wire_header *header, struct sgp_sgl *sgl);
	/* A message with payload is through; its chunks have been dropped. */
	void (*sent)(void *arg, struct message *m);
	void *arg;
};

/*
 * Set up *c over an id whose device is that of the buffers: queues, and all receives posted. The
 * callbacks and silence_ms are set already. Returns 0; -1 with c->why saying why, and conn_close() is still due.
 */
int conn_open(struct conn *c, struct rdma_cm_id *id, struct buffers *buffers, enum wire_role role);

/* Refuse a connection that is asked for, and tell why. The id is used up. */
void conn_refuse(struct rdma_cm_id *id, enum wire_code reason);

/* Connecting failed: in the peer's own words if it has refused us so, else why. */
const char *conn_refusal(const struct cm_event *event, const char *why);

/* What to say of us when connecting: bytes must stand as long as *param is used. */
void conn_param(const struct conn *c, uint8_t bytes[WIRE_HELLO], struct rdma_conn_param *param);

/* Is this the hello of a peer of this role? Returns NULL, or what is wrong with it. */
const char *conn_check(const void *data, size_t n, enum wire_role role);

/* The peer's hello: what it can take. conn_open() comes first. Returns NULL, or what is wrong with it. */
const char *conn_greet(struct conn *c, const void *data, size_t n);

/*
 * Post a message: its header, and the payload of m if that is not NULL (m->sgl holds it, header
 * chunk and all). Returns 0; -1 when it can't go now (no credit, no room)
 * or the connection is over: all is as it was.
 */
int conn_post(struct conn *c, const struct wire_header *header, struct message *m);

/* Post a receive in place of one that was used up. */
void conn_repost(struct conn *c);

/* Ask for a wake-up and take all completions there are. */
void conn_reap(struct conn *c);

/* The connection manager said something of this connection. */
void conn_event(struct conn *c, const struct cm_event *event);

/*
 * Grant credits and give signs of life when they are due; see whether the peer gives any, and
 * whether the device is well. Returns for how many milliseconds one may sleep.
 */
int conn_tick(struct conn *c);

/* End it for this reason; the first one stays. */
void conn_fail(struct conn *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/*
 * Why it is over, for people. A queue that broke without a reason often did so since the peer went:
 * take_events(arg), which is to hand this connection's events over, is called for a moment until it
 * says so.
 */
void conn_reason(struct conn *c, struct rdma_event_channel *channel, void (*take_events)(void *arg),
		 void *arg, char *why, size_t size);

/* Tell the peer why we give up, and wait a moment for it to be told. */
void conn_abort(struct conn *c, enum wire_code code);

/* Sleep until there may be something to do: for a completion, or one of n descriptors (at most 4).
 */
void conn_sleep(const struct conn *c, const int *fds, int n, int timeout_ms);

/* Disconnect, and take everything back from the queues. The id stays the caller's. */
void conn_close(struct conn *c);

#endif
