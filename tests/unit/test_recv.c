/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Receives that the library keeps posted: full before each poll returns, on devices of every kind;
 * what a completion hands over; pools that run dry and recover. After each step the receiving pool
 * has live exactly what is posted and what the test holds.
 */
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "../plain.h"
#include "pool/pool.h"
#include "post/ep.h"
#include "rig.h"

static const char *const personas[] = {"soft", "rxe", "siw", "mlx4", "mlx5", "hns", "irdma"};
#define NPERSONAS ((int)(sizeof personas / sizeof *personas))

/* Those whose queue pairs connect without a connection manager. */
static const char *const roce[] = {"soft", "rxe", "mlx4", "mlx5", "hns"};
#define NROCE ((int)(sizeof roce / sizeof *roce))

static struct rig rig;
static struct rig_side *a, *b;
static int context[16];

/* ---- a rig whose side b is kept full ---- */

static struct sgp_recv_part parts[3];
static int nparts, held_of_b; /* chunks that the test holds */

static void keep_b_full(struct rig_side *side, struct sgp_ep_attr *ep)
{
	if (side->number == 0)
		return;
	for (int i = 0; i < nparts; i++)
		if (!parts[i].pool)
			parts[i].pool = side->pool;
	ep->recv = parts;
	ep->num_recv = nparts;
	ep->recv_context = &context[15];
}

static void one_part(size_t size)
{
	parts[0] = (struct sgp_recv_part){.size = size};
	nparts = 1;
}

static void open_rig(const char *persona, struct rig_attr attr)
{
	if (persona)
		ck_assert_int_eq(sv_device_add("dev0", persona, 1), 0);
	if (!nparts)
		one_part(4096);
	attr.tune = keep_b_full;
	rig_open(&rig, &attr);
	a = &rig.side[0];
	b = &rig.side[1];
}

static void close_rig(void)
{
	rig_close(&rig);
	rig_check_no_leak();
}

static struct sgp_ep_info info_of(struct rig_side *side)
{
	struct sgp_ep_info info;

	ck_assert_int_eq(sgp_ep_query(side->ep, &info), 0);
	return info;
}

static struct sgp_ep_stats stats_of(struct rig_side *side)
{
	struct sgp_ep_stats stats;

	ck_assert_int_eq(sgp_ep_stats(side->ep, &stats), 0);
	return stats;
}

static int chunks_a_receive(void)
{
	int n = 0;

	for (int i = 0; i < nparts; i++)
		n += parts[i].n ? parts[i].n : 1;
	return n;
}

/* So many receives are posted; nothing else is out of the pool but what the test holds. */
static void check_b(int posted)
{
	const char *wrong = sgp_pool_check(b->pool);

	ck_assert_msg(!wrong, "%s", wrong);
	ck_assert_int_eq(info_of(b).recv_posted, posted);
	ck_assert_int_eq(info_of(b).recv_missing, (int)rig.attr.depth - posted);
	rig_check_live(b, (uint64_t)(posted * chunks_a_receive() + held_of_b));
}

/* a sends n bytes, byte i being byte + i. */
static void send_bytes(size_t n, int byte)
{
	SGP_SGL(sgl, 4);
	size_t done = 0;

	while (done < n) {
		struct sgp_chunk *chunk = sgp_pool_get(a->pool, 4096, 0);
		size_t piece = n - done < sgp_chunk_size(chunk) ? n - done : sgp_chunk_size(chunk);
		uint8_t *p = sgp_chunk_addr(chunk);

		for (size_t i = 0; i < piece; i++)
			p[i] = (uint8_t)(byte + (int)(done + i));
		ck_assert_int_eq(sgp_sgl_append(&sgl, chunk, 0, piece), 0);
		done += piece;
	}
	ck_assert_msg(!sgp_post_sendv(a->ep, &context[0], &sgl, IBV_SEND_SIGNALED), "%s",
		      sgp_errmsg());
	rig_reap(a, 1);
	ck_assert_int_eq(a->wc[0].status, IBV_WC_SUCCESS);
}

