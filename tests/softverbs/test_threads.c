/* SPDX-License-Identifier: BSD-2-Clause */
/* Several threads at once: sleeping on channels while others move the bytes, and making and
 * destroying side by side. */
#include <pthread.h>
#include <unistd.h>

#include "../suite.h"
#include "pair.h"

#define MESSAGES 3000

/* Arm, look again, sleep: law 2.14. */
static int next_wc(struct end *e, struct ibv_cq *cq, struct ibv_wc *wc)
{
	struct ibv_cq *from;
	void *arg;
	int n;

	for (;;) {
		n = ibv_poll_cq(cq, 8, wc);
		if (n)
			return n;
		ck_assert_int_eq(ibv_req_notify_cq(cq, 0), 0);
		n = ibv_poll_cq(cq, 8, wc);
		if (n)
			return n;
		ck_assert_int_eq(ibv_get_cq_event(e->ch, &from, &arg), 0);
		ibv_ack_cq_events(from, 1);
	}
}

static void *sender(void *arg)
{
	struct pair *p = arg;
	struct ibv_wc wc[8];
	int sent = 0, done = 0;

	while (done < MESSAGES) {
		while (sent < MESSAGES && sent - done < 16)
			ck_assert_int_eq(send_op(&p->a, (uint64_t)sent++, 0, 64, IBV_SEND_SIGNALED),
					 0);
		int n = next_wc(&p->a, p->a.scq, wc);

		for (int i = 0; i < n; i++) {
			ck_assert_int_eq(wc[i].status, IBV_WC_SUCCESS);
			ck_assert_uint_eq(wc[i].wr_id, done++);
		}
	}
	return NULL;
}

static void *receiver(void *arg)
{
	struct pair *p = arg;
	struct ibv_wc wc[8];
	int posted = 0, done = 0;

	while (done < MESSAGES) {
		while (posted < MESSAGES && posted - done < 4)
			ck_assert_int_eq(recv_op(&p->b, (uint64_t)posted++, 0, 64), 0);
		int n = next_wc(&p->b, p->b.rcq, wc);

		for (int i = 0; i < n; i++) {
			ck_assert_int_eq(wc[i].status, IBV_WC_SUCCESS);
			ck_assert_uint_eq(wc[i].wr_id, done++);
		}
	}
	return NULL;
}

START_TEST(test_sleepers)
{
	struct pair p = {.rnr_retry = 7};
	pthread_t t[2];

	pair_open(&p);
	ck_assert_int_eq(pthread_create(&t[0], NULL, sender, &p), 0);
	ck_assert_int_eq(pthread_create(&t[1], NULL, receiver, &p), 0);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_join(t[i], NULL), 0);
	pair_close(&p);
}
END_TEST

/* Every thread its own objects on one context. */
static void *maker(void *arg)
{
	struct pair *shared = arg;

	for (int i = 0; i < 60; i++) {
		struct pair p = {.depth = 4,
				 .max_inline = 16,
				 .cqe = 8,
				 .rnr_timer = 1,
				 .access = IBV_ACCESS_LOCAL_WRITE};

		p.ctx = shared->ctx;
		end_open(&p, &p.a);
		end_open(&p, &p.b);
		end_join(&p, &p.a, &p.b);
		end_join(&p, &p.b, &p.a);
		ck_assert_int_eq(recv_op(&p.b, 1, 0, 8), 0);
		ck_assert_int_eq(send_op(&p.a, 2, 0, 8, IBV_SEND_SIGNALED), 0);
		expect(p.b.rcq, 1, IBV_WC_SUCCESS);
		expect(p.a.scq, 2, IBV_WC_SUCCESS);
		end_close(&p.a);
		end_close(&p.b);
	}
	return NULL;
}

START_TEST(test_makers)
{
	struct pair p = {0};
	pthread_t t[4];

	pair_open(&p);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, maker, &p), 0);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_join(t[i], NULL), 0);
	pair_close(&p);
}
END_TEST

/* A destroy waits for the acknowledgement that another thread owes. */
static void *late_ack(void *arg)
{
	struct ibv_cq *cq = arg;

	usleep(20000);
	ibv_ack_cq_events(cq, 1);
	return NULL;
}

START_TEST(test_destroy_waits)
{
	struct pair p = {0};
	struct ibv_cq *cq;
	pthread_t t;
	void *arg;

	pair_open(&p);
	ck_assert_int_eq(ibv_req_notify_cq(p.b.rcq, 0), 0);
	ck_assert_int_eq(recv_op(&p.b, 1, 0, 8), 0);
	ck_assert_int_eq(send_op(&p.a, 2, 0, 8, 0), 0);
	ck_assert_int_eq(ibv_get_cq_event(p.b.ch, &cq, &arg), 0);
	ck_assert_int_eq(pthread_create(&t, NULL, late_ack, cq), 0);
	pair_close(&p);
	ck_assert_int_eq(pthread_join(t, NULL), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("softverbs threads");
	TCase *t = tcase_create("threads");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, test_sleepers);
	tcase_add_test(t, test_makers);
	tcase_add_test(t, test_destroy_waits);
	suite_add_tcase(s, t);
	return suite_run(s);
}
