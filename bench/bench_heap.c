/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What an object of the heap costs, and a message from its allocation to its completion.
 *
 *      pair, burst-64   malloc and free: the heap's against jemalloc's mallocx with an explicit cache,
 *                       jemalloc's malloc, and the C library's
 *      message          an object, written to the peer, its completion, its end, 16 at a time: the
 *                       heap's against malloc and a registration for each
 *
 * It runs on whatever libibverbs finds; where there is no device, on softverbs by LD_PRELOAD. In the
 * machine, with frames that take 4 KiB whole:
 *
 *	scripts/vm -- sh -c 'ip link set v0 mtu 9000; ip link set v1 mtu 9000
 *		build/release/bench/bench_heap --case message'
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jemalloc/jemalloc.h>

#include "harness.h"
#include "loopback.h"
#include "sgpool/heap.h"
#include "sgpool/sgpool.h"

#define BURST  64
#define FLIGHT 16 /* messages on their way */
#define MIB    ((size_t)1 << 20)

/* jemalloc has the program's malloc; this is what the C library has behind it. */
void *__libc_malloc(size_t size);
void __libc_free(void *ptr);

struct state {
	size_t size;
	bool burst;
	struct ibv_device **list;
	struct ibv_context *verbs;
	struct ibv_pd *pd;
	/* ours */
	struct sgp_pool *pool;
	struct sgp_heap *heap;
	struct sgp_cq *cq;
	struct sgp_ep *ep;
	struct sgp_wc *wc;
	/* raw */
	struct ibv_cq *raw_cq;
	struct ibv_qp *qp;
	/* what messages are written to */
	char *target;
	struct ibv_mr *target_mr;
	unsigned int arena, tcache;
	int flags;
};

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "bench_heap: %s: %s\n", what, strerror(errno));
	exit(1);
}

static struct state *open_state(const char *name, size_t size)
{
	struct state *s = calloc(1, sizeof *s);

	if (!s)
		die("no memory");
	s->size = size;
	s->burst = !strcmp(name, "burst-64");
	s->list = ibv_get_device_list(NULL);
	if (s->list && s->list[0])
		s->verbs = ibv_open_device(s->list[0]);
	s->pd = s->verbs ? ibv_alloc_pd(s->verbs) : NULL;
	if (s->pd)
		return s;
	bench_missing("heap",
		      "there is no RDMA device: preload softverbs, or run it by scripts/vm");
	free(s);
	return NULL;
}

static void close_state(struct state *s)
{
	ibv_dealloc_pd(s->pd);
	ibv_close_device(s->verbs);
	ibv_free_device_list(s->list);
	free(s);
}

/* ---- malloc and free ---- */

/* The same loops for each contender, with its own calls inlined. */
#define LOOPS(name, get, put)                                                                      \
	static void run_##name(void *arg, size_t n)                                                \
	{                                                                                          \
		struct state *s = arg;                                                             \
		void *held[BURST];                                                                 \
                                                                                                   \
		for (; !s->burst && n; n--) {                                                      \
			void *obj = get;                                                           \
                                                                                                   \
			bench_use(obj);                                                            \
			put(obj);                                                                  \
		}                                                                                  \
		for (; n; n--) {                                                                   \
			for (int i = 0; i < BURST; i++)                                            \
				held[i] = get;                                                     \
			for (int i = 0; i < BURST; i++)                                            \
				put(held[i]);                                                      \
		}                                                                                  \
	}
#define DALLOCX(obj) dallocx(obj, s->flags)
LOOPS(heap, sgp_malloc(s->heap, s->size), sgp_free)
LOOPS(mallocx, mallocx(s->size, s->flags), DALLOCX)
LOOPS(jemalloc, malloc(s->size), free)
LOOPS(libc, __libc_malloc(s->size), __libc_free)

