/* SPDX-License-Identifier: BSD-2-Clause */
/* The pool among threads: caches, their reclaim, thread exit. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../suite.h"
#include "other_layout.h"
#include "pool/cache.h"
#include "pool_rig.h"

enum {
	SIZE = 256,
	MANY = 1024
};

static uint64_t cached(struct sgp_pool *pool)
{
	struct sgp_pool_stats stats;

	ck_assert_int_eq(sgp_pool_stats(pool, &stats), 0);
	return stats.cached;
}

/* A thread that does one thing, then sleeps until it may end. */
struct sleeper {
	pthread_t thread;
	struct sgp_pool *pool;
	struct sgp_chunk *chunk[MANY];
	size_t n;
	void (*act)(struct sleeper *);
	sem_t acted, end;
};

static void *sleeper_run(void *arg)
{
	struct sleeper *sleeper = arg;

	sleeper->act(sleeper);
	sem_post(&sleeper->acted);
	sem_wait(&sleeper->end);
	return NULL;
}

static void sleeper_start(struct sleeper *sleeper, struct sgp_pool *pool,
			  void (*act)(struct sleeper *))
{
	sleeper->pool = pool;
	sleeper->act = act;
	sem_init(&sleeper->acted, 0, 0);
	sem_init(&sleeper->end, 0, 0);
	ck_assert_int_eq(pthread_create(&sleeper->thread, NULL, sleeper_run, sleeper), 0);
	sem_wait(&sleeper->acted);
}

static void sleeper_end(struct sleeper *sleeper)
{
	sem_post(&sleeper->end);
	pthread_join(sleeper->thread, NULL);
}

static void get_and_put(struct sleeper *sleeper)
{
	struct sgp_chunk *chunk = sgp_pool_get(sleeper->pool, SIZE, 0);

	ck_assert_ptr_nonnull(chunk);
	sgp_chunk_put(chunk);
}

static void put_only(struct sleeper *sleeper)
{
	for (size_t i = 0; i < sleeper->n; i++)
		sgp_chunk_put(sleeper->chunk[i]);
}

/* Every free chunk can be had, though idle threads have some in their caches. */
START_TEST(test_idle_threads_give_their_chunks)
{
	struct sgp_pool *pool = rig_pool(SIZE, MANY, 0);
	static struct sleeper sleeper[3];
	struct sgp_chunk *chunk[MANY];

	for (int i = 0; i < 3; i++)
		sleeper_start(&sleeper[i], pool, get_and_put);
	ck_assert_uint_gt(cached(pool), 0);
	rig_check(pool, 0);
	for (int i = 0; i < MANY; i++) {
		chunk[i] = sgp_pool_get(pool, SIZE, 0);
		ck_assert_ptr_nonnull(chunk[i]);
	}
	ck_assert_ptr_null(sgp_pool_get(pool, SIZE, 0));
	ck_assert_int_eq(errno, ENOBUFS);
	ck_assert_uint_eq(cached(pool), 0);
	rig_check(pool, MANY);
	sgp_chunk_put_bulk(chunk, MANY);
	rig_check(pool, 0);
	/* In bulk too. */
	for (int i = 0; i < 3; i++)
		sleeper_end(&sleeper[i]);
	sleeper_start(&sleeper[0], pool, get_and_put);
	ck_assert_int_eq(sgp_pool_get_bulk(pool, SIZE, 0, chunk, MANY), 0);
	rig_check(pool, MANY);
	sgp_chunk_put_bulk(chunk, MANY);
	sleeper_end(&sleeper[0]);
	rig_check(pool, 0);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
}
END_TEST

START_TEST(test_a_thread_that_only_puts)
{
	struct sgp_pool *pool = rig_pool(SIZE, MANY, 0);
	static struct sleeper sleeper;

	sleeper.n = 100;
	ck_assert_int_eq(sgp_pool_get_bulk(pool, SIZE, 0, sleeper.chunk, 100), 0);
	sleeper_start(&sleeper, pool, put_only);
	rig_check(pool, 0);
	ck_assert_uint_gt(cached(pool), 0);
	sleeper_end(&sleeper);
	rig_check(pool, 0);
	/* Only this thread's cache is left. */
	ck_assert_ptr_nonnull(pool->classes[0].caches);
	ck_assert_ptr_null(pool->classes[0].caches->next_of_class);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
}
END_TEST

/* Destructors of other keys run before and after the library's, and use the pool. */
static struct sgp_pool *late_pool;
static int late_runs;

static void late(void *arg)
{
	struct sgp_chunk *chunk = sgp_pool_get(late_pool, SIZE, 0);

	ck_assert_ptr_nonnull(chunk);
	sgp_chunk_put(arg);
	sgp_chunk_put(chunk);
	late_runs++;
}

static void *dies_late(void *arg)
{
	pthread_key_t *key = arg;

	for (int i = 0; i < 20; i++)
		ck_assert_int_eq(pthread_setspecific(key[i], sgp_pool_get(late_pool, SIZE, 0)), 0);
	return NULL;
}

