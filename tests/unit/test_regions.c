/* SPDX-License-Identifier: BSD-2-Clause */
/* Those who are told of a pool's regions; and relaxed ordering. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../suite.h"
#include "import_rig.h"
#include "pool/chunk.h"
#include "sgp_config.h"

START_TEST(test_told_of_all)
{
	char *mem = anonymous(PAGE);
	struct sgp_import *imp;

	ck_assert_int_eq(told.added, 2); /* the creation's */
	for (int i = 0; i < told.added; i++) {
		ck_assert_uint_eq(told.info[i].bytes, PAGE);
		ck_assert_uint_eq(told.info[i].page_size, PAGE);
		ck_assert_ptr_null(told.info[i].import);
		ck_assert_int_eq(told.info[i].mapped, 1);
		ck_assert_int_eq(told.mrs[i], i + 1); /* after its registration */
	}
	ck_assert_int_eq(sgp_pool_grow(pool, 1, 3), 0);
	ck_assert_int_eq(told.added, 5);
	imp = import(mem, 100, 0);
	ck_assert_int_eq(told.added, 6);
	ck_assert_ptr_eq(told.info[5].import, imp);
	ck_assert_ptr_eq(told.info[5].addr, mem);
	ck_assert_uint_eq(told.info[5].bytes, 100);
	/* A domain more is no region more. */
	ck_assert_int_eq(sgp_pool_add_pd(pool, second), 0);
	ck_assert_int_eq(sgp_pool_remove_pd(pool, second), 0);
	ck_assert_int_eq(told.added, 6);
	ck_assert_int_eq(told.removed, 0);
	ck_assert_int_eq(sgp_pool_unimport(pool, imp), 0);
	ck_assert_int_eq(told.removed, 1);
	ck_assert_int_eq(told.mrs[5], 6); /* before its end */
	ck_assert_int_eq(sgp_pool_trim(pool, 0, 0), 0);
	ck_assert_int_eq(told.removed, 6);
	munmap(mem, PAGE);
}
END_TEST

/* Who is told refuses region k of a growth: none of it is left, and those that came are taken back. */
START_TEST(test_refused_growth)
{
	char *mem = anonymous(PAGE);

	for (int k = 0; k < 3; k++) {
		int added = told.added, removed = told.removed;

		told.refuse = added + k;
		ck_assert_int_eq(sgp_pool_grow(pool, 1, 3), -1);
		ck_assert_int_eq(errno, EDQUOT);
		ck_assert_int_eq(told.added - added, k);
		ck_assert_int_eq(told.removed - removed, k);
		ck_assert_int_eq(sv_live(SV_MRS), 2);
		rig_check(pool, 0);
	}
	told.refuse = told.added;
	ck_assert_ptr_null(import(mem, PAGE, 0));
	ck_assert_int_eq(errno, EDQUOT);
	ck_assert_int_eq(sv_live(SV_MRS), 2);
	munmap(mem, PAGE);
	/* At the creation too. */
	told.refuse = told.added + 1;
	ck_assert_ptr_null(make_pool(0));
	ck_assert_int_eq(errno, EDQUOT);
	ck_assert_int_eq(sv_live(SV_MRS), 2);
}
END_TEST

/* A region that could not go is told of again. */
START_TEST(test_told_again)
{
	int added = told.added;

	sv_fail_nth("dereg_mr", 0, EBUSY);
	ck_assert_int_eq(sgp_pool_trim(pool, 0, 1), -1);
	ck_assert_int_eq(told.removed, 1);
	ck_assert_int_eq(told.added, added + 1);
	rig_check(pool, 0);
	/* And if it is refused then, its chunks stay out of use. */
	sv_fail_nth("dereg_mr", 0, EBUSY);
	told.refuse = told.added;
	ck_assert_int_eq(sgp_pool_trim(pool, 0, 1), -1);
	ck_assert_int_eq(told.removed, 2);
	rig_check(pool, 0);
	ck_assert_int_eq(sgp_pool_trim(pool, 0, 1), 0);
}
END_TEST

START_TEST(test_relaxed_ordering)
{
	struct sgp_pool *relaxed = make_pool(SGP_POOL_RELAXED_ORDERING);
	struct sgp_chunk *chunk;

	ck_assert_msg(relaxed != NULL, "%s", sgp_errmsg());
	chunk = sgp_pool_get(relaxed, 1, 0);
	ck_assert_uint_eq(
		sw_outer(sgp_chunk_mr_on(chunk, relaxed->reg.first), struct sw_mr, ibv)->access,
		IBV_ACCESS_LOCAL_WRITE |
			(SGP_HAVE_RELAXED_ORDERING ? IBV_ACCESS_RELAXED_ORDERING : 0));
	sgp_chunk_put(chunk);
	ck_assert_int_eq(sgp_pool_destroy(relaxed), 0);
	if (!SGP_HAVE_RELAXED_ORDERING)
		return;
	/* Refused: without it, and it's not asked for again. */
	sv_fail_nth("reg_mr", 0, EOPNOTSUPP);
	relaxed = make_pool(SGP_POOL_RELAXED_ORDERING);
	ck_assert_msg(relaxed != NULL, "%s", sgp_errmsg());
	ck_assert_int_eq(sgp_pool_grow(relaxed, 1, 1), 0);
	for (struct sgp_region *region = relaxed->reg.regions; region; region = region->next)
		ck_assert_uint_eq(
			sw_outer(region->mr[relaxed->reg.first], struct sw_mr, ibv)->access,
			IBV_ACCESS_LOCAL_WRITE);
	ck_assert_int_eq(sgp_pool_destroy(relaxed), 0);
	/* Another failure is one. */
	sv_fail_nth("reg_mr", 0, ENOMEM);
	ck_assert_ptr_null(make_pool(SGP_POOL_RELAXED_ORDERING));
	ck_assert_int_eq(errno, ENOMEM);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("regions");
	TCase *tc = tcase_create("regions");

	tcase_add_checked_fixture(tc, import_setup, import_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_told_of_all);
	tcase_add_test(tc, test_refused_growth);
	tcase_add_test(tc, test_told_again);
	tcase_add_test(tc, test_relaxed_ordering);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
