/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * softverbs inside: every structure, and what one file offers the others.
 *
 *	sw_world ---- devices ---- contexts ---- PDs, MRs, CQs, SRQs, QPs: each a public struct first
 *	   |             |
 *	   |             +-- keys[]  key >> 8  -> MR or window
 *	   |             +-- qps[]   qp_num    -> QP
 *	   +-- waiting: QPs whose next request can't run yet, each with a deadline
 *	   +-- cm: channels, ids, events
 *
 * One lock guards all of it (sw_lock). A public function takes it, does its work and gives it back;
 * functions declared here expect it held unless they say otherwise. Inside one process
 * nothing runs on its own: a post moves what can move, and whoever polls or waits runs what has
 * become due (sw_due). What other processes have to do with it is in net.h.
 */
#ifndef SOFTVERBS_SW_H
#define SOFTVERBS_SW_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* What these headers declare is what we export. */
#pragma GCC visibility push(default)
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#pragma GCC visibility pop

#include "softverbs/fault.h"
#include "softverbs/list.h"
#include "softverbs/persona.h"
#include "sgpool/softverbs.h"

#define sw_outer(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))
#define SW_NEVER                    UINT64_MAX

/* ---- world.c: the lock, the clock, the counts ---- */

void sw_lock(void);
void sw_unlock(void);
/* Waits until somebody calls sw_wake; the lock is given back meanwhile. */
void sw_sleep(void);
void sw_wake(void);
uint64_t sw_now(void);
/* By itself, that is: sv_clock_advance() has not been called. */
bool sw_clock_runs(void);
void sw_count(enum sv_counter what, int by);
int sw_fail(int err);
void *sw_null(int err);

/* ---- pollq.c: a descriptor that is readable while something is queued, or when it's time ---- */

struct sw_pollq {
	int ep;             /* what the user polls: an epoll over the two below */
	int ev;             /* eventfd: readable while `count` > 0 */
	int tm;             /* timerfd: expires at `when` */
	unsigned int count; /* things queued */
	uint64_t when;      /* SW_NEVER: not armed */
};
int sw_pollq_init(struct sw_pollq *q);
void sw_pollq_fini(struct sw_pollq *q);
void sw_pollq_add(struct sw_pollq *q);
void sw_pollq_sub(struct sw_pollq *q);
/* The descriptor becomes readable at `when` at the latest, whatever is queued. */
void sw_pollq_at(struct sw_pollq *q, uint64_t when);
/* Called without the lock: sleeps till the descriptor is readable. 0, or -1/errno (EAGAIN if it's
 * O_NONBLOCK, EINTR). */
int sw_pollq_wait(struct sw_pollq *q);

/* ---- device.c, context.c ---- */

#define SW_MAX_PORTS 4
#define SW_MAX_GIDS  4

struct sw_port {
	enum ibv_port_state state;
	union ibv_gid gid[SW_MAX_GIDS];
	int ngid;
	uint32_t addr4; /* the IPv4 address it answers to, network order */
	uint16_t lid;
};

struct sw_listener;
struct sw_tx;
struct sw_rx;
struct sw_key {
	uint32_t lkey, rkey; /* 0xffffffff: not in use as such */
	struct sw_mr *mr;
	struct sw_mw *mw;
	uint8_t tag;
};

struct sw_device {
	struct ibv_device ibv;
	struct sw_list link;
	struct sw_list contexts;
	struct sw_persona p;
	int index;
	int nports;
	bool removed;
	bool listed; /* in a list given to the user, or in sw_world */
	unsigned int refs;
	struct sw_port port[SW_MAX_PORTS + 1]; /* from 1 */
	struct sw_key *key;
	uint32_t nkey, key_next;
	struct sw_qp **qp;
	uint32_t nqp, qp_next;
	uint32_t qpn_base;
	uint32_t
		block; /* net_addr.c: of QP numbers, under which other processes find it; 0: none */
	struct sw_listener *listener[2];
	int count[SV_NCOUNTERS];
	struct sw_list xrc_srqs; /* which requests name by number */
	uint32_t srq_next;
};
#define SW_QPN_BASE 17u /* of a device that other processes don't see */

