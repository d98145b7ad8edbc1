/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A provider that takes a part of a chain only, at every index of chains of 1 to 64, in each of the
 * ways in which providers report it: who owns each chunk, and each context exactly once.
 *
 * The device's post_send is wrapped where the inline ibv_post_send(3) finds it.
 */
#include <check.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "../suite.h"
#include "rig.h"

#define MOST 64

enum way {
	POSITIVE,  /* as ibv_post_send(3) says */
	NEGATIVE,  /* -errno */
	MINUS_ONE, /* -1, and errno */
	ZERO,      /* 0, and only bad_wr tells: siw */
	ONLY_BELL, /* all of it queued, an error, and bad_wr NULL: rxe and siw */
	NWAYS
};

static struct {
	int (*post_send)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
	bool armed;
	int at; /* the request that is not taken */
	enum way way;
} fake;

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct ibv_send_wr *last = NULL, *first = wr;

	if (!fake.armed)
		return fake.post_send(qp, wr, bad);
	fake.armed = false;
	for (int i = 0; i < fake.at && wr; i++) {
		last = wr;
		wr = wr->next;
	}
	if (last) {
		last->next = NULL;
		ck_assert_int_eq(fake.post_send(qp, first, bad), 0);
		last->next = wr;
	}
	if (fake.way == ONLY_BELL) {
		if (wr)
			ck_assert_int_eq(fake.post_send(qp, wr, bad), 0);
		*bad = NULL;
		return EIO;
	}
	*bad = wr;
	errno = 0;
	switch (fake.way) {
	case POSITIVE:
		return ENOMEM;
	case NEGATIVE:
		return -ENOMEM;
	case MINUS_ONE:
		errno = ENOMEM;
		return -1;
	default:
		return 0;
	}
}

static void arm(int at, enum way way)
{
	fake.at = at;
	fake.way = way;
	fake.armed = true;
}

static int reported(enum way way)
{
	return way == ZERO || way == ONLY_BELL ? EIO : ENOMEM;
}

static struct rig rig;
static struct rig_side *a, *b;
static int context[MOST];

static void setup(void)
{
	struct rig_attr attr = {.depth = MOST, .chunks = 2 * MOST, .chunk_size = 64, .max_sge = 2};

	rig_open(&rig, &attr);
	a = &rig.side[0];
	b = &rig.side[1];
	fake.post_send = a->id->verbs->ops.post_send;
	a->id->verbs->ops.post_send = post_send;
}

static void teardown(void)
{
	a->id->verbs->ops.post_send = fake.post_send;
	rig_close(&rig);
}

static void post_recvs(int n)
{
	while (n--)
		rig_post_recv(b, NULL);
}

static void drop_recvs(int n)
{
	rig_reap(b, n);
	for (int i = 0; i < n; i++)
		sgp_sgl_clear(&b->wc[i].sgl);
}

/* The n completions of side a: those from `failed` on with the provider's errno, each context once.
 */
static void reap_contexts(int n, int failed, int err)
{
	int seen[MOST] = {0};

	rig_reap(a, n);
	for (int i = 0; i < n; i++) {
		int which = (int)((int *)a->wc[i].context - context);

		seen[which]++;
		ck_assert_int_eq(a->wc[i].error, which >= failed ? err : 0);
		ck_assert_int_eq(a->wc[i].status,
				 which >= failed ? IBV_WC_GENERAL_ERR : IBV_WC_SUCCESS);
	}
	for (int i = 0; i < n; i++)
		ck_assert_int_eq(seen[i], 1);
	ck_assert_int_eq(sgp_poll(a->cq, RIG_WC, a->wc), 0);
	rig_check_live(a, 0);
}