/* wc is a message of n such bytes. */
static void check_message(const struct sgp_wc *wc, size_t n, int byte)
{
	size_t done = 0;

	ck_assert_int_eq(wc->status, IBV_WC_SUCCESS);
	ck_assert_int_eq(wc->opcode, IBV_WC_RECV);
	ck_assert_ptr_eq(wc->context, &context[15]);
	ck_assert_uint_eq(wc->byte_len, n);
	ck_assert_uint_eq(wc->sgl.length, n);
	for (int i = 0; i < wc->sgl.num_sge; i++) {
		const uint8_t *p = (const uint8_t *)(uintptr_t)wc->sgl.sge[i].addr;

		for (uint32_t j = 0; j < wc->sgl.sge[i].length; j++, done++)
			ck_assert_uint_eq(p[j], (uint8_t)(byte + (int)done));
	}
	ck_assert_uint_eq(done, n);
}

/* One message at b, and its list is kept or dropped. */
static void receive(size_t n, int byte, struct sgp_sgl *keep)
{
	rig_reap(b, 1);
	check_message(&b->wc[0], n, byte);
	if (keep) {
		held_of_b += b->wc[0].sgl.num_chunk;
		ck_assert_int_eq(sgp_sgl_move(keep, &b->wc[0].sgl), 0);
	} else {
		sgp_sgl_clear(&b->wc[0].sgl);
	}
}

static void let_go(struct sgp_sgl *sgl)
{
	held_of_b -= sgl->num_chunk;
	sgp_sgl_clear(sgl);
}

/* ---- full ---- */

START_TEST(it_is_full_from_the_start_and_before_each_poll_returns)
{
	open_rig(personas[_i], (struct rig_attr){.depth = 8, .chunks = 16});
	check_b(8);
	for (int round = 0; round < 100; round++) {
		send_bytes(100, round);
		receive(100, round, NULL);
		check_b(8);
	}
	ck_assert_uint_eq(stats_of(b).refilled, 108);
	ck_assert_uint_eq(stats_of(b).recv_dry, 0);
	close_rig();
}
END_TEST

START_TEST(a_batch_is_replaced_by_one_call)
{
	uint64_t calls;

	open_rig(personas[_i], (struct rig_attr){.depth = 8, .chunks = 32});
	for (int i = 0; i < 6; i++)
		send_bytes(64, i);
	calls = sv_calls("post_recv");
	rig_reap(b, 6);
	ck_assert_uint_eq(sv_calls("post_recv"), calls + 1);
	for (int i = 0; i < 6; i++) {
		check_message(&b->wc[i], 64, i);
		sgp_sgl_clear(&b->wc[i].sgl);
	}
	check_b(8);
	close_rig();
}
END_TEST

/* Case 51c: never one too many. */
START_TEST(a_queue_of_one_receive_has_one)
{
	open_rig(personas[_i], (struct rig_attr){.depth = 1, .chunks = 4, .cqe = 8});
	for (int round = 0; round < 100; round++) {
		check_b(1);
		send_bytes(10, round);
		receive(10, round, NULL);
	}
	check_b(1);
	ck_assert_uint_eq(stats_of(b).recv_refused, 0);
	close_rig();
}
END_TEST

/* ---- what is handed over ---- */

START_TEST(header_and_payload_are_apart)
{
	static const struct {
		size_t bytes;
		int sges;
	} messages[] = {{64 + 4096 + 4096, 3},
			{64 + 4096 + 1, 3},
			{64 + 4096, 2},
			{64 + 1, 2},
			{64, 1},
			{1, 1},
			{0, 0}};

	nparts = 2;
	parts[0] = (struct sgp_recv_part){.size = 64};
	parts[1] = (struct sgp_recv_part){.size = 4096, .n = 2};
	/* Of two classes, and of one. */
	open_rig(personas[_i / 2],
		 (struct rig_attr){.depth = 4, .chunks = 20, .small = _i % 2 * 8});
	check_b(4);
	for (size_t i = 0; i < sizeof messages / sizeof *messages; i++) {
		SGP_SGL(kept, 4);

		send_bytes(messages[i].bytes, (int)i);
		receive(messages[i].bytes, (int)i, &kept);
		ck_assert_int_eq(kept.num_sge, messages[i].sges);
		ck_assert_int_eq(kept.num_chunk, messages[i].sges);
		for (int j = 1; j < kept.num_sge; j++)
			ck_assert_uint_eq(kept.sge[j].addr % 4096, 0);
		check_b(4);
		let_go(&kept);
		check_b(4);
	}
	close_rig();
}
END_TEST

