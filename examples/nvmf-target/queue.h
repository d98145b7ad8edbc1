/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A host's queue pair: an NVMe submission queue and completion queue in one. What comes in is checked
 * and handed to whoever carries it out; what goes out is gathered, and one doorbell is rung a turn of
 * the loop.
 *
 *      made --ESTABLISHED, or the first capsule--> live --error, disconnect--> ending --> freed
 *
 * An ending queue answers nothing more. It's freed once the device has let go of everything and no file
 * operation of its commands is on the way; nobody waits for that.
 */
#ifndef NVMF_QUEUE_H
#define NVMF_QUEUE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "capsule.h"
#include "request.h"
#include "target.h"

/* What Reads and Writes have moved. */
struct traffic {
	uint64_t reads, writes, read_bytes, write_bytes;
};

struct queue {
	struct queue *next;       /* of target.queues */
	struct queue *next_dirty; /* of target.dirty */
	struct target *target;
	struct device *device;
	struct rdma_cm_id *id;
	struct sgp_ep *ep;
	struct ctrl *ctrl;  /* NULL before Connect, and when it ends */
	atomic_bool doomed; /* its controller has gone: it is to end */
	struct {
		atomic_uint_fast64_t reads, writes, read_bytes, write_bytes;
	} moved; /* written by its own thread only */
	uint16_t qid;
	uint16_t depth;   /* entries, as the private data said */
	uint16_t sq_size; /* entries, as Connect said */
	uint16_t sq_head;
	bool sq_flow; /* responses carry sq_head */
	bool dirty;
	bool ending, closed;
	bool invalidates; /* the device can send with invalidate */
	int64_t join_by;  /* when there must have been a Connect */
	int64_t close_at; /* when the device has had its time */
	struct capsule_limits limits;
	uint32_t max_inline;
	struct request *requests; /* [depth] */
	struct request *free;
	struct request *unsent, **unsent_end; /* no room in the send queue yet */
	uint32_t used;                        /* requests that are not free */
	uint64_t cids[65536 / 64];            /* commands outstanding */
};

/*
 * Make a queue for a connect request. qid, depth: from its private data, checked. Returns it; NULL after
 * a line on stderr.
 */
struct queue *queue_create(struct device *dev, struct rdma_cm_id *id, uint16_t qid, uint16_t depth);

/* Begin to end it: nothing of it is answered from here on. why: for a line on stderr, or NULL. */
void queue_end(struct queue *q, const char *why);

/* See to those that end. Frees what can be freed. Returns how much was done: it leaves completions. */
int queue_reap(struct target *t);

/* A completion of the device's. */
void queue_complete(struct target *t, struct sgp_wc *wc);

/* Ring the doorbells, and post what found no room before. */
void queue_submit(struct target *t);

/* ---- for those who carry out commands ---- */

/* READ r->cmd.length bytes, or fewer, of the host's memory into r->data, which is as long. */
void queue_fetch(struct request *r);

/*
 * Answer: with r->result, and, on success of a command whose data is to be STOREd, with r->data written
 * to the host before. The request is free afterwards.
 */
void queue_respond(struct request *r, int status);

/* Forget it: its host is gone. */
void queue_drop(struct request *r);

#endif
