/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What another thread does between two steps of a call, made certain: the device's calls are wrapped,
 * and the other thread does it there, all of it, before the call goes on.
 */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <time.h>

#include "../suite.h"
#include "rig.h"

static struct rig rig;
static struct rig_side *a, *b;

static struct {
	int (*post_send)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
	int (*post_recv)(struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **);
	struct sgp_cq *cq; /* to be polled in destroy_qp */
	struct sgp_wc *wc;
	struct sgp_cq *told; /* in destroy_qp, of this event */
	struct ibv_async_event event;
	bool refuse, destroyed;
	int posted_late; /* receives to a queue pair that is gone */
} fake;

__attribute__((visibility("default"))) int __wrap_ibv_destroy_qp(struct ibv_qp *qp);
int __real_ibv_destroy_qp(struct ibv_qp *qp);

/* ---- a poll between the doorbell and the end of the post ---- */

static void *poll_a(void *arg)
{
	int *got = arg;

	for (int i = 0; i < 5000 && !*got; i++) {
		struct timespec nap = {.tv_nsec = 100000};

		*got = sgp_poll(a->cq, RIG_WC, a->wc);
		nanosleep(&nap, NULL);
	}
	return NULL;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	int ret = fake.post_send(qp, wr, bad), got = 0;
	pthread_t poller;

	qp->context->ops.post_send = fake.post_send;
	ck_assert_int_eq(pthread_create(&poller, NULL, poll_a, &got), 0);
	ck_assert_int_eq(pthread_join(poller, NULL), 0);
	ck_assert_int_eq(got, 1);
	return ret;
}

START_TEST(a_split_write_is_polled_before_its_post_returns)
{
	struct sgp_chunk *target, *kept[6];
	SGP_SGL(sgl, 6);

	rig_open(&rig, &(struct rig_attr){.max_sge = 2, .pool_flags = SGP_POOL_REMOTE_WRITE});
	a = &rig.side[0];
	b = &rig.side[1];
	target = rig_chunk(b, 0);
	for (int i = 0; i < 6; i++) {
		kept[i] = rig_chunk(a, 'w');
		sgp_chunk_ref(kept[i]);
		ck_assert_int_eq(sgp_sgl_append(&sgl, kept[i], 0, 100), 0);
	}
	fake.post_send = a->id->verbs->ops.post_send;
	a->id->verbs->ops.post_send = post_send;
	ck_assert_int_eq(sgp_post_writev(a->ep, &rig, &sgl, IBV_SEND_SIGNALED,
					 (uintptr_t)sgp_chunk_addr(target), sgp_chunk_rkey(target)),
			 0);
	ck_assert_ptr_eq(a->wc[0].context, &rig);
	ck_assert_int_eq(a->wc[0].status, IBV_WC_SUCCESS);
	rig_check_live(a, 6); /* one reference each is the test's still */
	for (int i = 0; i < 6; i++) {
		ck_assert_int_eq(*(char *)sgp_chunk_addr(kept[i]), 'w');
		sgp_chunk_put(kept[i]);
	}
	rig_check_live(a, 0);
	sgp_chunk_put(target);
	rig_close(&rig);
	rig_check_no_leak();
}
END_TEST

/* ---- a poll while an endpoint that could not be made is taken apart ---- */

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	if (!fake.refuse)
		return fake.post_recv(qp, wr, bad);
	fake.posted_late += fake.destroyed;
	*bad = wr;
	return ENOMEM;
}

static void *tell(void *arg)
{
	ck_assert_int_eq(sgp_cq_event(fake.told, arg), 0);
	return NULL;
}

int __wrap_ibv_destroy_qp(struct ibv_qp *qp)
{
	pthread_t teller;
	int ret;

	if (fake.told) {
		ck_assert_int_eq(pthread_create(&teller, NULL, tell, &fake.event), 0);
		ck_assert_int_eq(pthread_join(teller, NULL), 0);
	}
	ret = __real_ibv_destroy_qp(qp);

	fake.destroyed = true;
	if (fake.cq)
		ck_assert_int_eq(sgp_poll(fake.cq, 1, fake.wc), 0);
	return ret;
}

static void refuse_and_fail(struct rig_side *side, struct sgp_ep_attr *ep)
{
	struct sgp_recv_part part = {.pool = side->pool, .size = 100};
	struct sgp_ep_attr kept = *ep;

	if (side->number)
		return;
	kept.recv = &part;
	kept.num_recv = 1;
	fake.post_recv = side->id->verbs->ops.post_recv;
	side->id->verbs->ops.post_recv = post_recv;
	fake.refuse = true;
	fake.cq = side->cq;
	fake.wc = side->wc;
	ck_assert_ptr_null(sgp_ep_create(side->id, &kept));
	ck_assert_int_eq(errno, ENOMEM);
	ck_assert(fake.destroyed);
	ck_assert_int_eq(fake.posted_late, 0);
	fake.refuse = false;
	fake.cq = NULL;
	rig_check_live(side, 0);
}

START_TEST(a_poll_while_an_endpoint_is_not_made)
{
	rig_open(&rig, &(struct rig_attr){.tune = refuse_and_fail});
	rig_close(&rig);
	rig_check_no_leak();
}
END_TEST

/* ---- an event while its endpoint is closed ---- */

/* A queue pair goes no sooner than its events are acknowledged (ibv_destroy_qp(3)): whoever tells them
 * before does not wait for that. */
START_TEST(an_event_while_its_endpoint_is_closed)
{
	rig_open(&rig, &(struct rig_attr){0});
	a = &rig.side[0];
	fake.event = (struct ibv_async_event){.event_type = IBV_EVENT_QP_FATAL,
					      .element.qp = sgp_ep_qp(a->ep)};
	fake.told = a->cq;
	ck_assert_int_eq(sgp_ep_close(a->ep, 0), 0);
	fake.told = NULL;
	rig_close(&rig);
	rig_check_no_leak();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("meanwhile");
	TCase *tc = tcase_create("meanwhile");

	suite_add_tcase(suite, tc);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, a_split_write_is_polled_before_its_post_returns);
	tcase_add_test(tc, a_poll_while_an_endpoint_is_not_made);
	tcase_add_test(tc, an_event_while_its_endpoint_is_closed);
	return suite_run(suite);
}