struct sw_context {
	struct sw_device *dev;
	struct sw_list link;
	struct sw_list async;
	struct sw_pollq async_q;
	unsigned int objects;
	bool ours; /* opened by the cm, not by the user */
	struct verbs_context v;
};
static inline struct sw_context *sw_ctx(struct ibv_context *c)
{
	return sw_outer(c, struct sw_context, v.context);
}
static inline struct sw_device *sw_dev(struct ibv_context *c)
{
	return sw_ctx(c)->dev;
}
struct sw_list *sw_devices(void);
/* Makes the devices that are there without being asked for, once. */
void sw_default_device(void);
struct ibv_context *sw_open(struct sw_device *dev, bool ours, int *err);
int sw_close(struct sw_context *ctx);
void sw_device_put(struct sw_device *dev);
/* The port that owns the address or GID, or NULL. */
struct sw_device *sw_port_by_gid(const union ibv_gid *gid, int *port);
struct sw_device *sw_port_by_lid(uint16_t lid, int *port);
struct sw_device *sw_port_by_addr(const struct sockaddr *addr, int *port);
void sw_fill_ops(struct sw_context *ctx);
/* A fault strikes a device: SW_REMOVE, SW_DOWN or SW_UP. Takes the lock unless it is held. */
void sw_device_happens(const char *name, enum sw_action what, bool locked);
#define SW_MTU 4096u
int sw_query_port(struct ibv_context *c, uint8_t port, struct ibv_port_attr *a, size_t len);

/* ---- async.c ---- */

struct sw_async {
	struct sw_list link;
	struct ibv_async_event ev;
};
void sw_async_cq(struct sw_cq *cq, enum ibv_event_type type);
void sw_async_qp(struct sw_qp *qp, enum ibv_event_type type);
void sw_async_srq(struct sw_srq *srq, enum ibv_event_type type);
void sw_async_device(struct sw_context *ctx, enum ibv_event_type type);
void sw_async_port(struct sw_device *dev, int port, enum ibv_event_type type);
/* Drops the events about an object that goes, and waits for those that were fetched. */
void sw_async_forget(struct sw_context *ctx, const void *object, uint32_t *got, uint32_t *acked);

/* ---- pd.c, mr.c, mw.c, ah.c ---- */

struct sw_pd {
	struct ibv_pd ibv;
	struct sw_pd *root; /* itself, or a parent domain's PD */
	unsigned int refs;
};
struct sw_mr {
	struct ibv_mr ibv;
	struct sw_pd *pd;
	uint8_t *base; /* where the CPU sees iova */
	uint64_t iova;
	unsigned int access;
	unsigned int windows;
	void *map; /* our own mapping of a dma-buf */
	size_t map_len;
};
/* A piece of memory that was checked. */
struct sw_piece {
	uint8_t *p;
	uint32_t n;
};
struct ibv_pd *sw_pd_new(struct ibv_context *c, int *err);
int sw_pd_free(struct ibv_pd *pd);
uint32_t sw_key_alloc(struct sw_device *dev);
void sw_key_free(struct sw_device *dev, uint32_t index);
/* Checks SGEs (key, PD, bounds, access) up to `want` bytes; fills at most n pieces. Returns a
 * status, IBV_WC_SUCCESS with *out pieces and *len bytes in all. */
enum ibv_wc_status sw_sges(struct sw_device *dev, struct sw_pd *pd, const struct ibv_sge *sge,
			   uint32_t n, unsigned int access, uint64_t want, struct sw_piece *out,
			   uint32_t *nout, uint64_t *len);
struct ibv_td *sw_alloc_td(struct ibv_context *c, struct ibv_td_init_attr *a);
int sw_dealloc_td(struct ibv_td *td);
struct ibv_pd *sw_alloc_parent_domain(struct ibv_context *c, struct ibv_parent_domain_init_attr *a);
struct ibv_mw *sw_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int sw_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);
int sw_dealloc_mw(struct ibv_mw *mw);
struct sw_mr *sw_mr_by_lkey(struct sw_device *dev, uint32_t lkey);

/* ---- cq.c ---- */

