/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A time that is over is not a completion: what is cancelled is told once, its memory comes home only
 * when the device is finished with it, and its own completion is never heard of.
 */
#include <check.h>
#include <errno.h>
#include <string.h>

#include "../suite.h"
#include "ab_rig.h"

static void expect_none(struct rig_side *side)
{
	ck_assert_int_eq(sgp_poll(side->cq, RIG_WC, side->wc), 0);
}

static void expect_cancelled(const struct sgp_wc *wc, void *ctx, enum ibv_wc_opcode opcode)
{
	ck_assert_ptr_eq(wc->context, ctx);
	ck_assert_ptr_eq(wc->ep, a->ep);
	ck_assert_int_eq(wc->status, IBV_WC_WR_FLUSH_ERR);
	ck_assert_int_eq(wc->error, ECANCELED);
	ck_assert_int_eq(wc->opcode, opcode);
	ck_assert_int_eq(wc->sgl.num_chunk, 0);
	ck_assert_int_eq(wc->sgl.num_sge, 0);
}

static void post(void *ctx, int chunks, size_t size, int flags)
{
	SGP_SGL(sgl, 8);

	for (int i = 0; i < chunks; i++)
		ck_assert_int_eq(sgp_sgl_append(&sgl, rig_chunk(a, 'm'), 0, size), 0);
	ck_assert_msg(!sgp_post_sendv(a->ep, ctx, &sgl, flags), "%s", sgp_errmsg());
}

static void not_cancelled(struct rig_side *side, void *ctx, int err)
{
	errno = 0;
	ck_assert_int_eq(sgp_cancel(side->ep, ctx), -1);
	ck_assert_int_eq(errno, err);
	ck_assert_int_gt(strlen(sgp_errmsg()), 0);
}

START_TEST(what_is_cancelled_is_told_at_once_and_held_until_its_completion)
{
	for (int flags = 0; flags < 3; flags++) {
		static const int which[] = {0, IBV_SEND_SIGNALED, SGP_HANDOVER};

		open_rig((struct rig_attr){0});
		post(&context[1], 2, 100,
		     which[flags]); /* no receive: it waits at the peer's door */
		ck_assert_int_eq(sgp_cancel(a->ep, &context[1]), 0);
		rig_reap(a, 1);
		expect_cancelled(&a->wc[0], &context[1], IBV_WC_SEND);
		expect_none(a);
		not_cancelled(a, &context[1], ENOENT);

		rig_check_live(a, 2);
		ck_assert_uint_eq(stats_of(a).quarantined, 2);
		ck_assert_uint_eq(stats_of(a).cancelled, 1);
		ck_assert_int_eq(sgp_pool_destroy(a->pool), -1);
		ck_assert_int_eq(errno, EBUSY);

		/* Now it completes: the message arrives, the memory comes home, nothing is told. */
		rig_post_recv(b, NULL);
		rig_reap(b, 1);
		ck_assert_uint_eq(b->wc[0].byte_len, 200);
		ck_assert_int_eq(sgp_wait(a->cq, RIG_WC, a->wc, 0), 0);
		rig_idle(a); /* nobody asked for its completion: a tail */
		rig_check_live(a, 0);
		ck_assert_uint_eq(stats_of(a).quarantined, 0);
		ck_assert_uint_eq(stats_of(a).completions, 1);

		/* The endpoint is as good as new. */
		rig_post_recv(b, NULL);
		rig_post_send(a, &context[2], 2);
		rig_reap(a, 1);
		ck_assert_int_eq(a->wc[0].status, IBV_WC_SUCCESS);
		rig_reap(b, 1);
		close_rig();
	}
}
END_TEST

START_TEST(a_completion_before_it_is_told_changes_nothing_for_the_caller)
{
	open_rig((struct rig_attr){0});
	post(&context[1], 1, 100, IBV_SEND_SIGNALED);
	post(&context[2], 1, 100, IBV_SEND_SIGNALED);
	/* Its completion is in the device's queue already. */
	rig_post_recv(b, NULL);
	ck_assert_int_eq(sgp_cancel(a->ep, &context[1]), 0);
	rig_reap(a, 1);
	expect_cancelled(&a->wc[0], &context[1], IBV_WC_SEND);
	expect_none(a);
	rig_check_live(a, 1);
	/* One call sees both, in a full poll. */
	ck_assert_int_eq(sgp_cancel(a->ep, &context[2]), 0);
	rig_post_recv(b, NULL);
	ck_assert_int_eq(sgp_poll(a->cq, RIG_WC, a->wc), 1);
	expect_cancelled(&a->wc[0], &context[2], IBV_WC_SEND);
	rig_check_live(a, 0);
	expect_none(a);
	close_rig();
}
END_TEST

