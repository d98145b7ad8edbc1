/* SPDX-License-Identifier: BSD-2-Clause */
/* One pool under the queues of several protection domains and devices. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "../suite.h"
#include "pds_rig.h"
#include "pool/pool.h"
#include "sgp_config.h"

/*
 * Cases 17 and 44b: two devices, one pool, queue pairs of one number; each list goes under its own
 * device's keys and each completion to its own endpoint.
 */
START_TEST(test_two_devices)
{
	struct rig rig[2];

	open_on(&rig[0], 0);
	open_on(&rig[1], 1);
	ck_assert_uint_eq(sgp_ep_qp(rig[0].side[0].ep)->qp_num,
			  sgp_ep_qp(rig[1].side[0].ep)->qp_num);
	for (int round = 0; round < 20; round++) {
		for (int device = 0; device < 2; device++) {
			struct rig_side *a = &rig[device].side[round % 2];
			struct rig_side *b = &rig[device].side[1 - round % 2];

			carry(a, b, 1 + round % 4, round + device);
			ck_assert_ptr_eq(a->wc[0].ep, a->ep);
			ck_assert_ptr_eq(b->wc[0].ep, b->ep);
			sgp_sgl_clear(&b->wc[0].sgl);
		}
	}
	rig_close(&rig[1]);
	rig_close(&rig[0]);
}
END_TEST

/* What one device brought goes on through the other, with a header in front. */
START_TEST(test_forward)
{
	struct rig rig[2];
	struct rig_side *out, *in;
	struct sgp_chunk *header;
	struct sgp_sgl *list;
	SGP_SGL(room, 8);

	open_on(&rig[0], 0);
	open_on(&rig[1], 1);
	out = &rig[0].side[0];
	in = &rig[0].side[1];
	carry(&rig[1].side[0], &rig[1].side[1], 3, 40);
	list = &rig[1].side[1].wc[0].sgl;
	header = rig_chunk(out, 39);
	ck_assert_int_eq(sgp_sgl_prepend(list, header, 0, PAGE), 0);
	ck_assert_int_eq(sgp_sgl_get(&room, pool, PAGE, 4, 0), 0);
	ck_assert_int_eq(sgp_post_recvv(in->ep, &context, &room), 0);
	ck_assert_msg(!sgp_post_sendv(out->ep, &context, list, IBV_SEND_SIGNALED), "%s",
		      sgp_errmsg());
	rig_reap(out, 1);
	rig_reap(in, 1);
	ck_assert_int_eq(in->wc[0].status, IBV_WC_SUCCESS);
	expect_bytes(&in->wc[0].sgl, 0, 4, 39);
	sgp_sgl_clear(&in->wc[0].sgl);
	rig_close(&rig[1]);
	rig_close(&rig[0]);
}
END_TEST

/* One-sided, of more SGEs than a request takes; what comes back has this domain's keys. */
START_TEST(test_split_and_handed_over)
{
	struct rig rig;
	struct rig_side *a, *b;
	SGP_SGL(list, 16);
	SGP_SGL(target, 16);
	uint32_t rkey;

	open_on(&rig, 1);
	a = &rig.side[0];
	b = &rig.side[1];
	fill_list(&target, 1, 7);
	ck_assert_int_eq(sgp_chunk_keys(target.chunk[0], b->pd, NULL, &rkey), 0);
	/* 12 pieces with gaps between: two requests. */
	for (int i = 0; i < 12; i++) {
		struct sgp_chunk *chunk = rig_chunk(a, 0);

		ck_assert_int_eq(sgp_sgl_append(&list, chunk, 16, PAGE / 12), 0);
	}
	ck_assert_int_eq(list.num_sge, 12);
	ck_assert_msg(!sgp_post_readv(a->ep, &context, &list, 0, target.sge[0].addr, rkey), "%s",
		      sgp_errmsg());
	rig_reap(a, 1);
	ck_assert_int_eq(a->wc[0].status, IBV_WC_SUCCESS);
	ck_assert_int_eq(a->wc[0].sgl.num_sge, 12);
	for (int i = 0; i < 12; i++) {
		const uint8_t *p = (const uint8_t *)(uintptr_t)a->wc[0].sgl.sge[i].addr;

		for (int j = 0; j < PAGE / 12; j++)
			ck_assert_uint_eq(p[j], 7);
	}
	expect_keys_of(&a->wc[0].sgl, a);
	sgp_sgl_clear(&a->wc[0].sgl);
	sgp_sgl_clear(&target);
	rig_close(&rig);
}
END_TEST

