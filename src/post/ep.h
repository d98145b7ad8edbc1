/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The endpoint and the completion queue as they know each other.
 *
 *      sgp_cq  place[0] place[1] ...        a place: an endpoint, its generation, its room
 *                 |
 *              sgp_ep   send: sgp_side      posts come in under the side's lock
 *                       recv: sgp_side      completions end slots under the cq's lock
 *
 * A device's completion is matched to the slot that its wr_id names. The slot is then either
 * delivered at once, into the caller's sgp_wc, or kept: it joins the queue's pending list, in
 * order, which sgp_poll() empties before it asks the device. So nothing is allocated to keep one,
 * and there is always room.
 *
 * What a poster has to tell the poller goes into the cq's inbox, whose lock is taken last: slots
 * that the device did not take although their post had been accepted, and endpoints that need
 * attention when the queue runs empty (gathered posts to submit, an unsignalled tail to retire).
 */
#ifndef SGP_EP_H
#define SGP_EP_H

#include "post/queue.h"

#define SGP_QPN_BUCKETS 256 /* by a queue pair's number */

struct sgp_refill;

/* What a completion queue knows of a receive queue that is kept full: see refill.h. */
struct sgp_seat {
	struct sgp_cq *cq;
	struct sgp_refill *refill; /* NULL: the caller posts */

	/* Under the cq's lock. */
	struct sgp_seat *next_listed; /* receives of it were handed out */
	bool listed;
	/* A shared receive queue's. */
	struct sgp_srq *srq; /* NULL: it is left, and its room awaits an empty poll */
	struct sgp_seat *next_on_cq;
	unsigned int users, room;

	struct sgp_seat *next_of_srq; /* under the srq's seats_lock */

	/* From any thread. */
	struct sgp_seat *next_served;
	_Atomic bool served;
};

enum sgp_ep_life {
	SGP_EP_CONNECTED = 1 << 0, /* the queue pair has been in RTS */
	SGP_EP_STOPPED = 1 << 1,   /* no post any more: closing, disconnected, or after an error */
};

struct sgp_ep {
	struct sgp_cq *cq;
	struct rdma_cm_id *id; /* NULL: a plain queue pair */
	struct ibv_qp *qp;     /* NULL once destroyed */
	uint32_t index;        /* place in the cq's table */
	int pd_index;
	uint64_t pd_bit; /* sgp_pd_bit() of it */
	enum ibv_qp_type type;
	bool iwarp;
	bool sig_all;
	/* A bit for each opcode that needs no planning as a rule; 0 where pools are checked (checked.h). */
	_Atomic uint32_t plain;
	uint64_t plain_least, plain_span; /* bytes of such: from the least on, so many more */
	uint8_t lacks;                    /* enum sgp_kind: operations that it does not have */
	uint32_t max_inline;              /* that the queue pair takes ... */
	uint32_t auto_inline; /* ... and that go inline unasked: what the creator asked for */
	int max_sge_rd;       /* of a READ */
	uint64_t max_msg;
	_Atomic uint8_t life; /* enum sgp_ep_life */

	struct sgp_side send, recv;

	/* Under the send side's lock: requests made, but not given to the device yet. */
	struct ibv_send_wr *wr; /* [depth] */
	uint32_t nwr;
	uint32_t accepted;     /* of these, belong to posts that have returned 0 */
	uint32_t doorbell_seq; /* sequence of wr[0] */
	char *inlined;         /* [depth][max_inline]: gathered inline payloads */
	bool listed;           /* in the cq's inbox for attention */
	struct sgp_ep_stats stats;
	/*
	 * Posts of a plain operation, with a doorbell of its own or waiting for one: for each of these only one
	 * number is counted. stats has the others', and its signalled is not used.
	 */
	uint64_t alone, gathered;
	uint64_t quiet; /* requests without IBV_SEND_SIGNALED */

	uint64_t recvs, recv_refused; /* under the receive side's lock */