START_TEST(a_clone_of_what_is_cancelled_is_the_callers)
{
	SGP_SGL(sgl, 1);
	SGP_SGL(clone, 1);

	open_rig((struct rig_attr){.chunks = 2});
	ck_assert_int_eq(sgp_sgl_append(&sgl, rig_chunk(a, 'c'), 0, 64), 0);
	ck_assert_int_eq(sgp_sgl_clone(&clone, &sgl), 0);
	ck_assert_int_eq(sgp_post_sendv(a->ep, &context[0], &sgl, IBV_SEND_SIGNALED), 0);
	ck_assert_int_eq(sgp_cancel(a->ep, &context[0]), 0);
	ck_assert_int_eq(sgp_post_sendv(a->ep, &context[1], &clone, IBV_SEND_SIGNALED), 0);
	rig_post_recv(b, NULL);
	rig_post_recv(b, NULL);
	rig_reap(a, 2);
	expect_cancelled(&a->wc[0], &context[0], IBV_WC_SEND);
	ck_assert_ptr_eq(a->wc[1].context, &context[1]);
	ck_assert_int_eq(a->wc[1].status, IBV_WC_SUCCESS);
	rig_check_live(a, 0);
	rig_reap(b, 2);
	close_rig();
}
END_TEST

START_TEST(what_cannot_be_cancelled_says_so)
{
	open_rig((struct rig_attr){0});
	not_cancelled(a, &context[0], ENOENT);
	rig_post_recv(b, &context[0]);
	not_cancelled(b, &context[0], EOPNOTSUPP);
	errno = 0;
	ck_assert_int_eq(sgp_cancel(NULL, NULL), -1);
	ck_assert_int_eq(errno, EINVAL);
	/* The receive is still there. */
	rig_post_send(a, &context[1], 1);
	rig_reap(b, 1);
	ck_assert_ptr_eq(b->wc[0].context, &context[0]);
	not_cancelled(b, &context[0], ENOENT);
	rig_reap(a, 1);
	/* The oldest of several with one context. */
	post(&context[2], 1, 1, IBV_SEND_SIGNALED);
	post(&context[2], 2, 1, IBV_SEND_SIGNALED);
	ck_assert_int_eq(sgp_cancel(a->ep, &context[2]), 0);
	ck_assert_uint_eq(stats_of(a).quarantined, 1);
	ck_assert_int_eq(sgp_cancel(a->ep, &context[2]), 0);
	ck_assert_uint_eq(stats_of(a).quarantined, 3);
	not_cancelled(a, &context[2], ENOENT);
	close_rig();
}
END_TEST

START_TEST(what_was_only_gathered_is_never_sent)
{
	open_rig((struct rig_attr){.depth = 8, .max_inline = 32});
	for (int i = 0; i < 4; i++)
		rig_post_recv(b, NULL);
	post(&context[0], 1, 100, SGP_BATCH);
	post(&context[1], 1, 101, SGP_BATCH | IBV_SEND_SIGNALED);
	post(&context[2], 1, 10, SGP_BATCH); /* inline */
	post(&context[3], 2, 51, SGP_BATCH);
	post(&context[4], 1, 104, SGP_BATCH | IBV_SEND_SIGNALED);
	rig_check_live(a, 5);
	for (int i = 1; i < 4; i++)
		ck_assert_int_eq(sgp_cancel(a->ep, &context[i]), 0);
	rig_check_live(a, 2);
	ck_assert_uint_eq(stats_of(a).quarantined, 0);
	ck_assert_int_eq(sgp_ep_submit(a->ep), 0);
	rig_reap(b, 2);
	ck_assert_uint_eq(b->wc[0].byte_len, 100);
	ck_assert_uint_eq(b->wc[1].byte_len, 104);
	ck_assert_int_eq(sgp_poll(b->cq, RIG_WC, b->wc), 0);
	rig_reap(a, 4);
	for (int i = 0; i < 3; i++)
		expect_cancelled(&a->wc[i], &context[i + 1], IBV_WC_SEND);
	ck_assert_ptr_eq(a->wc[3].context, &context[4]);
	rig_check_live(a, 0);
	for (int i = 0; i < 2; i++) { /* all of the queue can be used again */
		struct sgp_ep_info info;

		ck_assert_int_eq(sgp_ep_query(a->ep, &info), 0);
		ck_assert_int_eq(info.send_room, 8);
		rig_post_send(a, NULL, 1);
		rig_reap(a, 1);
	}
	close_rig();
}
END_TEST

