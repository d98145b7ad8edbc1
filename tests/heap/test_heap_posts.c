/* SPDX-License-Identifier: BSD-2-Clause */
/* Objects in lists and queues: slices, frees and reallocations while they are held, sinks. */
#include <check.h>
#include <errno.h>
#include <string.h>

#include "../suite.h"
#include "heap_rig.h"

static void send_slice(void *obj, size_t offset, size_t length, int flags)
{
	SGP_SGL(sgl, 1);

	ck_assert_msg(!sgp_sgl_append_ptr(&sgl, obj, offset, length), "%s", sgp_errmsg());
	ck_assert_msg(!sgp_post_sendv(a->ep, obj, &sgl, flags), "%s", sgp_errmsg());
}

static void expect_received(int byte, size_t length)
{
	rig_reap(b, 1);
	ck_assert_int_eq(b->wc[0].status, IBV_WC_SUCCESS);
	ck_assert_uint_eq(b->wc[0].byte_len, length);
	ck_assert(all((void *)(uintptr_t)b->wc[0].sgl.sge[0].addr, byte, length));
	sgp_sgl_clear(&b->wc[0].sgl);
}

START_TEST(test_slices)
{
	SGP_SGL(sgl, 4);
	char *obj = object(10000, 7);
	size_t size = sgp_usable_size(obj);

	ck_assert_int_eq(sgp_sgl_append_ptr(&sgl, obj, 0, 100), 0);
	ck_assert_int_eq(sgp_sgl_append_ptr(&sgl, obj, 100, 100), 0);
	ck_assert_int_eq(sgl.num_sge, 1); /* joined */
	ck_assert_int_eq(sgp_sgl_append_ptr(&sgl, obj, size - 5, 5), 0);
	ck_assert_int_eq(sgl.num_sge, 2);
	ck_assert_int_eq(sgl.num_chunk, 3);
	ck_assert_uint_eq(sgl.sge[0].addr, (uintptr_t)obj);
	ck_assert_uint_eq(sgl.sge[0].length, 200);
	ck_assert_ptr_eq(sgp_chunk_pool(sgl.chunk[0]), pool);
	ck_assert_uint_eq(stats_of().held, 3);
	ck_assert_uint_eq(stats_of().in_flight, 3 * size);
	ck_assert_int_eq(sgp_sgl_append_ptr(&sgl, obj, size - 5, 6), -1);
	ck_assert_int_eq(errno, EFAULT);
	ck_assert_int_eq(sgp_sgl_append_ptr(&sgl, obj, SIZE_MAX, 1), -1);
	ck_assert_int_eq(errno, EFAULT);
	ck_assert_int_eq(sgp_sgl_append_ptr(&sgl, obj, size, 0), 0);
	ck_assert_int_eq(sgp_sgl_append_ptr(&sgl, obj, 1, 1), -1);
	ck_assert_int_eq(errno, E2BIG);
	ck_assert_uint_eq(stats_of().held, 4);
	/* A raw address of the heap leads to no chunk. */
	ck_assert_int_eq(sgp_sgl_append_addr(&sgl, pool, obj, 1), -1);
	ck_assert_int_eq(errno, EFAULT);
	sgp_sgl_clear(&sgl);
	ck_assert_uint_eq(stats_of().held, 0);
	sgp_free(obj);
}
END_TEST

START_TEST(test_free_in_flight)
{
	char *obj = object(100000, 1), *other;

	rig_post_recv(b, NULL);
	send_slice(obj, 10, 50000, IBV_SEND_SIGNALED);
	sgp_free(obj);
	ck_assert_uint_eq(stats_of().held, 1);
	ck_assert_int_eq(sgp_heap_destroy(heap), -1);
	ck_assert_int_eq(errno, EBUSY);
	/* Its memory is nobody's yet. */
	for (int i = 0; i < 100; i++) {
		other = object(100000, 2);
		ck_assert_ptr_ne(other, obj);
		sgp_free(other);
	}
	ck_assert(all(obj, 1, 100000));
	SGP_SGL(sgl, 1);

	ck_assert_int_eq(sgp_sgl_append_ptr(&sgl, obj, 0, 1), -1);
	ck_assert_int_eq(errno, EFAULT);
	ck_assert_ptr_null(sgp_realloc(heap, obj, 1));
	ck_assert_int_eq(errno, EFAULT);
	sgp_free(obj); /* once more: it is freed once */
	expect_received(1, 50000);
	rig_reap(a, 1);
	ck_assert_uint_eq(stats_of().held, 0);
	sgp_heap_trim(heap);
	ck_assert_uint_eq(stats_of().allocated, 0);
}
END_TEST

