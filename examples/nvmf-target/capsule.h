/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A received command capsule, checked: bytes of a host in, a request that may be carried out, or an
 * NVMe status, out. Nothing here does any I/O or knows a queue; what a host can say, it says here.
 */
#ifndef NVMF_CAPSULE_H
#define NVMF_CAPSULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is allowed where the capsule came in. */
enum capsule_queue {
	CAPSULE_NEW,       /* nothing but a Connect */
	CAPSULE_DISCOVERY, /* the admin queue of a discovery controller */
	CAPSULE_ADMIN,
	CAPSULE_IO,
};

struct capsule_ns {
	uint64_t blocks;
	uint32_t block_shift; /* a block is 1 << block_shift bytes */
	bool read_only;
};

struct capsule_limits {
	enum capsule_queue queue;
	bool enabled;      /* the controller is: without, only fabrics commands are allowed */
	uint32_t max_data; /* bytes that one command may move */
	const struct capsule_ns *ns; /* [nns]; namespace 1 is the first */
	uint32_t nns;
};

enum capsule_kind {
	CAPSULE_READ,
	CAPSULE_WRITE,
	CAPSULE_COMPARE,
	CAPSULE_FLUSH,
	CAPSULE_ZEROES,
	CAPSULE_DSM,
	CAPSULE_CONNECT,
	CAPSULE_PROPERTY_SET,
	CAPSULE_PROPERTY_GET,
	CAPSULE_IDENTIFY,
	CAPSULE_GET_LOG,
	CAPSULE_GET_FEATURES,
	CAPSULE_SET_FEATURES,
	CAPSULE_ABORT,
	CAPSULE_ASYNC_EVENT,
	CAPSULE_KEEP_ALIVE,
	CAPSULE_KINDS,
};

/* How the data of a command travels. */
enum capsule_data {
	CAPSULE_NO_DATA,
	CAPSULE_INSIDE, /* it came with the capsule, offset bytes behind the command */
	CAPSULE_FETCH,  /* to be read from the host's memory */
	CAPSULE_STORE,  /* to be written there */
};

struct capsule {
	enum capsule_kind kind;
	enum capsule_data data;
	uint32_t length; /* bytes that travel */
	uint32_t offset; /* CAPSULE_INSIDE */
	uint64_t addr;   /* of the host's memory */
	uint32_t key;
	bool invalidate; /* the response invalidates key; also when the command is refused */
	bool fua;        /* the data is to be on stable storage before the response */
	bool deallocate;
	uint16_t cid;
	uint8_t opcode;
	uint32_t nsid;
	uint64_t at;     /* first byte in the namespace, of READ, WRITE, COMPARE and ZEROES ... */
	uint64_t bytes;  /* ... and how many */
	uint32_t ranges; /* of a DSM */
	uint32_t cdw10, cdw11, cdw12, cdw13, cdw14;
};

/*
 * Check the capsule of size bytes, of which the first 64 are the command (bytes has these; the data
 * behind them is not looked at).
 *
 * Returns 0: *out may be carried out, and everything in it fits the limits. A positive number: the
 * NVMe status to answer, with cid, opcode, key and invalidate of *out filled in. -1: it's shorter than
 * a command, and the connection is to end.
 */
int capsule_check(const struct capsule_limits *limits, const void *bytes, size_t size,
		  struct capsule *out);

/*
 * Check the ranges that a Dataset Management brought, as they lie in memory. Returns 0 or the status.
 */
int capsule_check_ranges(const struct capsule_ns *ns, const void *bytes, uint32_t ranges);

/* Range number index of these: its first byte in the namespace and how many. Checked ranges only. */
void capsule_range(const struct capsule_ns *ns, const void *bytes, uint32_t index, uint64_t *at,
		   uint64_t *length);

/* The name of a kind, for statistics: "read". */
const char *capsule_name(enum capsule_kind kind);

#endif