START_TEST(what_is_cancelled_and_then_refused_is_told_once)
{
	open_rig((struct rig_attr){0});
	for (int i = 0; i < 4; i++)
		post(&context[i], 1, 100, SGP_BATCH | IBV_SEND_SIGNALED);
	/* Two in the pending list when the refusals go to the inbox. */
	ck_assert_int_eq(sgp_cancel(a->ep, &context[1]), 0);
	ck_assert_int_eq(sgp_cancel(a->ep, &context[2]), 0);
	ck_assert_int_eq(sv_fail_nth("post_send", 0, ENOMEM), 0);
	ck_assert_int_eq(sgp_ep_submit(a->ep), -1);
	ck_assert_int_eq(errno, ENOMEM);
	rig_reap(a, 4);
	expect_cancelled(&a->wc[0], &context[1], IBV_WC_SEND);
	expect_cancelled(&a->wc[1], &context[2], IBV_WC_SEND);
	ck_assert_ptr_eq(a->wc[2].context, &context[0]);
	ck_assert_ptr_eq(a->wc[3].context, &context[3]);
	for (int i = 2; i < 4; i++)
		ck_assert_int_eq(a->wc[i].error, ENOMEM);
	expect_none(a);
	rig_check_live(a, 0);
	close_rig();
}
END_TEST

START_TEST(a_split_operation_is_cancelled_whole)
{
	for (int batch = 0; batch < 2; batch++) {
		struct sgp_chunk *target;
		SGP_SGL(sgl, 6);

		open_rig((struct rig_attr){.max_sge = 2, .pool_flags = SGP_POOL_REMOTE_WRITE});
		target = rig_chunk(b, 0);
		for (int i = 0; i < 6; i++)
			ck_assert_int_eq(sgp_sgl_append(&sgl, rig_chunk(a, 'w'), 0, 100), 0);
		if (!batch) /* it waits behind a send that nobody receives yet */
			post(&context[1], 1, 1, IBV_SEND_SIGNALED);
		ck_assert_int_eq(sgp_post_writev(a->ep, &context[0], &sgl,
						 IBV_SEND_SIGNALED | (batch ? SGP_BATCH : 0),
						 (uintptr_t)sgp_chunk_addr(target),
						 sgp_chunk_rkey(target)),
				 0);
		ck_assert_int_eq(sgp_cancel(a->ep, &context[0]), 0);
		rig_check_live(a, batch ? 0 : 7);
		ck_assert_uint_eq(stats_of(a).quarantined, batch ? 0 : 6);
		rig_reap(a, 1);
		expect_cancelled(&a->wc[0], &context[0], IBV_WC_RDMA_WRITE);
		rig_post_recv(b, NULL);
		if (!batch) {
			rig_reap(a, 1);
			ck_assert_ptr_eq(a->wc[0].context, &context[1]);
		}
		ck_assert_int_eq(sgp_ep_submit(a->ep), 0);
		expect_none(a);
		rig_check_live(a, 0);
		ck_assert_int_eq(*(char *)sgp_chunk_addr(target), batch ? 0 : 'w');
		sgp_chunk_put(target);
		close_rig();
	}
}
END_TEST

START_TEST(the_sink_of_a_cancelled_read_is_not_handed_out)
{
	struct sgp_chunk *source, *sink;
	SGP_SGL(sgl, 1);

	open_rig((struct rig_attr){.chunks = 1, .pool_flags = SGP_POOL_REMOTE_READ});
	source = rig_chunk(b, 's');
	sink = rig_chunk(a, 0);
	ck_assert_int_eq(sgp_sgl_append(&sgl, sink, 0, 100), 0);
	sv_clock_advance(0); /* it stands still: the retries do not run out */
	ck_assert_int_eq(sv_port_set("soft0", 1, 0), 0);
	ck_assert_int_eq(sgp_post_readv(a->ep, &context[0], &sgl, 0,
					(uintptr_t)sgp_chunk_addr(source), sgp_chunk_rkey(source)),
			 0);
	ck_assert_int_eq(sgp_cancel(a->ep, &context[0]), 0);
	rig_reap(a, 1);
	expect_cancelled(&a->wc[0], &context[0], IBV_WC_RDMA_READ);
	ck_assert_ptr_null(sgp_pool_get(a->pool, 1, 0));
	ck_assert_int_eq(sv_port_set("soft0", 1, 1), 0); /* now it lands */
	ck_assert_ptr_null(sgp_pool_get(a->pool, 1, 0));
	expect_none(a);
	rig_check_live(a, 0);
	sgp_chunk_put(source);
	close_rig();
}
END_TEST

