/* SPDX-License-Identifier: BSD-2-Clause */
/* Unsignalled sends: no queue is wedged by them, none is held for ever, few requests see to it. */
#include <check.h>
#include <errno.h>

#include "../suite.h"
#include "ab_rig.h"

START_TEST(case_30_unsignalled_sends_never_wedge_the_queue)
{
	struct sgp_ep_stats stats;

	open_remote((struct rig_attr){.depth = 16, .chunks = 64});
	for (int i = 0; i < 1001; i++) {
		SGP_SGL(sgl, 1);

		rig_post_recv(b, NULL);
		build(a, &sgl, 1, 10, i);
		while (sgp_post_sendv(a->ep, NULL, &sgl, 0)) {
			ck_assert_int_eq(errno, EAGAIN);
			ck_assert_int_eq(sgp_poll(a->cq, RIG_WC, a->wc), 0);
		}
		rig_reap(b, 1);
		check_run((char *)(uintptr_t)b->wc[0].sgl.sge[0].addr, 1, 10, i);
		sgp_sgl_clear(&b->wc[0].sgl);
	}
	/* The tail has no signalled request behind it; an idle queue sees to that. */
	rig_idle(a);
	rig_check_live(a, 0);
	ck_assert_int_eq(sgp_ep_stats(a->ep, &stats), 0);
	ck_assert_uint_eq(stats.posts, 1001);
	ck_assert_uint_ge(stats.syncs, 1);
	ck_assert_uint_le(stats.signalled, 1001 / 4);
	close_rig();
}
END_TEST

/* A request of its own for each would double the traffic of a program that answers every message. */
START_TEST(an_exchange_retires_its_tails_by_itself)
{
	struct sgp_ep_stats stats;

	open_remote((struct rig_attr){.depth = 16, .chunks = 64});
	for (int i = 0; i < 1000; i++) {
		SGP_SGL(sgl, 1);

		rig_post_recv(b, NULL);
		build(a, &sgl, 1, 10, i);
		ck_assert_int_eq(sgp_post_sendv(a->ep, NULL, &sgl, 0), 0);
		for (int j = 0; j < 100; j++) /* the answer takes its time */
			ck_assert_int_eq(sgp_poll(a->cq, RIG_WC, a->wc), 0);
		rig_reap(b, 1);
		sgp_sgl_clear(&b->wc[0].sgl);
	}
	ck_assert_int_eq(sgp_ep_stats(a->ep, &stats), 0);
	ck_assert_uint_le(stats.syncs, 1000 * 100 / 2048 + 1);
	close_rig();
}
END_TEST

START_TEST(a_sleeper_has_its_tail_retired)
{
	struct sgp_pool_stats stats;
	SGP_SGL(sgl, 1);

	open_remote((struct rig_attr){.depth = 16});
	rig_post_recv(b, NULL);
	build(a, &sgl, 1, 10, 1);
	ck_assert_int_eq(sgp_post_sendv(a->ep, NULL, &sgl, 0), 0);
	do { /* a wait's time may be over before the tail's */
		ck_assert_int_eq(sgp_wait(a->cq, 1, a->wc, 10), 0);
		ck_assert_int_eq(sgp_pool_stats(a->pool, &stats), 0);
	} while (stats.live);
	rig_check_live(a, 0);
	/* And what was gathered goes out. */
	build(a, &sgl, 1, 10, 2);
	rig_post_recv(b, NULL);
	ck_assert_int_eq(sgp_post_sendv(a->ep, &context[5], &sgl, IBV_SEND_SIGNALED | SGP_BATCH),
			 0);
	reaped(a, &context[5], IBV_WC_SEND);
	rig_reap(b, 2);
	close_rig();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("tails");
	TCase *tc = tcase_create("between two");

	suite_add_tcase(suite, tc);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, case_30_unsignalled_sends_never_wedge_the_queue);
	tcase_add_test(tc, an_exchange_retires_its_tails_by_itself);
	tcase_add_test(tc, a_sleeper_has_its_tail_retired);
	return suite_run(suite);
}
