/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The shared receive queue: several endpoints, on one completion queue and on two, take from one
 * stock that is kept full; what is lost is held, counted and replaced; the limit's event; and a device
 * whose connections are librdmacm's.
 *
 *      out[i] (sends) ------> in[i] (on the shared queue, cq[i % ncqs])
 */
#include <check.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>

#include "../plain.h"
#include "../suite.h"
#include "pool/pool.h"
#include "rig.h"

/* Those whose queue pairs connect without a connection manager. */
static const char *const roce[] = {"soft", "rxe", "mlx4", "mlx5", "hns"};
#define NROCE ((int)(sizeof roce / sizeof *roce))

#define PAIRS 4
#define WC    32

static struct {
	struct ibv_context *verbs;
	struct ibv_pd *pd;
	struct sgp_pool *pool; /* the shared queue's */
	struct sgp_pool *out_pool;
	struct sgp_cq *cq[2], *out_cq;
	struct sgp_wc *wc[2], *out_wc;
	struct sgp_srq *srq;
	struct sgp_ep *in[PAIRS], *out[PAIRS];
	uint32_t depth;
	int held; /* chunks of pool that the test has */
} w;

struct world_attr {
	uint32_t depth; /* 8 */
	size_t chunks;  /* 32 */
	uint32_t limit;
	int ncqs; /* 1 */
	int cqe;  /* 64 */
	bool single_threaded;
};

static struct sgp_pool *pool_of(size_t chunks)
{
	struct sgp_class_attr class = {.size = 4096, .chunks = chunks};
	struct sgp_pool_attr attr = {.classes = &class, .nclasses = 1, .pages = SGP_PAGES_BASE};
	struct sgp_pool *pool = sgp_pool_create(w.pd, &attr);

	ck_assert_msg(pool != NULL, "%s", sgp_errmsg());
	return pool;
}

static void open_world(const char *persona, struct world_attr attr)
{
	struct sgp_cq_attr cq = {.cqe = attr.cqe ? attr.cqe : 64};
	struct sgp_recv_part part = {.size = 4096};
	struct sgp_srq_attr srq = {.depth = attr.depth ? attr.depth : 8,
				   .limit = attr.limit,
				   .recv = &part,
				   .num_recv = 1,
				   .context = &w};
	struct ibv_device **list;

	memset(&w, 0, sizeof w);
	ck_assert_int_eq(sv_device_add("dev0", persona, 1), 0);
	list = ibv_get_device_list(NULL);
	w.verbs = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	ck_assert_ptr_nonnull(w.pd = ibv_alloc_pd(w.verbs));
	w.pool = pool_of(attr.chunks ? attr.chunks : 32);
	w.out_pool = pool_of(32);
	if (attr.single_threaded) {
		cq.flags = SGP_CQ_SINGLE_THREADED;
		srq.flags = SGP_SRQ_SINGLE_THREADED;
	}
	for (int i = 0; i < (attr.ncqs ? attr.ncqs : 1); i++) {
		ck_assert_ptr_nonnull(w.cq[i] = sgp_cq_create(w.verbs, &cq));
		ck_assert_ptr_nonnull(w.wc[i] = sgp_wc_alloc(w.cq[i], WC));
	}
	cq.flags = 0;
	ck_assert_ptr_nonnull(w.out_cq = sgp_cq_create(w.verbs, &cq));
	ck_assert_ptr_nonnull(w.out_wc = sgp_wc_alloc(w.out_cq, WC));
	part.pool = w.pool;
	srq.pd = w.pd;
	w.depth = srq.depth;
	w.srq = sgp_srq_create(&srq);
	ck_assert_msg(w.srq != NULL, "%s", sgp_errmsg());
}

static int ncqs(void)
{
	return w.cq[1] ? 2 : 1;
}

