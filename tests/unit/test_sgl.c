/* SPDX-License-Identifier: BSD-2-Clause */
/* The scatter-gather list: slices, joins, limits, and that a refusal changes nothing. */
#include <check.h>
#include <stdbool.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../suite.h"
#include "other_layout.h"
#include "post/sgl.h"
#include "sgpool/sgpool.h"

#define NCHUNKS 64

static struct ibv_device **devices;
static struct ibv_context *verbs;
static struct ibv_pd *pd;
static struct sgp_pool *pool;
static struct sgp_chunk *chunks[NCHUNKS]; /* all of the pool, by address */

static int by_address(const void *a, const void *b)
{
	uintptr_t x = (uintptr_t)sgp_chunk_addr(*(struct sgp_chunk *const *)a);
	uintptr_t y = (uintptr_t)sgp_chunk_addr(*(struct sgp_chunk *const *)b);

	return x < y ? -1 : x > y;
}

static void setup(void)
{
	struct sgp_class_attr class = {.size = 4096, .chunks = NCHUNKS};
	struct sgp_pool_attr attr = {.classes = &class, .nclasses = 1, .pages = SGP_PAGES_BASE};

	devices = ibv_get_device_list(NULL);
	ck_assert_ptr_nonnull(devices);
	verbs = ibv_open_device(devices[0]);
	pd = ibv_alloc_pd(verbs);
	pool = sgp_pool_create(pd, &attr);
	ck_assert_msg(pool != NULL, "%s", sgp_errmsg());
	ck_assert_int_eq(sgp_pool_get_bulk(pool, 4096, 0, chunks, NCHUNKS), 0);
	qsort(chunks, NCHUNKS, sizeof *chunks, by_address);
}

static void teardown(void)
{
	sgp_chunk_put_bulk(chunks, NCHUNKS);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
	ck_assert_int_eq(ibv_close_device(verbs), 0);
	ibv_free_device_list(devices);
}

/* Append a slice, with a reference of its own. */
static int add(struct sgp_sgl *sgl, int chunk, size_t offset, size_t length)
{
	int ret;

	sgp_chunk_ref(chunks[chunk]);
	ret = sgp_sgl_append(sgl, chunks[chunk], offset, length);
	if (ret)
		sgp_chunk_put(chunks[chunk]);
	return ret;
}

static void check_sums(const struct sgp_sgl *sgl, uint64_t length)
{
	uint64_t sum = 0;

	bool empty = false;

	for (int i = 0; i < sgl->num_sge; i++) {
		empty |= !sgl->sge[i].length;
		sum += sgl->sge[i].length;
	}
	/* One assertion: Check makes each a write to a file. */
	ck_assert_msg(!empty && sum == length && sgl->length == length,
		      "%d SGEs of %llu bytes, length %llu, wanted %llu", sgl->num_sge,
		      (unsigned long long)sum, (unsigned long long)sgl->length,
		      (unsigned long long)length);
}

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
	Suite *suite = suite_create("sgl");
	TCase *tc = tcase_create("list");

	tcase_add_checked_fixture(tc, setup, teardown);
	suite_add_tcase(suite, tc);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, case_21_adjacent_slices_join_and_gaps_do_not);
	tcase_add_test(tc, joins_across_chunks_that_are_neighbours);
	tcase_add_test(tc, case_22_zero_lengths_make_no_sge);
	tcase_add_test(tc, refusals_leave_the_list_alone);
	tcase_add_test(tc, case_27_random_splits_add_up);
	tcase_add_test(tc, cut_trims_bytes_and_drops_what_is_not_used);
	tcase_add_test(tc, move_takes_all_or_nothing);
	tcase_add_test(tc, prepend_is_append_at_the_other_end);
	tcase_add_test(tc, addresses_find_their_chunks_or_change_nothing);
	tcase_add_test(tc, a_range_spans_neighbouring_chunks);
	tcase_add_test(tc, case_14_memory_of_two_registrations_is_two_sges);
	tcase_add_test(tc, chunks_as_a_list_are_all_or_none);
	tcase_add_test(tc, a_list_taken_is_as_one_appended);
	tcase_add_test(tc, linearise_copies_into_one_chunk_or_changes_nothing);
	tcase_add_test(tc, a_part_is_bound_by_what_it_has);
	tcase_add_loop_test(tc, random_edits_describe_the_right_bytes, 1, 9);
	return suite_run(suite);
}
