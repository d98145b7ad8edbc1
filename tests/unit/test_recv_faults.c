/* SPDX-License-Identifier: BSD-2-Clause */
/* Receives that are kept posted, and devices that refuse them, fail, or are reset. */
#include <check.h>
#include <errno.h>
#include <string.h>

#include "../plain.h"
#include "../suite.h"
#include "recv_rig.h"

/* ---- what goes wrong ---- */

/* Case 43: the device refuses what replaces the first of a batch. */
START_TEST(a_refused_repost_ends_no_batch)
{
	open_full(personas[_i], (struct rig_attr){.depth = 8, .chunks = 16});
	for (int i = 0; i < 4; i++)
		send_bytes(10, i);
	ck_assert_int_eq(sv_fail_nth("post_recv", 0, ENOMEM), 0);
	rig_reap(b, 4);
	ck_assert(sv_failed("post_recv"));
	for (int i = 0; i < 4; i++) {
		check_message(&b->wc[i], 10, i);
		sgp_sgl_clear(&b->wc[i].sgl);
	}
	check_b(4);
	ck_assert_uint_eq(stats_of(b).recv_refused, 4);
	ck_assert_int_eq(sgp_poll(b->cq, RIG_WC, b->wc), 0);
	check_b(8);
	close_rig();
}
END_TEST

/* The same where the chain stops half-way, and the answer is that of the worst providers. */
START_TEST(a_half_taken_chain_is_made_good)
{
	static const char *const faults[] = {"post_recv midway at 0",
					     "post_recv doorbell EIO at 0"};

	open_full(personas[_i / 2], (struct rig_attr){.depth = 8, .chunks = 16});
	for (int i = 0; i < 4; i++)
		send_bytes(10, i);
	ck_assert_int_eq(sv_faults(faults[_i % 2], NULL), 0);
	rig_reap(b, 4);
	for (int i = 0; i < 4; i++) {
		check_message(&b->wc[i], 10, i);
		sgp_sgl_clear(&b->wc[i].sgl);
	}
	ck_assert_int_eq(sgp_poll(b->cq, RIG_WC, b->wc), 0);
	check_b(8);
	for (int i = 0; i < 20; i++) {
		send_bytes(10, i);
		receive(10, i, NULL);
		check_b(8);
	}
	close_rig();
}
END_TEST

/* Case 43 again: [receive's error, send, receive's flush, send], with no repost into the dead queue. */
START_TEST(an_error_leaves_nothing_behind)
{
	uint64_t calls;
	int polled = 0, errors = 0;

	parts[0] = (struct sgp_recv_part){.size = 10};
	nparts = 1;
	open_full(personas[_i], (struct rig_attr){.depth = 8, .chunks = 32});
	rig_post_recv(a, NULL);
	rig_post_recv(a, NULL);
	rig_post_send(b, &context[1], 's');
	rig_post_send(b, &context[2], 's');
	rig_post_send(a, NULL, 'x'); /* 4096 bytes into 10 */
	calls = sv_calls("post_recv");
	/* What a device never flushes comes with the close. */
	ck_assert_int_eq(sgp_ep_close(b->ep, 50), 0);
	for (int n; (n = sgp_poll(b->cq, RIG_WC, b->wc)) > 0;)
		for (int i = 0; i < n; i++) {
			polled++;
			errors += b->wc[i].status != IBV_WC_SUCCESS;
			if (b->wc[i].opcode & IBV_WC_RECV)
				ck_assert_int_eq(b->wc[i].sgl.num_chunk, 1);
			sgp_sgl_clear(&b->wc[i].sgl);
		}
	ck_assert_int_eq(polled, 10);
	ck_assert_int_ge(errors, 8);
	ck_assert_uint_eq(sv_calls("post_recv"), calls);
	rig_check_live(b, 0);
	close_rig();
}
END_TEST

/* Case 51b: a queue pair that was reset has all of its receives again before it can receive. */
START_TEST(a_reset_posts_all_again)
{
	struct sgp_ep *ep[2];
	struct sgp_recv_part part;
	struct ibv_qp *qp[2];

	open_full(roce[_i], (struct rig_attr){.depth = 1, .chunks = 32, .cqe = 64});
	part = (struct sgp_recv_part){.pool = b->pool, .size = 4096};
	for (int i = 0; i < 2; i++) {
		ep[i] = plain_ep(&part, 1, 8);
		ck_assert_int_eq(sgp_ep_refill(ep[i]), 0);
		qp[i] = sgp_ep_qp(ep[i]);
	}
	for (int life = 0; life < 3; life++) {
		for (int i = 0; i < 2; i++)
			ck_assert_int_eq(plain_join(qp[i], qp[!i]->qp_num, 7, 1), 0);
		for (int i = 0; i < 12; i++) {
			struct sgp_chunk *chunk = rig_chunk(b, i);

			ck_assert_msg(
				!sgp_post_send(ep[0], &context[i], chunk, 0, 64, IBV_SEND_SIGNALED),
				"%s", sgp_errmsg());
			rig_reap(b, 2);
			for (int j = 0; j < 2; j++) {
				ck_assert_int_eq(b->wc[j].status, IBV_WC_SUCCESS);
				if (b->wc[j].opcode == IBV_WC_RECV)
					ck_assert_int_eq(
						*(uint8_t *)(uintptr_t)b->wc[j].sgl.sge[0].addr, i);
				sgp_sgl_clear(&b->wc[j].sgl);
			}
		}
		for (int i = 0; i < 2; i++) {
			ck_assert_msg(!sgp_ep_reset(ep[i]), "%s", sgp_errmsg());
			ck_assert_int_eq(posted_of(ep[i]), 8);
		}
		ck_assert_int_eq(sgp_poll(b->cq, RIG_WC, b->wc), 0);
		rig_check_live(b, 17);
	}
	close_plain(ep[0]);
	close_plain(ep[1]);
	close_rig();
}
END_TEST

