/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What goes away by itself: the device, the link, the peer, the process. Each context is told once,
 * each chunk comes home, and what other devices have is untouched.
 */
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../suite.h"
#include "ab_rig.h"

/* Four receives and four sends that wait, as the peer has posted none: 0 .. 3 and 4 .. 7. */
static void post_eight(void)
{
	for (int i = 0; i < 4; i++) {
		rig_post_recv(a, &context[i]);
		rig_post_send(a, &context[4 + i], i);
	}
	rig_check_live(a, 8);
}

/* All eight come out, once each and as errors. */
static void take_eight(void)
{
	int seen[16] = {0}, got = 0, n;

	while ((n = sgp_poll(a->cq, 3, a->wc)) > 0) {
		for (int i = 0; i < n; i++) {
			seen[(int *)a->wc[i].context - context]++;
			ck_assert_int_ne(a->wc[i].status, IBV_WC_SUCCESS);
			sgp_sgl_clear(&a->wc[i].sgl);
		}
		got += n;
	}
	ck_assert_int_eq(n, 0);
	ck_assert_int_eq(got, 8);
	for (int i = 0; i < 8; i++)
		ck_assert_int_eq(seen[i], 1);
	rig_check_live(a, 0);
}

static void is_refused(struct rig_side *side, int err)
{
	struct sgp_chunk *chunk = rig_chunk(side, 0);

	errno = 0;
	ck_assert_int_eq(sgp_post_send(side->ep, NULL, chunk, 0, 1, 0), -1);
	ck_assert_int_eq(errno, err);
	errno = 0;
	ck_assert_int_eq(sgp_post_recv(side->ep, NULL, chunk, 0, 1), -1);
	ck_assert_int_eq(errno, err);
	sgp_chunk_put(chunk);
}

/* Hand the device's events to both queues. */
static int tell_events(struct rig_side *side, enum ibv_event_type type)
{
	struct pollfd pfd = {.fd = side->id->verbs->async_fd, .events = POLLIN};
	struct ibv_async_event event;
	int n = 0;

	while (poll(&pfd, 1, 0) == 1) {
		ck_assert_int_eq(ibv_get_async_event(side->id->verbs, &event), 0);
		n += event.event_type == type;
		for (int i = 0; i < 2; i++)
			ck_assert_int_eq(sgp_cq_event(rig.side[i].cq, &event), 0);
		ibv_ack_async_event(&event);
	}
	return n;
}

/* The device goes; the endpoint hears of it by one of the two ways, or by none. */
START_TEST(a_device_that_is_removed_takes_nothing_along)
{
	for (int lost = 0; lost < 2; lost++)
		for (int way = 0; way < 3; way++) {
			open_rig((struct rig_attr){0});
			post_eight();
			if (lost) /* and no flush comes */
				ck_assert_int_eq(sv_faults("completion drop", NULL), 0);
			ck_assert_int_eq(sv_device_remove("soft0"), 0);
			if (way == 0) {
				rig_expect_event(a->events, RDMA_CM_EVENT_DEVICE_REMOVAL, NULL,
						 a->ep);
				is_refused(a, ESHUTDOWN);
			} else if (way == 1) {
				ck_assert_int_ge(tell_events(a, IBV_EVENT_DEVICE_FATAL), 1);
				is_refused(a, ESHUTDOWN);
				is_refused(b, ESHUTDOWN);
			}
			ck_assert_int_eq(sgp_ep_close(a->ep, 1), 0);
			sv_faults_clear();
			take_eight();
			close_rig();
			ck_assert_int_eq(sv_device_add("soft0", "soft", 1), 0);
		}
}
END_TEST

