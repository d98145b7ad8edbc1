/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The connection manager.
 *
 *	active id --connect--> listener's channel: CONNECT_REQUEST with a new passive id
 *	passive id --accept--> active id's channel: CONNECT_RESPONSE, which becomes ESTABLISHED when
 *	                       it is fetched, since librdmacm moves the QP to RTS there and then
 *	                       tells the passive side, which gets its own ESTABLISHED
 *	either --disconnect--> the other's channel: DISCONNECTED; one's own comes when the other has
 *	                       answered, by disconnecting or by going away
 *
 * An id is owned by the user, except a passive one whose CONNECT_REQUEST nobody has fetched yet.
 * Two connected ids point at each other; whoever goes first clears the other's pointer. If they are
 * in two processes each has its end of a socket instead. Either way what one says to the other is a
 * message, which the other takes in by a sw_cm_take_* function. All under sw_lock unless a comment
 * says otherwise.
 */
#ifndef SOFTVERBS_CM_H
#define SOFTVERBS_CM_H

#include "softverbs/sw.h"

enum sw_cm_state {
	SW_CM_IDLE,
	SW_CM_BOUND,
	SW_CM_ADDR,  /* address resolved */
	SW_CM_ROUTE, /* route resolved */
	SW_CM_LISTEN,
	SW_CM_CONNECT,   /* active: request sent */
	SW_CM_REQUESTED, /* passive: request received */
	SW_CM_ACCEPTED,  /* passive: reply sent; active: reply received, not yet established */
	SW_CM_CONNECTED,
	SW_CM_CLOSING, /* disconnected here, the peer hasn't answered */
	SW_CM_CLOSED,  /* DISCONNECTED was delivered, or it failed */
	SW_CM_REMOVED, /* the device went away */
};

/* What an id waits for, with a deadline. */
enum sw_cm_wait {
	SW_CM_NOTHING,
	SW_CM_ANSWER,   /* to its connect request */
	SW_CM_AGAIN,    /* to ask again, since nobody listened */
	SW_CM_GOODBYE,  /* to its disconnect */
	SW_CM_TIMEWAIT, /* the end of the connection's afterlife */
};

struct sw_cm_chan {
	struct rdma_event_channel ibv;
	struct sw_pollq q;
	struct sw_list events;
};

/* What the cm keeps per device: a context and a default PD, as librdmacm does. */
struct sw_cm_dev {
	struct sw_list link;
	struct sw_device *dev;
	struct ibv_context *verbs;
	struct ibv_pd *pd;
	struct ibv_xrcd *xrcd; /* once an id wanted one */
	unsigned int refs;
};

struct sw_id {
	struct rdma_cm_id id;
	struct sw_list link; /* on the list of all ids */
	enum sw_cm_state state;
	bool sync; /* made without a channel: owns one, and calls block */
	bool reuse, afonly;
	bool peer_closed; /* the peer disconnected first */
	struct sw_cm_dev *dev;
	/* id.qp as messages find it, under the lock: that one the program sets as it likes. */
	struct sw_qp *qp;
	struct sw_id *peer;         /* at the other end */
	struct sw_cm_wire *wire;    /* ... or the way to it, in another process */
	struct sw_claim *claim;     /* the port, among processes */
	int backlog, queued;        /* listener: requests not fetched, at most and now */
	unsigned int events, acked; /* fetched events about this id, and acknowledged ones */
	uint16_t port;              /* local, host order; 0: none */
	uint8_t initiator_depth, responder_resources;
	struct rdma_conn_param param; /* of the last connect or accept, without private data */
	/* Of our sends: who connects says the one for both, the peer the other; rdma_accept(3). */
	uint8_t retry_count, rnr_retry_count;
	uint32_t remote_qpn;
	struct ibv_ece local_ece, remote_ece;
	struct ibv_qp_init_attr *ep_attr; /* a listening endpoint's: copied to each request */
	struct ibv_pd *ep_pd;
	uint8_t tos, ack_timeout;
	enum sw_cm_wait await;
	uint64_t deadline;
	struct sw_cm_msg *asked; /* its connect request, and till when it is said again */
	uint64_t patience;
};

