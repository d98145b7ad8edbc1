/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Those who wait for chunks of a class. They are served in order, each with all that it wants at
 * once, so that two that each hold a part can't wait for each other; and the first one is not
 * overtaken by a smaller one behind it.
 *
 * Locking: the class's lock for the queues. A waiter's ready() is called without any lock.
 */
#ifndef SGP_WAIT_H
#define SGP_WAIT_H

#include "pool/centre.h"

void sgp_waiters_init(struct sgp_class *cls);

/* Does somebody wait before whom a get with these flags may not go? */
static inline bool sgp_waited_for_locked(const struct sgp_class *cls, int flags)
{
	return cls->waiters[1].first || (!(flags & SGP_GET_RESERVED) && cls->waiters[0].first);
}

/*
 * Serve whom the centre has enough chunks for. Those with a ready() are put in front of *served, to
 * be handed to sgp_served_run() when no lock is held (of the pool's: see served.h for others').
 */
void sgp_serve_locked(struct sgp_class *cls, struct sgp_waiter **served);
void sgp_served_run(struct sgp_waiter *served);

#endif
