/* SPDX-License-Identifier: BSD-2-Clause */
/* Growth by a get and by the helper, in parallel and without threads; trim, idle shrinking. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../suite.h"
#include "pool_rig.h"

#define MIB ((size_t)1 << 20)

/* A get grows only when it may, in steps that get larger, up to the cap. */
START_TEST(test_growth_by_a_get)
{
	struct sgp_pool *pool = rig_pool(4096, 1, 1000);
	static struct sgp_chunk *chunk[1000];
	struct sgp_pool_stats stats;
	uint64_t regs;

	chunk[0] = sgp_pool_get(pool, 1, 0);
	regs = sv_total(SV_MRS);
	ck_assert_ptr_null(sgp_pool_get(pool, 1, 0));
	ck_assert_int_eq(errno, ENOBUFS);
	ck_assert_uint_eq(sv_total(SV_MRS), regs);
	for (int i = 1; i < 1000; i++) {
		chunk[i] = sgp_pool_get(pool, 1, SGP_MAY_GROW);
		ck_assert_msg(chunk[i] != NULL, "%d: %s", i, sgp_errmsg());
	}
	ck_assert_ptr_null(sgp_pool_get(pool, 1, SGP_MAY_GROW));
	ck_assert_int_eq(errno, ENOBUFS);
	sgp_pool_stats(pool, &stats);
	ck_assert_uint_eq(stats.chunks, 1000);
	ck_assert_uint_le(stats.registrations, 25);
	sgp_chunk_put_bulk(chunk, 1000);
	/* In bulk, more than the next step would be. */
	ck_assert_int_eq(sgp_pool_trim(pool, 0, 0), 0);
	ck_assert_int_eq(sgp_pool_get_bulk(pool, 1, SGP_MAY_GROW, chunk, 777), 0);
	rig_check(pool, 777);
	sgp_chunk_put_bulk(chunk, 777);
	/* A growth that the device refuses is the get's errno. */
	ck_assert_int_eq(sgp_pool_trim(pool, 0, 0), 0);
	sv_fail_nth("reg_mr", 0, EIO);
	ck_assert_ptr_null(sgp_pool_get(pool, 1, SGP_MAY_GROW));
	ck_assert_int_eq(errno, EIO);
	rig_check(pool, 0);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
}
END_TEST

/* Threads that all want growth at once. */
static void *grows(void *arg)
{
	struct sgp_chunk *chunk[50];

	for (int i = 0; i < 50; i++) {
		chunk[i] = sgp_pool_get(arg, 1, SGP_MAY_GROW);
		ck_assert_ptr_nonnull(chunk[i]);
		ck_assert_ptr_eq(sgp_pool_chunk_at(arg, sgp_chunk_addr(chunk[i])), chunk[i]);
		memset(sgp_chunk_addr(chunk[i]), i, 4096);
	}
	sgp_chunk_put_bulk(chunk, 50);
	return NULL;
}

START_TEST(test_growth_by_many_threads)
{
	struct sgp_pool *pool = rig_pool(4096, 0, 200);
	pthread_t thread[4];

	for (int round = 0; round < 10; round++) {
		for (int i = 0; i < 4; i++)
			ck_assert_int_eq(pthread_create(&thread[i], NULL, grows, pool), 0);
		for (int i = 0; i < 4; i++)
			pthread_join(thread[i], NULL);
		rig_check(pool, 0);
		ck_assert_int_eq(sgp_pool_trim(pool, 4096, 0), 0);
		ck_assert_int_eq(sv_live(SV_MRS), 0);
	}
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
}
END_TEST

