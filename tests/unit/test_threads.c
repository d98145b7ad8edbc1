/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Posts, polls and closes on several threads at once: each context exactly once, each chunk home,
 * and no post reaches the device after its queue pair is gone. Meant for ThreadSanitizer too.
 */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "../suite.h"
#include "rig.h"

#define POSTERS 2
#define MOST    20000

static struct rig rig;
static struct rig_side *a, *b;
static atomic_int accepted, finished, received;
static atomic_bool done, closed;
static _Atomic unsigned char seen[POSTERS][MOST]; /* completions of each context */

static int post_one(struct sgp_chunk *chunk, void *ctx)
{
	while (sgp_post_send(a->ep, ctx, chunk, 0, 64, IBV_SEND_SIGNALED)) {
		if (errno != EAGAIN)
			return errno;
		sched_yield();
	}
	return 0;
}

/* Post until told that the endpoint is closed, or rounds are over. */
static void *poster(void *arg)
{
	int me = (int)(intptr_t)arg;

	for (int i = 0; i < MOST && !atomic_load(&done); i++) {
		struct sgp_chunk *chunk = sgp_pool_get(a->pool, 64, 0);
		int err;

		if (!chunk) {
			sched_yield();
			i--;
			continue;
		}
		atomic_fetch_add(&accepted, 1);
		err = post_one(chunk, (void *)&seen[me][i]);
		if (!err)
			continue;
		atomic_fetch_sub(&accepted, 1);
		sgp_chunk_put(chunk);
		return (void *)(intptr_t)err;
	}
	return NULL;
}

static void *poller(void *arg)
{
	struct sgp_wc *wc = sgp_wc_alloc(a->cq, 16);

	(void)arg;
	while (!atomic_load(&done)) {
		int n = sgp_poll(a->cq, 16, wc);

		for (int i = 0; i < n; i++) {
			_Atomic unsigned char *count = wc[i].context;

			atomic_fetch_add(count, 1);
			atomic_fetch_add(&finished, 1);
		}
		if (n < 1)
			sched_yield();
	}
	sgp_wc_free(wc);
	return NULL;
}

/* The other side's receives are posted again as they are used. */
static void *receiver(void *arg)
{
	struct sgp_wc *wc = sgp_wc_alloc(b->cq, 16);

	(void)arg;
	while (!atomic_load(&done)) {
		int n = sgp_poll(b->cq, 16, wc);

		for (int i = 0; i < n; i++) {
			if (wc[i].status != IBV_WC_SUCCESS)
				continue;
			atomic_fetch_add(&received, 1);
			/* Trimmed to what arrived: whole again for the next. */
			sgp_sgl_clear(&wc[i].sgl);
			struct sgp_chunk *chunk = sgp_pool_get(b->pool, 64, 0);

			if (chunk && sgp_post_recv(b->ep, NULL, chunk, 0, 64))
				sgp_chunk_put(chunk);
		}
		if (n < 1)
			sched_yield();
	}
	sgp_wc_free(wc);
	return NULL;
}

static void start(pthread_t *thread, void *(*what)(void *), int arg)
{
	ck_assert_int_eq(pthread_create(thread, NULL, what, (void *)(intptr_t)arg), 0);
}

static void prepare(int cq_flags)
{
	struct rig_attr attr = {
		.depth = 32, .chunks = 256, .chunk_size = 64, .cq_flags = (uint32_t)cq_flags};

	rig_open(&rig, &attr);
	a = &rig.side[0];
	b = &rig.side[1];
	for (int i = 0; i < 32; i++)
		ck_assert_int_eq(sgp_post_recv(b->ep, NULL, sgp_pool_get(b->pool, 64, 0), 0, 64),
				 0);
	memset((void *)seen, 0, sizeof seen);
	accepted = finished = received = 0;
	done = closed = false;
}

