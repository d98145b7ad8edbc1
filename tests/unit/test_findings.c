/* SPDX-License-Identifier: BSD-2-Clause */
/* The way that findings take: the leaks' names, counts, the environment; and what is none. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "../suite.h"
#include "mistakes_rig.h"

/* ---- leaks ---- */

struct seen {
	int n, posted;
	uint32_t references;
};

static int see(const struct sgp_held *held, void *arg)
{
	struct seen *seen = arg;

	seen->n++;
	seen->posted += held->posted;
	seen->references += held->references;
	ck_assert_int_gt(held->got.n, 0);
	return 0;
}

START_TEST(test_leaks_are_named)
{
	struct seen seen = {.n = 0};
	struct sgp_chunk *chunk[2];

	setup();
	chunk[0] = taker();
	chunk[1] = taker();
	sgp_chunk_ref(chunk[1]);
	rig_post_recv(&rig.side[0], NULL);
	ck_assert_int_eq(sgp_pool_destroy(pool), -1);
	ck_assert_int_eq(errno, EBUSY);
	ck_assert_ptr_nonnull(
		strstr(sgp_errmsg(), "3 chunks of 4096 bytes are still held: taken by"));
	ck_assert_ptr_nonnull(strstr(sgp_errmsg(), "taker+"));
	ck_assert_ptr_nonnull(strstr(sgp_errmsg(), "(posted)"));
	ck_assert_int_eq(sgp_check_held(pool, see, &seen), 0);
	ck_assert_int_eq(seen.n, 3);
	ck_assert_int_eq(seen.posted, 1);
	ck_assert_uint_eq(seen.references, 4);
	sgp_chunk_put_bulk(chunk, 2);
	sgp_chunk_put(chunk[1]);
	rig_close(&rig);
	ck_assert_int_eq(found.n, 0);
	rig_check_no_leak();
}
END_TEST

/* ---- the way findings take ---- */

START_TEST(test_counts)
{
	struct sgp_pool_stats stats;
	char text[512];

	setup();
	put_twice();
	put_twice();
	ck_assert_int_eq(sgp_pool_stats(pool, &stats), 0);
	ck_assert_uint_eq(stats.findings, 2);
	ck_assert_uint_eq(stats.live, 0);
	ck_assert_int_gt(sgp_pool_stats_print(pool, NULL, SGP_STATS_JSON, text, sizeof text), 0);
	ck_assert_ptr_nonnull(strstr(text, "\"findings\":2"));
	sgp_check_set_handler(NULL, NULL);
	found.n = 0;
	put_twice();
	ck_assert_int_eq(found.n, 0);
	ck_assert_uint_eq(sgp_check_findings(), 3);
}
END_TEST

/* An ordinary pool beside checked ones, and its chunks. */
START_TEST(test_ordinary_pools_beside)
{
	struct sgp_class_attr cls = {.size = SIZE, .chunks = 64};
	struct sgp_pool_attr attr = {.classes = &cls, .nclasses = 1, .pages = SGP_PAGES_BASE};
	struct sgp_chunk *chunk[64];
	struct sgp_pool *plain;

	setup();
	plain = sgp_pool_create(rig.side[0].pd, &attr);
	ck_assert_ptr_nonnull(plain);
	for (int turn = 0; turn < 3; turn++) {
		ck_assert_int_eq(sgp_pool_get_bulk(plain, SIZE, 0, chunk, 64), 0);
		sgp_chunk_ref(chunk[7]);
		ck_assert_int_eq(sgp_check_claim(chunk[7]), 0);
		ck_assert_int_eq(sgp_chunk_put(chunk[7]), 0);
		ck_assert_ptr_eq(sgp_pool_chunk_at(plain, memory(chunk[9])), chunk[9]);
		sgp_chunk_put_bulk(chunk, 64);
		ck_assert_int_eq(sgp_chunk_put(sgp_pool_get(plain, 1, 0)), 0);
	}
	ck_assert_int_eq(sgp_check_verify(plain), 0);
	ck_assert_int_eq(sgp_check_held(plain, see, NULL), 0);
	ck_assert_int_eq(sgp_pool_destroy(plain), 0);
	ck_assert_int_eq(found.n, 0);
}
END_TEST

static void abort_env(void)
{
	setenv("SGP_CHECK", "abort", 1);
}

START_TEST(test_environment_aborts)
{
	struct sgp_class_attr cls = {.size = SIZE, .chunks = 4};
	struct sgp_pool_attr attr = {.classes = &cls, .nclasses = 1, .pages = SGP_PAGES_BASE};

	abort_env();
	rig_open(&rig, &(struct rig_attr){.chunk_size = SIZE});
	pool = sgp_pool_create(rig.side[0].pd, &attr); /* no flag */
	put_once();
	giver(put_once());
}
END_TEST

START_TEST(test_environment_forbids)
{
	setenv("SGP_CHECK", "0", 1);
	setup();
	ck_assert_ptr_nonnull(put_once());
	ck_assert_int_eq(sgp_check_verify(pool), 0);
	rig_close(&rig);
	ck_assert_uint_eq(sgp_check_findings(), 0);
}
END_TEST

/*
 * An ordinary pool doesn't see the second put, but its end does: it says so, and does not take the
 * difference for a number of chunks. Nor are they more than there is room for, however many.
 */
START_TEST(test_second_puts_are_told_at_the_end)
{
	struct sgp_chunk *chunk;

	setenv("SGP_CHECK", "0", 1);
	setup();
	chunk = put_once();
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(giver(chunk), 0);
	ck_assert_int_eq(sgp_pool_destroy(pool), -1);
	ck_assert_int_eq(errno, EBUSY);
	ck_assert_ptr_nonnull(
		strstr(sgp_errmsg(), "2 more puts than gets of chunks of 4096 bytes"));
	for (int i = 2; i < 10000; i++)
		ck_assert_int_eq(giver(chunk), 0);
	ck_assert_int_eq(sgp_pool_destroy(pool), -1);
	ck_assert_int_eq(errno, EBUSY);
	ck_assert_ptr_nonnull(
		strstr(sgp_errmsg(), "10000 more puts than gets of chunks of 4096 bytes"));

	/* They are no reason to let go of what is held. */
	chunk = sgp_pool_get(pool, 4096, 0);
	ck_assert_ptr_nonnull(chunk);
	ck_assert_int_eq(sgp_pool_destroy(pool), -1);
	ck_assert_int_eq(errno, EBUSY);
	ck_assert_ptr_nonnull(strstr(sgp_errmsg(), "1 chunk of 4096 bytes is still held"));
	sgp_chunk_put(chunk);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("findings");
	TCase *tc = mistakes_case("findings", NULL, 0);

	tcase_add_test(tc, test_leaks_are_named);
	tcase_add_test(tc, test_counts);
	tcase_add_test(tc, test_ordinary_pools_beside);
	tcase_add_test_raise_signal(tc, test_environment_aborts, SIGABRT);
	tcase_add_test(tc, test_environment_forbids);
	tcase_add_test(tc, test_second_puts_are_told_at_the_end);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
