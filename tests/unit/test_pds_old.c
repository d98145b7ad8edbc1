/* SPDX-License-Identifier: BSD-2-Clause */
/* Chunks and lists that are older than the pool's protection domain: it came, or came anew, later. */
#include <check.h>
#include <errno.h>
#include <string.h>

#include "../suite.h"
#include "pds_rig.h"
#include "pool/chunk.h"
#include "pool/pool.h"

/* Memory that was got before the pool was on any domain: lists of it go once it is on one. */
START_TEST(test_made_on_none)
{
	const struct sgp_class_attr cls = {.size = 64, .chunks = 1};
	const struct sgp_pool_attr none = {.classes = &cls, .nclasses = 1, .pages = SGP_PAGES_BASE};
	struct rig rig;
	struct rig_side *out, *in;
	struct sgp_pool *foreign;
	struct sgp_chunk *chunk;
	SGP_SGL(list, 8);
	SGP_SGL(copy, 8);
	SGP_SGL(room, 8);

	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
	make_pool(NULL);
	fill_list(&list, 3, 7);
	ck_assert_int_eq(sgp_sgl_clone(&copy, &list), 0);
	open_on(&rig, 0);
	out = &rig.side[0];
	in = &rig.side[1];
	ck_assert_int_eq(sgp_sgl_get(&room, pool, PAGE, 3, 0), 0);
	ck_assert_int_eq(sgp_post_recvv(in->ep, &context, &room), 0);
	ck_assert_msg(!sgp_post_sendv(out->ep, &context, &copy, IBV_SEND_SIGNALED), "%s",
		      sgp_errmsg());
	rig_reap(out, 1);
	rig_reap(in, 1);
	ck_assert_int_eq(in->wc[0].status, IBV_WC_SUCCESS);
	expect_bytes(&in->wc[0].sgl, 0, 3, 7);
	/* A list that was built before goes with what is on the domain now; what is on none does not. */
	ck_assert_int_eq(sgp_sgl_move(&in->wc[0].sgl, &list), 0);
	ck_assert_int_eq(sgp_sgl_get(&list, pool, PAGE, 1, 0), 0);
	foreign = sgp_pool_create(NULL, &none);
	ck_assert_ptr_nonnull(foreign);
	chunk = sgp_pool_get(foreign, 1, 0);
	ck_assert_int_eq(sgp_sgl_append(&list, chunk, 0, 1), -1);
	ck_assert_int_eq(errno, EXDEV);
	sgp_chunk_put(chunk);
	ck_assert_int_eq(sgp_pool_destroy(foreign), 0);
	sgp_sgl_clear(&in->wc[0].sgl);
	sgp_sgl_clear(&list);
	rig_close(&rig);
}
END_TEST

/* What was made on no domain and what was made on one, in one list: in whichever order. */
START_TEST(test_old_and_new_regions)
{
	struct sgp_class_attr cls = {.size = PAGE, .chunks = 2, .max_chunks = 4};
	struct sgp_pool_attr attr = {
		.classes = &cls, .nclasses = 1, .pages = SGP_PAGES_BASE, .region_bytes = 2 * PAGE};
	struct sgp_pool *made_on_none = sgp_pool_create(NULL, &attr);
	struct sgp_chunk *chunk[4];
	struct rig rig;
	struct rig_side *out, *in;

	ck_assert_msg(made_on_none != NULL, "%s", sgp_errmsg());
	open_on(&rig, 0);
	out = &rig.side[0];
	in = &rig.side[1];
	ck_assert_int_eq(sgp_pool_add_pd(made_on_none, out->pd), 0);
	ck_assert_int_eq(sgp_pool_get_bulk(made_on_none, PAGE, 0, chunk, 2), 0);
	ck_assert_msg(!sgp_pool_grow(made_on_none, PAGE, 2), "%s", sgp_errmsg());
	ck_assert_int_eq(sgp_pool_get_bulk(made_on_none, PAGE, 0, chunk + 2, 2), 0);
	ck_assert_ptr_ne(sgp_chunk_region(chunk[0]), sgp_chunk_region(chunk[2]));
	/* Chosen, and then as the pool gives them: where it has no magazine, as they were put. */
	for (int turn = 0; turn < 4; turn++) {
		static const int orders[2][4] = {{0, 1, 2, 3}, {2, 3, 0, 1}};
		SGP_SGL(list, 4);
		SGP_SGL(room, 8);

		for (int i = 0; i < 4; i++) {
			struct sgp_chunk *next = chunk[orders[turn % 2][i]];

			if (turn < 2)
				ck_assert_int_eq(sgp_sgl_append(&list, next, 0, PAGE), 0);
			else
				sgp_chunk_put(next);
		}
		if (turn >= 2)
			ck_assert_int_eq(sgp_sgl_get(&list, made_on_none, PAGE, 4, 0), 0);
		for (int i = 0; i < 4; i++) {
			memset(sgp_chunk_addr(list.chunk[i]), 3 + i, PAGE);
			sgp_chunk_ref(list.chunk[i]);
		}
		ck_assert_int_eq(sgp_sgl_get(&room, pool, PAGE, 4, 0), 0);
		ck_assert_int_eq(sgp_post_recvv(in->ep, &context, &room), 0);
		ck_assert_msg(!sgp_post_sendv(out->ep, &context, &list, IBV_SEND_SIGNALED), "%s",
			      sgp_errmsg());
		rig_reap(out, 1);
		ck_assert_int_eq(out->wc[0].status, IBV_WC_SUCCESS);
		rig_reap(in, 1);
		expect_bytes(&in->wc[0].sgl, 0, 4, 3);
		sgp_sgl_clear(&in->wc[0].sgl);
	}
	sgp_chunk_put_bulk(chunk, 4);
	rig_close_ep(out);
	ck_assert_int_eq(sgp_pool_remove_pd(made_on_none, out->pd), 0);
	ck_assert_int_eq(sgp_pool_destroy(made_on_none), 0);
	rig_close(&rig);
}
END_TEST