/* A pair of connected endpoints. */
static void add(int i)
{
	struct sgp_ep_attr attr = {.pd = w.pd, .cap = {.max_send_wr = 8, .max_recv_wr = 1}};

	attr.cq = w.out_cq;
	w.out[i] = sgp_ep_create(NULL, &attr);
	ck_assert_msg(w.out[i] != NULL, "%s", sgp_errmsg());
	attr.cq = w.cq[i % ncqs()];
	attr.srq = w.srq;
	attr.cap.max_recv_wr = 0;
	w.in[i] = sgp_ep_create(NULL, &attr);
	ck_assert_msg(w.in[i] != NULL, "%s", sgp_errmsg());
	for (int j = 0; j < 2; j++)
		ck_assert_int_eq(plain_init(sgp_ep_qp(j ? w.in[i] : w.out[i])), 0);
	ck_assert_int_eq(plain_join(sgp_ep_qp(w.out[i]), sgp_ep_qp(w.in[i])->qp_num, 7, 1), 0);
	ck_assert_int_eq(plain_join(sgp_ep_qp(w.in[i]), sgp_ep_qp(w.out[i])->qp_num, 7, 1), 0);
}

static void drop_all(struct sgp_cq *cq, struct sgp_wc *wc)
{
	int n;

	while ((n = sgp_poll(cq, WC, wc)) > 0)
		for (int i = 0; i < n; i++)
			sgp_sgl_clear(&wc[i].sgl);
	ck_assert_int_eq(n, 0);
}

static void close_ep(struct sgp_ep **ep, struct sgp_cq *cq, struct sgp_wc *wc)
{
	ck_assert_int_eq(sgp_ep_close(*ep, 100), 0);
	drop_all(cq, wc);
	ck_assert_int_eq(sgp_ep_destroy(*ep), 0);
	*ep = NULL;
}

static void take_away(int i)
{
	close_ep(&w.in[i], w.cq[i % ncqs()], w.wc[i % ncqs()]);
	close_ep(&w.out[i], w.out_cq, w.out_wc);
}

static struct sgp_srq_stats stats(void)
{
	struct sgp_srq_stats s;

	ck_assert_int_eq(sgp_srq_stats(w.srq, &s), 0);
	return s;
}

/* So many receives are held by the queue, and the rest of what is live is the test's. */
static void check_posted(uint32_t posted)
{
	const char *wrong = sgp_pool_check(w.pool);
	struct sgp_pool_stats pool;

	ck_assert_msg(!wrong, "%s", wrong);
	ck_assert_uint_eq(stats().posted, posted);
	ck_assert_int_eq(sgp_pool_stats(w.pool, &pool), 0);
	ck_assert_uint_eq(pool.live, posted + (uint32_t)w.held);
}

static void close_world(void)
{
	for (int i = 0; i < PAIRS; i++)
		if (w.in[i])
			take_away(i);
	ck_assert_int_eq(sgp_srq_destroy(w.srq), 0);
	for (int i = 0; i < ncqs(); i++) {
		sgp_wc_free(w.wc[i]);
		ck_assert_int_eq(sgp_cq_destroy(w.cq[i]), 0);
	}
	sgp_wc_free(w.out_wc);
	ck_assert_int_eq(sgp_cq_destroy(w.out_cq), 0);
	ck_assert_int_eq(sgp_pool_destroy(w.pool), 0);
	ck_assert_int_eq(sgp_pool_destroy(w.out_pool), 0);
	ck_assert_int_eq(ibv_dealloc_pd(w.pd), 0);
	ck_assert_int_eq(ibv_close_device(w.verbs), 0);
	rig_check_no_leak();
}

/* Sends that nobody asked about are retired. */
static void settle_sends(void)
{
	for (int i = 0; i < 64; i++)
		ck_assert_int_eq(sgp_poll(w.out_cq, WC, w.out_wc), 0);
}

/* A message of 100 bytes on pair i; nobody asks for its send's completion. */
static void send_on(int i, int byte)
{
	struct sgp_chunk *chunk = sgp_pool_get(w.out_pool, 100, 0);

	ck_assert_ptr_nonnull(chunk);
	memset(sgp_chunk_addr(chunk), byte, 100);
	ck_assert_msg(!sgp_post_send(w.out[i], NULL, chunk, 0, 100, 0), "%s", sgp_errmsg());
	settle_sends();
}

/* The next message of pair i's completion queue is pair i's. Its list stays in the first wc. */
static struct sgp_wc *receive_on(int i, int byte)
{
	struct sgp_wc *wc = w.wc[i % ncqs()];

