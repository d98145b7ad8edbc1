/* SPDX-License-Identifier: BSD-2-Clause */
/* Protection domains that come to a pool and go: keys, all or nothing, limits, failures. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../suite.h"
#include "pool/chunk.h"
#include "pool_rig.h"
#include "sgp_config.h"
#include "sgpool/sgl.h"

#define PAGE   4096
#define EXTRA  4 /* domains besides the first: two on a device of their own */
#define CHUNKS 8 /* a region each */

static struct ibv_context *verbs[2];
static struct ibv_pd *pd[EXTRA];
static struct sgp_pool *pool;

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;

	for (int i = 0; list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			context = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	ck_assert_ptr_nonnull(context);
	return context;
}

/* A pool whose regions are of one chunk each. */
static struct sgp_pool *make_pool(size_t chunks, size_t max_chunks, uint32_t flags)
{
	struct sgp_class_attr cls = {.size = PAGE, .chunks = chunks, .max_chunks = max_chunks};
	struct sgp_pool_attr attr = {.classes = &cls,
				     .nclasses = 1,
				     .pages = SGP_PAGES_BASE,
				     .region_bytes = PAGE,
				     .flags = flags};

	return sgp_pool_create(rig_pd, &attr);
}

static void setup(void)
{
	rig_setup();
	ck_assert_int_eq(sv_device_add("soft1", "soft", 1), 0);
	verbs[0] = open_device("soft0");
	verbs[1] = open_device("soft1");
	for (int i = 0; i < EXTRA; i++) {
		pd[i] = ibv_alloc_pd(verbs[i < 2]);
		ck_assert_ptr_nonnull(pd[i]);
	}
	pool = make_pool(CHUNKS, 2 * CHUNKS, 0);
	ck_assert_msg(pool != NULL, "%s", sgp_errmsg());
	ck_assert_int_eq(sv_live(SV_MRS), CHUNKS);
}

static void teardown(void)
{
	rig_check(pool, 0);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
	for (int i = 0; i < EXTRA; i++)
		ck_assert_int_eq(ibv_dealloc_pd(pd[i]), 0);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(ibv_close_device(verbs[i]), 0);
	rig_teardown();
}

static void expect_regions(uint64_t regions, int domains)
{
	struct sgp_pool_stats stats;

	ck_assert_int_eq(sgp_pool_stats(pool, &stats), 0);
	ck_assert_uint_eq(stats.regions, regions);
	ck_assert_uint_eq(stats.bytes_registered, regions * PAGE);
	ck_assert_uint_eq(stats.registrations - stats.deregistrations, regions * (uint64_t)domains);
	ck_assert_int_eq(sv_live(SV_MRS), (int)regions * domains);
}

/* The chunk's keys on a domain are those of a registration there, that has the chunk in it. */
static void expect_keys(const struct sgp_chunk *chunk, struct ibv_pd *on)
{
	const struct ibv_mr *mr = sgp_chunk_mr_on(chunk, sgp_pd_find(on));
	uint32_t lkey, rkey;

	ck_assert_int_eq(sgp_chunk_keys(chunk, on, &lkey, &rkey), 0);
	ck_assert_ptr_nonnull(mr);
	ck_assert_ptr_eq(mr->pd, on);
	ck_assert_uint_eq(mr->lkey, lkey);
	ck_assert_uint_eq(mr->rkey, rkey);
	ck_assert_ptr_eq(mr->addr, sgp_chunk_addr(chunk));
}

static void expect_no_keys(const struct sgp_chunk *chunk, struct ibv_pd *on)
{
	uint32_t lkey = 7;

	ck_assert_int_eq(sgp_chunk_keys(chunk, on, &lkey, NULL), -1);
	ck_assert_int_eq(errno, EXDEV);
	ck_assert_uint_eq(lkey, 7);
}

