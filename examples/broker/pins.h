/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which chunks somebody keeps for long, and how much memory they are: short messages share a chunk
 * with others, and one that stays keeps the whole of it. Kept for each of the pool's classes apart, of
 * which at most half may be pinned, so that the other half is left for messages that come and go.
 * Locking is the caller's.
 */
#ifndef BROKER_PINS_H
#define BROKER_PINS_H

#include <sgpool/sgpool.h>

#include "budget.h"

enum {
	PINS_CLASSES = 4, /* of memory.h */
};

struct pin;

struct pins {
	struct budget *budget;
	struct pin **buckets;
	size_t nbuckets;
	struct {
		size_t size; /* of its chunks */
		size_t bytes, max_bytes;
	} classes[PINS_CLASSES];
	uint32_t nclasses;
};

/* Returns 0; -1 with ENOMEM. pool: whose chunks they will be, of at most PINS_CLASSES classes. */
int pins_open(struct pins *pins, struct budget *budget, struct sgp_pool *pool);
void pins_close(struct pins *pins);

/* The list's chunks are kept. Returns 0; -1 when that is too much, or with ENOMEM: none is then. */
int pins_add(struct pins *pins, const struct sgp_sgl *sgl);
void pins_remove(struct pins *pins, const struct sgp_sgl *sgl);

/* Bytes of all chunks that are kept. */
size_t pins_bytes(const struct pins *pins);

#endif