START_TEST(a_message_is_forwarded_without_a_copy)
{
	struct sgp_chunk *chunk;

	open_rig(personas[_i], (struct rig_attr){.depth = 4, .chunks = 8});
	send_bytes(1000, 'f');
	rig_reap(b, 1);
	chunk = b->wc[0].sgl.chunk[0];
	rig_post_recv(a, &context[1]);
	/* Straight out of the completion's list. */
	ck_assert_msg(!sgp_post_sendv(b->ep, &context[2], &b->wc[0].sgl, SGP_HANDOVER), "%s",
		      sgp_errmsg());
	ck_assert_int_eq(b->wc[0].sgl.num_chunk, 0);
	rig_reap(a, 1);
	ck_assert_uint_eq(a->wc[0].byte_len, 1000);
	for (int i = 0; i < 1000; i++)
		ck_assert_uint_eq(((uint8_t *)(uintptr_t)a->wc[0].sgl.sge[0].addr)[i],
				  (uint8_t)('f' + i));
	rig_reap(b, 1);
	ck_assert_ptr_eq(b->wc[0].sgl.chunk[0], chunk);
	held_of_b = 1;
	check_b(4);
	held_of_b = 0;
	close_rig();
}
END_TEST

/* In a checked pool what is posted is known to be the device's. */
START_TEST(a_checked_pool_knows_what_is_posted)
{
	struct sgp_chunk *chunk;
	SGP_SGL(kept, 4);

	open_rig(personas[_i],
		 (struct rig_attr){.depth = 4, .chunks = 16, .pool_flags = SGP_POOL_CHECKED});
	for (int i = 0; i < 4; i++) {
		chunk = sgp_side_slot(&b->ep->recv, b->ep->recv.tail)->chunk[0];
		errno = 0;
		ck_assert_int_eq(sgp_check_claim(chunk), -1);
		ck_assert_int_eq(errno, EBUSY);
		send_bytes(100, i);
		if (i == 2)
			ck_assert_int_eq(sv_fail_nth("post_recv", 0, ENOMEM), 0);
		receive(100, i, &kept);
		ck_assert_ptr_eq(kept.chunk[0], chunk);
		ck_assert_int_eq(sgp_check_claim(chunk), 0);
		let_go(&kept);
	}
	rig_close_ep(b);
	ck_assert_uint_eq(sgp_check_findings(), 0);
	close_rig();
}
END_TEST

/* A list that was copied for its send is no shared queue's when it comes back. */
START_TEST(a_copy_is_handed_back)
{
	SGP_SGL(sgl, 3);

	open_rig(NULL, (struct rig_attr){.depth = 4, .chunks = 8, .max_sge = 2, .cq_sge = 4});
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(sgp_sgl_append(&sgl, rig_chunk(a, 'c'), 8, 100), 0);
	ck_assert_msg(!sgp_post_sendv(a->ep, NULL, &sgl, SGP_HANDOVER | SGP_LINEARISE), "%s",
		      sgp_errmsg());
	rig_reap(a, 1);
	ck_assert_int_eq(a->wc[0].status, IBV_WC_SUCCESS);
	ck_assert_int_eq(a->wc[0].sgl.num_chunk, 1);
	rig_reap(b, 1);
	ck_assert_uint_eq(b->wc[0].byte_len, 300);
	sgp_sgl_clear(&b->wc[0].sgl);
	check_b(4);
	close_rig();
}
END_TEST

START_TEST(room_in_front_takes_a_header)
{
	SGP_SGL(kept, 4);

	parts[0] = (struct sgp_recv_part){.size = 1000, .offset = 96};
	nparts = 1;
	open_rig(NULL, (struct rig_attr){.depth = 4, .chunks = 8});
	send_bytes(1000, 'h');
	receive(1000, 'h', &kept);
	ck_assert_uint_eq(kept.sge[0].addr, (uintptr_t)sgp_chunk_addr(kept.chunk[0]) + 96);
	sgp_chunk_ref(kept.chunk[0]);
	ck_assert_int_eq(sgp_sgl_prepend(&kept, kept.chunk[0], 64, 32), 0);
	ck_assert_int_eq(kept.num_sge, 1);
	ck_assert_uint_eq(kept.length, 1032);
	held_of_b = 1; /* chunk, held twice */
	check_b(4);
	held_of_b = 2;
	let_go(&kept);
	check_b(4);
	close_rig();
}
END_TEST