START_TEST(test_add_and_remove)
{
	struct sgp_chunk *chunk = sgp_pool_get(pool, 1, 0), *late;

	for (int i = 0; i < EXTRA; i++) {
		expect_no_keys(chunk, pd[i]);
		ck_assert_msg(!sgp_pool_add_pd(pool, pd[i]), "%s", sgp_errmsg());
		expect_regions(CHUNKS, i + 2);
		expect_keys(chunk, pd[i]);
	}
	expect_keys(chunk, rig_pd);
	ck_assert_uint_eq(sgp_chunk_lkey(chunk), sgp_chunk_mr_on(chunk, pool->reg.first)->lkey);
	/* Growth is on all of them, and a trim too. */
	ck_assert_int_eq(sgp_pool_grow(pool, 1, CHUNKS), 0);
	expect_regions(2 * CHUNKS, EXTRA + 1);
	late = sgp_pool_get(pool, 1, 0);
	for (int i = 0; i < EXTRA; i++)
		expect_keys(late, pd[i]);
	rig_check(pool, 2);
	ck_assert_int_eq(sgp_pool_trim(pool, 0, 0), 0);
	expect_regions(2, EXTRA + 1);
	for (int i = 0; i < EXTRA; i++) {
		ck_assert_msg(!sgp_pool_remove_pd(pool, pd[i]), "%s", sgp_errmsg());
		expect_no_keys(chunk, pd[i]);
		expect_regions(2, EXTRA - i);
	}
	expect_keys(chunk, rig_pd);
	sgp_chunk_put(late);
	sgp_chunk_put(chunk);
}
END_TEST

START_TEST(test_refusals)
{
	ck_assert_int_eq(sgp_pool_add_pd(pool, rig_pd), -1);
	ck_assert_int_eq(errno, EEXIST);
	ck_assert_int_eq(sgp_pool_add_pd(pool, NULL), -1);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(sgp_pool_add_pd(NULL, pd[0]), -1);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(sgp_pool_remove_pd(pool, pd[0]), -1);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(sgp_pool_remove_pd(pool, NULL), -1);
	ck_assert_int_eq(errno, EINVAL);
	sv_fail_nth("query_device", 0, EIO);
	ck_assert_int_eq(sgp_pool_add_pd(pool, pd[0]), -1);
	ck_assert_int_eq(errno, EIO);
	expect_regions(CHUNKS, 1);
}
END_TEST

/* A device that takes shorter regions than there are, or than the longest chunk needs. */
START_TEST(test_max_mr_size)
{
	struct sgp_class_attr cls = {.size = PAGE, .chunks = 64, .max_chunks = 256};
	struct sgp_pool_attr attr = {.classes = &cls, .nclasses = 1, .pages = SGP_PAGES_BASE};
	struct sgp_pool *large;
	struct sgp_pool_stats stats;

	ck_assert_int_eq(sv_set("soft1", "max_mr_size", PAGE - 1), 0);
	ck_assert_int_eq(sgp_pool_add_pd(pool, pd[0]), -1);
	ck_assert_int_eq(errno, EOPNOTSUPP);
	ck_assert_ptr_nonnull(strstr(sgp_errmsg(), "max_mr_size"));
	expect_regions(CHUNKS, 1);
	ck_assert_int_eq(sv_set("soft1", "max_mr_size", PAGE), 0);
	ck_assert_int_eq(sgp_pool_add_pd(pool, pd[0]), 0);
	expect_regions(CHUNKS, 2);

	large = sgp_pool_create(rig_pd, &attr);
	ck_assert_msg(large != NULL, "%s", sgp_errmsg());
	ck_assert_int_eq(sgp_pool_stats(large, &stats), 0);
	ck_assert_uint_eq(stats.regions, 1);
	ck_assert_int_eq(sv_set("soft1", "max_mr_size", stats.bytes_registered - 1), 0);
	ck_assert_int_eq(sgp_pool_add_pd(large, pd[0]), -1);
	ck_assert_int_eq(errno, EOPNOTSUPP);
	/* A smaller one that is long enough for what there is: growth heeds it from now on. */
	ck_assert_int_eq(sv_set("soft1", "max_mr_size", stats.bytes_registered), 0);
	ck_assert_int_eq(sgp_pool_add_pd(large, pd[0]), 0);
	ck_assert_msg(!sgp_pool_grow(large, 1, 192), "%s", sgp_errmsg());
	ck_assert_int_eq(sgp_pool_stats(large, &stats), 0);
	ck_assert_uint_ge(stats.regions, 4);
	ck_assert_int_eq(sgp_pool_destroy(large), 0);
	ck_assert_int_eq(sgp_pool_remove_pd(pool, pd[0]), 0);
}
END_TEST

START_TEST(test_windows_needed)
{
	struct sgp_pool *with = make_pool(1, 1, SGP_POOL_WINDOWS);

	if (!SGP_HAVE_WINDOWS) {
		ck_assert_ptr_null(with);
		ck_assert_int_eq(errno, EOPNOTSUPP);
		return;
	}
	ck_assert_msg(with != NULL, "%s", sgp_errmsg());
	ck_assert_int_eq(sv_set("soft1", "max_mw", 0), 0);
	ck_assert_int_eq(sgp_pool_add_pd(with, pd[0]), -1);
	ck_assert_int_eq(errno, EOPNOTSUPP);
	ck_assert_int_eq(sgp_pool_add_pd(with, pd[2]), 0);
	ck_assert_int_eq(sgp_pool_destroy(with), 0);
}
END_TEST

