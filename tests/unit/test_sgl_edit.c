/* SPDX-License-Identifier: BSD-2-Clause */
/* Lists cut, moved, parted and linearised; any edits, against the bytes that they should describe. */
#include <check.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "../suite.h"
#include "post/sgl.h"
#include "sgl_rig.h"

START_TEST(cut_trims_bytes_and_drops_what_is_not_used)
{
	SGP_SGL(sgl, 8);

	for (size_t length = 0; length <= 3 * 100; length++) {
		struct sgp_pool_stats stats;

		for (int i = 0; i < 3; i++)
			ck_assert_int_eq(add(&sgl, 2 * i, 8, 100), 0);
		sgp_sgl_cut(&sgl, length);
		check_sums(&sgl, length);
		ck_assert_int_eq(sgl.num_sge, (int)((length + 99) / 100));
		ck_assert_int_eq(sgl.num_chunk, sgl.num_sge);
		sgp_sgl_clear(&sgl);
		ck_assert_int_eq(sgp_pool_stats(pool, &stats), 0);
		ck_assert_uint_eq(stats.live, NCHUNKS);
	}
}
END_TEST

START_TEST(move_takes_all_or_nothing)
{
	SGP_SGL(a, 3);
	SGP_SGL(b, 2);
	struct iovec iov[3];

	ck_assert_int_eq(add(&a, 0, 0, 10), 0);
	ck_assert_int_eq(add(&a, 2, 0, 20), 0);
	ck_assert_int_eq(add(&b, 4, 0, 30), 0);
	ck_assert_int_eq(sgp_sgl_move(&b, &a), -1);
	ck_assert_int_eq(errno, E2BIG);
	check_sums(&a, 30);
	check_sums(&b, 30);
	ck_assert_int_eq(sgp_sgl_move(&a, &b), 0);
	ck_assert_int_eq(b.num_chunk, 0);
	check_sums(&a, 60);
	ck_assert_int_eq(sgp_sgl_iovec(&a, iov, 2), -1);
	ck_assert_int_eq(errno, E2BIG);
	ck_assert_int_eq(sgp_sgl_iovec(&a, iov, 3), 3);
	ck_assert_ptr_eq(iov[2].iov_base, sgp_chunk_addr(chunks[4]));
	ck_assert_uint_eq(iov[2].iov_len, 30);
	ck_assert_int_eq(sgp_sgl_move(&a, &a), -1);
	ck_assert_int_eq(errno, EINVAL);
	sgp_sgl_clear(&a);
}
END_TEST

START_TEST(an_emptied_list_is_as_a_new_one)
{
	char foreign[8] = "";
	SGP_SGL(sgl, 2);
	struct sgp_sgl fresh;

	fresh = sgl;
	ck_assert_int_eq(add(&sgl, 0, 0, 8), 0);
	ck_assert_int_eq(sgp_sgl_append_foreign(&sgl, foreign, 8), 0);
	ck_assert_int_eq(sgp_sgl_trim(&sgl, 0), 0);
	ck_assert_mem_eq(&sgl, &fresh, sizeof sgl);
}
END_TEST

START_TEST(linearise_copies_into_one_chunk_or_changes_nothing)
{
	SGP_SGL(sgl, 4);
	struct sgp_sgl before;
	struct sgp_chunk *target;

	memset(sgp_chunk_addr(chunks[1]), 'a', 4096);
	memset(sgp_chunk_addr(chunks[3]), 'b', 4096);
	ck_assert_int_eq(add(&sgl, 1, 5, 3), 0);
	ck_assert_int_eq(add(&sgl, 3, 7, 2), 0);
	before = sgl;
	ck_assert_int_eq(sgp_sgl_linearise(&sgl, pool), -1);
	ck_assert_int_eq(errno, ENOBUFS);
	ck_assert_mem_eq(&sgl, &before, sizeof sgl);
	target = chunks[8];
	sgp_chunk_put(target);
	ck_assert_int_eq(sgp_sgl_linearise(&sgl, pool), 0);
	ck_assert_int_eq(sgl.num_sge, 1);
	ck_assert_ptr_eq(sgl.chunk[0], target);
	ck_assert_mem_eq(sgp_chunk_addr(target), "aaabb", 5);
	check_sums(&sgl, 5);
	sgp_sgl_clear(&sgl);
	ck_assert_int_eq(sgp_pool_get_bulk(pool, 4096, 0, &chunks[8], 1), 0);
}
END_TEST

