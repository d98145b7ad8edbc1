/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Datagrams: buffers include the routing header, the list handed over skips it; where a datagram came
 * from is told, and an answer goes back there.
 */
#include <check.h>
#include <errno.h>
#include <string.h>

#include "../suite.h"
#include "rig.h"

/* Devices with datagrams. */
static const char *const personas[] = {"soft", "rxe", "mlx4", "mlx5", "hns"};
#define NPERSONAS ((int)(sizeof personas / sizeof *personas))

#define GRH 40
#define WC  16

static struct {
	struct ibv_context *verbs;
	struct ibv_pd *pd;
	struct sgp_pool *pool;
	struct sgp_cq *cq;
	struct sgp_wc *wc;
	struct sgp_ep *ep[2];
	struct sgp_srq *srq;
} w;

static void open_world(const char *persona)
{
	struct sgp_class_attr classes[] = {{.size = 64, .chunks = 16},
					   {.size = 4096, .chunks = 32}};
	struct sgp_pool_attr pool = {.classes = classes, .nclasses = 2, .pages = SGP_PAGES_BASE};
	struct sgp_cq_attr cq = {.cqe = 64};
	struct ibv_device **list;

	memset(&w, 0, sizeof w);
	ck_assert_int_eq(sv_device_add("dev0", persona, 1), 0);
	list = ibv_get_device_list(NULL);
	w.verbs = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	ck_assert_ptr_nonnull(w.pd = ibv_alloc_pd(w.verbs));
	ck_assert_ptr_nonnull(w.pool = sgp_pool_create(w.pd, &pool));
	ck_assert_ptr_nonnull(w.cq = sgp_cq_create(w.verbs, &cq));
	ck_assert_ptr_nonnull(w.wc = sgp_wc_alloc(w.cq, WC));
}

static struct sgp_ep *add(const struct sgp_recv_part *recv, int n)
{
	struct sgp_ep_attr attr = {
		.cq = w.cq,
		.pd = w.pd,
		.qp_type = IBV_QPT_UD,
		.cap = {.max_send_wr = 8, .max_recv_wr = 4, .max_send_sge = 2, .max_recv_sge = 4},
		.recv = recv,
		.num_recv = n,
		.srq = w.srq};
	struct ibv_qp_attr qp = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = RDMA_UDP_QKEY};
	struct sgp_ep *ep = sgp_ep_create(NULL, &attr);

	ck_assert_msg(ep != NULL, "%s", sgp_errmsg());
	ck_assert_int_eq(
		ibv_modify_qp(sgp_ep_qp(ep), &qp,
			      IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_QKEY),
		0);
	qp.qp_state = IBV_QPS_RTR;
	ck_assert_int_eq(ibv_modify_qp(sgp_ep_qp(ep), &qp, IBV_QP_STATE), 0);
	qp.qp_state = IBV_QPS_RTS;
	ck_assert_int_eq(ibv_modify_qp(sgp_ep_qp(ep), &qp, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
	if (n)
		ck_assert_msg(!sgp_ep_refill(ep), "%s", sgp_errmsg());
	return ep;
}

static void close_world(void)
{
	int n;

	for (int i = 0; i < 2; i++) {
		if (!w.ep[i])
			continue;
		ck_assert_int_eq(sgp_ep_close(w.ep[i], 100), 0);
		while ((n = sgp_poll(w.cq, WC, w.wc)) > 0)
			for (int j = 0; j < n; j++)
				sgp_sgl_clear(&w.wc[j].sgl);
		ck_assert_int_eq(sgp_ep_destroy(w.ep[i]), 0);
	}
	if (w.srq)
		ck_assert_int_eq(sgp_srq_destroy(w.srq), 0);
	sgp_wc_free(w.wc);
	ck_assert_int_eq(sgp_cq_destroy(w.cq), 0);
	ck_assert_int_eq(sgp_pool_destroy(w.pool), 0);
	ck_assert_int_eq(ibv_dealloc_pd(w.pd), 0);
	ck_assert_int_eq(ibv_close_device(w.verbs), 0);
	rig_check_no_leak();
}

/* An address of this device's own port. */
static struct ibv_ah *own_address(void)
{
	struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1};
	struct ibv_ah *ah;

	attr.grh.hop_limit = 64;
	ck_assert_int_eq(ibv_query_gid(w.verbs, 1, 0, &attr.grh.dgid), 0);
	ck_assert_ptr_nonnull(ah = ibv_create_ah(w.pd, &attr));
	return ah;
}