START_TEST(what_a_removed_device_does_not_let_go_stays_held)
{
	struct sgp_ep_stats stats;

	open_rig((struct rig_attr){0});
	post_eight();
	ck_assert_int_eq(sv_faults("completion drop", NULL), 0);
	ck_assert_int_eq(sv_device_remove("soft0"), 0);
	ck_assert_int_eq(sv_fail_nth("destroy_qp", 0, EIO), 0);
	ck_assert_int_eq(sgp_ep_close(a->ep, 0), -1);
	ck_assert_int_eq(errno, EIO);
	ck_assert_int_eq(sgp_poll(a->cq, RIG_WC, a->wc), 0);
	rig_check_live(a, 8);
	ck_assert_int_eq(sgp_ep_stats(a->ep, &stats), 0);
	ck_assert_uint_eq(stats.quarantined, 8);
	sv_faults_clear();
	ck_assert_int_eq(sgp_ep_close(a->ep, 0), 0);
	take_eight();
	close_rig();
	ck_assert_int_eq(sv_device_add("soft0", "soft", 1), 0);
}
END_TEST

START_TEST(a_link_that_is_down_for_a_while_loses_nothing)
{
	open_rig((struct rig_attr){0});
	for (int i = 0; i < 4; i++)
		rig_post_recv(b, &context[i]);
	sv_clock_advance(0); /* it stands still: however long we take, the retries do not run out */
	ck_assert_int_eq(sv_port_set("soft0", 1, 0), 0);
	for (int i = 0; i < 4; i++)
		rig_post_send(a, &context[4 + i], i);
	ck_assert_int_ge(tell_events(a, IBV_EVENT_PORT_ERR), 1);
	ck_assert_int_eq(sgp_poll(a->cq, RIG_WC, a->wc), 0);
	ck_assert_int_eq(sgp_poll(b->cq, RIG_WC, b->wc), 0);
	ck_assert_int_eq(sv_port_set("soft0", 1, 1), 0);
	ck_assert_int_ge(tell_events(a, IBV_EVENT_PORT_ACTIVE), 1);
	rig_reap(a, 4);
	rig_reap(b, 4);
	for (int i = 0; i < 4; i++) {
		ck_assert_ptr_eq(a->wc[i].context, &context[4 + i]);
		ck_assert_int_eq(a->wc[i].status, IBV_WC_SUCCESS);
		ck_assert_ptr_eq(b->wc[i].context, &context[i]);
		ck_assert_int_eq(b->wc[i].status, IBV_WC_SUCCESS);
		sgp_sgl_clear(&b->wc[i].sgl);
	}
	close_rig();
}
END_TEST

START_TEST(a_link_that_stays_down_ends_the_endpoint)
{
	open_rig((struct rig_attr){.rnr_retry = 7});
	ck_assert_int_eq(sv_port_set("soft0", 1, 0), 0);
	post_eight();
	/* Seconds of retries. */
	for (int i = 0; i < 100; i++)
		sv_clock_advance(1000000000);
	take_eight();
	is_refused(a, ESHUTDOWN);
	ck_assert_int_eq(sv_port_set("soft0", 1, 1), 0);
	close_rig();
}
END_TEST

START_TEST(a_peer_that_is_gone_leaves_errors_only)
{
	open_rig((struct rig_attr){0});
	post_eight();
	rig_close_ep(b);
	for (int i = 0; i < 100; i++)
		sv_clock_advance(1000000000);
	take_eight();
	is_refused(a, ESHUTDOWN);
	close_rig();
}
END_TEST

/* In a process of its own: all is posted, and the program ends where it stands. */
static void child(void)
{
	open_rig((struct rig_attr){0});
	post_eight();
	ck_assert_int_eq(sgp_cancel(a->ep, &context[4]), 0);
	ck_assert_int_eq(sgp_poll(a->cq, 1, a->wc), 1);
	exit(0);
}

START_TEST(a_process_may_end_where_it_stands)
{
	int status = 0;
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (!pid)
		child();
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %#x", status);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gone");
	TCase *tc = tcase_create("gone");

	suite_add_tcase(suite, tc);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, a_process_may_end_where_it_stands);
	tcase_add_test(tc, a_device_that_is_removed_takes_nothing_along);
	tcase_add_test(tc, what_a_removed_device_does_not_let_go_stays_held);
	tcase_add_test(tc, a_link_that_is_down_for_a_while_loses_nothing);
	tcase_add_test(tc, a_link_that_stays_down_ends_the_endpoint);
	tcase_add_test(tc, a_peer_that_is_gone_leaves_errors_only);
	return suite_run(suite);
}