/* What is not in a list any more binds it no more: foreign memory, or what may only be read. */
START_TEST(a_part_is_bound_by_what_it_has)
{
	static char header[16], file[4096] __attribute__((aligned(4096)));
	struct sgp_import *read_only = sgp_pool_import(
		pool, &(struct sgp_import_attr){
			      .addr = file, .length = sizeof file, .flags = SGP_IMPORT_READ_ONLY});
	SGP_SGL(sgl, 4);
	SGP_SGL(rest, 4);

	ck_assert_msg(read_only != NULL, "%s", sgp_errmsg());
	ck_assert_int_eq(sgp_sgl_append_foreign(&sgl, header, 16), 0);
	ck_assert_int_eq(add(&sgl, 0, 0, 100), 0);
	ck_assert_int_eq(sgp_sgl_split(&sgl, 16, &rest), 0);
	ck_assert_uint_eq(sgl.flags, SGP_SGL_FOREIGN);
	ck_assert_uint_eq(rest.flags, 0);
	sgp_sgl_clear(&sgl);

	/* Cut off at the end, it is gone too; of a list that has all of it, all is as it was. */
	ck_assert_int_eq(sgp_sgl_append_foreign(&rest, header, 16), 0);
	ck_assert_int_eq(sgp_sgl_trim(&rest, 116), 0);
	ck_assert_uint_eq(rest.flags, SGP_SGL_FOREIGN);
	ck_assert_int_eq(sgp_sgl_trim(&rest, 50), 0);
	ck_assert_uint_eq(rest.flags, 0);
	ck_assert_int_eq(sgp_sgl_key(&rest, sgp_pd_find(pd), sgp_pd_bit(sgp_pd_find(pd))), 0);
	ck_assert_uint_eq(rest.sge[0].lkey, sgp_chunk_lkey(chunks[0]));
	sgp_sgl_clear(&rest);

	ck_assert_int_eq(sgp_sgl_append_region(&sgl, read_only, 0, 64), 0);
	ck_assert_int_eq(add(&sgl, 1, 0, 100), 0);
	ck_assert_int_eq(sgl.access & IBV_ACCESS_LOCAL_WRITE, 0);
	ck_assert_int_eq(sgp_sgl_split(&sgl, 64, &rest), 0);
	ck_assert_int_eq(sgl.access & IBV_ACCESS_LOCAL_WRITE, 0);
	ck_assert(rest.access & IBV_ACCESS_LOCAL_WRITE);
	sgp_sgl_clear(&rest);

	/* Nothing goes over: the list is as a new one. */
	ck_assert_int_eq(sgp_sgl_split(&sgl, 64, &rest), 0);
	ck_assert_int_eq(rest.num_sge + rest.num_chunk, 0);
	ck_assert(rest.pds == UINT64_MAX && rest.keys == UINT64_MAX && rest.access == UINT32_MAX);
	sgp_sgl_clear(&sgl);
	ck_assert_int_eq(sgp_pool_unimport(pool, read_only), 0);
}
END_TEST

/* Lists under random operations, against the bytes that each should describe. */
struct model {
	struct sgp_sgl sgl;
	struct ibv_sge sge[24];
	struct sgp_chunk *chunk[24];
	unsigned char bytes[24 * 4096];
	size_t length;
};

static void check_model(const struct model *m)
{
	static unsigned char gathered[24 * 4096];

	ck_assert_uint_eq(m->sgl.length, m->length);
	check_sums(&m->sgl, m->length);
	sgp_sgl_gather(&m->sgl, gathered);
	ck_assert_mem_eq(gathered, m->bytes, m->length);
	/* Each byte's chunk is held. */
	for (int i = 0; i < m->sgl.num_sge; i++)
		for (uint64_t at = 0; at < m->sgl.sge[i].length; at += 1024) {
			struct sgp_chunk *chunk = sgp_pool_chunk_at(
				pool, (void *)(uintptr_t)(m->sgl.sge[i].addr + at));
			bool held = false;

			for (int j = 0; j < m->sgl.num_chunk; j++)
				held |= m->sgl.chunk[j] == chunk;
			if (!held)
				ck_abort_msg("byte %llu of SGE %d is not held",
					     (unsigned long long)at, i);
		}
}

