/* SPDX-License-Identifier: BSD-2-Clause */
/* Short of chunks: reserves, limits, waits. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "../suite.h"
#include "pool/wait.h"
#include "pool_rig.h"

enum {
	SIZE = 256
};

static struct sgp_pool *reserved_pool(size_t chunks, size_t reserve)
{
	struct sgp_class_attr cls = {.size = SIZE, .chunks = chunks, .reserve = reserve};

	return rig_classes(&cls, 1);
}

static size_t get_all(struct sgp_pool *pool, int flags, struct sgp_chunk *chunk[], size_t most)
{
	size_t n = 0;

	while (n < most && (chunk[n] = sgp_pool_get(pool, SIZE, flags)))
		n++;
	if (n < most)
		ck_assert_int_eq(errno, ENOBUFS);
	return n;
}

/* case 49: 16 chunks, 8 of them reserved for receives: sends stop at 8, receives go on. */
START_TEST(test_reserve)
{
	static const size_t sizes[] = {16, 1024}; /* without caches and with */

	for (int i = 0; i < 2; i++) {
		size_t n = sizes[i], half = n / 2;
		struct sgp_pool *pool = reserved_pool(n, half);
		static struct sgp_chunk *send[1024], *recv[1024];

		ck_assert_uint_eq(get_all(pool, 0, send, n), half);
		ck_assert_ptr_null(sgp_pool_get(pool, SIZE, 0));
		ck_assert_int_eq(errno, ENOBUFS);
		ck_assert_uint_eq(get_all(pool, SGP_GET_RESERVED, recv, n), half);
		/* What a receive gives back is reserved again. */
		sgp_chunk_put(recv[0]);
		ck_assert_ptr_null(sgp_pool_get(pool, SIZE, 0));
		recv[0] = sgp_pool_get(pool, SIZE, SGP_GET_RESERVED);
		ck_assert_ptr_nonnull(recv[0]);
		/* Traffic recovers. */
		sgp_chunk_put_bulk(send, half);
		ck_assert_uint_eq(get_all(pool, 0, send, n), half);
		sgp_chunk_put_bulk(send, half);
		sgp_chunk_put_bulk(recv, half);
		rig_check(pool, 0);
		ck_assert_int_eq(sgp_pool_destroy(pool), 0);
	}
}
END_TEST

START_TEST(test_limits_at_run_time)
{
	struct sgp_pool *pool = rig_pool(SIZE, 1024, 0);
	static struct sgp_chunk *chunk[1024];
	size_t n;

	ck_assert_int_eq(sgp_pool_set_limits(pool, SIZE, 0, 0), -1);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(sgp_pool_set_limits(pool, SIZE, 1025, 0), -1);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(sgp_pool_set_limits(pool, SIZE, 10, 11), -1);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(sgp_pool_set_limits(pool, SIZE + 1, 10, 1), -1);
	ck_assert_int_eq(errno, EMSGSIZE);
	sgp_chunk_put(sgp_pool_get(pool, SIZE, 0)); /* with something in the cache */
	ck_assert_int_eq(sgp_pool_set_limits(pool, SIZE, 100, 20), 0);
	ck_assert_uint_eq(get_all(pool, 0, chunk, 1024), 80);
	ck_assert_uint_eq(get_all(pool, SGP_GET_RESERVED, chunk + 80, 1024), 20);
	rig_check(pool, 100);
	/* Lower, while all are out: they stay with their owners, and none is handed out. */
	ck_assert_int_eq(sgp_pool_set_limits(pool, SIZE, 50, 0), 0);
	sgp_chunk_put_bulk(chunk, 40);
	ck_assert_uint_eq(get_all(pool, 0, chunk, 40), 0);
	sgp_chunk_put_bulk(chunk + 40, 20);
	ck_assert_uint_eq(get_all(pool, 0, chunk, 40), 10);
	/* Higher again. */
	ck_assert_int_eq(sgp_pool_set_limits(pool, SIZE, 1024, 0), 0);
	n = 10 + get_all(pool, 0, chunk + 10, 30);
	ck_assert_uint_eq(n, 40);
	sgp_chunk_put_bulk(chunk, 40);
	sgp_chunk_put_bulk(chunk + 60, 40);
	rig_check(pool, 0);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
}
END_TEST

