/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The shared receive queue: one stock of receives for many endpoints, kept full from pools.
 *
 * Endpoints are put on it by sgp_ep_attr.srq. A message that comes in on any of them takes the oldest
 * receive, and its completion comes out of that endpoint's completion queue with wc.ep set, its list
 * handed over as that of any receive. What it took is replaced before sgp_poll() returns.
 *
 * A receive that a queue pair took before it broke may never complete. Its chunks stay held until the
 * queue is destroyed, and another receive takes its place as long as the device lets it:
 * sgp_srq_stats.lost says how many there are.
 *
 * Threads: as an endpoint's receive side: serialised inside, but on a queue made with
 * SGP_SRQ_SINGLE_THREADED, whose caller serialises it with all completion queues and endpoints of it.
 */
#ifndef SGPOOL_SRQ_H
#define SGPOOL_SRQ_H

#include <stdint.h>

#include <sgpool/post.h>

SGP_BEGIN_DECLS

enum {
	SGP_SRQ_SINGLE_THREADED = 1 << 0, /* its completion queues must be so too, and else not */
};

/* Zero the whole structure first; 0 takes the default. */
struct sgp_srq_attr {
	uint32_t comp_mask; /* 0 */
	uint32_t flags;     /* SGP_SRQ_* */
	struct ibv_pd *pd;  /* that the pools are registered on */
	const struct sgp_recv_part *recv; /* what each receive is made of; NULL: sgp_srq_post_recvv() */
	int num_recv;
	void *context;  /* of the completions, with recv */
	uint32_t depth; /* receives to keep posted */
	int max_sge;    /* SGEs a receive; 0: as many as recv has chunks, or 1 */
	int max_chunk;  /* holds; 0: as max_sge */
	uint32_t limit; /* below so many the device tells of it: see sgp_srq_event(); 0: never */
};

/*
 * Make a shared receive queue, and fill it.
 *
 * Each completion queue that gets an endpoint of it reserves room for depth completions, once. The
 * arrays of attr are read during the call only; pools and pd must outlive the queue.
 * Returns the queue, to be ended by sgp_srq_destroy(); NULL with errno, nothing left behind:
 *   EINVAL    an attribute is wrong, a part has no pool, or limit is above depth
 *   E2BIG     more SGEs, or a deeper queue, than the device's shared queues have, or above 16384; more
 *             chunks in recv than max_sge
 *   EMSGSIZE  a part is larger than its pool's largest class
 *   EXDEV     a pool is not registered on pd
 *   EACCES    a pool's memory may not be written
 *   ENOBUFS   the pools have too few chunks now, their reserves included
 *   ENOSPC    1024 shared queues, or 64 protection domains, are in use
 *   ENOMEM, or the errno of ibv_query_device(3), ibv_create_srq(3), ibv_modify_srq(3) or
 *   ibv_post_srq_recv(3)
 */
SGP_API struct sgp_srq *sgp_srq_create(const struct sgp_srq_attr *attr);

/*
 * End it: what is posted goes back to its pools.
 *
 * Returns 0; -1 with EBUSY while an endpoint on it stands, or the errno of ibv_destroy_srq(3):
 * nothing is torn down then.
 */
SGP_API int sgp_srq_destroy(struct sgp_srq *srq);

/* The device's queue, for ibv_query_srq(3). */
SGP_API struct ibv_srq *sgp_srq_ibv(const struct sgp_srq *srq);

/*
 * Post what is missing now, from any thread: after sgp_pool_grow(), say. The polls do it by
 * themselves.
 *
 * Returns 0 when nothing is missing then; -1 with ENOBUFS when a pool has too few chunks (those that
 * are put from now on come here), EINVAL without recv, or the provider's errno.
 */
SGP_API int sgp_srq_refill(struct sgp_srq *srq);

/*
 * Tell the queue of an event that ibv_get_async_event(3) gave, before it is acknowledged.
 *
 * The device's asynchronous events are the caller's to read: one descriptor carries those of all its
 * objects. IBV_EVENT_SRQ_LIMIT_REACHED of this queue is counted; the queue is refilled as far as the
 * pools allow, and the limit, which the device forgets with the event, is set again as soon as more
 * receives than that are posted. All other events change nothing, so that every event may be passed
 * to every queue. A caller with a limit may also grow a pool then.
 * Returns 0; -1 with EINVAL. Thread-safe.
 */
SGP_API int sgp_srq_event(struct sgp_srq *srq, const struct ibv_async_event *event);

/* What it has and did. */
struct sgp_srq_stats {
	uint32_t depth;   /* receives that should be posted */
	uint32_t posted;  /* receives that it holds: the device's, and those on their way to sgp_poll() */
	uint32_t missing; /* to be posted as soon as there are chunks for them */
	uint32_t lost;    /* of posted: their completions will never come */
	uint64_t recvs;   /* receives that the device took, since creation */
	uint64_t chains;  /* calls of ibv_post_srq_recv(3) */
	uint64_t dry;     /* times that a pool had too few chunks */
	uint64_t by_put;  /* of recvs: posted by the thread that put the chunk */
	uint64_t refused; /* receives that the device did not take */
	uint64_t limits;  /* IBV_EVENT_SRQ_LIMIT_REACHED */
	uint64_t orphans; /* messages that came for an endpoint that was gone: dropped */
};

/* Fill in *stats. Returns 0; -1 with EINVAL. Thread-safe. */
SGP_API int sgp_srq_stats(struct sgp_srq *srq, struct sgp_srq_stats *stats);

/*
 * Post a receive on a queue made without recv; otherwise as sgp_post_recvv(). An EAGAIN means that
 * depth receives are posted.
 */
SGP_API int sgp_srq_post_recvv(struct sgp_srq *srq, void *context, struct sgp_sgl *sgl);

SGP_END_DECLS

#endif
