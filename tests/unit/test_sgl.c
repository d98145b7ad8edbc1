/* SPDX-License-Identifier: BSD-2-Clause */
/* The scatter-gather list made: slices, joins, limits, and that a refusal changes nothing. */
#include <check.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "../suite.h"
#include "other_layout.h"
#include "sgl_rig.h"

START_TEST(case_21_adjacent_slices_join_and_gaps_do_not)
{
	SGP_SGL(sgl, 32);
	SGP_SGL(gaps, 16);

	for (int i = 0; i < 8; i++)
		ck_assert_int_eq(add(&sgl, 0, (size_t)i * 512, 512), 0);
	ck_assert_int_eq(sgl.num_sge, 1);
	ck_assert_int_eq(sgl.num_chunk, 8);
	check_sums(&sgl, 4096);
	sgp_sgl_clear(&sgl);
	ck_assert_int_eq(sgl.num_chunk, 0);

	for (int i = 0; i < 16; i++)
		ck_assert_int_eq(add(&gaps, 1, (size_t)i * 72, 64), 0);
	ck_assert_int_eq(add(&gaps, 1, 16 * 72, 64), -1);
	ck_assert_int_eq(errno, E2BIG);
	ck_assert_int_eq(gaps.num_sge, 16);
	ck_assert_int_eq(gaps.num_chunk, 16);
	check_sums(&gaps, 16 * 64);
	sgp_sgl_clear(&gaps);
}
END_TEST

START_TEST(joins_across_chunks_that_are_neighbours)
{
	SGP_SGL(sgl, 4);
	bool adjacent = (char *)sgp_chunk_addr(chunks[0]) + 4096 == sgp_chunk_addr(chunks[1]);

	ck_assert_int_eq(add(&sgl, 0, 0, 4096), 0);
	ck_assert_int_eq(add(&sgl, 1, 0, 4096), 0);
	ck_assert_int_eq(sgl.num_sge, adjacent ? 1 : 2);
	/* Backwards they never join. */
	ck_assert_int_eq(add(&sgl, 0, 0, 100), 0);
	ck_assert_int_eq(sgl.num_sge, adjacent ? 2 : 3);
	check_sums(&sgl, 8292);
	sgp_sgl_clear(&sgl);
}
END_TEST

START_TEST(case_22_zero_lengths_make_no_sge)
{
	SGP_SGL(sgl, 4);

	ck_assert_int_eq(add(&sgl, 0, 0, 0), 0);
	ck_assert_int_eq(add(&sgl, 1, 0, 64), 0);
	ck_assert_int_eq(add(&sgl, 2, 4096, 0), 0);
	ck_assert_int_eq(sgl.num_sge, 1);
	ck_assert_int_eq(sgl.num_chunk, 3);
	check_sums(&sgl, 64);
	sgp_sgl_clear(&sgl);
}
END_TEST

START_TEST(refusals_leave_the_list_alone)
{
	SGP_SGL(sgl, 2);
	struct sgp_sgl before;

	ck_assert_int_eq(add(&sgl, 0, 0, 10), 0);
	before = sgl;
	ck_assert_int_eq(add(&sgl, 1, 4097, 0), -1);
	ck_assert_int_eq(errno, EFAULT);
	ck_assert_int_eq(add(&sgl, 1, 1, 4096), -1);
	ck_assert_int_eq(errno, EFAULT);
	ck_assert_int_eq(add(&sgl, 1, SIZE_MAX, 2), -1);
	ck_assert_int_eq(errno, EFAULT);
	/* case 24: a length is never cut to 32 bits */
	ck_assert_int_eq(add(&sgl, 1, 0, (UINT64_C(1) << 32) + 8), -1);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(sgp_sgl_append(&sgl, NULL, 0, 1), -1);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_mem_eq(&sgl, &before, sizeof sgl);
	ck_assert_int_eq(add(&sgl, 3, 0, 10), 0);
	before = sgl;
	/* Full of holds: not even a slice that would join. */
	ck_assert_int_eq(add(&sgl, 3, 10, 10), -1);
	ck_assert_int_eq(errno, E2BIG);
	ck_assert_mem_eq(&sgl, &before, sizeof sgl);
	sgp_sgl_clear(&sgl);
}
END_TEST

