/* SPDX-License-Identifier: BSD-2-Clause */
/* Those who wait for chunks, see wait.h. */
#define SGP_NO_INLINE
#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "pool/errmsg.h"
#include "pool/get.h"
#include "pool/pool.h"
#include "pool/probe.h"
#include "pool/served.h"
#include "pool/watch.h"

/* A waiter's state. */
enum {
	WAITER_IDLE = 0,
	WAITER_QUEUED,
	WAITER_SERVED
};

/* How long to give a thread that was preempted inside its magazine, before looking again. */
#define SETTLE_NS 50000

void sgp_waiters_init(struct sgp_class *cls)
{
	for (int i = 0; i < 2; i++)
		cls->waiters[i] = (struct sgp_waiter_queue){.last = &cls->waiters[i].first};
}

static struct sgp_waiter_queue *queue_of(struct sgp_waiter *waiter)
{
	return &waiter->cls->waiters[waiter->flags & SGP_GET_RESERVED ? 1 : 0];
}

static void enqueue(struct sgp_waiter *waiter)
{
	struct sgp_waiter_queue *queue = queue_of(waiter);

	waiter->state = WAITER_QUEUED;
	waiter->next = NULL;
	*queue->last = waiter;
	queue->last = &waiter->next;
}

static void dequeue(struct sgp_waiter *waiter)
{
	struct sgp_waiter_queue *queue = queue_of(waiter);
	struct sgp_waiter **p = &queue->first;

	while (*p != waiter)
		p = &(*p)->next;
	*p = waiter->next;
	if (queue->last == &waiter->next)
		queue->last = p;
}

void sgp_serve_locked(struct sgp_class *cls, struct sgp_waiter **served)
{
	for (int i = 1; i >= 0; i--) {
		struct sgp_waiter *waiter;

		while ((waiter = cls->waiters[i].first) &&
		       sgp_centre_avail_locked(cls, waiter->flags) >= waiter->n) {
			sgp_centre_get_locked(cls, waiter->chunks, waiter->n, waiter->flags);
			dequeue(waiter);
			waiter->state = WAITER_SERVED;
			if (waiter->cond) {
				pthread_cond_signal(waiter->cond);
			} else {
				waiter->next = *served;
				*served = waiter;
			}
		}
		if (waiter)
			return; /* the ordinary ones do not overtake */
	}
}

_Thread_local struct sgp_served sgp_served;

static void call_ready(struct sgp_waiter *waiter)
{
	sgp_watch_got(waiter->cls->pool, waiter->chunks, waiter->n);
	waiter->ready(waiter);
}

static void keep_back(struct sgp_waiter *waiter)
{
	waiter->next = NULL;
	if (sgp_served.first)
		sgp_served.last->next = waiter;
	else
		sgp_served.first = waiter;
	sgp_served.last = waiter;
}

void sgp_served_run_kept(void)
{
	struct sgp_waiter *waiter;
	int err = errno;

	while ((waiter = sgp_served.first)) {
		sgp_served.first = waiter->next;
		call_ready(waiter);
	}
	errno = err;
}

void sgp_served_run(struct sgp_waiter *served)
{
	struct sgp_waiter *waiter, *in_order = NULL;

	while ((waiter = served)) {
		served = waiter->next;
		waiter->next = in_order;
		in_order = waiter;
	}
	while ((waiter = in_order)) {
		in_order = waiter->next;
		if (sgp_served.held)
			keep_back(waiter);
		else
			call_ready(waiter);
	}
}

/*
 * Queue up, and see to it that no chunk sleeps in a cache: with the caches closed, each put from
 * now on comes to the centre. A thread that was inside its magazine meanwhile is waited for; it is
 * out again as soon as it runs.
 *
 * The class's lock is held, and given up in between.
 */
static void queue_locked(struct sgp_waiter *waiter, struct sgp_waiter **served)
{
	static const struct timespec a_moment = {.tv_nsec = SETTLE_NS};
	struct sgp_class *cls = waiter->cls;

	enqueue(waiter);
	sgp_count(&cls->count.waits);
	SGP_PROBE3(wait, cls->pool, cls->cut.size, waiter->n);
	cls->pressure = true;
	sgp_reclaim_locked(cls);
	sgp_serve_locked(cls, served);
	while (waiter->state == WAITER_QUEUED && cls->unsettled) {
		pthread_mutex_unlock(&cls->lock);
		nanosleep(&a_moment, NULL);
		pthread_mutex_lock(&cls->lock);
		sgp_reclaim_locked(cls);
		sgp_serve_locked(cls, served);
	}
}