static void send_to(struct sgp_ep *ep, size_t n, int byte, struct ibv_ah *ah, uint32_t to)
{
	struct sgp_chunk *chunk = sgp_pool_get(w.pool, 4096, 0);
	uint8_t *p = sgp_chunk_addr(chunk);
	SGP_SGL(sgl, 1);

	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(byte + (int)i);
	ck_assert_int_eq(sgp_sgl_append(&sgl, chunk, 0, n), 0);
	ck_assert_msg(!sgp_post_ud_sendv(ep, NULL, &sgl, IBV_SEND_SIGNALED, ah, to), "%s",
		      sgp_errmsg());
}

/* The send's completion, and the datagram's, which is returned: n bytes as sent. */
static struct sgp_wc *receive(size_t n, int byte)
{
	struct sgp_wc *got = NULL;
	size_t done = 0;

	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(sgp_wait(w.cq, 1, &w.wc[i], 5000), 1);
		ck_assert_int_eq(w.wc[i].status, IBV_WC_SUCCESS);
		if (w.wc[i].opcode == IBV_WC_RECV)
			got = &w.wc[i];
		else
			ck_assert_ptr_null(w.wc[i].grh);
	}
	ck_assert_ptr_nonnull(got);
	ck_assert_uint_eq(got->byte_len, n);
	ck_assert_uint_eq(got->sgl.length, n);
	for (int i = 0; i < got->sgl.num_sge; i++)
		for (uint32_t j = 0; j < got->sgl.sge[i].length; j++, done++)
			ck_assert_uint_eq(((uint8_t *)(uintptr_t)got->sgl.sge[i].addr)[j],
					  (uint8_t)(byte + (int)done));
	ck_assert_uint_eq(done, n);
	return got;
}

static int posted(int i)
{
	struct sgp_ep_info info;

	ck_assert_int_eq(sgp_ep_query(w.ep[i], &info), 0);
	return info.recv_posted;
}

static void check_live(uint64_t live)
{
	struct sgp_pool_stats stats;

	ck_assert_int_eq(sgp_pool_stats(w.pool, &stats), 0);
	ck_assert_uint_eq(stats.live, live);
}

/* A question to ep[1], whose receives are made of these parts, and the answer, which goes where the
 * question came from. */
static void ask_and_answer(const struct sgp_recv_part *parts, int n, int chunks, size_t bytes,
			   int sges)
{
	struct ibv_ah *ah, *back;

	w.ep[0] = add(parts, n);
	w.ep[1] = add(parts, n);
	ah = own_address();
	for (int round = 0; round < 20; round++) {
		struct sgp_wc *wc;

		send_to(w.ep[0], bytes, round, ah, sgp_ep_qp(w.ep[1])->qp_num);
		wc = receive(bytes, round);
		ck_assert_ptr_eq(wc->ep, w.ep[1]);
		ck_assert_uint_eq(wc->src_qp, sgp_ep_qp(w.ep[0])->qp_num);
		ck_assert(wc->wc_flags & IBV_WC_GRH);
		ck_assert_ptr_nonnull(wc->grh);
		ck_assert_ptr_eq(wc->grh, sgp_chunk_addr(wc->sgl.chunk[0]));
		ck_assert_int_eq(wc->sgl.num_sge, sges);
		ck_assert_int_eq(posted(1), 4);
		back = sgp_create_ah_from_wc(w.pd, wc, 1);
		ck_assert_msg(back != NULL, "%s", sgp_errmsg());
		/* Forwarded as it came, without a copy. */
		ck_assert_msg(!sgp_post_ud_sendv(w.ep[1], NULL, &wc->sgl, IBV_SEND_SIGNALED, back,
						 wc->src_qp),
			      "%s", sgp_errmsg());
		wc = receive(bytes, round);
		ck_assert_ptr_eq(wc->ep, w.ep[0]);
		ck_assert_uint_eq(wc->src_qp, sgp_ep_qp(w.ep[1])->qp_num);
		for (int i = 0; i < 2; i++)
			sgp_sgl_clear(&w.wc[i].sgl);
		ck_assert_int_eq(ibv_destroy_ah(back), 0);
		check_live(8 * (uint64_t)chunks);
	}
	ck_assert_int_eq(ibv_destroy_ah(ah), 0);
}

