/* SPDX-License-Identifier: BSD-2-Clause */
/* Our pool when it's checked: what finding mistakes costs. */
#define BENCH_POOL_FLAGS SGP_POOL_CHECKED
#include "bench_pool_sgpool.h"

static inline void *pool_get(struct pool *p)
{
	return sgp_pool_get(p->pool, p->size, 0);
}

static inline void pool_put(struct pool *p, void *chunk)
{
	(void)p;
	sgp_chunk_put(chunk);
}

#include "bench_pool_loops.h"

const struct bench_contender bench_pool_checked = {"checked", true, loops_setup, loops_run,
						   loops_teardown};
