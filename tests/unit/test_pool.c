/* SPDX-License-Identifier: BSD-2-Clause */
/* The pool as its users see it: get, ref, put, bulk, growth, addresses, the end. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "../suite.h"
#include "pool/chunk.h"
#include "pool_rig.h"
#include "sgp_config.h"

static void expect_errno(int expected)
{
	ck_assert_int_eq(errno, expected);
	ck_assert_str_ne(sgp_errmsg(), "");
}

START_TEST(test_chunks_are_distinct_registered_memory)
{
	static const size_t sizes[] = {1, 63, 64, 128, 1000, 4095, 4096, 4097, 65536, 3 << 20};
	enum {
		N = 17
	};

	for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
		struct sgp_pool *pool = rig_pool(sizes[s], N, 0);
		struct sgp_chunk *chunk[N];
		size_t size = sizes[s];

		for (int i = 0; i < N; i++) {
			chunk[i] = sgp_pool_get(pool, size, 0);
			ck_assert_ptr_nonnull(chunk[i]);
			ck_assert_uint_eq(sgp_chunk_size(chunk[i]), size);
			ck_assert_ptr_eq(sgp_chunk_pool(chunk[i]), pool);
			memset(sgp_chunk_addr(chunk[i]), i, size);
			rig_check(pool, i + 1);
		}
		ck_assert_ptr_null(sgp_pool_get(pool, size, 0));
		expect_errno(ENOBUFS);
		for (int i = 0; i < N; i++) {
			const unsigned char *addr = sgp_chunk_addr(chunk[i]);

			ck_assert_uint_eq((uintptr_t)addr % (size >= 4096 ? 4096 : 64), 0);
			ck_assert_uint_eq(addr[0], i);
			ck_assert_int_eq(memcmp(addr, addr + 1, size - 1), 0);
			ck_assert_ptr_eq(sgp_pool_chunk_at(pool, addr), chunk[i]);
			ck_assert_ptr_eq(sgp_pool_chunk_at(pool, addr + size / 2), chunk[i]);
			ck_assert_ptr_eq(sgp_pool_chunk_at(pool, addr + size - 1), chunk[i]);
		}
		for (int i = 0; i < N; i++)
			sgp_chunk_put(chunk[i]);
		rig_check(pool, 0);
		ck_assert_int_eq(sgp_pool_destroy(pool), 0);
	}
}
END_TEST

START_TEST(test_addresses_outside_are_efault)
{
	struct sgp_pool *pool = rig_pool(1000, 3, 0);
	struct sgp_chunk *chunk[3];
	int local;

	ck_assert_int_eq(sgp_pool_get_bulk(pool, 1000, 0, chunk, 3), 0);
	for (int i = 0; i < 3; i++) {
		char *end = (char *)sgp_chunk_addr(chunk[i]) + 1000;

		ck_assert_ptr_null(sgp_pool_chunk_at(pool, end)); /* between the chunks */
		expect_errno(EFAULT);
	}
	ck_assert_ptr_null(sgp_pool_chunk_at(pool, &local));
	expect_errno(EFAULT);
	ck_assert_ptr_null(sgp_pool_chunk_at(pool, NULL));
	expect_errno(EFAULT);
	ck_assert_ptr_null(sgp_pool_chunk_at(pool, pool->mem.base + pool->mem.bytes));
	expect_errno(EFAULT);
	ck_assert_ptr_null(sgp_pool_chunk_at(pool, pool->mem.base - 1));
	expect_errno(EFAULT);
	sgp_chunk_put_bulk(chunk, 3);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
}
END_TEST

/* The odd number of cache lines: the first lines of many chunks spread over all sets of a cache. */
START_TEST(test_strided_and_aligned)
{
	static const struct {
		size_t size;
		uint32_t align, stride;
	} want[] = {
		{64, 0, 64},     {128, 0, 192},    {1024, 0, 1088},    {1000, 0, 1088},
		{4096, 0, 4096}, {4096, 64, 4160}, {4096, 1, 4160},    {5000, 0, 8192},
		{512, 512, 512}, {100, 128, 128},  {65536, 64, 65600}, {64, 4096, 4096},
	};

	for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
		struct sgp_cut cut;

		ck_assert_int_eq(sgp_cut_init(&cut, want[i].size, want[i].align), 0);
		ck_assert_uint_eq(cut.stride, want[i].stride);
	}
}
END_TEST

