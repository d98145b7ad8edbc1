/* SPDX-License-Identifier: BSD-2-Clause */
/* SEND and RECV between two queue pairs, and every way in which they end. */
#include "../suite.h"
#include "pair.h"

START_TEST(test_send_recv)
{
	struct pair p = {0};
	struct ibv_wc wc;

	pair_open(&p);
	strcpy(p.a.buf, "hello");
	ck_assert_int_eq(recv_op(&p.b, 7, 100, 1000), 0);
	ck_assert_int_eq(send_op(&p.a, 8, 0, 6, IBV_SEND_SIGNALED), 0);
	wc = expect(p.b.rcq, 7, IBV_WC_SUCCESS);
	ck_assert_uint_eq(wc.byte_len, 6);
	ck_assert_int_eq(wc.opcode, IBV_WC_RECV);
	ck_assert_uint_eq(wc.qp_num, p.b.qp->qp_num);
	ck_assert_str_eq(p.b.buf + 100, "hello");
	wc = expect(p.a.scq, 8, IBV_WC_SUCCESS);
	ck_assert_int_eq(wc.opcode, IBV_WC_SEND);
	expect_none(p.a.rcq);
	expect_none(p.b.scq);
	pair_close(&p);
}
END_TEST

START_TEST(test_gather_scatter)
{
	struct pair p = {0};

	pair_open(&p);
	for (int i = 0; i < 4096; i++)
		p.a.buf[i] = (char)(i * 7 + i / 256);
	struct ibv_sge from[3] = {sge_of(&p.a, 0, 100), sge_of(&p.a, 100, 0),
				  sge_of(&p.a, 100, 3000)};
	struct ibv_sge to[4] = {sge_of(&p.b, 5, 1), sge_of(&p.b, 1000, 1000),
				sge_of(&p.b, 2000, 99), sge_of(&p.b, 3000, 2100)};
	struct ibv_send_wr *bad, swr = {.sg_list = from,
					.num_sge = 3,
					.opcode = IBV_WR_SEND_WITH_IMM,
					.imm_data = 0x12345678,
					.send_flags = IBV_SEND_SIGNALED};
	struct ibv_recv_wr *rbad, rwr = {.sg_list = to, .num_sge = 4};

	ck_assert_int_eq(ibv_post_recv(p.b.qp, &rwr, &rbad), 0);
	ck_assert_int_eq(ibv_post_send(p.a.qp, &swr, &bad), 0);
	struct ibv_wc wc = expect(p.b.rcq, 0, IBV_WC_SUCCESS);

	ck_assert_uint_eq(wc.byte_len, 3100);
	ck_assert_uint_eq(wc.wc_flags, IBV_WC_WITH_IMM);
	ck_assert_uint_eq(wc.imm_data, 0x12345678);
	ck_assert(p.b.buf[5] == p.a.buf[0]);
	ck_assert(!memcmp(p.b.buf + 1000, p.a.buf + 1, 1000));
	ck_assert(!memcmp(p.b.buf + 2000, p.a.buf + 1001, 99));
	ck_assert(!memcmp(p.b.buf + 3000, p.a.buf + 1100, 2000));
	ck_assert_int_eq(p.b.buf[5000], 0);
	pair_close(&p);
}
END_TEST

START_TEST(test_inline_is_copied)
{
	struct pair p = {0};
	char text[16] = "inline";
	struct ibv_sge s = {(uintptr_t)text, 7, 0};
	struct ibv_send_wr *bad, wr = {.sg_list = &s,
				       .num_sge = 1,
				       .opcode = IBV_WR_SEND,
				       .send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED};

	p.rnr_retry = 7;
	pair_open(&p);
	ck_assert_int_eq(ibv_post_send(p.a.qp, &wr, &bad), 0);
	memset(text, 'x', sizeof text);
	expect_none(p.a.scq);
	ck_assert_int_eq(recv_op(&p.b, 0, 0, 100), 0);
	expect(p.b.rcq, 0, IBV_WC_SUCCESS);
	ck_assert_str_eq(p.b.buf, "inline");
	s.length = 65;
	ck_assert_int_eq(ibv_post_send(p.a.qp, &wr, &bad), EINVAL);
	ck_assert_ptr_eq(bad, &wr);
	pair_close(&p);
}
END_TEST

