/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A mutex that a single-threaded owner leaves out.
 *
 * Order, where two are held: a completion queue's, then an endpoint side's or a shared receive
 * queue's.
 */
#ifndef SGP_LOCK_H
#define SGP_LOCK_H

#include <pthread.h>
#include <stdbool.h>

/* On the short way of a post or a poll: part of its one function. Off it: never made part of it. */
#define SGP_HOT  inline __attribute__((always_inline))
#define SGP_COLD __attribute__((noinline, cold))

struct sgp_lock {
	pthread_mutex_t mutex;
	bool off; /* the caller serialises */
};

static inline void sgp_lock_init(struct sgp_lock *l, bool off)
{
	pthread_mutex_init(&l->mutex, NULL);
	l->off = off;
}

static inline void sgp_lock_destroy(struct sgp_lock *l)
{
	pthread_mutex_destroy(&l->mutex);
}

static inline void sgp_lock(struct sgp_lock *l)
{
	if (!l->off)
		pthread_mutex_lock(&l->mutex);
}

/* Whether it was free and is the caller's now; never where the caller serialises. */
static inline bool sgp_trylock(struct sgp_lock *l)
{
	return !l->off && !pthread_mutex_trylock(&l->mutex);
}

static inline void sgp_unlock(struct sgp_lock *l)
{
	if (!l->off)
		pthread_mutex_unlock(&l->mutex);
}

#endif
