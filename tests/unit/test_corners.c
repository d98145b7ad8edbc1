/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The queues' corners: orders of events between a poster, a poller and the device that are rare,
 * made to happen where the inline ibv_poll_cq(3) and ibv_post_send(3) find the device's functions.
 */
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>

#include "../suite.h"
#include "ab_rig.h"

static struct {
	int (*post_send)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
	int (*poll_cq)(struct ibv_cq *, int, struct ibv_wc *);
	int taken; /* requests of the next chain that are taken; -1: all, -2: all, with an error */
	int polled_meanwhile;      /* with -2: so many completions, before the error is told */
	void (*before_poll)(void); /* once */
	void (*after_poll)(void);  /* once */
} fake;

/* Another thread's poll, while this one is in the middle of its post. */
static void *poll_some(void *arg)
{
	const int *n = arg;

	ck_assert_int_eq(sgp_poll(a->cq, *n, a->wc), *n);
	return NULL;
}

static void poll_meanwhile(int n)
{
	pthread_t poller;

	ck_assert_int_eq(pthread_create(&poller, NULL, poll_some, &n), 0);
	ck_assert_int_eq(pthread_join(poller, NULL), 0);
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct ibv_send_wr *last = NULL, *first = wr;
	int taken = fake.taken;

	fake.taken = -1;
	if (taken == -1)
		return fake.post_send(qp, wr, bad);
	if (taken == -2) {
		ck_assert_int_eq(fake.post_send(qp, wr, bad), 0);
		if (fake.polled_meanwhile)
			poll_meanwhile(fake.polled_meanwhile);
		fake.polled_meanwhile = 0;
		return EIO;
	}
	for (; taken && wr; taken--) {
		last = wr;
		wr = wr->next;
	}
	if (last) {
		last->next = NULL;
		ck_assert_int_eq(fake.post_send(qp, first, bad), 0);
		last->next = wr;
	}
	*bad = wr;
	return ENOMEM;
}

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	void (*before)(void) = fake.before_poll, (*after)(void) = fake.after_poll;
	int got;

	fake.before_poll = fake.after_poll = NULL;
	if (before)
		before();
	got = fake.poll_cq(cq, n, wc);
	if (after)
		after();
	return got;
}

/* A rig whose device's functions are the ones above. */
static void open_faked(struct rig_attr attr)
{
	open_rig(attr);
	fake.post_send = a->id->verbs->ops.post_send;
	fake.poll_cq = a->id->verbs->ops.poll_cq;
	fake.taken = -1;
	a->id->verbs->ops.post_send = post_send;
	a->id->verbs->ops.poll_cq = poll_cq;
}

static void half_taken_then_a_send(void)
{
	ck_assert_int_eq(send_one(a, &context[0], SGP_BATCH), 0);
	ck_assert_int_eq(send_one(a, &context[1], SGP_BATCH), 0);
	fake.taken = 1;
	ck_assert_int_eq(sgp_ep_submit(a->ep), -1);
	ck_assert_int_eq(send_one(a, &context[2], IBV_SEND_SIGNALED), 0);
}

START_TEST(a_later_completion_does_not_retire_what_was_not_taken)
{
	open_faked((struct rig_attr){0});
	rig_post_recv(b, NULL);
	rig_post_recv(b, NULL);
	/* Between the poller's look into its inbox and its look at the device. */
	fake.before_poll = half_taken_then_a_send;
	ck_assert_int_eq(sgp_poll(a->cq, 1, a->wc), 1);
	ck_assert_ptr_eq(a->wc[0].context, &context[2]);
	ck_assert_int_eq(a->wc[0].error, 0);
	ck_assert_int_eq(send_one(a, &context[3], 0), 0);
	rig_reap(a, 1);
	ck_assert_ptr_eq(a->wc[0].context, &context[1]);
	ck_assert_int_eq(a->wc[0].error, ENOMEM);
	close_rig();
}
END_TEST