START_TEST(posters_and_pollers_share_an_endpoint)
{
	pthread_t posters[POSTERS], pollers[2], recv;

	prepare(0);
	start(&recv, receiver, 0);
	for (int i = 0; i < 2; i++)
		start(&pollers[i], poller, i);
	for (int i = 0; i < POSTERS; i++)
		start(&posters[i], poster, i);
	for (int i = 0; i < POSTERS; i++) {
		void *err;

		pthread_join(posters[i], &err);
		ck_assert_ptr_null(err);
	}
	while (atomic_load(&finished) < POSTERS * MOST)
		sched_yield();
	atomic_store(&done, true);
	for (int i = 0; i < 2; i++)
		pthread_join(pollers[i], NULL);
	pthread_join(recv, NULL);
	ck_assert_int_eq(finished, POSTERS * MOST);
	for (int i = 0; i < POSTERS; i++)
		for (int j = 0; j < MOST; j++)
			if (seen[i][j] != 1)
				ck_abort_msg("context %d of %d: %d times", j, i, seen[i][j]);
	rig_check_live(a, 0);
	rig_close(&rig);
	rig_check_no_leak();
}
END_TEST

START_TEST(case_37_a_close_beside_posts_and_polls)
{
	for (int round = 0; round < 30; round++) {
		pthread_t posters[POSTERS], poll, recv;
		uint64_t posts;
		int n;

		prepare(0);
		start(&recv, receiver, 0);
		start(&poll, poller, 0);
		for (int i = 0; i < POSTERS; i++)
			start(&posters[i], poster, i);
		while (atomic_load(&finished) < 50 + round * 10)
			sched_yield();
		ck_assert_int_eq(sgp_ep_close(a->ep, round % 3 ? 100 : 0), 0);
		posts = sv_calls("post_send");
		for (int i = 0; i < POSTERS; i++) {
			void *err;

			pthread_join(posters[i], &err);
			ck_assert(!err || (intptr_t)err == ESHUTDOWN);
		}
		ck_assert_uint_eq(sv_calls("post_send"), posts);
		atomic_store(&done, true);
		pthread_join(poll, NULL);
		pthread_join(recv, NULL);
		/* What the close left, or the poller had no time for. */
		while ((n = sgp_poll(a->cq, RIG_WC, a->wc)) > 0)
			for (int i = 0; i < n; i++) {
				atomic_fetch_add((_Atomic unsigned char *)a->wc[i].context, 1);
				atomic_fetch_add(&finished, 1);
			}
		ck_assert_int_eq(finished, accepted);
		for (int i = 0; i < POSTERS; i++)
			for (int j = 0; j < MOST; j++)
				if (seen[i][j] > 1)
					ck_abort_msg("context %d of %d: %d times", j, i,
						     seen[i][j]);
		rig_check_live(a, 0);
		rig_close(&rig);
		rig_check_no_leak();
	}
}
END_TEST

/* ---- posts, polls, refills, cancels and closes ---- */

static atomic_int at[POSTERS], cancelled;

static void keep_b_full(struct rig_side *side, struct sgp_ep_attr *ep)
{
	static struct sgp_recv_part part;

	if (side->number == 0)
		return;
	part = (struct sgp_recv_part){.pool = side->pool, .size = 64};
	ep->recv = &part;
	ep->num_recv = 1;
}

/* As poster(), and tells the canceller how far it is. */
static void *telling_poster(void *arg)
{
	int me = (int)(intptr_t)arg;

	for (int i = 0; i < MOST && !atomic_load(&done); i++) {
		struct sgp_chunk *chunk = sgp_pool_get(a->pool, 64, 0);
		/* Some gathered, some that nobody asked a completion for but for an error. */
		int flags = IBV_SEND_SIGNALED | (i % 3 ? 0 : SGP_BATCH), err = 0;

		if (!chunk) {
			sched_yield();
			i--;
			continue;
		}
		atomic_fetch_add(&accepted, 1);
		atomic_store(&at[me], i);
		while (sgp_post_send(a->ep, (void *)&seen[me][i], chunk, 0, 64, flags)) {
			err = errno;
			if (err != EAGAIN)
				break;
			err = 0;
			sched_yield();
		}
		if (!err)
			continue;
		atomic_fetch_sub(&accepted, 1);
		sgp_chunk_put(chunk);
		return (void *)(intptr_t)err;
	}
	return NULL;
}

static void *canceller(void *arg)
{
	unsigned int n = 0;

	(void)arg;
	while (!atomic_load(&done)) {
		int me = (int)(n++ % POSTERS), i = atomic_load(&at[me]) - (int)(n % 8);

		if (i >= 0 && !sgp_cancel(a->ep, (void *)&seen[me][i]))
			atomic_fetch_add(&cancelled, 1);
		sched_yield();
	}
	return NULL;
}