	/* Receives: the caller's into recv, the library's into recv, or a shared queue's. */
	struct sgp_side *in;       /* where they complete */
	struct sgp_refill *refill; /* its own, or NULL */
	struct sgp_seat own_seat;  /* with refill */
	struct sgp_seat *seat;     /* own_seat, the shared queue's, or NULL */
	struct sgp_srq *srq;
	uint32_t qpn;
	struct sgp_ep *next_qpn; /* of those with the same place in by_qpn; under the cq's lock */
	struct sgp_ep *next_on_srq; /* under the srq's lock */
	void *recv_context;         /* of what it takes from there; NULL: as it was posted */
	uint64_t joined_at;         /* newest_done of the srq then; likewise */

	/* Under the cq's lock. */
	unsigned int pending; /* slots in the cq's pending list */
	uint64_t completions, errors, cancelled;
	unsigned int quarantined; /* holds of cancelled requests that have not ended */
	bool stuck;               /* the queue pair could not be destroyed */
	struct { /* what a reset makes INIT of, if the last one got no farther than RESET */
		bool due;
		uint8_t port_num;
		uint16_t pkey_index;
		unsigned int access;
		uint32_t qkey;
	} init;
	struct sgp_window *windows;

	struct sgp_ep *next; /* in the inbox */
};

static inline unsigned int sgp_ep_life(const struct sgp_ep *ep)
{
	return atomic_load_explicit(&ep->life, memory_order_relaxed);
}

static inline bool sgp_ep_is_stopped(const struct sgp_ep *ep)
{
	return sgp_ep_life(ep) & SGP_EP_STOPPED;
}

static inline bool sgp_ep_was_connected(const struct sgp_ep *ep)
{
	return sgp_ep_life(ep) & SGP_EP_CONNECTED;
}

struct sgp_place {
	struct sgp_ep *ep;   /* NULL: free, unless it awaits an empty poll */
	uint16_t generation; /* of the present or last endpoint; 0: never used */
	bool awaits_empty;   /* its queue pair is gone, but completions of it may still come */
	unsigned int room;   /* entries reserved */
};

#define SGP_CQ_BACK  192 /* chunks that go back to the pool at a time */
#define SGP_CQ_BATCH 32  /* completions asked of the device at a time */

struct sgp_cq {
	struct ibv_cq *cq;
	struct ibv_comp_channel *channel;
	int epoll_fd;        /* what sgp_cq_fd() gives: channel->fd, wake_fd and tail_fd */
	int wake_fd;         /* an eventfd: pending completions that no device will announce */
	int tail_fd;         /* a timerfd: there is a tail to retire, if nothing has done it yet */
	bool tail_waits;     /* it runs, or has ended and nobody has read it yet */
	_Atomic bool roused; /* wake_fd has been written to */
	bool single_threaded;
	int max_sge, max_chunk; /* of a handed-over list */

	struct sgp_lock lock;
	/*
	 * Beside lock, to change which endpoints there are or an endpoint's qp; instead of it, to look.
	 * Events need that: a queue pair that goes waits, under lock, until its events have been told.
	 */
	struct sgp_lock places_lock;
	struct sgp_place *place;
	unsigned int nplaces, neps, nawaiting;
	unsigned int reserved;    /* entries promised to endpoints, of cq->cqe */
	unsigned int empty_polls; /* in a row */
	unsigned int full_polls;  /* since endpoints were last seen to */
	_Atomic bool failed;      /* overrun: no completion comes any more */
	struct sgp_slot *pending, **pending_end;
	uint64_t stale;                         /* completions that named no posted slot */
	struct sgp_seat *listed;                /* to be refilled before the poll returns */
	struct sgp_seat *seats;                 /* of shared receive queues */
	unsigned int nleft;                     /* of these, left and awaiting an empty poll */
	struct sgp_ep *by_qpn[SGP_QPN_BUCKETS]; /* with a shared receive queue */
	_Atomic(struct sgp_seat *) served;      /* a put had chunks for them */
	struct sgp_chunk *back[SGP_CQ_BACK];    /* [nback]: of ended messages, to be put */
	size_t nback;                           /* 0 between the poller's calls */