/* Case 22: an empty message takes a whole receive, of real memory. */
START_TEST(an_empty_message_gives_its_chunks_back)
{
	SGP_SGL(nothing, 1);

	open_rig(personas[_i], (struct rig_attr){.depth = 4, .chunks = 8});
	for (int i = 0; i < 10; i++) {
		ck_assert_int_eq(sgp_post_sendv(a->ep, NULL, &nothing, IBV_SEND_SIGNALED), 0);
		rig_reap(a, 1);
		rig_reap(b, 1);
		check_message(&b->wc[0], 0, 0);
		ck_assert_int_eq(b->wc[0].sgl.num_chunk, 0);
		check_b(4);
	}
	close_rig();
}
END_TEST

/* ---- dry, and not ---- */

/* Case 49: sends and receives share a pool, and the sends take what they can. */
START_TEST(sends_cannot_starve_receives)
{
	struct sgp_chunk *got[16];
	int n = 0;

	open_rig(personas[_i], (struct rig_attr){.depth = 4, .chunks = 16, .reserve = 8});
	/* Four of the reserve are posted; sends may have the eight that are not of it. */
	while (n < 16 && (got[n] = sgp_pool_get(b->pool, 4096, 0)))
		n++;
	ck_assert_int_eq(n, 8);
	ck_assert_int_eq(errno, ENOBUFS);
	held_of_b = n;
	for (int round = 0; round < 20; round++) {
		SGP_SGL(kept, 4);

		send_bytes(100, round);
		receive(100, round, &kept);
		check_b(4);
		let_go(&kept);
	}
	while (n)
		sgp_chunk_put(got[--n]);
	held_of_b = 0;
	check_b(4);
	ck_assert_ptr_nonnull(got[0] = sgp_pool_get(b->pool, 4096, 0));
	sgp_chunk_put(got[0]);
	close_rig();
}
END_TEST

START_TEST(a_dry_pool_is_remembered_and_a_put_posts)
{
	struct sgp_sgl kept[8];
	struct ibv_sge sge[8][4];
	struct sgp_chunk *chunk[8][4];

	open_rig(personas[_i / 2],
		 (struct rig_attr){
			 .depth = 4, .chunks = 8, .cq_flags = _i % 2 ? SGP_CQ_SINGLE_THREADED : 0});
	for (int i = 0; i < 8; i++) {
		sgp_sgl_init(&kept[i], sge[i], 4, chunk[i], 4);
		send_bytes(100, i);
		receive(100, i, &kept[i]);
		check_b(i < 4 ? 4 : 7 - i);
	}
	ck_assert_uint_gt(stats_of(b).recv_dry, 0);
	for (int i = 0; i < 4; i++) {
		int before = i;

		let_go(&kept[i]);
		if (_i % 2) { /* the poll's, where the caller serialises */
			ck_assert_int_eq(info_of(b).recv_posted, before);
			ck_assert_int_eq(sgp_poll(b->cq, 1, b->wc), 0);
		}
		check_b(i + 1);
	}
	ck_assert_uint_eq(stats_of(b).recv_by_put, _i % 2 ? 0 : 4);
	for (int i = 4; i < 8; i++) {
		send_bytes(100, i);
		receive(100, i, NULL);
		if (_i % 2)
			ck_assert_int_eq(sgp_poll(b->cq, 1, b->wc), 0);
		check_b(4);
	}
	for (int i = 4; i < 8; i++)
		let_go(&kept[i]);
	check_b(4);
	close_rig();
}
END_TEST

START_TEST(closing_a_waiting_endpoint_holds_nothing)
{
	SGP_SGL(kept, 8);
	struct sgp_chunk *rest[8];
	int n = 0;

	nparts = 2;
	parts[0] = (struct sgp_recv_part){.size = 4096};
	parts[1] = (struct sgp_recv_part){.size = 64};
	open_rig(NULL, (struct rig_attr){.depth = 4, .chunks = 16, .small = 5});
	ck_assert_ptr_nonnull(rest[n++] = sgp_pool_get(b->pool, 64, 0));
	send_bytes(4100, 0);
	receive(4100, 0, &kept);
	ck_assert_int_eq(info_of(b).recv_missing, 1);
	ck_assert_uint_eq(stats_of(b).recv_dry, 1);
	/* It may hold half of the next receive: by the order of the classes. */
	ck_assert_int_eq(sgp_ep_close(b->ep, 100), 0);
	while (sgp_poll(b->cq, RIG_WC, b->wc) > 0)
		for (int i = 0; i < RIG_WC; i++)
			sgp_sgl_clear(&b->wc[i].sgl);
	rig_check_live(b, 3);
	let_go(&kept);
	while (n)
		sgp_chunk_put(rest[--n]);
	rig_check_live(b, 0);
	close_rig();
}
END_TEST

