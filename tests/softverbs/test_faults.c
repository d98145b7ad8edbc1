/* SPDX-License-Identifier: BSD-2-Clause */
/* Completions, links and devices that fail on demand, by chance and by the seed; strict mode. */
#include <sys/mman.h>

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

/* ---- completions ---- */

static void four_sends(struct pair *p)
{
	for (uint64_t i = 0; i < 4; i++) {
		ck_assert_int_eq(recv_op(&p->b, i, 0, 8), 0);
		ck_assert_int_eq(send_op(&p->a, i, 0, 8, 0), 0);
	}
}

START_TEST(test_completion_faults)
{
	struct pair p = {0};

	pair_open(&p);
	faults("completion drop at 1; completion duplicate at 2");
	four_sends(&p);
	expect(p.b.rcq, 0, IBV_WC_SUCCESS);
	expect(p.b.rcq, 2, IBV_WC_SUCCESS);
	expect(p.b.rcq, 2, IBV_WC_SUCCESS);
	expect(p.b.rcq, 3, IBV_WC_SUCCESS);
	expect_none(p.b.rcq);
	sv_faults_clear();
	faults("completion swap at 0; completion opcode 3 at 2; completion status 4 at 3");
	four_sends(&p);
	expect(p.b.rcq, 1, IBV_WC_SUCCESS);
	expect(p.b.rcq, 0, IBV_WC_SUCCESS);
	ck_assert_int_eq(expect(p.b.rcq, 2, IBV_WC_SUCCESS).opcode, 3);
	expect(p.b.rcq, 3, IBV_WC_LOC_PROT_ERR);
	pair_close(&p);
}
END_TEST

START_TEST(test_completion_late)
{
	struct pair p = {0};
	struct ibv_cq *cq;
	void *ctx;

	pair_open(&p);
	faults("completion delay 2 at 0");
	ck_assert_int_eq(ibv_req_notify_cq(p.b.rcq, 0), 0);
	ck_assert_int_eq(recv_op(&p.b, 1, 0, 8), 0);
	ck_assert_int_eq(send_op(&p.a, 1, 0, 8, 0), 0);
	/* A sleeper is woken for nothing, until it has come. */
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(ibv_get_cq_event(p.b.ch, &cq, &ctx), 0);
		ibv_ack_cq_events(cq, 1);
		expect_none(p.b.rcq);
		ck_assert_int_eq(ibv_req_notify_cq(p.b.rcq, 0), 0);
	}
	expect(p.b.rcq, 1, IBV_WC_SUCCESS);
	pair_close(&p);
}
END_TEST

/* ---- links and devices ---- */

START_TEST(test_message_kill)
{
	struct pair p = {0};

	pair_open(&p);
	faults("message kill at 2");
	for (uint64_t i = 0; i < 4; i++) {
		ck_assert_int_eq(recv_op(&p.b, i, 0, 8), 0);
		ck_assert_int_eq(send_op(&p.a, i, 0, 8, IBV_SEND_SIGNALED), 0);
	}
	expect(p.a.scq, 0, IBV_WC_SUCCESS);
	expect(p.a.scq, 1, IBV_WC_SUCCESS);
	expect(p.a.scq, 2, IBV_WC_RETRY_EXC_ERR);
	expect(p.a.scq, 3, IBV_WC_WR_FLUSH_ERR);
	pair_close(&p);
}
END_TEST

START_TEST(test_port_down)
{
	struct pair p = {0};
	struct ibv_async_event ev;
	struct ibv_port_attr port;

	sv_clock_advance(1);
	pair_open(&p);
	ck_assert_int_eq(sv_port_set("soft0", 1, 0), 0);
	ck_assert_int_eq(ibv_get_async_event(p.ctx, &ev), 0);
	ck_assert_int_eq(ev.event_type, IBV_EVENT_PORT_ERR);
	ibv_ack_async_event(&ev);
	ck_assert_int_eq(ibv_query_port(p.ctx, 1, &port), 0);
	ck_assert_int_eq(port.state, IBV_PORT_DOWN);
	ck_assert_int_eq(recv_op(&p.b, 1, 0, 8), 0);
	ck_assert_int_eq(send_op(&p.a, 1, 0, 8, IBV_SEND_SIGNALED), 0);
	expect_none(p.a.scq);
	ck_assert_int_eq(sv_port_set("soft0", 1, 1), 0);
	ck_assert_int_eq(ibv_get_async_event(p.ctx, &ev), 0);
	ck_assert_int_eq(ev.event_type, IBV_EVENT_PORT_ACTIVE);
	ibv_ack_async_event(&ev);
	expect(p.a.scq, 1, IBV_WC_SUCCESS);
	pair_close(&p);
}
END_TEST