	struct sgp_lock inbox_lock;
	struct sgp_slot *untaken, **untaken_end;
	struct sgp_ep *attention;
	_Atomic bool inbox; /* there is something in it */
	_Atomic bool armed; /* somebody may sleep: what is listed from now on has to wake him */

	struct ibv_cq_ex *ex; /* cq, with the device's time; else NULL */
	uint64_t *stamp;      /* [SGP_CQ_BATCH]: of those polled last */
};

/* The endpoint in the place that a wr_id names; NULL: none. */
static inline struct sgp_ep *sgp_cq_ep_of(const struct sgp_cq *cq, uint64_t wr_id)
{
	uint64_t index = wr_id >> 32 & (SGP_MAX_ENDPOINTS - 1);

	return index < cq->nplaces ? cq->place[index].ep : NULL;
}

/*
 * Make cq->cq an extended queue that tells the time of each completion. Returns 0; -1 with EOPNOTSUPP
 * where the device has none, or the errno of ibv_create_cq_ex(3). cq_ex.c.
 */
int sgp_cq_make_ex(struct sgp_cq *cq, struct ibv_context *verbs, const struct sgp_cq_attr *attr);

/* ibv_poll_cq(3) of such a queue, for at most SGP_CQ_BATCH; fills in cq->stamp. The lock is held. */
int sgp_cq_poll_ex_locked(struct sgp_cq *cq, int n, struct ibv_wc *raw);

/*
 * Give ep a place and reserve room entries, resizing the device's queue if it must. Sets ep->index
 * and both sides' wr_base. Returns 0; -1 with ENOSPC or the errno of ibv_resize_cq(3), nothing
 * changed.
 */
int sgp_cq_attach(struct sgp_cq *cq, struct sgp_ep *ep, unsigned int room);

/* The endpoint's room is reserved for ever: its queue pair stays, and may still give completions. */
void sgp_cq_forgo_room(struct sgp_cq *cq, const struct sgp_ep *ep);

/* The endpoint goes. Its room stays reserved while its place awaits an empty poll. */
void sgp_cq_detach(struct sgp_cq *cq, struct sgp_ep *ep);

/* A slot of an accepted post that the device did not take: it ends with slot->error. A poster's. */
void sgp_cq_send_back(struct sgp_cq *cq, struct sgp_slot *slot);

/* See to the endpoint when the queue runs empty. A poster's, under the send side's lock. */
SGP_COLD void sgp_cq_list(struct sgp_cq *cq, struct sgp_ep *ep);

/* Wake whoever sleeps since it armed the queue, to see to what has been listed. A poster's. */
SGP_COLD void sgp_cq_rouse(struct sgp_cq *cq);

/* Fill in up to n completions: the pending ones first, then the device's. The lock is held. */
int sgp_cq_reap_locked(struct sgp_cq *cq, int n, struct sgp_wc *wc);

/*
 * All completions that the device has now join the pending list. Returns whether more may come:
 * false when the queue has failed. The lock is held.
 */
bool sgp_cq_keep_all_locked(struct sgp_cq *cq);

/*
 * The device is finished with what the endpoint's queue pair had: what is still posted joins the
 * pending list as flushed, receives as well if they are not to be posted again. The lock is held.
 */
void sgp_cq_flush_locked(struct sgp_cq *cq, struct sgp_ep *ep, bool receives);

/* The queue pair is gone: its room comes back with the next empty poll. The lock is held. */
void sgp_cq_await_empty_locked(struct sgp_cq *cq, struct sgp_ep *ep);

/*
 * A new life for the endpoint's queue pair: its slots get the next generation, so that completions
 * of the old one are stale. The cq's lock and both sides' are held.
 */
void sgp_cq_renew_locked(struct sgp_cq *cq, struct sgp_ep *ep);

/* The group joins the pending list, to be told of. The lock is held. */
void sgp_cq_tell_locked(struct sgp_cq *cq, struct sgp_ep *ep, struct sgp_slot *leader);

/*
 * Fill in the list that a group hands back, an empty one. It has room for as many SGEs as were posted: the post
 * has seen to that. Its slots do not have the holds any more. The lock is held. handover.c.
 */
