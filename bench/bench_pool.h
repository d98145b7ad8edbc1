/* SPDX-License-Identifier: BSD-2-Clause */
/* What the parts of bench_pool share: the contenders, and how much they hold ready. */
#ifndef BENCH_POOL_H
#define BENCH_POOL_H

#include "harness.h"

/* Chunks in each contender's pool. */
static inline size_t bench_pool_chunks(size_t size)
{
	return size > 16384 ? 2048 : 8192;
}

/* Each answers to all cases, but the last two groups are not for several threads. */
extern const struct bench_contender bench_pool_inline, bench_pool_call, bench_pool_bulk;
extern const struct bench_contender bench_pool_checked;
extern const struct bench_contender bench_pool_dpdk;
extern const struct bench_contender bench_pool_jemalloc;
extern const struct bench_contender bench_pool_ucx_spin;
extern const struct bench_contender bench_pool_ucx;
extern const struct bench_contender bench_pool_floor, bench_pool_floor_call;
extern const struct bench_contender bench_pool_floor_empty, bench_pool_floor_stack;

#endif