START_TEST(case_27_random_splits_add_up)
{
	unsigned int seed = 27;

	for (int round = 0; round < 100000; round++) {
		SGP_SGL(sgl, 64);
		size_t total = 1 + (size_t)rand_r(&seed) % 8192, left = total, at = 0;

		if (rand_r(&seed) % 4 == 0)
			total = left = 4096 * (1 + (size_t)rand_r(&seed) % 2);
		while (left && sgl.num_chunk < 60) {
			size_t room = 4096 - at % 4096;
			size_t piece = 1 + (size_t)rand_r(&seed) % 2048;

			piece = piece > left ? left : piece;
			piece = piece > room ? room : piece;
			if (add(&sgl, (int)(at / 4096), at % 4096, piece))
				ck_abort_msg("%s", sgp_errmsg());
			at += piece;
			left -= piece;
		}
		check_sums(&sgl, total - left);
		sgp_sgl_clear(&sgl);
	}
}
END_TEST

START_TEST(prepend_is_append_at_the_other_end)
{
	SGP_SGL(sgl, 3);
	struct sgp_sgl before;

	ck_assert_int_eq(add(&sgl, 0, 100, 50), 0);
	sgp_chunk_ref(chunks[0]);
	ck_assert_int_eq(sgp_sgl_prepend(&sgl, chunks[0], 60, 40), 0);
	ck_assert_int_eq(sgl.num_sge, 1); /* joined in front */
	ck_assert_uint_eq(sgl.sge[0].addr, (uintptr_t)sgp_chunk_addr(chunks[0]) + 60);
	sgp_chunk_ref(chunks[5]);
	ck_assert_int_eq(sgp_sgl_prepend(&sgl, chunks[5], 0, 7), 0);
	ck_assert_int_eq(sgl.num_sge, 2);
	ck_assert_ptr_eq(sgl.chunk[0], chunks[5]);
	check_sums(&sgl, 97);
	before = sgl;
	ck_assert_int_eq(sgp_sgl_prepend(&sgl, chunks[6], 0, 7), -1);
	ck_assert_int_eq(errno, E2BIG);
	ck_assert_int_eq(sgp_sgl_prepend(&sgl, chunks[6], 4096, 1), -1);
	ck_assert_int_eq(errno, EFAULT);
	ck_assert_mem_eq(&sgl, &before, sizeof sgl);
	sgp_sgl_clear(&sgl);
}
END_TEST

START_TEST(addresses_find_their_chunks_or_change_nothing)
{
	SGP_SGL(sgl, 4);
	struct sgp_sgl before;
	char *base = sgp_chunk_addr(chunks[0]);
	char outside[64];
	struct iovec iov[3] = {{base + 10, 20}, {NULL, 0}, {base + 30, 10}};
	struct ibv_sge sge[2] = {{(uintptr_t)base, 10, 0}, {(uintptr_t)outside, 10, 0}};

	ck_assert_int_eq(sgp_sgl_append_addr(&sgl, pool, base + 4, 6), 0);
	ck_assert_int_eq(sgp_sgl_append_iov(&sgl, pool, iov, 3), 0);
	ck_assert_int_eq(sgl.num_sge, 1);
	ck_assert_int_eq(sgl.num_chunk, 3);
	before = sgl;
	/* The first of the two would have been joined: that is taken back too. */
	sge[0].addr = (uintptr_t)base + 40;
	ck_assert_int_eq(sgp_sgl_append_sge(&sgl, pool, sge, 2), -1);
	ck_assert_int_eq(errno, EFAULT);
	ck_assert_mem_eq(&sgl, &before, sizeof sgl);
	check_sums(&sgl, 36);
	ck_assert_int_eq(sgp_sgl_append_sge(&sgl, pool, sge, 1), 0);
	ck_assert_int_eq(sgp_sgl_append_addr(&sgl, pool, base + 50, 1), -1);
	ck_assert_int_eq(errno, E2BIG);
	ck_assert_int_eq(sgp_sgl_append_addr(&sgl, pool, outside, 1), -1);
	check_sums(&sgl, 46);
	sgp_sgl_clear(&sgl);
}
END_TEST

