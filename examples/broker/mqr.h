/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * MQTT packets over RDMA: one connection, and what the connections of a thread have in common. Both
 * the broker and the clients stand on it. It knows where a packet begins and ends, and nothing of
 * what is in it.
 *
 * The wire. A connection is one of the RDMA connection manager's (RDMA_PS_TCP, reliably connected).
 * Both ends put this into the private data of their request and of their reply; numbers are in
 * network byte order:
 *
 *       0        4       6       8                       24
 *       | "MQRD" | vers. |   0   |  a hello of a flow ... |
 *
 *   version  1
 *   hello    sgpool/flow.h, flags 0: how many messages may be on the way to this end (depth), and
 *            how long each may be (bytes, 1024 at least)
 *
 * A listener that refuses says so by the same 24 bytes with one of MQR_REFUSED_* for the 0, and no
 * hello behind (zeros).
 *
 * A packet of MQTT travels as one or several messages (SENDs), in order:
 *
 *       0           8
 *       | of a flow | bytes of the packet ...
 *
 *   - a message has bytes of one packet only, and at least one;
 *   - the first message of a packet has its whole fixed header: type, and remaining length;
 *   - all messages of a packet but the last have MQR_FRAGMENT_MIN bytes of it at least, or as many
 *     as the other end's receives take, if these are fewer.
 *
 * The last rule bounds what memory a receiver holds for a packet. Who breaks one of them, sends
 * beyond what he was granted, or begins a packet longer than the receiver takes, is disconnected. An
 * end that has sent its last packet waits for the sends' completions before it disconnects: then the
 * other end has it all.
 *
 * A receive is made of one chunk of each of the pool's classes, the smallest first, so that a short
 * packet takes a small chunk. What came stays in these chunks, a list; what goes is a list of the
 * sender's: nothing is copied but the bytes before the payload.
 *
 * Receives stand posted for each connection, or once for all of a device's (mqr_attr.shared): memory
 * does not grow with the connections then, but all of them together are granted more than there are
 * receives. A message that finds none waits at its sender (rnr_retry_count is 7 then), which is rare,
 * as most of what is granted is not used. iWARP has no such waiting, and nothing is shared there.
 *
 * Threads: a loop and its connections have one owner.
 */
#ifndef BROKER_MQR_H
#define BROKER_MQR_H

#include <stdbool.h>
#include <stdint.h>

#include <sgpool/sgpool.h>

enum {
	MQR_HELLO = 8 + SGP_FLOW_HELLO, /* bytes */
	MQR_FRAGMENT_MIN = 4096,        /* bytes of a packet in a message that is not its last */
	MQR_RECEIVE_MIN = 1024,         /* bytes of a receive */
	MQR_RECEIVE = 65536,            /* the same, unless told otherwise */
	MQR_DEPTH = 16,                 /* messages on the way to an end, unless told otherwise */
	MQR_PARTS = 24,                 /* chunks of a receive at most */
	MQR_SENDS = 64,                 /* messages in a send queue */
	MQR_DEVICES = 16,               /* of a loop */
};

/* Why a listener refuses. */
enum mqr_refusal {
	MQR_REFUSED_BUSY = 1, /* no memory for another connection */
	MQR_REFUSED_WIRE = 2, /* it can't be talked to: another version, or another protocol */
};

struct mqr_conn;

/* Called from mqr_loop_run() and mqr_loop_event(). They may push and end; the connection stands. */
struct mqr_ops {
	/* It may send from now on. */
	void (*up)(struct mqr_conn *c);
	/* A message came, of a packet or of none. NULL: nobody wants to know. */
	void (*heard)(struct mqr_conn *c);
	/* A packet, fixed header and all. What the callee does not move out of the list is dropped. */
	void (*packet)(struct mqr_conn *c, struct sgp_sgl *packet);
	/* A push that had returned 0 may go on. */
	void (*ready)(struct mqr_conn *c);
	/* There was no chunk for a receive, or for what goes. NULL: nothing is to be done. */
	void (*starved)(struct mqr_conn *c);
	/* It is over: c->err, c->why. Nothing else is called from then on; mqr_conn_end() is due. */
	void (*over)(struct mqr_conn *c);
};

/* Zero means the default. */
struct mqr_attr {
	uint32_t receive;    /* bytes of each receive */
	uint32_t depth;      /* messages that may be on the way to this end */
	uint32_t shared;     /* receives for all connections of a device; 0: each has its own */
	uint64_t max_packet; /* bytes of the longest packet that is taken; 0: MQTT's limit */
};

/* A device as one loop uses it. */
struct mqr_device {
	struct ibv_context *verbs;
	struct ibv_pd *pd;
	struct sgp_cq *cq;
	struct sgp_wc *wc;
	struct sgp_srq *srq;                  /* NULL: each connection has receives of its own */
	uint32_t bytes;                       /* of a receive */
	struct sgp_recv_part part[MQR_PARTS]; /* what it's made of */
	int parts;
	int max_sge; /* SGEs of what is sent */
	bool iwarp;
	bool armed; /* sgp_cq_fd(cq) will turn readable: the owner clears it when it has */
};

struct mqr_loop {
	struct sgp_pool *pool; /* receives, headers, and all that is sent; registered on every pd */
	const struct mqr_ops *ops;
	struct mqr_attr attr;
	void *arg; /* the owner's */
	struct mqr_device device[MQR_DEVICES];
	int devices;
	struct mqr_conn *conns;
	struct mqr_conn *touched; /* to be looked after */
	struct mqr_conn *ending;  /* ended, but completions may be left */
	uint64_t receives, posts; /* messages */
	uint64_t copied; /* of these, bytes of payloads that were; the owner resets all three */
};

