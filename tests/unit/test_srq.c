/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The shared receive queue: several endpoints, on one completion queue and on two, take from one
 * stock that is kept full; slow consumers; receives that the caller posts; two pollers; and a device
 * whose connections are librdmacm's.
 */
#include <check.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>

#include "../suite.h"
#include "srq_rig.h"

/* What the completion queue hands over is what its lists take, holds too. */
START_TEST(lists_too_long_for_the_completion_queue)
{
	struct sgp_srq_attr long_lists = {.depth = 2, .max_sge = 2, .max_chunk = 17};
	struct sgp_ep_attr attr = {.cap = {.max_send_wr = 1}};
	struct sgp_srq *srq;

	open_world("soft", (struct world_attr){0});
	long_lists.pd = attr.pd = w.pd;
	attr.cq = w.cq[0]; /* of 16 */
	ck_assert_ptr_nonnull(srq = sgp_srq_create(&long_lists));
	attr.srq = srq;
	ck_assert_ptr_null(sgp_ep_create(NULL, &attr));
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(sgp_srq_destroy(srq), 0);
	long_lists.max_chunk = 16;
	ck_assert_ptr_nonnull(srq = sgp_srq_create(&long_lists));
	attr.srq = srq;
	ck_assert_ptr_nonnull(w.in[0] = sgp_ep_create(NULL, &attr));
	close_ep(&w.in[0], w.cq[0], w.wc[0]);
	ck_assert_int_eq(sgp_srq_destroy(srq), 0);
	close_world();
}
END_TEST

START_TEST(numbers_of_chunks_out_of_range)
{
	static const int wrong[] = {-1, -5, INT_MIN, INT_MAX, UINT16_MAX + 1};
	struct sgp_recv_part parts[2] = {{.size = 64}, {.size = 64}};
	struct sgp_srq_attr attr = {.depth = 2, .recv = parts, .num_recv = 2};

	open_world("soft", (struct world_attr){0});
	attr.pd = w.pd;
	parts[0].pool = parts[1].pool = w.pool;
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		parts[1].n = wrong[i];
		errno = 0;
		ck_assert_ptr_null(sgp_srq_create(&attr));
		ck_assert_int_eq(errno, EINVAL);
	}
	close_world();
}
END_TEST

/* ---- full ---- */

START_TEST(all_take_from_one_stock_that_stays_full)
{
	open_world(roce[_i / 2], (struct world_attr){.ncqs = 1 + _i % 2});
	check_posted(8);
	for (int i = 0; i < PAIRS; i++)
		add(i);
	for (int round = 0; round < 200; round++) {
		exchange(round * 7 % PAIRS, round);
		check_posted(8);
	}
	ck_assert_uint_eq(stats().recvs, 208);
	ck_assert_uint_eq(stats().lost + stats().refused + stats().orphans, 0);
	close_world();
}
END_TEST

/* One endpoint goes, with messages unread, and another one's are untouched. */
START_TEST(an_endpoint_that_goes_takes_nothing_with_it)
{
	open_world(roce[_i / 2], (struct world_attr){.ncqs = 1 + _i % 2});
	add(0);
	for (int round = 0; round < 20; round++) {
		int n = 0;

		add(1);
		for (int i = 0; i < 3; i++)
			send_on(1, i);
		send_on(0, round);
		ck_assert_int_eq(sgp_ep_close(w.in[1], 100), 0);
		/* What had come is handed out, and nothing else of it. */
		for (int cq = 0; cq < ncqs(); cq++)
			for (int got; (got = sgp_poll(w.cq[cq], WC, w.wc[cq]));)
				for (int i = 0; i < got; i++) {
					ck_assert_int_eq(w.wc[cq][i].status, IBV_WC_SUCCESS);
					n += w.wc[cq][i].ep == w.in[1];
					sgp_sgl_clear(&w.wc[cq][i].sgl);
				}
		ck_assert_int_eq(n, 3);
		check_posted(8);
		take_away(1);
		check_posted(8);
	}
	close_world();
}
END_TEST

