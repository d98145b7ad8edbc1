/* SPDX-License-Identifier: BSD-2-Clause */
/* Every operation of a list, between two endpoints, contents compared; and each refusal of one. */
#include <check.h>
#include <endian.h>
#include <errno.h>

#include "../suite.h"
#include "ab_rig.h"

START_TEST(writes_and_reads_of_any_length)
{
	/* 3 SGEs a request: 1 .. 20 slices are split over up to 7, with one completion. */
	open_remote((struct rig_attr){.max_sge = 3, .chunks = 64, .cq_sge = 32});
	for (int n = 1; n <= 20; n++) {
		struct sgp_chunk *target = rig_chunk(b, 0);
		uint64_t addr = (uintptr_t)sgp_chunk_addr(target);
		struct sgp_ep_stats before, after;
		SGP_SGL(sgl, 20);

		ck_assert_int_eq(sgp_ep_stats(a->ep, &before), 0);
		build(a, &sgl, n, 100, 1);
		ck_assert_msg(!sgp_post_writev(a->ep, &context[n], &sgl, IBV_SEND_SIGNALED, addr,
					       sgp_chunk_rkey(target)),
			      "%s", sgp_errmsg());
		ck_assert_int_eq(sgl.num_chunk, 0);
		reaped(a, &context[n], IBV_WC_RDMA_WRITE);
		check_run((char *)addr, n, 100, 1);
		rig_check_live(a, 0);
		ck_assert_int_eq(sgp_ep_stats(a->ep, &after), 0);
		ck_assert_uint_eq(after.wrs - before.wrs, (uint64_t)(n + 2) / 3);
		ck_assert_uint_eq(after.posts - before.posts, 1);
		ck_assert_uint_eq(after.completions - before.completions, 1);

		build(a, &sgl, n, 100, 0);
		ck_assert_msg(
			!sgp_post_readv(a->ep, &context[n], &sgl, 0, addr, sgp_chunk_rkey(target)),
			"%s", sgp_errmsg());
		reaped(a, &context[n], IBV_WC_RDMA_READ);
		ck_assert_uint_eq(a->wc[0].byte_len, (uint32_t)n * 100);
		ck_assert_int_eq(a->wc[0].sgl.num_chunk, n);
		ck_assert_uint_eq(a->wc[0].sgl.length, (uint64_t)n * 100);
		for (int i = 0; i < n; i++)
			check_run((char *)(uintptr_t)a->wc[0].sgl.sge[i].addr, 1, 100, 1 + i);
		rig_check_live(a, (uint64_t)n);
		sgp_sgl_clear(&a->wc[0].sgl);
		rig_check_live(a, 0);
		sgp_chunk_put(target);
	}
	close_rig();
}
END_TEST

START_TEST(a_read_cut_by_the_message_limit_comes_back_as_it_went)
{
	struct sgp_chunk *sink, *target;

	ck_assert_int_eq(sv_device_add("short", "soft", 1), 0);
	ck_assert_int_eq(sv_set("short", "max_msg", 1000), 0);
	open_rig((struct rig_attr){.max_sge = 1, .cq_sge = 1, .pool_flags = SGP_POOL_REMOTE_READ});
	target = rig_chunk(b, 'r');
	sink = rig_chunk(a, 0);
	/* Five requests, of one SGE each; the list had one, and the completion has room for one. */
	ck_assert_msg(!sgp_post_read(a->ep, NULL, sink, 0, 4096, 0,
				     (uintptr_t)sgp_chunk_addr(target), sgp_chunk_rkey(target)),
		      "%s", sgp_errmsg());
	rig_reap(a, 1);
	ck_assert_int_eq(a->wc[0].status, IBV_WC_SUCCESS);
	ck_assert_int_eq(a->wc[0].sgl.num_sge, 1);
	ck_assert_uint_eq(a->wc[0].sgl.sge[0].length, 4096);
	ck_assert_uint_eq(a->wc[0].sgl.length, 4096);
	ck_assert_int_eq(a->wc[0].sgl.num_chunk, 1);
	ck_assert_mem_eq(sgp_chunk_addr(sink), sgp_chunk_addr(target), 4096);
	sgp_sgl_clear(&a->wc[0].sgl);
	sgp_chunk_put(target);
	close_rig();
}
END_TEST

START_TEST(a_list_longer_than_the_queue_is_too_big)
{
	SGP_SGL(sgl, 64);
	struct sgp_sgl before;

	/* Never EAGAIN: it would be tried again for ever. */
	open_remote((struct rig_attr){.max_sge = 1, .depth = 4, .chunks = 64, .cq_sge = 32});
	build(a, &sgl, 5, 10, 0);
	before = sgl;
	ck_assert_int_eq(sgp_post_writev(a->ep, NULL, &sgl, 0, 0, 0), -1);
	ck_assert_int_eq(errno, E2BIG);
	ck_assert_mem_eq(&sgl, &before, sizeof sgl);
	build(a, &sgl, 35, 10, 0);
	ck_assert_int_eq(sgp_post_readv(a->ep, NULL, &sgl, 0, 0, 0), -1);
	ck_assert_int_eq(errno, E2BIG);
	sgp_sgl_clear(&sgl);
	close_rig();
}
END_TEST

