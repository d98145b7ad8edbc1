/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The memory that messages are in: one pool of sgpool's for all connections and threads, of a fixed
 * size, registered on every RDMA device that is used, and on none where there is none.
 *
 *      class          what it is for
 *      512 bytes      heads of packets that go over RDMA; receives of control
 *      4 KiB          what sockets are read into, and small messages with it; tails of large ones
 *      64 KiB         payloads of sockets, receives of RDMA
 *      what a receive of more than these takes besides: receives of RDMA, long payloads
 *
 * Each class has a reserve, which only receives and control (SGP_GET_RESERVED) may use. The last one
 * is there only where receives are longer than twice the one before.
 */
#ifndef BROKER_MEMORY_H
#define BROKER_MEMORY_H

#include <sgpool/sgpool.h>

enum {
	MEMORY_HEAD = 512,
	MEMORY_SMALL = 4096,
	MEMORY_LARGE = 65536,
	MEMORY_MIN_MIB = 8,
};

struct memory {
	struct sgp_pool *pool; /* it does not grow: no memory is registered while messages move */
	size_t huge;           /* bytes of a chunk of the last class; SIZE_MAX: there is none */
};

/* receive: bytes of a receive of RDMA. Returns 0; -1 with errno and sgp_errmsg(). */
int memory_open(struct memory *memory, size_t mib, size_t receive);

/* Returns 0; -1 with errno, and nothing is torn down. */
int memory_close(struct memory *memory);

/*
 * How many receives may be posted for all connections together, of all that memory has: an eighth of
 * what there is for the longest part of each; where these are few, a quarter.
 */
uint32_t memory_receives(const struct memory *memory);

/* A chunk for what comes next of a payload, of which so many bytes are missing. NULL: there is none. */
struct sgp_chunk *memory_chunk_for(const struct memory *memory, size_t bytes);

#endif
