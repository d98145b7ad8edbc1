/* SPDX-License-Identifier: BSD-2-Clause */
/* Posting and reaping: who owns each chunk, on its way, at its completion, and at the end. */
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>

#include "../suite.h"
#include "rig.h"

static int context[64];

START_TEST(a_message_arrives_and_every_chunk_comes_home)
{
	struct rig rig;
	struct rig_side *a = &rig.side[0], *b = &rig.side[1];
	SGP_SGL(sgl, 4);
	struct sgp_chunk *chunk;

	rig_open(&rig, NULL);
	rig_post_recv(b, &context[1]);
	rig_check_live(b, 1);

	/* Two slices, 100 bytes of a receive of 4096. */
	chunk = rig_chunk(a, 'x');
	sgp_chunk_ref(chunk);
	ck_assert_int_eq(sgp_sgl_append(&sgl, chunk, 5, 40), 0);
	ck_assert_int_eq(sgp_sgl_append(&sgl, chunk, 1000, 60), 0);
	ck_assert_int_eq(sgp_post_sendv(a->ep, &context[0], &sgl, IBV_SEND_SIGNALED), 0);
	ck_assert_int_eq(sgl.num_sge + sgl.num_chunk, 0);
	ck_assert_uint_eq(sgl.length, 0);
	rig_check_live(a, 1);

	rig_reap(b, 1);
	ck_assert_ptr_eq(b->wc[0].context, &context[1]);
	ck_assert_ptr_eq(b->wc[0].ep, b->ep);
	ck_assert_int_eq(b->wc[0].opcode, IBV_WC_RECV);
	ck_assert_int_eq(b->wc[0].status, IBV_WC_SUCCESS);
	ck_assert_uint_eq(b->wc[0].byte_len, 100);
	ck_assert_uint_eq(b->wc[0].sgl.length, 100);
	ck_assert_int_eq(b->wc[0].sgl.num_chunk, 1);
	rig_check_bytes(&b->wc[0].sgl, 'x');
	rig_check_live(b, 1);
	sgp_sgl_clear(&b->wc[0].sgl);
	rig_check_live(b, 0);

	rig_reap(a, 1);
	ck_assert_ptr_eq(a->wc[0].context, &context[0]);
	ck_assert_int_eq(a->wc[0].opcode, IBV_WC_SEND);
	ck_assert_int_eq(a->wc[0].status, IBV_WC_SUCCESS);
	ck_assert_int_eq(a->wc[0].sgl.num_chunk, 0);
	rig_check_live(a, 0);
	rig_close(&rig);
	rig_check_no_leak();
}
END_TEST

START_TEST(an_unsignalled_send_gives_no_completion_but_comes_home)
{
	struct rig rig;
	struct rig_side *a = &rig.side[0], *b = &rig.side[1];

	rig_open(&rig, NULL);
	for (int i = 0; i < 1000; i++) {
		SGP_SGL(sgl, 1);

		rig_post_recv(b, NULL);
		ck_assert_int_eq(sgp_sgl_append(&sgl, rig_chunk(a, i), 0, 10), 0);
		ck_assert_int_eq(sgp_post_sendv(a->ep, NULL, &sgl, 0), 0);
		rig_reap(b, 1);
		rig_check_bytes(&b->wc[0].sgl, i);
		sgp_sgl_clear(&b->wc[0].sgl);
		ck_assert_int_eq(sgp_wait(a->cq, RIG_WC, a->wc, 0), 0);
	}
	rig_idle(a);
	rig_check_live(a, 0);
	rig_close(&rig);
}
END_TEST

static void many_holds(struct rig_side *side, struct sgp_ep_attr *ep)
{
	(void)side;
	ep->max_chunk = 300;
}