	ck_assert_int_eq(sgp_wait(w.cq[i % ncqs()], 1, wc, 5000), 1);
	ck_assert_int_eq(wc->status, IBV_WC_SUCCESS);
	ck_assert_int_eq(wc->opcode, IBV_WC_RECV);
	ck_assert_ptr_eq(wc->ep, w.in[i]);
	ck_assert_ptr_eq(wc->context, &w);
	ck_assert_uint_eq(wc->byte_len, 100);
	ck_assert_int_eq(wc->sgl.num_chunk, 1);
	for (int j = 0; j < 100; j++)
		ck_assert_uint_eq(((uint8_t *)(uintptr_t)wc->sgl.sge[0].addr)[j], (uint8_t)byte);
	return wc;
}

static void exchange(int i, int byte)
{
	send_on(i, byte);
	sgp_sgl_clear(&receive_on(i, byte)->sgl);
}

/* What the completion queue hands over is what its lists take, holds too. */
START_TEST(lists_too_long_for_the_completion_queue)
{
	struct sgp_srq_attr long_lists = {.depth = 2, .max_sge = 2, .max_chunk = 17};
	struct sgp_ep_attr attr = {.cap = {.max_send_wr = 1}};
	struct sgp_srq *srq;

	open_world("soft", (struct world_attr){0});
	long_lists.pd = attr.pd = w.pd;
	attr.cq = w.cq[0]; /* of 16 */
	ck_assert_ptr_nonnull(srq = sgp_srq_create(&long_lists));
	attr.srq = srq;
	ck_assert_ptr_null(sgp_ep_create(NULL, &attr));
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(sgp_srq_destroy(srq), 0);
	long_lists.max_chunk = 16;
	ck_assert_ptr_nonnull(srq = sgp_srq_create(&long_lists));
	attr.srq = srq;
	ck_assert_ptr_nonnull(w.in[0] = sgp_ep_create(NULL, &attr));
	close_ep(&w.in[0], w.cq[0], w.wc[0]);
	ck_assert_int_eq(sgp_srq_destroy(srq), 0);
	close_world();
}
END_TEST

START_TEST(numbers_of_chunks_out_of_range)
{
	static const int wrong[] = {-1, -5, INT_MIN, INT_MAX, UINT16_MAX + 1};
	struct sgp_recv_part parts[2] = {{.size = 64}, {.size = 64}};
	struct sgp_srq_attr attr = {.depth = 2, .recv = parts, .num_recv = 2};

	open_world("soft", (struct world_attr){0});
	attr.pd = w.pd;
	parts[0].pool = parts[1].pool = w.pool;
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		parts[1].n = wrong[i];
		errno = 0;
		ck_assert_ptr_null(sgp_srq_create(&attr));
		ck_assert_int_eq(errno, EINVAL);
	}
	close_world();
}
END_TEST

/* ---- full ---- */

START_TEST(all_take_from_one_stock_that_stays_full)
{
	open_world(roce[_i / 2], (struct world_attr){.ncqs = 1 + _i % 2});
	check_posted(8);
	for (int i = 0; i < PAIRS; i++)
		add(i);
	for (int round = 0; round < 200; round++) {
		exchange(round * 7 % PAIRS, round);
		check_posted(8);
	}
	ck_assert_uint_eq(stats().recvs, 208);
	ck_assert_uint_eq(stats().lost + stats().refused + stats().orphans, 0);
	close_world();
}
END_TEST

/* One endpoint goes, with messages unread, and another one's are untouched. */
START_TEST(an_endpoint_that_goes_takes_nothing_with_it)
{
	open_world(roce[_i / 2], (struct world_attr){.ncqs = 1 + _i % 2});
	add(0);
	for (int round = 0; round < 20; round++) {
		int n = 0;

		add(1);
		for (int i = 0; i < 3; i++)
			send_on(1, i);
		send_on(0, round);
		ck_assert_int_eq(sgp_ep_close(w.in[1], 100), 0);
		/* What had come is handed out, and nothing else of it. */
		for (int cq = 0; cq < ncqs(); cq++)
			for (int got; (got = sgp_poll(w.cq[cq], WC, w.wc[cq]));)
				for (int i = 0; i < got; i++) {
					ck_assert_int_eq(w.wc[cq][i].status, IBV_WC_SUCCESS);
					n += w.wc[cq][i].ep == w.in[1];
					sgp_sgl_clear(&w.wc[cq][i].sgl);
				}
		ck_assert_int_eq(n, 3);
		check_posted(8);
		take_away(1);
		check_posted(8);
	}
	close_world();
}
END_TEST

