/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the ends of sgpool perf say to each other: pure arithmetic on bytes, each number checked.
 *
 * Client and server have one connection for control, whose messages are wire.h's: of type PERF, the
 * sort of message in the low eight bits of their code, the test's number above, and the rest in
 * offset and digest. The client asks, the server answers each question once:
 *
 *      client                       server
 *      SETUP parameters  --------->
 *            <-------------------  READY token            or FAILED errno
 *      (the test's connections; both ends rest)
 *      RUN messages      --------->
 *            <-------------------  GO                     its threads run
 *      (they measure)
 *      END messages      --------->                       so many were sent
 *            <-------------------  RESULT                 all of them came
 *      CLOSE             --------->
 *            <-------------------  CLOSED
 *
 * Several tests may be open at once; one runs. A connection of a test has this private data, both ways:
 *
 *      0        4      6       8    12      20             36      44     48      52
 *      | "SGPD" | ver. | index | id | token | flow's hello | addr. | rkey | bytes |
 *
 *   index    of the connection in its test
 *   id       the test's number; token: what READY said, so that nobody else gets in
 *   flow     zeros where there is none (register, raw; WRITE and READ)
 *   address  where the peer may READ and WRITE so many bytes, under rkey
 */
#ifndef SGP_CLI_PERF_WIRE_H
#define SGP_CLI_PERF_WIRE_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/wire.h"

enum perf_op {
	PERF_SEND = 0,
	PERF_WRITE,
	PERF_READ,
	PERF_OPS,
};

enum perf_mode {
	PERF_POOL = 0, /* sgpool as programs use it */
	PERF_REGISTER, /* verbs; each message is registered, posted, deregistered */
	PERF_RAW,      /* verbs; one ring, registered beforehand */
	PERF_MODES,
};

enum {
	PERF_SIZE_MIN = 16, /* bytes: the flow's header, and some */
	PERF_PART_MIN = 8,  /* of an SGE: the flow's header */
	PERF_SIZE_MAX = 1 << 30,
	PERF_SGES_MAX = 32,
	PERF_DEPTH_MIN = 2,
	PERF_DEPTH_MAX = 16384,
	PERF_CONNS_MAX = 256,
	PERF_INLINE_MAX = 65536,
	PERF_TESTS = PERF_MODES, /* open at once */
	PERF_DATA_HELLO = 52,    /* bytes; an InfiniBand connect request carries 56 of ours */
};

/* So much memory a test may take at each end. */
#define PERF_MEMORY_MAX (UINT64_C(4) << 30)

/* A test, as both ends know it. */
struct perf_params {
	enum perf_op op;
	enum perf_mode mode;
	bool latency;  /* one message at a time, to and fro (READ: one READ at a time) */
	bool both;     /* both ends send */
	bool events;   /* who has nothing to do sleeps */
	uint32_t size; /* bytes a message, header and all */
	uint32_t sges; /* that a message is sent from (READ: read into); divides size */
	uint32_t conns, threads;
	uint32_t tx, rx;  /* messages on the way, receives posted; of each connection */
	uint32_t inlined; /* bytes asked for */
};

/* The same with this size, and depths where they are 0. */
struct perf_params perf_sized(const struct perf_params *params, uint32_t size);

/* Returns NULL, or what is wrong with it. */
const char *perf_check(const struct perf_params *p);

/* Bytes that a test takes at each end, about. */
uint64_t perf_memory(const struct perf_params *p);

enum perf_say {
	PERF_SETUP = 1, /* the client's */
	PERF_RUN,
	PERF_END,
	PERF_CLOSE,
	PERF_READY, /* the server's */
	PERF_GO,
	PERF_RESULT,
	PERF_CLOSED,
	PERF_FAILED,
};

/* How a run went at one end. */
struct perf_figures {
	uint64_t sent, received; /* messages */
	uint64_t ns;             /* that it took */
	uint64_t cpu_ns;         /* processor time of the threads that moved data */
	uint64_t registrations;
};

struct perf_message {
	enum perf_say say;
	uint32_t id; /* of the test; below 2^24 */
	union {
		struct perf_params params; /* SETUP */
		uint64_t token;            /* READY */
		uint64_t count; /* RUN: that each connection of an end that sends sends, 0:
		                                until END; END: that the client sent, in all */
		struct perf_figures figures; /* RESULT */
		uint32_t error;              /* FAILED: an errno */
	};
};

void perf_put(struct wire_header *header, const struct perf_message *m);

/* Read one that the client, or the server, said. Returns NULL, or what is wrong with it. */
const char *perf_get(const struct wire_header *header, bool client, struct perf_message *m);

/* The private data of a test's connection, but for the flow's hello. */
struct perf_hello {
	uint32_t id, index;
	uint64_t token;
	uint64_t addr;
	uint32_t rkey, bytes;
};

enum {
	PERF_HELLO_FLOW = 20
}; /* where the flow's hello is */

void perf_put_hello(uint8_t bytes[PERF_DATA_HELLO], const struct perf_hello *hello);
/* n bytes came. Returns NULL, or what is wrong with it. */
const char *perf_get_hello(const void *bytes, size_t n, struct perf_hello *hello);

#endif