/* The number of waiters in a class's queues. */
static size_t count_waiters(struct sgp_pool *pool)
{
	struct sgp_class *cls = &pool->classes[0];
	struct sgp_waiter *waiter;
	size_t n = 0;

	pthread_mutex_lock(&cls->lock);
	for (int i = 0; i < 2; i++)
		for (waiter = cls->waiters[i].first; waiter; waiter = waiter->next)
			n++;
	pthread_mutex_unlock(&cls->lock);
	return n;
}

static void await_waiters(struct sgp_pool *pool, size_t n)
{
	while (count_waiters(pool) != n)
		usleep(100);
}

/* A thread that waits for n chunks, notes its place in the order of service, and puts them. */
struct waiting {
	pthread_t thread;
	struct sgp_pool *pool;
	size_t n;
	int flags, place;
	bool keep;
	struct sgp_chunk *chunk[64];
};
static atomic_int places;

static void *wait_run(void *arg)
{
	struct waiting *w = arg;

	ck_assert_int_eq(sgp_pool_get_wait(w->pool, SIZE, w->flags, w->chunk, w->n, -1), 0);
	w->place = atomic_fetch_add(&places, 1);
	if (!w->keep)
		sgp_chunk_put_bulk(w->chunk, w->n);
	return NULL;
}

static void wait_start(struct waiting *w, struct sgp_pool *pool, size_t n, int flags)
{
	size_t before = count_waiters(pool);

	w->pool = pool;
	w->n = n;
	w->flags = flags;
	ck_assert_int_eq(pthread_create(&w->thread, NULL, wait_run, w), 0);
	await_waiters(pool, before + 1);
}

START_TEST(test_waits_are_served_in_order)
{
	static const size_t sizes[] = {16, 64};

	for (int s = 0; s < 2; s++) {
		struct sgp_pool *pool = rig_pool(SIZE, sizes[s], 0);
		struct waiting w[4] = {{.keep = true}, {.keep = true}, {.keep = true}, {0}};
		struct sgp_chunk *chunk[64];
		size_t n = sizes[s];

		places = 0;
		ck_assert_int_eq(sgp_pool_get_bulk(pool, SIZE, 0, chunk, n), 0);
		wait_start(&w[0], pool, 8, 0);
		wait_start(&w[1], pool, 1, 0); /* wants less, is later */
		wait_start(&w[2], pool, 2, 0);
		wait_start(&w[3], pool, 1, SGP_GET_RESERVED); /* goes first */
		sgp_chunk_put(chunk[0]);
		pthread_join(w[3].thread, NULL); /* it put its chunk, too: one is free */
		await_waiters(pool, 3);
		for (int i = 1; i < 7; i++)
			sgp_chunk_put(chunk[i]);
		/* Nobody overtakes, waiting or not. */
		ck_assert_uint_eq(count_waiters(pool), 3);
		ck_assert_ptr_null(sgp_pool_get(pool, SIZE, 0));
		ck_assert_int_eq(errno, ENOBUFS);
		sgp_chunk_put(chunk[7]);
		pthread_join(w[0].thread, NULL);
		ck_assert_uint_eq(count_waiters(pool), 2);
		sgp_chunk_put_bulk(w[0].chunk, 8); /* in bulk: both at once */
		pthread_join(w[1].thread, NULL);
		pthread_join(w[2].thread, NULL);
		ck_assert_int_eq(w[3].place, 0);
		ck_assert_int_eq(w[0].place, 1);
		sgp_chunk_put_bulk(w[1].chunk, 1);
		sgp_chunk_put_bulk(w[2].chunk, 2);
		sgp_chunk_put_bulk(chunk + 8, n - 8);
		rig_check(pool, 0);
		ck_assert_int_eq(sgp_pool_destroy(pool), 0);
	}
}
END_TEST