/* The completion queue has room for the shared queue's completions once. */
START_TEST(room_is_reserved_once_a_queue)
{
	struct sgp_ep_attr attr = {.cap = {.max_send_wr = 4}};

	open_world("siw", (struct world_attr){.cqe = 16}); /* a device that can't resize */
	attr.cq = w.cq[0];
	attr.pd = w.pd;
	attr.srq = w.srq;
	for (int i = 0; i < 2; i++)
		ck_assert_msg((w.in[i] = sgp_ep_create(NULL, &attr)) != NULL, "%s", sgp_errmsg());
	ck_assert_ptr_null(sgp_ep_create(NULL, &attr));
	ck_assert_int_gt(errno, 0);
	for (int i = 0; i < 2; i++)
		close_ep(&w.in[i], w.cq[0], w.wc[0]);
	drop_all(w.cq[0], w.wc[0]);
	/* All of it came back. */
	for (int i = 0; i < 2; i++)
		ck_assert_msg((w.in[i] = sgp_ep_create(NULL, &attr)) != NULL, "%s", sgp_errmsg());
	for (int i = 0; i < 2; i++)
		close_ep(&w.in[i], w.cq[0], w.wc[0]);
	close_world();
}
END_TEST

/* ---- dry ---- */

/* Case 51d: slow consumers hold all; one is put, and it's posted in the same call. */
START_TEST(what_slow_consumers_put_is_posted_at_once)
{
	SGP_SGL(kept, 8);
	bool single = _i % 2;

	open_world(roce[_i / 2], (struct world_attr){.chunks = 8, .single_threaded = single});
	add(0);
	for (int i = 0; i < 8; i++) {
		send_on(0, i);
		ck_assert_int_eq(sgp_sgl_move(&kept, &receive_on(0, i)->sgl), 0);
		w.held++;
		check_posted(7 - (uint32_t)i);
	}
	for (int i = 8; i; i--) {
		sgp_chunk_put(kept.chunk[i - 1]);
		w.held--;
		if (single)
			ck_assert_int_eq(sgp_poll(w.cq[0], WC, w.wc[0]), 0);
		check_posted(9 - (uint32_t)i);
	}
	ck_assert_uint_eq(stats().by_put, single ? 0 : 8);
	close_world();
}
END_TEST

struct sleeper {
	struct sgp_sgl *sgl;
};

static void *put_later(void *arg)
{
	struct timespec nap = {.tv_nsec = 20000000};

	nanosleep(&nap, NULL);
	sgp_sgl_clear(((struct sleeper *)arg)->sgl);
	return NULL;
}

/* Whichever completion queue sleeps, on another one's message too. */
START_TEST(sleepers_on_both_queues_wake)
{
	struct sleeper sleeper;
	pthread_t thread;
	SGP_SGL(kept, 8);

	open_world("soft", (struct world_attr){
				   .depth = 2, .chunks = 2, .ncqs = 2, .single_threaded = _i % 2});
	add(0);
	add(1);
	for (int i = 0; i < 2; i++) {
		send_on(0, i);
		ck_assert_int_eq(sgp_sgl_move(&kept, &receive_on(0, i)->sgl), 0);
	}
	w.held = 2;
	check_posted(0);
	w.held = 0;
	send_on(_i / 2, 5);
	sleeper.sgl = &kept;
	ck_assert_int_eq(pthread_create(&thread, NULL, put_later, &sleeper), 0);
	sgp_sgl_clear(&receive_on(_i / 2, 5)->sgl);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	for (int i = 0; i < 2; i++)
		drop_all(w.cq[i], w.wc[i]);
	check_posted(2);
	close_world();
}
END_TEST

/* ---- lost ---- */

/* A completion that never comes, of an endpoint that is closed before others join. */
START_TEST(what_is_lost_is_held_counted_and_replaced)
{
	bool takes_more = !strcmp(roce[_i], "rxe"); /* its kernel frees the slots */

	open_world(roce[_i], (struct world_attr){.depth = 4});
	add(0);
	ck_assert_int_eq(sv_faults("completion drop at 0", NULL), 0);
	send_on(0, 1);
	sv_faults_clear();
	drop_all(w.cq[0], w.wc[0]);
	for (int i = 0; i < 20; i++)
		exchange(0, i);
	/* It may still come: 3 go round. */
	ck_assert_uint_eq(stats().lost, 0);
	check_posted(4);
	add(1);
	take_away(0);
	/* Older than what has come, and whoever had it is gone. */
	ck_assert_uint_eq(stats().lost, 1);
	check_posted(takes_more ? 5 : 4);
	for (int i = 0; i < 20; i++)
		exchange(1, i);
	ck_assert_uint_eq(stats().lost, 1);
	check_posted(takes_more ? 5 : 4);
	ck_assert_uint_eq(stats().missing, 0);
	close_world();
}
END_TEST