START_TEST(test_thread_exit_in_any_order)
{
	pthread_key_t key[20];
	pthread_t thread;

	for (int i = 0; i < 10; i++) /* the library makes its key with the first pool */
		ck_assert_int_eq(pthread_key_create(&key[i], late), 0);
	late_pool = rig_pool(SIZE, MANY, 0);
	for (int i = 10; i < 20; i++)
		ck_assert_int_eq(pthread_key_create(&key[i], late), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, dies_late, key), 0);
	pthread_join(thread, NULL);
	ck_assert_int_eq(late_runs, 20);
	rig_check(late_pool, 0);
	ck_assert_ptr_null(late_pool->classes[0].caches);
	ck_assert_int_eq(sgp_pool_destroy(late_pool), 0);
}
END_TEST

/* A pool may go before the threads that have used it do, and another one take its place. */
START_TEST(test_threads_outlive_pools)
{
	static struct sleeper sleeper[2];
	struct sgp_pool *pool = rig_pool(SIZE, MANY, 0);
	uint16_t slot = pool->classes[0].slot;

	ck_assert_uint_gt(slot, 0);
	get_and_put(&(struct sleeper){.pool = pool});
	sleeper_start(&sleeper[0], pool, get_and_put);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
	pool = rig_pool(SIZE, MANY, 0);
	ck_assert_uint_eq(pool->classes[0].slot, slot);
	get_and_put(&(struct sleeper){.pool = pool});
	sleeper_start(&sleeper[1], pool, get_and_put);
	rig_check(pool, 0);
	sleeper_end(&sleeper[0]);
	sleeper_end(&sleeper[1]);
	rig_check(pool, 0);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
}
END_TEST

/* A program compiled with another layout takes the calls, and works. */
START_TEST(test_another_layout)
{
	struct sgp_pool *pool = rig_pool(SIZE, MANY, 0);
	struct sgp_chunk *chunk;

	ck_assert_int_ne(other_layout(), SGP_LAYOUT);
	get_and_put(&(struct sleeper){.pool = pool});
	for (int i = 0; i < MANY; i++) {
		ck_assert(!other_layout_serves(pool, SIZE));
		chunk = other_layout_get(pool, SIZE);
		ck_assert_ptr_nonnull(chunk);
		ck_assert_ptr_eq(other_layout_addr(chunk), sgp_chunk_addr(chunk));
		memset(other_layout_addr(chunk), 1, SIZE);
		ck_assert(!other_layout_takes(chunk));
		other_layout_put(chunk);
		/* Neither of the two is in the other's way. */
		chunk = sgp_pool_get(pool, SIZE - 1, 0);
		ck_assert_ptr_nonnull(chunk);
		ck_assert(!other_layout_takes(chunk));
		sgp_chunk_put(chunk);
	}
	rig_check(pool, 0);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
}
END_TEST

/* A marked chunk, for which the mark's number and the layout's make up for each other, if they can. */
START_TEST(test_another_layout_and_a_mark)
{
	struct sgp_pool *pool = rig_pool(SIZE, MANY, 0);
	struct sgp_chunk *plain, *marked;

	ck_assert_int_eq(other_layout(), SGP_LAYOUT - 1);
	ck_assert_int_eq(sgp_pool_set_limits(pool, SIZE, MANY, 1), 0);
	plain = sgp_pool_get(pool, SIZE, 0);
	marked = sgp_pool_get(pool, SIZE, SGP_GET_RESERVED);
	ck_assert(plain && marked && marked->mark == 1);
	sgp_chunk_put(plain);
	ck_assert(!other_layout_takes(marked));
	other_layout_put(marked);
	rig_check(pool, 0);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
}
END_TEST

/* More classes than there are indices of magazines: the last ones do without. */
START_TEST(test_more_classes_than_slots)
{
	enum {
		POOLS = 5,
		CLASSES = 500
	};
	static struct sgp_class_attr cls[CLASSES];
	struct sgp_pool_attr attr = {.classes = cls, .nclasses = CLASSES, .pages = SGP_PAGES_BASE};
	struct sgp_pool *pool[POOLS];
	struct sgp_chunk *chunk;

	for (int i = 0; i < CLASSES; i++)
		cls[i] = (struct sgp_class_attr){.size = 64 + i, .max_chunks = 32};
	for (int i = 0; i < POOLS; i++) {
		pool[i] = sgp_pool_create(rig_pd, &attr);
		ck_assert_msg(pool[i] != NULL, "%s", sgp_errmsg());
	}
	ck_assert_uint_eq(pool[POOLS - 1]->classes[CLASSES - 1].slot, 0);
	for (int i = 0; i < POOLS; i++) {
		for (size_t k = 64; k < 64 + CLASSES; k += 50) {
			chunk = sgp_pool_get(pool[i], k, SGP_MAY_GROW);
			ck_assert_ptr_nonnull(chunk);
			ck_assert_uint_eq(sgp_chunk_size(chunk), k);
			sgp_chunk_put(chunk);
		}
		rig_check(pool[i], 0);
	}
	for (int i = 0; i < POOLS; i++)
		ck_assert_int_eq(sgp_pool_destroy(pool[i]), 0);
	ck_assert_uint_gt(sgp_slot_acquire(), 0); /* they came back */
	sgp_slot_release(1);
}
END_TEST

