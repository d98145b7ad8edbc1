/* SPDX-License-Identifier: BSD-2-Clause */
#include <string.h>

#include "../asserts.h"
#include "../plain.h"
#include "pool/pool.h"
#include "srq_rig.h"

const char *const roce[NROCE] = {"soft", "rxe", "mlx4", "mlx5", "hns"};

struct world w;

struct sgp_pool *pool_of(size_t chunks)
{
	struct sgp_class_attr class = {.size = 4096, .chunks = chunks};
	struct sgp_pool_attr attr = {.classes = &class, .nclasses = 1, .pages = SGP_PAGES_BASE};
	struct sgp_pool *pool = sgp_pool_create(w.pd, &attr);

	ck_assert_msg(pool != NULL, "%s", sgp_errmsg());
	return pool;
}

void open_world(const char *persona, struct world_attr attr)
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

int ncqs(void)
{
	return w.cq[1] ? 2 : 1;
}

void add(int i)
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

void drop_all(struct sgp_cq *cq, struct sgp_wc *wc)
{
	int n;

	while ((n = sgp_poll(cq, WC, wc)) > 0)
		for (int i = 0; i < n; i++)
			sgp_sgl_clear(&wc[i].sgl);
	ck_assert_int_eq(n, 0);
}

void close_ep(struct sgp_ep **ep, struct sgp_cq *cq, struct sgp_wc *wc)
{
	ck_assert_int_eq(sgp_ep_close(*ep, 100), 0);
	drop_all(cq, wc);
	ck_assert_int_eq(sgp_ep_destroy(*ep), 0);
	*ep = NULL;
}

void take_away(int i)
{
	close_ep(&w.in[i], w.cq[i % ncqs()], w.wc[i % ncqs()]);
	close_ep(&w.out[i], w.out_cq, w.out_wc);
}

struct sgp_srq_stats stats(void)
{
	struct sgp_srq_stats s;

	ck_assert_int_eq(sgp_srq_stats(w.srq, &s), 0);
	return s;
}

void check_posted(uint32_t posted)
{
	const char *wrong = sgp_pool_check(w.pool);
	struct sgp_pool_stats pool;

	ck_assert_msg(!wrong, "%s", wrong);
	ck_assert_uint_eq(stats().posted, posted);
	ck_assert_int_eq(sgp_pool_stats(w.pool, &pool), 0);
	ck_assert_uint_eq(pool.live, posted + (uint32_t)w.held);
}

void close_world(void)
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

void settle_sends(void)
{
	for (int i = 0; i < 64; i++)
		ck_assert_int_eq(sgp_poll(w.out_cq, WC, w.out_wc), 0);
}

void send_on(int i, int byte)
{
	struct sgp_chunk *chunk = sgp_pool_get(w.out_pool, 100, 0);

	ck_assert_ptr_nonnull(chunk);
	memset(sgp_chunk_addr(chunk), byte, 100);
	ck_assert_msg(!sgp_post_send(w.out[i], NULL, chunk, 0, 100, 0), "%s", sgp_errmsg());
	settle_sends();
}

struct sgp_wc *receive_on(int i, int byte)
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

void exchange(int i, int byte)
{
	send_on(i, byte);
	sgp_sgl_clear(&receive_on(i, byte)->sgl);
}