/* A second endpoint on b's queue and pool: a plain queue pair in INIT. */
static struct sgp_ep *plain_ep(const struct sgp_recv_part *recv, int n, uint32_t depth)
{
	struct sgp_ep_attr attr = {.cq = b->cq,
				   .pd = b->pd,
				   .cap = {.max_send_wr = 4,
					   .max_recv_wr = depth,
					   .max_send_sge = 4,
					   .max_recv_sge = 4},
				   .recv = recv,
				   .num_recv = n};
	struct sgp_ep *ep = sgp_ep_create(NULL, &attr);

	ck_assert_msg(ep != NULL, "%s", sgp_errmsg());
	ck_assert_int_eq(plain_init(sgp_ep_qp(ep)), 0);
	return ep;
}

static int posted_of(struct sgp_ep *ep)
{
	struct sgp_ep_info info;

	ck_assert_int_eq(sgp_ep_query(ep, &info), 0);
	return info.recv_posted;
}

static void close_plain(struct sgp_ep *ep)
{
	int n;

	ck_assert_int_eq(sgp_ep_close(ep, 100), 0);
	while ((n = sgp_poll(b->cq, RIG_WC, b->wc)) > 0)
		for (int i = 0; i < n; i++)
			sgp_sgl_clear(&b->wc[i].sgl);
	ck_assert_int_eq(sgp_ep_destroy(ep), 0);
}

/* Each would hold what the other waits for, if they took it in the order of their parts. */
START_TEST(two_that_need_the_same_do_not_wait_for_each_other)
{
	struct sgp_recv_part one[2] = {{.size = 4096}, {.size = 64}}, two[2];
	struct sgp_chunk *large, *small;
	struct sgp_ep *first, *second;

	one_part(4096);
	open_rig(NULL, (struct rig_attr){.depth = 1, .chunks = 2, .small = 1, .cqe = 32});
	one[0].pool = one[1].pool = b->pool;
	two[0] = one[1];
	two[1] = one[0];
	ck_assert_ptr_nonnull(large = sgp_pool_get(b->pool, 4096, 0));
	ck_assert_ptr_nonnull(small = sgp_pool_get(b->pool, 64, 0));
	first = plain_ep(one, 2, 1);
	second = plain_ep(two, 2, 1);
	ck_assert_int_eq(sgp_ep_refill(first), -1);
	ck_assert_int_eq(errno, ENOBUFS);
	ck_assert_int_eq(sgp_ep_refill(second), -1);
	if (_i) {
		sgp_chunk_put(large);
		sgp_chunk_put(small);
	} else {
		sgp_chunk_put(small);
		sgp_chunk_put(large);
	}
	ck_assert_int_eq(posted_of(first) + posted_of(second), 1);
	if (posted_of(first)) {
		close_plain(first);
		ck_assert_int_eq(posted_of(second), 1);
		close_plain(second);
	} else {
		close_plain(second);
		ck_assert_int_eq(posted_of(first), 1);
		close_plain(first);
	}
	check_b(1);
	close_rig();
}
END_TEST

static void *put_later(void *list)
{
	struct timespec nap = {.tv_nsec = 20000000};

	nanosleep(&nap, NULL);
	sgp_sgl_clear(list);
	return NULL;
}

START_TEST(a_sleeper_wakes_for_another_threads_put)
{
	struct sgp_chunk *chunk;
	pthread_t thread;
	SGP_SGL(kept, 1);
	SGP_SGL(other, 1);

	open_rig(NULL, (struct rig_attr){.depth = 2,
					 .chunks = 4,
					 .cqe = 8,
					 .cq_flags = _i ? SGP_CQ_SINGLE_THREADED : 0});
	/* Two posted, two that nobody can have. */
	for (int i = 0; i < 2; i++) {
		ck_assert_ptr_nonnull(chunk = sgp_pool_get(b->pool, 4096, 0));
		ck_assert_int_eq(sgp_sgl_append(i ? &kept : &other, chunk, 0, 1), 0);
	}
	for (int i = 0; i < 2; i++) {
		send_bytes(10, i);
		rig_reap(b, 1); /* and its list is kept in b->wc[0] while the next is awaited */
		check_message(&b->wc[0], 10, i);
		ck_assert_int_eq(sgp_sgl_move(&rig.side[1].wc[RIG_WC - 1 - i].sgl, &b->wc[0].sgl),
				 0);
	}
	ck_assert_int_eq(info_of(b).recv_posted, 0);
	rig_post_send(a, NULL, 'z'); /* no receive: it waits at the door */
	ck_assert_int_eq(pthread_create(&thread, NULL, put_later, &kept), 0);
	rig_reap(b, 1);
	ck_assert_int_eq(b->wc[0].status, IBV_WC_SUCCESS);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	rig_reap(a, 1);
	sgp_sgl_clear(&other);
	for (int i = 0; i < RIG_WC; i++)
		sgp_sgl_clear(&b->wc[i].sgl);
	ck_assert_int_eq(sgp_poll(b->cq, RIG_WC, b->wc), 0);
	check_b(2);
	close_rig();
}
END_TEST

