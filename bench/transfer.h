/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The parts of bench_transfer: two processes and the ways to move messages between them.
 *
 *      this process                         its peer, the same program executed again, per contender
 *        active end  ---- the link under test ----  passive end
 *             \------ control socket: "n", then the time it took ------/
 *
 * An idle peer sleeps in a read of its control socket. bench_transfer.c has the processes, transfer_cm.c
 * the connections that need verbs; transfer_sgpool.c, transfer_raw.c and transfer_socket.c move the
 * messages.
 */
#ifndef BENCH_TRANSFER_H
#define BENCH_TRANSFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rdma/rdma_cma.h>

enum transfer_case {
	TRANSFER_STREAM,   /* one way, as fast as it goes; both ends poll all the time */
	TRANSFER_SLEEPS,   /* the same, but who has nothing to do sleeps */
	TRANSFER_PINGPONG, /* one message to and fro; both poll */
};

/* What an end is to do. */
struct transfer {
	enum transfer_case kind;
	bool passive;
	size_t size;    /* bytes a message, at least 64 */
	uint32_t depth; /* messages on the way, at most */
	const char *addr;
	int control;   /* the passive end: to tell its port */
	uint16_t port; /* the active end: the peer's */
};

/* A way to move messages. The ends are used by one thread. */
struct transfer_way {
	const char *name;
	bool ours;
	/* Connect. Returns the end; NULL with errno: it does not work here. */
	void *(*open)(const struct transfer *t);
	/* Active: send n messages, until the last has arrived. Passive: receive n. */
	void (*stream)(void *end, size_t n);
	/* Send n and get as many back, one by one; the passive end the other way round. */
	void (*pingpong)(void *end, size_t n);
	void (*close)(void *end);
};

extern const struct transfer_way transfer_sgpool, transfer_raw, transfer_ring, transfer_register,
	transfer_rsocket, transfer_tcp;

/* Something failed that worked before: say what, with errno, and exit. */
void transfer_die(const char *what) __attribute__((noreturn));

/* The passive end: tell the peer where it listens. */
void transfer_tell_port(const struct transfer *t, uint16_t port);

/* A connection by rdma_cm whose queue pair is still to be made: its events are synchronous. */
struct transfer_cm {
	struct rdma_cm_id *listener; /* of the passive end */
	struct rdma_cm_id *id;
};

/* Up to the queue pair: the route is known, or a request has come. Returns 0; -1 with errno. */
int transfer_cm_begin(struct transfer_cm *cm, const struct transfer *t);

/*
 * Connect, or accept, with these n bytes of private data; the peer's are in data then. Returns 0; -1
 * with errno.
 */
int transfer_cm_finish(struct transfer_cm *cm, const struct transfer *t, uint8_t *data, uint8_t n);

/* After the queue pair is gone. */
void transfer_cm_end(struct transfer_cm *cm);

#endif