struct sw_channel {
	struct ibv_comp_channel ibv;
	struct sw_pollq q;
	struct sw_list ready; /* CQs with events nobody has fetched */
};
enum sw_side {
	SW_SEND,
	SW_RECV
};
struct sw_held; /* cq_fault.c */
struct sw_cqe {
	struct ibv_wc wc;
	struct sw_qp *qp; /* whose slots the poll frees; NULL once the QP is gone */
	struct sw_srq *srq;
	uint32_t upto; /* slots before this one are free after the poll */
	uint8_t side;
	bool solicited;
	uint64_t at; /* when it went into the CQ, if that keeps the time */
};
enum sw_arm {
	SW_ARM_NONE,
	SW_ARM_SOLICITED,
	SW_ARM_NEXT
};
struct sw_cq {
	struct ibv_cq_ex ibv;
	struct sw_channel *ch;
	struct sw_list ready; /* on ch->ready while pending > 0 */
	unsigned int pending;
	struct sw_cqe *ring;
	uint32_t mask, head, tail, cap;
	enum sw_arm armed;
	bool dead;
	unsigned int refs;
	unsigned int comp_got, async_got;
	/* ibv_cq_ex: what is being looked at, and law 6's habit. */
	struct ibv_wc cur;
	bool overshoot;
	uint32_t skip;        /* completions that will be lost */
	struct sw_held *held; /* kept back by a fault */
	uint32_t nheld;
	bool keeps_time; /* IBV_WC_EX_WITH_COMPLETION_TIMESTAMP */
	uint64_t at;     /* of the CQE that was polled last */
};
static inline struct sw_cq *sw_cq(struct ibv_cq *cq)
{
	return sw_outer(cq, struct sw_cq, ibv);
}
void sw_cq_push(struct sw_cq *cq, struct sw_cqe *cqe);
int sw_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
/* One completion, taking the lock: 1, 0 or a negative number. */
int sw_poll_one(struct sw_cq *cq, struct ibv_wc *wc);
int sw_req_notify_cq(struct ibv_cq *cq, int solicited_only);
/* cq_fault.c: a completion that a rule strikes; true: it was taken care of. */
bool sw_cq_struck(struct sw_cq *cq, struct sw_cqe *cqe);
/* One poll has passed: what has been held long enough goes in. */
void sw_cq_held(struct sw_cq *cq);
void sw_cq_insert(struct sw_cq *cq, const struct sw_cqe *cqe);
void sw_cq_ring_bell(struct sw_cq *cq, bool solicited);
void sw_cq_held_forget(struct sw_cq *cq, struct sw_qp *qp, bool drop);
void sw_cq_held_forget_srq(struct sw_cq *cq, struct sw_srq *srq);
/* cq_ex.c */
struct ibv_cq_ex *sw_create_cq_ex(struct ibv_context *c, struct ibv_cq_init_attr_ex *a);
/* A QP goes: its CQEs are dropped, or stay without an owner. */
void sw_cq_forget(struct sw_cq *cq, struct sw_qp *qp, bool drop);
/* An SRQ goes: its CQEs stay. */
void sw_cq_forget_srq(struct sw_cq *cq, struct sw_srq *srq);

/* ---- qp.c, modify.c ---- */

/*
 *	tail          next            head
 *	  |             |               |
 *	  v             v               v
 *	[ done, CQE    ][ to be run    ] free ...
 *	  not polled ]
 *
 * Counters run freely; a slot's index is counter & mask. A slot before `tail` is free.
 */