START_TEST(immediates_and_invalidations_arrive)
{
	struct sgp_chunk *target;
	SGP_SGL(sgl, 1);
	struct sgp_wr wr = {.context = &context[0],
			    .sgl = &sgl,
			    .opcode = IBV_WR_SEND_WITH_IMM,
			    .flags = IBV_SEND_SIGNALED,
			    .imm_data = htobe32(0x01020304)};

	open_remote((struct rig_attr){0});
	rig_post_recv(b, &context[1]);
	build(a, &sgl, 1, 10, 'i');
	ck_assert_msg(!sgp_post(a->ep, &wr, NULL), "%s", sgp_errmsg());
	reaped(a, &context[0], IBV_WC_SEND);
	reaped(b, &context[1], IBV_WC_RECV);
	ck_assert(b->wc[0].wc_flags & IBV_WC_WITH_IMM);
	ck_assert_uint_eq(be32toh(b->wc[0].imm_data), 0x01020304);
	ck_assert_uint_eq(b->wc[0].byte_len, 10);
	sgp_sgl_clear(&b->wc[0].sgl);

	target = rig_chunk(b, 0);
	rig_post_recv(b, &context[2]);
	build(a, &sgl, 1, 10, 'w');
	wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	wr.remote_addr = (uintptr_t)sgp_chunk_addr(target);
	wr.rkey = sgp_chunk_rkey(target);
	ck_assert_msg(!sgp_post(a->ep, &wr, NULL), "%s", sgp_errmsg());
	reaped(a, &context[0], IBV_WC_RDMA_WRITE);
	reaped(b, &context[2], IBV_WC_RECV_RDMA_WITH_IMM);
	ck_assert_uint_eq(be32toh(b->wc[0].imm_data), 0x01020304);
	check_run(sgp_chunk_addr(target), 1, 10, 'w');
	ck_assert_uint_eq(b->wc[0].byte_len, 10);
	ck_assert_uint_eq(b->wc[0].sgl.length, 4096); /* whole: the bytes went to the target */
	sgp_sgl_clear(&b->wc[0].sgl);
	sgp_chunk_put(target);
	close_rig();
}
END_TEST

START_TEST(atomics_return_what_was_there)
{
	struct sgp_chunk *target, *result;
	uint64_t *value;
	SGP_SGL(sgl, 2);
	struct sgp_wr wr = {.sgl = &sgl, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .compare_add = 5};

	open_remote((struct rig_attr){0});
	target = rig_chunk(b, 0);
	value = sgp_chunk_addr(target);
	*value = 37;
	wr.remote_addr = (uintptr_t)value;
	wr.rkey = sgp_chunk_rkey(target);
	result = rig_chunk(a, 0);
	ck_assert_int_eq(sgp_sgl_append(&sgl, result, 0, 8), 0);
	ck_assert_msg(!sgp_post(a->ep, &wr, NULL), "%s", sgp_errmsg());
	reaped(a, NULL, IBV_WC_FETCH_ADD);
	ck_assert_uint_eq(*value, 42);
	ck_assert_uint_eq(*(uint64_t *)(uintptr_t)a->wc[0].sgl.sge[0].addr, 37);
	ck_assert_int_eq(sgp_sgl_move(&sgl, &a->wc[0].sgl), 0);
	wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
	wr.compare_add = 42;
	wr.swap = 1;
	ck_assert_int_eq(sgp_post(a->ep, &wr, NULL), 0);
	reaped(a, NULL, IBV_WC_COMP_SWAP);
	ck_assert_uint_eq(*value, 1);
	/* Neither more nor less than 8 bytes in one slice. */
	build(a, &sgl, 1, 9, 0);
	ck_assert_int_eq(sgp_post(a->ep, &wr, NULL), -1);
	ck_assert_int_eq(errno, EINVAL);
	sgp_sgl_clear(&sgl);
	sgp_chunk_put(target);
	close_rig();
}
END_TEST

START_TEST(handover_gives_a_sends_chunks_back)
{
	SGP_SGL(sgl, 3);

	open_remote((struct rig_attr){0});
	rig_post_recv(b, NULL);
	build(a, &sgl, 3, 20, 'h');
	ck_assert_int_eq(sgp_post_sendv(a->ep, &context[0], &sgl, SGP_HANDOVER), 0);
	reaped(a, &context[0], IBV_WC_SEND);
	ck_assert_int_eq(a->wc[0].sgl.num_chunk, 3);
	ck_assert_uint_eq(a->wc[0].sgl.length, 60);
	rig_check_live(a, 3);
	/* Straight on: the same chunks, to the same peer. */
	rig_post_recv(b, NULL);
	ck_assert_int_eq(sgp_post_sendv(a->ep, NULL, &a->wc[0].sgl, IBV_SEND_SIGNALED), 0);
	rig_reap(b, 2);
	reaped(a, NULL, IBV_WC_SEND);
	rig_check_live(a, 0);
	close_rig();
}
END_TEST