/* ---- many threads ---- */

#define MESSAGES 3000
#define QUEUE    64

static struct {
	struct sgp_chunk *chunk[QUEUE];
	_Atomic unsigned int head, tail;
} to_drop;

/* Puts what the poller hands it. */
static void *dropper(void *arg)
{
	(void)arg;
	for (unsigned int i = 0; i < MESSAGES; i++) {
		while (atomic_load(&to_drop.head) == i)
			sched_yield();
		sgp_chunk_put(to_drop.chunk[i % QUEUE]);
		atomic_store(&to_drop.tail, i + 1);
	}
	return NULL;
}

static void *sender(void *arg)
{
	(void)arg;
	for (int i = 0; i < MESSAGES; i++) {
		struct sgp_chunk *chunk = rig_chunk(a, i);

		while (sgp_post_send(a->ep, NULL, chunk, 0, 100, IBV_SEND_SIGNALED))
			sched_yield();
		while (sgp_wait(a->cq, 1, a->wc, 1000) != 1)
			;
	}
	return NULL;
}

START_TEST(it_stays_full_while_others_put)
{
	pthread_t threads[2];

	open_rig(NULL, (struct rig_attr){.depth = 4,
					 .chunks = 6,
					 .cqe = 16,
					 .cq_flags = _i ? SGP_CQ_SINGLE_THREADED : 0});
	ck_assert_int_eq(pthread_create(&threads[0], NULL, dropper, NULL), 0);
	ck_assert_int_eq(pthread_create(&threads[1], NULL, sender, NULL), 0);
	for (unsigned int i = 0; i < MESSAGES; i++) {
		rig_reap(b, 1);
		ck_assert_int_eq(b->wc[0].status, IBV_WC_SUCCESS);
		ck_assert_uint_eq(*(uint8_t *)(uintptr_t)b->wc[0].sgl.sge[0].addr, (uint8_t)i);
		while (i - atomic_load(&to_drop.tail) >= QUEUE)
			sched_yield();
		to_drop.chunk[i % QUEUE] = b->wc[0].sgl.chunk[0];
		sgp_chunk_ref(to_drop.chunk[i % QUEUE]);
		sgp_sgl_clear(&b->wc[0].sgl);
		atomic_store(&to_drop.head, i + 1);
	}
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	ck_assert_int_eq(sgp_poll(b->cq, RIG_WC, b->wc), 0);
	check_b(4);
	close_rig();
}
END_TEST

/* Closing takes back what a put is about to post. */
START_TEST(closing_meets_a_put)
{
	for (int round = 0; round < 200; round++) {
		pthread_t thread;
		SGP_SGL(kept, 4);

		memset(parts, 0, sizeof parts);
		one_part(4096);
		open_rig(NULL, (struct rig_attr){.depth = 1, .chunks = 1, .cqe = 4});
		send_bytes(1, round);
		receive(1, round, &kept);
		ck_assert_int_eq(info_of(b).recv_missing, 1);
		held_of_b = 0;
		ck_assert_int_eq(pthread_create(&thread, NULL, put_later, &kept), 0);
		if (round % 2)
			nanosleep(&(struct timespec){.tv_nsec = 19900000 + round * 1000}, NULL);
		rig_close_ep(b);
		ck_assert_int_eq(pthread_join(thread, NULL), 0);
		rig_check_live(b, 0);
		close_rig();
	}
}
END_TEST

/* ---- what goes wrong ---- */

