/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How many 4 KiB SENDs a second softverbs moves on one core: the receive posted, the send posted,
 * the bytes moved, both completions polled. Prints the median of several runs after a warm-up, and
 * the same for a batch of sixteen, since that is how programs that care post. --null shows what is
 * left without moving bytes: what a benchmark on the null provider has to subtract.
 *
 *	bench_softverbs [--null] [--size BYTES] [--batch N] [--runs N] [--messages N]
 */
#include <errno.h>
#include <getopt.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sgpool/softverbs.h"

#define DEPTH 64

struct end {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char *buf;
};

static uint32_t size = 4096, batch = 16;
static unsigned long runs = 11, messages = 1000000;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void open_end(struct ibv_pd *pd, struct end *e)
{
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RC, .cap = {DEPTH, DEPTH, 1, 1, 0}};
	struct ibv_qp_attr q = {.qp_state = IBV_QPS_INIT, .port_num = 1};

	e->cq = ibv_create_cq(pd->context, 2 * DEPTH, NULL, NULL, 0);
	if (!e->cq)
		die("create_cq");
	a.send_cq = a.recv_cq = e->cq;
	e->qp = ibv_create_qp(pd, &a);
	e->buf = aligned_alloc(4096, ((size_t)size * batch + 4095) & ~4095ul);
	e->mr = e->buf ? ibv_reg_mr(pd, e->buf, (size_t)size * batch, IBV_ACCESS_LOCAL_WRITE)
		       : NULL;
	if (!e->qp || !e->mr)
		die("create_qp or reg_mr");
	if (ibv_modify_qp(e->qp, &q,
			  IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS))
		die("INIT");
}

