/* SPDX-License-Identifier: BSD-2-Clause */
/* The responder's end of a connection: what wire_recv.c, wire_reply.c and wire_attach.c share. */
#ifndef SOFTVERBS_WIRE_RECV_H
#define SOFTVERBS_WIRE_RECV_H

#include "softverbs/net.h"

enum sw_rx_state {
	SW_RX_WAITING, /* for a queue pair that answers */
	SW_RX_IDLE,
	SW_RX_PAYLOAD, /* of `req` comes in */
	SW_RX_STALLED, /* no receive for `req`, whose payload is left where it is */
	SW_RX_REPLY,   /* what `req` reads goes out */
	SW_RX_SKIP,    /* was STALLED, and the peer has closed: is there a goodbye? */
	SW_RX_DRAIN,   /* nothing is answered any more */
};

struct sw_rx {
	struct sw_sock s;
	struct sw_list link;
	struct sw_hello hello;
	struct sw_qp *qp; /* NULL in WAITING and DRAIN */
	enum sw_rx_state state;
	struct sw_req req;
	bool begun; /* there was a request, `last` is its number */
	bool ack;   /* it is done, and the peer hasn't been told */
	bool lost;  /* UC: its payload goes nowhere */
	uint32_t last;
	uint32_t upto; /* all up to this one are done, if `ack` */
	uint64_t done; /* bytes of the payload, or of what is read */
	/* A DATA on its way out. */
	struct sw_rsp head;
	uint32_t head_left, seg_left;
	bool torn; /* its memory went: the rest is zeros, then it is refused */
	/* A receive taken out of a shared queue. */
	bool took;
	struct sw_rwqe wqe;
	struct ibv_sge sge[SW_MAX_SGE];
	struct sw_outbuf out;
	struct sw_inbuf in;
};

/* wire_reply.c */
bool sw_rx_can_say(const struct sw_rx *rx);
void sw_rx_say(struct sw_rx *rx, enum sw_rsp_kind kind, uint32_t seq, uint8_t status);
enum sw_io sw_rx_flush(struct sw_rx *rx);
/* A READ or an atomic begins, or goes on. */
enum sw_io sw_rx_reply(struct sw_rx *rx);
enum sw_io sw_rx_more(struct sw_rx *rx);

/* wire_recv.c: the request is refused, and the queue pair ends. */
enum sw_io sw_rx_refuse(struct sw_rx *rx, enum ibv_wc_status status);
enum sw_io sw_rx_no_access(struct sw_rx *rx);

/* Goes on with what is there; whether there may be more to do at once. */
bool sw_rx_work(struct sw_rx *rx);
/* What the epoll should look for; `more`: another turn at once. */
uint32_t sw_rx_wants(const struct sw_rx *rx, bool more);
/* A receive that was taken out of a shared queue, when the message doesn't come to its end. */
void sw_rx_give_back(struct sw_rx *rx, bool flushed);

/* wire_attach.c: it is closed, and its queue pair has none. */
void sw_rx_drop(struct sw_rx *rx);

static inline bool sw_rx_alive(const struct sw_rx *rx)
{
	return rx->s.fd >= 0;
}

#endif
