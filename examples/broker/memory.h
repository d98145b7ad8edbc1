/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The memory that messages are in: one pool of sgpool's for all connections and threads, of a fixed
 * size, registered on every RDMA device that is used, and on none where there is none.
 *
 *      class          what it is for
 *      512 bytes      heads of packets that go over RDMA; receives of control
 *      4 KiB          what sockets are read into, and small messages with it; tails of large ones
 *      64 KiB         payloads of sockets, receives of RDMA
 *
 * Each class has a reserve, which only receives and control (SGP_GET_RESERVED) may use.
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
};

/* pd: of the first device, or NULL. Returns 0; -1 with errno and sgp_errmsg(). */
int memory_open(struct memory *memory, size_t mib, struct ibv_pd *pd);

/* Returns 0; -1 with errno, and nothing is torn down. */
int memory_close(struct memory *memory);

/* The size of the chunk to take next for bytes more of a payload. */
static inline size_t memory_chunk_for(size_t bytes)
{
	return bytes > MEMORY_SMALL ? MEMORY_LARGE : MEMORY_SMALL;
}

#endif
