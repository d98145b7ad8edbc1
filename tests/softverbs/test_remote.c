/* SPDX-License-Identifier: BSD-2-Clause */
/* One-sided operations, windows, and what a peer may not do. */
#include <sys/mman.h>
#include <unistd.h>

#include "../suite.h"
#include "pair.h"

static int rdma_op(struct pair *p, enum ibv_wr_opcode op, uint64_t raddr, uint32_t rkey,
		   uint32_t len)
{
	struct ibv_sge s = sge_of(&p->a, 0, len);
	struct ibv_send_wr *bad, wr = {.wr_id = 1,
				       .sg_list = &s,
				       .num_sge = 1,
				       .opcode = op,
				       .send_flags = IBV_SEND_SIGNALED};

	wr.wr.rdma.remote_addr = raddr;
	wr.wr.rdma.rkey = rkey;
	return ibv_post_send(p->a.qp, &wr, &bad);
}

static uint64_t b_at(const struct pair *p, size_t off)
{
	return (uintptr_t)p->b.buf + off;
}

START_TEST(test_write_and_read)
{
	struct pair p = {0};
	struct ibv_wc wc;

	pair_open(&p);
	strcpy(p.a.buf, "written");
	ck_assert_int_eq(rdma_op(&p, IBV_WR_RDMA_WRITE, b_at(&p, 50), p.b.mr->rkey, 8), 0);
	wc = expect(p.a.scq, 1, IBV_WC_SUCCESS);
	ck_assert_int_eq(wc.opcode, IBV_WC_RDMA_WRITE);
	ck_assert_str_eq(p.b.buf + 50, "written");
	strcpy(p.b.buf + 100, "read");
	ck_assert_int_eq(rdma_op(&p, IBV_WR_RDMA_READ, b_at(&p, 100), p.b.mr->rkey, 5), 0);
	wc = expect(p.a.scq, 1, IBV_WC_SUCCESS);
	ck_assert_int_eq(wc.opcode, IBV_WC_RDMA_READ);
	ck_assert_uint_eq(wc.byte_len, 5);
	ck_assert_str_eq(p.a.buf, "read");
	expect_none(p.b.rcq);
	pair_close(&p);
}
END_TEST