START_TEST(the_header_is_skipped)
{
	struct sgp_recv_part part = {.size = 1064};

	open_world(personas[_i]);
	part.pool = w.pool;
	ask_and_answer(&part, 1, 1, 1000, 1);
	close_world();
}
END_TEST

/* The header in a chunk of its own, so that the payload starts on a page. */
START_TEST(the_header_may_be_apart)
{
	struct sgp_recv_part parts[2] = {{.size = GRH}, {.size = 1024}};

	open_world(personas[_i]);
	parts[0].pool = parts[1].pool = w.pool;
	ask_and_answer(parts, 2, 2, 1000, 1);
	close_world();
}
END_TEST

START_TEST(an_empty_datagram_has_an_origin_too)
{
	struct sgp_recv_part part = {.size = 64};

	open_world(personas[_i]);
	part.pool = w.pool;
	ask_and_answer(&part, 1, 1, 0, 0);
	close_world();
}
END_TEST

START_TEST(a_shared_queue_serves_datagrams)
{
	struct sgp_recv_part part = {.size = 1064};
	struct sgp_srq_attr attr = {.depth = 4, .recv = &part, .num_recv = 1};
	struct ibv_ah *ah;

	open_world(personas[_i]);
	attr.pd = w.pd;
	part.pool = w.pool;
	ck_assert_ptr_nonnull(w.srq = sgp_srq_create(&attr));
	w.ep[0] = add(NULL, 0);
	w.ep[1] = add(NULL, 0);
	ah = own_address();
	for (int round = 0; round < 20; round++) {
		int to = round % 2;
		struct sgp_wc *wc;

		send_to(w.ep[!to], 1000, round, ah, sgp_ep_qp(w.ep[to])->qp_num);
		wc = receive(1000, round);
		ck_assert_ptr_eq(wc->ep, w.ep[to]);
		ck_assert_uint_eq(wc->src_qp, sgp_ep_qp(w.ep[!to])->qp_num);
		ck_assert_ptr_nonnull(wc->grh);
		sgp_sgl_clear(&wc->sgl);
		check_live(4);
	}
	ck_assert_int_eq(ibv_destroy_ah(ah), 0);
	close_world();
}
END_TEST

START_TEST(what_has_no_room_for_the_header_is_refused)
{
	struct sgp_recv_part parts[2] = {{.size = GRH - 1}, {.size = 1024}};
	struct sgp_ep_attr attr = {.qp_type = IBV_QPT_UD,
				   .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_recv_sge = 2}};
	struct sgp_chunk *chunk;
	struct sgp_wc wc = {.status = IBV_WC_SUCCESS};

	open_world("soft");
	parts[0].pool = parts[1].pool = w.pool;
	attr.cq = w.cq;
	attr.pd = w.pd;
	attr.recv = parts;
	attr.num_recv = 2;
	ck_assert_ptr_null(sgp_ep_create(NULL, &attr));
	ck_assert_int_eq(errno, EINVAL);
	w.ep[0] = add(NULL, 0);
	ck_assert_ptr_nonnull(chunk = sgp_pool_get(w.pool, 64, 0));
	ck_assert_int_eq(sgp_post_recv(w.ep[0], NULL, chunk, 0, GRH - 1), -1);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(sgp_post_recv(w.ep[0], NULL, chunk, 0, GRH), 0);
	/* What is no datagram has no address. */
	ck_assert_ptr_null(sgp_create_ah_from_wc(w.pd, &wc, 1));
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_ptr_null(sgp_create_ah_from_wc(NULL, &wc, 1));
	ck_assert_int_eq(errno, EINVAL);
	close_world();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("datagram");
	TCase *tc = tcase_create("datagram");

	tcase_add_loop_test(tc, the_header_is_skipped, 0, NPERSONAS);
	tcase_add_loop_test(tc, the_header_may_be_apart, 0, NPERSONAS);
	tcase_add_loop_test(tc, an_empty_datagram_has_an_origin_too, 0, NPERSONAS);
	tcase_add_loop_test(tc, a_shared_queue_serves_datagrams, 0, NPERSONAS);
	tcase_add_test(tc, what_has_no_room_for_the_header_is_refused);
	suite_add_tcase(s, tc);
	return suite_run(s);
}
