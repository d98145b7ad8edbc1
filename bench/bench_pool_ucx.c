/* SPDX-License-Identifier: BSD-2-Clause */
/* UCX's memory pool, by call as it is installed. It is for one thread. */
#include <stdlib.h>

#include "bench_pool.h"

#ifdef BENCH_UCX
#include "bench_pool_ucx.h"

static inline void *pool_get(struct pool *p)
{
	return ucs_mpool_get(&p->mpool);
}

static inline void pool_put(struct pool *p, void *chunk)
{
	(void)p;
	ucs_mpool_put(chunk);
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

const struct bench_contender bench_pool_ucx = {"ucs_mpool", false, loops_setup, loops_run,
					       loops_teardown};
