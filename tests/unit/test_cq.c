/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The completion queue: what is made and undone step by step, its events, and that none of its
 * endpoints waits for ever because of another.
 */
#include <check.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "../suite.h"
#include "plain_rig.h"
#include "sgp_config.h"

/* ---- making ---- */

/*
 * A pool, a queue and an endpoint, up to the step that fails; cqe_fixed: entries where the queue can't
 * be resized. Returns 0 or the errno.
 */
static int make_all(struct ibv_context *verbs, struct ibv_pd *pd, int cqe_fixed)
{
	struct sgp_class_attr class = {.size = CHUNK, .chunks = 8};
	struct sgp_pool_attr pool_attr = {
		.classes = &class, .nclasses = 1, .pages = SGP_PAGES_BASE};
	struct sgp_cq_attr cq_attr = {.cqe = 1, .cqe_fixed = cqe_fixed};
	struct sgp_ep_attr attr = {
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_inline_data = 64}, .pd = pd};
	struct sgp_pool *pool;
	struct sgp_ep *ep = NULL;
	int err = 0;

	errno = 0;
	pool = sgp_pool_create(pd, &pool_attr);
	if (!pool)
		return errno;
	attr.cq = sgp_cq_create(verbs, &cq_attr);
	if (!attr.cq)
		err = errno;
	else
		ep = sgp_ep_create(NULL, &attr);
	if (attr.cq && !ep)
		err = errno;
	if (ep) {
		ck_assert_int_eq(sgp_ep_close(ep, 0), 0);
		ck_assert_int_eq(sgp_ep_destroy(ep), 0);
	}
	if (attr.cq)
		ck_assert_int_eq(sgp_cq_destroy(attr.cq), 0);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
	return err;
}

/* Fails what making takes of the device at its first, second, ... call, until no such call is left. */
static void fail_each(const char *const *call, size_t n, int cqe_fixed)
{
	size_t failures = 0;

	for (size_t i = 0; i < n; i++)
		for (uint64_t k = 0;; k++) {
			int mrs = sv_live(SV_MRS), err;

			ck_assert_int_eq(sv_fail_nth(call[i], k, EACCES), 0);
			err = make_all(t.verbs, t.pd, cqe_fixed);
			ck_assert_int_eq(sv_live(SV_MRS), mrs);
			ck_assert_int_eq(sv_live(SV_CQS), 1);
			ck_assert_int_eq(sv_live(SV_CHANNELS), 1);
			ck_assert_int_eq(sv_live(SV_QPS), 0);
			if (!sv_failed(call[i])) {
				sv_faults_clear();
				ck_assert_msg(err == 0, "%s %d: %s", call[i], (int)k, sgp_errmsg());
				break;
			}
			ck_assert_msg(err == EACCES, "%s %d: %s", call[i], (int)k, strerror(err));
			failures++;
			sv_faults_clear();
			/* It was nothing lasting. */
			ck_assert_int_eq(make_all(t.verbs, t.pd, cqe_fixed), 0);
		}
	ck_assert_uint_ge(failures, n);
	sv_faults_clear();
}

START_TEST(case_38_a_failure_at_any_step_leaves_nothing)
{
	/* Their ends are not to fail here. */
	static const char *const calls[] = {"query_device", "query_port",          "reg_mr",
					    "create_cq",    "create_comp_channel", "resize_cq",
					    "create_qp"};
	/* Without resize_cq, whose failure is then the reason to make a longer queue. */
	static const char *const fixed[] = {"query_device", "reg_mr", "create_cq",
					    "create_comp_channel", "create_qp"};

	open_all(0, false, 8);
	fail_each(calls, sizeof calls / sizeof *calls, 0);
	ck_assert_int_eq(sv_set(t.device, "no_cq_resize", 1), 0);
	fail_each(fixed, sizeof fixed / sizeof *fixed, 64);
	close_all();
}
END_TEST

