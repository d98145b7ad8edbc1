/* SPDX-License-Identifier: BSD-2-Clause */
/* Size classes: which one a get takes from, what they cost beside the data, what is told of them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../suite.h"
#include "pool/centre.h"
#include "pool_rig.h"

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
	pool = rig_classes(cls, N);
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
	struct sgp_pool *pool = rig_classes(cls, 2);
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
	Suite *suite = suite_create("pool classes");
	TCase *tc = tcase_create("classes");

	tcase_add_checked_fixture(tc, rig_setup, rig_teardown);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, test_the_right_class);
	tcase_add_test(tc, test_wrong_classes);
	tcase_add_test(tc, test_sges_in_one_call);
	tcase_add_test(tc, test_cost_beside_the_data);
	tcase_add_test(tc, test_statistics);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