/* More than a poll gives back at a time, of one message and of several together. */
START_TEST(many_holds_come_home_in_one_poll)
{
	static const int holds[] = {100, 1, 100, 300, 3, 192, 193, 7};
	const int n = sizeof holds / sizeof holds[0];
	struct rig rig;
	struct rig_side *a = &rig.side[0], *b = &rig.side[1];

	rig_open(&rig,
		 &(struct rig_attr){
			 .chunk_size = 64, .chunks = 1024, .cq_sge = 300, .tune = many_holds});
	for (int round = 0; round < 3; round++) {
		SGP_SGL(sgl, 301);
		int live = 0, signalled = 0;

		/* One more than a slot holds. */
		ck_assert_int_eq(sgp_sgl_append(&sgl, rig_chunk(a, 1), 0, 10), 0);
		for (int j = 0; j < 300; j++)
			ck_assert_int_eq(sgp_sgl_append(&sgl, rig_chunk(a, 1), 0, 0), 0);
		ck_assert_int_eq(sgp_post_sendv(a->ep, NULL, &sgl, 0), -1);
		ck_assert_int_eq(errno, E2BIG);
		ck_assert_int_eq(sgl.num_chunk, 301);
		sgp_sgl_clear(&sgl);

		for (int i = 0; i < n; i++) {
			/* The last one, whose completion is last, and every third of the others. */
			int flags = i == n - 1 || i % 3 == round ? IBV_SEND_SIGNALED : 0;

			rig_post_recv(b, NULL);
			ck_assert_int_eq(sgp_sgl_append(&sgl, rig_chunk(a, i), 0, 10), 0);
			for (int j = 1; j < holds[i]; j++)
				ck_assert_int_eq(sgp_sgl_append(&sgl, rig_chunk(a, i), 0, 0), 0);
			ck_assert_msg(!sgp_post_sendv(a->ep, &context[i], &sgl, flags), "%s",
				      sgp_errmsg());
			live += holds[i];
			signalled += flags != 0;
		}
		rig_check_live(a, (uint64_t)live);
		rig_reap(b, n);
		rig_reap(a, signalled);
		rig_check_live(a, 0);
	}
	rig_close(&rig);
}
END_TEST

START_TEST(an_empty_send_arrives_as_an_empty_list)
{
	struct rig rig;
	SGP_SGL(sgl, 1);

	rig_open(&rig, NULL);
	rig_post_recv(&rig.side[1], NULL);
	ck_assert_int_eq(sgp_post_sendv(rig.side[0].ep, NULL, &sgl, IBV_SEND_SIGNALED), 0);
	rig_reap(&rig.side[1], 1);
	ck_assert_int_eq(rig.side[1].wc[0].status, IBV_WC_SUCCESS);
	ck_assert_uint_eq(rig.side[1].wc[0].byte_len, 0);
	ck_assert_int_eq(rig.side[1].wc[0].sgl.num_sge, 0);
	rig_check_live(&rig.side[1], 0);
	rig_close(&rig);
}
END_TEST

START_TEST(what_a_completion_holds_is_dropped_when_it_is_used_again)
{
	struct rig rig;
	struct rig_side *b = &rig.side[1];

	rig_open(&rig, NULL);
	for (int i = 0; i < 2; i++) {
		rig_post_recv(b, NULL);
		rig_post_send(&rig.side[0], NULL, 'a' + i);
		rig_reap(b, 1);
		rig_check_live(b, 1);
		rig_check_bytes(&b->wc[0].sgl, 'a' + i);
	}
	sgp_wc_free(b->wc);
	rig_check_live(b, 0);
	b->wc = sgp_wc_alloc(b->cq, RIG_WC);
	ck_assert_ptr_nonnull(b->wc);
	rig_close(&rig);
}
END_TEST

START_TEST(case_52b_a_chunk_in_flight_is_not_handed_out)
{
	struct rig rig;
	struct rig_attr attr = {.chunks = 1};
	struct rig_side *a = &rig.side[0];

	rig_open(&rig, &attr);
	rig_post_send(a, NULL, 'o'); /* no receive yet: it waits at the peer's door */
	ck_assert_ptr_null(sgp_pool_get(a->pool, 1, 0));
	ck_assert_int_eq(errno, ENOBUFS);
	rig_post_recv(&rig.side[1], NULL);
	rig_reap(a, 1);
	rig_reap(&rig.side[1], 1);
	rig_check_bytes(&rig.side[1].wc[0].sgl, 'o');
	sgp_chunk_put(rig_chunk(a, 'n'));
	rig_close(&rig);
}
END_TEST