START_TEST(a_single_post_is_taken_or_nothing_changed)
{
	for (enum way way = POSITIVE; way < NWAYS; way++) {
		SGP_SGL(sgl, 2);
		struct sgp_sgl before;
		int ret;

		post_recvs(1);
		for (int i = 0; i < 2; i++)
			ck_assert_int_eq(sgp_sgl_append(&sgl, rig_chunk(a, 1), 0, 8), 0);
		before = sgl;
		arm(0, way);
		ret = sgp_post_sendv(a->ep, &context[0], &sgl, IBV_SEND_SIGNALED);
		if (way == ONLY_BELL) {
			ck_assert_int_eq(ret, 0);
			ck_assert_int_eq(sgl.num_chunk, 0);
		} else {
			ck_assert_int_eq(ret, -1);
			ck_assert_int_eq(errno, reported(way));
			ck_assert_mem_eq(&sgl, &before, sizeof sgl);
			rig_check_live(a, 2);
			ck_assert_int_eq(
				sgp_post_sendv(a->ep, &context[0], &sgl, IBV_SEND_SIGNALED), 0);
		}
		/* Queued with an error: it arrives, but the caller hears of the error. */
		drop_recvs(1);
		reap_contexts(1, way == ONLY_BELL ? 0 : 1, EIO);
	}
}
END_TEST

/* n lists of one chunk each, as a chain. */
static void make_chain(struct sgp_wr *wr, struct sgp_sgl *sgl, struct ibv_sge *sge,
		       struct sgp_chunk **chunk, int n, int flags)
{
	for (int i = 0; i < n; i++) {
		sgp_sgl_init(&sgl[i], &sge[i], 1, &chunk[i], 1);
		ck_assert_int_eq(sgp_sgl_append(&sgl[i], rig_chunk(a, i), 0, 8), 0);
		wr[i] = (struct sgp_wr){.next = i + 1 < n ? &wr[i + 1] : NULL,
					.context = &context[i],
					.sgl = &sgl[i],
					.opcode = IBV_WR_SEND,
					.flags = flags};
	}
}

START_TEST(a_chain_of_lists_names_the_first_that_was_not_posted)
{
	static struct sgp_wr wr[MOST], *bad;
	static struct sgp_sgl sgl[MOST];
	static struct ibv_sge sge[MOST];
	static struct sgp_chunk *chunk[MOST];
	enum way way = (enum way)_i;

	for (int n = 1; n <= MOST; n += n < 8 ? 1 : 7) {
		for (int at = 0; at < n; at++) {
			int taken = way == ONLY_BELL ? n : at, ret;

			post_recvs(taken);
			make_chain(wr, sgl, sge, chunk, n, IBV_SEND_SIGNALED);
			arm(at, way);
			bad = NULL;
			ret = sgp_post(a->ep, wr, &bad);
			if (way == ONLY_BELL) {
				ck_assert_int_eq(ret, 0);
				ck_assert_ptr_null(bad);
			} else {
				ck_assert_int_eq(ret, -1);
				ck_assert_int_eq(errno, reported(way));
				ck_assert_ptr_eq(bad, &wr[at]);
			}
			for (int i = 0; i < n; i++)
				ck_assert_int_eq(sgl[i].num_chunk, i < taken ? 0 : 1);
			for (int i = taken; i < n; i++)
				sgp_sgl_clear(&sgl[i]);
			if (!taken)
				continue;
			drop_recvs(taken);
			reap_contexts(taken, way == ONLY_BELL ? 0 : taken, reported(way));
		}
	}
}
END_TEST

START_TEST(a_gathered_batch_tells_each_post_that_was_not_taken)
{
	enum way way = (enum way)_i;

	for (int n = 1; n <= MOST; n += n < 8 ? 1 : 7) {
		for (int at = 0; at < n; at++) {
			int taken = way == ONLY_BELL ? n : at;
			uint64_t posts = sv_calls("post_send");

			post_recvs(taken);
			for (int i = 0; i < n; i++) {
				SGP_SGL(sgl, 1);

				ck_assert_int_eq(sgp_sgl_append(&sgl, rig_chunk(a, i), 0, 8), 0);
				ck_assert_int_eq(sgp_post_sendv(a->ep, &context[i], &sgl,
								IBV_SEND_SIGNALED | SGP_BATCH),
						 0);
				ck_assert_int_eq(sgl.num_chunk, 0);
			}
			ck_assert_uint_eq(sv_calls("post_send"), posts);
			rig_check_live(a, (uint64_t)n);
			arm(at, way);
			if (way == ONLY_BELL) {
				ck_assert_int_eq(sgp_ep_submit(a->ep), 0);
			} else {
				ck_assert_int_eq(sgp_ep_submit(a->ep), -1);
				ck_assert_int_eq(errno, reported(way));
			}
			if (taken)
				drop_recvs(taken);
			reap_contexts(n, way == ONLY_BELL ? 0 : at, reported(way));
		}
	}
}
END_TEST

