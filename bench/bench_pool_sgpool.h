/* SPDX-License-Identifier: BSD-2-Clause */
/* Our pool as a contender: making and ending it. The forms of get and put differ by file. */
#include <stdio.h>
#include <stdlib.h>

#include "bench_pool.h"
#include "sgpool/sgpool.h"

#ifndef BENCH_POOL_FLAGS
#define BENCH_POOL_FLAGS 0
#endif

struct pool {
	struct sgp_pool *pool;
	size_t size;
	struct ibv_context *verbs;
	struct ibv_pd *pd;
};

static void pool_free(struct pool *p)
{
	if (p->pool && sgp_pool_destroy(p->pool))
		fprintf(stderr, "bench_pool: %s\n", sgp_errmsg());
	if (p->pd)
		ibv_dealloc_pd(p->pd);
	if (p->verbs)
		ibv_close_device(p->verbs);
	free(p);
}

static struct pool *pool_make(size_t size, bool strided)
{
	struct sgp_class_attr cls = {.size = size, .chunks = bench_pool_chunks(size)};
	struct sgp_pool_attr attr = {.classes = &cls, .nclasses = 1, .flags = BENCH_POOL_FLAGS};
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct pool *p = calloc(1, sizeof *p);

	if (strided)
		cls.align = 64;
	else
		cls.align = size < 4096 ? (uint32_t)size : 4096;
	if (!p || !list || !list[0])
		return NULL;
	p->size = size;
	p->verbs = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	p->pd = p->verbs ? ibv_alloc_pd(p->verbs) : NULL;
	p->pool = p->pd ? sgp_pool_create(p->pd, &attr) : NULL;
	if (!p->pool) {
		fprintf(stderr, "bench_pool: no pool: %s\n", sgp_errmsg());
		pool_free(p);
		return NULL;
	}
	return p;
}

static inline void *pool_memory(void *chunk)
{
	return sgp_chunk_addr(chunk);
}

#define POOL_HAS_BULK
static inline void pool_get_bulk(struct pool *p, void **chunks, unsigned int n)
{
	sgp_pool_get_bulk(p->pool, p->size, 0, (struct sgp_chunk **)chunks, n);
}

static inline void pool_put_bulk(struct pool *p, void **chunks, unsigned int n)
{
	(void)p;
	sgp_chunk_put_bulk((struct sgp_chunk **)chunks, n);
}
