/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A thread's memory: two pools, made once, which together are bounded by its part of --memory whatever
 * hosts do.
 *
 *      control   capsules (their commands and what came inside), responses, and what admin commands
 *                move: the data path of a busy host never takes from it
 *      data      what Reads, Writes and Compares move: three sizes of chunks
 *
 * A command that finds too little waits; those that wait are served in order, by the library.
 *
 * Threads: one.
 */
#ifndef NVMF_BUDGET_H
#define NVMF_BUDGET_H

#include <sys/uio.h>

#include <sgpool/sgpool.h>

#include "request.h"

#define BUDGET_ZEROES 64               /* chunks of zeroes a write */
#define BUDGET_INSIDE ((uint32_t)4096) /* bytes that a capsule may bring behind its command */

struct uring;

struct budget {
	struct sgp_pool *control, *data;
	struct sgp_chunk *zeroes;              /* REQUEST_CHUNK of them, to write from */
	struct iovec zero_list[BUDGET_ZEROES]; /* each of them those */
	struct request *ready, **ready_end;    /* served, to be continued by budget_run() */
	uint32_t capsules; /* commands that all queues together may have outstanding */
	uint32_t receives; /* that devices and queues keep posted: no more than that either */
	uint64_t waits;    /* commands that had to wait */
	uint64_t waiting;  /* now */
};

/* What is to come of bytes, before a device is known. */
void budget_init(struct budget *b, uint64_t bytes);

/*
 * Register the memory on a device: made for the first one, added to the others. Returns 0; -1 after a line on stderr.
 */
int budget_add_device(struct budget *b, struct ibv_pd *pd, uint64_t bytes, struct uring *uring);
int budget_remove_device(struct budget *b, struct ibv_pd *pd);

/* Ends the pools. Returns 0; -1 after a line on stderr: something of them is still held. */
int budget_end(struct budget *b);

enum budget_lists {
	BUDGET_DATA, /* r->data */
	BUDGET_FILE, /* r->file */
	BUDGET_BOTH,
};

/*
 * Fill these lists with length bytes of memory each, then call r->step(): at once, or later when
 * memory has come free. (They are empty then if there is not so much in all.)
 */
void budget_take(struct budget *b, struct request *r, uint32_t length, enum budget_lists lists);

/* Likewise of the control pool: for admin commands, up to a page. */
void budget_take_control(struct budget *b, struct request *r, uint32_t length);

/* Take it back. Returns false if it has been served already: budget_run() will call step() then. */
bool budget_cancel(struct budget *b, struct request *r);

/* Continue those that have been served. Returns how many. */
int budget_run(struct budget *b);

#endif