START_TEST(case_52d_the_list_may_be_wiped_after_the_post)
{
	struct rig rig;
	struct rig_side *a = &rig.side[0], *b = &rig.side[1];

	rig_open(&rig, NULL);
	rig_post_recv(b, &context[2]);
	{
		SGP_SGL(sgl, 3);

		for (int i = 0; i < 3; i++)
			ck_assert_int_eq(sgp_sgl_append(&sgl, rig_chunk(a, 'w'), 0, 100), 0);
		ck_assert_int_eq(sgp_post_sendv(a->ep, &context[3], &sgl, IBV_SEND_SIGNALED), 0);
		memset(sgl_sge, 0xee, sizeof sgl_sge);
		memset(sgl_chunk, 0xee, sizeof sgl_chunk);
		memset(&sgl, 0xee, sizeof sgl);
	}
	rig_reap(b, 1);
	ck_assert_uint_eq(b->wc[0].byte_len, 300);
	rig_check_bytes(&b->wc[0].sgl, 'w');
	rig_reap(a, 1);
	ck_assert_ptr_eq(a->wc[0].context, &context[3]);
	rig_check_live(a, 0);
	rig_close(&rig);
}
END_TEST

START_TEST(case_44_each_context_is_flushed_once_at_close)
{
	struct rig_attr attr = {.chunks = 8, .depth = 4, .rnr_retry = 7};

	for (int round = 0; round < 300; round++) {
		struct rig rig;
		struct rig_side *a = &rig.side[0];
		int seen[8] = {0}, n, got = 0;

		rig_open(&rig, &attr);
		/* The peer posts no receive: the sends stay in the queue. */
		for (int i = 0; i < 4; i++) {
			rig_post_recv(a, &context[i]);
			rig_post_send(a, &context[4 + i], i);
		}
		rig_check_live(a, 8);
		/* With time for the flushes to come, and with none. */
		ck_assert_int_eq(sgp_ep_close(a->ep, round % 2 ? 0 : 1000), 0);
		while ((n = sgp_poll(a->cq, 3, a->wc)) > 0) {
			for (int i = 0; i < n; i++) {
				seen[(int *)a->wc[i].context - context]++;
				ck_assert_int_ne(a->wc[i].status, IBV_WC_SUCCESS);
				sgp_sgl_clear(&a->wc[i].sgl);
			}
			got += n;
		}
		ck_assert_int_eq(got, 8);
		for (int i = 0; i < 8; i++)
			ck_assert_int_eq(seen[i], 1);
		rig_check_live(a, 0);
		rig_close(&rig);
	}
	rig_check_no_leak();
}
END_TEST

START_TEST(a_thousand_rounds_leave_nothing)
{
	for (int round = 0; round < 1000; round++) {
		struct rig rig;

		rig_open(&rig, NULL);
		rig_post_recv(&rig.side[1], NULL);
		rig_post_send(&rig.side[0], NULL, round);
		rig_reap(&rig.side[0], 1);
		rig_reap(&rig.side[1], 1);
		rig_check_bytes(&rig.side[1].wc[0].sgl, round);
		sgp_sgl_clear(&rig.side[1].wc[0].sgl);
		ck_assert_int_eq(rdma_disconnect(rig.side[0].id), 0);
		rig_close(&rig);
		rig_check_no_leak();
	}
}
END_TEST

START_TEST(case_36_a_closed_endpoints_completions_touch_no_other)
{
	/* Providers like rxe keep a destroyed queue pair's completions in the queue (law 2.8). */
	ck_assert_int_eq(sv_device_add("rxe", "rxe", 1), 0);
	for (int round = 0; round < 50; round++) {
		struct rig rig;
		struct rig_attr attr = {.depth = 4, .cqe = 64};
		struct rig_side *a = &rig.side[0];

		rig_open(&rig, &attr);
		for (int i = 0; i < 4; i++)
			rig_post_recv(a, &context[i]);
		ck_assert_int_eq(sgp_ep_close(a->ep, 0), 0);
		rig_reap(a, 4);
		for (int i = 0; i < 4; i++) {
			ck_assert_ptr_eq(a->wc[i].context, &context[i]);
			sgp_sgl_clear(&a->wc[i].sgl);
		}
		rig_check_live(a, 0);
		ck_assert_int_eq(sgp_poll(a->cq, RIG_WC, a->wc), 0);
		rig_close(&rig);
	}
	rig_check_no_leak();
}
END_TEST