#define SW_PRIV_MAX 256

enum sw_cm_kind {
	SW_CM_REQ = 1,
	SW_CM_REP,
	SW_CM_RTU,  /* ready to use */
	SW_CM_REJ,
	SW_CM_DREQ, /* goodbye */
	SW_CM_DREP, /* and the answer */
	SW_CM_KINDS,
};

/* An address as it stands in a message: 20 bytes. */
struct sw_cm_addr {
	uint16_t family, port; /* AF_INET, AF_INET6; network order */
	uint8_t ip[16];
};

/* What one id says to another; as it stands, also a frame between processes.
 *
 *	 0      1    2          4     8        12   16               20
 *	| kind | ud | priv_len | ps  | reason | qpn | depths, flow.. | retry.. | vendor, options, mask |
 *	 36    52        72        92
 *	| gid | source  | dest    | private data, 256 bytes |
 */
struct sw_cm_msg {
	uint8_t kind, ud;
	uint16_t priv_len;
	uint32_t ps;
	int32_t reason;
	uint32_t qpn;
	uint8_t initiator_depth, responder_resources, flow_control, srq;
	uint8_t retry_count, rnr_retry_count, zero[2];
	uint32_t ece_vendor, ece_options, ece_mask;
	union ibv_gid gid; /* the sender's */
	struct sw_cm_addr src, dst;
	uint8_t priv[SW_PRIV_MAX];
};

struct sw_event {
	struct rdma_cm_event ev;
	struct sw_list link;
	struct sw_id *id;      /* acknowledging counts on this one */
	struct sw_id *passive; /* CONNECT_REQUEST: the new id */
	uint8_t priv[SW_PRIV_MAX];
};

static inline struct sw_id *sw_id(struct rdma_cm_id *id)
{
	return sw_outer(id, struct sw_id, id);
}
static inline struct sw_cm_chan *sw_cm_chan(struct rdma_event_channel *ch)
{
	return sw_outer(ch, struct sw_cm_chan, ibv);
}

/* cm_chan.c */
struct sw_cm_chan *sw_cm_chan_new(int *err);
void sw_cm_chan_free(struct sw_cm_chan *ch);
/* Queues an event about `id` on its channel (on the listener's for CONNECT_REQUEST). NULL: no
 * memory; the event is lost, as a message would be. */
struct sw_event *sw_cm_event(struct sw_id *id, enum rdma_cm_event_type type, int status);
/* Adds private data, padded with zeros to `pad` bytes as InfiniBand messages are. */
void sw_cm_event_priv(struct sw_event *e, const void *data, size_t len, size_t pad);
/* What the other end asked for, seen from this end: its initiators are our responders. */
void sw_cm_event_conn(struct sw_event *e, const struct sw_cm_msg *m);
/* Drops what is queued about an id that goes. */
void sw_cm_forget(struct sw_id *id);
/* The id's events go where it goes. */
void sw_cm_migrate(struct sw_id *id, struct sw_cm_chan *to);
/* Without the lock: for a synchronous id, waits for the event that ends the call. */
int sw_cm_complete(struct rdma_cm_id *id);

/* cm_id.c */
struct sw_id *sw_cm_id_new(void *context, enum rdma_port_space ps, enum ibv_qp_type type);
/* Frees the structure; everything it was connected to has been told. */
void sw_cm_id_free(struct sw_id *id);
/* Without the lock: a synchronous id of that type, as rdma_create_id. */
int sw_cm_create_id(struct rdma_cm_id **id, enum rdma_port_space ps, enum ibv_qp_type type);
struct sw_list *sw_cm_ids(void);
int sw_cm_attach(struct sw_id *id, struct sw_device *dev, int port);
bool sw_cm_iwarp(const struct sw_id *id);
bool sw_cm_ud(const struct sw_id *id);

void sw_cm_device_removed(struct sw_device *dev);

/* cm_addr.c */
socklen_t sw_addrlen(const struct sockaddr *addr);
int sw_cm_bind(struct sw_id *id, const struct sockaddr *addr);
/* Whether another id has the same port, which only listening minds when both allow reuse. */
bool sw_cm_port_shared(const struct sw_id *id);
uint16_t sw_get_port(const struct sockaddr *addr);
void sw_set_port(struct sockaddr *addr, uint16_t port);
bool sw_is_any(const struct sockaddr *addr);