START_TEST(a_range_spans_neighbouring_chunks)
{
	SGP_SGL(sgl, 8);
	char *base = sgp_chunk_addr(chunks[0]);

	ck_assert_ptr_eq(sgp_chunk_addr(chunks[1]), base + 4096);
	ck_assert_int_eq(sgp_sgl_append_addr(&sgl, pool, base + 4000, 4096 + 200), 0);
	ck_assert_int_eq(sgl.num_sge, 1);
	ck_assert_int_eq(sgl.num_chunk, 3);
	check_sums(&sgl, 4296);
	sgp_sgl_clear(&sgl);
}
END_TEST

START_TEST(case_14_memory_of_two_registrations_is_two_sges)
{
	/* Regions of one chunk: neighbours in memory, under keys of their own. */
	struct sgp_class_attr class = {.size = 4096, .chunks = 4};
	struct sgp_pool_attr attr = {
		.classes = &class, .nclasses = 1, .pages = SGP_PAGES_BASE, .region_bytes = 4096};
	struct sgp_pool *small = sgp_pool_create(pd, &attr);
	struct sgp_chunk *c[4];
	SGP_SGL(sgl, 4);
	SGP_SGL(one, 1);
	int first = -1;

	ck_assert_msg(small != NULL, "%s", sgp_errmsg());
	ck_assert_int_eq(sgp_pool_get_bulk(small, 4096, 0, c, 4), 0);
	qsort(c, 4, sizeof *c, by_address);
	for (int i = 0; i < 3 && first < 0; i++)
		if ((char *)sgp_chunk_addr(c[i]) + 4096 == sgp_chunk_addr(c[i + 1]))
			first = i;
	ck_assert_int_ge(first, 0);
	ck_assert_int_eq(sgp_sgl_append_addr(&one, small, sgp_chunk_addr(c[first]), 8192), -1);
	ck_assert_int_eq(errno, E2BIG);
	ck_assert_int_eq(one.num_sge + one.num_chunk, 0);
	ck_assert_int_eq(sgp_sgl_append_addr(&sgl, small, sgp_chunk_addr(c[first]), 8192), 0);
	ck_assert_int_eq(sgl.num_sge, 2);
	ck_assert_uint_ne(sgl.sge[0].lkey, sgl.sge[1].lkey);
	check_sums(&sgl, 8192);
	sgp_sgl_clear(&sgl);
	sgp_chunk_put_bulk(c, 4);
	ck_assert_int_eq(sgp_pool_destroy(small), 0);
}
END_TEST

START_TEST(chunks_as_a_list_are_all_or_none)
{
	SGP_SGL(sgl, 8);
	struct sgp_pool_stats stats;

	ck_assert_int_eq(sgp_sgl_get(&sgl, pool, 4096, 1, 0), -1);
	ck_assert_int_eq(errno, ENOBUFS);
	sgp_chunk_put_bulk(chunks, 4);
	ck_assert_int_eq(sgp_sgl_get(&sgl, pool, 4096, 5, 0), -1);
	ck_assert_int_eq(errno, ENOBUFS);
	ck_assert_int_eq(sgp_sgl_get(&sgl, pool, 4096, 9, 0), -1);
	ck_assert_int_eq(errno, E2BIG);
	ck_assert_int_eq(sgp_sgl_get(&sgl, pool, 4097, 1, 0), -1);
	ck_assert_int_eq(errno, EMSGSIZE);
	ck_assert_int_eq(sgl.num_chunk, 0);
	ck_assert_int_eq(sgp_sgl_get(&sgl, pool, 100, 4, 0), 0);
	ck_assert_int_eq(sgl.num_chunk, 4);
	check_sums(&sgl, 400);
	sgp_sgl_clear(&sgl);
	ck_assert_int_eq(sgp_pool_stats(pool, &stats), 0);
	ck_assert_uint_eq(stats.live, NCHUNKS - 4);
	ck_assert_int_eq(sgp_pool_get_bulk(pool, 4096, 0, chunks, 4), 0);
}
END_TEST