/*
 * Stress: threads that get and put all the time, threads that sleep with full caches, and a thread
 * that wants everything, now and then. Each chunk's memory says whether somebody has it, so that
 * one handed out twice is seen at once; the count at the end is exact.
 */
struct stress {
	struct sgp_pool *pool;
	atomic_bool stop;
	_Atomic uint64_t stolen, got;
};

static void own(struct sgp_chunk *chunk)
{
	_Atomic uint32_t *owned = sgp_chunk_addr(chunk);

	ck_assert_uint_ne(atomic_exchange_explicit(owned, 1, memory_order_relaxed), 1);
}

static void disown(struct sgp_chunk *chunk)
{
	_Atomic uint32_t *owned = sgp_chunk_addr(chunk);

	ck_assert_uint_eq(atomic_exchange_explicit(owned, 0, memory_order_relaxed), 1);
}

static void *stress_worker(void *arg)
{
	struct stress *stress = arg;
	struct sgp_chunk *chunk[40];
	unsigned int seed = (unsigned int)(uintptr_t)&chunk;
	int n = 0;

	while (!stress->stop) {
		unsigned int r = (unsigned int)rand_r(&seed);

		if (n < 40 && r & 1) {
			chunk[n] = sgp_pool_get(stress->pool, SIZE, 0);
			if (chunk[n]) {
				own(chunk[n++]);
				stress->got++;
			}
		} else if (n > 0) {
			disown(chunk[--n]);
			sgp_chunk_put(chunk[n]);
		}
		if ((r >> 8) % 4096 == 0)
			usleep(1000); /* idle, with what is in the cache */
	}
	while (n > 0) {
		disown(chunk[--n]);
		sgp_chunk_put(chunk[n]);
	}
	return NULL;
}

/* All that there is, until it is had; so the idle threads' caches are emptied over and over. */
static void *stress_thief(void *arg)
{
	struct stress *stress = arg;
	struct sgp_chunk *chunk[64];
	size_t n = 0;

	while (!stress->stop) {
		while (n < 64 && (chunk[n] = sgp_pool_get(stress->pool, SIZE, 0)))
			own(chunk[n++]);
		stress->stolen += n;
		while (n > 0) {
			disown(chunk[--n]);
			sgp_chunk_put(chunk[n]);
		}
	}
	return NULL;
}

START_TEST(test_stress_of_reclaim)
{
	struct stress stress = {.pool = rig_pool(SIZE, 128, 0)};
	struct sgp_class_stats stats;
	struct sgp_chunk *chunk[128];
	pthread_t thread[6];

	for (int i = 0; i < 6; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL,
						i < 4 ? stress_worker : stress_thief, &stress),
				 0);
	memset(&stats, 0, sizeof stats);
	/* On a busy machine until each kind has had its turn; the test's time limit ends it. */
	for (int i = 0; i < 20 || !stress.got || !stress.stolen || !stats.reclaims; i++) {
		usleep(50000);
		if (sgp_pool_get_wait(stress.pool, SIZE, 0, chunk, 32, 2000) == 0) {
			for (int k = 0; k < 32; k++)
				own(chunk[k]);
			for (int k = 0; k < 32; k++)
				disown(chunk[k]);
			sgp_chunk_put_bulk(chunk, 32);
		} else {
			ck_assert_int_eq(errno, ETIMEDOUT);
		}
		ck_assert_int_eq(sgp_pool_class_stats(stress.pool, 0, &stats), 0);
	}
	stress.stop = true;
	for (int i = 0; i < 6; i++)
		pthread_join(thread[i], NULL);
	rig_check(stress.pool, 0);
	ck_assert_uint_gt(stress.got, 0);
	ck_assert_uint_gt(stress.stolen, 0);
	ck_assert_int_eq(sgp_pool_class_stats(stress.pool, 0, &stats), 0);
	ck_assert_uint_gt(stats.reclaims, 0);
	ck_assert_int_eq(sgp_pool_get_bulk(stress.pool, SIZE, 0, chunk, 128), 0);
	sgp_chunk_put_bulk(chunk, 128);
	ck_assert_int_eq(sgp_pool_destroy(stress.pool), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pool threads");
	TCase *tc = tcase_create("threads");

	tcase_add_checked_fixture(tc, rig_setup, rig_teardown);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, test_idle_threads_give_their_chunks);
	tcase_add_test(tc, test_a_thread_that_only_puts);
	tcase_add_test(tc, test_thread_exit_in_any_order);
	tcase_add_test(tc, test_threads_outlive_pools);
	tcase_add_test(tc, test_another_layout);
	tcase_add_test(tc, test_another_layout_and_a_mark);
	tcase_add_test(tc, test_more_classes_than_slots);
	tcase_add_test(tc, test_stress_of_reclaim);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