START_TEST(a_reset_after_a_close_that_failed)
{
	struct sgp_recv_part part;
	struct sgp_ep *ep;
	int n;

	open_full("soft", (struct rig_attr){.depth = 1, .chunks = 32, .cqe = 64});
	part = (struct sgp_recv_part){.pool = b->pool, .size = 4096};
	ep = plain_ep(&part, 1, 8);
	ck_assert_int_eq(sgp_ep_refill(ep), 0);
	ck_assert_int_eq(sv_fail_nth("destroy_qp", 0, EIO), 0);
	ck_assert_int_eq(sgp_ep_close(ep, 0), -1);
	sv_faults_clear();
	while ((n = sgp_poll(b->cq, RIG_WC, b->wc)) > 0)
		for (int i = 0; i < n; i++)
			sgp_sgl_clear(&b->wc[i].sgl);
	ck_assert_int_eq(n, 0);
	ck_assert_msg(!sgp_ep_reset(ep), "%s", sgp_errmsg());
	ck_assert_int_eq(posted_of(ep), 8);
	ck_assert_int_eq(sgp_ep_refill(ep), 0);
	close_plain(ep);
	close_rig();
}
END_TEST

START_TEST(what_cannot_be_made_leaves_nothing)
{
	struct sgp_ep_attr attr;
	struct sgp_recv_part part[2];
	struct rig_side *side;

	one_part(4096);
	open_full(NULL, (struct rig_attr){.depth = 2, .chunks = 8, .cqe = 64});
	side = b;
	attr = (struct sgp_ep_attr){
		.cq = b->cq,
		.pd = b->pd,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 2, .max_recv_sge = 2},
		.recv = part,
		.num_recv = 1};
#define REFUSED(err, ...)                                                                          \
	do {                                                                                       \
		part[0] = (struct sgp_recv_part){__VA_ARGS__};                                     \
		ck_assert_ptr_null(sgp_ep_create(NULL, &attr));                                    \
		ck_assert_int_eq(errno, err);                                                      \
		ck_assert_int_gt(strlen(sgp_errmsg()), 0);                                         \
	} while (0)
	REFUSED(EINVAL, .size = 1);
	REFUSED(EINVAL, .pool = side->pool);
	REFUSED(EINVAL, .pool = side->pool, .size = 1, .n = -1);
	REFUSED(EMSGSIZE, .pool = side->pool, .size = 4097);
	REFUSED(EMSGSIZE, .pool = side->pool, .size = 1, .offset = 4096);
	REFUSED(E2BIG, .pool = side->pool, .size = 1, .n = 3);
	attr.num_recv = -1;
	REFUSED(EINVAL, .pool = side->pool, .size = 1);
	attr.num_recv = 1;
	check_b(2);
	close_rig();
}
END_TEST

/* b has an identifier without a queue pair, and a pool of eight chunks of which five are taken: an endpoint
 * with these attributes wants four. */
static void open_unfillable(struct sgp_ep_attr *attr, struct sgp_recv_part *part,
			    struct sgp_chunk *taken[5])
{
	one_part(4096);
	open_full(NULL, (struct rig_attr){.depth = 2, .chunks = 8, .cqe = 64});
	rig_close_ep(b);
	ck_assert_int_eq(rdma_create_id(rig.listen_events, &b->id, NULL, RDMA_PS_TCP), 0);
	ck_assert_int_eq(rdma_resolve_addr(b->id, NULL, rdma_get_local_addr(rig.listen_id), 1000),
			 0);
	rig_expect_event(rig.listen_events, RDMA_CM_EVENT_ADDR_RESOLVED, NULL, NULL);
	*part = (struct sgp_recv_part){.pool = b->pool, .size = 4096};
	*attr = (struct sgp_ep_attr){.cq = b->cq,
				     .pd = b->pd,
				     .cap = {.max_send_wr = 4, .max_recv_wr = 4},
				     .recv = part,
				     .num_recv = 1};
	for (int n = 0; n < 5; n++)
		ck_assert_ptr_nonnull(taken[n] = sgp_pool_get(b->pool, 4096, 0));
}