static void *setup_heap(const char *name, size_t size)
{
	struct sgp_pool_attr attr = {.max_bytes = 256 * MIB};
	struct state *s = open_state(name, size);

	if (!s)
		return NULL;
	s->pool = sgp_pool_create(s->pd, &attr);
	s->heap = s->pool ? sgp_heap_create(s->pool, &(struct sgp_heap_attr){.bytes = 32 * MIB})
			  : NULL;
	if (!s->heap) {
		fprintf(stderr, "bench_heap: %s\n", sgp_errmsg());
		exit(1);
	}
	return s;
}

static void teardown_heap(void *arg)
{
	struct state *s = arg;

	if (sgp_heap_destroy(s->heap) || sgp_pool_destroy(s->pool))
		die("the heap's end");
	close_state(s);
}

static void *setup_plain(const char *name, size_t size)
{
	struct state *s = calloc(1, sizeof *s);

	if (!s)
		die("no memory");
	s->size = size;
	s->burst = !strcmp(name, "burst-64");
	return s;
}

static void *setup_mallocx(const char *name, size_t size)
{
	struct state *s = setup_plain(name, size);
	size_t length = sizeof s->arena;

	if (mallctl("arenas.create", &s->arena, &length, NULL, 0) ||
	    mallctl("tcache.create", &s->tcache, &length, NULL, 0))
		die("mallctl");
	s->flags = MALLOCX_ARENA(s->arena) | MALLOCX_TCACHE(s->tcache);
	return s;
}

static void teardown_mallocx(void *arg)
{
	struct state *s = arg;
	char name[64];

	mallctl("tcache.destroy", NULL, NULL, &s->tcache, sizeof s->tcache);
	snprintf(name, sizeof name, "arena.%u.destroy", s->arena);
	mallctl(name, NULL, NULL, NULL, 0);
	free(s);
}

/* ---- a message ---- */

static struct ibv_qp_cap cap(void)
{
	return (struct ibv_qp_cap){
		.max_send_wr = FLIGHT, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1};
}

static void make_target(struct state *s, struct ibv_qp *qp)
{
	s->target = calloc(1, s->size);
	s->target_mr = s->target ? ibv_reg_mr(s->pd, s->target, s->size,
					      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)
				 : NULL;
	if (!s->target_mr || loopback_to_rts(qp, IBV_ACCESS_REMOTE_WRITE))
		die("connecting");
}

static void drop_target(struct state *s)
{
	ibv_dereg_mr(s->target_mr);
	free(s->target);
}

static void *setup_message(const char *name, size_t size)
{
	struct state *s = setup_heap(name, size);
	struct sgp_cq_attr cq = {.cqe = 32, .flags = SGP_CQ_SINGLE_THREADED};
	struct sgp_ep_attr ep = {.cap = cap()};

	if (!s)
		return NULL;
	s->cq = sgp_cq_create(s->verbs, &cq);
	ep.cq = s->cq;
	ep.pd = s->pd;
	s->ep = s->cq ? sgp_ep_create(NULL, &ep) : NULL;
	s->wc = s->ep ? sgp_wc_alloc(s->cq, FLIGHT) : NULL;
	if (!s->wc) {
		fprintf(stderr, "bench_heap: %s\n", sgp_errmsg());
		exit(1);
	}
	make_target(s, sgp_ep_qp(s->ep));
	return s;
}

/* One completion at least. */
static size_t reap(struct state *s)
{
	int got;

	while (!(got = sgp_poll(s->cq, FLIGHT, s->wc)))
		;
	if (got < 0)
		die("sgp_poll");
	for (int i = 0; i < got; i++)
		if (s->wc[i].status != IBV_WC_SUCCESS)
			die("a message has not arrived");
	return (size_t)got;
}

static void run_message(void *arg, size_t n)
{
	struct state *s = arg;
	size_t left = n, flying = 0;

	while (left || flying) {
		SGP_SGL(sgl, 1);
		char *obj;

		if (!left || flying == FLIGHT) {
			flying -= reap(s);
			continue;
		}
		obj = sgp_malloc(s->heap, s->size);
		if (!obj || sgp_sgl_append_ptr(&sgl, obj, 0, s->size) ||
		    sgp_post_writev(s->ep, NULL, &sgl, IBV_SEND_SIGNALED, (uintptr_t)s->target,
				    s->target_mr->rkey))
			die(sgp_errmsg());
		sgp_free(obj); /* at its completion */
		flying++;
		left--;
	}
}