START_TEST(a_close_ends_what_was_cancelled)
{
	for (int told = 0; told < 2; told++)
		for (int timeout = 0; timeout < 2; timeout++) {
			open_rig((struct rig_attr){0});
			post(&context[0], 1, 100, IBV_SEND_SIGNALED);
			post(&context[1], 1, 100, IBV_SEND_SIGNALED);
			ck_assert_int_eq(sgp_cancel(a->ep, &context[0]), 0);
			if (told) {
				rig_reap(a, 1);
				expect_cancelled(&a->wc[0], &context[0], IBV_WC_SEND);
			}
			ck_assert_int_eq(sgp_ep_close(a->ep, timeout * 100), 0);
			rig_check_live(a, 1); /* the other's, until it's polled */
			ck_assert_uint_eq(stats_of(a).quarantined, 0);
			rig_reap(a, 2 - told);
			if (!told)
				expect_cancelled(&a->wc[0], &context[0], IBV_WC_SEND);
			ck_assert_ptr_eq(a->wc[1 - told].context, &context[1]);
			ck_assert_int_eq(a->wc[1 - told].error, 0);
			expect_none(a);
			rig_check_live(a, 0);
			not_cancelled(a, &context[0], ENOENT);
			close_rig();
		}
}
END_TEST

START_TEST(all_is_quarantined_while_the_queue_pair_cannot_be_destroyed)
{
	open_rig((struct rig_attr){0});
	/* Their flushes are lost, and then the destroy fails. */
	ck_assert_int_eq(sv_faults("completion drop", NULL), 0);
	post(&context[0], 2, 100, IBV_SEND_SIGNALED);
	post(&context[1], 1, 100, IBV_SEND_SIGNALED);
	rig_post_recv(a, &context[2]);
	ck_assert_int_eq(sgp_cancel(a->ep, &context[1]), 0);
	rig_reap(a, 1);
	ck_assert_int_eq(sv_fail_nth("destroy_qp", 0, EIO), 0);
	ck_assert_int_eq(sgp_ep_close(a->ep, 0), -1);
	ck_assert_int_eq(errno, EIO);
	expect_none(a);
	rig_check_live(a, 4);
	ck_assert_uint_eq(stats_of(a).quarantined, 4);
	ck_assert_int_eq(sgp_pool_destroy(a->pool), -1);
	ck_assert_int_eq(errno, EBUSY);
	ck_assert_int_eq(sgp_ep_destroy(a->ep), -1);
	ck_assert_int_eq(errno, EBUSY);
	sv_faults_clear();
	ck_assert_int_eq(sgp_ep_close(a->ep, 0), 0);
	ck_assert_uint_eq(stats_of(a).quarantined, 0);
	rig_reap(a, 2);
	ck_assert_ptr_eq(a->wc[0].context, &context[0]);
	ck_assert_ptr_eq(a->wc[1].context, &context[2]);
	sgp_sgl_clear(&a->wc[1].sgl);
	expect_none(a);
	rig_check_live(a, 0);
	close_rig();
}
END_TEST

START_TEST(a_sleeper_learns_of_it)
{
	open_rig((struct rig_attr){0});
	post(&context[0], 1, 100, IBV_SEND_SIGNALED);
	ck_assert_int_eq(sgp_cq_arm(a->cq), 0);
	ck_assert_int_eq(sgp_cancel(a->ep, &context[0]), 0);
	ck_assert_int_eq(sgp_wait(a->cq, 1, a->wc, 5000), 1);
	expect_cancelled(&a->wc[0], &context[0], IBV_WC_SEND);
	close_rig();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cancel");
	TCase *tc = tcase_create("cancel");

	suite_add_tcase(suite, tc);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, what_is_cancelled_is_told_at_once_and_held_until_its_completion);
	tcase_add_test(tc, a_completion_before_it_is_told_changes_nothing_for_the_caller);
	tcase_add_test(tc, a_clone_of_what_is_cancelled_is_the_callers);
	tcase_add_test(tc, what_cannot_be_cancelled_says_so);
	tcase_add_test(tc, what_was_only_gathered_is_never_sent);
	tcase_add_test(tc, what_is_cancelled_and_then_refused_is_told_once);
	tcase_add_test(tc, a_split_operation_is_cancelled_whole);
	tcase_add_test(tc, the_sink_of_a_cancelled_read_is_not_handed_out);
	tcase_add_test(tc, a_close_ends_what_was_cancelled);
	tcase_add_test(tc, all_is_quarantined_while_the_queue_pair_cannot_be_destroyed);
	tcase_add_test(tc, a_sleeper_learns_of_it);
	return suite_run(suite);
}