START_TEST(test_wait_ends_in_time)
{
	struct sgp_pool *pool = rig_pool(SIZE, 2, 0);
	struct sgp_chunk *chunk[3], *one;
	struct timespec before, after;
	struct waiting w = {0};
	int64_t ms;

	ck_assert_int_eq(sgp_pool_get_wait(pool, SIZE, 0, chunk, 3, 1), -1);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(sgp_pool_get_wait(pool, SIZE + 1, 0, chunk, 1, 1), -1);
	ck_assert_int_eq(errno, EMSGSIZE);
	ck_assert_int_eq(sgp_pool_get_wait(pool, SIZE, 1 << 20, chunk, 1, 1), -1);
	ck_assert_int_eq(errno, EINVAL);
	one = sgp_pool_get(pool, SIZE, 0);
	clock_gettime(CLOCK_MONOTONIC, &before);
	ck_assert_int_eq(sgp_pool_get_wait(pool, SIZE, 0, chunk, 2, 50), -1);
	ck_assert_int_eq(errno, ETIMEDOUT);
	clock_gettime(CLOCK_MONOTONIC, &after);
	ms = (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000;
	ck_assert_int_ge(ms, 49);
	ck_assert_int_eq(sgp_pool_get_wait(pool, SIZE, 0, chunk, 2, 0), -1);
	ck_assert_int_eq(errno, ETIMEDOUT);
	/* The one behind it wants only what is there: served when the first gives up. */
	ck_assert_int_eq(sgp_pool_get_wait(pool, SIZE, 0, chunk, 1, 1000), 0);
	wait_start(&w, pool, 1, 0);
	ck_assert_int_eq(sgp_pool_get_wait(pool, SIZE, 0, chunk + 1, 1, 10), -1);
	ck_assert_int_eq(errno, ETIMEDOUT);
	sgp_chunk_put(chunk[0]);
	pthread_join(w.thread, NULL);
	sgp_chunk_put(one);
	rig_check(pool, 0);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
}
END_TEST

/* Everything that is free lies in the cache of a thread that sleeps. */
static sem_t sleeper_has, sleeper_end;

static void *hoard(void *arg)
{
	struct sgp_chunk *chunk = sgp_pool_get(arg, SIZE, 0);

	ck_assert_ptr_nonnull(chunk);
	sgp_chunk_put(chunk);
	sem_post(&sleeper_has);
	sem_wait(&sleeper_end);
	return NULL;
}

START_TEST(test_wait_finds_what_sleeps_in_a_cache)
{
	struct sgp_pool *pool = rig_pool(SIZE, 1024, 0);
	struct sgp_chunk *chunk[1024];
	struct sgp_class_stats stats;
	pthread_t thread;

	sem_init(&sleeper_has, 0, 0);
	sem_init(&sleeper_end, 0, 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, hoard, pool), 0);
	sem_wait(&sleeper_has);
	ck_assert_int_eq(sgp_pool_class_stats(pool, 0, &stats), 0);
	ck_assert(stats.cached > 0 || pool->watch);
	ck_assert_int_eq(sgp_pool_get_wait(pool, SIZE, 0, chunk, 1024, -1), 0);
	sgp_chunk_put_bulk(chunk, 1024);
	sem_post(&sleeper_end);
	pthread_join(thread, NULL);
	rig_check(pool, 0);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
}
END_TEST

/* Many wait for several chunks each, more than there are: all get theirs, since nobody holds a
 * part. */
static void *wants_several(void *arg)
{
	struct sgp_chunk *chunk[24];

	for (int i = 0; i < 200; i++) {
		size_t n = 1 + (size_t)i * 7 % 24;

		ck_assert_int_eq(sgp_pool_get_wait(arg, SIZE, 0, chunk, n, -1), 0);
		sgp_chunk_put_bulk(chunk, n);
	}
	return NULL;
}

