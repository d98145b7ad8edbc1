/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The fault `message late N`, as a plain device and as soft-iWARP: a WRITE has completed, and its bytes
 * are not there yet (law 2.4). Nothing that is sent behind it is there before them. The clock is the
 * tests', but where another thread has to see to it.
 */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../suite.h"
#include "cm_rig.h"

enum {
	LEN = 100000, /* more than comes late */
	EARLY = LEN - 65536,
	LATE_MS = 10,
	PORT = 7300,
};

static const char *const personas[] = {"soft", "siw"};

static struct rdma_cm_id *l, *a, *b;
static struct ibv_mr *ma, *mb;
static char *from, *to;

static void connect_both(int persona)
{
	ck_assert_int_eq(sv_device_add("dev0", personas[persona], 1), 0);
	l = listener(PORT, 1);
	a = routed("127.0.0.1", PORT);
	join(l, a, &b);
	from = calloc(1, LEN);
	to = calloc(1, LEN);
	ck_assert(from && to);
	ma = ibv_reg_mr(a->pd, from, LEN, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	mb = ibv_reg_mr(b->pd, to, LEN,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	ck_assert(ma && mb);
}

/* On a clock that stands still; the first message comes late. */
static void open_both(int persona)
{
	char fault[64];

	connect_both(persona);
	snprintf(fault, sizeof fault, "message late %d at 0", LATE_MS);
	ck_assert_int_eq(sv_faults(fault, NULL), 0);
	sv_clock_advance(1);
}

static void close_both(void)
{
	drop(a);
	drop(b);
	ck_assert_int_eq(ibv_dereg_mr(ma), 0);
	if (mb)
		ck_assert_int_eq(ibv_dereg_mr(mb), 0);
	drop(l);
	free(from);
	free(to);
}

static void expect(struct ibv_cq *cq, uint64_t id)
{
	struct ibv_wc wc;

	ck_assert_int_eq(ibv_poll_cq(cq, 1, &wc), 1);
	ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
	ck_assert_uint_eq(wc.wr_id, id);
}

static void post(enum ibv_wr_opcode op, uint64_t id, uint32_t n)
{
	struct ibv_sge s = {(uintptr_t)from, n, ma->lkey};
	struct ibv_send_wr *bad, wr = {.wr_id = id,
				       .sg_list = &s,
				       .num_sge = 1,
				       .opcode = op,
				       .send_flags = IBV_SEND_SIGNALED,
				       .wr.rdma = {(uintptr_t)to, mb->rkey}};

	ck_assert_int_eq(ibv_post_send(a->qp, &wr, &bad), 0);
}

/* It is through, and its memory may be used for something else. */
static void write_late(char c, uint32_t n)
{
	memset(from, c, n);
	post(IBV_WR_RDMA_WRITE, 1, n);
	expect(a->send_cq, 1);
	memset(from, 'x', n);
}

static bool all(char c, uint32_t first, uint32_t n)
{
	for (uint32_t i = first; i < n; i++)
		if (to[i] != c)
			return false;
	return true;
}

static void pass(uint64_t ms)
{
	sv_clock_advance(ms * 1000000);
}

/* The completion first, the bytes when their time has come. */
START_TEST(test_time)
{
	open_both(_i);
	write_late('1', 100);
	ck_assert(all(0, 0, LEN));
	pass(LATE_MS - 1);
	ck_assert(all(0, 0, LEN));
	pass(1);
	ck_assert(all('1', 0, 100));
	ck_assert(all(0, 100, LEN));
	write_late('2', 100); /* the next one is in time */
	ck_assert(all('2', 0, 100));
	close_both();
}
END_TEST

/* Of a long one the last bytes. */
START_TEST(test_long)
{
	open_both(_i);
	write_late('1', LEN);
	ck_assert(all('1', 0, EARLY));
	ck_assert(all(0, EARLY, LEN));
	pass(LATE_MS);
	ck_assert(all('1', 0, LEN));
	close_both();
}
END_TEST

/* A message behind it finds them there. */
START_TEST(test_send)
{
	static char message[8];
	struct ibv_mr *m;
	struct ibv_sge s = {(uintptr_t)message, sizeof message, 0};
	struct ibv_recv_wr *bad, wr = {.wr_id = 7, .sg_list = &s, .num_sge = 1};

	open_both(_i);
	m = ibv_reg_mr(b->pd, message, sizeof message, IBV_ACCESS_LOCAL_WRITE);
	ck_assert_ptr_nonnull(m);
	s.lkey = m->lkey;
	ck_assert_int_eq(ibv_post_recv(b->qp, &wr, &bad), 0);
	write_late('1', LEN);
	ck_assert(!all('1', 0, LEN));
	post(IBV_WR_SEND, 2, sizeof message);
	expect(b->recv_cq, 7);
	ck_assert(all('1', 0, LEN));
	ck_assert_int_eq(ibv_dereg_mr(m), 0);
	close_both();
}
END_TEST

/* A READ behind it reads them. */
START_TEST(test_read)
{
	open_both(_i);
	write_late('1', LEN);
	ck_assert(!all('1', 0, LEN));
	post(IBV_WR_RDMA_READ, 2, LEN);
	expect(a->send_cq, 2);
	ck_assert(all('1', 0, LEN));
	ck_assert_int_eq(memcmp(from, to, LEN), 0);
	close_both();
}
END_TEST

/* Of two WRITEs the second one stands, though both come late. */
START_TEST(test_write)
{
	open_both(_i);
	ck_assert_int_eq(sv_faults("message late 20", NULL), 0);
	write_late('1', 100);
	write_late('2', 50);
	ck_assert(all('1', 0, 100));
	pass(20);
	ck_assert(all('2', 0, 50));
	ck_assert(all('1', 50, 100));
	close_both();
}
END_TEST

/* What TCP has taken arrives also when a queue pair ends, the writer's or the other one, whichever way;
 * before its time. */
START_TEST(test_end)
{
	struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
	struct rdma_cm_id *id;

	open_both(_i % 2);
	id = _i / 2 % 2 ? b : a;
	write_late('1', LEN);
	if (_i / 4)
		ck_assert_int_eq(ibv_modify_qp(id->qp, &error, IBV_QP_STATE), 0);
	else
		rdma_destroy_qp(id);
	ck_assert(all('1', 0, LEN));
	close_both();
}
END_TEST

/* Its memory is not there any more: nothing is written, and the connection ends. */
START_TEST(test_no_memory)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	open_both(0);
	write_late('1', 100);
	ck_assert_int_eq(ibv_dereg_mr(mb), 0);
	mb = NULL;
	pass(LATE_MS);
	ck_assert(all(0, 0, LEN));
	ck_assert_int_eq(ibv_query_qp(b->qp, &attr, IBV_QP_STATE, &init), 0);
	ck_assert_int_eq(attr.qp_state, IBV_QPS_ERR);
	close_both();
}
END_TEST

/* The same is found by a WRITE that others stand behind, or by the first one (with no late one before it):
 * each completes once, in order, and at once. */
START_TEST(test_refused)
{
	struct ibv_sge s;
	struct ibv_send_wr *bad, wr[3];
	struct ibv_wc wc[4];
	uint32_t rkey;

	open_both(_i % 2);
	s = (struct ibv_sge){(uintptr_t)from, 100, ma->lkey};
	rkey = mb->rkey;
	if (_i / 2)
		write_late('1', 100);
	ck_assert_int_eq(ibv_dereg_mr(mb), 0);
	mb = NULL;
	for (int i = 0; i < 3; i++)
		wr[i] = (struct ibv_send_wr){.wr_id = 10 + (uint64_t)i,
					     .next = i < 2 ? &wr[i + 1] : NULL,
					     .sg_list = &s,
					     .num_sge = 1,
					     .opcode = IBV_WR_RDMA_WRITE,
					     .send_flags = IBV_SEND_SIGNALED,
					     .wr.rdma = {(uintptr_t)to, rkey}};
	ck_assert_int_eq(ibv_post_send(a->qp, wr, &bad), 0);
	ck_assert_int_eq(ibv_poll_cq(a->send_cq, 4, wc), 3);
	for (int i = 0; i < 3; i++) {
		ck_assert_uint_eq(wc[i].wr_id, 10 + (uint64_t)i);
		ck_assert_int_eq(wc[i].status, i        ? IBV_WC_WR_FLUSH_ERR
					       : _i % 2 ? IBV_WC_SUCCESS /* TCP had taken it */
							: IBV_WC_REM_ACCESS_ERR);
	}
	pass(60000);
	ck_assert_int_eq(ibv_poll_cq(a->send_cq, 4, wc), 0);
	ck_assert(all(0, 0, LEN));
	close_both();
}
END_TEST

/* A forked child has them not: its memory may not be there. */
START_TEST(test_fork)
{
	int status;
	pid_t child;

	setenv("SGP_SOFTVERBS_NET", "none", 1); /* without a thread: any allocator outlives that */
	open_both(_i);
	write_late('1', 100);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (!child) {
		pass(LATE_MS);
		_exit(!all(0, 0, LEN));
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	ck_assert(all(0, 0, LEN));
	pass(LATE_MS);
	ck_assert(all('1', 0, 100));
	close_both();
}
END_TEST

/* Nobody calls anything: a thread of the device's writes. To ThreadSanitizer that races, as it does. */
__attribute__((no_sanitize_thread)) static bool there(void)
{
	return __atomic_load_n(&to[99], __ATOMIC_ACQUIRE) == '1';
}

START_TEST(test_thread)
{
	connect_both(_i);
	ck_assert_int_eq(sv_faults("message late 1 at 0", NULL), 0);
	memset(from, '1', 100);
	post(IBV_WR_RDMA_WRITE, 1, 100);
	while (!there())
		sched_yield();
	expect(a->send_cq, 1);
	close_both();
}
END_TEST

/* What is said of it, and of what. */
START_TEST(test_language)
{
	ck_assert_int_eq(sv_faults("message late 5 every 2", NULL), 0);
	ck_assert_int_ne(sv_faults("message late", NULL), 0);
	ck_assert_int_ne(sv_faults("completion late 5", NULL), 0);
	ck_assert_int_ne(sv_faults("post_send late 5", NULL), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("late WRITEs");
	TCase *t = tcase_create("late");
	char world[64];

	/* That is with a thread. */
	snprintf(world, sizeof world, "late%d", getpid());
	setenv("SGP_SOFTVERBS_WORLD", world, 1);
	setenv("SGP_SOFTVERBS_NET", "local", 1);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, test_time, 0, 2);
	tcase_add_loop_test(t, test_long, 0, 2);
	tcase_add_loop_test(t, test_send, 0, 2);
	tcase_add_loop_test(t, test_read, 0, 2);
	tcase_add_loop_test(t, test_write, 0, 2);
	tcase_add_loop_test(t, test_end, 0, 8);
	tcase_add_test(t, test_no_memory);
	tcase_add_loop_test(t, test_refused, 0, 4);
	tcase_add_loop_test(t, test_fork, 0, 2);
	tcase_add_loop_test(t, test_thread, 0, 2);
	tcase_add_test(t, test_language);
	suite_add_tcase(suite, t);
	return suite_run(suite);
}
