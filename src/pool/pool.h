/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A pool's inside: one range of memory, one registrar, a table from addresses to their owners, and the
 * size classes.
 *
 * Locking: grow serialises whatever changes the pool's memory (growth, trim, its end); it is taken
 * before a class's lock. The table is written under it and read without.
 */
#ifndef SGP_POOL_INTERNAL_H
#define SGP_POOL_INTERNAL_H

#include <semaphore.h>

#include "pool/centre.h"
#include "pool/import.h"
#include "pool/registrar.h"

#define SGP_OCTAVES 64

/* The thread that grows and shrinks a pool in the background. */
struct sgp_helper {
	bool runs;
	pthread_t thread;
	sem_t wake;
	atomic_bool wanted; /* wake was posted for growth */
	atomic_bool stop;
	uint32_t idle_ms;
};

struct sgp_pool {
	uint16_t slot[SGP_OCTAVES];        /* of first_class; known to sgpool/inline.h */
	uint16_t first_class[SGP_OCTAVES]; /* the smallest class for sizes 2^(i-1) < size <= 2^i;
					    * the largest one where there is none */
	uint32_t nclasses;
	struct sgp_class *classes; /* [nclasses], the smallest size first */
	struct sgp_memory mem;
	_Atomic(struct sgp_owner *) *owner_at; /* [mem.granules] */
	_Atomic size_t page_size;            /* of the first region */
	uint32_t watch;                      /* SGP_WATCH_*, see watch.h */
	_Atomic uint64_t findings;           /* of checked mode */

	_Alignas(64) pthread_mutex_t grow;
	struct sgp_registrar reg;
	struct sgp_backing backing;
	struct sgp_slab *spares;
	struct sgp_extent *extents;
	struct sgp_imports imports;
	struct sgp_helper helper;
};

/* The chunk that an address lies in, free or not; NULL: in none. */
struct sgp_chunk *sgp_pool_find(struct sgp_pool *pool, const void *addr);

/* The class that serves size; NULL with EINVAL or EMSGSIZE. */
struct sgp_class *sgp_pool_class(struct sgp_pool *pool, size_t size);

/*
 * Take the pool's addresses and make the table of them: its classes, backing and limits are known.
 * Returns 0; -1 with ENOMEM, nothing taken. reserve.c.
 */
int sgp_pool_reserve(struct sgp_pool *pool, const struct sgp_pool_attr *attr);

void sgp_pool_unreserve(struct sgp_pool *pool);

/*
 * Compare the whole of a pool with its invariants: every free chunk is there once, in the centre or
 * in a cache, has no references and belongs to a slab of its class; chunks = free + live; the table
 * leads to each chunk.
 *
 * Returns NULL, or what is wrong. No other thread may be using the pool. For tests and debugging.
 */
const char *sgp_pool_check(struct sgp_pool *pool);

#ifdef SGP_DEBUG
#define sgp_debug_check(pool) assert(sgp_pool_check(pool) == NULL)
#else
#define sgp_debug_check(pool) ((void)(pool))
#endif

#endif
