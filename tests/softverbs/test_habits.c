/* SPDX-License-Identifier: BSD-2-Clause */
/* Everything that real providers were seen to do to their users, each switched on and seen. */
#include "../suite.h"
#include "pair.h"

static void habit(const char *name, uint64_t value)
{
	ck_assert_int_eq(sv_set("soft0", name, value), 0);
}

static void faults(const char *text)
{
	const char *wrong = "";

	ck_assert_msg(!sv_faults(text, &wrong), "at \"%s\"", wrong);
}

START_TEST(test_negative_errno)
{
	struct pair p = {.depth = 1};

	habit("negative", 1);
	pair_open(&p);
	ck_assert_int_eq(recv_op(&p.a, 1, 0, 8), 0);
	ck_assert_int_eq(recv_op(&p.a, 1, 0, 8), -ENOMEM);
	pair_close(&p);
}
END_TEST

static int chain(struct pair *p, struct ibv_send_wr **bad, int *at)
{
	static struct ibv_send_wr wr[3];
	static struct ibv_sge s;
	int ret;

	s = sge_of(&p->a, 0, 8);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(recv_op(&p->b, (uint64_t)i, 0, 8), 0);
		wr[i] = (struct ibv_send_wr){.wr_id = (uint64_t)i,
					     .next = i < 2 ? &wr[i + 1] : NULL,
					     .sg_list = &s,
					     .num_sge = 1,
					     .opcode = IBV_WR_SEND,
					     .send_flags = IBV_SEND_SIGNALED};
	}
	*bad = NULL;
	ret = ibv_post_send(p->a.qp, wr, bad);
	*at = *bad ? (int)(*bad - wr) : -1;
	return ret;
}

/* Law 1: 0, with bad_wr set. */
START_TEST(test_midway)
{
	struct pair p = {0};
	struct ibv_send_wr *bad;
	int at;

	pair_open(&p);
	faults("post_send midway at 0");
	ck_assert_int_eq(chain(&p, &bad, &at), 0);
	ck_assert_int_eq(at, 1);
	expect(p.a.scq, 0, IBV_WC_SUCCESS);
	expect_none(p.a.scq);
	pair_close(&p);
}
END_TEST

/* Law 1: an error with bad_wr NULL: all of it is queued. */
START_TEST(test_doorbell)
{
	struct pair p = {0};
	struct ibv_send_wr *bad;
	int at;

	pair_open(&p);
	faults("post_send doorbell EIO at 0");
	ck_assert_int_eq(chain(&p, &bad, &at), EIO);
	ck_assert_int_eq(at, -1);
	for (uint64_t i = 0; i < 3; i++)
		expect(p.a.scq, i, IBV_WC_SUCCESS);
	pair_close(&p);
}
END_TEST

/* mlx5 says ENOMEM for everything: law 1. */
START_TEST(test_as_mlx5)
{
	struct pair p = {.depth = 1};
	struct ibv_sge s[8];
	struct ibv_send_wr *bad, wr = {.sg_list = s, .num_sge = 5, .opcode = IBV_WR_SEND};

	ck_assert_int_eq(sv_device_add("mlx5_0", "mlx5", 1), 0);
	pair_init(&p);
	ck_assert_int_eq(send_op(&p.a, 1, 0, 8, 0), ENOMEM); /* before RTS */
	end_join(&p, &p.a, &p.b);
	end_join(&p, &p.b, &p.a);
	for (int i = 0; i < 8; i++)
		s[i] = sge_of(&p.a, 0, 4);
	ck_assert_int_eq(ibv_post_send(p.a.qp, &wr, &bad), ENOMEM); /* SGEs */
	wr.num_sge = 1;
	s[0].length = 65;
	wr.send_flags = IBV_SEND_INLINE;
	ck_assert_int_eq(ibv_post_send(p.a.qp, &wr, &bad), ENOMEM); /* inline */
	p.rnr_retry = 7;
	ck_assert_int_eq(recv_op(&p.b, 1, 0, 4), 0);
	ck_assert_int_eq(send_op(&p.a, 2, 0, 8, 0), 0);
	ck_assert_int_eq(send_op(&p.a, 3, 0, 8, 0), ENOMEM); /* full */
	/* An error's opcode isn't written: law 2.11. */
	ck_assert_int_ne(expect(p.b.rcq, 1, IBV_WC_LOC_LEN_ERR).opcode, IBV_WC_RECV);
	ck_assert_int_ne(expect(p.a.scq, 2, IBV_WC_REM_INV_REQ_ERR).opcode, IBV_WC_SEND);
	pair_close(&p);
}
END_TEST