START_TEST(a_queue_that_cant_grow_is_long_at_once)
{
	struct ibv_device_attr device;
	struct sgp_cq_attr attr = {.cqe = 1, .cqe_fixed = -1};
	struct sgp_cq *cq;
	uint64_t made;

	open_all(0, false, 8);
	ck_assert_int_eq(ibv_query_device(t.verbs, &device), 0);
	errno = 0;
	ck_assert_ptr_null(sgp_cq_create(t.verbs, &attr));
	ck_assert_int_eq(errno, EINVAL);

	/* It grows: made once, and only as the endpoint needs it. */
	made = sv_calls("create_cq");
	ck_assert_int_eq(make_all(t.verbs, t.pd, 64), 0);
	ck_assert_uint_eq(sv_calls("create_cq"), made + 1);

	/* It can't: the endpoint finds no room in the short one, and in the long one it does. */
	ck_assert_int_eq(sv_set(t.device, "no_cq_resize", 1), 0);
	ck_assert_int_eq(make_all(t.verbs, t.pd, 0), EOPNOTSUPP);
	ck_assert_int_eq(make_all(t.verbs, t.pd, 7), EOPNOTSUPP);
	ck_assert_int_eq(make_all(t.verbs, t.pd, 8), 0);
	ck_assert_int_eq(make_all(t.verbs, t.pd, INT_MAX), 0);

	/* At most what the device has. */
	made = sv_calls("create_cq");
	attr.cqe = device.max_cqe;
	attr.cqe_fixed = INT_MAX;
	cq = sgp_cq_create(t.verbs, &attr);
	ck_assert_msg(cq != NULL, "%s", sgp_errmsg());
	ck_assert_uint_eq(sv_calls("create_cq"), made + 1);
	ck_assert_int_eq(sgp_cq_destroy(cq), 0);

	/* The short one stays if it can't be ended: it serves as well as it did. */
	attr.cqe = 4;
	ck_assert_int_eq(sv_fail_nth("destroy_cq", 0, EBUSY), 0);
	cq = sgp_cq_create(t.verbs, &attr);
	ck_assert_msg(cq != NULL, "%s", sgp_errmsg());
	ck_assert(sv_failed("destroy_cq"));
	sv_faults_clear();
	ck_assert_int_eq(sv_live(SV_CQS), 2);
	ck_assert_int_eq(sgp_cq_destroy(cq), 0);
	ck_assert_int_eq(sv_live(SV_CQS), 1);
	close_all();
}
END_TEST

/* ---- events ---- */

/* A queue of its own with one endpoint, connected to itself. */
struct own {
	struct sgp_cq *cq;
	struct sgp_ep *ep;
	struct sgp_wc *wc;
};

static void open_own(struct own *o)
{
	struct sgp_cq_attr cq_attr = {.cqe = 2 * DEPTH};
	struct sgp_ep_attr attr = {.cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH}, .pd = t.pd};

	o->cq = attr.cq = sgp_cq_create(t.verbs, &cq_attr);
	ck_assert_ptr_nonnull(o->cq);
	o->wc = sgp_wc_alloc(o->cq, RIG_WC);
	o->ep = sgp_ep_create(NULL, &attr);
	ck_assert_ptr_nonnull(o->ep);
	ck_assert_int_eq(plain_init(sgp_ep_qp(o->ep)), 0);
	ck_assert_int_eq(plain_join(sgp_ep_qp(o->ep), sgp_ep_qp(o->ep)->qp_num, 7, 12), 0);
}

static void close_own(struct own *o)
{
	int n;

	ck_assert_int_eq(sgp_ep_close(o->ep, 0), 0);
	while ((n = sgp_poll(o->cq, RIG_WC, o->wc)) > 0)
		for (int i = 0; i < n; i++)
			sgp_sgl_clear(&o->wc[i].sgl);
	sgp_wc_free(o->wc);
	ck_assert_int_eq(sgp_ep_destroy(o->ep), 0);
	ck_assert_int_eq(sgp_cq_destroy(o->cq), 0);
}

static bool is_readable(const struct own *o)
{
	struct pollfd pfd = {.fd = sgp_cq_fd(o->cq), .events = POLLIN};

	return poll(&pfd, 1, 0) == 1;
}