/* The same of an endpoint that was reset meanwhile. */
START_TEST(a_reset_loses_nothing_of_the_others)
{
	bool takes_more = !strcmp(roce[_i], "rxe");

	open_world(roce[_i], (struct world_attr){.depth = 4});
	add(0);
	ck_assert_int_eq(sv_faults("completion drop at 0", NULL), 0);
	send_on(0, 1);
	sv_faults_clear();
	drop_all(w.cq[0], w.wc[0]);
	for (int i = 0; i < 10; i++)
		exchange(0, i);
	ck_assert_uint_eq(stats().lost, 0);
	for (int j = 0; j < 2; j++)
		ck_assert_msg(!sgp_ep_reset(j ? w.in[0] : w.out[0]), "%s", sgp_errmsg());
	ck_assert_uint_eq(stats().lost, 1);
	check_posted(takes_more ? 5 : 4);
	for (int j = 0; j < 2; j++) {
		struct ibv_qp *qp = sgp_ep_qp(j ? w.in[0] : w.out[0]);

		ck_assert_int_eq(plain_join(qp, sgp_ep_qp(j ? w.out[0] : w.in[0])->qp_num, 7, 1),
				 0);
	}
	for (int i = 0; i < 10; i++)
		exchange(0, i);
	check_posted(takes_more ? 5 : 4);
	close_world();
}
END_TEST

/* A completion that comes when its endpoint is gone belongs to nobody, and its memory comes home. */
START_TEST(a_late_completion_is_an_orphan)
{
	open_world("rxe", (struct world_attr){.depth = 4});
	add(0);
	exchange(0, 1);
	ck_assert_int_eq(sv_faults("completion delay 200 at 0", NULL), 0);
	send_on(0, 2);
	close_ep(&w.in[0], w.cq[0], w.wc[0]);
	sv_faults_clear();
	add(1);
	for (int i = 0; i < 400 && !stats().orphans; i++)
		drop_all(w.cq[0], w.wc[0]);
	ck_assert_uint_eq(stats().orphans, 1);
	ck_assert_uint_eq(stats().lost, 0);
	check_posted(4);
	for (int i = 0; i < 10; i++)
		exchange(1, i);
	close_ep(&w.out[0], w.out_cq, w.out_wc);
	close_world();
}
END_TEST

/* The device refuses, and is asked again. */
START_TEST(a_refused_receive_is_posted_by_the_next_poll)
{
	open_world(roce[_i], (struct world_attr){0});
	add(0);
	ck_assert_int_eq(sv_fail_nth("post_srq_recv", 0, ENOMEM), 0);
	exchange(0, 1);
	check_posted(7);
	drop_all(w.cq[0], w.wc[0]);
	check_posted(8);
	ck_assert_uint_eq(stats().refused, 1);
	ck_assert_int_eq(sv_faults("post_srq_recv midway at 0", NULL), 0);
	for (int i = 0; i < 5; i++)
		send_on(0, i);
	for (int i = 0; i < 5; i++)
		sgp_sgl_clear(&receive_on(0, i)->sgl);
	drop_all(w.cq[0], w.wc[0]);
	check_posted(8);
	close_world();
}
END_TEST

/* ---- the limit ---- */

static bool next_event(struct ibv_async_event *event)
{
	struct pollfd pfd = {.fd = w.verbs->async_fd, .events = POLLIN};

	if (poll(&pfd, 1, 0) != 1)
		return false;
	ck_assert_int_eq(ibv_get_async_event(w.verbs, event), 0);
	return true;
}

static uint32_t device_limit(void)
{
	struct ibv_srq_attr attr;

	ck_assert_int_eq(ibv_query_srq(sgp_srq_ibv(w.srq), &attr), 0);
	return attr.srq_limit;
}