/* Case 43: the device refuses what replaces the first of a batch. */
START_TEST(a_refused_repost_ends_no_batch)
{
	open_rig(personas[_i], (struct rig_attr){.depth = 8, .chunks = 16});
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

	open_rig(personas[_i / 2], (struct rig_attr){.depth = 8, .chunks = 16});
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
	open_rig(personas[_i], (struct rig_attr){.depth = 8, .chunks = 32});
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

	open_rig(roce[_i], (struct rig_attr){.depth = 1, .chunks = 32, .cqe = 64});
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

START_TEST(what_cannot_be_made_leaves_nothing)
{
	struct sgp_ep_attr attr;
	struct sgp_recv_part part[2];
	struct rig_side *side;

	one_part(4096);
	open_rig(NULL, (struct rig_attr){.depth = 2, .chunks = 8, .cqe = 64});
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

/* A connection whose endpoint cannot be filled is refused, and the identifier is as it was. */
START_TEST(an_endpoint_that_cannot_be_filled_is_none)
{
	struct sgp_ep_attr attr;
	struct sgp_chunk *taken[8];
	struct sgp_recv_part part;
	int n = 0;

	one_part(4096);
	open_rig(NULL, (struct rig_attr){.depth = 2, .chunks = 8, .cqe = 64});
	rig_close_ep(b);
	ck_assert_int_eq(rdma_create_id(rig.listen_events, &b->id, NULL, RDMA_PS_TCP), 0);
	ck_assert_int_eq(rdma_resolve_addr(b->id, NULL, rdma_get_local_addr(rig.listen_id), 1000),
			 0);
	rig_expect_event(rig.listen_events, RDMA_CM_EVENT_ADDR_RESOLVED, NULL, NULL);
	part = (struct sgp_recv_part){.pool = b->pool, .size = 4096};
	attr = (struct sgp_ep_attr){.cq = b->cq,
				    .pd = b->pd,
				    .cap = {.max_send_wr = 4, .max_recv_wr = 4},
				    .recv = &part,
				    .num_recv = 1};
	while (n < 5)
		ck_assert_ptr_nonnull(taken[n++] = sgp_pool_get(b->pool, 4096, 0));
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

/* ---- the program ---- */

int main(void)
{
	Suite *s = suite_create("recv");
	TCase *tc = tcase_create("recv");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, it_is_full_from_the_start_and_before_each_poll_returns, 0,
			    NPERSONAS);
	tcase_add_loop_test(tc, a_batch_is_replaced_by_one_call, 0, NPERSONAS);
	tcase_add_loop_test(tc, a_queue_of_one_receive_has_one, 0, NPERSONAS);
	tcase_add_loop_test(tc, header_and_payload_are_apart, 0, 2 * NPERSONAS);
	tcase_add_loop_test(tc, a_message_is_forwarded_without_a_copy, 0, NPERSONAS);
	tcase_add_test(tc, a_copy_is_handed_back);
	tcase_add_loop_test(tc, a_checked_pool_knows_what_is_posted, 0, NPERSONAS);
	tcase_add_test(tc, room_in_front_takes_a_header);
	tcase_add_loop_test(tc, an_empty_message_gives_its_chunks_back, 0, NPERSONAS);
	tcase_add_loop_test(tc, sends_cannot_starve_receives, 0, NPERSONAS);
	tcase_add_loop_test(tc, a_dry_pool_is_remembered_and_a_put_posts, 0, 2 * NPERSONAS);
	tcase_add_test(tc, closing_a_waiting_endpoint_holds_nothing);
	tcase_add_loop_test(tc, two_that_need_the_same_do_not_wait_for_each_other, 0, 2);
	tcase_add_loop_test(tc, a_sleeper_wakes_for_another_threads_put, 0, 2);
	tcase_add_loop_test(tc, it_stays_full_while_others_put, 0, 2);
	tcase_add_test(tc, closing_meets_a_put);
	tcase_add_loop_test(tc, a_refused_repost_ends_no_batch, 0, NPERSONAS);
	tcase_add_loop_test(tc, a_half_taken_chain_is_made_good, 0, 2 * NPERSONAS);
	tcase_add_loop_test(tc, an_error_leaves_nothing_behind, 0, NPERSONAS);
	tcase_add_loop_test(tc, a_reset_posts_all_again, 0, NROCE);
	tcase_add_test(tc, what_cannot_be_made_leaves_nothing);
	tcase_add_test(tc, an_endpoint_that_cannot_be_filled_is_none);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