/* Every way to make a list, posted where its first keys are not good. */
START_TEST(test_every_kind_of_list)
{
	struct rig rig;
	struct rig_side *a, *b;
	SGP_SGL(whole, 8);
	SGP_SGL(rest, 8);
	SGP_SGL(twin, 8);
	SGP_SGL(room, 8);

	open_on(&rig, 1);
	a = &rig.side[0];
	b = &rig.side[1];
	for (int way = 0; way < 5; way++) {
		struct sgp_sgl *list = &whole;
		uint64_t from = 0;

		fill_list(&whole, 4, way);
		if (way == 1) {
			ck_assert_int_eq(sgp_sgl_split(&whole, 3 * PAGE / 2, &rest), 0);
			from = 3 * PAGE / 2;
			sgp_sgl_clear(&whole);
			list = &rest;
		} else if (way == 2) {
			ck_assert_int_eq(sgp_sgl_clone(&twin, &whole), 0);
			sgp_sgl_clear(&whole);
			list = &twin;
		} else if (way == 3) {
			/* Holds that no SGE uses, before and between. */
			ck_assert_int_eq(sgp_sgl_prepend(&whole, rig_chunk(a, 0), 0, 0), 0);
			ck_assert_int_eq(sgp_sgl_append(&whole, rig_chunk(a, 0), 0, 0), 0);
		} else if (way == 4) {
			/* From the raw addresses. */
			for (int i = 0; i < whole.num_sge; i++)
				ck_assert_int_eq(sgp_sgl_append_addr(
							 &rest, pool,
							 (const void *)(uintptr_t)whole.sge[i].addr,
							 whole.sge[i].length),
						 0);
			sgp_sgl_clear(&whole);
			list = &rest;
		}
		ck_assert_int_eq(sgp_sgl_get(&room, pool, PAGE, 4, 0), 0);
		ck_assert_int_eq(sgp_post_recvv(b->ep, &context, &room), 0);
		ck_assert_int_eq(list->keys & sgp_pd_bit(sgp_pd_find(a->pd)), 0);
		ck_assert_msg(!sgp_post_sendv(a->ep, &context, list, IBV_SEND_SIGNALED), "%s",
			      sgp_errmsg());
		rig_reap(a, 1);
		ck_assert_int_eq(a->wc[0].status, IBV_WC_SUCCESS);
		rig_reap(b, 1);
		expect_bytes(&b->wc[0].sgl, from, 4, way);
		sgp_sgl_clear(&b->wc[0].sgl);
	}
	rig_close(&rig);
}
END_TEST

/* Receives that are kept posted, and a shared queue, on a domain that is not the pool's first. */
static struct sgp_srq *srq;
static enum {
	KEPT,
	SHARED,
	SHARED_BY_HAND
} receives;

static void tune(struct rig_side *side, struct sgp_ep_attr *ep)
{
	static struct sgp_recv_part part;
	struct sgp_srq_attr attr = {.pd = side->pd, .depth = 4, .recv = &part, .num_recv = 1};

	if (side->number == 0)
		return;
	part = (struct sgp_recv_part){.pool = pool, .size = PAGE, .n = 2};
	if (receives == KEPT) {
		ep->recv = &part;
		ep->num_recv = 1;
		return;
	}
	if (receives == SHARED_BY_HAND) {
		attr.recv = NULL;
		attr.num_recv = 0;
		attr.max_sge = 2;
	}
	srq = sgp_srq_create(&attr);
	ck_assert_msg(srq != NULL, "%s", sgp_errmsg());
	ep->srq = srq;
}