struct sw_queue {
	uint32_t head, next, tail;
	uint32_t una; /* send queues: the first that has no completion yet; next, or before it while
		       * requests are under way to another process */
	uint32_t depth, mask;
	uint32_t max_sge;
};
struct sw_swqe {
	uint64_t wr_id;
	enum ibv_wr_opcode op;
	unsigned int flags;
	uint32_t num_sge;
	uint32_t len;
	uint32_t imm;  /* or the rkey to invalidate */
	uint32_t srqn; /* XRC: whose receive it takes */
	bool inl;
	uint32_t late; /* ms that a WRITE's last bytes come late: a fault; 0: none */
	bool done;   /* it is, but one before it isn't */
	bool summed; /* strict.c */
	uint64_t sum;
	uint32_t rkey;
	uint64_t raddr;
	union {
		struct {
			uint64_t compare_add, swap;
		} atomic;
		struct {
			struct ibv_ah_attr av; /* the handle may be destroyed before it is used */
			uint32_t qpn, qkey;
		} ud;
		struct {
			struct sw_mw *mw;
			struct ibv_mw_bind_info info;
			uint32_t rkey;
		} bind;
	};
};
struct sw_rwqe {
	uint64_t wr_id;
	uint32_t num_sge;
	uint32_t len; /* strict.c: what arrived */
	bool summed;
	uint64_t sum;
};
struct sw_rq {
	struct sw_queue q;
	struct sw_rwqe *wqe;
	struct ibv_sge *sge; /* max_sge a slot */
};
enum sw_wait {
	SW_WAIT_NO,
	SW_WAIT_RNR,
	SW_WAIT_PEER
};
struct sw_qp {
	struct ibv_qp_ex ibv;
	struct sw_device *dev;
	struct sw_pd *pd;
	struct sw_cq *scq, *rcq;
	struct sw_srq *srq;
	struct sw_xrcd *xrcd; /* XRC_RECV: pd, rcq and srq are those of the last request's SRQ */
	enum ibv_qp_state state;
	struct ibv_qp_attr attr;
	struct ibv_qp_cap cap;
	bool sig_all;
	bool broken;            /* iWARP: the connection has ended, but this request had left */
	struct sw_device *dest; /* where attr.dest_qp_num lives, from RTR on */
	bool remote;            /* ... in another process */
	bool stalled;           /* the next request has to wait for those under way */
	bool stepping;          /* one is being done; if that ends the QP, engine.c flushes after it */
	struct sw_tx *tx;       /* wire_send.c: requests to there */
	struct sw_rx *rx;       /* wire_recv.c: requests from there */
	struct sw_list busy;    /* wire_ud.c: waits for room in a socket */
	struct sw_queue sq;
	struct sw_swqe *swqe;
	struct ibv_sge *ssge; /* max_sge a slot */
	uint8_t *inl;         /* max_inline_data a slot */
	struct sw_rq rq;
	struct sw_late *late; /* late.c: of a WRITE that came */
	enum sw_wait wait;
	uint64_t deadline;
	struct sw_list waiting; /* on sw_world's list while wait is set */
	unsigned int async_got;
	unsigned int mcast;         /* groups it is attached to */
	struct sw_builder *builder; /* ibv_wr_*; NULL: made without */
};
static inline struct sw_qp *sw_qp(struct ibv_qp *qp)
{
	return sw_outer(qp, struct sw_qp, ibv.qp_base);
}
struct sw_qp *sw_qp_find(struct sw_device *dev, uint32_t qpn);
struct ibv_qp *sw_create_qp_ex(struct ibv_context *c, struct ibv_qp_init_attr_ex *a);
/* To the error state: everything still queued is flushed. */
void sw_qp_error(struct sw_qp *qp);
void sw_qp_reset(struct sw_qp *qp);
/* One end of a connection that the cm made on iWARP; dest NULL: the other is in another process. */
void sw_iwarp_connect(struct sw_qp *qp, struct sw_device *dest, uint32_t qpn, uint8_t init_depth,
		      uint8_t resp_res);
int sw_rq_init(struct sw_rq *rq, uint32_t depth, uint32_t max_sge);
void sw_rq_fini(struct sw_rq *rq);
uint32_t sw_pow2(uint32_t n);
/* SGEs per slot, for a queue that asked for so many. */
uint32_t sw_sge_room(const struct sw_device *dev, uint32_t asked);
void sw_cm_qp_ended(struct sw_qp *qp); /* cm_end.c */
void sw_cm_qp_gone(const struct sw_qp *qp);
uint32_t sw_rounded(uint32_t n, enum sw_rounding how);

/* ---- post.c, engine.c ---- */

