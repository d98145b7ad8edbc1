/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two connected endpoints in one process, with a pool and a completion queue on each side, for
 * tests of the queues. All on one softverbs device, through the connection manager.
 *
 *      rig.side[0]  connects        rig.side[1]  listens and accepts
 */
#ifndef RIG_H
#define RIG_H

#include <rdma/rdma_cma.h>

#include "sgpool/sgpool.h"
#include "sgpool/softverbs.h"

struct rig_side {
	int number;
	struct rdma_event_channel *events;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct sgp_pool *pool;
	struct sgp_cq *cq;
	struct sgp_ep *ep;
	struct sgp_wc *wc; /* RIG_WC of them */
};

#define RIG_WC 64

/* 0 takes the default. */
struct rig_attr {
	size_t chunk_size; /* 4096 */
	size_t chunks;     /* 32, per side */
	uint32_t depth;    /* 8, each queue */
	uint32_t max_sge;  /* 4 */
	uint32_t cq_flags;
	uint32_t pool_flags;
	uint32_t max_inline;
	int cq_sge;     /* of a list that is handed over */
	int cqe;        /* both depths */
	int rnr_retry;  /* as conn_param: 0 .. 7 */
	size_t reserve; /* of the class: for receives */
	size_t small;   /* so many chunks of 64 bytes besides */
	/* Change what an endpoint is made with; the side's pool and cq stand. */
	void (*tune)(struct rig_side *side, struct sgp_ep_attr *ep);
	/* Both sides' pool: the caller's, to which their domains are added. NULL: one for each. */
	struct sgp_pool *pool;
	const char *addr; /* a device's; 127.0.0.1 */
};

struct rig {
	struct rig_attr attr;
	struct rig_side side[2];
	struct rdma_event_channel *listen_events;
	struct rdma_cm_id *listen_id;
};

/* Resolve, listen and make both sides' objects; not connected yet. Fails the test on an error. */
void rig_prepare(struct rig *rig, const struct rig_attr *attr);

/* Connect the two; both endpoints are told of ESTABLISHED. */
void rig_connect(struct rig *rig);

/* Both of the above. */
void rig_open(struct rig *rig, const struct rig_attr *attr);

/* Close and destroy all, each completion polled; every pool must be whole and destroyable. */
void rig_close(struct rig *rig);

/* One side's endpoint and identifier only, with what is left of it polled; returns how many were.
 */
int rig_close_ep(struct rig_side *side);

/* The pool's invariant: chunks = free + live, and live as told. */
void rig_check_live(struct rig_side *side, uint64_t live);

/* A chunk filled with a byte; a receive posted with one chunk; a send of one chunk. */
struct sgp_chunk *rig_chunk(struct rig_side *side, int byte);
void rig_post_recv(struct rig_side *side, void *context);
void rig_post_send(struct rig_side *side, void *context, int byte);

/* All that the list is of is this byte. */
void rig_check_bytes(const struct sgp_sgl *sgl, int byte);

/* Poll side's cq until n completions are in side->wc, at most 5 s. Fails the test otherwise. */
void rig_reap(struct rig_side *side, int n);

/* Poll an idle queue as long as it takes to retire an unsignalled tail: nothing is told. */
void rig_idle(struct rig_side *side);

/* The next event of a channel, which must be of this type; acknowledged. */
void rig_expect_event(struct rdma_event_channel *events, enum rdma_cm_event_type type,
		      struct rdma_cm_id **id, struct sgp_ep *ep);

/* Nothing of the library or the device is left over. */
void rig_check_no_leak(void);

#endif