/* Law 3: a slot is free when a completion that covers it has been polled. */
START_TEST(test_slots)
{
	struct pair p = {.depth = 4, .cqe = 64};

	pair_open(&p);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(recv_op(&p.b, i, 0, 8), 0);
	ck_assert_int_eq(recv_op(&p.b, 9, 0, 8), ENOMEM);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(send_op(&p.a, i, 0, 8, 0), 0);
	ck_assert_int_eq(send_op(&p.a, 3, 0, 8, IBV_SEND_SIGNALED), 0);
	ck_assert_int_eq(send_op(&p.a, 4, 0, 8, IBV_SEND_SIGNALED), ENOMEM);
	ck_assert_int_eq(recv_op(&p.b, 9, 0, 8), ENOMEM);
	expect(p.b.rcq, 0, IBV_WC_SUCCESS);
	ck_assert_int_eq(recv_op(&p.b, 10, 0, 8), 0);
	ck_assert_int_eq(recv_op(&p.b, 11, 0, 8), ENOMEM);
	expect(p.a.scq, 3, IBV_WC_SUCCESS);
	ck_assert_int_eq(send_op(&p.a, 5, 0, 8, IBV_SEND_SIGNALED), 0);
	expect(p.a.scq, 5, IBV_WC_SUCCESS);
	pair_close(&p);
}
END_TEST

/* A chain stops at the first request that is refused; what came before is in. */
START_TEST(test_bad_wr)
{
	struct pair p = {0};
	struct ibv_send_wr wr[3] = {0}, *bad = NULL;
	struct ibv_sge s;

	pair_open(&p);
	s = sge_of(&p.a, 0, 4);
	for (int i = 0; i < 3; i++)
		wr[i] = (struct ibv_send_wr){.wr_id = i,
					     .next = i < 2 ? &wr[i + 1] : NULL,
					     .sg_list = &s,
					     .num_sge = i == 1 ? 5 : 1,
					     .opcode = IBV_WR_SEND,
					     .send_flags = IBV_SEND_SIGNALED};
	ck_assert_int_eq(recv_op(&p.b, 0, 0, 8), 0);
	ck_assert_int_eq(ibv_post_send(p.a.qp, wr, &bad), EINVAL);
	ck_assert_ptr_eq(bad, &wr[1]);
	expect(p.a.scq, 0, IBV_WC_SUCCESS);
	expect_none(p.a.scq);
	pair_close(&p);
}
END_TEST

struct broken {
	const char *what;
	uint64_t off;
	uint32_t len;
	uint32_t key; /* xored into the lkey */
	enum ibv_wc_status status;
};

static const struct broken broken[] = {
	{"past the end", PAIR_BUF - 4, 5, 0, IBV_WC_LOC_PROT_ERR},
	{"before the start", (uint64_t)-1, 4, 0, IBV_WC_LOC_PROT_ERR},
	{"no such key", 0, 4, 0xffff00, IBV_WC_LOC_PROT_ERR},
	{"the rkey", 0, 4, 0x80, IBV_WC_LOC_PROT_ERR},
	{"up to the end", PAIR_BUF - 4, 4, 0, IBV_WC_SUCCESS},
};

START_TEST(test_send_checks)
{
	const struct broken *k = &broken[_i];
	struct pair p = {0};

	pair_open(&p);
	struct ibv_sge s = {(uintptr_t)p.a.buf + k->off, k->len, p.a.mr->lkey ^ k->key};
	struct ibv_send_wr *bad,
		wr = {.wr_id = 3, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND};

	wr.send_flags = k->status == IBV_WC_SUCCESS ? IBV_SEND_SIGNALED : 0;
	ck_assert_int_eq(recv_op(&p.b, 0, 0, 8), 0);
	ck_assert_int_eq(ibv_post_send(p.a.qp, &wr, &bad), 0);
	expect(p.a.scq, 3, k->status);
	if (k->status != IBV_WC_SUCCESS)
		expect_none(p.b.rcq);
	pair_close(&p);
}
END_TEST