/* Law 2.8: gone with the QP, or left in the CQ when nobody owns them any more. */
START_TEST(test_cqes_at_destroy)
{
	struct pair p = {0};
	uint32_t qpn;

	habit("keep_cqes", (uint64_t)_i);
	pair_open(&p);
	qpn = p.b.qp->qp_num;
	ck_assert_int_eq(recv_op(&p.b, 1, 0, 8), 0);
	ck_assert_int_eq(send_op(&p.a, 2, 0, 8, 0), 0);
	ck_assert_int_eq(ibv_destroy_qp(p.b.qp), 0);
	p.b.qp = NULL;
	if (_i)
		ck_assert_uint_eq(expect(p.b.rcq, 1, IBV_WC_SUCCESS).qp_num, qpn);
	else
		expect_none(p.b.rcq);
	pair_close(&p);
}
END_TEST

/* Law 2.6 */
START_TEST(test_never_flushed)
{
	struct pair p = {0};
	struct ibv_qp_attr q = {.qp_state = IBV_QPS_ERR};

	habit("late_send_stuck", 1);
	habit("late_recv_stuck", 1);
	pair_open(&p);
	ck_assert_int_eq(ibv_modify_qp(p.a.qp, &q, IBV_QP_STATE), 0);
	ck_assert_int_eq(send_op(&p.a, 1, 0, 8, 0), 0);
	ck_assert_int_eq(recv_op(&p.a, 2, 0, 8), 0);
	expect_none(p.a.scq);
	expect_none(p.a.rcq);
	pair_close(&p);
}
END_TEST

START_TEST(test_eio_after_error)
{
	struct pair p = {0};
	struct ibv_qp_attr q = {.qp_state = IBV_QPS_ERR};

	habit("late_send_eio", 1);
	pair_open(&p);
	ck_assert_int_eq(ibv_modify_qp(p.a.qp, &q, IBV_QP_STATE), 0);
	ck_assert_int_eq(send_op(&p.a, 1, 0, 8, 0), EIO);
	pair_close(&p);
}
END_TEST

/* Law 2.3: a SEND that completes before an earlier READ. */
START_TEST(test_send_overtakes_read)
{
	struct pair p = {0};
	struct ibv_sge s;
	struct ibv_send_wr *bad, wr = {.wr_id = 1,
				       .sg_list = &s,
				       .num_sge = 1,
				       .opcode = IBV_WR_RDMA_READ,
				       .send_flags = IBV_SEND_SIGNALED};

	pair_open(&p);
	ck_assert_int_eq(recv_op(&p.b, 9, 0, 8), 0);
	s = sge_of(&p.a, 0, 8);
	wr.wr.rdma.remote_addr = (uintptr_t)p.b.buf;
	wr.wr.rdma.rkey = p.b.mr->rkey;
	faults("completion swap at 0");
	ck_assert_int_eq(ibv_post_send(p.a.qp, &wr, &bad), 0);
	expect_none(p.a.scq);
	ck_assert_int_eq(send_op(&p.a, 2, 0, 8, IBV_SEND_SIGNALED), 0);
	/* The next completion is the receive's, in another queue: the READ's waits for its own. */
	expect(p.a.scq, 2, IBV_WC_SUCCESS);
	expect(p.a.scq, 1, IBV_WC_SUCCESS);
	expect(p.b.rcq, 9, IBV_WC_SUCCESS);
	pair_close(&p);
}
END_TEST