static struct timespec deadline(int timeout_ms)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	now.tv_sec += timeout_ms / 1000;
	now.tv_nsec += timeout_ms % 1000 * 1000000l;
	if (now.tv_nsec >= 1000000000l) {
		now.tv_sec++;
		now.tv_nsec -= 1000000000l;
	}
	return now;
}

/* Sleep until served or too late; true when served. */
static bool sleep_locked(struct sgp_waiter *waiter, int timeout_ms, const struct timespec *end)
{
	struct sgp_class *cls = waiter->cls;
	int err = 0;

	while (waiter->state == WAITER_QUEUED && err != ETIMEDOUT) {
		if (timeout_ms < 0)
			pthread_cond_wait(waiter->cond, &cls->lock);
		else
			err = pthread_cond_timedwait(waiter->cond, &cls->lock, end);
	}
	return waiter->state == WAITER_SERVED;
}

static int check_wait(const struct sgp_class *cls, size_t n, int flags)
{
	size_t most = cls->max_chunks;

	if (flags & ~SGP_GET_FLAGS)
		return sgp_fail(EINVAL, "flags 0x%x of a get", (unsigned int)flags);
	if (n == 0 || n > most)
		return sgp_fail(EINVAL, "waiting for %zu chunks of a class of at most %zu", n,
				most);
	return 0;
}

int sgp_pool_get_wait(struct sgp_pool *pool, size_t size, int flags, struct sgp_chunk *chunks[],
		      size_t n, int timeout_ms)
{
	struct timespec end = deadline(timeout_ms);
	struct sgp_waiter *served = NULL;
	struct sgp_waiter waiter;
	pthread_condattr_t monotonic;
	struct sgp_class *cls;
	pthread_cond_t cond;
	bool got;

	if (sgp_pool_get_bulk(pool, size, flags, chunks, n) == 0)
		return 0;
	if (errno != ENOBUFS)
		return -1;
	cls = sgp_pool_class(pool, size);
	if (check_wait(cls, n, flags))
		return -1;
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&cond, &monotonic);
	pthread_condattr_destroy(&monotonic);
	waiter = (struct sgp_waiter){
		.chunks = chunks, .n = n, .cls = cls, .flags = flags, .cond = &cond};
	pthread_mutex_lock(&cls->lock);
	queue_locked(&waiter, &served);
	got = sleep_locked(&waiter, timeout_ms, &end);
	if (!got) {
		dequeue(&waiter);
		/* Somebody behind may want less. */
		sgp_serve_locked(cls, &served);
	}
	pthread_mutex_unlock(&cls->lock);
	pthread_cond_destroy(&cond);
	sgp_served_run(served);
	if (!got)
		return sgp_fail(ETIMEDOUT, "%zu chunk%s of %u bytes did not come free within %d ms",
				n, n == 1 ? "" : "s", cls->cut.size, timeout_ms);
	sgp_watch_got(pool, chunks, n);
	return 0;
}

int sgp_waiter_start(struct sgp_waiter *waiter, struct sgp_pool *pool, size_t size, int flags)
{
	struct sgp_waiter *served = NULL, **p;
	struct sgp_class *cls;
	bool got;

	if (!waiter->ready || !waiter->chunks)
		return sgp_fail(EINVAL, "a waiter without ready or chunks");
	if (sgp_pool_get_bulk(pool, size, flags, waiter->chunks, waiter->n) == 0)
		return 1;
	if (errno != ENOBUFS)
		return -1;
	cls = sgp_pool_class(pool, size);
	if (check_wait(cls, waiter->n, flags))
		return -1;
	waiter->cls = cls;
	waiter->flags = flags;
	waiter->cond = NULL;
	pthread_mutex_lock(&cls->lock);
	queue_locked(waiter, &served);
	/* Served at once: told by the return value, not by ready(). */
	for (p = &served; *p && *p != waiter; p = &(*p)->next)
		;
	got = *p == waiter;
	if (got)
		*p = waiter->next;
	pthread_mutex_unlock(&cls->lock);
	if (got)
		sgp_watch_got(pool, waiter->chunks, waiter->n);
	sgp_served_run(served);
	return got;
}

int sgp_waiter_cancel(struct sgp_waiter *waiter)
{
	struct sgp_class *cls = waiter->cls;
	struct sgp_waiter *served = NULL;
	bool queued;

	if (!cls || sgp_check_fork())
		return 0;
	pthread_mutex_lock(&cls->lock);
	queued = waiter->state == WAITER_QUEUED;
	if (queued) {
		dequeue(waiter);
		waiter->state = WAITER_IDLE;
		sgp_serve_locked(cls, &served);
	}
	pthread_mutex_unlock(&cls->lock);
	sgp_served_run(served);
	return queued;
}
