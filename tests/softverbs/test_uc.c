/* SPDX-License-Identifier: BSD-2-Clause */
/* Unreliable connections: what arrives is whole, and what does not is lost without a word. */
#include "../suite.h"
#include "pair.h"

static int write_op(struct pair *p, enum ibv_wr_opcode op, size_t off, uint32_t rkey, uint32_t len)
{
	struct ibv_sge s = sge_of(&p->a, 0, len);
	struct ibv_send_wr *bad, wr = {.wr_id = 1,
				       .sg_list = &s,
				       .num_sge = 1,
				       .opcode = op,
				       .imm_data = 77,
				       .send_flags = IBV_SEND_SIGNALED};

	wr.wr.rdma.remote_addr = (uintptr_t)(p->b.buf + off);
	wr.wr.rdma.rkey = rkey;
	return ibv_post_send(p->a.qp, &wr, &bad);
}

START_TEST(test_arrives)
{
	struct pair p = {.type = IBV_QPT_UC};
	struct ibv_wc wc;

	pair_open(&p);
	strcpy(p.a.buf, "sent");
	ck_assert_int_eq(recv_op(&p.b, 7, 0, 64), 0);
	ck_assert_int_eq(send_op(&p.a, 1, 0, 5, IBV_SEND_SIGNALED), 0);
	expect(p.a.scq, 1, IBV_WC_SUCCESS);
	wc = expect(p.b.rcq, 7, IBV_WC_SUCCESS);
	ck_assert_uint_eq(wc.byte_len, 5);
	ck_assert_str_eq(p.b.buf, "sent");

	strcpy(p.a.buf, "written");
	ck_assert_int_eq(write_op(&p, IBV_WR_RDMA_WRITE, 100, p.b.mr->rkey, 8), 0);
	expect(p.a.scq, 1, IBV_WC_SUCCESS);
	ck_assert_str_eq(p.b.buf + 100, "written");
	expect_none(p.b.rcq);

	ck_assert_int_eq(recv_op(&p.b, 8, 0, 0), 0);
	ck_assert_int_eq(write_op(&p, IBV_WR_RDMA_WRITE_WITH_IMM, 200, p.b.mr->rkey, 8), 0);
	expect(p.a.scq, 1, IBV_WC_SUCCESS);
	wc = expect(p.b.rcq, 8, IBV_WC_SUCCESS);
	ck_assert_int_eq(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	ck_assert_uint_eq(wc.imm_data, 77);
	ck_assert_str_eq(p.b.buf + 200, "written");
	pair_close(&p);
}
END_TEST

/* No receive, a key that isn't one, or none for that memory: success, and nothing happened there. */
START_TEST(test_lost)
{
	struct pair p = {.type = IBV_QPT_UC};

	pair_open(&p);
	strcpy(p.a.buf, "lost");
	ck_assert_int_eq(send_op(&p.a, 1, 0, 5, IBV_SEND_SIGNALED), 0);
	expect(p.a.scq, 1, IBV_WC_SUCCESS);
	ck_assert_int_eq(write_op(&p, IBV_WR_RDMA_WRITE, 100, p.b.mr->rkey + 1, 5), 0);
	expect(p.a.scq, 1, IBV_WC_SUCCESS);
	ck_assert_int_eq(write_op(&p, IBV_WR_RDMA_WRITE, PAIR_BUF - 2, p.b.mr->rkey, 5), 0);
	expect(p.a.scq, 1, IBV_WC_SUCCESS);
	ck_assert_int_eq(write_op(&p, IBV_WR_RDMA_WRITE_WITH_IMM, 0, p.b.mr->rkey, 5), 0);
	expect(p.a.scq, 1, IBV_WC_SUCCESS);
	for (size_t i = 0; i < PAIR_BUF; i++)
		ck_assert_int_eq(p.b.buf[i], 0);
	expect_none(p.b.rcq);

	/* And it goes on. */
	ck_assert_int_eq(recv_op(&p.b, 2, 0, 64), 0);
	ck_assert_int_eq(send_op(&p.a, 3, 0, 5, IBV_SEND_SIGNALED), 0);
	expect(p.a.scq, 3, IBV_WC_SUCCESS);
	expect(p.b.rcq, 2, IBV_WC_SUCCESS);
	ck_assert_str_eq(p.b.buf, "lost");
	pair_close(&p);
}
END_TEST

/* The end that has gone is not missed. */
START_TEST(test_alone)
{
	struct pair p = {.type = IBV_QPT_UC};

	pair_open(&p);
	ck_assert_int_eq(ibv_destroy_qp(p.b.qp), 0);
	p.b.qp = NULL;
	ck_assert_int_eq(send_op(&p.a, 1, 0, 5, IBV_SEND_SIGNALED), 0);
	expect(p.a.scq, 1, IBV_WC_SUCCESS);
	pair_close(&p);
}
END_TEST

/* Too small a receive ends the receiver, not the sender. */
START_TEST(test_too_long)
{
	struct pair p = {.type = IBV_QPT_UC};

	pair_open(&p);
	ck_assert_int_eq(recv_op(&p.b, 2, 0, 4), 0);
	ck_assert_int_eq(send_op(&p.a, 1, 0, 5, IBV_SEND_SIGNALED), 0);
	expect(p.a.scq, 1, IBV_WC_SUCCESS);
	expect(p.b.rcq, 2, IBV_WC_LOC_LEN_ERR);
	ck_assert_int_eq(send_op(&p.a, 1, 0, 5, IBV_SEND_SIGNALED), 0);
	expect(p.a.scq, 1, IBV_WC_SUCCESS);
	pair_close(&p);
}
END_TEST

/* What needs an answer is not for UC, nor is UC for iWARP; and RC does not talk to it. */
START_TEST(test_refused)
{
	struct pair p = {.type = IBV_QPT_UC};
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_UC, .cap = {1, 1, 1, 1, 0}};
	struct ibv_qp_attr q = {.qp_state = IBV_QPS_RTR};

	pair_open(&p);
	ck_assert_int_eq(write_op(&p, IBV_WR_RDMA_READ, 0, p.b.mr->rkey, 8), EINVAL);
	ck_assert_int_eq(write_op(&p, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, p.b.mr->rkey, 8), EINVAL);
	a.send_cq = p.a.scq;
	a.recv_cq = p.a.rcq;
	ck_assert_int_eq(ibv_modify_qp(p.a.qp, &q, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER), EINVAL);
	ck_assert_int_eq(sv_set("soft0", "no_ud", 1), 0);
	ck_assert_ptr_null(ibv_create_qp(p.a.pd, &a));
	ck_assert_int_eq(errno, EOPNOTSUPP);
	pair_close(&p);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("softverbs unreliable connections");
	TCase *t = tcase_create("uc");

	tcase_add_test(t, test_arrives);
	tcase_add_test(t, test_lost);
	tcase_add_test(t, test_alone);
	tcase_add_test(t, test_too_long);
	tcase_add_test(t, test_refused);
	suite_add_tcase(s, t);
	return suite_run(s);
}