START_TEST(test_recv_checks)
{
	const struct broken *k = &broken[_i];
	struct pair p = {0};

	pair_open(&p);
	struct ibv_sge s = {(uintptr_t)p.b.buf + k->off, k->len, p.b.mr->lkey ^ k->key};
	struct ibv_recv_wr *bad, wr = {.wr_id = 3, .sg_list = &s, .num_sge = 1};

	ck_assert_int_eq(ibv_post_recv(p.b.qp, &wr, &bad), 0);
	ck_assert_int_eq(send_op(&p.a, 4, 0, 4, IBV_SEND_SIGNALED), 0);
	expect(p.b.rcq, 3, k->status);
	expect(p.a.scq, 4, k->status == IBV_WC_SUCCESS ? IBV_WC_SUCCESS : IBV_WC_REM_OP_ERR);
	pair_close(&p);
}
END_TEST

START_TEST(test_foreign_pd)
{
	struct pair p = {0};
	struct ibv_sge s;
	struct ibv_send_wr *bad, wr = {.sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND};

	pair_open(&p);
	s = sge_of(&p.b, 0, 4); /* b's region, a's queue pair */
	ck_assert_int_eq(ibv_post_send(p.a.qp, &wr, &bad), 0);
	expect(p.a.scq, 0, IBV_WC_LOC_PROT_ERR);
	pair_close(&p);
}
END_TEST

START_TEST(test_recv_needs_local_write)
{
	struct pair p = {.access = IBV_ACCESS_REMOTE_READ};

	pair_open(&p);
	ck_assert_int_eq(recv_op(&p.b, 1, 0, 8), 0);
	ck_assert_int_eq(send_op(&p.a, 2, 0, 8, IBV_SEND_SIGNALED), 0);
	expect(p.b.rcq, 1, IBV_WC_LOC_PROT_ERR);
	expect(p.a.scq, 2, IBV_WC_REM_OP_ERR);
	pair_close(&p);
}
END_TEST

/* Law 3: a receive that is too small ends both; law 2.6: the rest is flushed. */
START_TEST(test_too_small)
{
	struct pair p = {0};
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	pair_open(&p);
	ck_assert_int_eq(recv_op(&p.b, 1, 0, 7), 0);
	ck_assert_int_eq(recv_op(&p.b, 2, 0, 8), 0);
	ck_assert_int_eq(recv_op(&p.a, 3, 0, 8), 0);
	ck_assert_int_eq(send_op(&p.a, 4, 0, 8, 0), 0);
	expect(p.b.rcq, 1, IBV_WC_LOC_LEN_ERR);
	expect(p.b.rcq, 2, IBV_WC_WR_FLUSH_ERR);
	expect(p.a.scq, 4, IBV_WC_REM_INV_REQ_ERR);
	expect(p.a.rcq, 3, IBV_WC_WR_FLUSH_ERR);
	ck_assert_int_eq(ibv_query_qp(p.a.qp, &attr, IBV_QP_STATE, &init), 0);
	ck_assert_int_eq(attr.qp_state, IBV_QPS_ERR);
	/* What is posted now is flushed as well. */
	ck_assert_int_eq(send_op(&p.a, 5, 0, 8, 0), 0);
	ck_assert_int_eq(recv_op(&p.a, 6, 0, 8), 0);
	expect(p.a.scq, 5, IBV_WC_WR_FLUSH_ERR);
	expect(p.a.rcq, 6, IBV_WC_WR_FLUSH_ERR);
	pair_close(&p);
}
END_TEST

START_TEST(test_rnr)
{
	struct pair p = {.rnr_retry = 3, .rnr_timer = 14}; /* 3 times 1.28 ms */

	sv_clock_advance(1);
	pair_open(&p);
	ck_assert_int_eq(send_op(&p.a, 1, 0, 8, IBV_SEND_SIGNALED), 0);
	ck_assert_int_eq(send_op(&p.a, 2, 0, 8, IBV_SEND_SIGNALED), 0);
	sv_clock_advance(3839999);
	expect_none(p.a.scq);
	ck_assert_int_eq(recv_op(&p.b, 3, 0, 8), 0);
	expect(p.b.rcq, 3, IBV_WC_SUCCESS);
	expect(p.a.scq, 1, IBV_WC_SUCCESS);
	sv_clock_advance(3839999);
	expect_none(p.a.scq);
	sv_clock_advance(1);
	expect(p.a.scq, 2, IBV_WC_RNR_RETRY_EXC_ERR);
	expect_none(p.b.rcq);
	pair_close(&p);
}
END_TEST

