/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Endings: whatever ends a queue pair, or the queue that they share, every chunk comes home and every
 * context is told once.
 */
#include <poll.h>
#include <stdlib.h>

#include "../suite.h"
#include "plain_rig.h"

/* ---- closes, and what others on the queue see of them ---- */

START_TEST(case_36_unread_flushes_touch_no_other_queue_pair)
{
	for (int keep = 0; keep < 2; keep++) {
		open_all(2, keep, 256);
		for (int round = 0; round < 20; round++) {
			struct ibv_qp_attr to_error = {.qp_state = IBV_QPS_ERR};

			/* The first one's four flushes stay unread, and come again later. */
			ck_assert_int_eq(sv_faults("completion echo 20", NULL), 0);
			for (int i = 0; i < 4; i++)
				post_recv(t.ep[0], i);
			ck_assert_int_eq(ibv_modify_qp(sgp_ep_qp(t.ep[0]), &to_error, IBV_QP_STATE),
					 0);
			ck_assert_int_eq(sgp_ep_close(t.ep[0], 0), 0);
			sv_faults_clear();
			ck_assert_int_eq(sgp_poll(t.cq, RIG_WC, t.wc), 4);
			for (int i = 0; i < 4; i++)
				sgp_sgl_clear(&t.wc[i].sgl);
			ck_assert_int_eq(sgp_ep_destroy(t.ep[0]), 0);
			/* The second one is in the same place, with the same slots. */
			t.ep[0] = make_ep();
			ck_assert_int_eq(sgp_ep_reset(t.ep[1]), 0);
			join(t.ep[0], t.ep[1]);
			for (int i = 0; i < 4; i++)
				post_recv(t.ep[0], 4 + i);
			for (int i = 0; i < 30; i++)
				take_exactly(0, 0);
			check_live(4);
			for (int i = 0; i < 4; i++)
				post_send(t.ep[1], 8 + i, IBV_SEND_SIGNALED);
			take_exactly(4, 8);
			check_live(0);
		}
		close_all();
	}
}
END_TEST

START_TEST(case_34_a_place_is_free_once_the_queue_was_empty)
{
	struct sgp_ep_attr attr = {.cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH}};
	struct sgp_ep *more;

	/* No room for a second one, until the first's completions can't be in the queue any more. */
	open_all(1, true, 2 * DEPTH);
	ck_assert_int_eq(sv_set(t.device, "no_cq_resize", 1), 0);
	attr.cq = t.cq;
	attr.pd = t.pd;
	errno = 0;
	ck_assert_ptr_null(sgp_ep_create(NULL, &attr));
	ck_assert_int_eq(errno, EOPNOTSUPP);
	for (int i = 0; i < DEPTH; i++)
		post_recv(t.ep[0], i);
	ck_assert_int_eq(sgp_ep_close(t.ep[0], 0), 0);
	ck_assert_int_eq(sgp_poll(t.cq, DEPTH, t.wc), DEPTH);
	for (int i = 0; i < DEPTH; i++)
		sgp_sgl_clear(&t.wc[i].sgl);
	ck_assert_int_eq(sgp_ep_destroy(t.ep[0]), 0);
	t.ep[0] = NULL;
	errno = 0;
	ck_assert_ptr_null(sgp_ep_create(NULL, &attr));
	ck_assert_int_eq(errno, EOPNOTSUPP);
	ck_assert_int_eq(sgp_poll(t.cq, RIG_WC, t.wc), 0);
	more = sgp_ep_create(NULL, &attr);
	ck_assert_msg(more != NULL, "%s", sgp_errmsg());
	t.ep[0] = more;
	close_all();
}
END_TEST

START_TEST(case_44_flushes_that_come_or_not_are_told_once)
{
	open_all(0, false, 256);
	for (int round = 0; round < 300; round++) {
		t.ep[0] = make_ep();
		t.ep[1] = make_ep();
		join(t.ep[0], t.ep[1]);
		for (int i = 0; i < 4; i++) {
			post_recv(t.ep[0], i);
			post_send(t.ep[0], 4 + i, IBV_SEND_SIGNALED);
		}
		if (round % 2) /* none comes: a close waits for them as long as it may */
			ck_assert_int_eq(sv_faults("completion drop", NULL), 0);
		ck_assert_int_eq(sgp_ep_close(t.ep[0], round % 2), 0);
		sv_faults_clear();
		take_exactly(0, 8);
		close_ep(&t.ep[0]);
		close_ep(&t.ep[1]);
		check_live(0);
	}
	close_all();
}
END_TEST