START_TEST(random_edits_describe_the_right_bytes)
{
	static struct model m[3];
	unsigned int seed = (unsigned int)_i;

	for (int c = 0; c < NCHUNKS; c++)
		for (int i = 0; i < 4096; i++)
			((unsigned char *)sgp_chunk_addr(chunks[c]))[i] =
				(unsigned char)(rand_r(&seed) >> 8);
	for (int k = 0; k < 3; k++) {
		sgp_sgl_init(&m[k].sgl, m[k].sge, 24, m[k].chunk, 24);
		m[k].length = 0;
	}
	for (int step = 0; step < 3000; step++) {
		struct model *a = &m[rand_r(&seed) % 3], *b = &m[rand_r(&seed) % 3];
		int c = rand_r(&seed) % NCHUNKS;
		size_t offset = (size_t)rand_r(&seed) % 4096;
		size_t length = (size_t)rand_r(&seed) % (4097 - offset);
		const char *from = (const char *)sgp_chunk_addr(chunks[c]) + offset;
		size_t cut = a->length ? (size_t)rand_r(&seed) % (a->length + 1) : 0;

		switch (rand_r(&seed) % 8) {
		case 0:
		case 1:
			if (add(&a->sgl, c, offset, length))
				break;
			memcpy(a->bytes + a->length, from, length);
			a->length += length;
			break;
		case 2:
			if (sgp_sgl_append_addr(&a->sgl, pool, from, length))
				break;
			memcpy(a->bytes + a->length, from, length);
			a->length += length;
			break;
		case 3:
			sgp_chunk_ref(chunks[c]);
			if (sgp_sgl_prepend(&a->sgl, chunks[c], offset, length)) {
				sgp_chunk_put(chunks[c]);
				break;
			}
			memmove(a->bytes + length, a->bytes, a->length);
			memcpy(a->bytes, from, length);
			a->length += length;
			break;
		case 4:
			ck_assert_int_eq(sgp_sgl_trim(&a->sgl, a->length + 1), -1);
			ck_assert_int_eq(sgp_sgl_trim(&a->sgl, cut), 0);
			a->length = cut;
			break;
		case 5:
			if (sgp_sgl_clone(&b->sgl, &a->sgl)) {
				ck_assert(errno == E2BIG || a == b);
				break;
			}
			memcpy(b->bytes + b->length, a->bytes, a->length);
			b->length += a->length;
			break;
		case 6:
			if (sgp_sgl_move(&b->sgl, &a->sgl)) {
				ck_assert(errno == E2BIG || a == b);
				break;
			}
			memcpy(b->bytes + b->length, a->bytes, a->length);
			b->length += a->length;
			a->length = 0;
			break;
		case 7:
			if (sgp_sgl_split(&a->sgl, cut, &b->sgl)) {
				ck_assert(a == b || b->sgl.num_chunk);
				break;
			}
			memcpy(b->bytes, a->bytes + cut, a->length - cut);
			b->length = a->length - cut;
			a->length = cut;
			break;
		}
		check_model(a);
		check_model(b);
	}
	for (int k = 0; k < 3; k++)
		sgp_sgl_clear(&m[k].sgl);
	/* Every extra reference is gone: each put now is the last. */
	sgp_chunk_put_bulk(chunks, NCHUNKS);
	ck_assert_int_eq(sgp_pool_get_bulk(pool, 4096, 0, chunks, NCHUNKS), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sgl edit");
	TCase *tc = tcase_create("list");

	tcase_add_checked_fixture(tc, sgl_setup, sgl_teardown);
	suite_add_tcase(suite, tc);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, cut_trims_bytes_and_drops_what_is_not_used);
	tcase_add_test(tc, move_takes_all_or_nothing);
	tcase_add_test(tc, an_emptied_list_is_as_a_new_one);
	tcase_add_test(tc, linearise_copies_into_one_chunk_or_changes_nothing);
	tcase_add_test(tc, a_part_is_bound_by_what_it_has);
	tcase_add_loop_test(tc, random_edits_describe_the_right_bytes, 1, 9);
	return suite_run(suite);
}