/* Law 3: iWARP has no RNR. */
START_TEST(test_rnr_terminates)
{
	struct pair p = {0};

	habit("no_rnr", 1);
	pair_open(&p);
	ck_assert_int_eq(recv_op(&p.a, 5, 0, 8), 0);
	ck_assert_int_eq(send_op(&p.a, 1, 0, 8, IBV_SEND_SIGNALED), 0);
	ck_assert_int_eq(p.b.qp->state, IBV_QPS_ERR);
	pair_close(&p);
}
END_TEST

/* Law 3: max_sge_rd of 1; siw takes more and fills only the first. */
START_TEST(test_read_sges)
{
	struct pair p = {0};
	struct ibv_sge s[2];
	struct ibv_send_wr *bad, wr = {.wr_id = 1,
				       .sg_list = s,
				       .num_sge = 2,
				       .opcode = IBV_WR_RDMA_READ,
				       .send_flags = IBV_SEND_SIGNALED};

	habit("max_sge_rd", 1);
	habit("read_first", (uint64_t)_i);
	pair_open(&p);
	strcpy(p.b.buf, "abcd");
	s[0] = sge_of(&p.a, 0, 2);
	s[1] = sge_of(&p.a, 100, 2);
	wr.wr.rdma.remote_addr = (uintptr_t)p.b.buf;
	wr.wr.rdma.rkey = p.b.mr->rkey;
	if (_i) {
		ck_assert_int_eq(ibv_post_send(p.a.qp, &wr, &bad), 0);
		expect(p.a.scq, 1, IBV_WC_SUCCESS);
		ck_assert(!memcmp(p.a.buf, "ab", 3));
		ck_assert_int_eq(p.a.buf[100], 0);
	} else {
		ck_assert_int_eq(ibv_post_send(p.a.qp, &wr, &bad), EINVAL);
	}
	pair_close(&p);
}
END_TEST

/* Case 25 */
START_TEST(test_inline_first)
{
	struct pair p = {0};
	char one[] = "abc", two[] = "def";
	struct ibv_sge s[2] = {{(uintptr_t)one, 3, 0}, {(uintptr_t)two, 3, 0}};
	struct ibv_send_wr *bad, wr = {.sg_list = s,
				       .num_sge = 2,
				       .opcode = IBV_WR_SEND,
				       .send_flags = IBV_SEND_INLINE};

	habit("inline_first", 1);
	pair_open(&p);
	ck_assert_int_eq(recv_op(&p.b, 1, 0, 8), 0);
	ck_assert_int_eq(ibv_post_send(p.a.qp, &wr, &bad), 0);
	ck_assert_uint_eq(expect(p.b.rcq, 1, IBV_WC_SUCCESS).byte_len, 3);
	pair_close(&p);
}
END_TEST

START_TEST(test_qpn_reused)
{
	struct pair p = {0};
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}};
	uint32_t qpn;

	habit("reuse_qpn", (uint64_t)_i);
	pair_open(&p);
	qpn = p.b.qp->qp_num;
	ck_assert_int_eq(ibv_destroy_qp(p.b.qp), 0);
	a.send_cq = a.recv_cq = p.b.scq;
	p.b.qp = ibv_create_qp(p.b.pd, &a);
	ck_assert_int_eq(p.b.qp->qp_num == qpn, _i);
	pair_close(&p);
}
END_TEST

