/* SPDX-License-Identifier: BSD-2-Clause */
/* UCX's memory pool as a contender, but for get and put. */
#include <pthread.h>
#include <string.h>
#include <ucs/datastruct/mpool.h>

struct pool {
	ucs_mpool_t mpool;
	pthread_spinlock_t lock;
};

static inline void *pool_get(struct pool *p);
static inline void pool_put(struct pool *p, void *chunk);

static inline void *pool_memory(void *chunk)
{
	return chunk;
}

static void pool_free(struct pool *p)
{
	ucs_mpool_cleanup(&p->mpool, 0);
	pthread_spin_destroy(&p->lock);
	free(p);
}

static struct pool *pool_make(size_t size, bool strided)
{
	static ucs_mpool_ops_t ops = {.chunk_alloc = ucs_mpool_chunk_mmap,
				      .chunk_release = ucs_mpool_chunk_munmap};
	struct pool *p = calloc(1, sizeof *p);
	unsigned int n = (unsigned int)bench_pool_chunks(size);

	(void)strided;
	if (!p)
		return NULL;
	pthread_spin_init(&p->lock, PTHREAD_PROCESS_PRIVATE);
	if (ucs_mpool_init(&p->mpool, 0, size, 0, 64, n, n, &ops, "bench") != UCS_OK) {
		bench_missing("ucs_mpool", "ucs_mpool_init failed");
		free(p);
		return NULL;
	}
	ucs_mpool_grow(&p->mpool, n);
	return p;
}
