/* SPDX-License-Identifier: BSD-2-Clause */
/* Size classes, growth by a get and by the helper, trim, idle shrinking, statistics. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../suite.h"
#include "pool/centre.h"
#include "pool_rig.h"

#define MIB ((size_t)1 << 20)

static struct sgp_pool *classes_pool(const struct sgp_class_attr *cls, uint32_t n)
{
	struct sgp_pool_attr attr = {.classes = cls, .nclasses = n, .pages = SGP_PAGES_BASE};
	struct sgp_pool *pool = sgp_pool_create(rig_pd, &attr);

	ck_assert_msg(pool != NULL, "%s", sgp_errmsg());
	return pool;
}

/* The smallest class that is large enough, for every size around each class's. */
START_TEST(test_the_right_class)
{
	static const size_t sizes[] = {1,    2,    3,    64,   65,   100,   1000,
				       1024, 1500, 2048, 4096, 9000, 65536, 1000000};
	enum {
		N = sizeof sizes / sizeof sizes[0]
	};
	struct sgp_class_attr cls[N];
	struct sgp_pool *pool;
	struct sgp_chunk *chunk;

	for (size_t i = 0; i < N; i++) /* in any order */
		cls[i] = (struct sgp_class_attr){
			.size = sizes[(i * 5 + 3) % N], .chunks = 2, .max_chunks = 64};
	pool = classes_pool(cls, N);
	for (size_t i = 0; i < N; i++) {
		for (size_t size = sizes[i] > 3 ? sizes[i] - 3 : 1; size <= sizes[i] + 3; size++) {
			size_t k = 0;

			while (k < N && sizes[k] < size)
				k++;
			for (int flags = 0; flags < 2; flags++) {
				chunk = sgp_pool_get(pool, size, flags ? SGP_MAY_GROW : 0);
				if (k == N) {
					ck_assert_ptr_null(chunk);
					ck_assert_int_eq(errno, EMSGSIZE);
					continue;
				}
				ck_assert_ptr_nonnull(chunk);
				ck_assert_uint_eq(sgp_chunk_size(chunk), sizes[k]);
				ck_assert_ptr_eq(sgp_pool_chunk_at(pool, sgp_chunk_addr(chunk)),
						 chunk);
				sgp_chunk_put(chunk);
			}
		}
	}
	rig_check(pool, 0);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
}
END_TEST

START_TEST(test_wrong_classes)
{
	const struct sgp_class_attr twice[] = {{.size = 64, .chunks = 1},
					       {.size = 64, .chunks = 2}};
	const struct sgp_class_attr reserve[] = {{.size = 64, .chunks = 1, .reserve = 2}};
	const struct sgp_class_attr low[] = {{.size = 64, .chunks = 1, .low_water = 2}};
	const struct sgp_pool_attr attr[] = {
		{.classes = twice, .nclasses = 2},
		{.classes = twice, .nclasses = 100000},
		{.classes = reserve, .nclasses = 1},
		{.classes = low, .nclasses = 1},
	};

	for (size_t i = 0; i < sizeof attr / sizeof attr[0]; i++) {
		ck_assert_ptr_null(sgp_pool_create(rig_pd, &attr[i]));
		ck_assert_int_eq(errno, EINVAL);
	}
}
END_TEST

START_TEST(test_sges_in_one_call)
{
	struct sgp_pool *pool = rig_pool(4096, 8, 0);
	struct sgp_chunk *chunk[9];
	struct ibv_sge sge[9];

	ck_assert_int_eq(sgp_pool_get_sge(pool, 4096, 0, chunk, sge, 9), -1);
	ck_assert_int_eq(errno, ENOBUFS);
	ck_assert_int_eq(sgp_pool_get_sge(pool, SIZE_MAX, 0, chunk, sge, 1), -1);
	ck_assert_int_eq(errno, EMSGSIZE);
	ck_assert_int_eq(sgp_pool_get_sge(pool, 4000, 0, chunk, sge, 8), 0);
	for (int i = 0; i < 8; i++) {
		ck_assert_uint_eq(sge[i].addr, (uintptr_t)sgp_chunk_addr(chunk[i]));
		ck_assert_uint_eq(sge[i].length, 4000);
		ck_assert_uint_eq(sge[i].lkey, sgp_chunk_lkey(chunk[i]));
	}
	sgp_chunk_put_bulk(chunk, 8);
	rig_check(pool, 0);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
}
END_TEST

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
	struct sgp_pool *pool = classes_pool(&cls, 1);
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

/* What a pool costs beside its data: 64 bytes a chunk, 64 more where strided, 1 % of the pool. */
START_TEST(test_cost_beside_the_data)
{
	static const size_t sizes[] = {64, 128, 1024, 4096, 65536};

	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		enum {
			N = 20000
		};
		size_t data = sizes[i] * N, cost;
		bool strided = sizes[i] < 4096;
		struct sgp_pool *pool;
		struct sgp_chunk *chunk;

		rig_allocated = 0;
		pool = rig_pool(sizes[i], N, 0);
		chunk = sgp_pool_get(pool, 1, 0); /* and its thread's cache */
		sgp_chunk_put(chunk);
		cost = rig_allocated + pool->reg.bytes - data;
		cost += N * sizeof pool->classes[0].free[0]; /* the centre's stack is mapped */
		ck_assert_msg(pool->watch || cost <= N * (size_t)(strided ? 128 : 64) + data / 100,
			      "%zu bytes a chunk of %zu", cost / N, sizes[i]);
		ck_assert_int_eq(sgp_pool_destroy(pool), 0);
	}
}
END_TEST