struct mqr_conn {
	struct mqr_loop *loop;
	struct mqr_device *device;
	struct rdma_cm_id *id; /* ours; NULL once ended */
	struct sgp_ep *ep;
	struct sgp_flow flow;
	int max_sge;    /* SGEs of what we send */
	uint32_t since; /* messages since the last one that was signalled */
	bool up, over, told, paused;
	bool waiting;    /* a push returned 0 ... */
	bool starved;    /* ... since there was no chunk */
	bool update_due; /* a grant could not go */
	bool is_touched;
	bool gathered; /* posts of which the device has not been told yet ... */
	bool in_care;  /* ... which it will be before a run looks at another connection */
	int err;       /* 0: the other end disconnected; EPROTO: it broke the rules; another */
	char why[160];
	struct sgp_sgl in;             /* the packet that is coming */
	uint64_t in_bytes;             /* of it, in all; 0: none has begun */
	struct mqr_conn *next, **prev; /* of all; of those that have ended */
	struct mqr_conn *next_touched;
	void (*freed)(struct mqr_conn *c);
	void *arg; /* the owner's */
};

/*
 * End a loop (whose pool, ops and attr are the caller's to set; the rest begins as zeros): all its
 * connections have ended. Returns 0; -1 when a queue can't be destroyed.
 */
int mqr_loop_end(struct mqr_loop *loop);

/* Receives that stand posted for all connections of the loop's devices. */
uint64_t mqr_loop_shared(const struct mqr_loop *loop);

/* Milliseconds after which it should be run again, whatever completes; -1: for ever. */
int mqr_loop_wait(const struct mqr_loop *loop);

/*
 * The device behind verbs, as this loop uses it: made when it is first seen. pd: on which the loop's
 * pool is registered. Returns NULL with errno.
 */
struct mqr_device *mqr_loop_device(struct mqr_loop *loop, struct ibv_context *verbs,
				   struct ibv_pd *pd);

/*
 * Take what has completed on a device, until there is nothing left and the next completion will turn
 * sgp_cq_fd(device->cq) readable, or, with a budget above 0, that many rounds are over.
 * Returns 1 when there may be more, 0; -1 when the queue has failed: all its connections are over.
 */
int mqr_loop_run(struct mqr_loop *loop, struct mqr_device *device, int budget);

/*
 * What the connection manager said of a connection: a copy of an event that has been acknowledged, as
 * the id may be destroyed before this returns.
 */
void mqr_conn_event(struct mqr_conn *c, const struct rdma_cm_event *event);

/*
 * Make the queues over an id whose device it is, and post the receives. The id is the connection's
 * from then on; on an error it stays the caller's. Returns 0; -1 with errno.
 */
int mqr_conn_open(struct mqr_conn *c, struct mqr_loop *loop, struct mqr_device *device,
		  struct rdma_cm_id *id);

/* What to say when connecting or accepting. bytes must stand as long as *param is used. */
void mqr_conn_param(const struct mqr_conn *c, uint8_t bytes[MQR_HELLO],
		    struct rdma_conn_param *param);

/* Is this a peer that can be talked to? Returns 0; -1 with errno EPROTO. */
int mqr_hello_check(const void *data, size_t n);

/* After rdma_accept(3): how soon a message that found no receive is tried again. */
void mqr_conn_accepted(struct mqr_conn *c);

/* Take the peer's hello. Returns 0; -1 with errno EPROTO. */
int mqr_conn_greet(struct mqr_conn *c, const void *data, size_t n);

/* Refuse a request. The id is used up. */
void mqr_refuse(struct rdma_cm_id *id, enum mqr_refusal reason);

/* What a rejection's private data says, for people. */
const char *mqr_refusal_text(const void *data, size_t n);

/*
 * Send a packet, or what is left of it: head_bytes of head, which are copied, then the list body
 * (NULL: none), of whose chunks references are taken. *sent counts the bytes of it that are through,
 * from 0.
 *
 * Returns 1 when all of it is posted; 0 when the rest can't go now, ops.ready will be called, and then
 * the same is to be pushed again; -1 when the connection is over.
 */
int mqr_push(struct mqr_conn *c, const void *head, size_t head_bytes, const struct sgp_sgl *body,
	     uint64_t *sent);

/* Whether all that was pushed has arrived at the other end's adapter. */
bool mqr_conn_drained(struct mqr_conn *c);

/* Grant the peer nothing more, or again. What it was granted may still come, and is handed over. */
void mqr_conn_pause(struct mqr_conn *c, bool paused);

/* It is over, for this reason: ops.over will be called by a run. The first reason stays. */
void mqr_conn_fail(struct mqr_conn *c, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * End it: disconnect, destroy the queues and the id. What had been posted and not completed is taken
 * back by the next runs of the loop, which then calls freed(c).
 */
void mqr_conn_end(struct mqr_conn *c, void (*freed)(struct mqr_conn *c));

/*
 * Lists whose arrays are allocated; they begin as zeros. Room for so many entries in all (what is in
 * it stays): 0; -1 with errno ENOMEM. Freeing drops what the list holds, and makes it zeros again.
 */
int mqr_list_reserve(struct sgp_sgl *list, int sges, int chunks);
void mqr_list_free(struct sgp_sgl *list);

#endif