START_TEST(test_kept_and_shared_receives)
{
	struct rig_attr attr = {
		.pool = pool, .addr = addrs[1], .cq_sge = 16, .depth = 4, .tune = tune};
	struct rig rig;
	struct rig_side *a = &rig.side[0], *b = &rig.side[1];

	receives = _i;
	srq = NULL;
	rig_open(&rig, &attr);
	for (int round = 0; round < 20; round++) {
		SGP_SGL(out, 8);
		SGP_SGL(in, 2);

		if (receives == SHARED_BY_HAND) {
			ck_assert_int_eq(sgp_sgl_get(&in, pool, PAGE, 2, 0), 0);
			ck_assert_msg(!sgp_srq_post_recvv(srq, &context, &in), "%s", sgp_errmsg());
		}
		fill_list(&out, 2, round);
		ck_assert_msg(!sgp_post_sendv(a->ep, &context, &out, IBV_SEND_SIGNALED), "%s",
			      sgp_errmsg());
		rig_reap(a, 1);
		ck_assert_int_eq(a->wc[0].status, IBV_WC_SUCCESS);
		rig_reap(b, 1);
		ck_assert_int_eq(b->wc[0].status, IBV_WC_SUCCESS);
		expect_bytes(&b->wc[0].sgl, 0, 2, round);
		expect_keys_of(&b->wc[0].sgl, b);
		sgp_sgl_clear(&b->wc[0].sgl);
	}
	/* The shared queue is on the domain too, when its endpoint is gone. */
	rig_close_ep(b);
	if (srq) {
		ck_assert_int_eq(sgp_pool_remove_pd(pool, b->pd), -1);
		ck_assert_int_eq(errno, EBUSY);
		ck_assert_int_eq(sgp_srq_destroy(srq), 0);
	}
	rig_close(&rig);
}
END_TEST

/* A queue pair on a domain that is not the pool's: nothing reaches the provider. */
START_TEST(test_unknown_domain)
{
	struct rig rig;
	struct rig_side *a, *b;
	struct sgp_ep_attr attr;
	struct sgp_window *window;
	uint64_t sends, recvs;
	SGP_SGL(list, 8);

	open_on(&rig, 0);
	a = &rig.side[0];
	b = &rig.side[1];
	ck_assert_int_eq(sgp_ep_close(a->ep, 100), 0);
	ck_assert_int_eq(sgp_ep_destroy(a->ep), 0);
	a->ep = NULL;
	fill_list(&list, 3, 1);
	ck_assert_int_eq(sgp_pool_remove_pd(pool, b->pd), -1);
	ck_assert_int_eq(errno, EBUSY);
	ck_assert_ptr_nonnull(strstr(sgp_errmsg(), "endpoint"));
	ck_assert_int_eq(sgp_pool_remove_pd(pool, a->pd), 0);
	attr = (struct sgp_ep_attr){
		.cq = a->cq,
		.pd = a->pd,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 8, .max_recv_sge = 8}};
	a->ep = sgp_ep_create(NULL, &attr);
	ck_assert_msg(a->ep != NULL, "%s", sgp_errmsg());
	sends = sv_calls("post_send");
	recvs = sv_calls("post_recv");
	ck_assert_int_eq(sgp_post_sendv(a->ep, &context, &list, 0), -1);
	ck_assert_int_eq(errno, EXDEV);
	ck_assert_int_eq(sgp_post_recvv(a->ep, &context, &list), -1);
	ck_assert_int_eq(errno, EXDEV);
	window = sgp_window_create(a->ep);
	ck_assert(SGP_HAVE_WINDOWS ? window != NULL : errno == EOPNOTSUPP);
	ck_assert_int_eq(sgp_post_bind(a->ep, &context, window, list.chunk[0], 0, 1,
				       IBV_ACCESS_REMOTE_READ, 0),
			 -1);
	ck_assert_int_eq(errno, SGP_HAVE_WINDOWS ? EXDEV : EINVAL);
	ck_assert_int_eq(sgp_window_destroy(window), SGP_HAVE_WINDOWS ? 0 : -1);
	ck_assert_uint_eq(sv_calls("post_send"), sends);
	ck_assert_uint_eq(sv_calls("post_recv"), recvs);
	ck_assert_int_eq(list.num_chunk, 3);
	expect_bytes(&list, 0, 3, 1);
	sgp_sgl_clear(&list);
	ck_assert_int_eq(sgp_ep_close(a->ep, 0), 0);
	ck_assert_int_eq(sgp_ep_destroy(a->ep), 0);
	a->ep = NULL;
	ck_assert_int_eq(rdma_destroy_id(a->id), 0);
	ck_assert_int_eq(sgp_pool_add_pd(pool, a->pd), 0);
	rig_close(&rig);
}
END_TEST

