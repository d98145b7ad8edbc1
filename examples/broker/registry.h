/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which session has which client identifier, for all threads: a hash table under a lock. A session is
 * known by its number here, since it may end at any time.
 */
#ifndef BROKER_REGISTRY_H
#define BROKER_REGISTRY_H

#include <pthread.h>

#include "budget.h"
#include "mqtt.h"

struct registered;

struct registry {
	pthread_mutex_t lock;
	struct budget *budget;
	struct registered **buckets;
	size_t nbuckets, n;
};

/* Returns 0; -1 with ENOMEM. */
int registry_open(struct registry *registry, struct budget *budget);
void registry_close(struct registry *registry);

/*
 * The identifier is that session's now. Returns 0, and *before is the session that had it, 0: none; -1
 * with ENOMEM.
 */
int registry_claim(struct registry *registry, struct mqtt_bytes id, uint64_t session,
		   uint64_t *before);

/* The session has ended; if another one has taken the identifier over, it keeps it. */
void registry_leave(struct registry *registry, struct mqtt_bytes id, uint64_t session);

#endif
