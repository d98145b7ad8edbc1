/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The shared receive queue, where something goes wrong: what is lost is held, counted and replaced;
 * the limit's event; and what is refused.
 */
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "../plain.h"
#include "../suite.h"
#include "srq_rig.h"

/* ---- lost ---- */

/* A completion that never comes, of an endpoint that is closed before others join. */
START_TEST(what_is_lost_is_held_counted_and_replaced)
{
	bool takes_more = !strcmp(roce[_i], "rxe"); /* its kernel frees the slots */

	open_world(roce[_i], (struct world_attr){.depth = 4});
	add(0);
	ck_assert_int_eq(sv_faults("completion drop at 0", NULL), 0);
	send_on(0, 1);
	sv_faults_clear();
	drop_all(w.cq[0], w.wc[0]);
	for (int i = 0; i < 20; i++)
		exchange(0, i);
	/* It may still come: 3 go round. */
	ck_assert_uint_eq(stats().lost, 0);
	check_posted(4);
	add(1);
	take_away(0);
	/* Older than what has come, and whoever had it is gone. */
	ck_assert_uint_eq(stats().lost, 1);
	check_posted(takes_more ? 5 : 4);
	for (int i = 0; i < 20; i++)
		exchange(1, i);
	ck_assert_uint_eq(stats().lost, 1);
	check_posted(takes_more ? 5 : 4);
	ck_assert_uint_eq(stats().missing, 0);
	close_world();
}
END_TEST

/* The same of an endpoint that was reset meanwhile. */
START_TEST(a_reset_loses_nothing_of_the_others)
{
	bool takes_more = !strcmp(roce[_i], "rxe");

	open_world(roce[_i], (struct world_attr){.depth = 4});
	add(0);
	ck_assert_int_eq(sv_faults("completion drop at 0", NULL), 0);
	send_on(0, 1);
	sv_faults_clear();
	drop_all(w.cq[0], w.wc[0]);
	for (int i = 0; i < 10; i++)
		exchange(0, i);
	ck_assert_uint_eq(stats().lost, 0);
	for (int j = 0; j < 2; j++)
		ck_assert_msg(!sgp_ep_reset(j ? w.in[0] : w.out[0]), "%s", sgp_errmsg());
	ck_assert_uint_eq(stats().lost, 1);
	check_posted(takes_more ? 5 : 4);
	for (int j = 0; j < 2; j++) {
		struct ibv_qp *qp = sgp_ep_qp(j ? w.in[0] : w.out[0]);

		ck_assert_int_eq(plain_join(qp, sgp_ep_qp(j ? w.out[0] : w.in[0])->qp_num, 7, 1),
				 0);
	}
	for (int i = 0; i < 10; i++)
		exchange(0, i);
	check_posted(takes_more ? 5 : 4);
	close_world();
}
END_TEST

/* A completion that comes when its endpoint is gone belongs to nobody, and its memory comes home. */
START_TEST(a_late_completion_is_an_orphan)
{
	open_world("rxe", (struct world_attr){.depth = 4});
	add(0);
	exchange(0, 1);
	ck_assert_int_eq(sv_faults("completion delay 200 at 0", NULL), 0);
	send_on(0, 2);
	close_ep(&w.in[0], w.cq[0], w.wc[0]);
	sv_faults_clear();
	add(1);
	for (int i = 0; i < 400 && !stats().orphans; i++)
		drop_all(w.cq[0], w.wc[0]);
	ck_assert_uint_eq(stats().orphans, 1);
	ck_assert_uint_eq(stats().lost, 0);
	check_posted(4);
	for (int i = 0; i < 10; i++)
		exchange(1, i);
	close_ep(&w.out[0], w.out_cq, w.out_wc);
	close_world();
}
END_TEST