static void join(struct end *e, const struct end *to)
{
	struct ibv_qp_attr q = {.qp_state = IBV_QPS_RTR,
				.path_mtu = IBV_MTU_4096,
				.dest_qp_num = to->qp->qp_num,
				.rnr_retry = 7};

	q.ah_attr.is_global = q.ah_attr.port_num = 1;
	if (ibv_query_gid(e->qp->context, 1, 0, &q.ah_attr.grh.dgid) ||
	    ibv_modify_qp(e->qp, &q,
			  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		die("RTR");
	q.qp_state = IBV_QPS_RTS;
	if (ibv_modify_qp(e->qp, &q,
			  IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				  IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC))
		die("RTS");
}

static void reap(struct end *e, int n)
{
	struct ibv_wc wc[DEPTH];

	while (n > 0) {
		int k = ibv_poll_cq(e->cq, n, wc);

		if (k < 0)
			die("poll_cq");
		for (int i = 0; i < k; i++)
			if (wc[i].status != IBV_WC_SUCCESS) {
				fprintf(stderr, "%s\n", ibv_wc_status_str(wc[i].status));
				exit(1);
			}
		n -= k;
	}
}

static double run(struct end *a, struct end *b, bool null)
{
	struct ibv_send_wr swr[DEPTH], *sbad;
	struct ibv_recv_wr rwr[DEPTH], *rbad;
	struct ibv_sge from[DEPTH], to[DEPTH];
	struct timespec t0, t1;

	for (uint32_t i = 0; i < batch; i++) {
		bool last = i + 1 == batch;

		from[i] =
			(struct ibv_sge){(uintptr_t)a->buf + i * (uint64_t)size, size, a->mr->lkey};
		to[i] = (struct ibv_sge){(uintptr_t)b->buf + i * (uint64_t)size, size, b->mr->lkey};
		swr[i] = (struct ibv_send_wr){.next = last ? NULL : &swr[i + 1],
					      .sg_list = &from[i],
					      .num_sge = 1,
					      .opcode = IBV_WR_SEND,
					      .send_flags = IBV_SEND_SIGNALED};
		rwr[i] = (struct ibv_recv_wr){
			.next = last ? NULL : &rwr[i + 1], .sg_list = &to[i], .num_sge = 1};
	}
	clock_gettime(CLOCK_MONOTONIC, &t0);
	for (unsigned long n = 0; n < messages; n += batch) {
		if (!null && ibv_post_recv(b->qp, rwr, &rbad))
			die("post_recv");
		if (ibv_post_send(a->qp, swr, &sbad))
			die("post_send");
		if (!null)
			reap(b, (int)batch);
		reap(a, (int)batch);
	}
	clock_gettime(CLOCK_MONOTONIC, &t1);
	return (double)messages /
	       ((double)(t1.tv_sec - t0.tv_sec) + (double)(t1.tv_nsec - t0.tv_nsec) / 1e9);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static const char usage[] = "usage: bench_softverbs [--null] [--size BYTES] [--batch N] [--runs N] "
			    "[--messages N] [--json]\n\n"
			    "How many SENDs a second softverbs moves on one core.\n\n"
			    "  --null        on the null provider: nothing is moved\n"
			    "  --size BYTES  a message (default 4096)\n"
			    "  --batch N     posted and polled at a time (default 16, at most 64)\n"
			    "  --runs N      of which the median is told (default 11)\n"
			    "  --messages N  a run (default 1000000)\n"
			    "  --json        one object instead of a sentence";

static const struct option options[] = {
	{"null", no_argument, NULL, '0'},           {"size", required_argument, NULL, 's'},
	{"batch", required_argument, NULL, 'b'},    {"runs", required_argument, NULL, 'r'},
	{"messages", required_argument, NULL, 'm'}, {"json", no_argument, NULL, 'j'},
	{"help", no_argument, NULL, 'h'},           {0}};

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	double rate[101], warm;
	struct end a, b;
	bool null = false, json = false;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case '0':
			null = true;
			break;
		case 'j':
			json = true;
			break;
		case 's':
			size = (uint32_t)strtoul(optarg, NULL, 0);
			break;
		case 'b':
			batch = (uint32_t)strtoul(optarg, NULL, 0);
			break;
		case 'r':
			runs = strtoul(optarg, NULL, 0);
			break;
		case 'm':
			messages = strtoul(optarg, NULL, 0);
			break;
		case 'h':
			puts(usage);
			return 0;
		default:
			return 2;
		}
	}
	if (optind < argc)
		return fprintf(stderr, "bench_softverbs: what is %s?\n", argv[optind]), 2;
	if (!size || !batch || batch > DEPTH || !runs || runs > 100 || !messages)
		return fprintf(stderr, "bench_softverbs: a number is out of range\n"), 2;
	if (null)
		sv_set("soft0", "null", 1);

	struct ibv_context *ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;
	struct ibv_pd *pd = ctx ? ibv_alloc_pd(ctx) : NULL;

	if (!pd)
		die("open_device");
	open_end(pd, &a);
	open_end(pd, &b);
	join(&a, &b);
	join(&b, &a);
	warm = run(&a, &b, null);
	for (unsigned long i = 0; i < runs; i++)
		rate[i] = run(&a, &b, null);
	qsort(rate, runs, sizeof *rate, by_value);
	if (json)
		return printf("{\"bench\":\"bench_softverbs\",\"size\":%u,\"batch\":%u,\"null\":%s,"
			      "\"messages_per_s\":%.0f,\"lowest\":%.0f,\"highest\":%.0f}\n",
			      size, batch, null ? "true" : "false", rate[runs / 2], rate[0],
			      rate[runs - 1]) < 0;
	printf("%u-byte SENDs, %u at a time%s: median %.2f million/s (%.0f ns each), lowest %.2f, "
	       "highest %.2f, first %.2f\n",
	       size, batch, null ? ", null" : "", rate[runs / 2] / 1e6, 1e9 / rate[runs / 2],
	       rate[0] / 1e6, rate[runs - 1] / 1e6, warm / 1e6);
	return 0;
}