/* An add that fails at region k, for every k: exactly what was done is undone. */
/*
 * A domain may come whose device writes a READ's data as a peer would (iWARP): then too a chunk that
 * was free is its owner's from its get on. Under AddressSanitizer a memset of it tells.
 */
START_TEST(test_sinks_of_reads_come_later)
{
	struct sgp_pool *sinks = make_pool(4, 4, SGP_POOL_READ_SINK);
	struct sgp_chunk *chunk[4];

	ck_assert_msg(sinks != NULL, "%s", sgp_errmsg());
	chunk[0] = sgp_pool_get(sinks, PAGE, 0);
	ck_assert_int_eq(sgp_chunk_access(chunk[0]) & IBV_ACCESS_REMOTE_WRITE, 0);
	verbs[1]->device->transport_type = IBV_TRANSPORT_IWARP;
	ck_assert_msg(!sgp_pool_add_pd(sinks, pd[0]), "%s", sgp_errmsg());
	ck_assert(sgp_chunk_access(chunk[0]) & IBV_ACCESS_REMOTE_WRITE);
	chunk[1] = sgp_pool_get(sinks, PAGE, 0);
	ck_assert_int_eq(sgp_pool_get_bulk(sinks, PAGE, 0, chunk + 2, 2), 0);
	for (int i = 0; i < 4; i++)
		memset(sgp_chunk_addr(chunk[i]), i, PAGE);
	sgp_chunk_put_bulk(chunk, 4);
	ck_assert_int_eq(sgp_pool_get_bulk(sinks, PAGE, 0, chunk, 4), 0);
	for (int i = 0; i < 4; i++)
		memset(sgp_chunk_addr(chunk[i]), i, PAGE);
	sgp_chunk_put_bulk(chunk, 4);
	ck_assert_int_eq(sgp_pool_destroy(sinks), 0);
}
END_TEST

START_TEST(test_add_fails_at_each_region)
{
	struct sgp_chunk *chunk = sgp_pool_get(pool, 1, 0);
	uint32_t lkey = sgp_chunk_lkey(chunk);
	int k, ret;

	for (k = 0;; k++) {
		sv_fail_nth("reg_mr", (uint64_t)k, ENOMEM);
		ret = sgp_pool_add_pd(pool, pd[0]);
		if (!sv_failed("reg_mr"))
			break;
		ck_assert_int_eq(ret, -1);
		ck_assert_int_eq(errno, ENOMEM);
		expect_regions(CHUNKS, 1);
		expect_no_keys(chunk, pd[0]);
		expect_keys(chunk, rig_pd);
		ck_assert_uint_eq(sgp_chunk_lkey(chunk), lkey);
		ck_assert_int_eq(sgp_pool_remove_pd(pool, pd[0]), -1);
		ck_assert_int_eq(errno, EINVAL);
	}
	ck_assert_int_eq(k, CHUNKS);
	ck_assert_int_eq(ret, 0);
	sv_fail_nth("reg_mr", 0, 0);
	expect_regions(CHUNKS, 2);
	expect_keys(chunk, pd[0]);
	sgp_chunk_put(chunk);
}
END_TEST

/* The same, and the undoing fails as well: the rest is taken up by the next call. */
START_TEST(test_add_fails_twice)
{
	sv_fail_nth("reg_mr", 3, ENOMEM);
	sv_fail_nth("dereg_mr", 1, EIO);
	ck_assert_int_eq(sgp_pool_add_pd(pool, pd[0]), -1);
	ck_assert_int_eq(errno, ENOMEM);
	ck_assert_int_eq(sv_live(SV_MRS), CHUNKS + 1);
	/* It goes on, and new regions are not on the half domain. */
	ck_assert_int_eq(sgp_pool_grow(pool, 1, 1), 0);
	ck_assert_int_eq(sv_live(SV_MRS), CHUNKS + 2);
	ck_assert_int_eq(sgp_pool_add_pd(pool, pd[0]), 0);
	expect_regions(CHUNKS + 1, 2);
}
END_TEST

