/* SPDX-License-Identifier: BSD-2-Clause */
/* The floor, inline. */
#define pool_get bench_floor_take
#define pool_put bench_floor_give
#include "bench_pool_floor.h"

const struct bench_contender bench_pool_floor = {"floor", false, loops_setup, loops_run,
						 loops_teardown};