/* The completion queue has room for the shared queue's completions once. */
START_TEST(room_is_reserved_once_a_queue)
{
	struct sgp_ep_attr attr = {.cap = {.max_send_wr = 4}};

	open_world("siw", (struct world_attr){.cqe = 16}); /* a device that can't resize */
	attr.cq = w.cq[0];
	attr.pd = w.pd;
	attr.srq = w.srq;
	for (int i = 0; i < 2; i++)
		ck_assert_msg((w.in[i] = sgp_ep_create(NULL, &attr)) != NULL, "%s", sgp_errmsg());
	ck_assert_ptr_null(sgp_ep_create(NULL, &attr));
	ck_assert_int_gt(errno, 0);
	for (int i = 0; i < 2; i++)
		close_ep(&w.in[i], w.cq[0], w.wc[0]);
	drop_all(w.cq[0], w.wc[0]);
	/* All of it came back. */
	for (int i = 0; i < 2; i++)
		ck_assert_msg((w.in[i] = sgp_ep_create(NULL, &attr)) != NULL, "%s", sgp_errmsg());
	for (int i = 0; i < 2; i++)
		close_ep(&w.in[i], w.cq[0], w.wc[0]);
	close_world();
}
END_TEST

/* ---- dry ---- */

/* Case 51d: slow consumers hold all; one is put, and it's posted in the same call. */
START_TEST(what_slow_consumers_put_is_posted_at_once)
{
	SGP_SGL(kept, 8);
	bool single = _i % 2;

	open_world(roce[_i / 2], (struct world_attr){.chunks = 8, .single_threaded = single});
	add(0);
	for (int i = 0; i < 8; i++) {
		send_on(0, i);
		ck_assert_int_eq(sgp_sgl_move(&kept, &receive_on(0, i)->sgl), 0);
		w.held++;
		check_posted(7 - (uint32_t)i);
	}
	for (int i = 8; i; i--) {
		sgp_chunk_put(kept.chunk[i - 1]);
		w.held--;
		if (single)
			ck_assert_int_eq(sgp_poll(w.cq[0], WC, w.wc[0]), 0);
		check_posted(9 - (uint32_t)i);
	}
	ck_assert_uint_eq(stats().by_put, single ? 0 : 8);
	close_world();
}
END_TEST

struct sleeper {
	struct sgp_sgl *sgl;
};

static void *put_later(void *arg)
{
	struct timespec nap = {.tv_nsec = 20000000};

	nanosleep(&nap, NULL);
	sgp_sgl_clear(((struct sleeper *)arg)->sgl);
	return NULL;
}

/* Whichever completion queue sleeps, on another one's message too. */
START_TEST(sleepers_on_both_queues_wake)
{
	struct sleeper sleeper;
	pthread_t thread;
	SGP_SGL(kept, 8);

	open_world("soft", (struct world_attr){
				   .depth = 2, .chunks = 2, .ncqs = 2, .single_threaded = _i % 2});
	add(0);
	add(1);
	for (int i = 0; i < 2; i++) {
		send_on(0, i);
		ck_assert_int_eq(sgp_sgl_move(&kept, &receive_on(0, i)->sgl), 0);
	}
	w.held = 2;
	check_posted(0);
	w.held = 0;
	send_on(_i / 2, 5);
	sleeper.sgl = &kept;
	ck_assert_int_eq(pthread_create(&thread, NULL, put_later, &sleeper), 0);
	sgp_sgl_clear(&receive_on(_i / 2, 5)->sgl);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	for (int i = 0; i < 2; i++)
		drop_all(w.cq[i], w.wc[i]);
	check_posted(2);
	close_world();
}
END_TEST

/* For those who post themselves. */
START_TEST(a_caller_may_post_receives_himself)
{
	struct sgp_srq_attr attr = {.depth = 4, .max_sge = 2};
	int context[4];
	SGP_SGL(sgl, 2);

	open_world(roce[_i], (struct world_attr){0});
	ck_assert_int_eq(sgp_srq_destroy(w.srq), 0);
	attr.pd = w.pd;
	ck_assert_ptr_nonnull(w.srq = sgp_srq_create(&attr));
	add(0);
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 4; i++) {
			ck_assert_int_eq(sgp_sgl_get(&sgl, w.pool, 4096, 1, 0), 0);
			ck_assert_int_eq(sgp_srq_post_recvv(w.srq, &context[i], &sgl), 0);
			ck_assert_int_eq(sgl.num_chunk, 0);
		}
		check_posted(4);
		ck_assert_int_eq(sgp_sgl_get(&sgl, w.pool, 4096, 1, 0), 0);
		ck_assert_int_eq(sgp_srq_post_recvv(w.srq, NULL, &sgl), -1);
		ck_assert_int_eq(errno, EAGAIN);
		sgp_sgl_clear(&sgl);
		for (int i = 0; i < 4; i++) {
			send_on(0, i);
			ck_assert_int_eq(sgp_wait(w.cq[0], 1, w.wc[0], 5000), 1);
			ck_assert_ptr_eq(w.wc[0]->context, &context[i]);
			sgp_sgl_clear(&w.wc[0]->sgl);
		}
		check_posted(0);
	}
	ck_assert_int_eq(sgp_srq_refill(w.srq), -1);
	ck_assert_int_eq(errno, EINVAL);
	close_world();
}
END_TEST