static void teardown_message(void *arg)
{
	struct state *s = arg;

	sgp_wc_free(s->wc);
	if (sgp_ep_close(s->ep, 100) || sgp_ep_destroy(s->ep) || sgp_cq_destroy(s->cq))
		die("the endpoint's end");
	drop_target(s);
	teardown_heap(s);
}

static void *setup_register(const char *name, size_t size)
{
	struct state *s = open_state(name, size);
	struct ibv_qp_init_attr attr = {.cap = cap(), .qp_type = IBV_QPT_RC};

	if (!s)
		return NULL;
	s->raw_cq = ibv_create_cq(s->verbs, 32, NULL, NULL, 0);
	attr.send_cq = attr.recv_cq = s->raw_cq;
	s->qp = s->raw_cq ? ibv_create_qp(s->pd, &attr) : NULL;
	if (!s->qp)
		die("ibv_create_qp");
	make_target(s, s->qp);
	return s;
}

static size_t reap_raw(struct state *s)
{
	struct ibv_wc wc[FLIGHT];
	int got;

	while (!(got = ibv_poll_cq(s->raw_cq, FLIGHT, wc)))
		;
	if (got < 0)
		die("ibv_poll_cq");
	for (int i = 0; i < got; i++) {
		struct ibv_mr *mr = (struct ibv_mr *)(uintptr_t)wc[i].wr_id;
		void *obj = mr->addr;

		if (wc[i].status != IBV_WC_SUCCESS)
			die("a message has not arrived");
		ibv_dereg_mr(mr);
		free(obj);
	}
	return (size_t)got;
}

static void post_raw(struct state *s)
{
	char *obj = malloc(s->size);
	struct ibv_mr *mr = ibv_reg_mr(s->pd, obj, s->size, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge sge = {.addr = (uintptr_t)obj, .length = (uint32_t)s->size};
	struct ibv_send_wr wr = {
		.wr_id = (uintptr_t)mr,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = (uintptr_t)s->target, .rkey = s->target_mr->rkey}};
	struct ibv_send_wr *bad_wr;

	if (!mr)
		die("ibv_reg_mr");
	sge.lkey = mr->lkey;
	if (ibv_post_send(s->qp, &wr, &bad_wr))
		die("ibv_post_send");
}

static void run_register(void *arg, size_t n)
{
	struct state *s = arg;
	size_t left = n, flying = 0;

	while (left || flying) {
		if (!left || flying == FLIGHT) {
			flying -= reap_raw(s);
			continue;
		}
		post_raw(s);
		flying++;
		left--;
	}
}

static void teardown_register(void *arg)
{
	struct state *s = arg;

	ibv_destroy_qp(s->qp);
	ibv_destroy_cq(s->raw_cq);
	drop_target(s);
	close_state(s);
}

static const struct bench_contender objects[] = {
	{"heap", true, setup_heap, run_heap, teardown_heap},
	{"mallocx", false, setup_mallocx, run_mallocx, teardown_mallocx},
	{"jemalloc", false, setup_plain, run_jemalloc, free},
	{"libc", false, setup_plain, run_libc, free},
	{0},
};

static const struct bench_contender messages[] = {
	{"heap", true, setup_message, run_message, teardown_message},
	{"register", false, setup_register, run_register, teardown_register},
	{0},
};

static const struct bench_case cases[] = {
	{"pair", 1, objects},
	{"burst-64", BURST, objects},
	{"message", 1, messages},
	{0},
};

static const size_t sizes[] = {64, 256, 1024, 4096, 65536, 0};

static const struct bench bench = {
	.name = "bench_heap",
	.about = "What an object of the heap costs, against jemalloc's mallocx with an explicit\n"
		 "cache, its malloc and the C library's; and a message from its allocation to its\n"
		 "completion, against malloc and a registration for each. It needs a device.\n",
	.cases = cases,
	.sizes = sizes,
};

int main(int argc, char **argv)
{
	return bench_main(&bench, argc, argv);
}
