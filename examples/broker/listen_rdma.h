/* SPDX-License-Identifier: BSD-2-Clause */
/* Where connections over RDMA come from: shard 0 listens, and deals them out as listen.h does. */
#ifndef BROKER_LISTEN_RDMA_H
#define BROKER_LISTEN_RDMA_H

#include "broker.h"
#include "cli/addr.h"
#include "link_rdma.h"

struct rdma_door {
	struct link_rdma_listener listener;
	struct broker *broker;
};

/*
 * Give every shard its part of RDMA, and listen. Before the threads are started. Returns 0; -1, after
 * a line on stderr.
 */
int rdma_door_open(struct rdma_door *door, struct broker *broker, const struct addr *addr);

/* Stop listening, in shard 0's thread; safe on what was zeroed. */
void rdma_door_close(struct rdma_door *door);

#endif