/* Keeps what it gets for a while, so that its pool runs dry and a put has to post again. */
static void *slow_receiver(void *arg)
{
	struct sgp_wc *wc = sgp_wc_alloc(b->cq, 16);
	struct sgp_chunk *kept[8] = {NULL};
	unsigned int k = 0;

	(void)arg;
	while (!atomic_load(&done)) {
		int n = sgp_poll(b->cq, 16, wc);

		for (int i = 0; i < n; i++) {
			struct sgp_chunk **slot = &kept[k++ % 8];

			if (!wc[i].sgl.num_chunk)
				continue;
			sgp_chunk_put(*slot);
			*slot = wc[i].sgl.chunk[0];
			sgp_chunk_ref(*slot);
			sgp_sgl_clear(&wc[i].sgl);
			atomic_fetch_add(&received, 1);
		}
		if (n < 1)
			sched_yield();
	}
	for (int i = 0; i < 8; i++)
		sgp_chunk_put(kept[i]);
	sgp_wc_free(wc);
	return NULL;
}

START_TEST(all_at_once_on_four_threads_and_more)
{
	for (int round = 0; round < 20; round++) {
		struct rig_attr attr = {
			.depth = 16, .chunks = 20, .chunk_size = 64, .tune = keep_b_full};
		pthread_t posters[POSTERS], poll, recv, cancel;
		struct sgp_ep_stats stats;
		int n;

		rig_open(&rig, &attr);
		a = &rig.side[0];
		b = &rig.side[1];
		memset((void *)seen, 0, sizeof seen);
		accepted = finished = received = cancelled = 0;
		done = false;
		for (int i = 0; i < POSTERS; i++)
			at[i] = -1;
		start(&recv, slow_receiver, 0);
		start(&poll, poller, 0);
		start(&cancel, canceller, 0);
		for (int i = 0; i < POSTERS; i++)
			start(&posters[i], telling_poster, i);
		while (atomic_load(&finished) < 100 + round * 20)
			sched_yield();
		/* From this fifth thread, now of the sender, now of the receiver first. */
		if (round % 2)
			ck_assert_int_eq(sgp_ep_close(b->ep, round % 3), 0);
		ck_assert_int_eq(sgp_ep_close(a->ep, round % 3 ? 100 : 0), 0);
		for (int i = 0; i < POSTERS; i++) {
			void *err;

			pthread_join(posters[i], &err);
			ck_assert(!err || (intptr_t)err == ESHUTDOWN);
		}
		atomic_store(&done, true);
		pthread_join(cancel, NULL);
		pthread_join(poll, NULL);
		pthread_join(recv, NULL);
		while ((n = sgp_poll(a->cq, RIG_WC, a->wc)) > 0)
			for (int i = 0; i < n; i++) {
				atomic_fetch_add((_Atomic unsigned char *)a->wc[i].context, 1);
				atomic_fetch_add(&finished, 1);
			}
		ck_assert_int_eq(finished, accepted);
		for (int i = 0; i < POSTERS; i++)
			for (int j = 0; j < MOST; j++)
				if (seen[i][j] > 1)
					ck_abort_msg("context %d of %d: %d times", j, i,
						     seen[i][j]);
		ck_assert_int_eq(sgp_ep_stats(a->ep, &stats), 0);
		ck_assert_uint_eq(stats.quarantined, 0);
		ck_assert_uint_eq(stats.cancelled, (uint64_t)cancelled);
		ck_assert_uint_eq(stats.completions, (uint64_t)finished);
		rig_check_live(a, 0);
		rig_close(&rig);
		rig_check_no_leak();
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("threads");
	TCase *tc = tcase_create("queues");

	suite_add_tcase(suite, tc);
	tcase_set_timeout(tc, 240);
	tcase_add_test(tc, posters_and_pollers_share_an_endpoint);
	tcase_add_test(tc, case_37_a_close_beside_posts_and_polls);
	tcase_add_test(tc, all_at_once_on_four_threads_and_more);
	return suite_run(suite);
}
