/* SPDX-License-Identifier: BSD-2-Clause */
/* Below the floor: the two calls alone, which do nothing. What a pool by call can't be faster than. */
#define pool_get bench_floor_call_take_nothing
#define pool_put bench_floor_call_give_nothing
#include "bench_pool_floor.h"

const struct bench_contender bench_pool_floor_empty = {"empty-calls", false, loops_setup, loops_run,
						       loops_teardown};
