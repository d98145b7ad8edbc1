/* SPDX-License-Identifier: BSD-2-Clause */
/* What a pool's memory is registered for: what its flags ask for, and nothing else. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../suite.h"
#include "pool/chunk.h"
#include "pool_rig.h"
#include "sgp_config.h"
#include "softverbs/sw.h"

static struct sgp_pool *make(uint32_t flags)
{
	struct sgp_class_attr cls = {.size = 4096, .chunks = 2};
	struct sgp_pool_attr attr = {
		.flags = flags, .classes = &cls, .nclasses = 1, .pages = SGP_PAGES_BASE};

	return sgp_pool_create(rig_pd, &attr);
}

/* The access that the device has noted for the registration of a pool with these flags. */
static unsigned int access_of(uint32_t flags)
{
	struct sgp_pool *pool = make(flags);
	struct sgp_chunk *chunk;
	unsigned int access;
	struct sw_mr *mr;

	ck_assert_msg(pool != NULL, "%s", sgp_errmsg());
	chunk = sgp_pool_get(pool, 1, 0);
	ck_assert_ptr_nonnull(chunk);
	mr = sw_outer(sgp_chunk_mr_on(chunk, chunk->owner->pool->reg.first), struct sw_mr, ibv);
	access = mr->access;
	ck_assert_uint_eq(sgp_chunk_rkey(chunk), mr->ibv.rkey);
	ck_assert_uint_eq(sgp_chunk_lkey(chunk), mr->ibv.lkey);
	/* What a list goes by. */
	ck_assert_uint_eq(sgp_chunk_access(chunk), access | SGP_ACCESS_CPU);
	sgp_chunk_put(chunk);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
	return access;
}

/* Every combination of the flags, on a device that is iWARP or not: case 12. */
static void check_all(bool iwarp)
{
	static const struct {
		uint32_t flag;
		unsigned int access;
	} each[] = {
		{SGP_POOL_REMOTE_READ, IBV_ACCESS_REMOTE_READ},
		{SGP_POOL_REMOTE_WRITE, IBV_ACCESS_REMOTE_WRITE},
		{SGP_POOL_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_ATOMIC},
#if SGP_HAVE_WINDOWS
		{SGP_POOL_WINDOWS, IBV_ACCESS_MW_BIND},
#endif
	};
	const unsigned int n = sizeof each / sizeof *each;

	for (unsigned int set = 0; set < 1u << n; set++) {
		unsigned int want = IBV_ACCESS_LOCAL_WRITE;
		uint32_t flags = 0;

		for (unsigned int i = 0; i < n; i++) {
			if (set & 1u << i) {
				flags |= each[i].flag;
				want |= each[i].access;
			}
		}
		ck_assert_uint_eq(access_of(flags), want);
		if (iwarp)
			want |= IBV_ACCESS_REMOTE_WRITE;
		ck_assert_uint_eq(access_of(flags | SGP_POOL_READ_SINK), want);
	}
}

START_TEST(test_access_is_what_was_asked)
{
	check_all(false);
}
END_TEST

START_TEST(test_access_on_iwarp)
{
	rig_pd->context->device->transport_type = IBV_TRANSPORT_IWARP;
	check_all(true);
}
END_TEST

START_TEST(test_no_windows)
{
	ck_assert_int_eq(sv_set("soft0", "max_mw", 0), 0);
	ck_assert_ptr_null(make(SGP_POOL_WINDOWS));
	ck_assert_int_eq(errno, EOPNOTSUPP);
	ck_assert_ptr_nonnull(strstr(sgp_errmsg(), "windows"));
	ck_assert_uint_eq(access_of(0), IBV_ACCESS_LOCAL_WRITE);
}
END_TEST

START_TEST(test_unknown_flag)
{
	ck_assert_ptr_null(make(1u << 31));
	ck_assert_int_eq(errno, EINVAL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pool access");
	TCase *tc = tcase_create("access");

	tcase_add_checked_fixture(tc, rig_setup, rig_teardown);
	tcase_add_test(tc, test_access_is_what_was_asked);
	tcase_add_test(tc, test_access_on_iwarp);
	tcase_add_test(tc, test_no_windows);
	tcase_add_test(tc, test_unknown_flag);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
