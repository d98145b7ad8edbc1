/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The program's state. Each thread has all that commands need of its own: ring, memory, device queues,
 * hosts' queues. What threads share is few and, but for flags, behind one lock, which no command takes:
 * only connections, controllers and statistics do.
 *
 *      common --+-- target (thread 0): signals, the listener, admin queues, some I/O queues
 *               +-- target (thread 1): I/O queues
 *               +-- ...
 */
#ifndef NVMF_TARGET_H
#define NVMF_TARGET_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <sgpool/sgpool.h>

#include "budget.h"
#include "capsule.h"
#include "ns.h"
#include "options.h"
#include "stats.h"
#include "uring.h"

#define MAX_CTRLS 1024 /* controllers at once: their identifiers are 1 .. MAX_CTRLS */

struct ctrl;
struct mail;
struct queue;
struct target;

/* What all threads share. */
struct common {
	const struct options *opt;
	struct ns *ns;             /* [opt->nns] */
	struct capsule_ns *limits; /* likewise */
	struct target *thread;     /* [nthreads] */
	unsigned int nthreads;
	atomic_bool stopping;    /* no more commands are taken */
	atomic_bool failed;      /* a thread has: all end */
	atomic_uint busy;        /* threads that have not answered all they have taken */
	pthread_barrier_t ended; /* no thread has a queue any more */
	pthread_mutex_t lock;    /* of what follows, and where it's said */
	pthread_cond_t started;
	unsigned int ready; /* threads that have started */
	bool broken;        /* one could not */
	struct ctrl *ctrl[MAX_CTRLS];
};

/* A device that hosts come through, with what all its queues of a thread share. */
struct device {
	struct device *next;
	struct target *target;
	struct ibv_context *verbs;
	struct ibv_pd *pd;
	struct sgp_cq *cq;
	struct sgp_srq *srq; /* NULL (if strict, or it can't): each queue has its own receives */
	struct sgp_wc *wc;   /* [DEVICE_BATCH] */
	struct uring_watch completions, events;
	uint32_t receives; /* srq's */
	bool armed;        /* the completion queue will make completions.fd readable */
	bool strict;       /* a message without a receive ends a connection (iWARP) */
	int max_sge;
};

#define DEVICE_BATCH 32 /* completions looked at at once */

struct target {
	struct common *common;
	unsigned int index; /* of the thread */
	bool runs;          /* thread is one; thread 0 is not */
	pthread_t thread;
	const struct options *opt; /* common's, as ns and limits */
	struct uring uring;
	struct budget budget;
	struct stats stats;
	struct report report; /* common.lock: what others may know of stats */
	struct ns *ns;
	struct capsule_ns *limits;
	struct rdma_event_channel *events;
	struct rdma_cm_id *listener; /* thread 0's */
	struct uring_watch cm, signals, wake;
	struct mail *_Atomic mail; /* from other threads: see threads.h */
	struct device *devices;    /* common.lock, to change it */
	struct queue *queues;      /* all */
	struct queue *dirty;       /* those whose posts wait for a doorbell, or for room */
	atomic_uint promised;      /* commands that all queues may have outstanding */
	/* Commands that have been received and not answered, without async events. */
	uint64_t in_flight;
	int64_t now;   /* ns, of the present turn of the loop, to some milliseconds */
	int64_t stamp; /* ns, exact: target_stamp() */
	int64_t next_tick;
	int64_t started;
	bool stopping, drained; /* drained: not one of common.busy any more */
	int64_t stop_at;        /* when what is in flight is given up */
};

/*
 * The exact time, for latencies. Reading it is a system call and more where the clock is not the
 * processor's own, so it's read at most twice a turn, and only if somebody asks.
 */
int64_t target_stamp(struct target *t);

/* Print a line and return -1: with why sgpool, or the system (errno), failed. */
int fail_sgp(const char *what);
int fail_sys(const char *what);

#endif