START_TEST(iwarp_gets_what_iwarp_has)
{
	SGP_SGL(sgl, 4);
	struct sgp_chunk *target;
	struct sgp_wr wr = {.sgl = &sgl, .opcode = IBV_WR_SEND_WITH_IMM};
	struct sgp_ep_stats stats;
	struct rig_attr attr = {.max_sge = 4, .cq_sge = 16};

	ck_assert_int_eq(sv_device_add("iw", "siw", 1), 0);
	attr.pool_flags = SGP_POOL_REMOTE_READ;
	open_rig(attr);
	build(a, &sgl, 4, 10, 'i');
	ck_assert_int_eq(sgp_post(a->ep, &wr, NULL), -1);
	ck_assert_int_eq(errno, EOPNOTSUPP);
	/* As short as it is, it does not go inline. */
	wr.opcode = IBV_WR_SEND_WITH_INV;
	wr.flags = IBV_SEND_INLINE;
	ck_assert_int_eq(sgp_post(a->ep, &wr, NULL), -1);
	ck_assert_int_eq(errno, EOPNOTSUPP);
	wr.flags = 0;
	ck_assert_int_eq(sgp_post(a->ep, &wr, NULL), 0);
	ck_assert_int_eq(sgp_ep_stats(a->ep, &stats), 0);
	ck_assert_uint_eq(stats.inlined, 0);
	ck_assert_uint_eq(stats.posts, 1);
	build(a, &sgl, 4, 10, 'i');
	/* A READ's sink needs REMOTE_WRITE there: case 12. */
	target = rig_chunk(b, 'r');
	ck_assert_int_eq(sgp_post_readv(a->ep, NULL, &sgl, 0, (uintptr_t)sgp_chunk_addr(target),
					sgp_chunk_rkey(target)),
			 -1);
	ck_assert_int_eq(errno, EACCES);
	sgp_sgl_clear(&sgl);
	sgp_chunk_put(target);
	close_rig();

	attr.pool_flags = SGP_POOL_REMOTE_READ | SGP_POOL_READ_SINK;
	open_rig(attr);
	/* One SGE a READ: four requests, one completion. */
	build(a, &sgl, 4, 10, 0);
	target = rig_chunk(b, 'r');
	ck_assert_msg(!sgp_post_readv(a->ep, &context[0], &sgl, 0,
				      (uintptr_t)sgp_chunk_addr(target), sgp_chunk_rkey(target)),
		      "%s", sgp_errmsg());
	reaped(a, &context[0], IBV_WC_RDMA_READ);
	for (int i = 0; i < 4; i++)
		check_run((char *)(uintptr_t)a->wc[0].sgl.sge[i].addr, 1, 10, 'r');
	sgp_chunk_put(target);
	close_rig();
}
END_TEST

START_TEST(a_remote_error_ends_one_operation_and_stops_the_endpoint)
{
	SGP_SGL(sgl, 2);
	struct sgp_chunk *target;

	open_remote((struct rig_attr){0});
	target = rig_chunk(b, 0);
	build(a, &sgl, 1, 10, 1);
	ck_assert_int_eq(sgp_post_writev(a->ep, &context[0], &sgl, 0,
					 (uintptr_t)sgp_chunk_addr(target),
					 sgp_chunk_rkey(target) + 1),
			 0);
	rig_reap(a, 1); /* not asked for, but an error always comes */
	ck_assert_ptr_eq(a->wc[0].context, &context[0]);
	ck_assert_int_eq(a->wc[0].status, IBV_WC_REM_ACCESS_ERR);
	ck_assert_int_eq(a->wc[0].opcode, IBV_WC_RDMA_WRITE);
	build(a, &sgl, 1, 10, 1);
	ck_assert_int_eq(sgp_post_sendv(a->ep, NULL, &sgl, 0), -1);
	ck_assert_int_eq(errno, ESHUTDOWN);
	sgp_sgl_clear(&sgl);
	sgp_chunk_put(target);
	close_rig();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("operations");
	TCase *tc = tcase_create("between two");

	suite_add_tcase(suite, tc);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, writes_and_reads_of_any_length);
	tcase_add_test(tc, a_read_cut_by_the_message_limit_comes_back_as_it_went);
	tcase_add_test(tc, a_list_longer_than_the_queue_is_too_big);
	tcase_add_test(tc, immediates_and_invalidations_arrive);
	tcase_add_test(tc, atomics_return_what_was_there);
	tcase_add_test(tc, handover_gives_a_sends_chunks_back);
	tcase_add_test(tc, iwarp_gets_what_iwarp_has);
	tcase_add_test(tc, a_remote_error_ends_one_operation_and_stops_the_endpoint);
	return suite_run(suite);
}
