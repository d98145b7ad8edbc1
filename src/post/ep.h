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
 * delivered at once, into the caller's sgp_wc, or kept: the slot joins the queue's pending list, in
 * order, which sgp_poll() empties before it asks the device. So nothing is allocated to keep one,
 * and there is always room.
 */
#ifndef SGP_EP_H
#define SGP_EP_H

#include "post/queue.h"

struct sgp_ep {
	struct sgp_cq *cq;
	struct rdma_cm_id *id;
	struct ibv_qp *qp; /* NULL once destroyed */
	uint32_t index;    /* place in the cq's table */
	int pd_index;
	bool sig_all;
	uint32_t max_inline;
	uint64_t max_msg;
	_Atomic bool connected; /* the queue pair has been in RTS */
	_Atomic bool stopped;   /* no post any more: closing, disconnected, or after an error */
	unsigned int pending;   /* slots in the cq's pending list; under the cq's lock */
	struct sgp_side send, recv;
};

struct sgp_place {
	struct sgp_ep *ep;   /* NULL: free, unless it awaits an empty poll */
	uint16_t generation; /* of the present or last endpoint; 0: never used */
	bool awaits_empty;   /* its queue pair is gone, but completions of it may still come */
	unsigned int room;   /* entries reserved */
};

struct sgp_cq {
	struct ibv_cq *cq;
	struct ibv_comp_channel *channel;
	int epoll_fd; /* what sgp_cq_fd() gives: channel->fd and wake_fd */
	int wake_fd;  /* an eventfd: pending completions that no device will announce */
	bool single_threaded;
	int max_sge, max_chunk; /* of a handed-over list */

	struct sgp_lock lock;
	struct sgp_place *place;
	unsigned int nplaces, neps, nawaiting;
	unsigned int reserved; /* entries promised to endpoints, of cq->cqe */
	struct sgp_slot *pending, **pending_end;
	uint64_t stale; /* completions that named no posted slot */
};

/*
 * Give ep a place and reserve room entries, resizing the device's queue if it must. Sets ep->index
 * and both sides' wr_base. Returns 0; -1 with ENOSPC or the errno of ibv_resize_cq(3), nothing
 * changed.
 */
int sgp_cq_attach(struct sgp_cq *cq, struct sgp_ep *ep, unsigned int room);

/* Undo it for an endpoint that never had a queue pair. */
void sgp_cq_detach(struct sgp_cq *cq, struct sgp_ep *ep);

/* Fill in up to n completions: the pending ones first, then the device's. The lock is held. */
int sgp_cq_reap_locked(struct sgp_cq *cq, int n, struct sgp_wc *wc);

/* All completions that the device has now join the pending list. The lock is held. */
void sgp_cq_keep_all_locked(struct sgp_cq *cq);

/*
 * The endpoint's queue pair is gone: what is still posted joins the pending list as flushed. The
 * place's room comes back with the next empty poll. The lock is held.
 */
void sgp_cq_flush_locked(struct sgp_cq *cq, struct sgp_ep *ep);

/* Make sgp_cq_fd() readable. */
void sgp_cq_wake(struct sgp_cq *cq);

#endif