/* What he is told, and that his list is as it was then. */
START_TEST(a_callers_receive_is_refused)
{
	struct sgp_srq_attr attr = {.depth = 4, .max_sge = 2};
	struct sgp_srq_stats stats;
	struct ibv_async_event event = {.event_type = IBV_EVENT_SRQ_LIMIT_REACHED};
	int context;
	SGP_SGL(sgl, 3);

	open_world("soft", (struct world_attr){0});
	ck_assert_int_eq(sgp_srq_destroy(w.srq), 0);
	attr.pd = w.pd;
	ck_assert_ptr_nonnull(w.srq = sgp_srq_create(&attr));
	add(0);
	ck_assert_int_eq(sgp_sgl_get(&sgl, w.pool, 4096, 1, 0), 0);
	w.held = 1;
	for (int i = 0; i < 6; i++) { /* more often than it has slots */
		ck_assert_int_eq(sv_fail_nth("post_srq_recv", 0, ENOMEM), 0);
		ck_assert_int_eq(sgp_srq_post_recvv(w.srq, &context, &sgl), -1);
		ck_assert_int_eq(errno, ENOMEM);
		ck_assert_int_eq(sgl.num_chunk, 1);
		check_posted(0);
	}
	ck_assert_int_eq(sgp_srq_post_recvv(w.srq, &context, &sgl), 0);
	w.held = 0;
	check_posted(1);
	send_on(0, 1);
	ck_assert_int_eq(sgp_wait(w.cq[0], 1, w.wc[0], 5000), 1);
	ck_assert_ptr_eq(w.wc[0]->context, &context);
	sgp_sgl_clear(&w.wc[0]->sgl);
	/* Too long, and nothing at all. */
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(sgp_sgl_append(&sgl, sgp_pool_get(w.pool, 4096, 0), 0, 8), 0);
	ck_assert_int_eq(sgp_srq_post_recvv(w.srq, NULL, &sgl), -1);
	ck_assert_int_eq(errno, E2BIG);
	ck_assert_int_eq(sgl.num_chunk, 3);
	sgp_sgl_clear(&sgl);
	ck_assert_int_eq(sgp_srq_post_recvv(w.srq, NULL, &sgl), -1);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(sgp_srq_post_recvv(NULL, NULL, &sgl), -1);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(sgp_srq_stats(NULL, &stats), -1);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(sgp_srq_stats(w.srq, NULL), -1);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(sgp_srq_event(NULL, &event), -1);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(sgp_srq_event(w.srq, NULL), -1);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(sgp_srq_destroy(NULL), -1);
	ck_assert_int_eq(errno, EINVAL);
	check_posted(0);
	close_world();
}
END_TEST

/* ---- two pollers at once ---- */

#define MESSAGES 2000

static void *poller(void *arg)
{
	int i = (int)(intptr_t)arg, got = 0;

	while (got < MESSAGES) {
		int n = sgp_wait(w.cq[i], WC, w.wc[i], 1000);

		for (int j = 0; j < n; j++) {
			ck_assert_int_eq(w.wc[i][j].status, IBV_WC_SUCCESS);
			ck_assert_ptr_eq(w.wc[i][j].ep, w.in[i]);
			sgp_sgl_clear(&w.wc[i][j].sgl);
			got++;
		}
	}
	return NULL;
}

START_TEST(two_pollers_share_a_queue)
{
	pthread_t thread[2];

	open_world("soft", (struct world_attr){.depth = 4, .chunks = 6, .ncqs = 2});
	add(0);
	add(1);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, poller, (void *)(intptr_t)i), 0);
	for (int i = 0; i < 2 * MESSAGES; i++) {
		struct sgp_chunk *chunk;

		while (!(chunk = sgp_pool_get(w.out_pool, 100, 0)))
			sgp_poll(w.out_cq, WC, w.out_wc);
		while (sgp_post_send(w.out[i % 2], NULL, chunk, 0, 100, 0)) {
			ck_assert_int_eq(errno, EAGAIN);
			sgp_poll(w.out_cq, WC, w.out_wc);
		}
	}
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_join(thread[i], NULL), 0);
	settle_sends();
	for (int i = 0; i < 2; i++)
		drop_all(w.cq[i], w.wc[i]);
	check_posted(4);
	close_world();
}
END_TEST

