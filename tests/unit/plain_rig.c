/* SPDX-License-Identifier: BSD-2-Clause */
#include "plain_rig.h"

struct plain_rig t;
int context[64];
uint32_t cq_flags;

static int devices;

struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *verbs = NULL;

	ck_assert_ptr_nonnull(list);
	for (int i = 0; list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			verbs = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	ck_assert_ptr_nonnull(verbs);
	return verbs;
}

struct sgp_ep *make_ep(void)
{
	struct sgp_ep_attr attr = {
		.cq = t.cq,
		.pd = t.pd,
		.cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 2}};
	struct sgp_ep *ep = sgp_ep_create(NULL, &attr);

	ck_assert_msg(ep != NULL, "%s", sgp_errmsg());
	ck_assert_int_eq(plain_init(sgp_ep_qp(ep)), 0);
	return ep;
}

void join(struct sgp_ep *a, struct sgp_ep *b)
{
	ck_assert_int_eq(plain_join(sgp_ep_qp(a), sgp_ep_qp(b)->qp_num, 7, 12), 0);
	ck_assert_int_eq(plain_join(sgp_ep_qp(b), sgp_ep_qp(a)->qp_num, 7, 12), 0);
}

void open_all(int n, bool keep_cqes, int cqe)
{
	struct sgp_class_attr class = {.size = CHUNK, .chunks = 64};
	struct sgp_pool_attr pool = {.classes = &class,
				     .nclasses = 1,
				     .pages = SGP_PAGES_BASE,
				     .flags = SGP_POOL_REMOTE_READ};
	struct sgp_cq_attr cq = {.cqe = cqe, .flags = cq_flags};

	memset(&t, 0, sizeof t);
	snprintf(t.device, sizeof t.device, "e%d", devices++);
	ck_assert_int_eq(sv_device_add(t.device, "soft", 1), 0);
	ck_assert_int_eq(sv_set(t.device, "keep_cqes", keep_cqes), 0);
	t.verbs = open_device(t.device);
	t.pd = ibv_alloc_pd(t.verbs);
	ck_assert_ptr_nonnull(t.pd);
	t.pool = sgp_pool_create(t.pd, &pool);
	ck_assert_msg(t.pool != NULL, "%s", sgp_errmsg());
	t.cq = sgp_cq_create(t.verbs, &cq);
	ck_assert_ptr_nonnull(t.cq);
	t.wc = sgp_wc_alloc(t.cq, RIG_WC);
	for (int i = 0; i < n; i++)
		t.ep[i] = make_ep();
	for (int i = 0; i + 1 < n; i += 2)
		join(t.ep[i], t.ep[i + 1]);
}

void check_live(uint64_t live)
{
	struct sgp_pool_stats stats;

	ck_assert_int_eq(sgp_pool_stats(t.pool, &stats), 0);
	ck_assert_uint_eq(stats.live, live);
	ck_assert_uint_eq(stats.free + stats.live, stats.chunks);
}

int take_all(int *seen, int *good)
{
	int n, got = 0;

	while ((n = sgp_poll(t.cq, 3, t.wc)) > 0)
		for (int i = 0; i < n; i++) {
			seen[(int *)t.wc[i].context - context]++;
			*good += t.wc[i].status == IBV_WC_SUCCESS;
			sgp_sgl_clear(&t.wc[i].sgl);
			got++;
		}
	return got;
}

void take_exactly(int first, int n)
{
	int seen[64] = {0}, good = 0;

	ck_assert_int_eq(take_all(seen, &good), n);
	for (int i = 0; i < 64; i++)
		ck_assert_int_eq(seen[i], i >= first && i < first + n);
}

void close_ep(struct sgp_ep **ep)
{
	int seen[64] = {0}, good = 0;

	if (!*ep)
		return;
	ck_assert_int_eq(sgp_ep_close(*ep, 0), 0);
	take_all(seen, &good);
	ck_assert_msg(!sgp_ep_destroy(*ep), "%s", sgp_errmsg());
	*ep = NULL;
}

void close_all(void)
{
	for (int i = 0; i < MOST; i++)
		close_ep(&t.ep[i]);
	check_live(0);
	sgp_wc_free(t.wc);
	ck_assert_int_eq(sgp_cq_destroy(t.cq), 0);
	ck_assert_int_eq(sgp_pool_destroy(t.pool), 0);
	ck_assert_int_eq(ibv_dealloc_pd(t.pd), 0);
	ck_assert_int_eq(ibv_close_device(t.verbs), 0);
	(void)sv_device_remove(t.device);
	rig_check_no_leak();
}

struct sgp_chunk *chunk(int byte)
{
	struct sgp_chunk *c = sgp_pool_get(t.pool, CHUNK, 0);

	ck_assert_ptr_nonnull(c);
	memset(sgp_chunk_addr(c), byte, CHUNK);
	return c;
}

void post_recv(struct sgp_ep *ep, int ctx)
{
	ck_assert_msg(!sgp_post_recv(ep, &context[ctx], chunk(0), 0, CHUNK), "%s", sgp_errmsg());
}

void post_send(struct sgp_ep *ep, int ctx, int flags)
{
	ck_assert_msg(!sgp_post_send(ep, &context[ctx], chunk('s'), 0, CHUNK, flags), "%s",
		      sgp_errmsg());
}
