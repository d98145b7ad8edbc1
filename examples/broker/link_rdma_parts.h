/* SPDX-License-Identifier: BSD-2-Clause */
/* What link_rdma.c and link_rdma_cm.c have of each other. */
#ifndef BROKER_LINK_RDMA_PARTS_H
#define BROKER_LINK_RDMA_PARTS_H

#include "link_rdma.h"

#define container_of(p, type, member) ((type *)(void *)((char *)(p)-offsetof(type, member)))

/* A device's completion queue, as a descriptor of the loop. */
struct rdma_cq_fd {
	struct loop_fd fd;
	struct link_rdma *rdma; /* NULL: it is not in the loop */
	struct mqr_device *device;
};

/* One thread's. */
struct link_rdma {
	struct link_host *host;
	struct mqr_loop mqr;
	struct rdma_event_channel *channel;
	struct loop_fd events;
	struct rdma_cq_fd cq[MQR_DEVICES];
	struct loop_task task;   /* a run is due at the end of this turn */
	struct loop_timer timer; /* a run is due somewhat later */
	uint32_t links;
	struct sgp_sgl payload; /* of the packet that is being handed over */
};

enum rdma_state {
	RDMA_CONNECTING, /* no queues yet, or the other end has not answered */
	RDMA_UP,
	RDMA_CLOSING, /* closed by the owner; what was taken is on its way */
};

struct rdma_link {
	struct link link;
	struct link_rdma *rdma;
	struct mqr_conn conn;  /* once it has queues: its ep is set */
	struct rdma_cm_id *id; /* before that */
	struct rdma_id_owner id_owner;
	enum rdma_state state;
	const char *why;
	bool paused, closing;
	bool hungry;     /* there was no chunk for the first of those that wait */
	bool blocked;    /* the owner waits for writable() */
	bool unfinished; /* a packet has begun to go: its rest is in head and body */
	uint8_t *head;
	size_t head_bytes;
	struct sgp_sgl body;
	uint64_t sent; /* of head and body */
	struct late *late, **last_late;
	struct loop_task task;
	struct loop_timer timer;
	int64_t deadline;
};

extern const struct mqr_ops rdma_mqr_ops;
extern const struct link_ops rdma_link_ops;

/* A device's and pool's, on which the pool is registered. NULL with errno. Putting: -1, it's in use. */
struct ibv_pd *rdma_domain_get(struct ibv_context *verbs, struct sgp_pool *pool);
int rdma_domain_put(struct ibv_pd *pd);

/* Run the completion queues soon: something is to be looked after. */
void rdma_kick(struct link_rdma *rdma);

/* Tell the owner that it's closed, and end it. */
void rdma_link_end(struct rdma_link *l, int err);

void rdma_link_task(struct loop_task *task);
void rdma_link_look(struct loop_timer *timer);

#endif
