/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Flow control between two endpoints: a message is sent only when a receive stands posted for it.
 *
 * Without it a sender that is faster than its receiver costs retries on InfiniBand and RoCE, and the
 * connection on iWARP, which ends it when a message finds no receive. It's optional, and both ends
 * must use it. Nothing here waits or allocates.
 *
 * An end that is to have depth messages on the way to it posts depth + SGP_FLOW_RESERVE receives,
 * each large enough for any message, before it connects or accepts. It says so in a hello, which
 * both ends put into the connection's private data (rdma_connect(3), rdma_accept(3)); rnr_retry_count
 * may then be 0. What a message uses up is given back when its receive has been posted again: with
 * the next message that goes the other way, or, when the peer may run dry, with an update, a message
 * of nothing else.
 *
 * Over a shared receive queue (srq.h) the promise is the caller's to keep: a queue as deep as all its
 * flows' depths + SGP_FLOW_RESERVE together keeps it. A shorter one saves memory where not all peers
 * send at once. Then rnr_retry_count has to be 7 (for ever), which this end says to the peer when it
 * connects or accepts, and a message that finds no receive waits at the sender; not on iWARP.
 *
 * The hello, and what each message begins with; all numbers are in network byte order:
 *
 *       0        4       6       8       12      16
 *       | "SGPF" | vers. | flags | depth | bytes |       the hello
 *
 *   version  1
 *   flags    bit 0: SGP_FLOW_IMMEDIATE; the other bits are 0
 *   depth    messages that the peer may send now; 1 .. SGP_FLOW_DEPTH_MAX
 *   bytes    of the longest message that a receive takes, header included
 *
 *       0      4          8
 *       | word | sequence | payload ...                  a message
 *
 *        31  30   29     18 17   16 15              0
 *       | U | L |  0 ...  0 | slots |    credits    |    the word
 *
 *   U         an update: nothing follows
 *   L         the last message of its sender, to whom grants mean nothing from then on
 *   slots     receives posted again of those that updates had used up; 0 .. SGP_FLOW_RESERVE
 *   credits   the same of those that messages had used up: so many more may be sent
 *   sequence  counts the messages of a direction, updates too, from 0, modulo 2^32
 *
 * With SGP_FLOW_IMMEDIATE the word travels as the immediate of a SEND instead, there is no sequence,
 * and the payload is the whole message; an update has no bytes then. iWARP has no immediates.
 *
 * Nobody is ever stuck. Updates have receives of their own, SGP_FLOW_RESERVE of them. One that grants
 * a message may take the last, one that grants none (a sign of life) must leave one. An end posts an
 * update's receive again before it sends anything else. So, once a peer has used up all it was
 * granted, one of its messages came after the last update, and gave that update's receive back: the
 * next update can go.
 *
 * Every number from the peer is checked before it's used. Threads: the caller serialises all calls on
 * one flow. The post functions of its endpoint must not be used beside it for anything but receives
 * and operations that use up no receive of the peer's (WRITE, READ, atomics).
 */
#ifndef SGPOOL_FLOW_H
#define SGPOOL_FLOW_H

#include <stdbool.h>
#include <stdint.h>

#include <sgpool/post.h>

SGP_BEGIN_DECLS

enum {
	SGP_FLOW_HELLO = 16,         /* bytes of a hello */
	SGP_FLOW_HEADER = 8,         /* bytes at the beginning of a message */
	SGP_FLOW_RESERVE = 2,        /* receives beside those for messages */
	SGP_FLOW_DEPTH_MAX = 0xffff, /* messages */
};

/* Flags of a flow. */
enum {
	SGP_FLOW_IMMEDIATE = 1 << 0, /* the word is the immediate, there is no header */
};

/* Flags of sgp_flow_sendv() besides a post's, and of sgp_flow_update(). */
enum {
	SGP_FLOW_LAST = 1 << 24,  /* nothing follows; it may take an update's receive */
	SGP_FLOW_ALIVE = 1 << 25, /* an update, even if none is due: a sign of life */
};

/* Zero the whole structure first. */
struct sgp_flow_attr {
	uint32_t comp_mask; /* 0 */
	uint32_t flags;     /* SGP_FLOW_IMMEDIATE; the same at both ends */
	/* Not connected yet; its receive queue, or its shared one, takes depth + SGP_FLOW_RESERVE. */
	struct sgp_ep *ep;
	/*
	 * Updates' chunks come from its smallest class, and may use its reserve; as many may be out as
	 * the send queue is deep, unless updates are signalled. NULL with SGP_FLOW_IMMEDIATE.
	 */
	struct sgp_pool *pool;
	uint32_t depth; /* messages that may be on the way to this end */
	/*
	 * Of the longest message that its receives take, header included, and below 2^31: more than
	 * SGP_FLOW_HEADER, or with SGP_FLOW_IMMEDIATE more than 0: a flow of empty messages alone is refused.
	 */
	uint32_t bytes;
};