START_TEST(test_rnr_for_ever)
{
	struct pair p = {.rnr_retry = 7};

	sv_clock_advance(1);
	pair_open(&p);
	ck_assert_int_eq(send_op(&p.a, 1, 0, 8, IBV_SEND_SIGNALED), 0);
	sv_clock_advance(1ull << 50);
	expect_none(p.a.scq);
	ck_assert_int_eq(recv_op(&p.b, 3, 0, 8), 0);
	expect(p.a.scq, 1, IBV_WC_SUCCESS);
	pair_close(&p);
}
END_TEST

/* The sleeper's descriptor wakes it when the retries are over, though nobody did anything. */
START_TEST(test_rnr_wakes)
{
	struct pair p = {.rnr_retry = 1, .rnr_timer = 14};
	struct ibv_cq *cq;
	void *ctx;

	pair_open(&p);
	ck_assert_int_eq(ibv_req_notify_cq(p.a.scq, 0), 0);
	ck_assert_int_eq(send_op(&p.a, 1, 0, 8, IBV_SEND_SIGNALED), 0);
	ck_assert_int_eq(ibv_get_cq_event(p.a.ch, &cq, &ctx), 0);
	ck_assert_ptr_eq(cq, p.a.scq);
	ck_assert_ptr_eq(ctx, &p.a);
	ibv_ack_cq_events(cq, 1);
	expect(p.a.scq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	ck_assert(!readable(p.a.ch->fd));
	pair_close(&p);
}
END_TEST

START_TEST(test_no_peer)
{
	struct pair p = {0};

	sv_clock_advance(1);
	pair_open(&p);
	ck_assert_int_eq(ibv_destroy_qp(p.b.qp), 0);
	p.b.qp = NULL;
	ck_assert_int_eq(send_op(&p.a, 1, 0, 8, 0), 0);
	expect_none(p.a.scq);
	sv_clock_advance(4 * (4096ull << 14)); /* the first try and three more */
	expect(p.a.scq, 1, IBV_WC_RETRY_EXC_ERR);
	pair_close(&p);
}
END_TEST

START_TEST(test_events)
{
	struct pair p = {0};
	struct ibv_cq *cq;
	void *ctx;

	pair_open(&p);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(recv_op(&p.b, i, 0, 8), 0);
	/* Not armed: no event. */
	ck_assert_int_eq(send_op(&p.a, 0, 0, 8, 0), 0);
	ck_assert(!readable(p.b.ch->fd));
	/* Armed once: one event, however many completions. */
	ck_assert_int_eq(ibv_req_notify_cq(p.b.rcq, 0), 0);
	ck_assert_int_eq(send_op(&p.a, 1, 0, 8, 0), 0);
	ck_assert_int_eq(send_op(&p.a, 2, 0, 8, 0), 0);
	ck_assert(readable(p.b.ch->fd));
	ck_assert_int_eq(ibv_get_cq_event(p.b.ch, &cq, &ctx), 0);
	ck_assert_ptr_eq(cq, p.b.rcq);
	ck_assert(!readable(p.b.ch->fd));
	ibv_ack_cq_events(cq, 1);
	/* Solicited only: the others pass in silence. */
	ck_assert_int_eq(ibv_req_notify_cq(p.b.rcq, 1), 0);
	ck_assert_int_eq(send_op(&p.a, 3, 0, 8, 0), 0);
	ck_assert(!readable(p.b.ch->fd));
	ck_assert_int_eq(recv_op(&p.b, 4, 0, 8), 0);
	ck_assert_int_eq(send_op(&p.a, 3, 0, 8, IBV_SEND_SOLICITED), 0);
	ck_assert(readable(p.b.ch->fd));
	/* An event that nobody fetched goes with its CQ. */
	pair_close(&p);
}
END_TEST

START_TEST(test_overrun)
{
	struct pair p = {.cqe = 2};
	struct ibv_async_event ev;
	struct ibv_wc wc;

	pair_open(&p);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(recv_op(&p.b, i, 0, 8), 0);
		ck_assert_int_eq(send_op(&p.a, i, 0, 8, 0), 0);
	}
	ck_assert(readable(p.ctx->async_fd));
	ck_assert_int_eq(ibv_get_async_event(p.ctx, &ev), 0);
	ck_assert_int_eq(ev.event_type, IBV_EVENT_CQ_ERR);
	ck_assert_ptr_eq(ev.element.cq, p.b.rcq);
	ibv_ack_async_event(&ev);
	expect(p.b.rcq, 0, IBV_WC_SUCCESS);
	expect(p.b.rcq, 1, IBV_WC_SUCCESS);
	ck_assert_int_lt(ibv_poll_cq(p.b.rcq, 1, &wc), 0);
	pair_close(&p);
}
END_TEST

