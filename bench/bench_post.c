/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What building, posting, reaping and releasing a message costs around the provider: sgpool against
 * a raw loop that fills SGEs from ready descriptors, posts, and polls 16 at a time.
 *
 *      call     three library calls a message: take n chunks as a list, post, poll (16 at a time)
 *      inline   the same, the list taken inline
 *      append   the chunks one by one: the inline get, and an append each
 *      locked   as call, on a completion queue for several threads
 *
 * Chunks are taken from the pool and returned each time.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "loopback.h"
#include "null_device.h"
#include "sgpool/sgpool.h"

#define DEPTH      128
#define POLL       16
#define MAX_SGE    16
#define INLINE_MAX 64
#define READY      1024 /* descriptors of the raw loop */

struct state {
	struct ibv_device **list;
	struct ibv_context *verbs;
	struct ibv_pd *pd;
	struct ibv_qp *qp;
	int sges;
	bool is_inline, batch, recv;
	/* ours */
	struct sgp_pool *pool;
	struct sgp_cq *cq;
	struct sgp_ep *ep;
	struct sgp_wc *wc;
	/* raw */
	struct ibv_cq *raw_cq;
	struct ibv_mr *mr;
	char *memory;
	struct ready {
		uint64_t addr;
		uint32_t lkey;
	} ready[READY];
	uint32_t at;
};

static size_t message; /* bytes a chunk */

static void parse_case(struct state *s, const char *name)
{
	s->sges = 1;
	s->is_inline = !strcmp(name, "inline");
	s->batch = !strcmp(name, "batch-16");
	s->recv = !strcmp(name, "recv");
	if (!strncmp(name, "cycle-", 6))
		s->sges = atoi(name + 6);
	if (s->batch)
		s->sges = 4;
}

static struct state *open_device(const char *name, size_t size)
{
	struct state *s = calloc(1, sizeof *s);

	message = size;
	parse_case(s, name);
	s->list = ibv_get_device_list(NULL);
	if (!s->list || !s->list[0])
		goto fail;
	s->verbs = ibv_open_device(s->list[0]);
	s->pd = s->verbs ? ibv_alloc_pd(s->verbs) : NULL;
	if (!s->pd)
		goto fail;
	return s;
fail:
	bench_missing("device", "no softverbs device");
	free(s);
	return NULL;
}

static void close_device(struct state *s)
{
	ibv_dealloc_pd(s->pd);
	ibv_close_device(s->verbs);
	ibv_free_device_list(s->list);
	free(s);
}

static struct ibv_qp_cap cap(void)
{
	return (struct ibv_qp_cap){.max_send_wr = DEPTH,
				   .max_recv_wr = DEPTH,
				   .max_send_sge = MAX_SGE,
				   .max_recv_sge = MAX_SGE,
				   .max_inline_data = INLINE_MAX};
}

static void *ready(struct state *s, struct ibv_qp *qp)
{
	if (loopback_to_rts(qp, 0) || null_device_adopt(qp, DEPTH, MAX_SGE, INLINE_MAX)) {
		fprintf(stderr, "bench_post: the queue pair does not come up\n");
		exit(1);
	}
	null_device_install(s->verbs);
	s->qp = qp;
	return s;
}

/* ---- ours ---- */

static void *setup_ours(const char *name, size_t size, uint32_t cq_flags)
{
	struct state *s = open_device(name, size);
	struct sgp_class_attr class = {.size = size, .chunks = 4096};
	struct sgp_pool_attr pool = {.classes = &class, .nclasses = 1};
	struct sgp_cq_attr cq = {.cqe = 2 * DEPTH, .flags = cq_flags};
	struct sgp_ep_attr ep = {.cap = cap()};

	if (!s)
		return NULL;
	if (!s->is_inline)
		ep.cap.max_inline_data = 0;
	s->pool = sgp_pool_create(s->pd, &pool);
	s->cq = sgp_cq_create(s->verbs, &cq);
	ep.cq = s->cq;
	ep.pd = s->pd;
	s->ep = s->pool && s->cq ? sgp_ep_create(NULL, &ep) : NULL;
	s->wc = s->ep ? sgp_wc_alloc(s->cq, POLL) : NULL;
	if (!s->wc) {
		fprintf(stderr, "bench_post: %s\n", sgp_errmsg());
		exit(1);
	}
	return ready(s, sgp_ep_qp(s->ep));
}