START_TEST(the_limit_is_told_and_set_again)
{
	struct ibv_async_event event;
	SGP_SGL(kept, 8);

	open_world(roce[_i], (struct world_attr){.chunks = 8, .limit = 4});
	add(0);
	ck_assert_uint_eq(device_limit(), 4);
	for (int i = 0; i < 5; i++) {
		ck_assert(!next_event(&event));
		send_on(0, i);
		ck_assert_int_eq(sgp_sgl_move(&kept, &receive_on(0, i)->sgl), 0);
		w.held++;
	}
	ck_assert(next_event(&event));
	ck_assert_int_eq(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
	ck_assert_int_eq(sgp_srq_event(w.srq, &event), 0);
	ibv_ack_async_event(&event);
	ck_assert_uint_eq(stats().limits, 1);
	/* Not above it yet: setting it now would only bring the same event. */
	ck_assert_uint_eq(device_limit(), 0);
	w.held = 0;
	sgp_sgl_clear(&kept);
	check_posted(8);
	ck_assert_uint_eq(device_limit(), 4);
	ck_assert(!next_event(&event));
	for (int i = 0; i < 5; i++) {
		send_on(0, i);
		ck_assert_int_eq(sgp_sgl_move(&kept, &receive_on(0, i)->sgl), 0);
	}
	ck_assert(next_event(&event));
	/* Of no interest to others, and not to this one when it's another's. */
	event.element.srq = NULL;
	ck_assert_int_eq(sgp_srq_event(w.srq, &event), 0);
	ck_assert_uint_eq(stats().limits, 1);
	event.element.srq = sgp_srq_ibv(w.srq);
	ck_assert_int_eq(sgp_srq_event(w.srq, &event), 0);
	ibv_ack_async_event(&event);
	ck_assert_uint_eq(stats().limits, 2);
	sgp_sgl_clear(&kept);
	close_world();
}
END_TEST

/* ---- making, ending, refusing ---- */

START_TEST(what_is_wrong_is_refused)
{
	struct sgp_recv_part part;
	struct sgp_srq_attr attr;
	struct sgp_ep_attr ep;
	struct sgp_chunk *chunk;
	SGP_SGL(sgl, 1);

	open_world("soft", (struct world_attr){.chunks = 12});
	add(0);
	part = (struct sgp_recv_part){.pool = w.pool, .size = 100};
#define REFUSED(err, ...)                                                                          \
	do {                                                                                       \
		attr = (struct sgp_srq_attr){                                                      \
			.pd = w.pd, .depth = 4, .recv = &part, .num_recv = 1};                     \
		__VA_ARGS__;                                                                       \
		ck_assert_ptr_null(sgp_srq_create(&attr));                                         \
		ck_assert_int_eq(errno, err);                                                      \
		ck_assert_int_gt(strlen(sgp_errmsg()), 0);                                         \
		check_posted(8);                                                                   \
	} while (0)
	REFUSED(EINVAL, attr.pd = NULL);
	REFUSED(EINVAL, attr.depth = 0);
	REFUSED(EINVAL, attr.flags = 1u << 9);
	REFUSED(EINVAL, attr.comp_mask = 1);
	REFUSED(EINVAL, attr.recv = NULL);
	REFUSED(EINVAL, attr.limit = 5);
	REFUSED(EINVAL, part.size = 0);
	REFUSED(EMSGSIZE, part.size = 5000);
	part.size = 100;
	REFUSED(E2BIG, attr.max_sge = 1000);
	REFUSED(E2BIG, attr.depth = 1u << 30);
	REFUSED(ENOBUFS, attr.depth = 5);
	for (uint64_t at = 0;; at++) { /* every call that it makes of the device fails once */
		struct sgp_srq *srq;

		attr = (struct sgp_srq_attr){
			.pd = w.pd, .depth = 4, .limit = 2, .recv = &part, .num_recv = 1};
		ck_assert_int_eq(sv_fail_nth("any", at, ENOMEM), 0);
		srq = sgp_srq_create(&attr);
		if (srq) {
			ck_assert_int_eq(sv_fail_nth("any", 0, 0), 0);
			ck_assert_int_eq(sgp_srq_destroy(srq), 0);
			ck_assert_uint_ge(at, 3);
			break;
		}
		ck_assert_int_eq(errno, ENOMEM);
		check_posted(8);
	}
	/* The endpoint's side. */
	ep = (struct sgp_ep_attr){.cq = w.cq[0],
				  .pd = w.pd,
				  .cap = {.max_send_wr = 4},
				  .srq = w.srq,
				  .recv = &part,
				  .num_recv = 1};
	ck_assert_ptr_null(sgp_ep_create(NULL, &ep));
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_ptr_nonnull(chunk = sgp_pool_get(w.pool, 1, 0));
	ck_assert_int_eq(sgp_post_recv(w.in[0], NULL, chunk, 0, 100), -1);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(sgp_sgl_append(&sgl, chunk, 0, 100), 0);
	ck_assert_int_eq(sgp_srq_post_recvv(w.srq, NULL, &sgl), -1);
	ck_assert_int_eq(errno, EINVAL);
	sgp_sgl_clear(&sgl);
	ck_assert_int_eq(sgp_ep_refill(w.in[0]), -1);
	ck_assert_int_eq(errno, EINVAL);
	/* In use. */
	ck_assert_int_eq(sgp_srq_destroy(w.srq), -1);
	ck_assert_int_eq(errno, EBUSY);
	exchange(0, 3);
	take_away(0);
	ck_assert_int_eq(sv_fail_nth("destroy_srq", 0, EIO), 0);
	ck_assert_int_eq(sgp_srq_destroy(w.srq), -1);
	ck_assert_int_eq(errno, EIO);
	check_posted(8);
	add(0);
	exchange(0, 4);
	close_world();
}
END_TEST

START_TEST(a_mix_of_threading_is_refused)
{
	struct sgp_ep_attr ep = {.cap = {.max_send_wr = 4}};

	open_world("soft", (struct world_attr){.single_threaded = true});
	ep.cq = w.out_cq;
	ep.pd = w.pd;
	ep.srq = w.srq;
	ck_assert_ptr_null(sgp_ep_create(NULL, &ep));
	ck_assert_int_eq(errno, EINVAL);
	close_world();
}
END_TEST

/* For those who post themselves. */
START_TEST(a_caller_may_post_receives_himself)
{
	struct sgp_srq_attr attr = {.depth = 4, .max_sge = 2};
	int context[4];
	SGP_SGL(sgl, 2);

	open_world(roce[_i], (struct world_attr){0});
	ck_assert_int_eq(sgp_srq_destroy(w.srq), 0);
	attr.pd = w.pd;
	ck_assert_ptr_nonnull(w.srq = sgp_srq_create(&attr));
	add(0);
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 4; i++) {
			ck_assert_int_eq(sgp_sgl_get(&sgl, w.pool, 4096, 1, 0), 0);
			ck_assert_int_eq(sgp_srq_post_recvv(w.srq, &context[i], &sgl), 0);
			ck_assert_int_eq(sgl.num_chunk, 0);
		}
		check_posted(4);
		ck_assert_int_eq(sgp_sgl_get(&sgl, w.pool, 4096, 1, 0), 0);
		ck_assert_int_eq(sgp_srq_post_recvv(w.srq, NULL, &sgl), -1);
		ck_assert_int_eq(errno, EAGAIN);
		sgp_sgl_clear(&sgl);
		for (int i = 0; i < 4; i++) {
			send_on(0, i);
			ck_assert_int_eq(sgp_wait(w.cq[0], 1, w.wc[0], 5000), 1);
			ck_assert_ptr_eq(w.wc[0]->context, &context[i]);
			sgp_sgl_clear(&w.wc[0]->sgl);
		}
		check_posted(0);
	}
	ck_assert_int_eq(sgp_srq_refill(w.srq), -1);
	ck_assert_int_eq(errno, EINVAL);
	close_world();
}
END_TEST