START_TEST(a_second_refusal_forgets_no_tail)
{
	open_faked((struct rig_attr){0});
	rig_post_recv(b, NULL);
	for (int flags = 0; flags <= IBV_SEND_SIGNALED; flags += IBV_SEND_SIGNALED) {
		rig_post_recv(b, NULL);
		ck_assert_int_eq(send_one(a, &context[0], SGP_BATCH), 0);
		ck_assert_int_eq(send_one(a, &context[1], SGP_BATCH | flags), 0);
		fake.taken = 1;
		ck_assert_int_eq(sgp_ep_submit(a->ep), -1);
		rig_reap(a, 1);
		ck_assert_ptr_eq(a->wc[0].context, &context[1]);
		fake.taken = 0;
		ck_assert_int_eq(send_one(a, &context[2], 0), -1);
		ck_assert_int_eq(sgp_ep_sync(a->ep), 0);
		ck_assert_int_eq(sgp_poll(a->cq, 1, a->wc), 0);
		rig_check_live(a, 0);
	}
	close_rig();
}
END_TEST

START_TEST(an_error_of_an_unsignalled_request_that_was_queued_is_told)
{
	open_faked((struct rig_attr){0});
	rig_post_recv(b, NULL);
	rig_post_recv(b, NULL);
	fake.taken = -2;
	ck_assert_int_eq(send_one(a, &context[0], 0), 0);
	ck_assert_int_eq(send_one(a, &context[1], IBV_SEND_SIGNALED), 0);
	rig_reap(a, 2);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(a->wc[i].error, a->wc[i].context == &context[0] ? EIO : 0);
	ck_assert_ptr_ne(a->wc[0].context, a->wc[1].context);
	/* And the same when the request that retires it is the endpoint's own. */
	rig_post_recv(b, NULL);
	fake.taken = -2;
	ck_assert_int_eq(send_one(a, &context[0], 0), 0);
	ck_assert_int_eq(sgp_ep_sync(a->ep), 0);
	ck_assert_int_eq(sgp_poll(a->cq, RIG_WC, a->wc), 1);
	ck_assert_ptr_eq(a->wc[0].context, &context[0]);
	ck_assert_int_eq(a->wc[0].error, EIO);
	close_rig();
}
END_TEST

/*
 * A poll on another thread comes before the poster knows of the error (law 1: all is queued, and the
 * device may be at it): what it had stands, and nothing is told twice.
 */
START_TEST(what_was_polled_before_the_posts_error_stands)
{
	open_faked((struct rig_attr){0});
	for (int round = 0; round < 12; round++) { /* more than there are slots */
		for (int i = 0; i < 3; i++)
			rig_post_recv(b, NULL);
		ck_assert_int_eq(send_one(a, &context[0], SGP_BATCH), 0);
		ck_assert_int_eq(send_one(a, &context[1], SGP_BATCH | IBV_SEND_SIGNALED), 0);
		fake.taken = -2;
		fake.polled_meanwhile = 1;
		ck_assert_int_eq(send_one(a, &context[2], IBV_SEND_SIGNALED), 0);
		ck_assert_ptr_eq(a->wc[0].context, &context[1]);
		ck_assert_int_eq(a->wc[0].status, IBV_WC_SUCCESS);
		ck_assert_int_eq(a->wc[0].error, 0);
		ck_assert_int_eq(sgp_poll(a->cq, RIG_WC, a->wc), 1);
		ck_assert_ptr_eq(a->wc[0].context, &context[2]);
		ck_assert_int_eq(a->wc[0].status, IBV_WC_GENERAL_ERR);
		ck_assert_int_eq(a->wc[0].error, EIO);
		ck_assert_int_eq(sgp_poll(a->cq, RIG_WC, a->wc), 0);
		rig_check_live(a, 0);
		/* The slots have forgotten it. */
		ck_assert_int_eq(send_one(a, &context[3], IBV_SEND_SIGNALED), 0);
		rig_post_recv(b, NULL);
		rig_reap(a, 1);
		ck_assert_int_eq(a->wc[0].error, 0);
		rig_reap(b, 4);
		for (int i = 0; i < 4; i++)
			sgp_sgl_clear(&b->wc[i].sgl);
	}
	close_rig();
}
END_TEST

START_TEST(what_was_gathered_ends_when_the_endpoint_stops)
{
	struct sgp_chunk *chunk;

	open_rig((struct rig_attr){0});
	chunk = rig_chunk(a, 1);
	ck_assert_int_eq(sgp_post_write(a->ep, &context[0], chunk, 0, 64, 0, 0, 1), 0);
	ck_assert_int_eq(send_one(a, &context[1], IBV_SEND_SIGNALED | SGP_BATCH), 0);
	rig_reap(a, 2);
	ck_assert_ptr_eq(a->wc[0].context, &context[0]);
	ck_assert_int_eq(a->wc[0].status, IBV_WC_REM_ACCESS_ERR);
	ck_assert_ptr_eq(a->wc[1].context, &context[1]);
	ck_assert_int_eq(a->wc[1].error, ESHUTDOWN);
	close_rig();
}
END_TEST