int sw_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
/* A chain, posted wholly or not at all; takes the lock. */
int sw_post_all(struct sw_qp *qp, struct ibv_send_wr *wr);
int sw_builder_new(struct sw_qp *qp);
void sw_builder_free(struct sw_builder *b);
int sw_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int sw_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int sw_rq_put(struct sw_rq *rq, const struct ibv_recv_wr *wr, const struct sw_persona *p);
/* Runs the send queue as far as it goes. */
void sw_run(struct sw_qp *qp);
/* Runs whoever waits for a receive on this QP, or on this SRQ. */
void sw_kick(struct sw_qp *qp);
void sw_kick_srq(struct sw_srq *srq);
/* The QP answers no more: who waited for a receive on it waits for an answer now, and that ends. */
void sw_leave(struct sw_qp *qp);
/* Ends the waits whose time is over. Cheap when nobody waits. */
void sw_due(void);
void sw_cm_due(void); /* cm_time.c: the same for connections */
void sw_wait_stop(struct sw_qp *qp);
/* The send in slot number `at` has ended; a CQE only if it asked for one or failed. */
void sw_complete_send(struct sw_qp *qp, uint32_t at, enum ibv_wc_status status, uint32_t byte_len);
/* A receive has ended; wr_id, status and opcode are filled. `upto` as in struct sw_cqe. */
void sw_complete_recv(struct sw_qp *qp, struct ibv_wc *wc, uint32_t upto, bool solicited);

/* ---- srq.c ---- */

struct sw_srq {
	struct ibv_srq ibv;
	struct sw_device *dev;
	struct sw_pd *pd;
	struct sw_rq rq;
	uint32_t unpolled; /* taken, but the CQE was not polled */
	uint32_t limit;    /* 0: no event wanted */
	unsigned int refs;
	unsigned int async_got;
	struct ibv_srq_attr cap;
	struct sw_list link; /* XRC: on its device's list */
	struct sw_xrcd *xrcd;
	struct sw_cq *cq;
	uint32_t num;
};
static inline struct sw_srq *sw_srq(struct ibv_srq *s)
{
	return sw_outer(s, struct sw_srq, ibv);
}

struct ibv_srq *sw_create_srq_ex(struct ibv_context *c, struct ibv_srq_init_attr_ex *a);
int sw_get_srq_num(struct ibv_srq *srq, uint32_t *num);
/* One receive was taken off its queue. */
void sw_srq_taken(struct sw_srq *srq);

/* ---- xrc.c ---- */

struct sw_xrcd {
	struct ibv_xrcd ibv;
	unsigned int refs;
	bool file; /* one domain for all that name the same file */
	dev_t file_dev;
	ino_t file_ino;
};
struct ibv_xrcd *sw_open_xrcd(struct ibv_context *c, struct ibv_xrcd_init_attr *a);
int sw_close_xrcd(struct ibv_xrcd *xrcd);
int sw_xrcd_free(struct ibv_xrcd *xrcd);
/* The SRQ becomes one of the domain, with a number of its own. */
void sw_xrc_enter(struct sw_srq *srq, struct sw_xrcd *xrcd, struct sw_cq *cq);
void sw_xrc_leave(struct sw_srq *srq);
/* A request for this SRQ arrives at an XRC_RECV queue pair; false: it may not. */
bool sw_xrc_target(struct sw_qp *qp, uint32_t srqn);

/* ---- strict.c: all but sw_strict are called only while it's on ---- */

extern bool sw_strict_on;
/* Something a test should know, in a sentence. */
void sw_strict(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void sw_strict_sent(struct sw_qp *qp, uint32_t at);
void sw_strict_received(struct sw_qp *qp, uint32_t at, uint32_t len);
void sw_strict_retire(struct sw_qp *qp, enum sw_side side, uint32_t upto);
void sw_strict_dereg(struct sw_mr *mr);
void sw_strict_sinks(struct sw_device *dev, const struct ibv_sge *sge, uint32_t n, uint64_t wr_id);
bool sw_strict_mapped(const void *p, size_t n);
/* Strictly, only a polled completion frees a slot, whatever the persona. */
static inline bool sw_early_slots(const struct sw_device *dev)
{
	return dev->p.early_slots && !sw_strict_on;
}

#endif