/* Receives into memory that was got before the pool was on any domain. */
START_TEST(test_received_where_none_was)
{
	struct rig_attr attr = {.pool = NULL, .cq_sge = 16, .max_sge = 8};
	struct sgp_srq *shared;
	struct rig rig;
	struct rig_side *out, *in;
	SGP_SGL(room, 8);
	SGP_SGL(by_all, 8);
	SGP_SGL(list, 8);

	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
	make_pool(NULL);
	ck_assert_int_eq(sgp_sgl_get(&room, pool, PAGE, 3, 0), 0);
	ck_assert_int_eq(sgp_sgl_get(&by_all, pool, PAGE, 2, 0), 0);
	/* Not on the endpoint's domain: that, and not its rights, is what is wrong with it. */
	rig_open(&rig, &attr);
	out = &rig.side[0];
	in = &rig.side[1];
	shared = sgp_srq_create(&(struct sgp_srq_attr){.pd = in->pd, .depth = 2, .max_sge = 2});
	ck_assert_msg(shared != NULL, "%s", sgp_errmsg());
	ck_assert_int_eq(sgp_post_recvv(in->ep, &context, &room), -1);
	ck_assert_int_eq(errno, EXDEV);
	ck_assert_int_eq(sgp_srq_post_recvv(shared, &context, &by_all), -1);
	ck_assert_int_eq(errno, EXDEV);
	ck_assert_int_eq(room.num_chunk + by_all.num_chunk, 5);

	ck_assert_int_eq(sgp_pool_add_pd(pool, in->pd), 0);
	ck_assert_int_eq(sgp_pool_add_pd(pool, out->pd), 0);
	ck_assert_msg(!sgp_srq_post_recvv(shared, &context, &by_all), "%s", sgp_errmsg());
	ck_assert_msg(!sgp_post_recvv(in->ep, &context, &room), "%s", sgp_errmsg());
	fill_list(&list, 3, 5);
	ck_assert_msg(!sgp_post_sendv(out->ep, &context, &list, IBV_SEND_SIGNALED), "%s",
		      sgp_errmsg());
	rig_reap(out, 1);
	rig_reap(in, 1);
	ck_assert_int_eq(in->wc[0].status, IBV_WC_SUCCESS);
	expect_bytes(&in->wc[0].sgl, 0, 3, 5);
	expect_keys_of(&in->wc[0].sgl, in);
	sgp_sgl_clear(&in->wc[0].sgl);
	ck_assert_int_eq(sgp_srq_destroy(shared), 0);
	rig_close_ep(in);
	rig_close_ep(out);
	ck_assert_int_eq(sgp_pool_remove_pd(pool, in->pd), 0);
	ck_assert_int_eq(sgp_pool_remove_pd(pool, out->pd), 0);
	rig_close(&rig);
}
END_TEST

/* An endpoint without a connection, which can post receives. */
static struct sgp_ep *receiver(struct sgp_cq *cq, struct ibv_pd *pd)
{
	struct sgp_ep_attr attr = {
		.cq = cq,
		.pd = pd,
		.cap = {.max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 2, .max_recv_sge = 2}};
	struct sgp_ep *ep = sgp_ep_create(NULL, &attr);
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1};

	ck_assert_msg(ep != NULL, "%s", sgp_errmsg());
	ck_assert_int_eq(
		ibv_modify_qp(sgp_ep_qp(ep), &init,
			      IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS),
		0);
	return ep;
}

