/* SPDX-License-Identifier: BSD-2-Clause */
/* The threads that have magazines, see thread.h. */
#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pool/cache.h"
#include "pool/errmsg.h"
#include "pool/thread.h"

/* What sgp_thread.state says. */
enum {
	THREAD_NEW = 0,
	THREAD_ATTACHED,
	THREAD_ENDED
};

struct sgp_thread_block {
	struct sgp_mag *mags[SGP_SLOTS];
	_Alignas(64) struct sgp_mag none; /* where the thread has no magazine: always closed */
	struct sgp_cache *caches;
	struct sgp_cache *dead; /* of pools that are gone: the thread's last_get may point to one */
};

/* Where threads are before they get a block of their own, and after: no magazine is ever open
 * there. */
#define NO_MAG                                                                                     \
	{                                                                                          \
		.state_key = SGP_STATE_KEY(SGP_SLOTS), .floor = SGP_MAG_FLOOR_CLOSED,              \
		.ceil = SGP_MAG_CEIL_CLOSED                                                        \
	}
static struct sgp_mag nobodys = NO_MAG;
static struct sgp_mag *no_mags[SGP_SLOTS];

__thread struct sgp_thread sgp_thread = {
	.mags = no_mags, .last_get = &nobodys, .last_put = &nobodys};

__attribute__((constructor(101))) static void fill_no_mags(void)
{
	for (size_t i = 0; i < SGP_SLOTS; i++)
		no_mags[i] = &nobodys;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_key_t key;
static bool key_valid, have_membarrier;
static bool slot_used[SGP_SLOTS]; /* under lock */

void sgp_thread_leave(void)
{
	sgp_thread.layout = 0;
	sgp_thread.state = THREAD_ENDED;
	sgp_thread.mags = no_mags;
	sgp_thread.last_get = sgp_thread.last_put = &nobodys;
}

/*
 * The thread ends: its chunks go back. What a later destructor gets or puts goes by the centre, so
 * the order of destructors does not matter. In a forked child the chunks are not its own, and the
 * lock may be held by a thread that is not there.
 */
static void end_thread(void *arg)
{
	struct sgp_thread_block *block = arg;
	struct sgp_waiter *served = NULL;
	struct sgp_cache *cache;

	sgp_thread_leave();
	if (sgp_mode_now() & SGP_MODE_FORKED)
		return;
	pthread_mutex_lock(&lock);
	while ((cache = block->caches)) {
		block->caches = cache->next_of_thread;
		sgp_cache_detach(cache, &served);
		free(cache);
	}
	while ((cache = block->dead)) {
		block->dead = cache->next_of_thread;
		free(cache);
	}
	pthread_mutex_unlock(&lock);
	free(block);
	sgp_served_run(served);
}

static void init(void)
{
	key_valid = pthread_key_create(&key, end_thread) == 0;
	sgp_fork_init();
	have_membarrier =
		syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

void sgp_threads_init(void)
{
	pthread_once(&once, init);
}

void sgp_threads_lock(void)
{
	pthread_mutex_lock(&lock);
}

void sgp_threads_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

void sgp_membarrier(void)
{
	syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}

uint16_t sgp_slot_acquire(void)
{
	uint16_t slot = 0, i;

	if (!have_membarrier || !key_valid)
		return 0;
	pthread_mutex_lock(&lock);
	for (i = 1; i < SGP_SLOTS && !slot; i++)
		if (!slot_used[i])
			slot = i;
	slot_used[slot] = true;
	pthread_mutex_unlock(&lock);
	return slot;
}

void sgp_slot_release(uint16_t slot)
{
	pthread_mutex_lock(&lock);
	slot_used[slot] = false;
	pthread_mutex_unlock(&lock);
}

/* The calling thread's block, made at its first need; NULL when it cannot have one. */
static struct sgp_thread_block *own_block(void)
{
	struct sgp_thread_block *block;
	size_t i;

	if (sgp_thread.state == THREAD_ATTACHED)
		return (struct sgp_thread_block *)(void *)sgp_thread.mags;
	if (sgp_thread.state == THREAD_ENDED)
		return NULL;
	block = aligned_alloc(64, sizeof *block);
	if (!block)
		return NULL;
	if (pthread_setspecific(key, block)) {
		free(block);
		return NULL;
	}
	block->none = (struct sgp_mag)NO_MAG;
	block->caches = block->dead = NULL;
	for (i = 0; i < SGP_SLOTS; i++)
		block->mags[i] = &block->none;
	sgp_thread.mags = block->mags;
	sgp_thread.last_get = sgp_thread.last_put = &block->none;
	sgp_thread.state = THREAD_ATTACHED;
	sgp_thread.layout = SGP_LAYOUT;
	return block;
}

/* A dead cache of the thread's that has the right capacity, made fit for the class; or NULL. */
static struct sgp_cache *revive(struct sgp_thread_block *block, struct sgp_class *cls)
{
	struct sgp_cache **p, *cache;

	pthread_mutex_lock(&lock);
	for (p = &block->dead; (cache = *p); p = &cache->next_of_thread) {
		if (cache->capacity == cls->cache_chunks) {
			*p = cache->next_of_thread;
			sgp_cache_init(cache, cls);
			break;
		}
	}
	pthread_mutex_unlock(&lock);
	return cache;
}

struct sgp_cache *sgp_cache_of(struct sgp_class *cls)
{
	struct sgp_thread_block *block;
	struct sgp_cache *cache;
	int err = errno;

	if (cls->slot == 0)
		return NULL;
	block = own_block();
	if (!block) {
		errno = err;
		return NULL;
	}
	if (block->mags[cls->slot] != &block->none)
		return (struct sgp_cache *)(void *)block->mags[cls->slot];
	cache = revive(block, cls);
	if (!cache)
		cache = sgp_cache_make(cls);
	if (cache) {
		pthread_mutex_lock(&lock);
		cache->owner = block;
		cache->next_of_thread = block->caches;
		block->caches = cache;
		sgp_cache_attach(cache);
		pthread_mutex_unlock(&lock);
		block->mags[cls->slot] = &cache->mag;
	}
	errno = err;
	return cache;
}

void sgp_caches_free(struct sgp_class *cls)
{
	struct sgp_cache *cache, **p;

	while ((cache = cls->caches)) {
		cls->caches = cache->next_of_class;
		for (p = &cache->owner->caches; *p != cache; p = &(*p)->next_of_thread)
			;
		*p = cache->next_of_thread;
		cache->owner->mags[cls->slot] = &cache->owner->none;
		sgp_cache_kill(cache);
		cache->next_of_thread = cache->owner->dead;
		cache->owner->dead = cache;
	}
}
