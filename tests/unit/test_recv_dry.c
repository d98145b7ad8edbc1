/* SPDX-License-Identifier: BSD-2-Clause */
/* Pools that run dry under receives that are kept posted, and puts of all threads that serve them. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../suite.h"
#include "pool/pool.h"
#include "post/ep.h"
#include "post/refill.h"
#include "recv_rig.h"

/* ---- dry, and not ---- */

/* Case 49: sends and receives share a pool, and the sends take what they can. */
START_TEST(sends_cannot_starve_receives)
{
	struct sgp_chunk *got[16];
	int n = 0;

	open_full(personas[_i], (struct rig_attr){.depth = 4, .chunks = 16, .reserve = 8});
	/* Four of the reserve are posted; sends may have the eight that are not of it. */
	while (n < 16 && (got[n] = sgp_pool_get(b->pool, 4096, 0)))
		n++;
	ck_assert_int_eq(n, 8);
	ck_assert_int_eq(errno, ENOBUFS);
	held_of_b = n;
	for (int round = 0; round < 20; round++) {
		SGP_SGL(kept, 4);

		send_bytes(100, round);
		receive(100, round, &kept);
		check_b(4);
		let_go(&kept);
	}
	while (n)
		sgp_chunk_put(got[--n]);
	held_of_b = 0;
	check_b(4);
	ck_assert_ptr_nonnull(got[0] = sgp_pool_get(b->pool, 4096, 0));
	sgp_chunk_put(got[0]);
	close_rig();
}
END_TEST

START_TEST(a_dry_pool_is_remembered_and_a_put_posts)
{
	struct sgp_sgl kept[8];
	struct ibv_sge sge[8][4];
	struct sgp_chunk *chunk[8][4];

	open_full(personas[_i / 2],
		  (struct rig_attr){.depth = 4,
				    .chunks = 8,
				    .cq_flags = _i % 2 ? SGP_CQ_SINGLE_THREADED : 0});
	for (int i = 0; i < 8; i++) {
		sgp_sgl_init(&kept[i], sge[i], 4, chunk[i], 4);
		send_bytes(100, i);
		receive(100, i, &kept[i]);
		check_b(i < 4 ? 4 : 7 - i);
	}
	ck_assert_uint_gt(stats_of(b).recv_dry, 0);
	for (int i = 0; i < 4; i++) {
		int before = i;

		let_go(&kept[i]);
		if (_i % 2) { /* the poll's, where the caller serialises */
			ck_assert_int_eq(info_of(b).recv_posted, before);
			ck_assert_int_eq(sgp_poll(b->cq, 1, b->wc), 0);
		}
		check_b(i + 1);
	}
	ck_assert_uint_eq(stats_of(b).recv_by_put, _i % 2 ? 0 : 4);
	for (int i = 4; i < 8; i++) {
		send_bytes(100, i);
		receive(100, i, NULL);
		if (_i % 2)
			ck_assert_int_eq(sgp_poll(b->cq, 1, b->wc), 0);
		check_b(4);
	}
	for (int i = 4; i < 8; i++)
		let_go(&kept[i]);
	check_b(4);
	close_rig();
}
END_TEST

START_TEST(closing_a_waiting_endpoint_holds_nothing)
{
	SGP_SGL(kept, 8);
	struct sgp_chunk *rest[8];
	int n = 0;

	nparts = 2;
	parts[0] = (struct sgp_recv_part){.size = 4096};
	parts[1] = (struct sgp_recv_part){.size = 64};
	open_full(NULL, (struct rig_attr){.depth = 4, .chunks = 16, .small = 5});
	ck_assert_ptr_nonnull(rest[n++] = sgp_pool_get(b->pool, 64, 0));
	send_bytes(4100, 0);
	receive(4100, 0, &kept);
	ck_assert_int_eq(info_of(b).recv_missing, 1);
	ck_assert_uint_eq(stats_of(b).recv_dry, 1);
	/* It may hold half of the next receive: by the order of the classes. */
	ck_assert_int_eq(sgp_ep_close(b->ep, 100), 0);
	while (sgp_poll(b->cq, RIG_WC, b->wc) > 0)
		for (int i = 0; i < RIG_WC; i++)
			sgp_sgl_clear(&b->wc[i].sgl);
	rig_check_live(b, 3);
	let_go(&kept);
	while (n)
		sgp_chunk_put(rest[--n]);
	rig_check_live(b, 0);
	close_rig();
}
END_TEST

