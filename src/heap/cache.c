/* SPDX-License-Identifier: BSD-2-Clause */
/* jemalloc's explicit caches by thread and heap, see cache.h. */
#include <errno.h>
#include <stdlib.h>

#include "heap/cache.h"
#include "pool/errmsg.h"
#include "pool/thread.h"

static struct sgp_heap_cache nobodys;
__thread struct sgp_heap_self sgp_heap_self = {.last = &nobodys};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t registry = PTHREAD_MUTEX_INITIALIZER;
static pthread_key_t key;
static bool key_valid;

/* Its objects go back to the arena. The registry's lock is held. */
static void kill_cache(struct sgp_heap_cache *cache, struct sgp_heap *heap)
{
	struct sgp_heap_cache **p;

	for (p = &heap->caches; *p != cache; p = &(*p)->next_of_heap)
		;
	*p = cache->next_of_heap;
	if (cache->has_tcache)
		sgp_je_mallctl("tcache.destroy", NULL, NULL, &cache->tcache, sizeof cache->tcache);
	atomic_store_explicit(&cache->heap, NULL, memory_order_relaxed);
}

static void end_thread(void *arg)
{
	struct sgp_heap_self *self = arg;
	struct sgp_heap_cache *cache;
	struct sgp_heap *heap;

	self->ended = true;
	self->last = &nobodys;
	pthread_mutex_lock(&registry);
	while ((cache = self->caches)) {
		self->caches = cache->next_of_thread;
		heap = atomic_load_explicit(&cache->heap, memory_order_relaxed);
		if (heap)
			kill_cache(cache, heap);
		free(cache);
	}
	pthread_mutex_unlock(&registry);
}

/* The child's only thread finds no cache, asks, and is told EPERM. */
static void in_child(void)
{
	sgp_heap_self.last = &nobodys;
}

static void init(void)
{
	key_valid = pthread_key_create(&key, end_thread) == 0;
	pthread_atfork(NULL, NULL, in_child);
}

int sgp_heap_threads_init(void)
{
	pthread_once(&once, init);
	return key_valid ? 0 : sgp_fail(EAGAIN, "no key for the threads' caches");
}

/* The thread's cache of the heap, if it has one. */
static struct sgp_heap_cache *own_cache(const struct sgp_heap *heap)
{
	struct sgp_heap_cache *cache;

	for (cache = sgp_heap_self.caches; cache; cache = cache->next_of_thread)
		if (atomic_load_explicit(&cache->heap, memory_order_relaxed) == heap)
			break;
	return cache;
}

/* A dead one of the thread's, or a new one. */
static struct sgp_heap_cache *spare_cache(void)
{
	struct sgp_heap_self *self = &sgp_heap_self;
	struct sgp_heap_cache *cache = own_cache(NULL);

	if (cache)
		return cache;
	if (!self->caches && pthread_setspecific(key, self))
		return NULL;
	cache = calloc(1, sizeof *cache);
	if (!cache)
		return NULL;
	cache->next_of_thread = self->caches;
	self->caches = cache;
	return cache;
}

static struct sgp_heap_cache *make_cache(struct sgp_heap *heap)
{
	struct sgp_heap_cache *cache = spare_cache();
	size_t size = sizeof cache->tcache;

	if (!cache)
		return NULL;
	/* EAGAIN beyond the limit: such a thread goes to the arena each time. */
	cache->has_tcache = sgp_je_mallctl("tcache.create", &cache->tcache, &size, NULL, 0) == 0;
	cache->flags = MALLOCX_ARENA(heap->arena) |
		       (cache->has_tcache ? MALLOCX_TCACHE(cache->tcache) : MALLOCX_TCACHE_NONE);
	pthread_mutex_lock(&registry);
	cache->next_of_heap = heap->caches;
	heap->caches = cache;
	atomic_store_explicit(&cache->heap, heap, memory_order_relaxed);
	pthread_mutex_unlock(&registry);
	return cache;
}

int sgp_heap_find_flags(struct sgp_heap *heap)
{
	struct sgp_heap_cache *cache = NULL;
	int err = errno;

	if (sgp_check_fork())
		return -1;
	if (!sgp_heap_self.ended) {
		cache = own_cache(heap);
		if (!cache)
			cache = make_cache(heap);
	}
	errno = err;
	if (!cache)
		return MALLOCX_ARENA(heap->arena) | MALLOCX_TCACHE_NONE;
	sgp_heap_self.last = cache;
	return cache->flags;
}

void sgp_heap_cache_flush(struct sgp_heap *heap)
{
	struct sgp_heap_cache *cache = own_cache(heap);

	if (cache && cache->has_tcache)
		sgp_je_mallctl("tcache.flush", NULL, NULL, &cache->tcache, sizeof cache->tcache);
}

void sgp_heap_caches_end(struct sgp_heap *heap)
{
	pthread_mutex_lock(&registry);
	while (heap->caches)
		kill_cache(heap->caches, heap);
	pthread_mutex_unlock(&registry);
}
