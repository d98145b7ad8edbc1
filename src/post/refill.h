/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Receives that the library posts by itself: a queue kept full from pools.
 *
 *      parts, as the caller gave them       needs, one a class            a receive's slot
 *      [ head 64 | body 4096 x 2 ]   ->     [ 64: 1 | 4096: 2 ]    ->     chunk, chunk, chunk
 *
 * What a receive needs of one class is taken at once, and class by class in one order that all
 * queues keep (that of the classes' addresses): two that each hold a part of what they need can't
 * wait for each other. What has been taken for the next receive is held here meanwhile.
 *
 * When a class has run dry the queue becomes a waiter of it (SGP_GET_RESERVED: before those who only
 * send), and the put that serves it goes on from there: it posts by itself if it gets the side's
 * lock at once, else it tells the poller.
 *
 *      IDLE --the class is dry--> WAITING --a put--> SERVED --whoever has the lock--> IDLE
 *
 * Locking: the side's lock for everything but the state. Nothing here grows a pool.
 *
 * A seat is where a completion queue knows of such a queue. An endpoint has one of its own; a shared
 * receive queue has one on each completion queue of its endpoints (srq.h).
 */
#ifndef SGP_REFILL_H
#define SGP_REFILL_H

#include "pool/centre.h"
#include "post/queue.h"

struct sgp_seat;

/* Chunks of one class for each receive. */
struct sgp_need {
	struct sgp_pool *pool;
	struct sgp_class *cls;
	size_t size;  /* that the class serves */
	int n, first; /* number; which of the receive's chunks */
};

/* An SGE of each receive. */
struct sgp_portion {
	int chunk; /* in the order of the needs */
	uint32_t offset, size;
};

struct sgp_refill {
	struct sgp_side *side;
	struct sgp_ep *ep;   /* whose receives they are, or */
	struct sgp_srq *srq; /* the shared queue's */
	void *context;
	int pd_index;
	int nneeds, nchunks; /* of a receive; each chunk is a portion */
	struct sgp_need *need;
	struct sgp_portion *portion;
	struct sgp_chunk **bulk, **scratch; /* [SGP_REFILL_CHAIN][nchunks] */
	bool stopped;

	struct sgp_chunk **held; /* [nchunks]: of the next receive ... */
	int nheld;               /* ... so many needs */
	struct sgp_waiter waiter;
	_Atomic int state;         /* enum sgp_refill_state */
	_Atomic unsigned int busy; /* a call of the waiter's ready() is due, or under way */

	uint64_t posted;  /* receives that the device took */
	uint64_t chains;  /* calls that gave them to it */
	uint64_t dry;     /* times that a pool had too little */
	uint64_t by_put;  /* posted by the thread that put the last chunk */
	uint64_t refused; /* receives that the device did not take */
};

enum sgp_refill_state {
	SGP_REFILL_IDLE = 0,
	SGP_REFILL_WAITING,
	SGP_REFILL_SERVED, /* the need that was waited for is in held[] */
};

#define SGP_REFILL_CHAIN 32 /* receives a call of the provider */

/*
 * Prepare to fill side with receives made of parts[0 .. n - 1], of at most max_sge SGEs, in memory of
 * the domain with this index. first: bytes that the first part has at least.
 * Returns it, nothing posted yet; NULL with EINVAL, E2BIG, EMSGSIZE or ENOMEM. Ended by
 * sgp_refill_free().
 */
struct sgp_refill *sgp_refill_make(struct sgp_side *side, const struct sgp_recv_part *parts, int n,
				   int max_sge, int pd_index, size_t first);

/*
 * Free it: what it holds goes back, not what is posted. It has been stopped, or was never run.
 * NULL does nothing.
 */
void sgp_refill_free(struct sgp_refill *r);

/* For refill_make.c: what is held for the next receive goes back; a waiter's ready(). */
void sgp_refill_drop_held(struct sgp_refill *r);
void sgp_refill_ready(struct sgp_waiter *waiter);

/* Of each receive; -1: a part's number is out of range. */
int sgp_refill_chunks(const struct sgp_recv_part *parts, int n);

/*
 * Post what is missing, as far as the pools have chunks. The side's lock is held, and served waiters
 * are kept back (served.h). Returns true when it should be tried again though nobody will say so: the
 * device refused, and *err, if wanted, is its errno; else *err is 0, or why the pool gave nothing.
 */
bool sgp_refill_locked(struct sgp_refill *r, int *err);

/*
 * No receive any more. Calls of ready() that are due are waited for; nothing is held afterwards. No
 * lock is held, and nobody refills meanwhile but those calls.
 */
void sgp_refill_stop(struct sgp_refill *r);

/* Go on after a stop, and post what is missing. No lock is held. */
void sgp_refill_resume(struct sgp_refill *r);

/* Post what is missing now. 0 when nothing is missing then; -1 with ENOBUFS or another errno. No lock
 * is held. */
int sgp_refill_now(struct sgp_refill *r);

/*
 * Post each receive of the side again that the device had and has forgotten (law 2.7), in order,
 * under the side's present wr_base. Returns 0, or the provider's errno; what it did not take stays
 * in its slot. For an endpoint's own queue; the completion queue's lock and the side's are held.
 */
int sgp_recv_again_locked(struct sgp_ep *ep);

#endif