/* ---- two pollers at once ---- */

#define MESSAGES 2000

static void *poller(void *arg)
{
	int i = (int)(intptr_t)arg, got = 0;

	while (got < MESSAGES) {
		int n = sgp_wait(w.cq[i], WC, w.wc[i], 1000);

		for (int j = 0; j < n; j++) {
			ck_assert_int_eq(w.wc[i][j].status, IBV_WC_SUCCESS);
			ck_assert_ptr_eq(w.wc[i][j].ep, w.in[i]);
			sgp_sgl_clear(&w.wc[i][j].sgl);
			got++;
		}
	}
	return NULL;
}

START_TEST(two_pollers_share_a_queue)
{
	pthread_t thread[2];

	open_world("soft", (struct world_attr){.depth = 4, .chunks = 6, .ncqs = 2});
	add(0);
	add(1);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, poller, (void *)(intptr_t)i), 0);
	for (int i = 0; i < 2 * MESSAGES; i++) {
		struct sgp_chunk *chunk;

		while (!(chunk = sgp_pool_get(w.out_pool, 100, 0)))
			sgp_poll(w.out_cq, WC, w.out_wc);
		while (sgp_post_send(w.out[i % 2], NULL, chunk, 0, 100, 0)) {
			ck_assert_int_eq(errno, EAGAIN);
			sgp_poll(w.out_cq, WC, w.out_wc);
		}
	}
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_join(thread[i], NULL), 0);
	settle_sends();
	for (int i = 0; i < 2; i++)
		drop_all(w.cq[i], w.wc[i]);
	check_posted(4);
	close_world();
}
END_TEST