static char *print(struct sgp_pool *pool, enum sgp_stats_format format)
{
	int n = sgp_pool_stats_print(pool, "a \"b\"\\", format, NULL, 0);
	char *text = malloc((size_t)n + 1);

	ck_assert_int_gt(n, 0);
	ck_assert_ptr_nonnull(text);
	ck_assert_int_eq(sgp_pool_stats_print(pool, "a \"b\"\\", format, text, (size_t)n + 1), n);
	ck_assert_uint_eq(strlen(text), n);
	return text;
}

START_TEST(test_statistics)
{
	static const struct sgp_class_attr cls[] = {{.size = 4096, .chunks = 100, .reserve = 3},
						    {.size = 64, .chunks = 5}};
	struct sgp_pool *pool = classes_pool(cls, 2);
	struct sgp_class_stats stats;
	struct sgp_chunk *chunk[5];
	char *text, small[10];

	ck_assert_int_eq(sgp_pool_get_bulk(pool, 64, 0, chunk, 5), 0);
	ck_assert_ptr_null(sgp_pool_get(pool, 64, 0));
	sgp_chunk_put(sgp_pool_get(pool, 4096, 0));
	ck_assert_int_eq(sgp_pool_class_stats(pool, 2, &stats), -1);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(sgp_pool_class_stats(pool, 0, &stats), 0);
	ck_assert_uint_eq(stats.size, 64);
	ck_assert_uint_eq(stats.chunks, 5);
	ck_assert_uint_eq(stats.live, 5);
	ck_assert_uint_eq(stats.free, 0);
	ck_assert_uint_eq(stats.peak, 5);
	ck_assert_uint_eq(stats.exhausted, 1);
	ck_assert_uint_eq(stats.bytes, 4096);
	ck_assert_int_eq(sgp_pool_class_stats(pool, 1, &stats), 0);
	ck_assert_uint_eq(stats.size, 4096);
	ck_assert_uint_eq(stats.chunks, 100);
	ck_assert_uint_eq(stats.live, 0);
	ck_assert(stats.cached > 0 || pool->watch);
	ck_assert_uint_eq(stats.free + stats.cached, 100);
	ck_assert_uint_eq(stats.reserve, 3);

	text = print(pool, SGP_STATS_TEXT);
	ck_assert_ptr_nonnull(strstr(text, "regions 2"));
	free(text);
	text = print(pool, SGP_STATS_JSON);
	ck_assert_ptr_nonnull(strstr(text, "{\"pool\":\"a \\\"b\\\"\\\\\",\"regions\":2,"));
	ck_assert_ptr_nonnull(strstr(text, "{\"size\":64,\"chunks\":5,\"free\":0,\"cached\":0,"
					   "\"live\":5,"));
	ck_assert_ptr_nonnull(strstr(text, "}]}\n"));
	free(text);
	text = print(pool, SGP_STATS_PROMETHEUS);
	ck_assert_ptr_nonnull(strstr(text,
				     "# TYPE sgpool_live gauge\n"
				     "sgpool_live{pool=\"a \\\"b\\\"\\\\\",size=\"64\"} 5\n"));
	ck_assert_ptr_nonnull(strstr(text, "# TYPE sgpool_exhausted_total counter\n"));
	free(text);
	ck_assert_int_gt(sgp_pool_stats_print(pool, NULL, SGP_STATS_TEXT, small, sizeof small), 10);
	ck_assert_str_eq(small, "pool sgpo");
	ck_assert_int_eq(sgp_pool_stats_print(pool, NULL, 99, small, sizeof small), -1);
	ck_assert_int_eq(errno, EINVAL);
	sgp_chunk_put_bulk(chunk, 5);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pool grow");
	TCase *tc = tcase_create("grow");

	tcase_add_checked_fixture(tc, rig_setup, rig_teardown);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, test_the_right_class);
	tcase_add_test(tc, test_wrong_classes);
	tcase_add_test(tc, test_sges_in_one_call);
	tcase_add_test(tc, test_growth_by_a_get);
	tcase_add_test(tc, test_growth_by_many_threads);
	tcase_add_test(tc, test_trim_gives_whole_free_regions);
	tcase_add_test(tc, test_trim_while_others_work);
	tcase_add_test(tc, test_helper_grows_below_low_water);
	tcase_add_test(tc, test_idle_regions_go);
	tcase_add_test(tc, test_populate_in_parallel);
	tcase_add_test(tc, test_no_thread_for_the_helper);
	tcase_add_test(tc, test_cost_beside_the_data);
	tcase_add_test(tc, test_statistics);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