static void *setup_single(const char *name, size_t size)
{
	return setup_ours(name, size, SGP_CQ_SINGLE_THREADED);
}

static void *setup_locked(const char *name, size_t size)
{
	return setup_ours(name, size, 0);
}

static void must(int failed)
{
	if (failed) {
		fprintf(stderr, "bench_post: %s\n", sgp_errmsg());
		exit(1);
	}
}

static void reap_ours(struct state *s, int n)
{
	for (int got = 0; got < n;) {
		int k = sgp_poll(s->cq, n - got, s->wc);

		must(k < 0);
		bench_use(s->wc);
		got += k;
	}
}

/* Each way of taking n chunks as a list. */
static inline int take_by_call(struct state *s, struct sgp_sgl *sgl)
{
	return (sgp_sgl_get)(sgl, s->pool, message, s->sges, 0);
}

static inline int take_inline(struct state *s, struct sgp_sgl *sgl)
{
	return sgp_sgl_get(sgl, s->pool, message, s->sges, 0);
}

static inline int take_one_by_one(struct state *s, struct sgp_sgl *sgl)
{
	for (int k = 0; k < s->sges; k++)
		if (sgp_sgl_append(sgl, sgp_pool_get(s->pool, message, 0), 0, message))
			return -1;
	return 0;
}

static inline __attribute__((always_inline)) void
run_ours(struct state *s, size_t n, int (*take)(struct state *, struct sgp_sgl *))
{
	SGP_SGL(sgl, MAX_SGE);

	for (size_t i = 1; i <= n; i++) {
		must(take(s, &sgl));
		if (s->recv)
			must(sgp_post_recvv(s->ep, NULL, &sgl));
		else
			must(sgp_post_sendv(s->ep, NULL, &sgl,
					    IBV_SEND_SIGNALED |
						    (s->batch && i % POLL ? SGP_BATCH : 0)));
		if (i % POLL == 0)
			reap_ours(s, POLL);
	}
	if (n % POLL) {
		must(sgp_ep_submit(s->ep));
		reap_ours(s, (int)(n % POLL));
	}
}

static void run_call(void *state, size_t n)
{
	run_ours(state, n, take_by_call);
}

static void run_inline(void *state, size_t n)
{
	run_ours(state, n, take_inline);
}

static void run_append(void *state, size_t n)
{
	run_ours(state, n, take_one_by_one);
}

static void teardown_ours(void *state)
{
	struct state *s = state;

	sgp_wc_free(s->wc);
	null_device_drop(s->qp);
	must(sgp_ep_close(s->ep, 0));
	must(sgp_ep_destroy(s->ep));
	must(sgp_cq_destroy(s->cq));
	must(sgp_pool_destroy(s->pool));
	close_device(s);
}

/* ---- raw ---- */

static void *setup_raw(const char *name, size_t size)
{
	struct state *s = open_device(name, size);
	struct ibv_qp_init_attr init = {.cap = cap(), .qp_type = IBV_QPT_RC};
	struct ibv_qp *qp;

	if (!s)
		return NULL;
	s->memory = aligned_alloc(4096, READY * (size + 64));
	s->mr = ibv_reg_mr(s->pd, s->memory, READY * (size + 64), IBV_ACCESS_LOCAL_WRITE);
	s->raw_cq = ibv_create_cq(s->verbs, 2 * DEPTH, NULL, NULL, 0);
	init.send_cq = init.recv_cq = s->raw_cq;
	qp = s->mr && s->raw_cq ? ibv_create_qp(s->pd, &init) : NULL;
	if (!qp) {
		fprintf(stderr, "bench_post: no queue pair\n");
		exit(1);
	}
	for (int i = 0; i < READY; i++)
		s->ready[i] =
			(struct ready){(uintptr_t)s->memory + (size_t)i * (size + 64), s->mr->lkey};
	return ready(s, qp);
}