void sgp_hand_over(struct sgp_side *side, const struct sgp_slot *leader, struct sgp_sgl *sgl);

/* Drop the holds of a cancelled group's slots, whose post is over, so that they have none; returns how
 * many. The cq's lock is held. */
unsigned int sgp_group_drop_holds(struct sgp_side *side, struct sgp_slot *leader);

/* Whether no slot of the leader's group is posted any more. The cq's lock is held. */
static inline bool sgp_group_has_ended(const struct sgp_slot *leader)
{
	return leader->parts == 1 ? leader->ended : !leader->left;
}

/* A slot that no completion ends has ended: its group is kept, if that was the last and is owed. The
 * lock is held. */
void sgp_cq_end_locked(struct sgp_cq *cq, struct sgp_ep *ep, struct sgp_side *side,
		       struct sgp_slot *slot, enum ibv_wc_status status);

/* What posters sent back joins the pending list: accepted, but not taken by the device. The lock is
 * held. */
void sgp_cq_take_untaken_locked(struct sgp_cq *cq);

/* See to the endpoints in the inbox: submit, and retire tails if asked to. The lock is held. */
void sgp_cq_attend_locked(struct sgp_cq *cq, bool tails);

/*
 * Promise room entries more, resizing the device's queue if it must. Returns 0; -1 with ENOSPC or the
 * errno of ibv_resize_cq(3), nothing changed. The lock is held.
 */
int sgp_cq_reserve_locked(struct sgp_cq *cq, unsigned int room);

/* Receives of the seat were handed out: refill it before the poll returns. The lock is held. */
static inline void sgp_seat_list_locked(struct sgp_cq *cq, struct sgp_seat *seat)
{
	if (seat->listed || !seat->refill)
		return;
	seat->listed = true;
	seat->next_listed = cq->listed;
	cq->listed = seat;
}

/* There are chunks for the seat: the next poll is to see to it. From any thread. */
void sgp_seat_rouse(struct sgp_seat *seat);

/* Refill all that are listed or served; errno is left alone. The lock is held. */
void sgp_cq_refill_locked(struct sgp_cq *cq);

/* Free the seats that are left: the device's queue was seen empty. The lock is held. */
void sgp_cq_free_seats_locked(struct sgp_cq *cq);

/* The seat goes. Nobody rouses it any more. The lock is held. */
void sgp_seat_forget_locked(struct sgp_cq *cq, struct sgp_seat *seat);

/* Make sgp_cq_fd() readable. */
void sgp_cq_wake(struct sgp_cq *cq);

/*
 * Give the device what is gathered. The first ep->accepted requests are of posts that have returned
 * 0: what the device does not take of them ends with an error. Returns the sequence of the first
 * slot behind them that it did not take either, these being withdrawn; the head if it took all;
 * *err is its errno, or 0. The send side's lock is held.
 */
uint32_t sgp_ep_ring_locked(struct sgp_ep *ep, int *err);

/*
 * The same of one request alone, in ep->wr[0], whose slot is the last. Returns 0: it's queued; or the
 * device's errno, and the slot is withdrawn.
 */
int sgp_ep_ring_alone_locked(struct sgp_ep *ep);

/*
 * No post any more, and none on its way. What was gathered is never sent: it ends as flushed. An
 * unsignalled tail that may have succeeded gets a request that retires it, the last one.
 * close.c.
 */
void sgp_ep_stop_posts(struct sgp_ep *ep);

/* The queue pair goes. Returns 0; the errno of ibv_destroy_qp(3), and it's still there. close.c. */
int sgp_ep_destroy_qp(struct sgp_ep *ep);

/* Holds that wait for the device although the caller is done with them: cancel.c. The cq's lock is
 * held. */
unsigned int sgp_ep_quarantined_locked(struct sgp_ep *ep);

/* Submit what is gathered and retire an unsignalled tail. Returns 0, or an errno. The lock is held.
 */
int sgp_ep_sync_locked(struct sgp_ep *ep);

#endif
