/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a chunk costs to get and to put, against others who hand out memory.
 *
 * The contenders do the same work, bench_pool_loops.h, each with its own forms of get and put
 * inlined where it has such. A number is for one get and one put.
 */
#include "bench_pool.h"

/* Constants of other files can't be in an initialiser of this one. */
static struct bench_contender any_thread[6], one_thread[11], in_bulk[6];
static struct bench_contender checked[4];

static const struct bench_case cases[] = {
	{"pair", 1, one_thread},
	{"burst-32", 32, one_thread},
	{"burst-512", 512, one_thread},
	{"held", 1, one_thread},
	{"held-written", 1, one_thread},
	{"held-written-aligned", 1, one_thread},
	{"hand-over", 1, any_thread},
	{"two-threads", 1, any_thread},
	{"bulk-32", 32, in_bulk},
	/* The last: from its first checked pool on a process asks one question more at each call. */
	{"checked", 1, checked},
	{0},
};

static const size_t sizes[] = {64, 4096, 65536, 0};

static const struct bench bench = {
	.name = "bench_pool",
	.about = "What a chunk costs to get and to put, against DPDK's mempool, UCX's mpool, "
		 "jemalloc\n"
		 "and floors: a bare list (inline, and by two calls), the two calls alone, a stack of\n"
		 "descriptors. ns and instructions are for one get and one put.\n",
	.cases = cases,
	.sizes = sizes,
};

int main(int argc, char **argv)
{
	size_t n = 0;

	one_thread[n++] = any_thread[0] = bench_pool_inline;
	one_thread[n++] = any_thread[1] = bench_pool_call;
	one_thread[n++] = any_thread[2] = bench_pool_dpdk;
	one_thread[n++] = any_thread[3] = bench_pool_ucx_spin;
	one_thread[n++] = any_thread[4] = bench_pool_jemalloc;
	one_thread[n++] = bench_pool_ucx;
	one_thread[n++] = bench_pool_floor;
	one_thread[n++] = bench_pool_floor_call;
	one_thread[n++] = bench_pool_floor_empty;
	one_thread[n++] = bench_pool_floor_stack;
	in_bulk[0] = bench_pool_bulk;
	in_bulk[1] = bench_pool_dpdk;
	in_bulk[2] = bench_pool_ucx_spin;
	in_bulk[3] = bench_pool_jemalloc;
	in_bulk[4] = bench_pool_floor;
	checked[0] = bench_pool_inline;
	checked[1] = bench_pool_call;
	checked[2] = bench_pool_checked;
	return bench_main(&bench, argc, argv);
}
