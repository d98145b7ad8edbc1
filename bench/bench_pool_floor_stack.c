/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The floor of a pool whose chunks have descriptors outside of their memory: an array of pointers to
 * these for one thread. A put asks the descriptor, and who writes to the chunk finds its memory there.
 */
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "bench_pool.h"

struct descriptor {
	char *memory;
	uint64_t keys[2]; /* as long as ours */
	uint64_t state;
};

struct pool {
	struct descriptor **top, **stack, *descriptors;
	char *memory;
	size_t bytes;
};

static inline void *pool_get(struct pool *p)
{
	return *--p->top;
}

static inline void pool_put(struct pool *p, void *chunk)
{
	struct descriptor *d = chunk;

	if (__builtin_expect(d->state != 1, 0))
		abort();
	*p->top++ = d;
}

static inline void *pool_memory(void *chunk)
{
	return ((struct descriptor *)chunk)->memory;
}

static void pool_free(struct pool *p)
{
	munmap(p->memory, p->bytes);
	free(p->stack);
	free(p->descriptors);
	free(p);
}

static struct pool *pool_make(size_t size, bool strided)
{
	size_t n = bench_pool_chunks(size), stride = size + (strided ? 64 : 0);
	struct pool *p = calloc(1, sizeof *p);

	if (!p)
		return NULL;
	p->bytes = n * stride;
	p->memory = mmap(NULL, p->bytes, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	p->stack = calloc(n, sizeof *p->stack);
	p->descriptors = aligned_alloc(64, n * sizeof *p->descriptors);
	if (p->memory == MAP_FAILED || !p->stack || !p->descriptors)
		abort();
	p->top = p->stack;
	for (size_t i = n; i-- > 0;) {
		p->descriptors[i] =
			(struct descriptor){.memory = p->memory + i * stride, .state = 1};
		pool_put(p, &p->descriptors[i]);
	}
	return p;
}

#include "bench_pool_loops.h"

const struct bench_contender bench_pool_floor_stack = {"floor-stack", false, loops_setup, loops_run,
						       loops_teardown};
