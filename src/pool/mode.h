/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is out of the ordinary in the whole process: it is a forked child, or pools are checked.
 *
 * One word, so that the calls of the data path ask for all of it with one branch that is never
 * taken. The inline get and put don't even ask: in a child the thread has no magazines any more
 * (see thread.c), and a checked pool has none from the beginning, so that these take the call.
 */
#ifndef SGP_MODE_H
#define SGP_MODE_H

#include <stdbool.h>

#include <sgpool/export.h>

enum {
	SGP_MODE_FORKED = 1 << 0,
	SGP_MODE_CHECKED = 1 << 1, /* some pool is or was checked, see watch.h */
};

extern unsigned int sgp_mode;

static inline unsigned int sgp_mode_now(void)
{
	return __atomic_load_n(&sgp_mode, __ATOMIC_RELAXED);
}

static inline bool sgp_mode_is_ordinary(void)
{
	return __builtin_expect(sgp_mode_now() == 0, 1);
}

/* In a forked child nothing may be done: -1 with EPERM there, else 0. */
SGP_API int sgp_check_fork(void);

/* The same for the calls of the data path. */
static inline int sgp_refuse_child(void)
{
	return sgp_mode_is_ordinary() ? 0 : sgp_check_fork();
}

/*
 * Prepare the process for fork(2). Where the kernel does not copy pinned pages itself,
 * ibv_fork_init(3), which must come before any registration; and calls in a child become EPERM.
 * Once, by sgp_threads_init().
 */
void sgp_fork_init(void);

#endif
