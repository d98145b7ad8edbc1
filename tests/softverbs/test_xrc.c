/* SPDX-License-Identifier: BSD-2-Clause */
/* Extended reliable connections: one queue pair, and many shared receive queues behind it. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "../suite.h"
#include "pair.h"

#define SRQS 3

/* A sender, and a receiver whose SRQs have a CQ and a protection domain each. */
struct xrc {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *scq;
	struct ibv_mr *mr;
	struct ibv_xrcd *xrcd;
	struct ibv_qp *send, *recv;
	char out[64];
	struct target {
		struct ibv_pd *pd;
		struct ibv_cq *cq;
		struct ibv_srq *srq;
		struct ibv_mr *mr;
		uint32_t num;
		char in[64];
	} to[SRQS];
};

static void target_open(struct xrc *x, struct target *t)
{
	struct ibv_srq_init_attr_ex a = {.attr = {4, 1, 0},
					 .comp_mask = IBV_SRQ_INIT_ATTR_TYPE |
						      IBV_SRQ_INIT_ATTR_PD |
						      IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
					 .srq_type = IBV_SRQT_XRC,
					 .xrcd = x->xrcd};

	t->pd = a.pd = ibv_alloc_pd(x->ctx);
	t->cq = a.cq = ibv_create_cq(x->ctx, 8, NULL, NULL, 0);
	t->srq = ibv_create_srq_ex(x->ctx, &a);
	ck_assert_ptr_nonnull(t->srq);
	ck_assert_int_eq(ibv_get_srq_num(t->srq, &t->num), 0);
	t->mr = ibv_reg_mr(t->pd, t->in, sizeof t->in,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
}

static void set_up(struct xrc *x)
{
	struct ibv_xrcd_init_attr xa = {IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, -1,
					O_CREAT};
	struct ibv_qp_init_attr_ex s = {.cap = {8, 0, 1, 0, 0},
					.qp_type = IBV_QPT_XRC_SEND,
					.comp_mask = IBV_QP_INIT_ATTR_PD};
	struct ibv_qp_init_attr_ex r = {.qp_type = IBV_QPT_XRC_RECV,
					.comp_mask = IBV_QP_INIT_ATTR_XRCD};

	memset(x, 0, sizeof *x);
	x->ctx = open_first();
	x->pd = s.pd = ibv_alloc_pd(x->ctx);
	x->scq = s.send_cq = ibv_create_cq(x->ctx, 8, NULL, NULL, 0);
	x->mr = ibv_reg_mr(x->pd, x->out, sizeof x->out, 0);
	x->xrcd = r.xrcd = ibv_open_xrcd(x->ctx, &xa);
	ck_assert_ptr_nonnull(x->xrcd);
	for (int i = 0; i < SRQS; i++)
		target_open(x, &x->to[i]);
	x->send = ibv_create_qp_ex(x->ctx, &s);
	x->recv = ibv_create_qp_ex(x->ctx, &r);
	ck_assert(x->send && x->recv);
	ck_assert_int_eq(plain_init(x->send), 0);
	ck_assert_int_eq(plain_init(x->recv), 0);
	ck_assert_int_eq(plain_join(x->recv, x->send->qp_num, 0, 12), 0);
	ck_assert_int_eq(plain_join(x->send, x->recv->qp_num, 7, 12), 0);
}

static void target_close(struct target *t)
{
	if (t->srq)
		ck_assert_int_eq(ibv_destroy_srq(t->srq), 0);
	ck_assert_int_eq(ibv_destroy_cq(t->cq), 0);
	ck_assert_int_eq(ibv_dereg_mr(t->mr), 0);
	ck_assert_int_eq(ibv_dealloc_pd(t->pd), 0);
}

static void tear_down(struct xrc *x)
{
	if (x->recv)
		ck_assert_int_eq(ibv_destroy_qp(x->recv), 0);
	for (int i = 0; i < SRQS; i++)
		target_close(&x->to[i]);
	ck_assert_int_eq(ibv_destroy_qp(x->send), 0);
	ck_assert_int_eq(ibv_close_xrcd(x->xrcd), 0);
	ck_assert_int_eq(ibv_destroy_cq(x->scq), 0);
	ck_assert_int_eq(ibv_dereg_mr(x->mr), 0);
	ck_assert_int_eq(ibv_dealloc_pd(x->pd), 0);
	ck_assert_int_eq(ibv_close_device(x->ctx), 0);
	for (int i = 0; i < SV_NCOUNTERS; i++)
		ck_assert_int_eq(sv_live((enum sv_counter)i), 0);
}

static void post(struct target *t, uint64_t id)
{
	struct ibv_sge s = {(uintptr_t)t->in, sizeof t->in, t->mr->lkey};
	struct ibv_recv_wr *bad, wr = {.wr_id = id, .sg_list = &s, .num_sge = 1};

	ck_assert_int_eq(ibv_post_srq_recv(t->srq, &wr, &bad), 0);
}

static void request(struct xrc *x, enum ibv_wr_opcode op, uint32_t srqn, const struct target *to)
{
	struct ibv_sge s = {(uintptr_t)x->out, 8, x->mr->lkey};
	struct ibv_send_wr *bad, wr = {.wr_id = srqn,
				       .sg_list = &s,
				       .num_sge = 1,
				       .opcode = op,
				       .send_flags = IBV_SEND_SIGNALED};

	wr.qp_type.xrc.remote_srqn = srqn;
	if (to) {
		wr.wr.rdma.remote_addr = (uintptr_t)to->in;
		wr.wr.rdma.rkey = to->mr->rkey;
	}
	ck_assert_int_eq(ibv_post_send(x->send, &wr, &bad), 0);
}

/* Each request reaches the queue that it names, in that queue's protection domain and CQ. */
START_TEST(test_sends_find_their_queue)
{
	struct xrc x;

	set_up(&x);
	for (int i = 0; i < SRQS; i++)
		for (int j = 0; j < i; j++)
			ck_assert_uint_ne(x.to[i].num, x.to[j].num);
	for (int i = SRQS; i--;) {
		struct ibv_wc wc;

		post(&x.to[i], 100 + (uint64_t)i);
		snprintf(x.out, sizeof x.out, "for %d", i);
		request(&x, IBV_WR_SEND, x.to[i].num, NULL);
		expect(x.scq, x.to[i].num, IBV_WC_SUCCESS);
		wc = expect(x.to[i].cq, 100 + (uint64_t)i, IBV_WC_SUCCESS);
		ck_assert_uint_eq(wc.qp_num, x.recv->qp_num);
		ck_assert_str_eq(x.to[i].in, x.out);
	}
	for (int i = 0; i < SRQS; i++)
		expect_none(x.to[i].cq);
	tear_down(&x);
}
END_TEST

/* A write's key must be of the named queue's protection domain. */
START_TEST(test_writes_need_the_domain)
{
	struct xrc x;

	set_up(&x);
	strcpy(x.out, "written");
	request(&x, IBV_WR_RDMA_WRITE, x.to[1].num, &x.to[1]);
	expect(x.scq, x.to[1].num, IBV_WC_SUCCESS);
	ck_assert_str_eq(x.to[1].in, "written");
	request(&x, IBV_WR_RDMA_WRITE, x.to[0].num, &x.to[2]);
	expect(x.scq, x.to[0].num, IBV_WC_REM_ACCESS_ERR);
	ck_assert_int_eq(x.to[2].in[0], 0);
	tear_down(&x);
}
END_TEST

/* One waits for a receive of its queue; others' receives are not for it. */
START_TEST(test_waits_for_its_own)
{
	struct xrc x;

	set_up(&x);
	post(&x.to[0], 1);
	request(&x, IBV_WR_SEND, x.to[1].num, NULL);
	expect_none(x.scq);
	expect_none(x.to[0].cq);
	post(&x.to[1], 2);
	expect(x.scq, x.to[1].num, IBV_WC_SUCCESS);
	expect(x.to[1].cq, 2, IBV_WC_SUCCESS);
	expect_none(x.to[0].cq);
	tear_down(&x);
}
END_TEST

/* Two handles of a domain are one domain if they were opened by the same file. */
START_TEST(test_domains_by_file)
{
	struct xrc x;
	struct ibv_xrcd_init_attr a = {IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
				       open("/dev/null", O_RDONLY), O_CREAT};
	struct ibv_xrcd *one, *two, *none;
	struct target t = {0};

	set_up(&x);
	one = ibv_open_xrcd(x.ctx, &a);
	two = ibv_open_xrcd(x.ctx, &a);
	ck_assert(one && two && one != two);
	none = x.xrcd;
	/* The receiver is of `one`, a queue of `two`, and the others of `none`. */
	ck_assert_int_eq(ibv_destroy_qp(x.recv), 0);
	x.recv = ibv_create_qp_ex(x.ctx,
				  &(struct ibv_qp_init_attr_ex){.qp_type = IBV_QPT_XRC_RECV,
								.comp_mask = IBV_QP_INIT_ATTR_XRCD,
								.xrcd = one});
	ck_assert_ptr_nonnull(x.recv);
	x.xrcd = two;
	target_open(&x, &t);
	ck_assert_int_eq(ibv_destroy_qp(x.send), 0);
	x.send = ibv_create_qp_ex(x.ctx,
				  &(struct ibv_qp_init_attr_ex){.cap = {8, 0, 1, 0, 0},
								.qp_type = IBV_QPT_XRC_SEND,
								.send_cq = x.scq,
								.comp_mask = IBV_QP_INIT_ATTR_PD,
								.pd = x.pd});
	ck_assert(!plain_init(x.send) && !plain_init(x.recv));
	ck_assert(!plain_join(x.recv, x.send->qp_num, 0, 12) &&
		  !plain_join(x.send, x.recv->qp_num, 0, 12));
	post(&t, 5);
	request(&x, IBV_WR_SEND, t.num, NULL);
	expect(x.scq, t.num, IBV_WC_SUCCESS);
	expect(t.cq, 5, IBV_WC_SUCCESS);
	request(&x, IBV_WR_SEND, x.to[0].num, NULL);
	expect(x.scq, x.to[0].num, IBV_WC_REM_INV_REQ_ERR);
	target_close(&t);
	ck_assert_int_eq(ibv_destroy_qp(x.recv), 0);
	x.recv = NULL;
	ck_assert(!ibv_close_xrcd(one) && !ibv_close_xrcd(two));
	close(a.fd);
	x.xrcd = none;
	tear_down(&x);
}
END_TEST

START_TEST(test_no_such_queue)
{
	struct xrc x;

	set_up(&x);
	request(&x, IBV_WR_SEND, 0xfffff, NULL);
	expect(x.scq, 0xfffff, IBV_WC_REM_INV_REQ_ERR);
	tear_down(&x);
}
END_TEST

/* Completions are the SRQ's: they outlive the queue pair; and the SRQ may go before both. */
START_TEST(test_ends_in_any_order)
{
	struct xrc x;

	set_up(&x);
	post(&x.to[0], 1);
	post(&x.to[1], 2);
	request(&x, IBV_WR_SEND, x.to[0].num, NULL);
	request(&x, IBV_WR_SEND, x.to[1].num, NULL);
	ck_assert_int_eq(ibv_destroy_srq(x.to[1].srq), 0);
	x.to[1].srq = NULL;
	ck_assert_int_eq(ibv_destroy_qp(x.recv), 0);
	x.recv = NULL;
	expect(x.to[0].cq, 1, IBV_WC_SUCCESS);
	expect(x.to[1].cq, 2, IBV_WC_SUCCESS);
	expect(x.scq, x.to[0].num, IBV_WC_SUCCESS);
	expect(x.scq, x.to[1].num, IBV_WC_SUCCESS);
	ck_assert_int_eq(ibv_close_xrcd(x.xrcd), EBUSY);
	tear_down(&x);
}
END_TEST

START_TEST(test_refused)
{
	struct xrc x;
	struct ibv_qp_init_attr r = {.qp_type = IBV_QPT_XRC_RECV};
	struct ibv_xrcd_init_attr a = {IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, 12345,
				       O_CREAT};
	struct ibv_recv_wr *bad, wr = {0};

	set_up(&x);
	ck_assert_ptr_null(ibv_create_qp(x.pd, &r));
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_ptr_null(ibv_open_xrcd(x.ctx, &a));
	ck_assert_int_eq(errno, EBADF);
	ck_assert_int_ne(ibv_post_recv(x.recv, &wr, &bad), 0);
	ck_assert_int_ne(ibv_post_recv(x.send, &wr, &bad), 0);
	tear_down(&x);
	/* Not every device has them. */
	ck_assert_int_eq(sv_device_remove("soft0") + sv_device_add("soft0", "rxe", 1), 0);
	x.ctx = open_first();
	a.fd = -1;
	ck_assert_ptr_null(ibv_open_xrcd(x.ctx, &a));
	ck_assert_int_eq(errno, EOPNOTSUPP);
	ck_assert_int_eq(ibv_close_device(x.ctx), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("softverbs extended connections");
	TCase *t = tcase_create("xrc");

	tcase_add_test(t, test_sends_find_their_queue);
	tcase_add_test(t, test_writes_need_the_domain);
	tcase_add_test(t, test_waits_for_its_own);
	tcase_add_test(t, test_domains_by_file);
	tcase_add_test(t, test_no_such_queue);
	tcase_add_test(t, test_ends_in_any_order);
	tcase_add_test(t, test_refused);
	suite_add_tcase(s, t);
	return suite_run(s);
}