START_TEST(test_device_removed)
{
	struct pair p = {0};
	struct ibv_async_event ev;
	struct ibv_recv_wr *bad, wr = {0};
	int n;

	pair_open(&p);
	ck_assert_int_eq(recv_op(&p.b, 1, 0, 8), 0);
	if (_i) {
		faults("message remove soft0 at 0");
		ck_assert_int_eq(send_op(&p.a, 2, 0, 8, IBV_SEND_SIGNALED), 0);
		expect(p.a.scq, 2, IBV_WC_WR_FLUSH_ERR);
	} else {
		ck_assert_int_eq(sv_device_remove("soft0"), 0);
	}
	expect(p.b.rcq, 1, IBV_WC_WR_FLUSH_ERR);
	ck_assert_int_eq(ibv_get_async_event(p.ctx, &ev), 0);
	ck_assert_int_eq(ev.event_type, IBV_EVENT_DEVICE_FATAL);
	ibv_ack_async_event(&ev);
	ck_assert_int_eq(ibv_post_recv(p.b.qp, &wr, &bad), EIO);
	ck_assert_ptr_null(ibv_alloc_pd(p.ctx));
	ibv_free_device_list(ibv_get_device_list(&n));
	ck_assert_int_eq(n, 0);
	pair_close(&p);
}
END_TEST

/* ---- chance ---- */

static uint64_t failures(const char *text)
{
	struct pair p = {.depth = 64, .cqe = 128};
	uint64_t bits = 0;

	pair_open(&p);
	faults(text);
	for (int i = 0; i < 60; i++)
		bits = bits << 1 | (recv_op(&p.b, 0, 0, 8) != 0);
	sv_faults_clear();
	pair_close(&p);
	return bits;
}

START_TEST(test_same_seed_same_run)
{
	uint64_t first = failures("seed 42; post_recv fail ENOMEM chance 0.3");

	ck_assert_uint_ne(first, 0);
	ck_assert_uint_eq(failures("seed 42; post_recv fail ENOMEM chance 0.3"), first);
	ck_assert_uint_ne(failures("seed 43; post_recv fail ENOMEM chance 0.3"), first);
	ck_assert_uint_eq(failures("post_recv fail ENOMEM every 2"), 0x555555555555555u);
	ck_assert_uint_eq(failures("post_recv fail ENOMEM times 2"), 3ull << 58);
}
END_TEST

START_TEST(test_described_devices)
{
	static const char *const bad[] = {"",          "x",         "x=",       "=soft",
					  "x=nothing", "x=soft:",   "x=soft:0", "x=soft:5",
					  "x=soft:2x", "soft0=soft"};
	struct ibv_device **list;
	const char *wrong;
	int n;

	ck_assert_int_eq(sv_devices("soft0=soft, two=siw:2,three=rxe", &wrong), 0);
	for (size_t i = 1; i < sizeof bad / sizeof *bad; i++) {
		ck_assert_msg(sv_devices(bad[i], &wrong) == -1, "%s", bad[i]);
		ck_assert_ptr_eq(wrong, bad[i]);
	}
	ck_assert_int_eq(sv_devices(bad[0], &wrong), 0);
	ck_assert_int_eq(sv_devices("four=efa five six=soft", &wrong), -1);
	ck_assert_str_eq(wrong, "five six=soft");
	list = ibv_get_device_list(&n);
	ck_assert_int_eq(n, 4);
	ck_assert_str_eq(ibv_get_device_name(list[1]), "two");
	ck_assert_str_eq(ibv_get_device_name(list[3]), "four");
	ibv_free_device_list(list);
}
END_TEST