/* The device refuses, and is asked again. */
START_TEST(a_refused_receive_is_posted_by_the_next_poll)
{
	open_world(roce[_i], (struct world_attr){0});
	add(0);
	ck_assert_int_eq(sv_fail_nth("post_srq_recv", 0, ENOMEM), 0);
	exchange(0, 1);
	check_posted(7);
	drop_all(w.cq[0], w.wc[0]);
	check_posted(8);
	ck_assert_uint_eq(stats().refused, 1);
	ck_assert_int_eq(sv_faults("post_srq_recv midway at 0", NULL), 0);
	for (int i = 0; i < 5; i++)
		send_on(0, i);
	for (int i = 0; i < 5; i++)
		sgp_sgl_clear(&receive_on(0, i)->sgl);
	drop_all(w.cq[0], w.wc[0]);
	check_posted(8);
	close_world();
}
END_TEST

/* ---- the limit ---- */

static bool next_event(struct ibv_async_event *event)
{
	struct pollfd pfd = {.fd = w.verbs->async_fd, .events = POLLIN};

	if (poll(&pfd, 1, 0) != 1)
		return false;
	ck_assert_int_eq(ibv_get_async_event(w.verbs, event), 0);
	return true;
}

static uint32_t device_limit(void)
{
	struct ibv_srq_attr attr;

	ck_assert_int_eq(ibv_query_srq(sgp_srq_ibv(w.srq), &attr), 0);
	return attr.srq_limit;
}

