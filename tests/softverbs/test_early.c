/* SPDX-License-Identifier: BSD-2-Clause */
/* Clients that are quicker than their servers, where there may be other processes; and programs
 * that close a device before what is on it. */
#include <stdio.h>
#include <unistd.h>

#include "../suite.h"
#include "cm_rig.h"
#include "pair.h"

static void ask(struct rdma_cm_id *a)
{
	struct rdma_conn_param p = {.retry_count = 5, .rnr_retry_count = 7};

	make_qp(a);
	ck_assert_int_eq(rdma_connect(a, &p), 0);
}

/* The listener comes after the request, and gets it. */
START_TEST(test_before_the_listener)
{
	struct rdma_cm_id *a = routed("127.0.0.1", 7000), *l, *b;
	struct rdma_conn_param p = {.retry_count = 5, .rnr_retry_count = 7};
	struct rdma_cm_event *e;

	ask(a);
	l = listener(7000, 0);
	e = event(RDMA_CM_EVENT_CONNECT_REQUEST, NULL);
	b = e->id;
	ck_assert_ptr_eq(e->listen_id, l);
	ck_assert_int_eq(rdma_ack_cm_event(e), 0);
	make_qp(b);
	ck_assert_int_eq(rdma_accept(b, &p), 0);
	ack(RDMA_CM_EVENT_ESTABLISHED, a, 0);
	ack(RDMA_CM_EVENT_ESTABLISHED, b, 0);
	ck_assert_int_eq(rdma_disconnect(a), 0);
	ack(RDMA_CM_EVENT_DISCONNECTED, b, 0);
	ck_assert_int_eq(rdma_disconnect(b), 0);
	ack(RDMA_CM_EVENT_DISCONNECTED, a, 0);
	drop(a);
	drop(b);
	drop(l);
}
END_TEST

/* If none comes it is refused, as InfiniBand says it. */
START_TEST(test_nobody_comes)
{
	struct rdma_cm_id *a = routed("127.0.0.1", 7001);

	ask(a);
	ack(RDMA_CM_EVENT_REJECTED, a, 8);
	drop(a);
}
END_TEST

/* One who doesn't want to wait goes. */
START_TEST(test_gives_up)
{
	struct rdma_cm_id *a = routed("127.0.0.1", 7002), *l;

	ask(a);
	drop(a);
	l = listener(7002, 0);
	no_event();
	drop(l);
}
END_TEST

/* Closing succeeds; the connection ends, and what is left can still be destroyed. */
START_TEST(test_close_first)
{
	struct pair p = {0};
	struct ibv_wc wc;

	pair_open(&p);
	ck_assert_int_eq(recv_op(&p.a, 1, 0, 8), 0);
	ck_assert_int_eq(ibv_close_device(p.ctx), 0);
	ck_assert_int_eq(sv_live(SV_CONTEXTS), 0);
	ck_assert_int_eq(ibv_poll_cq(p.a.rcq, 1, &wc), 1);
	ck_assert_int_eq(wc.status, IBV_WC_WR_FLUSH_ERR);
	end_close(&p.a);
	end_close(&p.b);
}
END_TEST

/* Strictly, it's a mistake. */
START_TEST(test_close_first_strictly)
{
	struct pair p = {0};

	sv_strict(1);
	pair_open(&p);
	ck_assert_int_eq(ibv_close_device(p.ctx), -1);
	ck_assert_int_eq(errno, EBUSY);
	ck_assert_ptr_nonnull(strstr(sv_strict_sentence(0), "ibv_close_device"));
	pair_close(&p);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("softverbs early");
	TCase *cm = tcase_create("cm"), *t = tcase_create("close");
	char world[32];

	snprintf(world, sizeof world, "early%d", (int)getpid());
	setenv("SGP_SOFTVERBS_NET", "local", 1);
	setenv("SGP_SOFTVERBS_WORLD", world, 1);
	tcase_add_checked_fixture(cm, setup, teardown);
	tcase_add_test(cm, test_before_the_listener);
	tcase_add_test(cm, test_nobody_comes);
	tcase_add_test(cm, test_gives_up);
	tcase_add_test(t, test_close_first);
	tcase_add_test(t, test_close_first_strictly);
	suite_add_tcase(s, cm);
	suite_add_tcase(s, t);
	return suite_run(s);
}