/* Each would hold what the other waits for, if they took it in the order of their parts. */
START_TEST(two_that_need_the_same_do_not_wait_for_each_other)
{
	struct sgp_recv_part one[2] = {{.size = 4096}, {.size = 64}}, two[2];
	struct sgp_chunk *large, *small;
	struct sgp_ep *first, *second;

	one_part(4096);
	open_full(NULL, (struct rig_attr){.depth = 1, .chunks = 2, .small = 1, .cqe = 32});
	one[0].pool = one[1].pool = b->pool;
	two[0] = one[1];
	two[1] = one[0];
	ck_assert_ptr_nonnull(large = sgp_pool_get(b->pool, 4096, 0));
	ck_assert_ptr_nonnull(small = sgp_pool_get(b->pool, 64, 0));
	first = plain_ep(one, 2, 1);
	second = plain_ep(two, 2, 1);
	ck_assert_int_eq(sgp_ep_refill(first), -1);
	ck_assert_int_eq(errno, ENOBUFS);
	ck_assert_int_eq(sgp_ep_refill(second), -1);
	if (_i) {
		sgp_chunk_put(large);
		sgp_chunk_put(small);
	} else {
		sgp_chunk_put(small);
		sgp_chunk_put(large);
	}
	ck_assert_int_eq(posted_of(first) + posted_of(second), 1);
	if (posted_of(first)) {
		close_plain(first);
		ck_assert_int_eq(posted_of(second), 1);
		close_plain(second);
	} else {
		close_plain(second);
		ck_assert_int_eq(posted_of(first), 1);
		close_plain(first);
	}
	check_b(1);
	close_rig();
}
END_TEST

static void *put_later(void *list)
{
	struct timespec nap = {.tv_nsec = 20000000};

	nanosleep(&nap, NULL);
	sgp_sgl_clear(list);
	return NULL;
}

START_TEST(a_sleeper_wakes_for_another_threads_put)
{
	struct sgp_chunk *chunk;
	pthread_t thread;
	SGP_SGL(kept, 1);
	SGP_SGL(other, 1);

	open_full(NULL, (struct rig_attr){.depth = 2,
					  .chunks = 4,
					  .cqe = 8,
					  .cq_flags = _i ? SGP_CQ_SINGLE_THREADED : 0});
	/* Two posted, two that nobody can have. */
	for (int i = 0; i < 2; i++) {
		ck_assert_ptr_nonnull(chunk = sgp_pool_get(b->pool, 4096, 0));
		ck_assert_int_eq(sgp_sgl_append(i ? &kept : &other, chunk, 0, 1), 0);
	}
	for (int i = 0; i < 2; i++) {
		send_bytes(10, i);
		rig_reap(b, 1); /* and its list is kept in b->wc[0] while the next is awaited */
		check_message(&b->wc[0], 10, i);
		ck_assert_int_eq(sgp_sgl_move(&rig.side[1].wc[RIG_WC - 1 - i].sgl, &b->wc[0].sgl),
				 0);
	}
	ck_assert_int_eq(info_of(b).recv_posted, 0);
	rig_post_send(a, NULL, 'z'); /* no receive: it waits at the door */
	ck_assert_int_eq(pthread_create(&thread, NULL, put_later, &kept), 0);
	rig_reap(b, 1);
	ck_assert_int_eq(b->wc[0].status, IBV_WC_SUCCESS);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	rig_reap(a, 1);
	sgp_sgl_clear(&other);
	for (int i = 0; i < RIG_WC; i++)
		sgp_sgl_clear(&b->wc[i].sgl);
	ck_assert_int_eq(sgp_poll(b->cq, RIG_WC, b->wc), 0);
	check_b(2);
	close_rig();
}
END_TEST

/* ---- many threads ---- */

#define MESSAGES 3000
#define QUEUE    64

static struct {
	struct sgp_chunk *chunk[QUEUE];
	_Atomic unsigned int head, tail;
} to_drop;