/* ---- errors ---- */

START_TEST(case_42_a_failed_send_is_no_receive_whatever_its_opcode)
{
	struct sgp_ep_stats stats;

	open_all(2, false, 64);
	post_recv(t.ep[0], 1);
	/* IBV_WC_RECV, in the completion of a send that fails. */
	ck_assert_int_eq(sv_faults("completion opcode 128", NULL), 0);
	ck_assert_int_eq(sgp_post_write(t.ep[0], &context[0], chunk('w'), 0, 8, 0, 1, 1), 0);
	ck_assert_int_eq(sgp_poll(t.cq, RIG_WC, t.wc), 2);
	for (int i = 0; i < 2; i++) {
		bool send = t.wc[i].context == &context[0];

		ck_assert_int_eq(t.wc[i].opcode, send ? IBV_WC_RDMA_WRITE : IBV_WC_RECV);
		ck_assert_int_ne(t.wc[i].status, IBV_WC_SUCCESS);
		ck_assert_int_eq(t.wc[i].sgl.num_chunk, send ? 0 : 1);
		sgp_sgl_clear(&t.wc[i].sgl);
	}
	check_live(0);
	ck_assert_int_eq(sgp_ep_stats(t.ep[0], &stats), 0);
	ck_assert_uint_eq(stats.completions, 2);
	sv_faults_clear();
	close_all();
}
END_TEST

START_TEST(case_43_an_error_in_the_middle_ends_no_batch)
{
	struct sgp_chunk *again;
	int seen[64] = {0}, good = 0;

	open_all(4, false, 64);
	/* A receive that fails, a send that goes well, a receive that is flushed, a send. */
	post_recv(t.ep[1], 0);
	post_recv(t.ep[1], 2);
	post_recv(t.ep[3], 10);
	ck_assert_int_eq(sv_faults("completion status 1 at 0", NULL), 0);
	post_send(t.ep[0], 1, IBV_SEND_SIGNALED);
	post_send(t.ep[2], 3, IBV_SEND_SIGNALED);
	ck_assert_int_eq(sgp_poll(t.cq, 1, t.wc), 1);
	ck_assert_ptr_eq(t.wc[0].context, &context[0]);
	ck_assert_int_eq(t.wc[0].status, IBV_WC_LOC_LEN_ERR);
	sgp_sgl_clear(&t.wc[0].sgl);
	/* Posting it again fails. */
	again = chunk(0);
	ck_assert_int_eq(sgp_post_recv(t.ep[1], NULL, again, 0, CHUNK), -1);
	ck_assert_int_eq(errno, ESHUTDOWN);
	sgp_chunk_put(again);
	ck_assert_int_eq(sgp_ep_close(t.ep[1], 0), 0);
	take_all(seen, &good);
	ck_assert_int_eq(seen[1] + seen[2] + seen[3] + seen[10], 4);
	ck_assert_int_eq(good, 3);
	check_live(0);
	sv_faults_clear();
	close_all();
}
END_TEST

