/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The centre of a size class: the stack of its free chunks that all threads share, and who may take
 * from it.
 *
 *      free[0 .. nfree - 1]   pointers to descriptors; the last one put is the first one got
 *
 * The stack's addresses are reserved for max_chunks at the beginning, so that neither a put nor
 * growth has to enlarge it. Chunks in the threads' caches count as taken: reserve and cap are about
 * what the centre hands out. A class with a reserve marks the chunks that were got out of it, so
 * that those count against the reserve and not against everybody; they always come back to the
 * centre.
 *
 * Locking: lock protects the members below it; a name that ends in _locked wants it held. It is the
 * innermost lock of the pool. nfree, made and the counters are written under it and read by
 * statistics without.
 */
#ifndef SGP_CENTRE_H
#define SGP_CENTRE_H

#include <pthread.h>
#include <stdbool.h>

#include "pool/slab.h"

struct sgp_cache;

/* Waiters of one kind, the first one to be served first. */
struct sgp_waiter_queue {
	struct sgp_waiter *first, **last;
};

/* What happened in a class, since the pool was made. */
struct sgp_class_counters {
	_Atomic uint64_t peak;      /* the most chunks out of the centre at once */
	_Atomic uint64_t exhausted; /* gets that found no chunk */
	_Atomic uint64_t waits;     /* gets that waited */
	_Atomic uint64_t reclaims;  /* times that the caches were emptied for one thread's need */
	_Atomic uint64_t growths, trims;
};

struct sgp_class {
	struct sgp_cut cut;
	struct sgp_pool *pool;
	size_t least; /* the smallest size that it serves */
	size_t max_chunks;
	size_t initial_chunks;
	size_t cache_chunks;    /* capacity of a thread's cache; 0: none */
	size_t low_water;       /* the helper grows the class below it */
	struct sgp_slab *slabs; /* changed under the pool's growth lock */
	_Atomic size_t bytes;   /* registered for it; likewise */
	uint16_t slot;          /* index of the class's magazines, 0: none */

	_Alignas(64) pthread_mutex_t lock;
	struct sgp_chunk **free; /* [max_chunks] */
	_Atomic size_t nfree;
	_Atomic size_t made;    /* chunks of the class */
	_Atomic size_t cap;     /* at most so many may be out of the centre */
	_Atomic size_t reserve; /* so many only SGP_GET_RESERVED may have */
	size_t reserved_out;    /* chunks that were got so, and are marked */
	size_t overput;         /* that came back when all were there: put more often than got */
	bool pressure;          /* chunks are short: caches stay closed, puts go to the centre */
	bool unsettled;         /* a cache that was to be emptied had its owner inside */
	size_t lowest;          /* nfree at its lowest, since the helper looked */
	struct sgp_cache *caches;
	struct sgp_waiter_queue waiters[2]; /* [1]: with SGP_GET_RESERVED */
	struct sgp_class_counters count;
};

/* Set up a class without chunks. Returns 0, or -1 with EINVAL or ENOMEM. */
int sgp_centre_init(struct sgp_class *cls, const struct sgp_class_attr *attr);
void sgp_centre_fini(struct sgp_class *cls);

/* How many chunks a get with these flags may take now, not asking who waits. */
size_t sgp_centre_avail_locked(const struct sgp_class *cls, int flags);

/*
 * About to take n chunks, or to give some: most of the time these lines of the stack lie in another
 * processor's cache. Ask for all of them at once, before the lock, instead of waiting for one after
 * the other under it. No lock is needed.
 */
void sgp_centre_prefetch(const struct sgp_class *cls, size_t n, bool to_give);

/* Take n chunks, which must be there; for a cache, or for a get with these flags. */
void sgp_centre_take_locked(struct sgp_class *cls, struct sgp_chunk *chunks[], size_t n);
void sgp_centre_get_locked(struct sgp_class *cls, struct sgp_chunk *chunks[], size_t n, int flags);

/*
 * n chunks without references come back: do they count against the reserve? They do not any more,
 * and belong into the centre then. True if one did.
 */
bool sgp_centre_unmark_locked(struct sgp_class *cls, struct sgp_chunk *const chunks[], size_t n);

/* Return n chunks. Who waits is the caller's to think of. */
void sgp_centre_give_locked(struct sgp_class *cls, struct sgp_chunk *const chunks[], size_t n);

/* Put n more chunks of a slab into use. The slab has the room and is published. */
void sgp_centre_add_locked(struct sgp_class *cls, struct sgp_slab *slab, size_t n);

/* Take the slabs that are leaving out of use; all their chunks are in the centre. */
void sgp_centre_remove_locked(struct sgp_class *cls);

/* Count one event; only one thread at a time may. */
static inline void sgp_count(_Atomic uint64_t *counter)
{
	uint64_t n = atomic_load_explicit(counter, memory_order_relaxed);

	atomic_store_explicit(counter, n + 1, memory_order_relaxed);
}

#endif