/* Events that nobody took, that one wait took together, that came after; and both orders of ending. */
START_TEST(case_41_no_order_of_ending_hangs_for_an_event)
{
	open_all(0, false, 8);
	sv_strict(1); /* which tells of events that were not acknowledged */
	for (int order = 0; order < 2; order++)
		for (int how = 0; how < 4; how++) {
			struct own two[2];

			for (int i = 0; i < 2; i++)
				open_own(&two[i]);
			for (int i = 0; i < 3; i++) {
				struct own *o = &two[i % 2];

				ck_assert_int_eq(sgp_cq_arm(o->cq), 0);
				post_recv(o->ep, i);
				post_send(o->ep, 8 + i, IBV_SEND_SIGNALED);
				ck_assert(is_readable(o));
			}
			for (int i = 0; i < 2; i++) {
				if (how & 1)
					ck_assert_int_gt(
						sgp_wait(two[i].cq, RIG_WC, two[i].wc, 1000), 0);
				if (how & 2)
					ck_assert_int_eq(sgp_cq_arm(two[i].cq), 0);
			}
			for (int i = 0; i < 2; i++)
				close_own(&two[i ^ order]);
			check_live(0);
		}
	ck_assert_msg(!sv_strict_count(), "%s", sv_strict_sentence(0));
	sv_strict(0);
	close_all();
}
END_TEST

/* ---- fairness ---- */

/* A message of the third and fourth endpoint, each poll finding completions: the queue is never idle. */
static int busy_polls(int most, const void *until)
{
	for (int n = 1; n <= most; n++) {
		bool found = false;
		int got;

		post_recv(t.ep[3], 30);
		post_send(t.ep[2], 31, IBV_SEND_SIGNALED);
		got = sgp_poll(t.cq, RIG_WC, t.wc);
		ck_assert_int_ge(got, 2);
		for (int i = 0; i < got; i++) {
			found = found || t.wc[i].context == until;
			sgp_sgl_clear(&t.wc[i].sgl);
		}
		if (found)
			return n;
	}
	return 0;
}

START_TEST(traffic_of_one_endpoint_keeps_no_other_waiting)
{
	open_all(4, false, 8 * DEPTH);
	/* A gathered batch. */
	post_recv(t.ep[1], 0);
	post_send(t.ep[0], 1, SGP_BATCH | IBV_SEND_SIGNALED);
	ck_assert_int_gt(busy_polls(1000, &context[0]), 0);
	check_live(0);
	/* An unsignalled tail: its chunk comes home though nobody ever posts there again. */
	post_recv(t.ep[1], 0);
	post_send(t.ep[0], 1, 0);
	ck_assert_int_gt(busy_polls(1, &context[0]), 0);
	check_live(1);
	ck_assert_int_eq(busy_polls(200, &context[5]), 0);
	check_live(0);
	close_all();
}
END_TEST

/* ---- lengths ---- */

START_TEST(a_read_of_more_than_32_bits_says_how_long_it_was)
{
	SGP_SGL(sgl, 4);
	uint64_t length = 0;

	/* A device that completes at once, whatever it's given: nobody has the memory for it here. */
	open_all(1, false, 8 * DEPTH);
	ck_assert_int_eq(sv_set(t.device, "null", 1), 0);
	ck_assert_int_eq(plain_join(sgp_ep_qp(t.ep[0]), sgp_ep_qp(t.ep[0])->qp_num, 7, 12), 0);
	for (int i = 0; i < 3; i++) {
		struct ibv_sge *sge = &sgl.sge[i];

		ck_assert_int_eq(sgp_sgl_append(&sgl, chunk(0), 8, 8 + (size_t)i), 0);
		sgl.length += INT32_MAX - sge->length;
		sge->length = INT32_MAX;
		length += INT32_MAX;
	}
	ck_assert_uint_gt(length, UINT32_MAX);
	ck_assert_msg(!sgp_post_readv(t.ep[0], &context[0], &sgl, 0, 0, 0), "%s", sgp_errmsg());
	ck_assert_int_eq(sgp_poll(t.cq, RIG_WC, t.wc), 1);
	ck_assert_int_eq(t.wc[0].status, IBV_WC_SUCCESS);
	ck_assert_uint_eq(t.wc[0].byte_len, length);
	ck_assert_uint_eq(t.wc[0].sgl.length, length);
	sgp_sgl_clear(&t.wc[0].sgl);
	close_all();
}
END_TEST

/* ---- the device's time ---- */

