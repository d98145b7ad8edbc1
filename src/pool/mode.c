/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The process's mode, and what fork(2) needs; see mode.h.
 *
 * A pool's memory is MADV_DONTFORK whatever the kernel does (memory.c), so a fork copies none of it
 * and a child that touches it gets SIGSEGV. What ibv_fork_init(3) is for is the rest: pages that a
 * provider shares with its device. If it comes too late (memory is registered already) that rest is
 * the program's own concern, and a pool is none the worse.
 */
#include <errno.h>
#include <pthread.h>

#include <infiniband/verbs.h>

#include "pool/errmsg.h"
#include "pool/mode.h"
#include "pool/thread.h"
#include "sgp_config.h"

unsigned int sgp_mode;

int sgp_check_fork(void)
{
	if (!(sgp_mode_now() & SGP_MODE_FORKED))
		return 0;
	return sgp_fail(EPERM, "a forked child may do nothing with sgpool but exec or exit");
}

/* The only thread of a child. */
static void in_child(void)
{
	__atomic_fetch_or(&sgp_mode, SGP_MODE_FORKED, __ATOMIC_RELAXED);
	sgp_thread_leave();
}

void sgp_fork_init(void)
{
	/* Kernels from 5.12 on copy pinned pages at the fork: IBV_FORK_UNNEEDED (case 48). */
#if SGP_HAVE_FORK_STATUS
	if (ibv_is_fork_initialized() == IBV_FORK_DISABLED)
#endif
		(void)ibv_fork_init();
	pthread_atfork(NULL, NULL, in_child);
}