/* Growth by several regions that fails at domain k of region i, for all of these. */
START_TEST(test_growth_fails_at_each_domain)
{
	int k, ret;

	for (int i = 0; i < EXTRA; i++)
		ck_assert_int_eq(sgp_pool_add_pd(pool, pd[i]), 0);
	for (k = 0;; k++) {
		sv_fail_nth("reg_mr", (uint64_t)k, ENOMEM);
		ret = sgp_pool_grow(pool, 1, 3);
		if (!sv_failed("reg_mr"))
			break;
		ck_assert_int_eq(ret, -1);
		ck_assert_int_eq(errno, ENOMEM);
		expect_regions(CHUNKS, EXTRA + 1);
		rig_check(pool, 0);
	}
	sv_fail_nth("reg_mr", 0, 0);
	ck_assert_int_eq(k, 3 * (EXTRA + 1));
	ck_assert_int_eq(ret, 0);
	expect_regions(CHUNKS + 3, EXTRA + 1);
}
END_TEST

/* The device keeps registration k: no list goes there, and the call can be made again. */
START_TEST(test_remove_fails_at_each_region)
{
	struct sgp_chunk *chunk = sgp_pool_get(pool, 1, 0);

	for (int k = 0; k < CHUNKS; k++) {
		ck_assert_int_eq(sgp_pool_add_pd(pool, pd[0]), 0);
		sv_fail_nth("dereg_mr", (uint64_t)k, EIO);
		ck_assert_int_eq(sgp_pool_remove_pd(pool, pd[0]), -1);
		ck_assert_int_eq(errno, EIO);
		ck_assert_int_eq(sv_live(SV_MRS), CHUNKS + 1);
		expect_no_keys(chunk, pd[0]);
		expect_keys(chunk, rig_pd);
		ck_assert_int_eq(sgp_pool_remove_pd(pool, pd[0]), 0);
		expect_regions(CHUNKS, 1);
		ck_assert_int_eq(sgp_pool_remove_pd(pool, pd[0]), -1);
		ck_assert_int_eq(errno, EINVAL);
	}
	sgp_chunk_put(chunk);
}
END_TEST

/* A region's end that fails at domain k: it is put back on all of them, with good keys. */
START_TEST(test_trim_fails_at_each_domain)
{
	for (int i = 0; i < EXTRA; i++)
		ck_assert_int_eq(sgp_pool_add_pd(pool, pd[i]), 0);
	for (int k = 0; k <= EXTRA; k++) {
		struct sgp_chunk *chunk;
		SGP_SGL(sgl, 1);

		ck_assert_int_eq(sgp_pool_trim(pool, 0, 1), 0);
		sv_fail_nth("dereg_mr", (uint64_t)k, EBUSY);
		ck_assert_int_eq(sgp_pool_trim(pool, 0, 0), -1);
		ck_assert_int_eq(errno, EBUSY);
		expect_regions(1, EXTRA + 1);
		chunk = sgp_pool_get(pool, 1, 0);
		ck_assert_ptr_nonnull(chunk);
		for (int i = 0; i < EXTRA; i++)
			expect_keys(chunk, pd[i]);
		expect_keys(chunk, rig_pd);
		ck_assert_uint_eq(sgp_chunk_lkey(chunk), sgp_chunk_lkey_on(chunk, pool->reg.first));
		/* Where the descriptor's key is not good any more, the list says so. */
		ck_assert_int_eq(sgp_sgl_append(&sgl, chunk, 0, PAGE), 0);
		if (sgl.keys)
			ck_assert_uint_eq(sgl.sge[0].lkey, sgp_chunk_lkey(chunk));
		sgp_sgl_clear(&sgl);
		rig_check(pool, 0);
	}
	/* Nor can it be registered again: then it is set aside, and goes with the next trim. */
	sv_fail_nth("dereg_mr", 1, EBUSY);
	sv_fail_nth("reg_mr", 0, ENOMEM);
	ck_assert_int_eq(sgp_pool_trim(pool, 0, 0), -1);
	ck_assert_int_eq(errno, EBUSY);
	ck_assert_ptr_null(sgp_pool_get(pool, 1, 0));
	ck_assert_int_eq(errno, ENOBUFS);
	ck_assert_int_eq(sgp_pool_grow(pool, 1, 1), 0);
	rig_check(pool, 0);
	ck_assert_int_eq(sgp_pool_trim(pool, 0, 0), 0);
	expect_regions(0, EXTRA + 1);
}
END_TEST