static void end_receiver(struct sgp_ep *ep, struct sgp_cq *cq)
{
	struct sgp_wc *wc = sgp_wc_alloc(cq, 4);

	ck_assert_int_eq(sgp_ep_close(ep, 100), 0);
	while (sgp_poll(cq, 4, wc) > 0)
		;
	sgp_wc_free(wc);
	ck_assert_int_eq(sgp_ep_destroy(ep), 0);
}

/*
 * A list that was built, and given its keys, before its domain was removed. The index may be another
 * domain's then, or the same domain's with other keys: the old keys go nowhere.
 */
static void old_list(bool same_domain)
{
	struct sgp_cq_attr cq_attr = {.cqe = 16};
	struct sgp_cq *cq = sgp_cq_create(verbs, &cq_attr);
	struct ibv_pd *pd = ibv_alloc_pd(verbs), *fill[SGP_MAX_PDS];
	struct sgp_ep *ep;
	int index, n = 0;
	uint32_t old, now;
	SGP_SGL(list, 2);

	ck_assert_int_eq(sgp_sgl_append(&list, sgp_pool_get(pool, PAGE, 0), 0, PAGE), 0);
	ck_assert_int_eq(sgp_pool_add_pd(pool, pd), 0);
	index = sgp_pd_find(pd);
	if (same_domain)
		sgp_pd_join(pd); /* as another pool would */
	ep = receiver(cq, pd);
	/* Refused, but it has the keys now. */
	sv_fail_nth("post_recv", 0, ENOMEM);
	ck_assert_int_eq(sgp_post_recvv(ep, &context, &list), -1);
	ck_assert_int_eq(errno, ENOMEM);
	old = list.sge[0].lkey;
	ck_assert_uint_eq(old, sgp_chunk_lkey_on(list.chunk[0], index));
	end_receiver(ep, cq);
	ck_assert_int_eq(sgp_pool_remove_pd(pool, pd), 0);
	if (!same_domain) {
		/* All other indices taken: the next one gets this. */
		for (; n < SGP_MAX_PDS; n++) {
			fill[n] = ibv_alloc_pd(verbs);
			if (sgp_pd_join(fill[n]) == index)
				break;
		}
		ck_assert_int_lt(n, SGP_MAX_PDS);
		ibv_dealloc_pd(pd);
		pd = fill[n];
	}
	ep = receiver(cq, pd);
	ck_assert_int_eq(sgp_pd_find(pd), index);
	ck_assert_int_eq(sgp_post_recvv(ep, &context, &list), -1);
	ck_assert_int_eq(errno, EXDEV);
	ck_assert_int_eq(list.num_chunk, 1);
	/* Where the pool comes back, under new keys. */
	ck_assert_int_eq(sgp_pool_add_pd(pool, pd), 0);
	now = sgp_chunk_lkey_on(list.chunk[0], index);
	ck_assert_uint_ne(now, old);
	sv_fail_nth("post_recv", 0, ENOMEM);
	ck_assert_int_eq(sgp_post_recvv(ep, &context, &list), -1);
	ck_assert_int_eq(errno, ENOMEM);
	ck_assert_uint_eq(list.sge[0].lkey, now);
	sv_fail_nth("post_recv", 0, 0);
	ck_assert_msg(!sgp_post_recvv(ep, &context, &list), "%s", sgp_errmsg());
	end_receiver(ep, cq);
	ck_assert_int_eq(sgp_pool_remove_pd(pool, pd), 0);
	for (int i = 0; i <= n && !same_domain; i++) {
		sgp_pd_leave(sgp_pd_find(fill[i]));
		ibv_dealloc_pd(fill[i]);
	}
	if (same_domain) {
		sgp_pd_leave(index);
		ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
	}
	ck_assert_int_eq(sgp_cq_destroy(cq), 0);
}

START_TEST(test_old_list_same_domain)
{
	old_list(true);
}
END_TEST

START_TEST(test_old_list_other_domain)
{
	old_list(false);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("lists older than their protection domain");
	TCase *tc = tcase_create("post");

	tcase_add_checked_fixture(tc, pds_setup, pds_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_made_on_none);
	tcase_add_test(tc, test_old_and_new_regions);
	tcase_add_test(tc, test_received_where_none_was);
	tcase_add_test(tc, test_old_list_same_domain);
	tcase_add_test(tc, test_old_list_other_domain);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
