/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The program's threads. Each serves the queues it has by itself (loop.c); thread 0, the program's
 * first, also has the listener and gives each new I/O queue to the thread that has promised least.
 *
 *      thread 0: connect request --mail, wake--> thread n: accepts it, and has its events from then on
 *
 * They end together: once all that any of them has taken has been answered, each ends its queues; when
 * none has one any more, what they did is told; then each gives back its memory.
 */
#ifndef NVMF_THREADS_H
#define NVMF_THREADS_H

#include <rdma/rdma_cma.h>

#include "target.h"

/* A connect request on its way to its thread. */
struct mail {
	struct mail *next;
	struct rdma_cm_id *id;
	uint16_t qid, depth;
	uint8_t reads; /* that its host lets us have on the way at once */
};

/* Make what c->opt says, with c->ns and c->limits; no thread runs yet. Returns 0; -1 after a line on stderr. */
int threads_init(struct common *c);

/* Start the others, once thread 0 has its device. Returns 0 when all can serve; -1 after a line on
 * stderr: none does. */
int threads_start(struct common *c);

/* All take nothing more, and end. */
void threads_stop(struct common *c);

/* This one has answered all that it had taken. */
void threads_drained(struct target *t);

/* Give back what a thread has. Its own. Returns 0; -1 after a line on stderr. */
int threads_close(struct target *t);

/* Wait for the others. Returns 0; -1 if one has failed. */
int threads_end(struct common *c);

/* Let it look again: at its mail, and at flags. */
void threads_wake(struct target *t);

/* The thread for one more I/O queue. */
struct target *threads_choose(struct common *c);

/* Give it the request. Returns 0; -1 and errno. */
int threads_send(struct target *t, const struct mail *mail);

#endif
