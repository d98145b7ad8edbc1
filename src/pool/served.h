/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A put may serve a waiter, whose ready() may do what it likes: take locks too. Rooms above the
 * pool that put chunks under locks of their own keep the thread's served waiters back meanwhile.
 */
#ifndef SGP_SERVED_H
#define SGP_SERVED_H

#include <stdbool.h>

#include "sgpool/pool.h"

struct sgp_served {
	struct sgp_waiter *first, *last; /* kept back, in order */
	bool held;
};

extern _Thread_local struct sgp_served sgp_served __attribute__((tls_model("initial-exec")));

/* Call those that were kept back. errno is left alone. */
void sgp_served_run_kept(void);

/* From here on the calling thread's served waiters are kept back ... */
static inline void sgp_served_hold(void)
{
	sgp_served.held = true;
}

/* ... until here, where it has given up its locks, and they are called. */
static inline void sgp_served_release(void)
{
	sgp_served.held = false;
	if (sgp_served.first)
		sgp_served_run_kept();
}

#endif