/* Reasons of a rejection, InfiniBand specification 12.6.7.2. */
#define SW_REJ_NO_RESOURCES 3
#define SW_REJ_INVALID_SID  8
#define SW_REJ_CONSUMER     28

/* cm_msg.c */
void sw_cm_say(const struct sw_id *id, enum sw_cm_kind kind, const void *priv, size_t len,
	       struct sw_cm_msg *m);
void sw_cm_addr_get(const struct sw_cm_addr *a, struct sockaddr_storage *to);
/* The listener that a request for this address finds: an exact address before a wildcard. */
struct sw_id *sw_cm_listener(uint32_t ps, const struct sockaddr *dst);
/* Makes the passive id: 0, or the reason of a rejection, or -1: the message is dropped. */
int sw_cm_take_request(struct sw_id *listener, const struct sw_cm_msg *m, struct sw_id **passive);
/* An active id's request is accepted. */
int sw_cm_take_reply(struct sw_id *id, const struct sw_cm_msg *m);
void sw_cm_take_rtu(struct sw_id *id);
uint8_t sw_cm_depth(uint8_t asked, uint8_t offered, int max);
struct sw_qp *sw_cm_qp(const struct sw_id *id);
/* iWARP: this end's QP is connected. */
void sw_cm_iwarp_join(struct sw_id *id, struct sw_device *dest);
/* Room for private data in the messages of the InfiniBand connection manager; what is not used
 * arrives as zeros. The connect request shares its 92 bytes with the IP addresses. */
#define SW_PRIV_REQ      56
#define SW_PRIV_REP      196
#define SW_PRIV_REJ      148
#define SW_PRIV_SIDR_REQ 180
#define SW_PRIV_SIDR_REP 136
size_t sw_cm_pad(const struct sw_id *id, size_t n);

/* cm_wire.c: the same between processes */
/* Opens the way and sends the request. 0, or an errno: ECONNREFUSED: nobody has the port. */
int sw_cm_wire_request(struct sw_id *id, const struct sw_cm_msg *m);
/* Says it to the peer of an id that has a way to it. */
void sw_cm_wire_say(struct sw_id *id, enum sw_cm_kind kind, int reason, const void *priv,
		    size_t len);
/* Closes the way, after what was said. */
void sw_cm_wire_end(struct sw_id *id);

/* cm_conn.c */
/* An active id's request is turned down. */
void sw_cm_refused(struct sw_id *id, int reason, const void *priv, size_t len);
/* Its request is said again, or at last refused. */
void sw_cm_ask_again(struct sw_id *id);
/* Nobody listens for the request that a process has taken: is it to be said again? */
bool sw_cm_nobody(struct sw_id *id);
/* The active side is ready: the passive side gets its ESTABLISHED. Without the lock. */
void sw_cm_established(struct sw_id *id);

/* cm_end.c */
/* The peer of an id that goes learns about it. */
void sw_cm_hangup(struct sw_id *id);
/* The peer says goodbye, answers a goodbye, or has gone without one. */
void sw_cm_take_goodbye(struct sw_id *id);
void sw_cm_take_answer(struct sw_id *id);
void sw_cm_take_hangup(struct sw_id *id);

/* cm_time.c */
void sw_cm_await(struct sw_id *id, enum sw_cm_wait what);
void sw_cm_alarm_moved(struct sw_id *id);

/* cm_ud.c */
void sw_cm_event_ud(struct sw_event *e, const struct sw_id *to, const union ibv_gid *gid,
		    uint32_t qpn);
void sw_cm_leave_all(struct sw_id *id);

/* cm_qp.c; these call verbs, so they are called without the lock */
int sw_cm_qp_rts(struct rdma_cm_id *id, uint8_t resp_res, uint8_t init_depth);
int sw_cm_qp_error(struct rdma_cm_id *id);
void sw_cm_destroy_cqs(struct rdma_cm_id *id);

#endif