START_TEST(test_trim_gives_whole_free_regions)
{
	struct sgp_pool *pool = rig_pool(4096, 10, 100);
	struct sgp_class_stats stats;
	struct sgp_chunk *chunk[40], *held;

	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(sgp_pool_grow(pool, 1, 10), 0);
	ck_assert_int_eq(sv_live(SV_MRS), 4);
	ck_assert_int_eq(sgp_pool_get_bulk(pool, 1, 0, chunk, 40), 0);
	held = chunk[7];
	chunk[7] = chunk[39];
	sgp_chunk_put_bulk(chunk, 39);
	memset(sgp_chunk_addr(held), 7, 4096);
	ck_assert_int_eq(sgp_pool_trim(pool, 8192, 0), -1);
	ck_assert_int_eq(errno, EMSGSIZE);
	ck_assert_int_eq(sgp_pool_trim(pool, 1, 25),
			 0); /* keep 25: one goes, a second would be too many */
	ck_assert_int_eq(sv_live(SV_MRS), 3);
	rig_check(pool, 1);
	sv_fail_nth("dereg_mr", 0, EIO);
	ck_assert_int_eq(sgp_pool_trim(pool, 0, 0), -1);
	ck_assert_int_eq(errno, EIO);
	ck_assert_int_eq(sv_live(SV_MRS),
			 2); /* one went, the one that the device kept is in use again */
	rig_check(pool, 1);
	ck_assert_int_eq(sgp_pool_class_stats(pool, 0, &stats), 0);
	ck_assert_uint_eq(stats.chunks, 20);
	ck_assert_int_eq(sgp_pool_trim(pool, 0, 0), 0);
	ck_assert_int_eq(sv_live(SV_MRS), 1); /* the held one's */
	for (int i = 0; i < 4096; i++)
		ck_assert_int_eq(((char *)sgp_chunk_addr(held))[i], 7);
	ck_assert_int_eq(sgp_pool_trim(pool, 0, 0), 0);
	rig_check(pool, 1);
	sgp_chunk_put(held);
	ck_assert_int_eq(sgp_pool_trim(pool, 0, 0), 0);
	ck_assert_int_eq(sv_live(SV_MRS), 0);
	/* And it grows again, in the same addresses. */
	for (int i = 0; i < 50; i++) {
		ck_assert_int_eq(sgp_pool_grow(pool, 1, 100), 0);
		ck_assert_int_eq(sgp_pool_get_bulk(pool, 1, 0, chunk, 40), 0);
		sgp_chunk_put_bulk(chunk, 40);
		ck_assert_int_eq(sgp_pool_trim(pool, 0, 0), 0);
	}
	ck_assert_int_eq(sgp_pool_class_stats(pool, 0, &stats), 0);
	ck_assert_uint_eq(stats.chunks, 0);
	ck_assert_uint_eq(stats.bytes, 0);
	ck_assert_uint_gt(stats.trims, 50);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
}
END_TEST

/* Growth and trim all the time, while threads use what there is. */
struct churn {
	struct sgp_pool *pool;
	atomic_bool stop;
};

static void *churn_user(void *arg)
{
	struct churn *churn = arg;
	struct sgp_chunk *chunk[16];
	unsigned int seed = (unsigned int)(uintptr_t)&chunk;

	while (!churn->stop) {
		size_t n = 1 + (size_t)rand_r(&seed) % 16;

		if (sgp_pool_get_bulk(churn->pool, 1, SGP_MAY_GROW, chunk, n))
			continue;
		for (size_t i = 0; i < n; i++)
			*(size_t *)sgp_chunk_addr(chunk[i]) = (size_t)chunk[i];
		for (size_t i = 0; i < n; i++)
			ck_assert_uint_eq(*(size_t *)sgp_chunk_addr(chunk[i]), (size_t)chunk[i]);
		sgp_chunk_put_bulk(chunk, n);
	}
	return NULL;
}

START_TEST(test_trim_while_others_work)
{
	struct churn churn = {.pool = rig_pool(4096, 0, 256)};
	pthread_t thread[3];

	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, churn_user, &churn), 0);
	for (int i = 0; i < 300; i++) {
		ck_assert_int_eq(sgp_pool_trim(churn.pool, 0, (size_t)i % 64), 0);
		if (i % 16 == 0)
			usleep(1000);
	}
	churn.stop = true;
	for (int i = 0; i < 3; i++)
		pthread_join(thread[i], NULL);
	rig_check(churn.pool, 0);
	ck_assert_int_eq(sgp_pool_trim(churn.pool, 0, 0), 0);
	ck_assert_int_eq(sv_live(SV_MRS), 0);
	ck_assert_int_eq(sgp_pool_destroy(churn.pool), 0);
}
END_TEST

/* Until it is so; the test's time limit is the end of patience. */
#define AWAIT(condition)                                                                           \
	while (!(condition))                                                                       \
	usleep(1000)

static uint64_t chunks_of(struct sgp_pool *pool)
{
	struct sgp_pool_stats stats;

	ck_assert_int_eq(sgp_pool_stats(pool, &stats), 0);
	return stats.chunks;
}

