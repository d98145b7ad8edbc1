/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Plain endpoints on a device of their own, all on one completion queue and joined in pairs, for tests
 * of how they end. Contexts are counted, so that each is told once.
 */
#ifndef PLAIN_RIG_H
#define PLAIN_RIG_H

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "../asserts.h"
#include "../plain.h"
#include "rig.h"

#define MOST  4
#define DEPTH 8
#define CHUNK 256

struct plain_rig {
	char device[16];
	struct ibv_context *verbs;
	struct ibv_pd *pd;
	struct sgp_pool *pool;
	struct sgp_cq *cq;
	struct sgp_wc *wc; /* RIG_WC of them */
	struct sgp_ep *ep[MOST];
};

extern struct plain_rig t;
extern int context[64];
extern uint32_t cq_flags; /* of the queue that open_all() makes */

struct ibv_context *open_device(const char *name);

/* n endpoints on a new device, which keeps a destroyed queue pair's completions or doesn't. */
void open_all(int n, bool keep_cqes, int cqe);
void close_all(void);

/* One more, in INIT; two that are connected; one closed, polled and destroyed. */
struct sgp_ep *make_ep(void);
void join(struct sgp_ep *a, struct sgp_ep *b);
void close_ep(struct sgp_ep **ep);

/* The pool's invariant: chunks = free + live, and live as told. */
void check_live(uint64_t live);

/* Poll until nothing comes; seen[] counts contexts. Returns how many; *good of them were. */
int take_all(int *seen, int *good);

/* The n contexts from first on were told once each, and no others. */
void take_exactly(int first, int n);

struct sgp_chunk *chunk(int byte);
void post_recv(struct sgp_ep *ep, int ctx);
void post_send(struct sgp_ep *ep, int ctx, int flags);

#endif
