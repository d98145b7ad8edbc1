/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The helper: a thread of a pool that makes chunks before they run out, and gives back what nobody
 * needed for a while. See grow.h.
 *
 * It sleeps on a semaphore, which whoever sees a class below its low water posts, and wakes by
 * itself once per idle time. Growth that fails is tried again at the next wake-up.
 */
#include <errno.h>
#include <signal.h>
#include <time.h>

#include "pool/errmsg.h"
#include "pool/grow.h"
#include "pool/trim.h"

void sgp_want_growth_locked(struct sgp_class *cls)
{
	struct sgp_helper *helper = &cls->pool->helper;

	if (!cls->low_water || !helper->runs ||
	    sgp_centre_avail_locked(cls, SGP_GET_RESERVED) >= cls->low_water)
		return;
	if (!atomic_exchange_explicit(&helper->wanted, true, memory_order_acq_rel))
		sem_post(&helper->wake);
}

/* Chunks that were in the centre all the time since the last call were idle. */
static void shrink(struct sgp_class *cls)
{
	size_t idle, made, keep;

	pthread_mutex_lock(&cls->lock);
	idle = cls->lowest;
	made = cls->made;
	cls->lowest = cls->nfree;
	pthread_mutex_unlock(&cls->lock);
	keep = idle < made ? made - idle : 0;
	if (keep < cls->initial_chunks)
		keep = cls->initial_chunks;
	if (keep < cls->low_water)
		keep = cls->low_water;
	if (keep < made)
		sgp_trim_class(cls, keep);
}

/* Sleep until wanted or until *tick. Returns true when the idle time is over. */
static bool sleep_until(struct sgp_helper *helper, struct timespec *tick)
{
	int ret;

	do {
		ret = helper->idle_ms ? sem_clockwait(&helper->wake, CLOCK_MONOTONIC, tick)
				      : sem_wait(&helper->wake);
	} while (ret && errno == EINTR);
	return ret && errno == ETIMEDOUT;
}

static void next_tick(const struct sgp_helper *helper, struct timespec *tick)
{
	clock_gettime(CLOCK_MONOTONIC, tick);
	tick->tv_sec += helper->idle_ms / 1000;
	tick->tv_nsec += helper->idle_ms % 1000 * 1000000l;
	if (tick->tv_nsec >= 1000000000l) {
		tick->tv_sec++;
		tick->tv_nsec -= 1000000000l;
	}
}

static void *run(void *arg)
{
	struct sgp_pool *pool = arg;
	struct sgp_helper *helper = &pool->helper;
	struct timespec tick;
	uint32_t i;

	next_tick(helper, &tick);
	while (!atomic_load_explicit(&helper->stop, memory_order_acquire)) {
		if (sleep_until(helper, &tick)) {
			for (i = 0; i < pool->nclasses; i++)
				shrink(&pool->classes[i]);
			next_tick(helper, &tick);
		}
		atomic_store_explicit(&helper->wanted, false, memory_order_release);
		sgp_top_up(pool);
	}
	return NULL;
}

/* A thread that takes none of the program's signals. */
static int create_thread(struct sgp_pool *pool)
{
	sigset_t all, before;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&pool->helper.thread, NULL, run, pool);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return err;
}

int sgp_helper_start(struct sgp_pool *pool, uint32_t idle_ms)
{
	bool wanted = idle_ms > 0;
	uint32_t i;
	int err;

	for (i = 0; i < pool->nclasses; i++)
		wanted |= pool->classes[i].low_water > 0;
	if (!wanted)
		return 0;
	pool->helper.idle_ms = idle_ms;
	sem_init(&pool->helper.wake, 0, 1); /* it looks once at the beginning */
	err = create_thread(pool);
	if (err) {
		sem_destroy(&pool->helper.wake);
		return sgp_fail(err, "no thread for the pool's helper");
	}
	pool->helper.runs = true;
	return 0;
}

void sgp_helper_stop(struct sgp_pool *pool)
{
	if (!pool->helper.runs)
		return;
	atomic_store_explicit(&pool->helper.stop, true, memory_order_release);
	sem_post(&pool->helper.wake);
	pthread_join(pool->helper.thread, NULL);
	sem_destroy(&pool->helper.wake);
	pool->helper.runs = false;
}