START_TEST(test_wrong_rules)
{
	static const struct {
		const char *text, *wrong; /* where it went wrong */
	} bad[] = {
		{"reg_mr", ""},
		{"reg_mr fail", ""},
		{"reg_mr fail ENOSUCH", "ENOSUCH"},
		{"no_call fail EIO", "no_call fail EIO"},
		{"completion midway", "midway"},
		{"reg_mr drop", "drop"},
		{"reg_mr fail EIO at", ""},
		{"seed", ""},
		{"set soft0 what 1", "1"},
		{"message remove", ""},
		{"reg_mr fail EIO at x", "x"},
		{"completion delay", ""},
		{"reg_mr fail EIO chance 2", "2"},
		{"reg_mr fail EIO at 1 2", "2"},
		{"seed 1; seed 2 3; seed 4", "3; seed 4"},
	};
	const char *wrong;

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		wrong = NULL;
		ck_assert_msg(sv_faults(bad[i].text, &wrong) == -1 && errno == EINVAL, "%s",
			      bad[i].text);
		ck_assert_str_eq(wrong, bad[i].wrong);
	}
	ck_assert_int_eq(sv_faults(" # nothing\n\n; reg_mr fail 12 at 0 # twelve\n", &wrong), 0);
	sv_faults_clear();
}
END_TEST

/* ---- the null provider ---- */

START_TEST(test_null)
{
	struct pair p = {0};

	habit("null", 1);
	pair_open(&p);
	strcpy(p.a.buf, "moved");
	ck_assert_int_eq(recv_op(&p.b, 1, 0, 8), 0);
	ck_assert_int_eq(send_op(&p.a, 2, 0, 8, IBV_SEND_SIGNALED), 0);
	expect(p.a.scq, 2, IBV_WC_SUCCESS);
	expect_none(p.b.rcq);
	ck_assert_int_eq(p.b.buf[0], 0);
	pair_close(&p);
}
END_TEST

/* ---- strictness ---- */

static void told(const char *what)
{
	ck_assert_uint_ge(sv_strict_count(), 1);
	ck_assert_msg(strstr(sv_strict_sentence(0), what) != NULL, "%s", sv_strict_sentence(0));
	sv_strict(0);
}

START_TEST(test_strict_send_changed)
{
	struct pair p = {0};

	sv_strict(1);
	pair_open(&p);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(recv_op(&p.b, 1, 0, 8), 0);
		ck_assert_int_eq(send_op(&p.a, 2, 0, 8, IBV_SEND_SIGNALED), 0);
		p.a.buf[4] = (char)(p.a.buf[4] + i); /* only the second time */
		expect(p.b.rcq, 1, IBV_WC_SUCCESS);
		expect(p.a.scq, 2, IBV_WC_SUCCESS);
		ck_assert_uint_eq(sv_strict_count(), (unsigned int)i);
	}
	told("the buffer of send 0x2 was changed");
	pair_close(&p);
}
END_TEST

START_TEST(test_strict_receive_changed)
{
	struct pair p = {0};

	sv_strict(1);
	pair_open(&p);
	ck_assert_int_eq(recv_op(&p.b, 1, 0, 8), 0);
	p.b.buf[20] = 1; /* not its business */
	ck_assert_int_eq(send_op(&p.a, 2, 0, 8, 0), 0);
	p.b.buf[0] = 1;
	expect(p.b.rcq, 1, IBV_WC_SUCCESS);
	told("the buffer of receive 0x1 was changed");
	pair_close(&p);
}
END_TEST

START_TEST(test_strict_overlap)
{
	struct pair p = {0};

	sv_strict(1);
	pair_open(&p);
	ck_assert_int_eq(recv_op(&p.b, 1, 0, 8), 0);
	ck_assert_int_eq(recv_op(&p.b, 2, 8, 8), 0);
	ck_assert_uint_eq(sv_strict_count(), 0);
	ck_assert_int_eq(recv_op(&p.b, 3, 7, 1), 0);
	told("overlaps that of request 0x1");
	pair_close(&p);
}
END_TEST

START_TEST(test_strict_dereg)
{
	struct pair p = {0};

	sv_strict(1);
	pair_open(&p);
	ck_assert_int_eq(recv_op(&p.b, 1, 0, 8), 0);
	ck_assert_int_eq(ibv_dereg_mr(p.b.mr), 0);
	told("is deregistered while 1 posted");
	p.b.mr = ibv_reg_mr(p.b.pd, p.b.buf, PAIR_BUF, p.access);
	pair_close(&p);
}
END_TEST