/* One end. The caller provides the storage; read the members, change them by the functions only. */
struct sgp_flow {
	struct sgp_ep *ep;
	struct sgp_pool *pool;
	uint32_t flags;
	uint32_t depth, bytes;             /* ours */
	uint32_t peer_depth, peer_bytes;   /* the peer's; 0 before sgp_flow_greet() */
	uint32_t credits, slots;           /* messages and updates that the peer can take now */
	uint32_t peer_credits, peer_slots; /* the same that the peer has of ours */
	uint32_t used, used_slots;         /* receives that messages and updates used up ... */
	uint32_t owed, owed_slots; /* ... and those posted again, of which it hasn't heard yet */
	uint32_t seq, peer_seq;    /* of the next message each way */
	bool ended, peer_ended;    /* the last message went, came */
};

/*
 * Begin a flow over an endpoint that is not connected yet.
 *
 * Returns 0; -1 with EINVAL (an attribute is wrong, the endpoint is closed, or its receive queue is too
 * short) or EOPNOTSUPP (immediates on iWARP), and *flow is as it was.
 */
SGP_API int sgp_flow_init(struct sgp_flow *flow, const struct sgp_flow_attr *attr);

/* Write this end's hello. All depth + SGP_FLOW_RESERVE receives are to be posted before it is sent. */
SGP_API void sgp_flow_hello(const struct sgp_flow *flow, uint8_t bytes[SGP_FLOW_HELLO]);

/*
 * Take the peer's hello, of which n bytes came (more than a hello is no error: transports pad). Do it
 * before anything is reaped. A flow of zeros serves to check a hello before there is an endpoint.
 *
 * Returns 0; -1 with EPROTO when it's no hello of a peer that can be talked to, and *flow is as it was.
 */
SGP_API int sgp_flow_greet(struct sgp_flow *flow, const void *bytes, size_t n);

/*
 * Send a message, as sgp_post_sendv(). Without SGP_FLOW_IMMEDIATE the list begins with a chunk's slice
 * of which SGP_FLOW_HEADER bytes are left for the header, which is written here.
 *
 * Returns and errors as sgp_post_sendv(), but also, with everything as it was:
 *   EAGAIN     the peer has no receive for it now, or an update's receive is to be posted again
 *              first: reap, post receives, then try again
 *   EMSGSIZE   longer than the peer's receives
 *   EINVAL     no room for the header, or imported memory there that can't be written
 *   ENOTCONN   before sgp_flow_greet()
 *   ESHUTDOWN  after SGP_FLOW_LAST
 */
SGP_API int sgp_flow_sendv(struct sgp_flow *flow, void *context, struct sgp_sgl *sgl, int flags);

/*
 * Look at a receive that has completed with success, before anything else is done with it.
 *
 * Returns 1: a message of the peer's, for the caller, header and all; its receive may be posted again
 * at any time. 0: an update, which is of no interest to the caller; its receive is to be posted again
 * now, whatever the peer does (what chunks it had are in its list, or back in their pool). Either way
 * sgp_flow_posted() is to be told once it's posted.
 * -1 with EPROTO: the peer broke the rules, *flow is as it was, and the connection should be ended;
 * EINVAL for another completion, ENOTCONN before sgp_flow_greet().
 */
SGP_API int sgp_flow_received(struct sgp_flow *flow, const struct sgp_wc *wc);

/*
 * n receives have been posted again, in place of those that messages and updates had used up.
 *
 * Where the library keeps receives posted (sgp_ep_attr.recv), all of them have been when sgp_poll()
 * returns, but for sgp_ep_info.recv_missing: once each completion of that poll has been looked at,
 * n is used + used_slots - recv_missing.
 * Returns 0; -1 with EINVAL when fewer had been used up.
 */
SGP_API int sgp_flow_posted(struct sgp_flow *flow, uint32_t n);

/*
 * Send an update if the peer may need one: to be called after receives have been posted, and again
 * after completions of sends when it returned EAGAIN.
 *
 * flags: IBV_SEND_SIGNALED, and SGP_FLOW_ALIVE; context: as of a post.
 * Returns 1 when one was sent, 0 when none is due (with SGP_FLOW_ALIVE: or none can go now, and then
 * the peer has not said anything lately); -1 with errno, nothing sent: ENOBUFS without a chunk, or as
 * sgp_post_sendv().
 */
SGP_API int sgp_flow_update(struct sgp_flow *flow, void *context, int flags);

SGP_END_DECLS

#endif