START_TEST(case_44b_the_same_number_on_two_devices)
{
	struct sgp_ep *ep[2];
	struct sgp_cq *cq[2];
	struct sgp_pool *pool[2];
	struct sgp_wc *wc;
	struct ibv_pd *pd[2];
	struct ibv_context *verbs[2];
	struct sgp_class_attr class = {.size = CHUNK, .chunks = 4};
	struct sgp_pool_attr pool_attr = {
		.classes = &class, .nclasses = 1, .pages = SGP_PAGES_BASE};
	struct sgp_cq_attr cq_attr = {.cqe = 8};

	for (int i = 0; i < 2; i++) {
		struct sgp_ep_attr attr = {.cap = {.max_send_wr = 4, .max_recv_wr = 4}};
		struct sgp_chunk *c;
		char name[16];

		snprintf(name, sizeof name, "twin%d", i);
		ck_assert_int_eq(sv_device_add(name, "rxe", 1), 0);
		ck_assert_int_eq(sv_set(name, "reuse_qpn", 1), 0);
		verbs[i] = open_device(name);
		pd[i] = ibv_alloc_pd(verbs[i]);
		pool[i] = sgp_pool_create(pd[i], &pool_attr);
		cq[i] = sgp_cq_create(verbs[i], &cq_attr);
		ck_assert(pool[i] && cq[i]);
		attr.cq = cq[i];
		attr.pd = pd[i];
		ep[i] = sgp_ep_create(NULL, &attr);
		ck_assert_ptr_nonnull(ep[i]);
		ck_assert_int_eq(plain_init(sgp_ep_qp(ep[i])), 0);
		/* One queue pair, connected to itself. */
		ck_assert_int_eq(plain_join(sgp_ep_qp(ep[i]), sgp_ep_qp(ep[i])->qp_num, 7, 12), 0);
		c = sgp_pool_get(pool[i], CHUNK, 0);
		ck_assert_int_eq(sgp_post_recv(ep[i], &context[2 * i], c, 0, CHUNK), 0);
		c = sgp_pool_get(pool[i], CHUNK, 0);
		ck_assert_int_eq(
			sgp_post_send(ep[i], &context[2 * i + 1], c, 0, CHUNK, IBV_SEND_SIGNALED),
			0);
	}
	ck_assert_uint_eq(sgp_ep_qp(ep[0])->qp_num, sgp_ep_qp(ep[1])->qp_num);
	wc = sgp_wc_alloc(cq[0], 4);
	for (int i = 0; i < 2; i++) { /* one reaper */
		ck_assert_int_eq(sgp_poll(cq[i], 4, wc), 2);
		for (int j = 0; j < 2; j++) {
			ck_assert_ptr_eq(wc[j].ep, ep[i]);
			ck_assert_int_eq((int)((int *)wc[j].context - context) / 2, i);
			ck_assert_int_eq(wc[j].status, IBV_WC_SUCCESS);
			sgp_sgl_clear(&wc[j].sgl);
		}
	}
	sgp_wc_free(wc);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(sgp_ep_close(ep[i], 0), 0);
		ck_assert_int_eq(sgp_ep_destroy(ep[i]), 0);
		ck_assert_int_eq(sgp_cq_destroy(cq[i]), 0);
		ck_assert_int_eq(sgp_pool_destroy(pool[i]), 0);
		ck_assert_int_eq(ibv_dealloc_pd(pd[i]), 0);
		ck_assert_int_eq(ibv_close_device(verbs[i]), 0);
	}
	ck_assert_int_eq(sv_device_remove("twin0") | sv_device_remove("twin1"), 0);
	rig_check_no_leak();
}
END_TEST

/* ---- the queue itself fails ---- */

/* All events of the device, told to the queue. Returns those of this type. */
static int tell_events(enum ibv_event_type type)
{
	struct pollfd pfd = {.fd = t.verbs->async_fd, .events = POLLIN};
	struct ibv_async_event event;
	int n = 0;

	while (poll(&pfd, 1, 0) == 1) {
		ck_assert_int_eq(ibv_get_async_event(t.verbs, &event), 0);
		n += event.event_type == type;
		ck_assert_int_eq(sgp_cq_event(t.cq, &event), 0);
		ibv_ack_async_event(&event);
	}
	return n;
}

/* A queue that is dead, or (lives) one that goes on with what it has. */
static void overrun(bool lives)
{
	struct sgp_ep_attr attr = {.cap = {.max_send_wr = 2, .max_recv_wr = 2}};
	struct ibv_qp_attr to_error = {.qp_state = IBV_QPS_ERR};
	int seen[64] = {0}, good = 0;
	struct sgp_chunk *c;

	open_all(2, false, 4 * DEPTH);
	ck_assert_int_eq(sv_set(t.device, "overrun_lives", lives), 0);
	ck_assert_int_eq(sgp_cq_arm(t.cq), 0);
	for (int i = 0; i < 2 * DEPTH; i++)
		post_recv(t.ep[i % 2], i);
	for (int i = 0; i < DEPTH; i++)
		post_send(t.ep[0], 2 * DEPTH + i, IBV_SEND_SIGNALED);
	ck_assert_int_eq(sv_faults("completion duplicate", NULL), 0);
	for (int i = 0; i < DEPTH; i++)
		post_send(t.ep[1], 3 * DEPTH + i, IBV_SEND_SIGNALED);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(ibv_modify_qp(sgp_ep_qp(t.ep[i]), &to_error, IBV_QP_STATE), 0);
	sv_faults_clear();
	ck_assert_int_ge(tell_events(IBV_EVENT_CQ_ERR), 1);

	/* What was reaped before comes first, then the error, and again. */
	ck_assert_int_gt(take_all(seen, &good), 0);
	for (int i = 0; i < 3; i++) {
		errno = 0;
		ck_assert_int_eq(sgp_poll(t.cq, 1, t.wc), -1);
		ck_assert_int_eq(errno, EIO);
	}
	ck_assert_int_eq(sgp_wait(t.cq, 1, t.wc, -1), -1);
	ck_assert_int_eq(errno, EIO);
	c = chunk(0);
	ck_assert_int_eq(sgp_post_recv(t.ep[0], NULL, c, 0, 1), -1);
	ck_assert_int_eq(errno, ESHUTDOWN);
	sgp_chunk_put(c);
	attr.cq = t.cq;
	attr.pd = t.pd;
	ck_assert_ptr_null(sgp_ep_create(NULL, &attr));
	ck_assert_int_eq(errno, EIO);

	/* A close with all the time in the world does not wait for what can't come. */
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(sgp_ep_close(t.ep[i], -1), 0);
	take_all(seen, &good);
	for (int i = 0; i < 4 * DEPTH; i++)
		ck_assert_int_eq(seen[i], 1);
	check_live(0);
	close_all();
}