/* A close without a time limit, for this would not end. */
START_TEST(a_close_does_not_wait_for_what_gives_no_completion)
{
	struct sgp_chunk *chunk;

	open_rig((struct rig_attr){0});
	rig_post_recv(b, NULL);
	switch (_i) {
	case 0: /* it has succeeded, and nobody wanted to hear of it */
		ck_assert_int_eq(send_one(a, NULL, 0), 0);
		ck_assert_int_eq(sgp_ep_close(a->ep, -1), 0);
		ck_assert_int_eq(sgp_poll(a->cq, 1, a->wc), 0);
		break;
	case 1: /* never sent */
		ck_assert_int_eq(send_one(a, &context[0], IBV_SEND_SIGNALED | SGP_BATCH), 0);
		ck_assert_int_eq(sgp_ep_close(a->ep, -1), 0);
		ck_assert_int_eq(sgp_poll(a->cq, 2, a->wc), 1);
		ck_assert_ptr_eq(a->wc[0].context, &context[0]);
		ck_assert_int_eq(a->wc[0].status, IBV_WC_WR_FLUSH_ERR);
		break;
	default: /* one before the endpoint stopped, one that never went */
		ck_assert_int_eq(send_one(a, &context[0], 0), 0);
		ck_assert_int_eq(send_one(a, &context[1], SGP_BATCH), 0);
		rig_post_recv(a, &context[2]);
		chunk = rig_chunk(b, 1);
		ck_assert_int_eq(sgp_post_write(b->ep, NULL, chunk, 0, 64, 0, 0, 1), 0);
		rig_reap(b, 1); /* what was sent to it ... */
		sgp_sgl_clear(&b->wc[0].sgl);
		rig_reap(b, 1); /* ... and what it may not do: both ends are in error */
		ck_assert_int_eq(b->wc[0].status, IBV_WC_REM_ACCESS_ERR);
		ck_assert_int_eq(sgp_ep_close(a->ep, -1), 0);
		ck_assert_int_eq(sgp_poll(a->cq, RIG_WC, a->wc), 3);
		for (int i = 0; i < 3; i++)
			ck_assert_int_eq(a->wc[i].status, IBV_WC_WR_FLUSH_ERR);
		break;
	}
	close_rig();
}
END_TEST

START_TEST(completions_too_small_for_a_list_are_refused)
{
	struct sgp_cq_attr attr = {.cqe = 4, .max_sge = 1};
	struct sgp_cq *small;
	struct sgp_wc *wc;
	SGP_SGL(sgl, 4);

	open_rig((struct rig_attr){0});
	small = sgp_cq_create(a->id->verbs, &attr);
	ck_assert_ptr_nonnull(small);
	wc = sgp_wc_alloc(small, 1);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(sgp_sgl_append(&sgl, rig_chunk(b, 0), 8, 100), 0);
	ck_assert_int_eq(sgp_post_recvv(b->ep, &context[0], &sgl), 0);
	ck_assert_int_eq(send_one(a, NULL, IBV_SEND_SIGNALED), 0);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(sgp_poll(b->cq, 1, wc), -1);
		ck_assert_int_eq(errno, EINVAL);
	}
	rig_reap(b, 1);
	ck_assert_ptr_eq(b->wc[0].context, &context[0]);
	ck_assert_uint_eq(b->wc[0].byte_len, 64);
	sgp_wc_free(wc);
	ck_assert_int_eq(sgp_cq_destroy(small), 0);
	close_rig();
}
END_TEST

static void two_arrive(void)
{
	ck_assert_int_eq(send_one(b, NULL, IBV_SEND_SIGNALED), 0);
	ck_assert_int_eq(send_one(b, NULL, IBV_SEND_SIGNALED), 0);
}