START_TEST(test_strict_unmapped)
{
	struct pair p = {0};
	char *mem = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr;
	struct ibv_sge s;
	struct ibv_recv_wr *bad, wr = {.wr_id = 1, .sg_list = &s, .num_sge = 1};

	sv_strict(1);
	pair_open(&p);
	mr = ibv_reg_mr(p.b.pd, mem, 4096, IBV_ACCESS_LOCAL_WRITE);
	s = (struct ibv_sge){(uintptr_t)mem, 4096, mr->lkey};
	ck_assert_int_eq(ibv_post_recv(p.b.qp, &wr, &bad), 0);
	munmap(mem, 4096);
	ck_assert_int_eq(send_op(&p.a, 2, 0, 8, 0), 0);
	expect(p.b.rcq, 1, IBV_WC_LOC_PROT_ERR);
	told("are not mapped any more");
	ck_assert_int_eq(ibv_dereg_mr(mr), 0);
	pair_close(&p);
}
END_TEST

START_TEST(test_strict_order)
{
	struct pair p = {0};

	sv_strict(1);
	pair_open(&p);
	ck_assert_int_eq(ibv_destroy_cq(p.a.scq), EBUSY);
	told("ibv_destroy_cq: 1 queues");
	pair_close(&p);
}
END_TEST

START_TEST(test_reg)
{
	struct ibv_context *ctx = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	char *mem = aligned_alloc(4096, 4096);
	struct ibv_mr *mr, *mr2;

	ck_assert_ptr_null(ibv_reg_mr(pd, mem, 0, IBV_ACCESS_LOCAL_WRITE));
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_ptr_null(ibv_reg_mr(pd, mem, 4096, IBV_ACCESS_REMOTE_WRITE));
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_ptr_null(ibv_reg_mr(pd, (void *)4096, 4096, IBV_ACCESS_LOCAL_WRITE));
	ck_assert_int_eq(errno, EFAULT);
	ck_assert_int_eq(sv_set("soft0", "max_mr", 1), 0);
	mr = ibv_reg_mr(pd, mem, 4096, IBV_ACCESS_LOCAL_WRITE);
	ck_assert_ptr_nonnull(mr);
	mr2 = ibv_reg_mr(pd, mem, 4096, IBV_ACCESS_LOCAL_WRITE);
	ck_assert_ptr_null(mr2);
	ck_assert_int_eq(errno, ENOMEM);
	ck_assert_uint_eq(sv_total(SV_MRS), 1);
	ck_assert_int_eq(sv_live(SV_MRS), 1);
	ck_assert_int_eq(ibv_dealloc_pd(pd), EBUSY);
	ck_assert_int_eq(ibv_dereg_mr(mr), 0);
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
	ck_assert_int_eq(ibv_close_device(ctx), 0);
	free(mem);
}
END_TEST

START_TEST(test_fail_nth)
{
	struct pair p = {0};

	pair_open(&p);
	ck_assert_int_eq(sv_fail_nth("no_such_call", 0, EIO), -1);
	ck_assert_int_eq(sv_fail_nth("post_recv", 1, EIO), 0);
	ck_assert_int_eq(recv_op(&p.b, 0, 0, 8), 0);
	ck_assert(!sv_failed("post_recv"));
	ck_assert_int_eq(recv_op(&p.b, 0, 0, 8), EIO);
	ck_assert(sv_failed("post_recv"));
	ck_assert_int_eq(recv_op(&p.b, 0, 0, 8), 0);
	ck_assert_uint_eq(sv_calls("post_recv"), 3);
	ck_assert_int_eq(sv_fail_nth("any", 0, ENODEV), 0);
	ck_assert_int_eq(ibv_req_notify_cq(p.a.scq, 0), ENODEV);
	ck_assert_int_eq(sv_fail_nth("reg_mr", 0, ENOMEM), 0);
	sv_faults_clear();
	pair_close(&p);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("softverbs faults");
	TCase *t = tcase_create("faults");

	tcase_add_test(t, test_completion_faults);
	tcase_add_test(t, test_completion_late);
	tcase_add_test(t, test_message_kill);
	tcase_add_test(t, test_port_down);
	tcase_add_loop_test(t, test_device_removed, 0, 2);
	tcase_add_test(t, test_same_seed_same_run);
	tcase_add_test(t, test_described_devices);
	tcase_add_test(t, test_wrong_rules);
	tcase_add_test(t, test_null);
	tcase_add_test(t, test_strict_send_changed);
	tcase_add_test(t, test_strict_receive_changed);
	tcase_add_test(t, test_strict_overlap);
	tcase_add_test(t, test_strict_dereg);
	tcase_add_test(t, test_strict_unmapped);
	tcase_add_test(t, test_strict_order);
	tcase_add_test(t, test_reg);
	tcase_add_test(t, test_fail_nth);
	suite_add_tcase(s, t);
	return suite_run(s);
}