/* The first domain goes, then all, and one comes back: the device was replaced. */
START_TEST(test_first_and_last_go)
{
	struct sgp_chunk *chunk = sgp_pool_get(pool, 1, 0), *late;
	SGP_SGL(sgl, 2);

	ck_assert_int_eq(sgp_pool_add_pd(pool, pd[0]), 0);
	ck_assert_int_eq(sgp_pool_add_pd(pool, pd[2]), 0);
	ck_assert_int_eq(sgp_pool_remove_pd(pool, rig_pd), 0);
	expect_regions(CHUNKS, 2);
	expect_no_keys(chunk, rig_pd);
	expect_keys(chunk, pd[0]);
	ck_assert_uint_eq(sgp_chunk_lkey(chunk), sgp_chunk_mr_on(chunk, sgp_pd_find(pd[0]))->lkey);
	ck_assert_uint_eq(sgp_chunk_rkey(chunk), sgp_chunk_mr_on(chunk, sgp_pd_find(pd[0]))->rkey);
	ck_assert_int_eq(sgp_pool_grow(pool, 1, 1), 0);
	ck_assert_int_eq(sgp_pool_remove_pd(pool, pd[0]), 0);
	ck_assert_uint_eq(sgp_chunk_lkey(chunk), sgp_chunk_mr_on(chunk, sgp_pd_find(pd[2]))->lkey);
	ck_assert_int_eq(sgp_pool_remove_pd(pool, pd[2]), 0);
	expect_regions(CHUNKS + 1, 0);
	/* Memory all the same, which can't be posted. */
	ck_assert_int_eq(sgp_pool_grow(pool, 1, 1), 0);
	memset(sgp_chunk_addr(chunk), 1, PAGE);
	ck_assert_uint_eq(sgp_chunk_lkey(chunk), 0);
	ck_assert_uint_eq(sgp_chunk_rkey(chunk), 0);
	sgp_chunk_ref(chunk);
	ck_assert_int_eq(sgp_sgl_append(&sgl, chunk, 0, PAGE), 0);
	sgp_sgl_clear(&sgl);
	late = sgp_pool_get(pool, 1, 0);
	ck_assert_ptr_nonnull(late);
	ck_assert_int_eq(sgp_pool_add_pd(pool, pd[1]), 0);
	expect_regions(CHUNKS + 2, 1);
	expect_keys(chunk, pd[1]);
	expect_keys(late, pd[1]);
	ck_assert_uint_eq(sgp_chunk_lkey(late), sgp_chunk_mr_on(late, sgp_pd_find(pd[1]))->lkey);
	ck_assert_int_eq(sgp_sgl_append(&sgl, chunk, 0, PAGE), 0);
	ck_assert_int_eq(sgp_sgl_append(&sgl, late, 0, PAGE), 0);
	sgp_sgl_clear(&sgl);
}
END_TEST

/* More domains, one after the other, than there are indices. */
START_TEST(test_many_in_turn)
{
	struct ibv_pd *one;

	for (int i = 0; i < 3 * SGP_MAX_PDS; i++) {
		one = ibv_alloc_pd(verbs[i % 2]);
		ck_assert_msg(!sgp_pool_add_pd(pool, one), "%s", sgp_errmsg());
		ck_assert_int_eq(sgp_pool_remove_pd(pool, one), 0);
		ck_assert_int_eq(ibv_dealloc_pd(one), 0);
	}
	expect_regions(CHUNKS, 1);
}
END_TEST

START_TEST(test_64_at_once)
{
	struct ibv_pd *many[SGP_MAX_PDS];
	int n = 0;

	for (; n < SGP_MAX_PDS; n++) {
		many[n] = ibv_alloc_pd(verbs[0]);
		if (sgp_pool_add_pd(pool, many[n]))
			break;
	}
	ck_assert_int_eq(errno, ENOSPC);
	ck_assert_int_eq(n, SGP_MAX_PDS - 1);
	expect_regions(CHUNKS, SGP_MAX_PDS);
	for (int i = 0; i <= n; i++) {
		if (i < n)
			ck_assert_int_eq(sgp_pool_remove_pd(pool, many[i]), 0);
		ck_assert_int_eq(ibv_dealloc_pd(many[i]), 0);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("protection domains");
	TCase *tc = tcase_create("pool");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_add_and_remove);
	tcase_add_test(tc, test_refusals);
	tcase_add_test(tc, test_max_mr_size);
	tcase_add_test(tc, test_windows_needed);
	tcase_add_test(tc, test_sinks_of_reads_come_later);
	tcase_add_test(tc, test_add_fails_at_each_region);
	tcase_add_test(tc, test_add_fails_twice);
	tcase_add_test(tc, test_growth_fails_at_each_domain);
	tcase_add_test(tc, test_remove_fails_at_each_region);
	tcase_add_test(tc, test_trim_fails_at_each_domain);
	tcase_add_test(tc, test_first_and_last_go);
	tcase_add_test(tc, test_many_in_turn);
	tcase_add_test(tc, test_64_at_once);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
