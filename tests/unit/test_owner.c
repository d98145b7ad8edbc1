/* SPDX-License-Identifier: BSD-2-Clause */
/* Chunks that are not a slab's: held by lists as any other, released by their owner's kind. */
#include <errno.h>
#include <stdlib.h>

#include "../suite.h"
#include "pool/known.h"
#include "pool_rig.h"
#include "sgpool/sgl.h"

#define N 4

static struct sgp_chunk *released[16];
static int nreleased;

static void release(struct sgp_chunk *chunk)
{
	released[nreleased++] = chunk;
	errno = EXDEV; /* which nobody may see */
}

static const struct sgp_owner_kind kind = {.release = release};
static struct sgp_owner owner;
static struct sgp_chunk chunk[N];
static _Alignas(4096) char memory[N * 4096];
static struct sgp_pool *pool;

static void setup(void)
{
	rig_setup();
	pool = rig_pool(4096, 8, 8);
	owner.kind = &kind;
	owner.pool = pool;
	sgp_region_init(&owner.region);
	owner.region.piece = (struct sgp_piece){.addr = memory, .bytes = sizeof memory};
	ck_assert_int_eq(sgp_region_register(&owner.region, &pool->reg), 0);
	sgp_known_add(&owner);
	for (int i = 0; i < N; i++)
		sgp_owner_describe(&owner, &chunk[i], memory + i * 4096, 4096);
	nreleased = 0;
}

static void teardown(void)
{
	sgp_known_remove(&owner);
	ck_assert_int_eq(sgp_region_end(&owner.region, NULL, &pool->reg), 0);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
	rig_teardown();
}

START_TEST(test_last_put_releases)
{
	ck_assert_ptr_eq(sgp_chunk_addr(&chunk[0]), memory);
	ck_assert_uint_eq(sgp_chunk_size(&chunk[0]), 4096);
	ck_assert_uint_eq(sgp_chunk_lkey(&chunk[0]), owner.region.mr[pool->reg.first]->lkey);
	ck_assert_uint_eq(sgp_chunk_rkey(&chunk[0]), owner.region.mr[pool->reg.first]->rkey);
	ck_assert_ptr_eq(sgp_chunk_pool(&chunk[0]), pool);
	/* The thread's magazine is open, and takes the pool's chunks; not these. */
	sgp_chunk_put(sgp_pool_get(pool, 1, 0));
	sgp_chunk_ref(&chunk[0]);
	ck_assert(sgp_chunk_is_shared(&chunk[0]));
	sgp_chunk_put(&chunk[0]);
	ck_assert(!sgp_chunk_is_shared(&chunk[0]));
	ck_assert_int_eq(nreleased, 0);
	errno = 0;
	sgp_chunk_put(&chunk[0]);
	ck_assert_int_eq(errno, 0);
	ck_assert_int_eq(nreleased, 1);
	ck_assert_ptr_eq(released[0], &chunk[0]);
	(sgp_chunk_put)(&chunk[1]);
	ck_assert_int_eq(nreleased, 2);
	ck_assert_ptr_eq(released[1], &chunk[1]);
	rig_check(pool, 0);
}
END_TEST

/* In one list with the pool's own, and in a clone of it. */
START_TEST(test_in_lists)
{
	SGP_SGL(list, 8);
	SGP_SGL(twin, 8);
	struct sgp_chunk *own[2];

	ck_assert_int_eq(sgp_pool_get_bulk(pool, 4096, 0, own, 2), 0);
	ck_assert_int_eq(sgp_sgl_append(&list, own[0], 0, 4096), 0);
	ck_assert_int_eq(sgp_sgl_append(&list, &chunk[0], 8, 4088), 0);
	ck_assert_int_eq(sgp_sgl_append(&list, &chunk[1], 0, 16), 0);
	ck_assert_int_eq(sgp_sgl_append(&list, own[1], 0, 4096), 0);
	/* The two are neighbours in one region. */
	ck_assert_int_eq(list.num_sge, 3);
	ck_assert_uint_eq(list.sge[1].lkey, owner.region.mr[pool->reg.first]->lkey);
	ck_assert_uint_eq(list.sge[1].length, 4104);
	ck_assert_int_eq(sgp_sgl_clone(&twin, &list), 0);
	sgp_sgl_clear(&list);
	ck_assert_int_eq(nreleased, 0);
	rig_check(pool, 2);
	sgp_sgl_clear(&twin);
	ck_assert_int_eq(nreleased, 2);
	ck_assert_ptr_eq(released[0], &chunk[0]);
	ck_assert_ptr_eq(released[1], &chunk[1]);
	rig_check(pool, 0);
}
END_TEST

/* Whatever the order in which they stand among others. */
START_TEST(test_put_bulk)
{
	for (unsigned int order = 0; order < 1u << 8; order++) {
		struct sgp_chunk *mixed[8];
		int others = 0;

		if (__builtin_popcount(order) > N)
			continue;
		nreleased = 0;
		for (unsigned int i = 0; i < 8; i++) {
			mixed[i] = order >> i & 1 ? &chunk[others++] : sgp_pool_get(pool, 1, 0);
			ck_assert_ptr_nonnull(mixed[i]);
		}
		sgp_chunk_put_bulk(mixed, 8);
		ck_assert_int_eq(nreleased, others);
		for (int i = 0; i < others; i++)
			ck_assert_ptr_eq(released[i], &chunk[i]);
		rig_check(pool, 0);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("owner");
	TCase *tc = tcase_create("owner");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_last_put_releases);
	tcase_add_test(tc, test_in_lists);
	tcase_add_test(tc, test_put_bulk);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