START_TEST(test_one_object_in_many_lists)
{
	char *obj = object(3000, 3);

	for (int i = 0; i < 4; i++) {
		rig_post_recv(b, NULL);
		send_slice(obj, (size_t)i * 500, 500, i % 2 ? IBV_SEND_SIGNALED : 0);
	}
	ck_assert_uint_eq(stats_of().held, 4);
	sgp_free(obj);
	for (int i = 0; i < 4; i++) {
		expect_received(3, 500);
		ck_assert(all(obj, 3, 3000));
	}
	rig_reap(a, 2);
	ck_assert_uint_eq(stats_of().held, 0);
	sgp_heap_trim(heap);
	ck_assert_uint_eq(stats_of().allocated, 0);
}
END_TEST

/* The freed mark goes on to an older hold, whichever is dropped first. */
START_TEST(test_freed_by_the_last_list)
{
	for (int first = 0; first < 3; first++) {
		struct sgp_sgl sgl[3];
		struct ibv_sge sge[3];
		struct sgp_chunk *chunk[3];
		char *obj = object(5000, 4);

		for (int i = 0; i < 3; i++) {
			sgp_sgl_init(&sgl[i], &sge[i], 1, &chunk[i], 1);
			ck_assert_int_eq(sgp_sgl_append_ptr(&sgl[i], obj, 0, 10), 0);
		}
		sgp_free(obj);
		for (int i = 0; i < 3; i++) {
			ck_assert_uint_eq(stats_of().held, (uint64_t)(3 - i));
			ck_assert_uint_gt(stats_of().allocated, 0);
			sgp_sgl_clear(&sgl[(first + i) % 3]);
		}
		sgp_heap_trim(heap);
		ck_assert_uint_eq(stats_of().allocated, 0);
	}
}
END_TEST

START_TEST(test_realloc_of_held)
{
	char *obj = object(3000, 5), *moved;

	rig_post_recv(b, NULL);
	send_slice(obj, 0, 3000, IBV_SEND_SIGNALED);
	moved = sgp_realloc(heap, obj, 2999);
	ck_assert_ptr_nonnull(moved);
	ck_assert_ptr_ne(moved, obj);
	ck_assert(all(moved, 5, 2999));
	memset(moved, 6, 2999);
	expect_received(5, 3000);
	rig_reap(a, 1);
	sgp_free(moved);
}
END_TEST

/* A receive, a READ and an atomic write to it: it can't move, but it can be freed. */
static void check_sink(char *obj, struct rig_side *side, uint64_t holds)
{
	ck_assert_ptr_null(sgp_realloc(heap, obj, 9999));
	ck_assert_int_eq(errno, EBUSY);
	rig_reap(side, 1);
	ck_assert_int_eq(side->wc[0].status, IBV_WC_SUCCESS);
	/* Its list still holds it, but nobody writes to it any more. */
	ck_assert(side->wc[0].sgl.flags & SGP_SGL_OBJECTS);
	ck_assert_uint_eq(stats_of().held, holds);
}

START_TEST(test_too_short_a_receive)
{
	char *obj = object(8192, 0), *moved;
	SGP_SGL(sgl, 1);

	ck_assert_int_eq(sgp_sgl_append_ptr(&sgl, obj, 0, 4096), 0);
	ck_assert_int_eq(sgp_post_recvv(a->ep, NULL, &sgl), 0);
	rig_post_send(b, NULL, 9);
	rig_reap(b, 1);
	ck_assert_int_eq(b->wc[0].status, IBV_WC_REM_INV_REQ_ERR); /* 256 KiB into 4 */
	rig_reap(a, 1);
	sgp_sgl_clear(&a->wc[0].sgl);
	moved = sgp_realloc(heap, obj, 100);
	ck_assert_ptr_nonnull(moved);
	sgp_free(moved);
}
END_TEST

