/* SPDX-License-Identifier: BSD-2-Clause */
/* The live objects of the fuzzer, and chance. */
#ifndef TESTS_SOFTVERBS_FUZZ_H
#define TESTS_SOFTVERBS_FUZZ_H

#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sgpool/softverbs.h>

#define MAX   12
#define ARENA 65536

extern char arena[ARENA];
extern struct ibv_context *ctx;
extern struct ibv_pd *pd[MAX];
extern struct ibv_mr *mr[MAX];
extern struct ibv_mw *mw[MAX];
extern struct ibv_ah *ah[MAX];
extern struct ibv_comp_channel *ch[MAX];
extern struct ibv_cq *cq[MAX];
extern struct ibv_srq *srq[MAX];
extern struct ibv_qp *qp[MAX];
extern struct rdma_event_channel *ec;
extern struct rdma_cm_id *id[MAX];

/* A number below n, from the sequence that the seed began. */
uint32_t rnd(uint32_t n);
void fail(const char *what);

#define PICK(table) table[rnd(MAX)]
/* A free place in the table, or NULL; a taken one, or NULL. */
#define FREE(table)  free_place((void **)(table))
#define TAKEN(table) taken_place((void **)(table))

static inline void **free_place(void **table)
{
	uint32_t i = rnd(MAX);

	return table[i] ? NULL : &table[i];
}

static inline void **taken_place(void **table)
{
	uint32_t i = rnd(MAX);

	return table[i] ? &table[i] : NULL;
}

/* fuzz_queue.c: one step on the queues; the proper way up for a queue pair; what came of it all. */
void queue_step(void);
void bring_up(struct ibv_qp *q, const struct ibv_qp *to);
void say_tally(void);
/* fuzz_events.c: fetches what there is and acknowledges it; one step of the connection manager. */
void events(void);
void cm_step(void);

#endif