START_TEST(test_the_last_reference_returns_the_chunk)
{
	struct sgp_pool *pool = rig_pool(64, 1, 0);
	struct sgp_chunk *chunk = sgp_pool_get(pool, 1, 0);

	for (int i = 0; i < 3; i++)
		sgp_chunk_ref(chunk);
	for (int i = 0; i < 3; i++) {
		sgp_chunk_put(chunk);
		rig_check(pool, 1);
		ck_assert_ptr_null(sgp_pool_get(pool, 1, 0));
		expect_errno(ENOBUFS);
	}
	sgp_chunk_put(chunk);
	rig_check(pool, 0);
	errno = 77;
	sgp_chunk_put(NULL);
	ck_assert_int_eq(errno, 77);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
}
END_TEST

START_TEST(test_bulk_is_all_or_none)
{
	struct sgp_pool *pool = rig_pool(64, 10, 0);
	struct sgp_chunk *chunk[11] = {0}, *rest[3];

	ck_assert_int_eq(sgp_pool_get_bulk(pool, 64, 0, chunk, 11), -1);
	expect_errno(ENOBUFS);
	ck_assert_ptr_null(chunk[0]);
	ck_assert_int_eq(sgp_pool_get_bulk(pool, 64, 0, chunk, 0), 0);
	rig_check(pool, 0);
	ck_assert_int_eq(sgp_pool_get_bulk(pool, 64, 0, chunk, 7), 0);
	rig_check(pool, 7);
	ck_assert_int_eq(sgp_pool_get_bulk(pool, 64, 0, rest, 4), -1);
	expect_errno(ENOBUFS);
	ck_assert_int_eq(sgp_pool_get_bulk(pool, 64, 0, rest, 3), 0);
	sgp_chunk_ref(chunk[3]);
	sgp_chunk_put_bulk(chunk, 7);
	rig_check(pool, 4);
	sgp_chunk_put(chunk[3]);
	sgp_chunk_put_bulk(rest, 3);
	rig_check(pool, 0);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
}
END_TEST

START_TEST(test_errors_of_get)
{
	struct sgp_pool *pool = rig_pool(1 << 20, 1, 0);

	ck_assert_ptr_null(sgp_pool_get(pool, 0, 0));
	expect_errno(EINVAL);
	ck_assert_ptr_null(sgp_pool_get(pool, 1, 1 << 30));
	expect_errno(EINVAL);
	ck_assert_ptr_null(sgp_pool_get(pool, SIZE_MAX, 0));
	expect_errno(EMSGSIZE);
	/* case 49b: what can never be had is not the temporary ENOBUFS. */
	ck_assert_ptr_null(sgp_pool_get(pool, 12587576, 0));
	expect_errno(EMSGSIZE);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
}
END_TEST

static void never_ready(struct sgp_waiter *waiter)
{
	(void)waiter;
	ck_abort_msg("served by no pool");
}

