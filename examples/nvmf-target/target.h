/* SPDX-License-Identifier: BSD-2-Clause */
/* The whole program's state: one of it, one thread. */
#ifndef NVMF_TARGET_H
#define NVMF_TARGET_H

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
struct queue;

/* A device that hosts come through, with what all its queues share. */
struct device {
	struct device *next;
	struct target *target;
	struct ibv_context *verbs;
	struct ibv_pd *pd;
	struct sgp_cq *cq;
	struct sgp_srq *srq;
	struct sgp_wc *wc; /* [DEVICE_BATCH] */
	struct uring_watch completions, events;
	uint32_t
		capsules; /* receives posted; so many commands the queues on it may have outstanding */
	uint32_t promised; /* and so many they have */
	bool armed;        /* the completion queue will make completions.fd readable */
	bool strict;       /* a message without a receive ends a connection (iWARP) */
	int max_sge;
};

#define DEVICE_BATCH 32 /* completions looked at at once */

struct target {
	const struct options *opt;
	struct uring uring;
	struct budget budget;
	struct stats stats;
	struct ns *ns;             /* [opt->nns] */
	struct capsule_ns *limits; /* likewise */
	struct rdma_event_channel *events;
	struct rdma_cm_id *listener;
	struct uring_watch cm, signals;
	struct device *devices;
	struct queue *queues; /* all */
	struct queue *dirty;  /* those whose posts wait for a doorbell, or for room */
	struct ctrl *ctrl[MAX_CTRLS];
	uint32_t promised; /* commands that all queues may have outstanding */
	/* Commands that have been received and not answered, without async events. */
	uint64_t in_flight;
	int64_t now;   /* ns, of the present turn of the loop, to some milliseconds */
	int64_t stamp; /* ns, exact: target_stamp() */
	int64_t next_tick;
	int64_t started;
	bool stopping;
	int64_t stop_at; /* when what is in flight is given up */
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