/* ---- with a connection manager ---- */

static struct sgp_srq *cm_srq;
static void *cm_context; /* of the endpoint's own */

static void on_the_shared_queue(struct rig_side *side, struct sgp_ep_attr *ep)
{
	struct sgp_recv_part part = {.pool = side->pool, .size = 4096};
	struct sgp_srq_attr attr = {
		.pd = side->pd, .depth = 8, .recv = &part, .num_recv = 1, .context = side};

	if (side->number == 0)
		return;
	cm_srq = sgp_srq_create(&attr);
	ck_assert_msg(cm_srq != NULL, "%s", sgp_errmsg());
	ep->srq = cm_srq;
	ep->recv_context = cm_context;
}

/* What an endpoint of it says of its receives, and that a flow may stand on them. */
static void check_information(struct rig_side *side, int posted)
{
	struct sgp_flow_attr attr = {.ep = side->ep, .pool = side->pool, .bytes = 4096};
	struct sgp_ep_info info;
	struct sgp_flow flow;

	ck_assert_int_eq(sgp_ep_query(side->ep, &info), 0);
	ck_assert_int_eq(info.recv_posted, posted);
	ck_assert_int_eq(info.recv_room + info.recv_missing, 0);
	attr.depth = (uint32_t)posted - SGP_FLOW_RESERVE;
	ck_assert_int_eq(sgp_flow_init(&flow, &attr), 0);
	attr.depth++;
	ck_assert_int_eq(sgp_flow_init(&flow, &attr), -1);
	ck_assert_int_eq(errno, EINVAL);
}

START_TEST(a_connection_may_be_on_one)
{
	static const char *const personas[] = {"soft", "rxe", "siw", "mlx5"};
	struct rig rig;
	struct rig_attr attr = {.tune = on_the_shared_queue, .chunks = 16};
	struct rig_side *a = &rig.side[0], *b = &rig.side[1];

	ck_assert_int_eq(sv_device_add("dev0", personas[_i], 1), 0);
	cm_context = _i % 2 ? &rig : NULL;
	rig_open(&rig, &attr);
	check_information(b, 8);
	for (int i = 0; i < 50; i++) {
		rig_post_send(a, NULL, i);
		rig_reap(a, 1);
		rig_reap(b, 1);
		ck_assert_int_eq(b->wc[0].status, IBV_WC_SUCCESS);
		ck_assert_ptr_eq(b->wc[0].context, cm_context ? cm_context : (void *)b);
		ck_assert_uint_eq(*(uint8_t *)(uintptr_t)b->wc[0].sgl.sge[0].addr, (uint8_t)i);
		sgp_sgl_clear(&b->wc[0].sgl);
		rig_check_live(b, 8);
	}
	ck_assert_int_eq(rig_close_ep(b), 0);
	rig_check_live(b, 8);
	ck_assert_int_eq(sgp_srq_destroy(cm_srq), 0);
	rig_check_live(b, 0);
	rig_close(&rig);
	rig_check_no_leak();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("srq");
	TCase *tc = tcase_create("srq");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, lists_too_long_for_the_completion_queue);
	tcase_add_test(tc, numbers_of_chunks_out_of_range);
	tcase_add_loop_test(tc, all_take_from_one_stock_that_stays_full, 0, 2 * NROCE);
	tcase_add_loop_test(tc, an_endpoint_that_goes_takes_nothing_with_it, 0, 2 * NROCE);
	tcase_add_test(tc, room_is_reserved_once_a_queue);
	tcase_add_loop_test(tc, what_slow_consumers_put_is_posted_at_once, 0, 2 * NROCE);
	tcase_add_loop_test(tc, sleepers_on_both_queues_wake, 0, 4);
	tcase_add_loop_test(tc, a_caller_may_post_receives_himself, 0, NROCE);
	tcase_add_test(tc, a_callers_receive_is_refused);
	tcase_add_test(tc, two_pollers_share_a_queue);
	tcase_add_loop_test(tc, a_connection_may_be_on_one, 0, 4);
	suite_add_tcase(s, tc);
	return suite_run(s);
}
