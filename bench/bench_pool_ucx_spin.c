/* SPDX-License-Identifier: BSD-2-Clause */
/* UCX's memory pool made fit for several threads by a spinlock, as UCX itself does it. */
#include <stdlib.h>

#include "bench_pool.h"

#ifdef BENCH_UCX
#include "bench_pool_ucx.h"

static inline void *pool_get(struct pool *p)
{
	void *chunk;

	pthread_spin_lock(&p->lock);
	chunk = ucs_mpool_get(&p->mpool);
	pthread_spin_unlock(&p->lock);
	return chunk;
}

static inline void pool_put(struct pool *p, void *chunk)
{
	pthread_spin_lock(&p->lock);
	ucs_mpool_put(chunk);
	pthread_spin_unlock(&p->lock);
}

#include "bench_pool_loops.h"
#else
static void *loops_setup(const char *which_case, size_t size)
{
	(void)which_case;
	(void)size;
	bench_missing("ucs_mpool", "libucx-dev is not installed");
	return NULL;
}
#define loops_run      NULL
#define loops_teardown NULL
#endif

const struct bench_contender bench_pool_ucx_spin = {"ucs_mpool_spin", false, loops_setup, loops_run,
						    loops_teardown};
