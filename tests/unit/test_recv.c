/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Receives that the library keeps posted: full before each poll returns, on devices of every kind, and
 * what a completion hands over.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>

#include "../suite.h"
#include "post/ep.h"
#include "recv_rig.h"

/* ---- full ---- */

START_TEST(it_is_full_from_the_start_and_before_each_poll_returns)
{
	open_full(personas[_i], (struct rig_attr){.depth = 8, .chunks = 16});
	check_b(8);
	for (int round = 0; round < 100; round++) {
		send_bytes(100, round);
		receive(100, round, NULL);
		check_b(8);
	}
	ck_assert_uint_eq(stats_of(b).refilled, 108);
	ck_assert_uint_eq(stats_of(b).recv_dry, 0);
	close_rig();
}
END_TEST

START_TEST(a_batch_is_replaced_by_one_call)
{
	uint64_t calls;

	open_full(personas[_i], (struct rig_attr){.depth = 8, .chunks = 32});
	for (int i = 0; i < 6; i++)
		send_bytes(64, i);
	calls = sv_calls("post_recv");
	rig_reap(b, 6);
	ck_assert_uint_eq(sv_calls("post_recv"), calls + 1);
	for (int i = 0; i < 6; i++) {
		check_message(&b->wc[i], 64, i);
		sgp_sgl_clear(&b->wc[i].sgl);
	}
	check_b(8);
	close_rig();
}
END_TEST

/* Case 51c: never one too many. */
START_TEST(a_queue_of_one_receive_has_one)
{
	open_full(personas[_i], (struct rig_attr){.depth = 1, .chunks = 4, .cqe = 8});
	for (int round = 0; round < 100; round++) {
		check_b(1);
		send_bytes(10, round);
		receive(10, round, NULL);
	}
	check_b(1);
	ck_assert_uint_eq(stats_of(b).recv_refused, 0);
	close_rig();
}
END_TEST

/* ---- what is handed over ---- */

START_TEST(header_and_payload_are_apart)
{
	static const struct {
		size_t bytes;
		int sges;
	} messages[] = {{64 + 4096 + 4096, 3},
			{64 + 4096 + 1, 3},
			{64 + 4096, 2},
			{64 + 1, 2},
			{64, 1},
			{1, 1},
			{0, 0}};

	nparts = 2;
	parts[0] = (struct sgp_recv_part){.size = 64};
	parts[1] = (struct sgp_recv_part){.size = 4096, .n = 2};
	/* Of two classes, and of one. */
	open_full(personas[_i / 2],
		  (struct rig_attr){.depth = 4, .chunks = 20, .small = _i % 2 * 8});
	check_b(4);
	for (size_t i = 0; i < sizeof messages / sizeof *messages; i++) {
		SGP_SGL(kept, 4);

		send_bytes(messages[i].bytes, (int)i);
		receive(messages[i].bytes, (int)i, &kept);
		ck_assert_int_eq(kept.num_sge, messages[i].sges);
		ck_assert_int_eq(kept.num_chunk, messages[i].sges);
		for (int j = 1; j < kept.num_sge; j++)
			ck_assert_uint_eq(kept.sge[j].addr % 4096, 0);
		check_b(4);
		let_go(&kept);
		check_b(4);
	}
	close_rig();
}
END_TEST

START_TEST(a_message_is_forwarded_without_a_copy)
{
	struct sgp_chunk *chunk;

	open_full(personas[_i], (struct rig_attr){.depth = 4, .chunks = 8});
	send_bytes(1000, 'f');
	rig_reap(b, 1);
	chunk = b->wc[0].sgl.chunk[0];
	rig_post_recv(a, &context[1]);
	/* Straight out of the completion's list. */
	ck_assert_msg(!sgp_post_sendv(b->ep, &context[2], &b->wc[0].sgl, SGP_HANDOVER), "%s",
		      sgp_errmsg());
	ck_assert_int_eq(b->wc[0].sgl.num_chunk, 0);
	rig_reap(a, 1);
	ck_assert_uint_eq(a->wc[0].byte_len, 1000);
	for (int i = 0; i < 1000; i++)
		ck_assert_uint_eq(((uint8_t *)(uintptr_t)a->wc[0].sgl.sge[0].addr)[i],
				  (uint8_t)('f' + i));
	rig_reap(b, 1);
	ck_assert_ptr_eq(b->wc[0].sgl.chunk[0], chunk);
	held_of_b = 1;
	check_b(4);
	held_of_b = 0;
	close_rig();
}
END_TEST

