/* SPDX-License-Identifier: BSD-2-Clause */
/* A queue pair's new life: each context of the old one is told once, and nothing of it touches the new. */
#include "../suite.h"
#include "plain_rig.h"

START_TEST(a_reset_tells_each_context_once_and_the_queue_pair_lives_again)
{
	for (int keep = 0; keep < 2; keep++) {
		open_all(2, keep, 2 * 2 * DEPTH);
		for (int round = 0; round < 20; round++) {
			int seen[64] = {0}, good = 0;
			struct sgp_chunk *c;

			/* Two messages that arrive, their completions unread; two that wait; one
			 * gathered; one receive that nobody sends to. */
			post_recv(t.ep[1], 0);
			post_recv(t.ep[1], 1);
			for (int i = 2; i < 6; i++)
				post_send(t.ep[0], i, IBV_SEND_SIGNALED);
			post_send(t.ep[0], 6, IBV_SEND_SIGNALED | SGP_BATCH);
			post_recv(t.ep[0], 7);
			ck_assert_int_eq(sgp_ep_reset(t.ep[0]), 0);
			ck_assert_int_eq(sgp_ep_qp(t.ep[0])->state, IBV_QPS_INIT);
			ck_assert_int_eq(sgp_ep_reset(t.ep[1]), 0);
			ck_assert_int_eq(take_all(seen, &good), 8);
			for (int i = 0; i < 8; i++)
				ck_assert_int_eq(seen[i], 1);
			ck_assert_int_eq(good, 4); /* what had completed is told as it did */
			check_live(0);

			/* Not connected again yet: receives are taken, sends are not. */
			post_recv(t.ep[1], 8);
			c = chunk(1);
			errno = 0;
			ck_assert_int_eq(sgp_post_send(t.ep[0], NULL, c, 0, 1, 0), -1);
			ck_assert_int_eq(errno, ENOTCONN);
			sgp_chunk_put(c);
			join(t.ep[0], t.ep[1]);
			post_send(t.ep[0], 9, IBV_SEND_SIGNALED);
			take_exactly(8, 2);
			check_live(0);
		}
		close_all();
	}
}
END_TEST

START_TEST(late_completions_of_the_old_life_are_ignored)
{
	struct sgp_ep_stats stats;

	/* Each completion comes again, when its slot has been posted anew. */
	open_all(2, true, 256);
	for (int round = 0; round < 50; round++) {
		ck_assert_int_eq(sv_faults("completion echo 2", NULL), 0);
		for (int i = 0; i < DEPTH; i++)
			post_recv(t.ep[0], i);
		for (int i = 0; i < 2; i++)
			ck_assert_int_eq(sgp_ep_reset(t.ep[i]), 0);
		take_exactly(0, DEPTH);
		sv_faults_clear();
		join(t.ep[0], t.ep[1]);
		for (int i = 0; i < DEPTH; i++)
			post_recv(t.ep[0], DEPTH + i);
		take_exactly(0, 0);
		check_live(DEPTH);
		for (int i = 0; i < DEPTH; i++)
			post_send(t.ep[1], 2 * DEPTH + i, IBV_SEND_SIGNALED);
		take_exactly(DEPTH, 2 * DEPTH);
		check_live(0);
	}
	ck_assert_int_eq(sgp_ep_stats(t.ep[0], &stats), 0);
	ck_assert_uint_eq(stats.completions, stats.recvs);
	close_all();
}
END_TEST

START_TEST(a_reset_that_fails_may_be_made_again)
{
	static const char *const calls[] = {"query_qp", "modify_qp", "modify_qp"};
	static const int nth[] = {0, 0, 1};

	for (int i = 0; i < 3; i++) {
		open_all(2, false, 64);
		post_recv(t.ep[0], 0);
		post_send(t.ep[0], 1, IBV_SEND_SIGNALED);
		ck_assert_int_eq(sv_fail_nth(calls[i], (uint64_t)nth[i], EACCES), 0);
		errno = 0;
		ck_assert_int_eq(sgp_ep_reset(t.ep[0]), -1);
		ck_assert_int_eq(errno, EACCES);
		/* The first changed nothing, the second stopped it, the third has told of all. */
		take_exactly(0, i == 2 ? 2 : 0);
		check_live(i == 2 ? 0 : 2);
		if (i) {
			struct sgp_chunk *c = chunk(0);

			ck_assert_int_eq(sgp_post_recv(t.ep[0], NULL, c, 0, 1), -1);
			ck_assert_int_eq(errno, ESHUTDOWN);
			sgp_chunk_put(c);
		}
		ck_assert_int_eq(sgp_ep_reset(t.ep[0]), 0);
		ck_assert_int_eq(sgp_ep_qp(t.ep[0])->state, IBV_QPS_INIT);
		take_exactly(0, i == 2 ? 0 : 2);
		close_all();
	}
}
END_TEST