START_TEST(completions_tell_the_devices_time_where_it_has_one)
{
	static const char *const none[] = {"rxe", "siw"}; /* law 6 */
	struct sgp_cq_attr attr = {.cqe = 8, .flags = SGP_CQ_TIMESTAMPS};
	uint64_t before = 0;
	struct sgp_cq *plain;

	for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
		struct ibv_context *verbs;

		ck_assert_int_eq(sv_device_add("timeless", none[i], 1), 0);
		verbs = open_device("timeless");
		errno = 0;
		ck_assert_ptr_null(sgp_cq_create(verbs, &attr));
		ck_assert_int_eq(errno, EOPNOTSUPP);
		attr.flags = 0;
		plain = sgp_cq_create(verbs, &attr);
		ck_assert_ptr_nonnull(plain);
		ck_assert_int_eq(sgp_cq_destroy(plain), 0);
		attr.flags = SGP_CQ_TIMESTAMPS;
		ck_assert_int_eq(ibv_close_device(verbs), 0);
		ck_assert_int_eq(sv_device_remove("timeless"), 0);
	}

	if (!SGP_HAVE_CQ_EX)
		return;
	cq_flags = SGP_CQ_TIMESTAMPS;
	open_all(2, false, 8 * DEPTH);
	cq_flags = 0;
	ck_assert_int_eq(sv_fail_nth("create_cq", 0, ENOMEM), 0);
	ck_assert_ptr_null(sgp_cq_create(t.verbs, &attr));
	ck_assert_int_eq(errno, ENOMEM);
	sv_clock_advance(0);
	for (int round = 0; round < 40; round++) {
		struct ibv_qp_attr to_error = {.qp_state = IBV_QPS_ERR};
		int n = 1 + round % 7, got;

		for (int i = 0; i < n; i++) {
			sv_clock_advance(1000);
			post_recv(t.ep[1], i);
			post_send(t.ep[0], 10 + i, IBV_SEND_SIGNALED);
		}
		got = sgp_poll(t.cq, RIG_WC, t.wc);
		ck_assert_int_eq(got, 2 * n);
		for (int i = 0; i < got; i++) {
			ck_assert_int_eq(t.wc[i].status, IBV_WC_SUCCESS);
			/* In the order of time, a send and its receive at once. */
			ck_assert_uint_ge(t.wc[i].timestamp, before + (i % 2 ? 0 : 1000));
			before = t.wc[i].timestamp;
			sgp_sgl_clear(&t.wc[i].sgl);
		}
		ck_assert_int_eq(sgp_poll(t.cq, RIG_WC, t.wc), 0);
		if (round != 20)
			continue;
		/* Errors have it too, and what the close flushes has none. */
		post_recv(t.ep[1], 0);
		sv_clock_advance(1000);
		ck_assert_int_eq(ibv_modify_qp(sgp_ep_qp(t.ep[1]), &to_error, IBV_QP_STATE), 0);
		ck_assert_int_eq(sgp_poll(t.cq, RIG_WC, t.wc), 1);
		ck_assert_int_eq(t.wc[0].status, IBV_WC_WR_FLUSH_ERR);
		ck_assert_uint_gt(t.wc[0].timestamp, before);
		sgp_sgl_clear(&t.wc[0].sgl);
		for (int i = 0; i < 2; i++)
			ck_assert_int_eq(sgp_ep_reset(t.ep[i]), 0);
		post_recv(t.ep[1], 0);
		ck_assert_int_eq(sgp_ep_reset(t.ep[1]), 0);
		ck_assert_int_eq(sgp_poll(t.cq, RIG_WC, t.wc), 1);
		ck_assert_uint_eq(t.wc[0].timestamp, 0);
		sgp_sgl_clear(&t.wc[0].sgl);
		join(t.ep[0], t.ep[1]);
	}
	close_all();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cq");
	TCase *tc = tcase_create("cq");

	suite_add_tcase(suite, tc);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, case_38_a_failure_at_any_step_leaves_nothing);
	tcase_add_test(tc, a_queue_that_cant_grow_is_long_at_once);
	tcase_add_test(tc, case_41_no_order_of_ending_hangs_for_an_event);
	tcase_add_test(tc, traffic_of_one_endpoint_keeps_no_other_waiting);
	tcase_add_test(tc, a_read_of_more_than_32_bits_says_how_long_it_was);
	tcase_add_test(tc, completions_tell_the_devices_time_where_it_has_one);
	return suite_run(suite);
}