START_TEST(one_waiter_leaves_the_other_its_wake_up)
{
	struct pollfd pfd = {.events = POLLIN};

	open_faked((struct rig_attr){0});
	rig_post_recv(a, NULL);
	rig_post_recv(a, NULL);
	/* One waiter sleeps on the descriptor ... */
	pfd.fd = sgp_cq_fd(a->cq);
	ck_assert_int_eq(sgp_cq_arm(a->cq), 0);
	ck_assert_int_eq(sgp_poll(a->cq, 1, a->wc), 0);
	/* ... and the event for two completions comes as another finds none and arms. */
	fake.after_poll = two_arrive;
	ck_assert_int_eq(sgp_wait(a->cq, 1, a->wc, 1000), 1);
	ck_assert_int_eq(poll(&pfd, 1, 0), 1);
	close_rig();
}
END_TEST

START_TEST(a_datagram_is_at_most_a_packet)
{
	struct sgp_ep_attr attr = {.cap = {.max_send_wr = 2, .max_recv_wr = 2},
				   .qp_type = IBV_QPT_UD};
	struct sgp_cq_attr cq = {.cqe = 4};
	struct ibv_port_attr port;
	struct sgp_ep_info info;
	struct sgp_ep *ep;

	open_rig((struct rig_attr){0});
	ck_assert_int_eq(ibv_query_port(a->id->verbs, 1, &port), 0);
	attr.pd = a->pd;
	attr.cq = sgp_cq_create(a->id->verbs, &cq);
	ck_assert_ptr_nonnull(attr.cq);
	ep = sgp_ep_create(NULL, &attr);
	ck_assert_msg(ep != NULL, "%s", sgp_errmsg());
	ck_assert_int_eq(sgp_ep_query(ep, &info), 0);
	ck_assert_uint_eq(info.max_msg, 128u << port.active_mtu);
	ck_assert_int_eq(sgp_ep_close(ep, 0), 0);
	ck_assert_int_eq(sgp_ep_destroy(ep), 0);
	ck_assert_int_eq(sgp_cq_destroy(attr.cq), 0);
	close_rig();
}
END_TEST

/* Each completion of the device twice. */
static int (*real_poll_cq)(struct ibv_cq *, int, struct ibv_wc *);

static int poll_twice(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	int got = n < 2 ? 0 : real_poll_cq(cq, n / 2, wc);

	for (int i = got - 1; i >= 0; i--)
		wc[2 * i] = wc[2 * i + 1] = wc[i];
	return got > 0 ? 2 * got : got;
}

START_TEST(a_duplicated_completion_ends_nothing_twice)
{
	struct rig own;
	struct rig_side *side = &own.side[0];
	struct ibv_context_ops *ops;
	int which[4], seen[4] = {0}, n, got = 0;

	rig_open(&own, NULL);
	ops = &side->id->verbs->ops;
	real_poll_cq = ops->poll_cq;
	ops->poll_cq = poll_twice;
	for (int i = 0; i < 4; i++)
		rig_post_recv(side, &which[i]);
	/* The close keeps them: the second of each finds its slot ended, but not free yet. */
	ck_assert_int_eq(sgp_ep_close(side->ep, 1000), 0);
	while ((n = sgp_poll(side->cq, RIG_WC, side->wc)) > 0 && got < 100)
		for (int i = 0; i < n; i++, got++) {
			seen[(int *)side->wc[i].context - which]++;
			sgp_sgl_clear(&side->wc[i].sgl);
		}
	ops->poll_cq = real_poll_cq;
	ck_assert_int_eq(got, 4);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(seen[i], 1);
	rig_check_live(side, 0);
	rig_close(&own);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("corners");
	TCase *tc = tcase_create("rare orders");

	suite_add_tcase(suite, tc);
	tcase_set_timeout(tc, 20);
	tcase_add_test(tc, a_later_completion_does_not_retire_what_was_not_taken);
	tcase_add_test(tc, a_second_refusal_forgets_no_tail);
	tcase_add_test(tc, an_error_of_an_unsignalled_request_that_was_queued_is_told);
	tcase_add_test(tc, what_was_polled_before_the_posts_error_stands);
	tcase_add_test(tc, what_was_gathered_ends_when_the_endpoint_stops);
	tcase_add_loop_test(tc, a_close_does_not_wait_for_what_gives_no_completion, 0, 3);
	tcase_add_test(tc, completions_too_small_for_a_list_are_refused);
	tcase_add_test(tc, one_waiter_leaves_the_other_its_wake_up);
	tcase_add_test(tc, a_datagram_is_at_most_a_packet);
	tcase_add_test(tc, a_duplicated_completion_ends_nothing_twice);
	return suite_run(suite);
}
