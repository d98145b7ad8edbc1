/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared receive queues, datagrams, and the extended verbs with the switch that hides them. */
#include "../suite.h"
#include "pair.h"

static void open_with_srq(struct pair *p, uint32_t depth)
{
	struct ibv_srq_init_attr a = {.attr = {.max_wr = depth, .max_sge = 2}};

	p->ctx = open_first();
	p->depth = 16;
	p->cqe = 64;
	p->rnr_retry = p->rnr_retry ? p->rnr_retry : 7;
	p->rnr_timer = 12;
	p->access = IBV_ACCESS_LOCAL_WRITE;
	end_open(p, &p->a);
	p->b.pd = ibv_alloc_pd(p->ctx);
	p->b.srq = ibv_create_srq(p->b.pd, &a);
	ck_assert_ptr_nonnull(p->b.srq);

	struct ibv_pd *pd = p->b.pd;
	end_open(p, &p->b);
	/* The QP's PD needn't be the SRQ's; the SRQ's is what its SGEs are checked against. */
	ck_assert_int_eq(ibv_dereg_mr(p->b.mr), 0);
	p->b.mr = ibv_reg_mr(pd, p->b.buf, PAIR_BUF, p->access);
	end_join(p, &p->a, &p->b);
	end_join(p, &p->b, &p->a);
}

static void close_with_srq(struct pair *p)
{
	struct ibv_pd *pd = p->b.mr->pd;

	end_close(&p->a);
	end_close(&p->b);
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
	ck_assert_int_eq(ibv_close_device(p->ctx), 0);
}

START_TEST(test_srq)
{
	struct pair p = {0};
	struct ibv_srq_attr m = {.srq_limit = 2};
	struct ibv_async_event ev;
	struct ibv_recv_wr *bad, wr = {0};

	open_with_srq(&p, 4);
	ck_assert_int_eq(ibv_post_recv(p.b.qp, &wr, &bad), EINVAL);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(recv_op(&p.b, i, 0, 8), 0);
	ck_assert_int_eq(recv_op(&p.b, 4, 0, 8), ENOMEM);
	ck_assert_int_eq(ibv_modify_srq(p.b.srq, &m, IBV_SRQ_LIMIT), 0);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(send_op(&p.a, i, 0, 8, 0), 0);
	/* Law 3: taken, but not polled, is not free. */
	ck_assert_int_eq(recv_op(&p.b, 4, 0, 8), ENOMEM);
	expect(p.b.rcq, 0, IBV_WC_SUCCESS);
	ck_assert_int_eq(recv_op(&p.b, 4, 0, 8), 0);
	ck_assert_int_eq(ibv_get_async_event(p.ctx, &ev), 0);
	ck_assert_int_eq(ev.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
	ck_assert_ptr_eq(ev.element.srq, p.b.srq);
	ibv_ack_async_event(&ev);
	ck_assert_int_eq(ibv_query_srq(p.b.srq, &m), 0);
	ck_assert_uint_eq(m.srq_limit, 0); /* once */
	m.max_wr = 8;
	ck_assert_int_eq(ibv_modify_srq(p.b.srq, &m, IBV_SRQ_MAX_WR), 0);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(recv_op(&p.b, 5 + i, 0, 8), 0);
	ck_assert_int_eq(recv_op(&p.b, 9, 0, 8), ENOMEM);
	ck_assert_int_eq(ibv_destroy_srq(p.b.srq), EBUSY);
	close_with_srq(&p);
}
END_TEST

START_TEST(test_srq_waiting_senders)
{
	struct pair p = {0};

	open_with_srq(&p, 4);
	ck_assert_int_eq(send_op(&p.a, 1, 0, 8, IBV_SEND_SIGNALED), 0);
	expect_none(p.a.scq);
	ck_assert_int_eq(recv_op(&p.b, 2, 0, 8), 0);
	expect(p.a.scq, 1, IBV_WC_SUCCESS);
	expect(p.b.rcq, 2, IBV_WC_SUCCESS);
	close_with_srq(&p);
}
END_TEST

/* Law 2.9 */
START_TEST(test_srq_last_wqe)
{
	struct pair p = {0};
	struct ibv_qp_attr q = {.qp_state = IBV_QPS_ERR};
	struct ibv_async_event ev;

	open_with_srq(&p, 4);
	ck_assert_int_eq(recv_op(&p.b, 2, 0, 8), 0);
	ck_assert_int_eq(ibv_modify_qp(p.b.qp, &q, IBV_QP_STATE), 0);
	expect_none(p.b.rcq); /* the receive is the SRQ's */
	ck_assert_int_eq(ibv_get_async_event(p.ctx, &ev), 0);
	ck_assert_int_eq(ev.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
	ibv_ack_async_event(&ev);
	close_with_srq(&p);
}
END_TEST

/* ---- datagrams ---- */

struct ud {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp[2];
	struct ibv_mr *mr;
	struct ibv_ah *ah;
	char buf[16384];
};

static void open_ud(struct ud *u)
{
	struct ibv_ah_attr ah = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = 1}};

	u->ctx = open_first();
	u->pd = ibv_alloc_pd(u->ctx);
	u->cq = ibv_create_cq(u->ctx, 64, NULL, NULL, 0);
	u->mr = ibv_reg_mr(u->pd, u->buf, sizeof u->buf, IBV_ACCESS_LOCAL_WRITE);
	ck_assert(u->pd && u->cq && u->mr);
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_UD,
					     .send_cq = u->cq,
					     .recv_cq = u->cq,
					     .cap = {8, 8, 2, 2, 0}};
		struct ibv_qp_attr q = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 7};

		u->qp[i] = ibv_create_qp(u->pd, &a);
		ck_assert_ptr_nonnull(u->qp[i]);
		ck_assert_int_eq(
			ibv_modify_qp(u->qp[i], &q,
				      IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_QKEY),
			0);
		q.qp_state = IBV_QPS_RTR;
		ck_assert_int_eq(ibv_modify_qp(u->qp[i], &q, IBV_QP_STATE), 0);
		q.qp_state = IBV_QPS_RTS;
		ck_assert_int_eq(ibv_modify_qp(u->qp[i], &q, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
	}
	ck_assert_int_eq(ibv_query_gid(u->ctx, 1, 1, &ah.grh.dgid), 0);
	u->ah = ibv_create_ah(u->pd, &ah);
	ck_assert_ptr_nonnull(u->ah);
}