START_TEST(a_reset_lets_go_of_what_was_cancelled)
{
	struct sgp_ep_stats stats;

	open_all(2, false, 64);
	post_send(t.ep[0], 0, IBV_SEND_SIGNALED);
	post_send(t.ep[0], 1, 0);
	ck_assert_int_eq(sgp_cancel(t.ep[0], &context[0]), 0);
	take_exactly(0, 1);
	ck_assert_int_eq(sgp_cancel(t.ep[0], &context[1]), 0);
	check_live(2);
	ck_assert_int_eq(sgp_ep_reset(t.ep[0]), 0);
	check_live(0);
	take_exactly(1, 1);
	ck_assert_int_eq(sgp_ep_stats(t.ep[0], &stats), 0);
	ck_assert_uint_eq(stats.quarantined, 0);
	ck_assert_uint_eq(stats.cancelled, 2);
	close_all();
}
END_TEST

START_TEST(what_is_not_open_is_not_reset)
{
	struct sgp_ep_attr attr = {.cap = {.max_send_wr = 2, .max_recv_wr = 2}};
	struct ibv_qp_attr to_error = {.qp_state = IBV_QPS_ERR};

	open_all(1, false, 64);
	ck_assert_int_eq(sgp_ep_reset(NULL), -1);
	ck_assert_int_eq(errno, EINVAL);
	/* One that was never initialised stays in RESET, also when it has gone to the error state. */
	attr.cq = t.cq;
	attr.pd = t.pd;
	t.ep[1] = sgp_ep_create(NULL, &attr);
	ck_assert_ptr_nonnull(t.ep[1]);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(sgp_ep_reset(t.ep[1]), 0);
		ck_assert_int_eq(sgp_ep_qp(t.ep[1])->state, IBV_QPS_RESET);
		ck_assert_int_eq(ibv_modify_qp(sgp_ep_qp(t.ep[1]), &to_error, IBV_QP_STATE), 0);
	}
	ck_assert_int_eq(sgp_ep_close(t.ep[0], 0), 0);
	ck_assert_int_eq(sgp_ep_reset(t.ep[0]), -1);
	ck_assert_int_eq(errno, EINVAL);
	close_all();
}
END_TEST

/* RESET changes nothing there (soft-iWARP), so the endpoint must go on as if nobody had asked. */
START_TEST(iwarp_is_refused_and_goes_on)
{
	struct rig rig;
	struct sgp_wc *wc;

	ck_assert_int_eq(sv_device_add("siw0", "siw", 1), 0);
	rig_open(&rig, &(struct rig_attr){.depth = 4});
	wc = rig.side[1].wc;
	rig_post_recv(&rig.side[1], &context[1]);
	errno = 0;
	ck_assert_int_eq(sgp_ep_reset(rig.side[1].ep), -1);
	ck_assert_int_eq(errno, EOPNOTSUPP);
	rig_check_live(&rig.side[1], 1);
	rig_post_send(&rig.side[0], &context[0], 7);
	rig_reap(&rig.side[1], 1);
	ck_assert_ptr_eq(wc->context, &context[1]);
	ck_assert_int_eq(wc->status, IBV_WC_SUCCESS);
	ck_assert_int_eq(*(uint8_t *)(uintptr_t)wc->sgl.sge[0].addr, 7);
	sgp_sgl_clear(&wc->sgl);
	rig_close(&rig);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("reset");
	TCase *tc = tcase_create("reset");

	suite_add_tcase(suite, tc);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, a_reset_tells_each_context_once_and_the_queue_pair_lives_again);
	tcase_add_test(tc, late_completions_of_the_old_life_are_ignored);
	tcase_add_test(tc, a_reset_that_fails_may_be_made_again);
	tcase_add_test(tc, a_reset_lets_go_of_what_was_cancelled);
	tcase_add_test(tc, what_is_not_open_is_not_reset);
	tcase_add_test(tc, iwarp_is_refused_and_goes_on);
	return suite_run(suite);
}
