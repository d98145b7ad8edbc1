/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The shared receive queue's inside.
 *
 * Its receives complete in any order and on the completion queue of whichever endpoint took them, so
 * its slots are not a ring with a tail: free ones are on a stack, and a slot's sequence grows by the
 * number of slots each time it is offered, so that a wr_id still names slot and use.
 *
 *      bit 63   62..48   47..32   31..0
 *      [  1   |   0    | index  | sequence ]      slot = sequence modulo slots
 *
 * The index is the process's small number of this queue; generation 0 tells it from an endpoint's.
 *
 * A receive that a queue pair took and never completed is lost: the device has forgotten it (law
 * 2.8), but nothing tells which one. Receives are taken in the order of their posts, so one that is
 * older than one that has completed has been taken; and when no queue pair is left that could have
 * taken it by then, and their completion queues were polled empty, its completion will never come.
 *
 *      posted   1   2   3   4   5   6         newest_done 4: 2 was taken before 4 was
 *      state    .   P   .   .   P   P         2 is lost once all endpoints that were on the queue
 *                                             when 4 completed have been closed
 *
 * Lost slots keep their chunks until the queue is destroyed. Each is replaced by another one as long
 * as the device takes the post; there are as many spare slots as the queue is deep.
 *
 * Locking: the side's lock, taken after a completion queue's. seats_lock, a leaf, for the list of
 * seats, which a put on any thread goes through even when the caller serialises all the rest.
 */
#ifndef SGP_SRQ_INTERNAL_H
#define SGP_SRQ_INTERNAL_H

#include "post/ep.h"
#include "sgpool/srq.h"

#define SGP_SRQ_GENERATION 0 /* of a wr_id: none of an endpoint's */
#define SGP_MAX_SRQS       1024

/* Whether a wr_id names a slot of a shared queue. */
static inline bool sgp_wr_is_shared(uint64_t wr_id)
{
	return wr_id >> 48 == (SGP_WR_RECV >> 48 | SGP_SRQ_GENERATION);
}

struct sgp_srq_use {
	uint64_t order; /* of its last post among all */
	uint32_t seq;
	bool lost;
};

struct sgp_srq {
	struct ibv_srq *srq;
	struct sgp_side side;      /* lock, slots and wr_base */
	struct sgp_refill *refill; /* NULL: the caller posts */
	uint32_t index;
	int pd_index;
	bool single_threaded;
	uint32_t depth;

	/* Under the side's lock. */
	struct sgp_srq_use *use; /* [slots] */
	uint32_t *free, nfree;   /* [slots] */
	uint32_t outstanding;    /* slots that are not free, lost ones too */
	uint32_t lost;
	uint32_t written_off; /* of these, not replaced: the device refused */
	uint64_t posted;      /* the order of the newest post */
	uint64_t newest_done; /* the order of the newest one that has completed */
	struct sgp_ep *eps;   /* whose queue pairs can take receives */
	uint32_t limit;
	bool armed;
	uint64_t recvs, limits, orphans, refused;

	pthread_mutex_t seats_lock;
	struct sgp_seat *seats;
	unsigned int users; /* endpoints that stand */
};

/* ---- for the one who posts; the side's lock is held ---- */

/* Receives that should be posted now. */
uint32_t sgp_srq_missing_locked(struct sgp_srq *srq);

/* The next free slot: there is one. */
struct sgp_slot *sgp_srq_next_locked(struct sgp_srq *srq);

/* Hand it to the pollers; returns its wr_id. */
uint64_t sgp_srq_offer_locked(struct sgp_srq *srq, struct sgp_slot *slot);

/* The slot that was offered last, or n before. */
struct sgp_slot *sgp_srq_offered_locked(struct sgp_srq *srq, uint32_t n);

/* Take the n slots offered last back. */
void sgp_srq_withdraw_locked(struct sgp_srq *srq, uint32_t n);

/* The device refused a receive: true if it was to replace a lost one, which is given up. */
bool sgp_srq_gave_up_locked(struct sgp_srq *srq);

/* Posts have been made: ask for the limit's event again, if it has come and there are enough. */
void sgp_srq_rearm_locked(struct sgp_srq *srq);

/* Have the pollers see to the queue. From any thread, no lock of a queue held. */
void sgp_srq_rouse(struct sgp_srq *srq);

/* ---- for pollers; the completion queue's lock is held ---- */

/*
 * The slot that a completion names, and *ep, whose queue pair took it. NULL when it names none, or
 * the queue pair is nobody's: then the slot is free again.
 */
struct sgp_slot *sgp_srq_claim_locked(struct sgp_cq *cq, uint64_t wr_id, uint32_t qp_num,
				      struct sgp_ep **ep);

/* The slot's holds have gone elsewhere. */
void sgp_srq_free_locked(struct sgp_srq *srq, struct sgp_slot *slot);

/* ---- for endpoints ---- */

/* Take a seat on ep->cq for ep, with room for the queue's completions there. 0; -1 with EINVAL, ENOSPC
 * or the errno of ibv_resize_cq(3). */
int sgp_srq_join(struct sgp_srq *srq, struct sgp_ep *ep);

/* Give it up. */
void sgp_srq_leave(struct sgp_ep *ep);

/* What of an endpoint's information is the queue's: receives that are posted, missing, and room. */
void sgp_srq_query(struct sgp_srq *srq, struct sgp_ep_info *info);

/* The queue pair stands: completions that bear its number are ep's. */
void sgp_srq_qp_made(struct sgp_ep *ep);

/* The queue pair went through RESET, and the completion queue was polled empty behind it. The queue's
 * lock is held. */
void sgp_srq_qp_reset_locked(struct sgp_ep *ep);

/* The queue pair is destroyed and the completion queue polled empty. The queue's lock is held. */
void sgp_srq_qp_gone_locked(struct sgp_ep *ep);

#endif
