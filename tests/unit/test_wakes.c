/* SPDX-License-Identifier: BSD-2-Clause */
/* Who sleeps on a queue or waits for a chunk is woken, and may use the queue when told. */
#include <check.h>
#include <poll.h>

#include "../suite.h"
#include "ab_rig.h"

START_TEST(an_armed_queue_wakes_for_a_tail)
{
	struct pollfd pfd = {.events = POLLIN};

	open_rig((struct rig_attr){0});
	rig_post_recv(b, NULL);
	pfd.fd = sgp_cq_fd(a->cq);
	ck_assert_int_eq(sgp_cq_arm(a->cq), 0);
	ck_assert_int_eq(sgp_poll(a->cq, 1, a->wc), 0);
	/* Another thread, or another event of the same loop, posts while it sleeps. */
	ck_assert_int_eq(send_one(a, NULL, _i ? SGP_BATCH : 0), 0);
	for (int i = 0; i < 3 && poll(&pfd, 1, 1000) == 1; i++) {
		ck_assert_int_eq(sgp_cq_arm(a->cq), 0);
		ck_assert_int_eq(sgp_poll(a->cq, 1, a->wc), 0);
	}
	rig_check_live(a, 0);
	close_rig();
}
END_TEST

static struct sgp_chunk *waited[1];
static int sent;

static void ready(struct sgp_waiter *waiter)
{
	sent += !sgp_post_send(a->ep, NULL, waiter->chunks[0], 0, 8, 0);
}

START_TEST(a_waiter_may_post_when_an_inline_send_puts_its_chunk)
{
	struct sgp_waiter waiter = {.ready = ready, .chunks = waited, .n = 1};
	struct sgp_chunk *chunk;

	open_rig((struct rig_attr){.chunks = 1, .max_inline = 64});
	rig_post_recv(b, NULL);
	chunk = rig_chunk(a, 1);
	ck_assert_int_eq(sgp_waiter_start(&waiter, a->pool, 1, 0), 0);
	sent = 0;
	ck_assert_int_eq(sgp_post_send(a->ep, NULL, chunk, 0, 8, 0), 0);
	ck_assert_int_eq(sent, 1);
	close_rig();
}
END_TEST

static void ready_to_ask(struct sgp_waiter *waiter)
{
	struct sgp_ep_stats stats;

	sgp_chunk_put(waiter->chunks[0]);
	sent += !sgp_ep_stats(a->ep, &stats);
}

START_TEST(a_waiter_may_use_the_queue_when_a_poll_or_a_close_puts_its_chunk)
{
	struct sgp_waiter waiter = {.ready = ready_to_ask, .chunks = waited, .n = 1};

	open_rig((struct rig_attr){.chunks = 1});
	rig_post_recv(b, NULL);
	ck_assert_int_eq(send_one(a, NULL, _i ? 0 : IBV_SEND_SIGNALED), 0);
	ck_assert_int_eq(sgp_waiter_start(&waiter, a->pool, 1, 0), 0);
	sent = 0;
	if (_i)
		ck_assert_int_eq(sgp_ep_close(a->ep, -1), 0);
	else
		rig_reap(a, 1);
	ck_assert_int_eq(sent, 1);
	close_rig();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("wakes");
	TCase *tc = tcase_create("waiters");

	suite_add_tcase(suite, tc);
	tcase_set_timeout(tc, 20);
	tcase_add_loop_test(tc, an_armed_queue_wakes_for_a_tail, 0, 2);
	tcase_add_test(tc, a_waiter_may_post_when_an_inline_send_puts_its_chunk);
	tcase_add_loop_test(tc, a_waiter_may_use_the_queue_when_a_poll_or_a_close_puts_its_chunk, 0,
			    2);
	return suite_run(suite);
}
