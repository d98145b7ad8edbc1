/* SPDX-License-Identifier: BSD-2-Clause */
/* jemalloc's malloc and free; linked with it, the whole program uses it. */
#include <stdlib.h>

#include "bench_pool.h"

#ifdef BENCH_JEMALLOC
#include <jemalloc/jemalloc.h>

struct pool {
	size_t size;
};

static inline void *pool_get(struct pool *p)
{
	return malloc(p->size);
}

static inline void pool_put(struct pool *p, void *chunk)
{
	(void)p;
	free(chunk);
}

static inline void *pool_memory(void *chunk)
{
	return chunk;
}

static void pool_free(struct pool *p)
{
	free(p);
}

static struct pool *pool_make(size_t size, bool strided)
{
	struct pool *p = calloc(1, sizeof *p);

	(void)strided;
	if (p)
		p->size = size;
	return p;
}

#include "bench_pool_loops.h"
#else
static void *loops_setup(const char *which_case, size_t size)
{
	(void)which_case;
	(void)size;
	bench_missing("jemalloc", "libjemalloc-dev is not installed");
	return NULL;
}
#define loops_run      NULL
#define loops_teardown NULL
#endif

const struct bench_contender bench_pool_jemalloc = {"jemalloc", false, loops_setup, loops_run,
						    loops_teardown};