START_TEST(test_several_at_once_without_deadlock)
{
	static const size_t sizes[] = {24, 64};

	for (int s = 0; s < 2; s++) {
		struct sgp_pool *pool = rig_pool(SIZE, sizes[s], 0);
		struct sgp_class_stats stats;
		pthread_t thread[6];

		for (int i = 0; i < 6; i++)
			ck_assert_int_eq(pthread_create(&thread[i], NULL, wants_several, pool), 0);
		for (int i = 0; i < 6; i++)
			pthread_join(thread[i], NULL);
		rig_check(pool, 0);
		ck_assert_int_eq(sgp_pool_class_stats(pool, 0, &stats), 0);
		ck_assert_uint_le(stats.peak, sizes[s]);
		ck_assert_int_eq(sgp_pool_destroy(pool), 0);
	}
}
END_TEST

/* Waiters that are called. */
struct called {
	struct sgp_waiter waiter;
	struct sgp_chunk *chunk[4];
	int calls;
};

static void ready(struct sgp_waiter *waiter)
{
	((struct called *)(void *)waiter)->calls++;
}

/* One that uses the pool from within. */
static void ready_and_puts(struct sgp_waiter *waiter)
{
	ready(waiter);
	sgp_chunk_put_bulk(waiter->chunks, waiter->n);
}

static void called_init(struct called *called, size_t n, void (*fn)(struct sgp_waiter *))
{
	*called = (struct called){.waiter = {.ready = fn, .n = n}};
	called->waiter.chunks = called->chunk;
}

START_TEST(test_asynchronous_waiters)
{
	struct sgp_pool *pool = rig_pool(SIZE, 4, 0);
	struct sgp_chunk *chunk[4];
	struct called a, b, c;

	called_init(&a, 2, ready);
	ck_assert_int_eq(sgp_waiter_start(&a.waiter, pool, SIZE, 0), 1);
	ck_assert_int_eq(a.calls, 0);
	ck_assert_int_eq(sgp_waiter_cancel(&a.waiter), 0);
	sgp_chunk_put_bulk(a.chunk, 2);

	ck_assert_int_eq(sgp_pool_get_bulk(pool, SIZE, 0, chunk, 4), 0);
	called_init(&a, 2, ready_and_puts);
	called_init(&b, 1, ready);
	called_init(&c, 1, ready);
	ck_assert_int_eq(sgp_waiter_start(&a.waiter, pool, SIZE, 0), 0);
	ck_assert_int_eq(sgp_waiter_start(&b.waiter, pool, SIZE, 0), 0);
	ck_assert_int_eq(sgp_waiter_start(&c.waiter, pool, SIZE, 0), 0);
	ck_assert_int_eq(sgp_pool_destroy(pool), -1);
	ck_assert_int_eq(errno, EBUSY);
	sgp_chunk_put(chunk[0]);
	ck_assert_int_eq(a.calls + b.calls + c.calls, 0);
	ck_assert_int_eq(sgp_waiter_cancel(&b.waiter), 1);
	ck_assert_int_eq(sgp_waiter_cancel(&b.waiter), 0);
	sgp_chunk_put(chunk[1]); /* serves a, whose puts serve c */
	ck_assert_int_eq(a.calls, 1);
	ck_assert_int_eq(b.calls, 0);
	ck_assert_int_eq(c.calls, 1);
	ck_assert_int_eq(sgp_waiter_cancel(&c.waiter), 0);
	rig_check(pool, 3);
	/* One that is taken back lets those behind it go on. */
	called_init(&a, 4, ready);
	ck_assert_int_eq(sgp_waiter_start(&a.waiter, pool, SIZE, 0), 0);
	called_init(&b, 1, ready);
	ck_assert_int_eq(sgp_waiter_start(&b.waiter, pool, SIZE, 0), 0);
	ck_assert_int_eq(b.calls, 0);
	ck_assert_int_eq(sgp_waiter_cancel(&a.waiter), 1);
	ck_assert_int_eq(b.calls, 1);
	/* Destroying a pool with somebody waiting is EBUSY even when no chunk is out. */
	sgp_chunk_put(b.chunk[0]);
	sgp_chunk_put(c.chunk[0]);
	sgp_chunk_put_bulk(chunk + 2, 2);
	rig_check(pool, 0);
	ck_assert_int_eq(sgp_waiter_start(&(struct sgp_waiter){.n = 1}, pool, SIZE, 0), -1);
	ck_assert_int_eq(errno, EINVAL);
	called_init(&a, 5, ready);
	ck_assert_int_eq(sgp_waiter_start(&a.waiter, pool, SIZE, 0), -1);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
}
END_TEST