static void close_ud(struct ud *u)
{
	ck_assert_int_eq(ibv_destroy_ah(u->ah), 0);
	ck_assert_int_eq(ibv_destroy_qp(u->qp[0]), 0);
	ck_assert_int_eq(ibv_destroy_qp(u->qp[1]), 0);
	ck_assert_int_eq(ibv_destroy_cq(u->cq), 0);
	ck_assert_int_eq(ibv_dereg_mr(u->mr), 0);
	ck_assert_int_eq(ibv_dealloc_pd(u->pd), 0);
	ck_assert_int_eq(ibv_close_device(u->ctx), 0);
	free(u);
}

static void ud_recv(struct ud *u, int to, uint64_t id, uint32_t len)
{
	struct ibv_sge s = {(uintptr_t)u->buf, len, u->mr->lkey};
	struct ibv_recv_wr *bad, wr = {.wr_id = id, .sg_list = &s, .num_sge = 1};

	ck_assert_int_eq(ibv_post_recv(u->qp[to], &wr, &bad), 0);
}

static int ud_send(struct ud *u, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey, uint32_t len)
{
	struct ibv_sge s = {(uintptr_t)u->buf + 8192, len, u->mr->lkey};
	struct ibv_send_wr *bad,
		wr = {.wr_id = 1, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND};

	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = qpn;
	wr.wr.ud.remote_qkey = qkey;
	return ibv_post_send(u->qp[0], &wr, &bad);
}

START_TEST(test_ud)
{
	struct ud *u = calloc(1, sizeof *u);
	struct ibv_ah *back;
	struct ibv_wc wc;

	open_ud(u);
	strcpy(u->buf + 8192, "datagram");
	ud_recv(u, 1, 5, 200);
	/* A wrong Q_Key, a QP that isn't there: nobody is told. */
	ck_assert_int_eq(ud_send(u, u->ah, u->qp[1]->qp_num, 8, 9), 0);
	ck_assert_int_eq(ud_send(u, u->ah, 999, 7, 9), 0);
	expect_none(u->cq);
	ck_assert_int_eq(ud_send(u, u->ah, u->qp[1]->qp_num, 7, 9), 0);
	wc = expect(u->cq, 5, IBV_WC_SUCCESS);
	ck_assert_uint_eq(wc.byte_len, 49);
	ck_assert_uint_eq(wc.wc_flags, IBV_WC_GRH);
	ck_assert_uint_eq(wc.src_qp, u->qp[0]->qp_num);
	ck_assert_str_eq(u->buf + 40, "datagram");
	/* The way back, made of the header. */
	back = ibv_create_ah_from_wc(u->pd, &wc, (struct ibv_grh *)u->buf, 1);
	ck_assert_ptr_nonnull(back);
	ud_recv(u, 0, 6, 200);
	ck_assert_int_eq(ud_send(u, back, wc.src_qp, 0x80000000u, 9), 0);
	expect(u->cq, 6, IBV_WC_SUCCESS);
	ck_assert_int_eq(ibv_destroy_ah(back), 0);
	/* No receive: lost, and not kept for later. */
	ck_assert_int_eq(ud_send(u, u->ah, u->qp[1]->qp_num, 7, 9), 0);
	ud_recv(u, 1, 7, 200);
	expect_none(u->cq);
	ck_assert_int_eq(ud_send(u, u->ah, u->qp[1]->qp_num, 7, 4097), EINVAL);
	close_ud(u);
}
END_TEST

