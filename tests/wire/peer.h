/* SPDX-License-Identifier: BSD-2-Clause */
/* One end of a connection between two processes, and traffic of every kind on it. */
#ifndef TESTS_WIRE_PEER_H
#define TESTS_WIRE_PEER_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>

#define PEER_BUF   (1u << 20)
#define PEER_DEPTH 16

/* What each end tells the other when they connect. */
struct peer_hello {
	uint64_t addr;
	uint32_t rkey;
};

struct peer {
	struct rdma_event_channel *ec;
	struct rdma_cm_id *listener, *id;
	struct ibv_pd *pd;
	struct ibv_comp_channel *ch;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	char *buf;
	struct peer_hello there;
	bool connected;
	bool ended; /* a completion or an event has said that it's over */
	unsigned int sending;
	uint64_t done; /* operations that have succeeded */
	uint64_t seed;
};

uint64_t peer_random(struct peer *p);
/* Made before the connection. -1: says why. */
int peer_listen(struct peer *p, uint16_t port);
int peer_ask(struct peer *p, uint16_t port);
/* Takes what events there are; the connection comes about or ends by them. */
void peer_events(struct peer *p);
/* Posts what the queues take, and reaps what has ended. */
void peer_traffic(struct peer *p);
/* Sleeps till there is a completion or an event, or for so long. */
void peer_sleep(struct peer *p, int ms);
/* Destroys all of it. Returns how many objects are left, of all kinds. */
int peer_close(struct peer *p);

#endif
