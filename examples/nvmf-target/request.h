/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A command on its way: from its capsule to its response. A queue has as many as its host may have
 * outstanding, made with the queue; nothing is allocated afterwards.
 *
 *      capsule -> [memory] -> [READ from the host] -> [file] -> [WRITE to the host and] response
 *
 * Each stage in brackets may take a while; when it's through, step() is called. Its chunks are in
 * data (and file, of a Compare) between the stages, and belong to the queue pair's queue or the ring
 * during one.
 */
#ifndef NVMF_REQUEST_H
#define NVMF_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include <sgpool/sgpool.h>

#include "capsule.h"

#define REQUEST_MAX_DATA ((uint32_t)1 << 20)   /* what a command moves at most */
#define REQUEST_CHUNK    ((uint32_t)128 << 10) /* the largest chunks */
#define REQUEST_CHUNKS   8                     /* so many of them */

struct budget;
struct queue;

struct request {
	_Alignas(
		64) struct request *next; /* in the one list that it is in (aligned: see uring.c) */
	struct queue *queue;
	struct capsule cmd;
	void (*step)(struct request *r); /* when the present stage is through */
	bool used;
	bool waiting;   /* for memory: waiter is queued */
	bool duplicate; /* its cid is that of another command */
	uint16_t status;
	uint64_t result;
	int64_t started; /* ns */
	struct sgp_sgl data, file;
	struct ibv_sge sge[2][REQUEST_CHUNKS];
	struct sgp_chunk *chunk[2][REQUEST_CHUNKS];
	/* Waiting for memory: see budget.c. */
	struct budget *budget;
	struct sgp_waiter waiter;
	struct sgp_chunk *got[2 * REQUEST_CHUNKS];
	uint32_t taken; /* bytes of it, in each list */
	int lists;      /* enum budget_lists */
	/* In the ring: see uring.c. */
	const struct sgp_sgl *io_list;
	uint64_t io_at;
	uint32_t io_done[REQUEST_CHUNKS];
	int io_fd;
	int io_pending; /* operations that have not completed */
	int io_error;   /* errno of the first that failed, or 0 */
	bool io_write;
	/* Zeroes and deallocations that are done piece by piece: see io.c. */
	uint64_t at, left;
	struct iovec tail;
	uint32_t range;
};
_Static_assert(REQUEST_CHUNK *REQUEST_CHUNKS == REQUEST_MAX_DATA, "chunks for the largest command");

#endif
