/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the target did, as JSON: one object a time. Times are taken twice a turn of the loop, and not
 * for each command. Each thread counts for itself and reports now and then, and when it has ended its
 * queues; what is written is the sum of the reports.
 */
#ifndef NVMF_STATS_H
#define NVMF_STATS_H

#include <stdbool.h>
#include <stdint.h>

#include <sgpool/sgpool.h>

#include "capsule.h"

#define STATS_BUCKETS                                                                              \
	32 /* of latency: number i counts those of 2^i up to 2^(i+1) microseconds, 0 also less */

struct stats {
	uint64_t commands[CAPSULE_KINDS]; /* carried out or failed, not those refused */
	uint64_t refused;                 /* by the checks of capsule.h */
	uint64_t failed;                  /* while they were carried out */
	uint64_t dropped;                 /* their host had gone */
	uint64_t read_bytes, write_bytes; /* of namespaces, for hosts */
	uint64_t inside_bytes;            /* of write_bytes, came in the capsule */
	uint64_t copied_bytes;            /* of payload, by this program or the library */
	uint64_t latency[STATS_BUCKETS];  /* of Reads and Writes, from capsule to response */
	uint64_t connections, refused_connections, broken_connections;
	uint64_t keep_alive_expired;
	/* Of the endpoints that are gone. */
	uint64_t posts, doorbells, signalled, split, queue_full;
	uint64_t receives, receives_dry; /* no shared queue's */
};

/* What a thread tells the others. */
struct report {
	struct stats stats;
	uint64_t in_flight, waits, waiting;
	uint32_t queues;
	struct sgp_pool *control, *data; /* NULL: no device yet, or no longer */
	struct sgp_srq_stats receives;   /* of all its devices and queues */
};

struct common;
struct target;

/* A Read or Write took so many ns. */
void stats_latency(struct stats *s, int64_t ns);

/* Add what an endpoint has done. */
void stats_endpoint(struct stats *s, struct sgp_ep *ep);

/* Report. */
void stats_report(struct target *t);

/* Write them where --stats says; to stdout only when somebody has asked. Thread 0's. */
void stats_write(struct target *t, bool asked);

#endif