/* Puts what the poller hands it. */
static void *dropper(void *arg)
{
	(void)arg;
	for (unsigned int i = 0; i < MESSAGES; i++) {
		while (atomic_load(&to_drop.head) == i)
			sched_yield();
		sgp_chunk_put(to_drop.chunk[i % QUEUE]);
		atomic_store(&to_drop.tail, i + 1);
	}
	return NULL;
}

static void *sender(void *arg)
{
	(void)arg;
	for (int i = 0; i < MESSAGES; i++) {
		struct sgp_chunk *chunk = rig_chunk(a, i);

		while (sgp_post_send(a->ep, NULL, chunk, 0, 100, IBV_SEND_SIGNALED))
			sched_yield();
		while (sgp_wait(a->cq, 1, a->wc, 1000) != 1)
			;
	}
	return NULL;
}

START_TEST(it_stays_full_while_others_put)
{
	pthread_t threads[2];

	open_full(NULL, (struct rig_attr){.depth = 4,
					  .chunks = 6,
					  .cqe = 16,
					  .cq_flags = _i ? SGP_CQ_SINGLE_THREADED : 0});
	ck_assert_int_eq(pthread_create(&threads[0], NULL, dropper, NULL), 0);
	ck_assert_int_eq(pthread_create(&threads[1], NULL, sender, NULL), 0);
	for (unsigned int i = 0; i < MESSAGES; i++) {
		rig_reap(b, 1);
		ck_assert_int_eq(b->wc[0].status, IBV_WC_SUCCESS);
		ck_assert_uint_eq(*(uint8_t *)(uintptr_t)b->wc[0].sgl.sge[0].addr, (uint8_t)i);
		while (i - atomic_load(&to_drop.tail) >= QUEUE)
			sched_yield();
		to_drop.chunk[i % QUEUE] = b->wc[0].sgl.chunk[0];
		sgp_chunk_ref(to_drop.chunk[i % QUEUE]);
		sgp_sgl_clear(&b->wc[0].sgl);
		atomic_store(&to_drop.head, i + 1);
	}
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	ck_assert_int_eq(sgp_poll(b->cq, RIG_WC, b->wc), 0);
	check_b(4);
	close_rig();
}
END_TEST

/* Closing takes back what a put is about to post. */
START_TEST(closing_meets_a_put)
{
	for (int round = 0; round < 60; round++) {
		pthread_t thread;
		SGP_SGL(kept, 4);

		memset(parts, 0, sizeof parts);
		one_part(4096);
		open_full(NULL, (struct rig_attr){.depth = 1, .chunks = 1, .cqe = 4});
		send_bytes(1, round);
		receive(1, round, &kept);
		ck_assert_int_eq(info_of(b).recv_missing, 1);
		held_of_b = 0;
		ck_assert_int_eq(pthread_create(&thread, NULL, put_later, &kept), 0);
		if (round % 2)
			nanosleep(&(struct timespec){.tv_nsec = 19900000 + round * 3000}, NULL);
		rig_close_ep(b);
		ck_assert_int_eq(pthread_join(thread, NULL), 0);
		rig_check_live(b, 0);
		close_rig();
	}
}
END_TEST

/* ---- any order ---- */

#define MOST_KEPT 12

static unsigned int seed;
static unsigned int pick(unsigned int n)
{
	seed = seed * 1103515245 + 12345;
	return (seed >> 16) % n;
}

/* Chunks that the refill holds for the receive to come. */
static int held_for_the_next(void)
{
	const struct sgp_refill *r = b->ep->refill;
	int needs = r->nheld + (atomic_load(&r->state) == SGP_REFILL_SERVED), n = 0;

	for (int i = 0; i < needs; i++)
		n += r->need[i].n;
	return n;
}

/* Every chunk is accounted for; and what is missing is waited for, or will be tried by the next poll. */
static void check_account(bool polled)
{
	const struct sgp_refill *r = b->ep->refill;
	const char *wrong = sgp_pool_check(b->pool);
	struct sgp_ep_info info = info_of(b);

	ck_assert_msg(!wrong, "%s", wrong);
	rig_check_live(b, (uint64_t)(info.recv_posted * chunks_a_receive() + held_of_b +
				     held_for_the_next()));
	if (info.recv_missing && polled)
		ck_assert(atomic_load(&r->state) == SGP_REFILL_WAITING || b->cq->listed ||
			  atomic_load(&b->cq->served));
}