START_TEST(the_limit_is_told_and_set_again)
{
	struct ibv_async_event event;
	SGP_SGL(kept, 8);

	open_world(roce[_i], (struct world_attr){.chunks = 8, .limit = 4});
	add(0);
	ck_assert_uint_eq(device_limit(), 4);
	for (int i = 0; i < 5; i++) {
		ck_assert(!next_event(&event));
		send_on(0, i);
		ck_assert_int_eq(sgp_sgl_move(&kept, &receive_on(0, i)->sgl), 0);
		w.held++;
	}
	ck_assert(next_event(&event));
	ck_assert_int_eq(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
	ck_assert_int_eq(sgp_srq_event(w.srq, &event), 0);
	ibv_ack_async_event(&event);
	ck_assert_uint_eq(stats().limits, 1);
	/* Not above it yet: setting it now would only bring the same event. */
	ck_assert_uint_eq(device_limit(), 0);
	w.held = 0;
	sgp_sgl_clear(&kept);
	check_posted(8);
	ck_assert_uint_eq(device_limit(), 4);
	ck_assert(!next_event(&event));
	for (int i = 0; i < 5; i++) {
		send_on(0, i);
		ck_assert_int_eq(sgp_sgl_move(&kept, &receive_on(0, i)->sgl), 0);
	}
	ck_assert(next_event(&event));
	/* Of no interest to others, and not to this one when it's another's. */
	event.element.srq = NULL;
	ck_assert_int_eq(sgp_srq_event(w.srq, &event), 0);
	ck_assert_uint_eq(stats().limits, 1);
	event.element.srq = sgp_srq_ibv(w.srq);
	ck_assert_int_eq(sgp_srq_event(w.srq, &event), 0);
	ibv_ack_async_event(&event);
	ck_assert_uint_eq(stats().limits, 2);
	sgp_sgl_clear(&kept);
	close_world();
}
END_TEST

/* ---- making, ending, refusing ---- */

START_TEST(what_is_wrong_is_refused)
{
	struct sgp_recv_part part;
	struct sgp_srq_attr attr;
	struct sgp_ep_attr ep;
	struct sgp_chunk *chunk;
	SGP_SGL(sgl, 1);

	open_world("soft", (struct world_attr){.chunks = 12});
	add(0);
	part = (struct sgp_recv_part){.pool = w.pool, .size = 100};
#define REFUSED(err, ...)                                                                          \
	do {                                                                                       \
		attr = (struct sgp_srq_attr){                                                      \
			.pd = w.pd, .depth = 4, .recv = &part, .num_recv = 1};                     \
		__VA_ARGS__;                                                                       \
		ck_assert_ptr_null(sgp_srq_create(&attr));                                         \
		ck_assert_int_eq(errno, err);                                                      \
		ck_assert_int_gt(strlen(sgp_errmsg()), 0);                                         \
		check_posted(8);                                                                   \
	} while (0)
	REFUSED(EINVAL, attr.pd = NULL);
	REFUSED(EINVAL, attr.depth = 0);
	REFUSED(EINVAL, attr.flags = 1u << 9);
	REFUSED(EINVAL, attr.comp_mask = 1);
	REFUSED(EINVAL, attr.recv = NULL);
	REFUSED(EINVAL, attr.limit = 5);
	REFUSED(EINVAL, part.size = 0);
	REFUSED(EMSGSIZE, part.size = 5000);
	part.size = 100;
	REFUSED(E2BIG, attr.max_sge = 1000);
	REFUSED(E2BIG, attr.depth = 1u << 30);
	REFUSED(ENOBUFS, attr.depth = 5);
	for (uint64_t at = 0;; at++) { /* every call that it makes of the device fails once */
		struct sgp_srq *srq;

		attr = (struct sgp_srq_attr){
			.pd = w.pd, .depth = 4, .limit = 2, .recv = &part, .num_recv = 1};
		ck_assert_int_eq(sv_fail_nth("any", at, ENOMEM), 0);
		srq = sgp_srq_create(&attr);
		if (srq) {
			ck_assert_int_eq(sv_fail_nth("any", 0, 0), 0);
			ck_assert_int_eq(sgp_srq_destroy(srq), 0);
			ck_assert_uint_ge(at, 3);
			break;
		}
		ck_assert_int_eq(errno, ENOMEM);
		check_posted(8);
	}
	/* The endpoint's side. */
	ep = (struct sgp_ep_attr){.cq = w.cq[0],
				  .pd = w.pd,
				  .cap = {.max_send_wr = 4},
				  .srq = w.srq,
				  .recv = &part,
				  .num_recv = 1};
	ck_assert_ptr_null(sgp_ep_create(NULL, &ep));
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_ptr_nonnull(chunk = sgp_pool_get(w.pool, 1, 0));
	ck_assert_int_eq(sgp_post_recv(w.in[0], NULL, chunk, 0, 100), -1);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(sgp_sgl_append(&sgl, chunk, 0, 100), 0);
	ck_assert_int_eq(sgp_srq_post_recvv(w.srq, NULL, &sgl), -1);
	ck_assert_int_eq(errno, EINVAL);
	sgp_sgl_clear(&sgl);
	ck_assert_int_eq(sgp_ep_refill(w.in[0]), -1);
	ck_assert_int_eq(errno, EINVAL);
	/* In use. */
	ck_assert_int_eq(sgp_srq_destroy(w.srq), -1);
	ck_assert_int_eq(errno, EBUSY);
	exchange(0, 3);
	take_away(0);
	ck_assert_int_eq(sv_fail_nth("destroy_srq", 0, EIO), 0);
	ck_assert_int_eq(sgp_srq_destroy(w.srq), -1);
	ck_assert_int_eq(errno, EIO);
	check_posted(8);
	add(0);
	exchange(0, 4);
	close_world();
}
END_TEST

START_TEST(a_mix_of_threading_is_refused)
{
	struct sgp_ep_attr ep = {.cap = {.max_send_wr = 4}};

	open_world("soft", (struct world_attr){.single_threaded = true});
	ep.cq = w.out_cq;
	ep.pd = w.pd;
	ep.srq = w.srq;
	ck_assert_ptr_null(sgp_ep_create(NULL, &ep));
	ck_assert_int_eq(errno, EINVAL);
	close_world();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("srq faults");
	TCase *tc = tcase_create("srq faults");

	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, what_is_lost_is_held_counted_and_replaced, 0, NROCE);
	tcase_add_loop_test(tc, a_reset_loses_nothing_of_the_others, 0, NROCE);
	tcase_add_test(tc, a_late_completion_is_an_orphan);
	tcase_add_loop_test(tc, a_refused_receive_is_posted_by_the_next_poll, 0, NROCE);
	tcase_add_loop_test(tc, the_limit_is_told_and_set_again, 0, NROCE);
	tcase_add_test(tc, what_is_wrong_is_refused);
	tcase_add_test(tc, a_mix_of_threading_is_refused);
	suite_add_tcase(s, tc);
	return suite_run(s);
}
