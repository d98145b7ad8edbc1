/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A shared receive queue that is kept full, and pairs of endpoints, for the tests of it. The receiving
 * ends are on one completion queue, or on two in turn.
 *
 *      out[i] (sends) ------> in[i] (on the shared queue, cq[i % ncqs])
 */
#ifndef SRQ_RIG_H
#define SRQ_RIG_H

#include "rig.h"

/* Those whose queue pairs connect without a connection manager. */
extern const char *const roce[];
#define NROCE 5

#define PAIRS 4
#define WC    32

extern struct world {
	struct ibv_context *verbs;
	struct ibv_pd *pd;
	struct sgp_pool *pool; /* the shared queue's */
	struct sgp_pool *out_pool;
	struct sgp_cq *cq[2], *out_cq;
	struct sgp_wc *wc[2], *out_wc;
	struct sgp_srq *srq;
	struct sgp_ep *in[PAIRS], *out[PAIRS];
	uint32_t depth;
	int held; /* chunks of pool that the test has */
} w;

struct world_attr {
	uint32_t depth; /* 8 */
	size_t chunks;  /* 32 */
	uint32_t limit;
	int ncqs; /* 1 */
	int cqe;  /* 64 */
	bool single_threaded;
};

struct sgp_pool *pool_of(size_t chunks);

void open_world(const char *persona, struct world_attr attr);
void close_world(void);

/* How many completion queues there are for the receiving ends. */
int ncqs(void);

/* A pair of connected endpoints; closed and polled empty. */
void add(int i);
void take_away(int i);
void close_ep(struct sgp_ep **ep, struct sgp_cq *cq, struct sgp_wc *wc);
void drop_all(struct sgp_cq *cq, struct sgp_wc *wc);

struct sgp_srq_stats stats(void);

/* So many receives are held by the queue, and the rest of what is live is the test's. */
void check_posted(uint32_t posted);

/* Sends that nobody asked about are retired. */
void settle_sends(void);

/* A message of 100 bytes on pair i; nobody asks for its send's completion. */
void send_on(int i, int byte);

/* The next message of pair i's completion queue is pair i's. Its list stays in the first wc. */
struct sgp_wc *receive_on(int i, int byte);

/* Both, and the list is dropped. */
void exchange(int i, int byte);

#endif
