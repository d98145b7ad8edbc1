/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A controller: what a host sees of the subsystem, from the Connect of its admin queue until that
 * queue ends. It has properties, a keep-alive timer and asynchronous event requests; its I/O queues
 * end with it.
 *
 * Threads: admin queues, and with them controllers, are thread 0's. I/O queues may be another's: which
 * queues there are is behind common.lock, and the controller is freed when the last one has left.
 */
#ifndef NVMF_CTRL_H
#define NVMF_CTRL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "queue.h"

enum {
	CTRL_IO_QUEUES = 64,
	CTRL_ADMIN_DEPTH = 32,       /* entries of an admin queue */
	CTRL_ASYNC_EVENTS = 4,       /* requests of these that may be outstanding */
	CTRL_KEEP_ALIVE_UNIT = 1000, /* ms */
	CTRL_DISCOVERY_MS =
		120000, /* keep-alive time of a discovery controller that asked for none */
	CTRL_VERSION = 0x10400,
	/* CSTS */
	CTRL_READY = 1 << 0,
	CTRL_FAILED = 1 << 1,
	CTRL_SHUT_DOWN = 2 << 2,
	/* Where in a Connect, or in its data, the parameter stands that is wrong. */
	CTRL_AT_DATA = 1 << 16,
	CTRL_AT_RECFMT = 40,
	CTRL_AT_QID = 42,
	CTRL_AT_SQSIZE = 44,
	CTRL_AT_CNTLID = CTRL_AT_DATA | 16,
	CTRL_AT_SUBNQN = CTRL_AT_DATA | 256,
	CTRL_AT_HOSTNQN = CTRL_AT_DATA | 512,
};

#define DISCOVERY_NQN "nqn.2014-08.org.nvmexpress.discovery"

struct nvmf_connect_data;

struct ctrl {
	struct target *target;
	uint16_t cntlid;
	bool discovery;
	char hostnqn[224];
	uint8_t hostid[16];
	uint32_t cc, csts;
	atomic_bool enabled;    /* I/O queues may be connected, and used */
	uint32_t keep_alive_ms; /* 0: not asked for */
	int64_t alive_until;
	uint32_t event_config;
	uint16_t io_queues;                      /* common.lock: granted */
	struct queue *queue[CTRL_IO_QUEUES + 1]; /* common.lock; 0: the admin queue */
	int members;                             /* common.lock: queues in it */
	struct request *event[CTRL_ASYNC_EVENTS];
	int events;
	struct traffic left; /* common.lock: of queues that are gone */
};

/* A new one, of the host in an admin queue's Connect; NULL when there are too many. */
struct ctrl *ctrl_create(struct queue *q, bool discovery, const struct nvmf_connect_data *data);

/*
 * An I/O queue joins the controller that its Connect names. *where: CTRL_AT_..., if a parameter is
 * wrong, or 0: then it returns the status.
 */
int ctrl_join(struct queue *q, const struct nvmf_connect_data *data, uint32_t *where);

/* Grant so many I/O queues. Returns the status. */
int ctrl_grant(struct ctrl *ctrl, uint16_t io_queues);

/* What its queues have moved. */
struct traffic ctrl_traffic(struct ctrl *ctrl);

/* A queue of it ends. With the admin queue, all do, and the controller is gone. */
void ctrl_queue_gone(struct queue *q);

/* The timer was restarted by the host. */
void ctrl_keep_alive(struct ctrl *ctrl);

/* See to the timers. */
void ctrl_tick(struct target *t);

/* CC.EN changed: what its queues accept follows. Thread 0's. */
void ctrl_set_enabled(struct ctrl *ctrl, bool enabled);

/* Properties (fabrics.c), identify, log pages and features. */
void fabrics_start(struct request *r);
void admin_start(struct request *r);
void io_start(struct request *r);

/* Fill page, which is zero and WIRE_IDENTIFY long. Returns the status. */
int identify_fill(const struct ctrl *ctrl, const struct capsule *cmd, uint8_t *page);
int log_fill(const struct queue *q, uint8_t lid, uint8_t *page, uint32_t *length);

#endif