/* It has no class, no address is in it, and no magazine is nobody's. */
START_TEST(test_no_pool_is_einval)
{
	struct sgp_pool *pool = _i ? rig_pool(64, 1, 0) : NULL;
	struct sgp_chunk *chunk = NULL;
	struct sgp_class_stats of_class;
	struct sgp_pool_stats stats;
	struct sgp_waiter waiter = {.ready = never_ready, .chunks = &chunk, .n = 1};
	struct ibv_sge sge;
	char text[8];

	/* The thread has had no magazine yet; has one; had one. */
	if (_i)
		sgp_chunk_put(sgp_pool_get(pool, 1, 0));
	if (_i == 2)
		ck_assert_int_eq(sgp_pool_destroy(pool), 0);
#define REFUSED(call)                                                                              \
	do {                                                                                       \
		errno = 0;                                                                         \
		ck_assert(call);                                                                   \
		expect_errno(EINVAL);                                                              \
	} while (0)
	for (size_t size = 0; size <= 64; size += 64) {
		REFUSED(!sgp_pool_get(NULL, size, 0));
		REFUSED(!(sgp_pool_get)(NULL, size, 0));
		for (size_t n = 0; n < 2; n++) {
			REFUSED(sgp_pool_get_bulk(NULL, size, 0, &chunk, n) == -1);
			REFUSED(sgp_pool_get_sge(NULL, size, 0, &chunk, &sge, n) == -1);
			REFUSED(sgp_pool_get_wait(NULL, size, 0, &chunk, n, 0) == -1);
		}
		REFUSED(sgp_waiter_start(&waiter, NULL, size, 0) == -1);
		REFUSED(sgp_pool_grow(NULL, size, 1) == -1);
		REFUSED(sgp_pool_trim(NULL, size, 0) == -1);
		REFUSED(sgp_pool_set_limits(NULL, size, 1, 0) == -1);
	}
	REFUSED(!sgp_pool_chunk_at(NULL, text));
	REFUSED(sgp_pool_stats(NULL, &stats) == -1);
	REFUSED(sgp_pool_class_stats(NULL, 0, &of_class) == -1);
	REFUSED(sgp_pool_stats_print(NULL, NULL, SGP_STATS_TEXT, text, sizeof text) == -1);
	REFUSED(sgp_pool_destroy(NULL) == -1);
#undef REFUSED
	if (_i == 1) {
		rig_check(pool, 0);
		ck_assert_int_eq(sgp_pool_destroy(pool), 0);
	}
}
END_TEST

START_TEST(test_growth_up_to_the_cap)
{
	struct sgp_pool *pool = rig_pool(4096, 3, 10);
	struct sgp_chunk *chunk[10];
	struct sgp_pool_stats stats;

	ck_assert_int_eq(sgp_pool_get_bulk(pool, 4096, 0, chunk, 4), -1);
	expect_errno(ENOBUFS);
	ck_assert_int_eq(sgp_pool_get_bulk(pool, 4096, 0, chunk, 3), 0);
	ck_assert_int_eq(sgp_pool_grow(pool, 4096, 0), -1);
	expect_errno(EINVAL);
	ck_assert_int_eq(sgp_pool_grow(pool, 4097, 1), -1);
	expect_errno(EMSGSIZE);
	ck_assert_int_eq(sgp_pool_grow(pool, 4096, 8), -1);
	expect_errno(ENOBUFS);
	ck_assert_int_eq(sgp_pool_grow(pool, 1, 2), 0);
	ck_assert_int_eq(sgp_pool_get_bulk(pool, 4096, 0, chunk + 3, 2), 0);
	ck_assert_int_eq(sgp_pool_grow(pool, 1, 5), 0);
	ck_assert_int_eq(sgp_pool_get_bulk(pool, 4096, 0, chunk + 5, 5), 0);
	rig_check(pool, 10);
	ck_assert_int_eq(sgp_pool_stats(pool, &stats), 0);
	ck_assert_uint_eq(stats.chunks, 10);
	ck_assert_uint_eq(stats.regions, 3);
	ck_assert_uint_eq(stats.registrations, 3);
	ck_assert_uint_eq(stats.bytes_registered, 10 * 4096);
	ck_assert_uint_ge(stats.bytes_reserved, 10 * 4096);
	ck_assert_uint_eq(stats.page_size, 4096);
	sgp_chunk_put_bulk(chunk, 10);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
}
END_TEST

START_TEST(test_max_bytes_bounds_growth)
{
	struct sgp_class_attr cls = {.size = 4096, .chunks = 1, .max_chunks = 100};
	struct sgp_pool_attr attr = {.classes = &cls, .nclasses = 1, .max_bytes = 4 * 4096};
	struct sgp_pool *pool = sgp_pool_create(rig_pd, &attr);

	ck_assert_ptr_nonnull(pool);
	ck_assert_int_eq(sgp_pool_grow(pool, 1, 4), -1);
	expect_errno(ENOBUFS);
	rig_check(pool, 0);
	ck_assert_int_eq(sgp_pool_grow(pool, 1, 3), 0);
	ck_assert_int_eq(sgp_pool_grow(pool, 1, 1), -1);
	expect_errno(ENOBUFS);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
}
END_TEST

