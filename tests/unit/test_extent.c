/* SPDX-License-Identifier: BSD-2-Clause */
/* Regions that are not cut into chunks: made, described, found by address, ended; and no half ones. */
#include <errno.h>
#include <string.h>

#include "../suite.h"
#include "pool/extent.h"
#include "pool_rig.h"

#define MIB ((size_t)1 << 20)

static struct sgp_chunk *at_2m(struct sgp_owner *owner, const void *addr);
static struct sgp_chunk described;
static int released;

static void release(struct sgp_chunk *chunk)
{
	ck_assert_ptr_eq(chunk, &described);
	released++;
}

static const struct sgp_owner_kind kind = {.release = release, .find = at_2m};

/* The one chunk: what lies 2 MiB into the extent. */
static struct sgp_chunk *at_2m(struct sgp_owner *owner, const void *addr)
{
	size_t off = (size_t)((const char *)addr - owner->region.piece.addr);

	ck_assert_uint_lt(off, owner->region.piece.bytes);
	return off >= 2 * MIB && off < 2 * MIB + 100 ? &described : NULL;
}

/* A pool that has addresses only. */
static struct sgp_pool *bare_pool(size_t max_bytes, enum sgp_pages pages)
{
	struct sgp_pool_attr attr = {
		.max_bytes = max_bytes, .region_bytes = 8 * MIB, .pages = pages};
	struct sgp_pool *pool = sgp_pool_create(rig_pd, &attr);

	ck_assert_msg(pool != NULL, "%s", sgp_errmsg());
	return pool;
}

START_TEST(test_made_and_ended)
{
	struct sgp_pool *pool = bare_pool(32 * MIB, SGP_PAGES_BASE);
	struct sgp_extent e[3];
	struct sgp_pool_stats stats;

	ck_assert_uint_eq(sgp_extent_most(pool), 8 * MIB);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(sgp_extent_make(&e[i], pool, 4 * MIB, &kind), 0);
		ck_assert_uint_eq((uintptr_t)e[i].owner.region.piece.addr % SGP_EXTENT_BYTES, 0);
		ck_assert_uint_eq(e[i].owner.region.piece.bytes, 4 * MIB);
		memset(e[i].owner.region.piece.addr, i + 1, 4 * MIB);
	}
	sgp_pool_stats(pool, &stats);
	ck_assert_uint_eq(stats.bytes_registered, 12 * MIB);
	ck_assert_uint_eq(stats.regions, 3);
	ck_assert_int_eq(sgp_pool_destroy(pool), -1);
	ck_assert_int_eq(errno, EBUSY);
	for (int i = 0; i < 3; i++) {
		const struct sgp_piece *piece = &e[i].owner.region.piece;

		ck_assert_int_eq(piece->addr[0], i + 1);
		ck_assert_int_eq(piece->addr[piece->bytes - 1], i + 1);
	}
	ck_assert_int_eq(sgp_extent_end(&e[1]), 0);
	ck_assert_int_eq(sgp_extent_end(&e[0]), 0);
	/* The addresses serve again, and the memory is zero. */
	ck_assert_int_eq(sgp_extent_make(&e[0], pool, 8 * MIB, &kind), 0);
	ck_assert_int_eq(e[0].owner.region.piece.addr[8 * MIB - 1], 0);
	ck_assert_int_eq(sgp_extent_end(&e[0]), 0);
	ck_assert_int_eq(sgp_extent_end(&e[2]), 0);
	sgp_pool_stats(pool, &stats);
	ck_assert_uint_eq(stats.bytes_registered, 0);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
}
END_TEST

START_TEST(test_chunks_of_an_extent)
{
	struct sgp_class_attr cls = {.size = 4096, .chunks = 8};
	struct sgp_pool_attr attr = {.classes = &cls, .nclasses = 1, .max_bytes = 16 * MIB};
	struct sgp_pool *pool = sgp_pool_create(rig_pd, &attr);
	struct sgp_extent e;
	char *addr;

	ck_assert_msg(pool != NULL, "%s", sgp_errmsg());
	ck_assert_int_eq(sgp_extent_make(&e, pool, 4 * MIB, &kind), 0);
	addr = e.owner.region.piece.addr + 2 * MIB;
	sgp_owner_describe(&e.owner, &described, addr, 100);
	ck_assert_ptr_eq(sgp_pool_chunk_at(pool, addr + 99), &described);
	ck_assert_ptr_null(sgp_pool_chunk_at(pool, addr + 100));
	ck_assert_int_eq(errno, EFAULT);
	ck_assert_ptr_eq(sgp_chunk_pool(&described), pool);
	sgp_chunk_ref(&described);
	sgp_chunk_put(&described);
	ck_assert_int_eq(released, 0);
	sgp_chunk_put(&described);
	ck_assert_int_eq(released, 1);
	rig_check(pool, 0);
	ck_assert_int_eq(sgp_extent_end(&e), 0);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
}
END_TEST

START_TEST(test_refusals)
{
	struct sgp_pool *pool = bare_pool(6 * MIB, SGP_PAGES_BASE);
	struct sgp_extent e, f;

	ck_assert_ptr_null(sgp_pool_get(pool, 64, 0));
	ck_assert_int_eq(errno, EMSGSIZE);
	ck_assert_int_eq(sgp_extent_make(&e, pool, 8 * MIB, &kind), -1);
	ck_assert_int_eq(errno, ENOBUFS);
	sv_fail_nth("reg_mr", 0, ENOMEM);
	ck_assert_int_eq(sgp_extent_make(&e, pool, 4 * MIB, &kind), -1);
	ck_assert_int_eq(errno, ENOMEM);
	rig_fail(RIG_MPROTECT, 0, ENOMEM);
	ck_assert_int_eq(sgp_extent_make(&e, pool, 4 * MIB, &kind), -1);
	ck_assert_int_eq(errno, ENOMEM);
	ck_assert_int_eq(sgp_extent_make(&e, pool, 4 * MIB, &kind), 0);
	ck_assert_int_eq(sgp_extent_make(&f, pool, 4 * MIB, &kind), -1);
	ck_assert_int_eq(errno, ENOBUFS);
	sv_fail_nth("dereg_mr", 0, EBUSY);
	ck_assert_int_eq(sgp_extent_end(&e), -1);
	ck_assert_int_eq(errno, EBUSY);
	memset(e.owner.region.piece.addr, 1, 4 * MIB);
	ck_assert_int_eq(sgp_extent_end(&e), 0);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("extent");
	TCase *tc = tcase_create("extent");

	suite_add_tcase(suite, tc);
	tcase_add_checked_fixture(tc, rig_setup, rig_teardown);
	tcase_add_test(tc, test_made_and_ended);
	tcase_add_test(tc, test_chunks_of_an_extent);
	tcase_add_test(tc, test_refusals);
	return suite_run(suite);
}