START_TEST(test_multicast)
{
	struct ud *u = calloc(1, sizeof *u);
	struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1};
	struct ibv_ah *group;

	open_ud(u);
	attr.grh.dgid.raw[0] = 0xff;
	attr.grh.dgid.raw[15] = 9;
	group = ibv_create_ah(u->pd, &attr);
	ck_assert_int_eq(ibv_attach_mcast(u->qp[1], &attr.grh.dgid, 0), 0);
	ck_assert_int_eq(ibv_destroy_qp(u->qp[1]), EBUSY);
	ud_recv(u, 1, 5, 200);
	ck_assert_int_eq(ud_send(u, group, 0xffffff, 7, 9), 0);
	expect(u->cq, 5, IBV_WC_SUCCESS);
	ck_assert_int_eq(ibv_detach_mcast(u->qp[1], &attr.grh.dgid, 0), 0);
	ud_recv(u, 1, 6, 200);
	ck_assert_int_eq(ud_send(u, group, 0xffffff, 7, 9), 0);
	expect_none(u->cq);
	ck_assert_int_eq(ibv_destroy_ah(group), 0);
	close_ud(u);
}
END_TEST

/* ---- extended verbs ---- */

START_TEST(test_cq_ex)
{
	struct pair p = {0};
	struct ibv_cq_init_attr_ex a = {.cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS};
	struct ibv_poll_cq_attr poll = {0};
	struct ibv_cq_ex *ex;
	struct ibv_qp_init_attr qa = {.qp_type = IBV_QPT_RC, .cap = {16, 16, 4, 4, 0}};
	struct ibv_qp_attr q = {.qp_state = IBV_QPS_INIT, .port_num = 1};

	pair_init(&p);
	ex = ibv_create_cq_ex(p.ctx, &a);
	ck_assert_ptr_nonnull(ex);
	ck_assert_int_eq(ibv_destroy_qp(p.b.qp), 0);
	qa.send_cq = qa.recv_cq = ibv_cq_ex_to_cq(ex);
	p.b.qp = ibv_create_qp(p.b.pd, &qa);
	ck_assert_int_eq(
		ibv_modify_qp(p.b.qp, &q,
			      IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS),
		0);
	end_join(&p, &p.a, &p.b);
	end_join(&p, &p.b, &p.a);
	ck_assert_int_eq(ibv_start_poll(ex, &poll), ENOENT);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(recv_op(&p.b, 10 + i, 0, 64), 0);
		ck_assert_int_eq(send_op(&p.a, i, 0, 5, 0), 0);
	}
	ck_assert_int_eq(ibv_start_poll(ex, &poll), 0);
	ck_assert_uint_eq(ex->wr_id, 10);
	ck_assert_int_eq(ex->status, IBV_WC_SUCCESS);
	ck_assert_int_eq(ibv_wc_read_opcode(ex), IBV_WC_RECV);
	ck_assert_uint_eq(ibv_wc_read_byte_len(ex), 5);
	ck_assert_uint_eq(ibv_wc_read_qp_num(ex), p.b.qp->qp_num);
	ck_assert_int_eq(ibv_next_poll(ex), 0);
	ck_assert_uint_eq(ex->wr_id, 11);
	ck_assert_int_eq(ibv_next_poll(ex), ENOENT);
	ibv_end_poll(ex);
	ck_assert_int_eq(ibv_destroy_qp(p.b.qp), 0);
	p.b.qp = NULL;
	ck_assert_int_eq(ibv_destroy_cq(ibv_cq_ex_to_cq(ex)), 0);
	pair_close(&p);
}
END_TEST

/* A pair whose a side is built with ibv_wr_*. */
static struct ibv_qp_ex *open_wr(struct pair *p)
{
	struct ibv_qp_init_attr_ex a = {
		.qp_type = IBV_QPT_RC,
		.cap = {4, 4, 2, 2, 32},
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags =
			IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ};
	struct ibv_qp_attr q = {.qp_state = IBV_QPS_INIT, .port_num = 1};

	pair_init(p);
	ck_assert_ptr_null(ibv_qp_to_qp_ex(p->a.qp));
	ck_assert_int_eq(ibv_destroy_qp(p->a.qp), 0);
	a.pd = p->a.pd;
	a.send_cq = p->a.scq;
	a.recv_cq = p->a.rcq;
	p->a.qp = ibv_create_qp_ex(p->ctx, &a);
	ck_assert_ptr_nonnull(p->a.qp);
	ck_assert_int_eq(
		ibv_modify_qp(p->a.qp, &q,
			      IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS),
		0);
	end_join(p, &p->a, &p->b);
	end_join(p, &p->b, &p->a);
	return ibv_qp_to_qp_ex(p->a.qp);
}

