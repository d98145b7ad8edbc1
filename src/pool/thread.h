/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The threads that have magazines, and the process's part in it: the indices of magazines,
 * membarrier, fork, the end of a thread.
 *
 *      sgp_thread.mags --> thread block --> | mags[0 .. SGP_SLOTS - 1] | none | caches
 *                                             | (most: &none)
 *                                             v
 *      class.caches ----------------------> cache --> cache ...
 *
 * A cache is one thread's magazine of one class. It is on two lists: its thread's and its class's.
 * When the pool goes before the thread the cache stays with its thread, dead: it matches nothing.
 *
 * Locking: sgp_threads_lock() protects both lists; a class's list is changed under the class's lock
 * as well, so that either lock is enough to walk it. Order: a pool's growth lock, this lock, a
 * class's lock.
 */
#ifndef SGP_THREAD_H
#define SGP_THREAD_H

#include <stdbool.h>

#include "pool/mode.h"
#include "sgpool/pool.h"

struct sgp_class;
struct sgp_thread_block;

/* One thread's magazine of one class. */
struct sgp_cache {
	struct sgp_mag mag; /* the owner's line; others write floor and ceil, and the rest when it
			       is out */
	_Alignas(64) struct sgp_class *cls;
	struct sgp_thread_block *owner;
	struct sgp_cache *next_of_class, *next_of_thread;
	size_t capacity;
	bool emptied; /* by another thread: there is nothing in it, whatever its top says */
	struct sgp_chunk *items[]; /* [capacity] */
};

_Static_assert(sizeof(struct sgp_mag) <= 64, "one cache line");

/* Prepare the process: membarrier, fork handlers, a thread's end. Once is enough. */
void sgp_threads_init(void);

/* The calling thread has no magazines from here on: everything takes the call. */
void sgp_thread_leave(void);

void sgp_threads_lock(void);
void sgp_threads_unlock(void);

/*
 * An index for a class's magazines; 0 when there is none left or the system has no membarrier: the
 * class has no caches then.
 */
uint16_t sgp_slot_acquire(void);
void sgp_slot_release(uint16_t slot);

/*
 * The calling thread's cache of a class, closed and empty if it is new.
 *
 * NULL when the class has none, the thread is ending, or there is no memory: the centre serves
 * then.
 */
struct sgp_cache *sgp_cache_of(struct sgp_class *cls);

/* The pool goes: part all caches of a class, which must be empty, from it. */
void sgp_caches_free(struct sgp_class *cls);

/* A full barrier on every running thread of the process. */
void sgp_membarrier(void);

#endif
