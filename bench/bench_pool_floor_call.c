/* SPDX-License-Identifier: BSD-2-Clause */
/* The floor by two calls into a shared library, as any pool has that is not inline. */
#define pool_get bench_floor_call_take
#define pool_put bench_floor_call_give
#include "bench_pool_floor.h"

const struct bench_contender bench_pool_floor_call = {"floor-call", false, loops_setup, loops_run,
						      loops_teardown};