START_TEST(test_destroy_while_in_use_is_ebusy)
{
	struct sgp_pool *pool = rig_pool(4096, 4, 0);
	struct sgp_chunk *chunk = sgp_pool_get(pool, 1, 0);
	int regs = sv_live(SV_MRS);

	/* case 39: nothing is torn down. */
	ck_assert_int_eq(sgp_pool_destroy(pool), -1);
	expect_errno(EBUSY);
	ck_assert_int_eq(sv_live(SV_MRS), regs);
	rig_check(pool, 1);
	memset(sgp_chunk_addr(chunk), 1, 4096);
	sgp_chunk_put(chunk);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
}
END_TEST

START_TEST(test_destroy_that_the_device_refuses)
{
	struct sgp_pool *pool = rig_pool(4096, 2, 3);

	ck_assert_int_eq(sgp_pool_grow(pool, 1, 1), 0);
	sv_fail_nth("dereg_mr", 1, EBUSY);
	ck_assert_int_eq(sgp_pool_destroy(pool), -1);
	expect_errno(EBUSY);
	ck_assert_int_eq(sv_live(SV_MRS), 1);
	ck_assert_ptr_null(sgp_pool_get(pool, 1, 0));
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
}
END_TEST

START_TEST(test_wrong_attributes)
{
	const struct sgp_class_attr good = {.size = 4096, .chunks = 2, .max_chunks = 4};
	struct sgp_class_attr cls[] = {
		{.size = 0, .chunks = 1},
		{.size = (size_t)1 << 31, .chunks = 1},
		{.size = 4096, .chunks = 0},
		{.size = 4096, .chunks = 2, .max_chunks = 1},
		{.size = 4096, .chunks = 1, .align = 3},
		{.size = 4096, .chunks = 1, .align = 8192},
		{.size = 4096, .chunks = 1, .flags = 1u << 31},
		{.size = 4096, .chunks = SIZE_MAX / 4096},
	};
	struct sgp_pool_attr attr[] = {
		{.classes = &good, .nclasses = 0},
		{.classes = NULL, .nclasses = 1},
		{.classes = &good, .nclasses = 1, .comp_mask = 1},
		{.classes = &good, .nclasses = 1, .flags = 1u << 31},
		{.classes = &good, .nclasses = 1, .pages = 99},
#if SGP_HAVE_NUMA
		{.classes = &good, .nclasses = 1, .flags = SGP_POOL_NUMA, .numa_node = -1},
		{.classes = &good, .nclasses = 1, .flags = SGP_POOL_NUMA, .numa_node = 1023},
#endif
		{.classes = &good, .nclasses = 1, .region_bytes = 2048},
	};

	for (size_t i = 0; i < sizeof cls / sizeof cls[0]; i++) {
		struct sgp_pool_attr a = {.classes = &cls[i], .nclasses = 1};

		ck_assert_msg(!sgp_pool_create(rig_pd, &a), "class %zu", i);
		expect_errno(EINVAL);
	}
	for (size_t i = 0; i < sizeof attr / sizeof attr[0]; i++) {
		ck_assert_msg(!sgp_pool_create(rig_pd, &attr[i]), "attr %zu", i);
		expect_errno(EINVAL);
	}
	ck_assert_ptr_null(sgp_pool_create(rig_pd, NULL));
	expect_errno(EINVAL);
	ck_assert_ptr_null(sgp_pool_create(NULL, &attr[0]));
	expect_errno(EINVAL);
}
END_TEST