/* A connection whose endpoint cannot be filled is refused, and the identifier is as it was. */
START_TEST(an_endpoint_that_cannot_be_filled_is_none)
{
	struct sgp_ep_attr attr;
	struct sgp_chunk *taken[5];
	struct sgp_recv_part part;
	int n = 5;

	open_unfillable(&attr, &part, taken);
	ck_assert_ptr_null(sgp_ep_create(b->id, &attr));
	ck_assert_int_eq(errno, ENOBUFS);
	rig_check_live(b, 5);
	ck_assert_ptr_null(b->id->qp);
	while (n)
		sgp_chunk_put(taken[--n]);
	rig_check_live(b, 0);
	/* Memory of another domain. */
	part.pool = a->pool;
	ck_assert_ptr_null(sgp_ep_create(b->id, &attr));
	ck_assert_int_eq(errno, EXDEV);
	part.pool = b->pool;
	/* The device refuses the n-th call that it takes, whichever. */
	for (uint64_t at = 0;; at++) {
		ck_assert_int_eq(sv_fail_nth("any", at, ENOMEM), 0);
		b->ep = sgp_ep_create(b->id, &attr);
		if (b->ep)
			break;
		ck_assert_int_eq(errno, ENOMEM);
		rig_check_live(b, 0);
		ck_assert_int_lt((int)at, 50);
	}
	ck_assert_int_eq(sv_fail_nth("any", 0, 0), 0);
	rig_check_live(b, 4);
	close_rig();
}
END_TEST

/*
 * It cannot be filled, and the device keeps the queue pair that is to be unmade: it has three receives,
 * whose memory is not handed out again, whose domain stays, and whose completions have their room.
 */
START_TEST(what_the_device_keeps_is_not_the_pools)
{
	struct ibv_qp_attr to_error = {.qp_state = IBV_QPS_ERR};
	struct sgp_ep_attr attr;
	struct sgp_chunk *taken[5];
	struct sgp_recv_part part;
	int n = 5;

	open_unfillable(&attr, &part, taken);
	ck_assert_int_eq(sv_fail_nth("destroy_qp", 0, EIO), 0);
	ck_assert_ptr_null(sgp_ep_create(b->id, &attr));
	ck_assert_int_eq(errno, ENOBUFS);
	ck_assert(sv_failed("destroy_qp"));
	ck_assert_ptr_nonnull(b->id->qp);
	while (n)
		sgp_chunk_put(taken[--n]);
	rig_check_live(b, 3);
	/* Another endpoint would have to have all entries. */
	attr.num_recv = 0;
	attr.cap.max_send_wr = (uint32_t)b->id->qp->send_cq->cqe - attr.cap.max_recv_wr;
	ck_assert_int_eq(sv_fail_nth("resize_cq", 0, EOPNOTSUPP), 0);
	ck_assert_ptr_null(sgp_ep_create(NULL, &attr));
	ck_assert_int_eq(errno, EOPNOTSUPP);
	ck_assert_int_eq(ibv_modify_qp(b->id->qp, &to_error, IBV_QP_STATE), 0);
	ck_assert_int_eq(sgp_poll(b->cq, RIG_WC, b->wc), 0);
	rig_check_live(b, 3);
	ck_assert_int_eq(sv_fail_nth("resize_cq", 0, EOPNOTSUPP), 0);
	ck_assert_ptr_null(sgp_ep_create(NULL, &attr));
	ck_assert_int_eq(errno, EOPNOTSUPP);
	ck_assert_int_eq(sgp_pool_remove_pd(b->pool, b->pd), -1);
	ck_assert_int_eq(errno, EBUSY);
	ck_assert_int_eq(sgp_pool_destroy(b->pool), -1);
	ck_assert_int_eq(errno, EBUSY);
	ck_assert_int_eq(sgp_cq_destroy(b->cq), -1);
	ck_assert_int_eq(ibv_destroy_qp(b->id->qp), 0);
	ck_assert_int_eq(sgp_cq_destroy(b->cq), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("recv_faults");
	TCase *tc = tcase_create("recv_faults");

	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, a_refused_repost_ends_no_batch, 0, npersonas);
	tcase_add_loop_test(tc, a_half_taken_chain_is_made_good, 0, 2 * npersonas);
	tcase_add_loop_test(tc, an_error_leaves_nothing_behind, 0, npersonas);
	tcase_add_loop_test(tc, a_reset_posts_all_again, 0, nroce);
	tcase_add_test(tc, a_reset_after_a_close_that_failed);
	tcase_add_test(tc, what_cannot_be_made_leaves_nothing);
	tcase_add_test(tc, an_endpoint_that_cannot_be_filled_is_none);
	tcase_add_test(tc, what_the_device_keeps_is_not_the_pools);
	suite_add_tcase(s, tc);
	return suite_run(s);
}