/* Raised limits and growth serve as well as puts do. */
START_TEST(test_waiters_and_limits_and_growth)
{
	struct sgp_pool *pool = rig_pool(SIZE, 4, 8);
	struct sgp_chunk *chunk[4];
	struct called a, b;

	ck_assert_int_eq(sgp_pool_set_limits(pool, SIZE, 3, 0), 0);
	ck_assert_int_eq(sgp_pool_get_bulk(pool, SIZE, 0, chunk, 3), 0);
	called_init(&a, 1, ready);
	ck_assert_int_eq(sgp_waiter_start(&a.waiter, pool, SIZE, 0), 0);
	ck_assert_int_eq(sgp_pool_set_limits(pool, SIZE, 8, 0), 0);
	ck_assert_int_eq(a.calls, 1);
	called_init(&b, 2, ready);
	ck_assert_int_eq(sgp_waiter_start(&b.waiter, pool, SIZE, 0), 0);
	ck_assert_int_eq(sgp_pool_grow(pool, SIZE, 2), 0);
	ck_assert_int_eq(b.calls, 1);
	sgp_chunk_put_bulk(chunk, 3);
	sgp_chunk_put_bulk(a.chunk, 1);
	sgp_chunk_put_bulk(b.chunk, 2);
	rig_check(pool, 0);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
}
END_TEST

/* A thread's end serves who waits for what was in its cache. */
static sem_t puts_now;

static void *puts_and_dies(void *arg)
{
	sem_wait(&puts_now);
	sgp_chunk_put(arg);
	return NULL;
}

START_TEST(test_a_threads_end_serves)
{
	struct sgp_pool *pool = rig_pool(SIZE, 64, 0);
	struct sgp_chunk *chunk[64];
	pthread_t thread;
	struct called a;

	sem_init(&puts_now, 0, 0);
	ck_assert_int_eq(sgp_pool_get_bulk(pool, SIZE, 0, chunk, 64), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, puts_and_dies, chunk[63]), 0);
	called_init(&a, 1, ready);
	ck_assert_int_eq(sgp_waiter_start(&a.waiter, pool, SIZE, 0), 0);
	sem_post(&puts_now);
	pthread_join(thread, NULL);
	ck_assert_int_eq(a.calls, 1);
	sgp_chunk_put_bulk(a.chunk, 1);
	sgp_chunk_put_bulk(chunk, 63);
	rig_check(pool, 0);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pool wait");
	TCase *tc = tcase_create("wait");

	tcase_add_checked_fixture(tc, rig_setup, rig_teardown);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, test_reserve);
	tcase_add_test(tc, test_limits_at_run_time);
	tcase_add_test(tc, test_waits_are_served_in_order);
	tcase_add_test(tc, test_wait_ends_in_time);
	tcase_add_test(tc, test_wait_finds_what_sleeps_in_a_cache);
	tcase_add_test(tc, test_several_at_once_without_deadlock);
	tcase_add_test(tc, test_asynchronous_waiters);
	tcase_add_test(tc, test_waiters_and_limits_and_growth);
	tcase_add_test(tc, test_a_threads_end_serves);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