START_TEST(test_numa_node_0)
{
	struct sgp_class_attr cls = {.size = 4096, .chunks = 2};
	struct sgp_pool_attr attr = {.classes = &cls, .nclasses = 1, .flags = SGP_POOL_NUMA};
	struct sgp_pool *pool = sgp_pool_create(rig_pd, &attr);

	ck_assert(SGP_HAVE_NUMA || !pool);
	ck_assert_msg(pool || errno == EOPNOTSUPP || errno == ENOSYS, "%s", sgp_errmsg());
	if (pool)
		ck_assert_int_eq(sgp_pool_destroy(pool), 0);
}
END_TEST

START_TEST(test_pd_numbers)
{
	struct ibv_pd pd[65];
	int first = sgp_pd_acquire(&pd[0]), index[65];

	ck_assert_int_ge(first, 0);
	ck_assert_int_eq(sgp_pd_acquire(&pd[0]), first);
	for (int i = 1; i < 64; i++) {
		index[i] = sgp_pd_acquire(&pd[i]);
		ck_assert_int_ge(index[i], 0);
		ck_assert_int_lt(index[i], 64);
		ck_assert_int_ne(index[i], first);
	}
	ck_assert_int_eq(sgp_pd_acquire(&pd[64]), -1);
	expect_errno(ENOSPC);
	sgp_pd_release(index[40]);
	ck_assert_int_eq(sgp_pd_acquire(&pd[64]), index[40]);
	for (int i = 1; i < 64; i++)
		sgp_pd_release(index[i]);
	sgp_pd_release(first);
	ck_assert_int_eq(sgp_pd_acquire(&pd[0]), first);
	sgp_pd_release(first);
	sgp_pd_release(first);
}
END_TEST

struct sharing {
	struct sgp_pool *pool;
	struct sgp_chunk *shared;
};

/* Two threads drop their references to the same chunk at the same time, over and over. */
static void *share(void *arg)
{
	struct sharing *sharing = arg;

	for (int i = 0; i < 20000; i++) {
		struct sgp_chunk *own = sgp_pool_get(sharing->pool, 64, 0);

		sgp_chunk_ref(sharing->shared);
		if (own) {
			*(int *)sgp_chunk_addr(own) = i;
			sgp_chunk_ref(own);
			sgp_chunk_put(own);
			ck_assert_int_eq(*(int *)sgp_chunk_addr(own), i);
			sgp_chunk_put(own);
		}
		sgp_chunk_put(sharing->shared);
	}
	sgp_chunk_put(sharing->shared);
	return NULL;
}

START_TEST(test_threads)
{
	struct sharing sharing = {.pool = rig_pool(64, 3, 0)};
	pthread_t thread[4];

	sharing.shared = sgp_pool_get(sharing.pool, 64, 0);
	for (int i = 0; i < 4; i++) {
		sgp_chunk_ref(sharing.shared);
		ck_assert_int_eq(pthread_create(&thread[i], NULL, share, &sharing), 0);
	}
	sgp_chunk_put(sharing.shared);
	for (int i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
	rig_check(sharing.pool, 0);
	ck_assert_int_eq(sgp_pool_destroy(sharing.pool), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pool");
	TCase *tc = tcase_create("pool");

	tcase_add_checked_fixture(tc, rig_setup, rig_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_chunks_are_distinct_registered_memory);
	tcase_add_test(tc, test_addresses_outside_are_efault);
	tcase_add_test(tc, test_strided_and_aligned);
	tcase_add_test(tc, test_the_last_reference_returns_the_chunk);
	tcase_add_test(tc, test_bulk_is_all_or_none);
	tcase_add_test(tc, test_errors_of_get);
	tcase_add_loop_test(tc, test_no_pool_is_einval, 0, 3);
	tcase_add_test(tc, test_growth_up_to_the_cap);
	tcase_add_test(tc, test_max_bytes_bounds_growth);
	tcase_add_test(tc, test_destroy_while_in_use_is_ebusy);
	tcase_add_test(tc, test_destroy_that_the_device_refuses);
	tcase_add_test(tc, test_wrong_attributes);
	tcase_add_test(tc, test_numa_node_0);
	tcase_add_test(tc, test_pd_numbers);
	tcase_add_test(tc, test_threads);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