START_TEST(test_receives)
{
	char *obj = object(256 * KIB, 0), *moved;
	SGP_SGL(sgl, 1);

	ck_assert_int_eq(sgp_sgl_append_ptr(&sgl, obj, 0, 256 * KIB), 0);
	ck_assert_int_eq(sgp_post_recvv(a->ep, NULL, &sgl), 0);
	ck_assert_ptr_null(sgp_realloc(heap, obj, 9999));
	ck_assert_int_eq(errno, EBUSY);
	rig_post_send(b, NULL, 9);
	check_sink(obj, a, 1);
	ck_assert(all(obj, 9, 256 * KIB));
	/* The list that was handed over, posted again. */
	ck_assert_int_eq(sgp_post_recvv(a->ep, NULL, &a->wc[0].sgl), 0);
	rig_reap(b, 1);
	rig_post_send(b, NULL, 8);
	check_sink(obj, a, 1);
	moved = sgp_realloc(heap, obj, 256 * KIB);
	ck_assert_ptr_ne(moved, obj);
	ck_assert(all(moved, 8, 256 * KIB));
	sgp_sgl_clear(&a->wc[0].sgl);
	sgp_free(moved);
	rig_reap(b, 1);
}
END_TEST

START_TEST(test_reads)
{
	struct sgp_class_attr cls = {.size = 64 * KIB, .chunks = 2};
	struct sgp_pool_attr attr = {.classes = &cls,
				     .nclasses = 1,
				     .flags = SGP_POOL_REMOTE_READ | SGP_POOL_REMOTE_ATOMIC};
	struct sgp_pool *remote = sgp_pool_create(b->pd, &attr);
	struct sgp_chunk *from = sgp_pool_get(remote, 1, 0);
	uint64_t addr = (uintptr_t)sgp_chunk_addr(from);
	char *obj = object(64 * KIB, 0), *moved;
	SGP_SGL(sgl, 12);

	memset(sgp_chunk_addr(from), 3, 64 * KIB);
	/* One that the device refuses writes nothing. */
	ck_assert_int_eq(sgp_sgl_append_ptr(&sgl, obj, 0, 1000), 0);
	sv_fail_nth("post_send", 0, ENOMEM);
	ck_assert_int_eq(sgp_post_readv(a->ep, NULL, &sgl, 0, addr, sgp_chunk_rkey(from)), -1);
	moved = sgp_realloc(heap, obj, 60000);
	ck_assert_ptr_nonnull(moved);
	sgp_sgl_clear(&sgl);
	sgp_free(moved);
	/* Several work requests. */
	obj = object(64 * KIB, 0);
	for (size_t i = 0; i < 12; i++)
		ck_assert_int_eq(sgp_sgl_append_ptr(&sgl, obj, i * 5000, 1000), 0);
	ck_assert_int_eq(sgp_post_readv(a->ep, NULL, &sgl, 0, addr, sgp_chunk_rkey(from)), 0);
	check_sink(obj, a, 12);
	for (size_t i = 0; i < 12; i++)
		ck_assert(all(obj + i * 5000, 3, 1000));
	sgp_sgl_clear(&a->wc[0].sgl);
	/* An atomic. */
	ck_assert_int_eq(sgp_sgl_append_ptr(&sgl, obj, 8, 8), 0);
	struct sgp_wr wr = {.sgl = &sgl,
			    .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
			    .remote_addr = addr,
			    .rkey = sgp_chunk_rkey(from),
			    .compare_add = 1};

	ck_assert_msg(!sgp_post(a->ep, &wr, NULL), "%s", sgp_errmsg());
	check_sink(obj, a, 1);
	sgp_sgl_clear(&a->wc[0].sgl);
	sgp_free(obj);
	sgp_chunk_put(from);
	ck_assert_int_eq(sgp_pool_destroy(remote), 0);
}
END_TEST

/* What an endpoint's end leaves comes out of the cq, and then the sinks are none any more. */
START_TEST(test_closed_with_sinks)
{
	char *obj = object(4096, 0), *moved;
	SGP_SGL(sgl, 1);

	ck_assert_int_eq(sgp_sgl_append_ptr(&sgl, obj, 0, 4096), 0);
	ck_assert_int_eq(sgp_post_recvv(a->ep, NULL, &sgl), 0);
	ck_assert_int_eq(rig_close_ep(a), 1);
	moved = sgp_realloc(heap, obj, 100000);
	ck_assert_ptr_nonnull(moved);
	sgp_free(moved);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("heap posts");
	TCase *tc = tcase_create("heap");

	suite_add_tcase(suite, tc);
	tcase_set_timeout(tc, 120);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_slices);
	tcase_add_test(tc, test_free_in_flight);
	tcase_add_test(tc, test_one_object_in_many_lists);
	tcase_add_test(tc, test_freed_by_the_last_list);
	tcase_add_test(tc, test_realloc_of_held);
	tcase_add_test(tc, test_too_short_a_receive);
	tcase_add_test(tc, test_receives);
	tcase_add_test(tc, test_reads);
	tcase_add_test(tc, test_closed_with_sinks);
	return suite_run(suite);
}