/* A device is pulled out: its domain goes, chunks that are held stay, the other device goes on. */
START_TEST(test_device_goes)
{
	struct rig rig[2];
	struct sgp_chunk *held;
	struct ibv_pd *gone;
	SGP_SGL(list, 8);

	open_on(&rig[0], 0);
	open_on(&rig[1], 1);
	/* The first domain of the pool is that device's. */
	gone = rig[1].side[0].pd;
	carry(&rig[1].side[0], &rig[1].side[1], 2, 3);
	held = rig_chunk(&rig[1].side[0], 9);
	fill_list(&list, 3, 11);
	ck_assert_int_eq(sv_device_remove("soft1"), 0);
	ck_assert_int_eq(sgp_pool_remove_pd(pool, gone), -1);
	ck_assert_int_eq(errno, EBUSY);
	ck_assert_ptr_nonnull(sgp_chunk_addr(held));
	/* What had come in through it goes out through the other. */
	ck_assert_msg(!sgp_post_sendv(rig[0].side[0].ep, &context, &rig[1].side[1].wc[0].sgl, 0),
		      "%s", sgp_errmsg());
	carry(&rig[0].side[1], &rig[0].side[0], 4, 5);
	sgp_sgl_clear(&rig[0].side[0].wc[0].sgl);
	rig_close(&rig[1]);
	carry(&rig[0].side[1], &rig[0].side[0], 2, 6);
	sgp_sgl_clear(&rig[0].side[0].wc[0].sgl);
	ck_assert_int_eq(*(char *)sgp_chunk_addr(held), 9);
	sgp_chunk_put(held);
	expect_bytes(&list, 0, 3, 11);
	sgp_sgl_clear(&list);
	rig_close(&rig[0]);
}
END_TEST

/* Threads post on one device all the time while domains come and go. */
static atomic_bool stop;

static void *come_and_go(void *arg)
{
	struct ibv_pd *pd = ibv_alloc_pd(arg);

	for (int i = 0; !stop || i < 3; i++) {
		ck_assert_int_eq(sgp_pool_add_pd(pool, pd), 0);
		ck_assert_int_eq(sgp_pool_remove_pd(pool, pd), 0);
		usleep(500); /* the device's lock is not a fair one */
	}
	ibv_dealloc_pd(pd);
	return NULL;
}

static void *build(void *arg)
{
	(void)arg;
	while (!stop) {
		SGP_SGL(list, 4);

		if (!sgp_sgl_get(&list, pool, PAGE, 3, 0))
			sgp_sgl_clear(&list);
	}
	return NULL;
}

START_TEST(test_threads)
{
	struct rig rig;
	pthread_t thread[3];

	open_on(&rig, 0);
	stop = false;
	pthread_create(&thread[0], NULL, come_and_go, rig.side[0].id->verbs);
	pthread_create(&thread[1], NULL, come_and_go, rig.side[0].id->verbs);
	pthread_create(&thread[2], NULL, build, NULL);
	for (int round = 0; round < 60; round++) {
		struct rig_side *to = &rig.side[round % 2];

		carry(&rig.side[1 - round % 2], to, 1 + round % 4, round);
		sgp_sgl_clear(&to->wc[0].sgl);
	}
	stop = true;
	for (int i = 0; i < 3; i++)
		pthread_join(thread[i], NULL);
	rig_close(&rig);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("queues of several protection domains");
	TCase *tc = tcase_create("post");

	tcase_add_checked_fixture(tc, pds_setup, pds_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_two_devices);
	tcase_add_test(tc, test_forward);
	tcase_add_test(tc, test_split_and_handed_over);
	tcase_add_test(tc, test_every_kind_of_list);
	tcase_add_loop_test(tc, test_kept_and_shared_receives, 0, 3);
	tcase_add_test(tc, test_unknown_domain);
	tcase_add_test(tc, test_device_goes);
	tcase_add_test(tc, test_threads);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