START_TEST(an_unsignalled_batch_half_taken_comes_home)
{
	/* The request that would have been signalled is not taken: those before it still come home.
	 */
	for (int n = 2; n <= 20; n++)
		for (int at = 0; at < n; at++) {
			int errors = 0;

			post_recvs(at);
			for (int i = 0; i < n; i++) {
				SGP_SGL(sgl, 1);

				ck_assert_int_eq(sgp_sgl_append(&sgl, rig_chunk(a, i), 0, 8), 0);
				ck_assert_int_eq(
					sgp_post_sendv(a->ep, &context[i], &sgl, SGP_BATCH), 0);
			}
			arm(at, POSITIVE);
			ck_assert_int_eq(sgp_ep_submit(a->ep), -1);
			if (at)
				drop_recvs(at);
			while (errors < n - at) {
				rig_reap(a, 1);
				ck_assert_int_eq(a->wc[0].error, ENOMEM);
				errors++;
			}
			ck_assert_int_eq(sgp_ep_sync(a->ep), 0);
			ck_assert_int_eq(sgp_wait(a->cq, 1, a->wc, 1), 0);
			rig_check_live(a, 0);
		}
}
END_TEST

START_TEST(a_split_list_half_taken_is_one_error)
{
	static struct ibv_sge sge[MOST];
	static struct sgp_chunk *chunk[MOST];
	enum way way = (enum way)_i;
	static char target[2 * MOST];
	struct sgp_sgl sgl, before;
	struct ibv_mr *mr = ibv_reg_mr(b->pd, target, sizeof target,
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);

	ck_assert_ptr_nonnull(mr);
	/* Two SGEs a request: 2 n chunks with gaps make n requests. */
	sgp_sgl_init(&sgl, sge, MOST, chunk, MOST);
	for (int n = 2; n <= MOST / 2; n += 5) {
		for (int at = 0; at < n; at++) {
			int ret;

			for (int i = 0; i < 2 * n; i++)
				ck_assert_int_eq(sgp_sgl_append(&sgl, rig_chunk(a, i), 0, 1), 0);
			before = sgl;
			arm(at, way);
			ret = sgp_post_writev(a->ep, &context[0], &sgl, IBV_SEND_SIGNALED,
					      (uintptr_t)target, mr->rkey);
			if (!at && way != ONLY_BELL) {
				ck_assert_int_eq(ret, -1);
				ck_assert_int_eq(errno, reported(way));
				ck_assert_mem_eq(&sgl, &before, sizeof sgl);
				rig_check_live(a, 2 * (uint64_t)n);
				sgp_sgl_clear(&sgl);
			} else {
				ck_assert_int_eq(ret, 0);
				ck_assert_int_eq(sgl.num_chunk, 0);
				rig_reap(a, 1);
				ck_assert_ptr_eq(a->wc[0].context, &context[0]);
				ck_assert_int_eq(a->wc[0].error, reported(way));
				ck_assert_int_eq(sgp_poll(a->cq, RIG_WC, a->wc), 0);
			}
			rig_check_live(a, 0);
		}
	}
	ck_assert_int_eq(ibv_dereg_mr(mr), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("chain");
	TCase *tc = tcase_create("half-taken");

	suite_add_tcase(suite, tc);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, a_single_post_is_taken_or_nothing_changed);
	tcase_add_loop_test(tc, a_chain_of_lists_names_the_first_that_was_not_posted, 0, NWAYS);
	tcase_add_loop_test(tc, a_gathered_batch_tells_each_post_that_was_not_taken, 0, NWAYS);
	tcase_add_test(tc, an_unsignalled_batch_half_taken_comes_home);
	tcase_add_loop_test(tc, a_split_list_half_taken_is_one_error, 0, NWAYS);
	return suite_run(suite);
}
