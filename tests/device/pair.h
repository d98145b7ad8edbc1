/* SPDX-License-Identifier: BSD-2-Clause */
/* Two connected endpoints in one process, on the device of an address, under a pool that is given. */
#ifndef DEVICE_PAIR_H
#define DEVICE_PAIR_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <sgpool/sgpool.h>

#define PAIR_SGES 6 /* of a list: what the least device takes */

struct pair {
	const char *name; /* the device's */
	bool iwarp;
	struct ibv_pd *pd;
	struct {
		struct rdma_event_channel *events;
		struct rdma_cm_id *id;
		struct sgp_cq *cq;
		struct sgp_ep *ep;
		struct sgp_wc *wc; /* the completion that pair_reap() found */
	} side[2];                 /* [0] connected to [1] */
	struct rdma_cm_id *listener;
};

/* What is not so ends the program. */
#define NEED(x, ...)                                                                               \
	do {                                                                                       \
		if (!(x)) {                                                                        \
			printf("line %d of %s: %s is not so: ", __LINE__, __FILE__, #x);           \
			printf(__VA_ARGS__);                                                       \
			printf("\n");                                                              \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)
#define DO(x) NEED((x) == 0, "errno %d, %s", errno, sgp_errmsg())

/* Find the address's device and make the domain; the pool is the caller's next step. */
void pair_resolve(struct pair *pair, const char *addr);

/* Connect. Both ends' endpoints are on pair->pd. */
void pair_connect(struct pair *pair);

/* The one completion that comes next at an end, which must be a success. */
void pair_reap(struct pair *pair, int end);

/* Endpoints and identifiers; the domain stays. */
void pair_close(struct pair *pair);

#endif