static void fill_raw(struct state *s, struct ibv_sge *sge)
{
	for (int k = 0; k < s->sges; k++) {
		const struct ready *r = &s->ready[s->at++ % READY];

		sge[k] = (struct ibv_sge){
			.addr = r->addr, .length = (uint32_t)message, .lkey = r->lkey};
	}
}

static void reap_raw(struct state *s, int n)
{
	struct ibv_wc wc[POLL];

	for (int got = 0; got < n;) {
		int k = ibv_poll_cq(s->raw_cq, n - got, wc);

		for (int i = 0; i < k; i++)
			must(wc[i].status != IBV_WC_SUCCESS);
		bench_use(wc);
		got += k;
	}
}

static void run_raw_chain(struct state *s, size_t n)
{
	static struct ibv_send_wr wr[POLL], *bad;
	static struct ibv_sge sge[POLL][MAX_SGE];

	for (size_t i = 0; i < n;) {
		size_t k = n - i < POLL ? n - i : POLL;

		for (size_t j = 0; j < k; j++) {
			fill_raw(s, sge[j]);
			wr[j] = (struct ibv_send_wr){.next = j + 1 < k ? &wr[j + 1] : NULL,
						     .sg_list = sge[j],
						     .num_sge = s->sges,
						     .opcode = IBV_WR_SEND,
						     .send_flags = IBV_SEND_SIGNALED};
		}
		must(ibv_post_send(s->qp, wr, &bad));
		reap_raw(s, (int)k);
		i += k;
	}
}

static void run_raw(void *state, size_t n)
{
	struct state *s = state;
	struct ibv_sge sge[MAX_SGE];

	if (s->batch) {
		run_raw_chain(s, n);
		return;
	}
	for (size_t i = 1; i <= n; i++) {
		fill_raw(s, sge);
		if (s->recv) {
			struct ibv_recv_wr wr = {.wr_id = i, .sg_list = sge, .num_sge = s->sges};
			struct ibv_recv_wr *bad;

			must(ibv_post_recv(s->qp, &wr, &bad));
		} else {
			struct ibv_send_wr wr = {.wr_id = i,
						 .sg_list = sge,
						 .num_sge = s->sges,
						 .opcode = IBV_WR_SEND,
						 .send_flags = IBV_SEND_SIGNALED};
			struct ibv_send_wr *bad;

			if (s->is_inline)
				wr.send_flags |= IBV_SEND_INLINE;
			must(ibv_post_send(s->qp, &wr, &bad));
		}
		if (i % POLL == 0)
			reap_raw(s, POLL);
	}
	reap_raw(s, (int)(n % POLL));
}

static void teardown_raw(void *state)
{
	struct state *s = state;

	null_device_drop(s->qp);
	ibv_destroy_qp(s->qp);
	ibv_destroy_cq(s->raw_cq);
	ibv_dereg_mr(s->mr);
	free(s->memory);
	close_device(s);
}

int main(int argc, char **argv)
{
	static const struct bench_contender contenders[] = {
		{"call", true, setup_single, run_call, teardown_ours},
		{"inline", true, setup_single, run_inline, teardown_ours},
		{"append", true, setup_single, run_append, teardown_ours},
		{"locked", true, setup_locked, run_call, teardown_ours},
		{"raw", false, setup_raw, run_raw, teardown_raw},
		{NULL}};
	static const struct bench_case cases[] = {{"cycle-1", 1, contenders},
						  {"cycle-4", 1, contenders},
						  {"cycle-16", 1, contenders},
						  {"inline", 1, contenders},
						  {"batch-16", 1, contenders},
						  {"recv", 1, contenders},
						  {NULL}};
	static const size_t sizes[] = {64, 0};
	static const struct bench bench = {
		"bench_post",
		"Build, post, reap and release messages on a null provider, against a raw loop.\n",
		cases, sizes};

	return bench_main(&bench, argc, argv);
}