START_TEST(test_wr)
{
	struct pair p = {0};
	struct ibv_qp_ex *q = open_wr(&p);
	char inl[] = "in line";

	strcpy(p.a.buf, "a write");
	ck_assert_int_eq(recv_op(&p.b, 9, 200, 64), 0);
	ibv_wr_start(q);
	q->wr_id = 1;
	q->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(q, p.b.mr->rkey, (uintptr_t)p.b.buf);
	ibv_wr_set_sge(q, p.a.mr->lkey, (uintptr_t)p.a.buf, 8);
	q->wr_id = 2;
	ibv_wr_send(q);
	ibv_wr_set_inline_data(q, inl, sizeof inl);
	expect_none(p.a.scq); /* nothing moves before complete */
	ck_assert_int_eq(ibv_wr_complete(q), 0);
	expect(p.a.scq, 1, IBV_WC_SUCCESS);
	expect(p.a.scq, 2, IBV_WC_SUCCESS);
	ck_assert_str_eq(p.b.buf, "a write");
	ck_assert_str_eq(p.b.buf + 200, "in line");
	/* Dropped as a whole. */
	ibv_wr_start(q);
	ibv_wr_send(q);
	ibv_wr_abort(q);
	/* One too many, or too long: all of it is refused. */
	ibv_wr_start(q);
	for (int i = 0; i < 5; i++) {
		ibv_wr_rdma_write(q, p.b.mr->rkey, (uintptr_t)p.b.buf);
		ibv_wr_set_sge(q, p.a.mr->lkey, (uintptr_t)p.a.buf, 8);
	}
	ck_assert_int_eq(ibv_wr_complete(q), ENOMEM);
	ibv_wr_start(q);
	ibv_wr_send(q);
	ibv_wr_set_inline_data(q, p.a.buf, 33);
	ck_assert_int_eq(ibv_wr_complete(q), EINVAL);
	expect_none(p.a.scq);
	pair_close(&p);
}
END_TEST

START_TEST(test_parent_domain)
{
	struct ibv_context *ctx = open_first();
	struct ibv_td_init_attr ta = {0};
	struct ibv_td *td = ibv_alloc_td(ctx, &ta);
	struct ibv_parent_domain_init_attr a = {.pd = ibv_alloc_pd(ctx), .td = td};
	struct ibv_pd *parent = ibv_alloc_parent_domain(ctx, &a);

	ck_assert(td && parent);
	ck_assert_int_eq(ibv_dealloc_pd(a.pd), EBUSY);
	ck_assert_int_eq(ibv_dealloc_pd(parent), 0);
	ck_assert_int_eq(ibv_dealloc_pd(a.pd), 0);
	ck_assert_int_eq(ibv_dealloc_td(td), 0);
	ck_assert_int_eq(ibv_close_device(ctx), 0);
}
END_TEST

/* Without extended verbs everything falls back: law 6. */
START_TEST(test_hidden)
{
	struct ibv_cq_init_attr_ex ca = {.cqe = 16};
	struct ibv_td_init_attr ta = {0};
	struct ibv_device_attr_ex dev;
	struct ibv_port_attr port;
	struct ibv_context *ctx;

	ck_assert_int_eq(sv_set("soft0", "no_extended", 1), 0);
	ctx = open_first();
	ck_assert_ptr_null(verbs_get_ctx(ctx));
	ck_assert_ptr_null(ibv_create_cq_ex(ctx, &ca));
	ck_assert_int_eq(errno, EOPNOTSUPP);
	ck_assert_ptr_null(ibv_alloc_td(ctx, &ta));
	ck_assert_int_eq(ibv_query_device_ex(ctx, NULL, &dev), 0);
	ck_assert_int_eq(dev.orig_attr.max_sge, 32);
	ck_assert_int_eq(ibv_query_port(ctx, 1, &port), 0);
	ck_assert_int_eq(port.link_layer, IBV_LINK_LAYER_ETHERNET);
	ck_assert_int_eq(ibv_close_device(ctx), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("softverbs extended");
	TCase *t = tcase_create("extended");

	tcase_add_test(t, test_srq);
	tcase_add_test(t, test_srq_waiting_senders);
	tcase_add_test(t, test_srq_last_wqe);
	tcase_add_test(t, test_ud);
	tcase_add_test(t, test_multicast);
	tcase_add_test(t, test_cq_ex);
	tcase_add_test(t, test_wr);
	tcase_add_test(t, test_parent_domain);
	tcase_add_test(t, test_hidden);
	suite_add_tcase(s, t);
	return suite_run(s);
}