START_TEST(test_helper_grows_below_low_water)
{
	struct sgp_class_attr cls = {.size = 4096, .max_chunks = 100, .low_water = 10};
	struct sgp_pool *pool = rig_classes(&cls, 1);
	struct sgp_chunk *chunk[60];

	AWAIT(chunks_of(pool) >= 10);
	for (int i = 0; i < 60; i++)
		ck_assert_int_eq(sgp_pool_get_wait(pool, 4096, 0, &chunk[i], 1, -1), 0);
	AWAIT(chunks_of(pool) >= 70);
	sgp_chunk_put_bulk(chunk, 60);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
}
END_TEST

START_TEST(test_idle_regions_go)
{
	struct sgp_class_attr cls = {.size = 4096, .chunks = 10, .max_chunks = 30};
	struct sgp_pool_attr attr = {
		.classes = &cls, .nclasses = 1, .pages = SGP_PAGES_BASE, .idle_ms = 20};
	struct sgp_pool *pool = sgp_pool_create(rig_pd, &attr);
	struct sgp_chunk *chunk[30];

	ck_assert_msg(pool != NULL, "%s", sgp_errmsg());
	ck_assert_int_eq(sgp_pool_grow(pool, 1, 10), 0);
	ck_assert_int_eq(sgp_pool_grow(pool, 1, 10), 0);
	/* If we were kept from it for long, they have gone already. */
	while (sgp_pool_get_bulk(pool, 1, SGP_MAY_GROW, chunk, 30))
		ck_assert_int_eq(errno, ENOBUFS);
	usleep(100000);
	ck_assert_uint_eq(chunks_of(pool), 30); /* in use */
	sgp_chunk_put_bulk(chunk, 30);
	AWAIT(chunks_of(pool) == 10);
	usleep(100000);
	ck_assert_uint_eq(chunks_of(pool), 10); /* what it began with stays */
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
}
END_TEST

/* A large region is made present by several threads, and says how far it is. */
static size_t progress_calls, progress_last;

static void progress(void *arg, size_t done, size_t bytes)
{
	ck_assert_ptr_eq(arg, &progress_calls);
	ck_assert_uint_ge(done, progress_last);
	ck_assert_uint_eq(bytes, 256 * MIB);
	progress_calls++;
	progress_last = done;
}

START_TEST(test_populate_in_parallel)
{
	struct sgp_class_attr cls = {.size = 4 * MIB, .chunks = 64};
	struct sgp_pool_attr attr = {.classes = &cls,
				     .nclasses = 1,
				     .pages = SGP_PAGES_BASE,
				     .progress = progress,
				     .progress_arg = &progress_calls};

	for (uint32_t threads = 0; threads < 4; threads++) {
		struct sgp_pool *pool;

		progress_calls = 0;
		progress_last = 0;
		attr.populate_threads = threads;
		if (threads == 3) /* a thread that can't be had is done without */
			rig_fail(RIG_THREAD, 1, EAGAIN);
		pool = sgp_pool_create(rig_pd, &attr);
		ck_assert_msg(pool != NULL, "%s", sgp_errmsg());
		if (threads == 3)
			ck_assert(rig_failed());
		ck_assert_uint_gt(progress_calls, 0);
		ck_assert_uint_eq(progress_last, 256 * MIB);
		ck_assert_int_eq(sgp_pool_destroy(pool), 0);
	}
}
END_TEST

/* The helper's thread cannot be had: the errno of that, and nothing is left. */
START_TEST(test_no_thread_for_the_helper)
{
	struct sgp_class_attr cls = {.size = 4096, .chunks = 4, .low_water = 2};
	struct sgp_pool_attr attr = {.classes = &cls, .nclasses = 1};
	struct sgp_pool *pool;

	rig_fail(RIG_THREAD, 0, EAGAIN);
	ck_assert_ptr_null(sgp_pool_create(rig_pd, &attr));
	ck_assert_int_eq(errno, EAGAIN);
	ck_assert_int_eq(sv_live(SV_MRS), 0);
	ck_assert_int_eq(rig_mapped, 0);
	pool = sgp_pool_create(rig_pd, &attr);
	ck_assert_ptr_nonnull(pool);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pool grow");
	TCase *tc = tcase_create("grow");

	tcase_add_checked_fixture(tc, rig_setup, rig_teardown);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, test_growth_by_a_get);
	tcase_add_test(tc, test_growth_by_many_threads);
	tcase_add_test(tc, test_trim_gives_whole_free_regions);
	tcase_add_test(tc, test_trim_while_others_work);
	tcase_add_test(tc, test_helper_grows_below_low_water);
	tcase_add_test(tc, test_idle_regions_go);
	tcase_add_test(tc, test_populate_in_parallel);
	tcase_add_test(tc, test_no_thread_for_the_helper);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