/* Law 6: rxe's end_poll loses one. */
START_TEST(test_cq_ex_overshoots)
{
	struct ibv_context *ctx;
	struct ibv_cq_init_attr_ex a = {.cqe = 16};
	struct ibv_poll_cq_attr poll = {0};
	struct ibv_qp_init_attr qa = {.qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};
	struct ibv_qp_attr q = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct ibv_recv_wr *bad, wr = {0};
	struct ibv_cq_ex *cq;
	struct ibv_pd *pd;
	struct ibv_qp *qp;

	habit("cq_ex_overshoots", 1);
	ctx = open_first();
	pd = ibv_alloc_pd(ctx);
	cq = ibv_create_cq_ex(ctx, &a);
	qa.send_cq = qa.recv_cq = ibv_cq_ex_to_cq(cq);
	qp = ibv_create_qp(pd, &qa);
	ck_assert_ptr_nonnull(qp);
	ck_assert_int_eq(
		ibv_modify_qp(qp, &q,
			      IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS),
		0);
	q.qp_state = IBV_QPS_ERR;
	ck_assert_int_eq(ibv_modify_qp(qp, &q, IBV_QP_STATE), 0);
	ck_assert_int_eq(ibv_post_recv(qp, &wr, &bad), 0); /* flushed at once */
	ck_assert_int_eq(ibv_start_poll(cq, &poll), 0);
	ck_assert_int_eq(ibv_next_poll(cq), ENOENT);
	ibv_end_poll(cq);
	ck_assert_int_eq(ibv_post_recv(qp, &wr, &bad), 0);
	ck_assert_int_eq(ibv_start_poll(cq, &poll), ENOENT); /* it's lost */
	ck_assert_int_eq(ibv_destroy_qp(qp), 0);
	ck_assert_int_eq(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
	ck_assert_int_eq(ibv_close_device(ctx), 0);
}
END_TEST

/* ---- registration ---- */

START_TEST(test_reg_mr_faults)
{
	struct ibv_context *ctx = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	static char mem[8192];
	struct ibv_mr *a, *b;

	faults("reg_mr fail ENOMEM above 4096; reg_mr fail EFAULT at 2");
	a = ibv_reg_mr(pd, mem, 4096, IBV_ACCESS_LOCAL_WRITE);
	ck_assert_ptr_nonnull(a);
	ck_assert_ptr_null(ibv_reg_mr(pd, mem, 4097, IBV_ACCESS_LOCAL_WRITE));
	ck_assert_int_eq(errno, ENOMEM);
	ck_assert_ptr_null(ibv_reg_mr(pd, mem, 1, IBV_ACCESS_LOCAL_WRITE));
	ck_assert_int_eq(errno, EFAULT);
	habit("max_mr", 2);
	b = ibv_reg_mr(pd, mem, 1, IBV_ACCESS_LOCAL_WRITE);
	ck_assert_ptr_nonnull(b);
	ck_assert_ptr_null(ibv_reg_mr(pd, mem, 1, IBV_ACCESS_LOCAL_WRITE)); /* above a count */
	ck_assert_int_eq(errno, ENOMEM);
	ck_assert_int_eq(ibv_dereg_mr(a) | ibv_dereg_mr(b), 0);
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
	ck_assert_int_eq(ibv_close_device(ctx), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("softverbs habits");
	TCase *t = tcase_create("habits");

	tcase_add_test(t, test_negative_errno);
	tcase_add_test(t, test_midway);
	tcase_add_test(t, test_doorbell);
	tcase_add_test(t, test_as_mlx5);
	tcase_add_loop_test(t, test_cqes_at_destroy, 0, 2);
	tcase_add_test(t, test_never_flushed);
	tcase_add_test(t, test_eio_after_error);
	tcase_add_test(t, test_send_overtakes_read);
	tcase_add_test(t, test_rnr_terminates);
	tcase_add_loop_test(t, test_read_sges, 0, 2);
	tcase_add_test(t, test_inline_first);
	tcase_add_loop_test(t, test_qpn_reused, 0, 2);
	tcase_add_test(t, test_cq_ex_overshoots);
	tcase_add_test(t, test_reg_mr_faults);
	suite_add_tcase(s, t);
	return suite_run(s);
}