START_TEST(an_overrun_is_told_and_everything_comes_home)
{
	overrun(false);
	overrun(true);
}
END_TEST

START_TEST(other_events_stop_whom_they_are_about)
{
	static const enum ibv_event_type types[] = {IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR,
						    IBV_EVENT_QP_ACCESS_ERR};
	struct ibv_async_event event = {.event_type = IBV_EVENT_CQ_ERR};

	open_all(2, false, 64);
	ck_assert_int_eq(sgp_cq_event(NULL, &event), -1);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(sgp_cq_event(t.cq, NULL), -1);
	ck_assert_int_eq(errno, EINVAL);
	/* Another queue's, a port's, the message that established a connection: nothing. */
	ck_assert_int_eq(sgp_cq_event(t.cq, &event), 0);
	event = (struct ibv_async_event){.event_type = IBV_EVENT_PORT_ERR};
	ck_assert_int_eq(sgp_cq_event(t.cq, &event), 0);
	event = (struct ibv_async_event){.event_type = IBV_EVENT_COMM_EST};
	event.element.qp = sgp_ep_qp(t.ep[0]);
	ck_assert_int_eq(sgp_cq_event(t.cq, &event), 0);
	post_recv(t.ep[1], 0);
	post_send(t.ep[0], 1, IBV_SEND_SIGNALED);
	take_exactly(0, 2);
	for (int i = 0; i < 3; i++) {
		struct sgp_chunk *c = chunk(0);

		event = (struct ibv_async_event){.event_type = types[i]};
		event.element.qp = sgp_ep_qp(t.ep[0]);
		ck_assert_int_eq(sgp_cq_event(t.cq, &event), 0);
		ck_assert_int_eq(sgp_post_send(t.ep[0], NULL, c, 0, 1, 0), -1);
		ck_assert_int_eq(errno, ESHUTDOWN);
		sgp_chunk_put(c);
		post_recv(t.ep[1], 2);
		for (int j = 0; j < 2; j++)
			ck_assert_int_eq(sgp_ep_reset(t.ep[j]), 0);
		join(t.ep[0], t.ep[1]);
		take_exactly(2, 1);
	}
	close_all();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("endings");
	TCase *tc = tcase_create("endings");

	/* Numbers of queue pairs that begin anew on each device. */
	setenv("SGP_SOFTVERBS_NET", "none", 1);
	suite_add_tcase(suite, tc);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, case_36_unread_flushes_touch_no_other_queue_pair);
	tcase_add_test(tc, case_34_a_place_is_free_once_the_queue_was_empty);
	tcase_add_test(tc, case_44_flushes_that_come_or_not_are_told_once);
	tcase_add_test(tc, case_42_a_failed_send_is_no_receive_whatever_its_opcode);
	tcase_add_test(tc, case_43_an_error_in_the_middle_ends_no_batch);
	tcase_add_test(tc, case_44b_the_same_number_on_two_devices);
	tcase_add_test(tc, an_overrun_is_told_and_everything_comes_home);
	tcase_add_test(tc, other_events_stop_whom_they_are_about);
	return suite_run(suite);
}