/* ---- with a connection manager ---- */

static struct sgp_srq *cm_srq;

static void on_the_shared_queue(struct rig_side *side, struct sgp_ep_attr *ep)
{
	struct sgp_recv_part part = {.pool = side->pool, .size = 4096};
	struct sgp_srq_attr attr = {
		.pd = side->pd, .depth = 8, .recv = &part, .num_recv = 1, .context = side};

	if (side->number == 0)
		return;
	cm_srq = sgp_srq_create(&attr);
	ck_assert_msg(cm_srq != NULL, "%s", sgp_errmsg());
	ep->srq = cm_srq;
}

START_TEST(a_connection_may_be_on_one)
{
	static const char *const personas[] = {"soft", "rxe", "siw", "mlx5"};
	struct rig rig;
	struct rig_attr attr = {.tune = on_the_shared_queue, .chunks = 16};
	struct rig_side *a = &rig.side[0], *b = &rig.side[1];

	ck_assert_int_eq(sv_device_add("dev0", personas[_i], 1), 0);
	rig_open(&rig, &attr);
	for (int i = 0; i < 50; i++) {
		rig_post_send(a, NULL, i);
		rig_reap(a, 1);
		rig_reap(b, 1);
		ck_assert_int_eq(b->wc[0].status, IBV_WC_SUCCESS);
		ck_assert_ptr_eq(b->wc[0].context, b);
		ck_assert_uint_eq(*(uint8_t *)(uintptr_t)b->wc[0].sgl.sge[0].addr, (uint8_t)i);
		sgp_sgl_clear(&b->wc[0].sgl);
		rig_check_live(b, 8);
	}
	ck_assert_int_eq(rig_close_ep(b), 0);
	rig_check_live(b, 8);
	ck_assert_int_eq(sgp_srq_destroy(cm_srq), 0);
	rig_check_live(b, 0);
	rig_close(&rig);
	rig_check_no_leak();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("srq");
	TCase *tc = tcase_create("srq");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, lists_too_long_for_the_completion_queue);
	tcase_add_test(tc, numbers_of_chunks_out_of_range);
	tcase_add_loop_test(tc, all_take_from_one_stock_that_stays_full, 0, 2 * NROCE);
	tcase_add_loop_test(tc, an_endpoint_that_goes_takes_nothing_with_it, 0, 2 * NROCE);
	tcase_add_test(tc, room_is_reserved_once_a_queue);
	tcase_add_loop_test(tc, what_slow_consumers_put_is_posted_at_once, 0, 2 * NROCE);
	tcase_add_loop_test(tc, sleepers_on_both_queues_wake, 0, 4);
	tcase_add_loop_test(tc, what_is_lost_is_held_counted_and_replaced, 0, NROCE);
	tcase_add_loop_test(tc, a_reset_loses_nothing_of_the_others, 0, NROCE);
	tcase_add_test(tc, a_late_completion_is_an_orphan);
	tcase_add_loop_test(tc, a_refused_receive_is_posted_by_the_next_poll, 0, NROCE);
	tcase_add_loop_test(tc, the_limit_is_told_and_set_again, 0, NROCE);
	tcase_add_test(tc, what_is_wrong_is_refused);
	tcase_add_test(tc, a_mix_of_threading_is_refused);
	tcase_add_loop_test(tc, a_caller_may_post_receives_himself, 0, NROCE);
	tcase_add_test(tc, two_pollers_share_a_queue);
	tcase_add_loop_test(tc, a_connection_may_be_on_one, 0, 4);
	suite_add_tcase(s, tc);
	return suite_run(s);
}
