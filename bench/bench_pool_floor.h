/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The floor: a bare list through the chunks, for one thread, that can do nothing else. Who includes
 * this says how pool_get and pool_put are done.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "bench_floor_list.h"
#include "bench_pool.h"

#define pool bench_floor_list

static inline void *pool_memory(void *chunk)
{
	return chunk;
}

static void pool_free(struct pool *p)
{
	munmap(p->memory, p->bytes);
	free(p);
}

static struct pool *pool_make(size_t size, bool strided)
{
	struct pool *p = calloc(1, sizeof *p);
	size_t n = bench_pool_chunks(size);

	(void)strided;
	if (!p)
		return NULL;
	p->bytes = n * size;
	p->memory =
		mmap(NULL, p->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p->memory == MAP_FAILED) {
		free(p);
		return NULL;
	}
	for (size_t i = n; i-- > 0;)
		pool_put(p, p->memory + i * size);
	return p;
}

#include "bench_pool_loops.h"