/*
 * Sends, polls of several at a time, lists kept and dropped, and a device that refuses receives now and
 * then, in any order, on both kinds of queues.
 */
START_TEST(any_order_of_steps_keeps_account)
{
	struct sgp_sgl kept[MOST_KEPT];
	struct ibv_sge sge[MOST_KEPT][4];
	struct sgp_chunk *chunk[MOST_KEPT][4];
	unsigned int sent = 0, got = 0, nkept = 0;
	size_t lengths[64];

	seed = (unsigned int)_i;
	nparts = 1 + _i % 2;
	parts[0] = (struct sgp_recv_part){.size = _i % 2 ? 64 : 4096};
	parts[1] = (struct sgp_recv_part){.size = 4096};
	open_full("soft", (struct rig_attr){.depth = 4,
					    .chunks = 10,
					    .small = 7,
					    .cq_flags = _i / 2 % 2 ? SGP_CQ_SINGLE_THREADED : 0});
	for (int i = 0; i < MOST_KEPT; i++)
		sgp_sgl_init(&kept[i], sge[i], 4, chunk[i], 4);
	for (int step = 0; step < 600; step++) {
		unsigned int what = pick(10);
		bool polled = false;

		if (what < 4 && (int)(sent - got) < info_of(b).recv_posted) {
			lengths[sent % 64] = pick(3) ? pick(4000) : pick(64);
			send_bytes(lengths[sent % 64], (int)sent);
			sent++;
		} else if (what < 7) {
			int n = sgp_poll(b->cq, 1 + (int)pick(3), b->wc);

			ck_assert_int_ge(n, 0);
			polled = true;
			for (int i = 0; i < n; i++, got++) {
				check_message(&b->wc[i], lengths[got % 64], (int)got);
				if (nkept == MOST_KEPT || pick(2)) {
					sgp_sgl_clear(&b->wc[i].sgl);
					continue;
				}
				held_of_b += b->wc[i].sgl.num_chunk;
				ck_assert_int_eq(sgp_sgl_move(&kept[nkept++], &b->wc[i].sgl), 0);
			}
		} else if (what < 9 && nkept) {
			unsigned int which = pick(nkept--);
			SGP_SGL(gone, 4);

			ck_assert_int_eq(sgp_sgl_move(&gone, &kept[which]), 0);
			if (which != nkept)
				ck_assert_int_eq(sgp_sgl_move(&kept[which], &kept[nkept]), 0);
			let_go(&gone);
		} else if (what == 9 && !pick(3)) {
			ck_assert_int_eq(sv_fail_nth("post_recv", pick(2), ENOMEM), 0);
		}
		check_account(polled);
	}
	ck_assert_uint_gt(got, 50);
	ck_assert_int_eq(sv_fail_nth("post_recv", 0, 0), 0);
	while (nkept)
		let_go(&kept[--nkept]);
	for (int n; (n = sgp_poll(b->cq, RIG_WC, b->wc));)
		for (int i = 0; i < n; i++)
			sgp_sgl_clear(&b->wc[i].sgl);
	ck_assert_int_eq(sgp_poll(b->cq, 1, b->wc), 0);
	check_b(4);
	close_rig();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("recv_dry");
	TCase *tc = tcase_create("recv_dry");

	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, sends_cannot_starve_receives, 0, npersonas);
	tcase_add_loop_test(tc, a_dry_pool_is_remembered_and_a_put_posts, 0, 2 * npersonas);
	tcase_add_test(tc, closing_a_waiting_endpoint_holds_nothing);
	tcase_add_loop_test(tc, two_that_need_the_same_do_not_wait_for_each_other, 0, 2);
	tcase_add_loop_test(tc, a_sleeper_wakes_for_another_threads_put, 0, 2);
	tcase_add_loop_test(tc, it_stays_full_while_others_put, 0, 2);
	tcase_add_test(tc, closing_meets_a_put);
	tcase_add_loop_test(tc, any_order_of_steps_keeps_account, 0, 8);
	suite_add_tcase(s, tc);
	return suite_run(s);
}