START_TEST(waiting_ends_with_the_time_or_a_completion)
{
	struct rig rig;
	struct rig_side *a = &rig.side[0], *b = &rig.side[1];
	struct pollfd pfd;

	rig_open(&rig, NULL);
	ck_assert_int_eq(sgp_wait(b->cq, 1, b->wc, 0), 0);
	ck_assert_int_eq(sgp_wait(b->cq, 1, b->wc, 20), 0);

	/* The descriptor: not readable when armed, readable once something came. */
	rig_post_recv(b, NULL);
	ck_assert_int_eq(sgp_cq_arm(b->cq), 0);
	ck_assert_int_eq(sgp_poll(b->cq, 1, b->wc), 0);
	pfd = (struct pollfd){.fd = sgp_cq_fd(b->cq), .events = POLLIN};
	ck_assert_int_eq(poll(&pfd, 1, 0), 0);
	rig_post_send(a, NULL, 1);
	ck_assert_int_eq(poll(&pfd, 1, 5000), 1);
	ck_assert_int_eq(sgp_poll(b->cq, 1, b->wc), 1);
	sgp_sgl_clear(&b->wc[0].sgl);
	ck_assert_int_eq(sgp_cq_arm(b->cq), 0);
	ck_assert_int_eq(poll(&pfd, 1, 0), 0);

	/* A close's leftovers wake it too, though no device announces them. */
	rig_post_recv(b, NULL);
	ck_assert_int_eq(sgp_ep_close(b->ep, 0), 0);
	ck_assert_int_eq(poll(&pfd, 1, 5000), 1);
	rig_reap(b, 1);
	sgp_sgl_clear(&b->wc[0].sgl);
	rig_close(&rig);
}
END_TEST

static void *wait_for_one(void *arg)
{
	struct rig_side *side = arg;

	return (void *)(intptr_t)sgp_wait(side->cq, 1, side->wc, 10000);
}

START_TEST(a_sleeping_waiter_is_woken_by_another_thread)
{
	struct rig rig;
	struct rig_side *b = &rig.side[1];

	rig_open(&rig, NULL);
	for (int i = 0; i < 50; i++) {
		pthread_t thread;
		void *got;

		rig_post_recv(b, &context[i]);
		ck_assert_int_eq(pthread_create(&thread, NULL, wait_for_one, b), 0);
		rig_post_send(&rig.side[0], NULL, i);
		ck_assert_int_eq(pthread_join(thread, &got), 0);
		ck_assert_int_eq((intptr_t)got, 1);
		ck_assert_ptr_eq(b->wc[0].context, &context[i]);
		rig_check_bytes(&b->wc[0].sgl, i);
		rig_reap(&rig.side[0], 1);
	}
	rig_close(&rig);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("post");
	TCase *tc = tcase_create("queues");

	suite_add_tcase(suite, tc);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, a_message_arrives_and_every_chunk_comes_home);
	tcase_add_test(tc, an_unsignalled_send_gives_no_completion_but_comes_home);
	tcase_add_test(tc, many_holds_come_home_in_one_poll);
	tcase_add_test(tc, an_empty_send_arrives_as_an_empty_list);
	tcase_add_test(tc, what_a_completion_holds_is_dropped_when_it_is_used_again);
	tcase_add_test(tc, case_52b_a_chunk_in_flight_is_not_handed_out);
	tcase_add_test(tc, case_52d_the_list_may_be_wiped_after_the_post);
	tcase_add_test(tc, case_44_each_context_is_flushed_once_at_close);
	tcase_add_test(tc, a_thousand_rounds_leave_nothing);
	tcase_add_test(tc, case_36_a_closed_endpoints_completions_touch_no_other);
	tcase_add_test(tc, waiting_ends_with_the_time_or_a_completion);
	tcase_add_test(tc, a_sleeping_waiter_is_woken_by_another_thread);
	return suite_run(suite);
}