START_TEST(test_write_imm)
{
	struct pair p = {.rnr_retry = 7};
	struct ibv_wc wc;

	pair_open(&p);
	strcpy(p.a.buf, "imm");
	ck_assert_int_eq(rdma_op(&p, IBV_WR_RDMA_WRITE_WITH_IMM, b_at(&p, 0), p.b.mr->rkey, 4), 0);
	expect_none(p.a.scq); /* it waits for a receive */
	ck_assert_int_eq(p.b.buf[0], 0);
	ck_assert_int_eq(recv_op(&p.b, 3, 0, 0), 0);
	wc = expect(p.b.rcq, 3, IBV_WC_SUCCESS);
	ck_assert_int_eq(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	ck_assert_uint_eq(wc.byte_len, 4);
	expect(p.a.scq, 1, IBV_WC_SUCCESS);
	ck_assert_str_eq(p.b.buf, "imm");
	pair_close(&p);
}
END_TEST

static const struct {
	const char *what;
	enum ibv_wr_opcode op;
	size_t off;
	uint32_t key; /* xored into the rkey */
	int access;
} refusals[] = {
	{"past the end", IBV_WR_RDMA_WRITE, PAIR_BUF - 4, 0, 0},
	{"no such key", IBV_WR_RDMA_WRITE, 0, 0xffff00, 0},
	{"the lkey", IBV_WR_RDMA_WRITE, 0, 0x80, 0},
	{"no right to write", IBV_WR_RDMA_WRITE, 0, 0,
	 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ},
	{"no right to read", IBV_WR_RDMA_READ, 0, 0,
	 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE},
	{"before the start", IBV_WR_RDMA_READ, (size_t)-8, 0, 0},
};

START_TEST(test_refused)
{
	struct pair p = {.access = refusals[_i].access};
	struct ibv_async_event ev;

	pair_open(&p);
	strcpy(p.a.buf, "aaaaaaa");
	ck_assert_int_eq(recv_op(&p.b, 9, 0, 8), 0);
	ck_assert_int_eq(rdma_op(&p, refusals[_i].op, b_at(&p, refusals[_i].off),
				 p.b.mr->rkey ^ refusals[_i].key, 8),
			 0);
	expect(p.a.scq, 1, IBV_WC_REM_ACCESS_ERR);
	expect(p.b.rcq, 9, IBV_WC_WR_FLUSH_ERR);
	ck_assert_int_eq(p.b.buf[PAIR_BUF - 1], 0);
	ck_assert_str_eq(p.a.buf, "aaaaaaa");
	ck_assert_int_eq(ibv_get_async_event(p.ctx, &ev), 0);
	ck_assert_int_eq(ev.event_type, IBV_EVENT_QP_ACCESS_ERR);
	ck_assert_ptr_eq(ev.element.qp, p.b.qp);
	ibv_ack_async_event(&ev);
	pair_close(&p);
}
END_TEST

/* What the QP was given counts as much as the region. */
START_TEST(test_qp_rights)
{
	struct pair p = {0};
	struct ibv_qp_attr q = {.qp_access_flags = IBV_ACCESS_REMOTE_READ};
	struct ibv_async_event ev;

	pair_open(&p);
	ck_assert_int_eq(ibv_modify_qp(p.b.qp, &q, IBV_QP_ACCESS_FLAGS), 0);
	ck_assert_int_eq(rdma_op(&p, IBV_WR_RDMA_WRITE, b_at(&p, 0), p.b.mr->rkey, 8), 0);
	expect(p.a.scq, 1, IBV_WC_REM_ACCESS_ERR);
	ck_assert_int_eq(ibv_get_async_event(p.ctx, &ev), 0);
	ibv_ack_async_event(&ev);
	pair_close(&p);
}
END_TEST

START_TEST(test_atomics)
{
	struct pair p = {0};
	uint64_t v = 40, got;
	struct ibv_sge s;
	struct ibv_send_wr *bad, wr = {.sg_list = &s,
				       .num_sge = 1,
				       .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
				       .send_flags = IBV_SEND_SIGNALED};

	pair_open(&p);
	s = sge_of(&p.a, 0, 8);
	memcpy(p.b.buf, &v, 8);
	wr.wr.atomic.remote_addr = b_at(&p, 0);
	wr.wr.atomic.rkey = p.b.mr->rkey;
	wr.wr.atomic.compare_add = 2;
	ck_assert_int_eq(ibv_post_send(p.a.qp, &wr, &bad), 0);
	expect(p.a.scq, 0, IBV_WC_SUCCESS);
	memcpy(&got, p.a.buf, 8);
	memcpy(&v, p.b.buf, 8);
	ck_assert_uint_eq(got, 40);
	ck_assert_uint_eq(v, 42);
	wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
	for (uint64_t want = 42; want < 44; want++) { /* the second time it's not there any more */
		wr.wr.atomic.compare_add = want;
		wr.wr.atomic.swap = 7;
		ck_assert_int_eq(ibv_post_send(p.a.qp, &wr, &bad), 0);
		ck_assert_int_eq(expect(p.a.scq, 0, IBV_WC_SUCCESS).opcode, IBV_WC_COMP_SWAP);
		memcpy(&v, p.b.buf, 8);
		ck_assert_uint_eq(v, 7);
	}
	wr.wr.atomic.remote_addr = b_at(&p, 4);
	ck_assert_int_eq(ibv_post_send(p.a.qp, &wr, &bad), 0);
	expect(p.a.scq, 0, IBV_WC_REM_INV_REQ_ERR);
	pair_close(&p);
}
END_TEST

START_TEST(test_order_of_a_chain)
{
	struct pair p = {0};
	struct ibv_send_wr wr[3] = {0}, *bad;
	struct ibv_sge s[3];

	/* WRITE, READ it back, SEND: each sees what came before. */
	pair_open(&p);
	strcpy(p.a.buf, "one");
	for (int i = 0; i < 3; i++) {
		s[i] = sge_of(&p.a, i == 1 ? 100 : 0, 4);
		wr[i] = (struct ibv_send_wr){.wr_id = (uint64_t)i,
					     .next = i < 2 ? &wr[i + 1] : NULL,
					     .sg_list = &s[i],
					     .num_sge = 1,
					     .send_flags = IBV_SEND_SIGNALED};
		wr[i].wr.rdma.remote_addr = b_at(&p, 200);
		wr[i].wr.rdma.rkey = p.b.mr->rkey;
	}
	wr[0].opcode = IBV_WR_RDMA_WRITE;
	wr[1].opcode = IBV_WR_RDMA_READ;
	wr[2].opcode = IBV_WR_SEND;
	wr[2].send_flags |= IBV_SEND_FENCE;
	ck_assert_int_eq(recv_op(&p.b, 9, 0, 8), 0);
	ck_assert_int_eq(ibv_post_send(p.a.qp, wr, &bad), 0);
	for (uint64_t i = 0; i < 3; i++)
		expect(p.a.scq, i, IBV_WC_SUCCESS);
	ck_assert_str_eq(p.a.buf + 100, "one");
	ck_assert_str_eq(p.b.buf, "one");
	pair_close(&p);
}
END_TEST

/* ---- windows ---- */

static int post_bind(struct pair *p, struct ibv_mw *mw, uint32_t rkey, size_t off, uint64_t len)
{
	struct ibv_send_wr *bad,
		wr = {.wr_id = 70, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED};

	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = rkey;
	wr.bind_mw.bind_info =
		(struct ibv_mw_bind_info){p->b.mr, b_at(p, off), len, IBV_ACCESS_REMOTE_WRITE};
	return ibv_post_send(p->b.qp, &wr, &bad);
}

static void open_with_window(struct pair *p, struct ibv_mw **mw, uint32_t *rkey)
{
	p->access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
	pair_open(p);
	*mw = ibv_alloc_mw(p->b.pd, IBV_MW_TYPE_2);
	ck_assert_ptr_nonnull(*mw);
	*rkey = ibv_inc_rkey((*mw)->rkey);
	ck_assert_int_eq(post_bind(p, *mw, *rkey, 1000, 100), 0);
	ck_assert_int_eq(expect(p->b.scq, 70, IBV_WC_SUCCESS).opcode, IBV_WC_BIND_MW);
}

START_TEST(test_window)
{
	struct pair p = {0};
	struct ibv_async_event ev;
	struct ibv_mw *mw;
	uint32_t rkey;

	open_with_window(&p, &mw, &rkey);
	ck_assert_int_eq(ibv_dereg_mr(p.b.mr), EBUSY);
	ck_assert_int_eq(rdma_op(&p, IBV_WR_RDMA_WRITE, b_at(&p, 1000), rkey, 100), 0);
	expect(p.a.scq, 1, IBV_WC_SUCCESS);
	/* One byte past the window, though inside the region. */
	ck_assert_int_eq(rdma_op(&p, IBV_WR_RDMA_WRITE, b_at(&p, 1001), rkey, 100), 0);
	expect(p.a.scq, 1, IBV_WC_REM_ACCESS_ERR);
	ck_assert_int_eq(ibv_get_async_event(p.ctx, &ev), 0);
	ibv_ack_async_event(&ev);
	ck_assert_int_eq(ibv_dealloc_mw(mw), 0);
	pair_close(&p);
}
END_TEST

START_TEST(test_window_ends)
{
	struct pair p = {0};
	struct ibv_async_event ev;
	struct ibv_mw *mw;
	uint32_t rkey;
	struct ibv_send_wr *bad, wr = {.opcode = _i ? IBV_WR_SEND_WITH_INV : IBV_WR_LOCAL_INV,
				       .send_flags = IBV_SEND_SIGNALED};

	open_with_window(&p, &mw, &rkey);
	wr.invalidate_rkey = rkey;
	if (_i) {
		ck_assert_int_eq(recv_op(&p.b, 5, 0, 8), 0);
		ck_assert_int_eq(ibv_post_send(p.a.qp, &wr, &bad), 0);
		struct ibv_wc wc = expect(p.b.rcq, 5, IBV_WC_SUCCESS);

		ck_assert_uint_eq(wc.wc_flags, IBV_WC_WITH_INV);
		ck_assert_uint_eq(wc.invalidated_rkey, rkey);
		expect(p.a.scq, 0, IBV_WC_SUCCESS);
	} else {
		ck_assert_int_eq(ibv_post_send(p.b.qp, &wr, &bad), 0);
		ck_assert_int_eq(expect(p.b.scq, 0, IBV_WC_SUCCESS).opcode, IBV_WC_LOCAL_INV);
	}
	ck_assert_int_eq(rdma_op(&p, IBV_WR_RDMA_WRITE, b_at(&p, 1000), rkey, 8), 0);
	expect(p.a.scq, 1, IBV_WC_REM_ACCESS_ERR);
	ck_assert_int_eq(ibv_get_async_event(p.ctx, &ev), 0);
	ibv_ack_async_event(&ev);
	ck_assert_int_eq(ibv_dealloc_mw(mw), 0);
	pair_close(&p);
}
END_TEST

START_TEST(test_window_type_1)
{
	struct pair p = {.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND};
	struct ibv_mw_bind b = {.wr_id = 4, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_mw *mw;
	uint32_t before;

	pair_open(&p);
	mw = ibv_alloc_mw(p.b.pd, IBV_MW_TYPE_1);
	ck_assert_ptr_nonnull(mw);
	before = mw->rkey;
	b.bind_info = (struct ibv_mw_bind_info){p.b.mr, b_at(&p, 0), 64, IBV_ACCESS_REMOTE_WRITE};
	ck_assert_int_eq(ibv_bind_mw(p.b.qp, mw, &b), 0);
	expect(p.b.scq, 4, IBV_WC_SUCCESS);
	ck_assert_uint_ne(mw->rkey, before);
	ck_assert_int_eq(rdma_op(&p, IBV_WR_RDMA_WRITE, b_at(&p, 0), mw->rkey, 64), 0);
	expect(p.a.scq, 1, IBV_WC_SUCCESS);
	ck_assert_int_eq(ibv_dealloc_mw(mw), 0);
	pair_close(&p);
}
END_TEST

/* ---- other regions ---- */

START_TEST(test_iova)
{
	struct pair p = {0};
	struct ibv_mr *mr;

	pair_open(&p);
	mr = ibv_reg_mr_iova(p.b.pd, p.b.buf, 4096, 0x10000,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	ck_assert_ptr_nonnull(mr);
	strcpy(p.a.buf, "iova");
	ck_assert_int_eq(rdma_op(&p, IBV_WR_RDMA_WRITE, 0x10010, mr->rkey, 5), 0);
	expect(p.a.scq, 1, IBV_WC_SUCCESS);
	ck_assert_str_eq(p.b.buf + 0x10, "iova");
	ck_assert_int_eq(ibv_dereg_mr(mr), 0);
	pair_close(&p);
}
END_TEST

START_TEST(test_dmabuf)
{
	struct pair p = {0};
	int fd = memfd_create("buf", 0);
	char text[8] = "";
	struct ibv_mr *mr;

	ck_assert_int_eq(ftruncate(fd, 16384), 0);
	pair_open(&p);
	ck_assert_ptr_null(ibv_reg_dmabuf_mr(p.b.pd, 8192, 8193, 8192, fd, 0));
	ck_assert_int_eq(errno, EINVAL); /* past its end */
	ck_assert_ptr_null(ibv_reg_dmabuf_mr(p.b.pd, 100, 100, 0, fd, 0));
	ck_assert_int_eq(errno, EINVAL); /* another place in the page */
	mr = ibv_reg_dmabuf_mr(p.b.pd, 4196, 1000, 0x70000064, fd,
			       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	ck_assert_ptr_nonnull(mr);
	strcpy(p.a.buf, "dmabuf");
	ck_assert_int_eq(rdma_op(&p, IBV_WR_RDMA_WRITE, 0x70000064, mr->rkey, 7), 0);
	expect(p.a.scq, 1, IBV_WC_SUCCESS);
	ck_assert_int_eq(pread(fd, text, 7, 4196), 7);
	ck_assert_str_eq(text, "dmabuf");
	ck_assert_int_eq(ibv_dereg_mr(mr), 0);
	pair_close(&p);
	close(fd);
}
END_TEST

START_TEST(test_rereg)
{
	struct pair p = {.access = IBV_ACCESS_LOCAL_WRITE};

	pair_open(&p);
	ck_assert_int_eq(ibv_rereg_mr(p.b.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
				      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE),
			 0);
	ck_assert_int_eq(rdma_op(&p, IBV_WR_RDMA_WRITE, b_at(&p, 0), p.b.mr->rkey, 8), 0);
	expect(p.a.scq, 1, IBV_WC_SUCCESS);
	ck_assert_int_eq(ibv_rereg_mr(p.b.mr, 0, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
	pair_close(&p);
}
END_TEST

/* An old key of a region that is gone opens nothing, though its index is in use again. */
START_TEST(test_stale_key)
{
	struct pair p = {0};
	struct ibv_async_event ev;
	uint32_t old;

	pair_open(&p);
	old = p.b.mr->rkey;
	for (int i = 0; i < 200; i++) {
		ck_assert_int_eq(ibv_dereg_mr(p.b.mr), 0);
		p.b.mr = ibv_reg_mr(p.b.pd, p.b.buf, PAIR_BUF, p.access);
		ck_assert_ptr_nonnull(p.b.mr);
		ck_assert_uint_ne(p.b.mr->rkey, old);
	}
	ck_assert_int_eq(rdma_op(&p, IBV_WR_RDMA_WRITE, b_at(&p, 0), old, 8), 0);
	expect(p.a.scq, 1, IBV_WC_REM_ACCESS_ERR);
	ck_assert_int_eq(ibv_get_async_event(p.ctx, &ev), 0);
	ibv_ack_async_event(&ev);
	pair_close(&p);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("softverbs remote");
	TCase *t = tcase_create("remote");

	tcase_add_test(t, test_write_and_read);
	tcase_add_test(t, test_write_imm);
	tcase_add_loop_test(t, test_refused, 0, (int)(sizeof refusals / sizeof *refusals));
	tcase_add_test(t, test_qp_rights);
	tcase_add_test(t, test_atomics);
	tcase_add_test(t, test_order_of_a_chain);
	tcase_add_test(t, test_window);
	tcase_add_loop_test(t, test_window_ends, 0, 2);
	tcase_add_test(t, test_window_type_1);
	tcase_add_test(t, test_iova);
	tcase_add_test(t, test_dmabuf);
	tcase_add_test(t, test_rereg);
	tcase_add_test(t, test_stale_key);
	suite_add_tcase(s, t);
	return suite_run(s);
}