/* In a checked pool what is posted is known to be the device's. */
START_TEST(a_checked_pool_knows_what_is_posted)
{
	struct sgp_chunk *chunk;
	SGP_SGL(kept, 4);

	unsetenv("SGP_CHECK"); /* it would have the last word */
	open_full(personas[_i],
		  (struct rig_attr){.depth = 4, .chunks = 16, .pool_flags = SGP_POOL_CHECKED});
	for (int i = 0; i < 4; i++) {
		chunk = sgp_side_slot(&b->ep->recv, b->ep->recv.tail)->chunk[0];
		errno = 0;
		ck_assert_int_eq(sgp_check_claim(chunk), -1);
		ck_assert_int_eq(errno, EBUSY);
		send_bytes(100, i);
		if (i == 2)
			ck_assert_int_eq(sv_fail_nth("post_recv", 0, ENOMEM), 0);
		receive(100, i, &kept);
		ck_assert_ptr_eq(kept.chunk[0], chunk);
		ck_assert_int_eq(sgp_check_claim(chunk), 0);
		let_go(&kept);
	}
	rig_close_ep(b);
	ck_assert_uint_eq(sgp_check_findings(), 0);
	close_rig();
}
END_TEST

/* A list that was copied for its send is no shared queue's when it comes back. */
START_TEST(a_copy_is_handed_back)
{
	SGP_SGL(sgl, 3);

	open_full(NULL, (struct rig_attr){.depth = 4, .chunks = 8, .max_sge = 2, .cq_sge = 4});
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(sgp_sgl_append(&sgl, rig_chunk(a, 'c'), 8, 100), 0);
	ck_assert_msg(!sgp_post_sendv(a->ep, NULL, &sgl, SGP_HANDOVER | SGP_LINEARISE), "%s",
		      sgp_errmsg());
	rig_reap(a, 1);
	ck_assert_int_eq(a->wc[0].status, IBV_WC_SUCCESS);
	ck_assert_int_eq(a->wc[0].sgl.num_chunk, 1);
	rig_reap(b, 1);
	ck_assert_uint_eq(b->wc[0].byte_len, 300);
	sgp_sgl_clear(&b->wc[0].sgl);
	check_b(4);
	close_rig();
}
END_TEST

START_TEST(room_in_front_takes_a_header)
{
	SGP_SGL(kept, 4);

	parts[0] = (struct sgp_recv_part){.size = 1000, .offset = 96};
	nparts = 1;
	open_full(NULL, (struct rig_attr){.depth = 4, .chunks = 8});
	send_bytes(1000, 'h');
	receive(1000, 'h', &kept);
	ck_assert_uint_eq(kept.sge[0].addr, (uintptr_t)sgp_chunk_addr(kept.chunk[0]) + 96);
	sgp_chunk_ref(kept.chunk[0]);
	ck_assert_int_eq(sgp_sgl_prepend(&kept, kept.chunk[0], 64, 32), 0);
	ck_assert_int_eq(kept.num_sge, 1);
	ck_assert_uint_eq(kept.length, 1032);
	held_of_b = 1; /* chunk, held twice */
	check_b(4);
	held_of_b = 2;
	let_go(&kept);
	check_b(4);
	close_rig();
}
END_TEST

/* Case 22: an empty message takes a whole receive, of real memory. */
START_TEST(an_empty_message_gives_its_chunks_back)
{
	SGP_SGL(nothing, 1);

	open_full(personas[_i], (struct rig_attr){.depth = 4, .chunks = 8});
	for (int i = 0; i < 10; i++) {
		ck_assert_int_eq(sgp_post_sendv(a->ep, NULL, &nothing, IBV_SEND_SIGNALED), 0);
		rig_reap(a, 1);
		rig_reap(b, 1);
		check_message(&b->wc[0], 0, 0);
		ck_assert_int_eq(b->wc[0].sgl.num_chunk, 0);
		check_b(4);
	}
	close_rig();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("recv");
	TCase *tc = tcase_create("recv");

	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, it_is_full_from_the_start_and_before_each_poll_returns, 0,
			    npersonas);
	tcase_add_loop_test(tc, a_batch_is_replaced_by_one_call, 0, npersonas);
	tcase_add_loop_test(tc, a_queue_of_one_receive_has_one, 0, npersonas);
	tcase_add_loop_test(tc, header_and_payload_are_apart, 0, 2 * npersonas);
	tcase_add_loop_test(tc, a_message_is_forwarded_without_a_copy, 0, npersonas);
	tcase_add_test(tc, a_copy_is_handed_back);
	tcase_add_loop_test(tc, a_checked_pool_knows_what_is_posted, 0, npersonas);
	tcase_add_test(tc, room_in_front_takes_a_header);
	tcase_add_loop_test(tc, an_empty_message_gives_its_chunks_back, 0, npersonas);
	suite_add_tcase(s, tc);
	return suite_run(s);
}