/* Law 2.7, 2.8: work dropped, completions gone. */
START_TEST(test_reset_and_destroy)
{
	struct pair p = {.rnr_retry = 7};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};

	pair_open(&p);
	ck_assert_int_eq(recv_op(&p.b, 1, 0, 8), 0);
	ck_assert_int_eq(send_op(&p.a, 2, 0, 8, IBV_SEND_SIGNALED), 0);
	ck_assert_int_eq(send_op(&p.a, 3, 0, 8, IBV_SEND_SIGNALED), 0);
	ck_assert_int_eq(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE), 0);
	expect_none(p.a.scq);
	ck_assert_int_eq(send_op(&p.a, 4, 0, 8, 0), EINVAL);
	ck_assert_int_eq(ibv_destroy_qp(p.b.qp), 0);
	p.b.qp = NULL;
	expect_none(p.b.rcq);
	pair_close(&p);
}
END_TEST

START_TEST(test_states)
{
	struct pair p = {0};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};

	pair_init(&p);
	ck_assert_int_eq(recv_op(&p.a, 0, 0, 8), 0); /* legal in INIT */
	ck_assert_int_eq(send_op(&p.a, 0, 0, 8, 0), EINVAL);
	ck_assert_int_eq(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE), EINVAL); /* INIT -> RTS */
	attr.qp_state = IBV_QPS_RTR;
	ck_assert_int_eq(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE), EINVAL); /* needs more */
	attr.qp_state = IBV_QPS_ERR;
	ck_assert_int_eq(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE), 0);
	expect(p.a.rcq, 0, IBV_WC_WR_FLUSH_ERR);
	attr.qp_state = IBV_QPS_INIT;
	ck_assert_int_eq(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE), EINVAL); /* ERR -> INIT */
	pair_close(&p);
}
END_TEST

START_TEST(test_order_of_destruction)
{
	struct pair p = {0};

	pair_open(&p);
	ck_assert_int_eq(ibv_dealloc_pd(p.a.pd), EBUSY);
	ck_assert_int_eq(ibv_destroy_cq(p.a.scq), EBUSY);
	ck_assert_int_eq(ibv_destroy_comp_channel(p.a.ch), EBUSY);
	pair_close(&p);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("softverbs queue");
	TCase *t = tcase_create("queue");
	int n = (int)(sizeof broken / sizeof *broken);

	tcase_add_test(t, test_send_recv);
	tcase_add_test(t, test_gather_scatter);
	tcase_add_test(t, test_inline_is_copied);
	tcase_add_test(t, test_slots);
	tcase_add_test(t, test_bad_wr);
	tcase_add_loop_test(t, test_send_checks, 0, n);
	tcase_add_loop_test(t, test_recv_checks, 0, n);
	tcase_add_test(t, test_foreign_pd);
	tcase_add_test(t, test_recv_needs_local_write);
	tcase_add_test(t, test_too_small);
	tcase_add_test(t, test_rnr);
	tcase_add_test(t, test_rnr_for_ever);
	tcase_add_test(t, test_rnr_wakes);
	tcase_add_test(t, test_no_peer);
	tcase_add_test(t, test_events);
	tcase_add_test(t, test_overrun);
	tcase_add_test(t, test_reset_and_destroy);
	tcase_add_test(t, test_states);
	tcase_add_test(t, test_order_of_destruction);
	suite_add_tcase(s, t);
	return suite_run(s);
}
