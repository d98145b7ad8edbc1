/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The connection manager inside one process.
 *
 *	active id --connect--> listener's channel: CONNECT_REQUEST with a new passive id
 *	passive id --accept--> active id's channel: CONNECT_RESPONSE, which becomes ESTABLISHED when
 *	                       it is fetched, since librdmacm moves the QP to RTS there and then
 *	                       tells the passive side, which gets its own ESTABLISHED
 *	either --disconnect--> the other's channel: DISCONNECTED; one's own comes when the other has
 *	                       answered, by disconnecting or by going away
 *
 * An id is owned by the user, except a passive one whose CONNECT_REQUEST nobody has fetched yet.
 * Two connected ids point at each other; whoever goes first clears the other's pointer. All under
 * sw_lock unless a comment says otherwise.
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
	struct sw_id *peer;         /* at the other end */
	int backlog, queued;        /* listener: requests not fetched, at most and now */
	unsigned int events, acked; /* fetched events about this id, and acknowledged ones */
	uint16_t port;              /* local, host order; 0: none */
	uint8_t initiator_depth, responder_resources;
	struct rdma_conn_param param; /* of the last connect or accept, without private data */
	uint32_t remote_qpn;
	struct ibv_ece local_ece, remote_ece;
	struct ibv_qp_init_attr *ep_attr; /* a listening endpoint's: copied to each request */
	struct ibv_pd *ep_pd;
	uint8_t tos, ack_timeout;
	enum sw_cm_wait await;
	uint64_t deadline;
};

#define SW_PRIV_MAX 256
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
void sw_cm_event_conn(struct sw_event *e, const struct sw_id *from);
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

/* cm_conn.c */
/* An active id's request is turned down. */
void sw_cm_refused(struct sw_id *id, int reason, const void *priv, size_t len);
/* The active side is ready: the passive side gets its ESTABLISHED. Without the lock. */
void sw_cm_established(struct sw_id *id);

/* cm_end.c */
/* The peer of an id that goes learns about it. */
void sw_cm_hangup(struct sw_id *id);

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