/* The list is what appending the same chunks would have made. */
static void check_as_appended(const struct sgp_sgl *taken, size_t size, int n)
{
	SGP_SGL(one_by_one, 16);

	ck_assert_int_eq(taken->num_chunk, n);
	for (int i = 0; i < n; i++) {
		sgp_chunk_ref(taken->chunk[i]);
		ck_assert_int_eq(sgp_sgl_append(&one_by_one, taken->chunk[i], 0, size), 0);
	}
	ck_assert_int_eq(taken->num_sge, one_by_one.num_sge);
	ck_assert_mem_eq(taken->sge, one_by_one.sge, (size_t)taken->num_sge * sizeof *taken->sge);
	ck_assert_mem_eq(&taken->length, &one_by_one.length,
			 sizeof *taken - offsetof(struct sgp_sgl, length));
	sgp_sgl_clear(&one_by_one);
}

/* Inline, by call, and inline in a program of another layout. */
static int get_by_form(int form, struct sgp_sgl *sgl, size_t size, int n)
{
	switch (form) {
	case 0:
		return sgp_sgl_get(sgl, pool, size, n, 0);
	case 1:
		return (sgp_sgl_get)(sgl, pool, size, n, 0);
	default:
		return other_layout_sgl_get(sgl, pool, size, n);
	}
}

START_TEST(a_list_taken_is_as_one_appended)
{
	static const size_t sizes[] = {4096, 4095, 1};

	/* Neighbours, and some that are not: in a row, in pairs, and apart. */
	for (int i = 40; i < NCHUNKS - 2; i += 5) {
		struct sgp_chunk *other = chunks[i];

		chunks[i] = chunks[i + 2];
		chunks[i + 2] = other;
	}
	sgp_chunk_put_bulk(chunks, NCHUNKS);
	for (int n = 1; n <= 16; n++) {
		for (int i = 0; i < 9; i++) {
			SGP_SGL(sgl, 16);
			size_t size = sizes[i / 3];

			ck_assert(!other_layout_serves_list(&sgl, pool, size, n));
			ck_assert_int_eq(get_by_form(i % 3, &sgl, size, n), 0);
			check_as_appended(&sgl, size, n);
			sgp_sgl_clear(&sgl);
		}
	}
	ck_assert_int_eq(sgp_pool_get_bulk(pool, 4096, 0, chunks, NCHUNKS), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sgl");
	TCase *tc = tcase_create("list");

	tcase_add_checked_fixture(tc, sgl_setup, sgl_teardown);
	suite_add_tcase(suite, tc);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, case_21_adjacent_slices_join_and_gaps_do_not);
	tcase_add_test(tc, joins_across_chunks_that_are_neighbours);
	tcase_add_test(tc, case_22_zero_lengths_make_no_sge);
	tcase_add_test(tc, refusals_leave_the_list_alone);
	tcase_add_test(tc, case_27_random_splits_add_up);
	tcase_add_test(tc, prepend_is_append_at_the_other_end);
	tcase_add_test(tc, addresses_find_their_chunks_or_change_nothing);
	tcase_add_test(tc, a_range_spans_neighbouring_chunks);
	tcase_add_test(tc, case_14_memory_of_two_registrations_is_two_sges);
	tcase_add_test(tc, chunks_as_a_list_are_all_or_none);
	tcase_add_test(tc, a_list_taken_is_as_one_appended);
	return suite_run(suite);
}
