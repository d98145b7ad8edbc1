/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * SENDs between two processes on softverbs, against a plain copy of the same messages over a Unix
 * socket: written by one process, read by the other. Both are run in turn, so that what else the
 * machine does strikes both; told are the medians, and the median of the ratios of neighbours.
 *
 *	bench_wire [--size BYTES] [--depth N] [--runs N] [--messages N] [--json]
 */
#include <errno.h>
#include <getopt.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_DEPTH 128
#define MAX_RUNS  101

static uint32_t size = 65536, depth = 16;
static unsigned long runs = 15, messages = 4000;
static bool json;

static struct {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char *buf;
	int order, plain; /* sockets: what to do next; and the plain copy */
} w;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void need(bool ok, const char *what)
{
	if (!ok)
		die(what);
}

/* ---- the queue pair ---- */

static void all(int fd, void *b, size_t n, bool out)
{
	char *p = b;

	while (n) {
		ssize_t k = out ? write(fd, p, n) : read(fd, p, n);

		need(k > 0, "the other process");
		p += k;
		n -= (size_t)k;
	}
}

static void set_up(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;
	struct ibv_pd *pd = ctx ? ibv_alloc_pd(ctx) : NULL;
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RC, .cap = {depth, depth, 1, 1, 0}};
	struct ibv_qp_attr q = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	uint32_t there;

	need(pd != NULL, "open_device");
	w.cq = ibv_create_cq(ctx, (int)(2 * depth), NULL, NULL, 0);
	a.send_cq = a.recv_cq = w.cq;
	w.qp = ibv_create_qp(pd, &a);
	w.mr = ibv_reg_mr(pd, w.buf, (size_t)size * depth, IBV_ACCESS_LOCAL_WRITE);
	need(w.qp && w.mr, "create_qp or reg_mr");
	all(w.order, &w.qp->qp_num, sizeof there, true);
	all(w.order, &there, sizeof there, false);
	need(!ibv_modify_qp(w.qp, &q,
			    IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS),
	     "INIT");
	q.qp_state = IBV_QPS_RTR;
	q.path_mtu = IBV_MTU_4096;
	q.dest_qp_num = there;
	q.rnr_retry = 7;
	q.ah_attr.is_global = q.ah_attr.port_num = 1;
	need(!ibv_query_gid(ctx, 1, 0, &q.ah_attr.grh.dgid) &&
		     !ibv_modify_qp(w.qp, &q,
				    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					    IBV_QP_MIN_RNR_TIMER),
	     "RTR");
	q.qp_state = IBV_QPS_RTS;
	need(!ibv_modify_qp(w.qp, &q,
			    IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				    IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC),
	     "RTS");
}

static void post(bool send, uint64_t i)
{
	struct ibv_sge s = {(uintptr_t)w.buf + i % depth * size, size, w.mr->lkey};
	struct ibv_send_wr *sbad, swr = {.wr_id = i,
					 .sg_list = &s,
					 .num_sge = 1,
					 .opcode = IBV_WR_SEND,
					 .send_flags = IBV_SEND_SIGNALED};
	struct ibv_recv_wr *rbad, rwr = {.wr_id = i, .sg_list = &s, .num_sge = 1};

	need(!(send ? ibv_post_send(w.qp, &swr, &sbad) : ibv_post_recv(w.qp, &rwr, &rbad)), "post");
}

/* Posts and reaps till all are through. The receiver has `depth` posted before, and after. */
static void verbs_run(bool send)
{
	unsigned long posted = send ? 0 : depth, done = 0;
	struct ibv_wc wc[16];
	int n;

	while (done < messages) {
		while (send && posted < messages && posted - done < depth)
			post(true, posted++);
		n = ibv_poll_cq(w.cq, 16, wc);
		need(n >= 0, "poll_cq");
		for (int i = 0; i < n; i++) {
			if (wc[i].status != IBV_WC_SUCCESS) {
				fprintf(stderr, "%s\n", ibv_wc_status_str(wc[i].status));
				exit(1);
			}
			done++;
			if (!send)
				post(false, posted++);
		}
	}
}

static void plain_run(bool send)
{
	for (unsigned long i = 0; i < messages; i++)
		all(w.plain, w.buf + i % depth * size, size, send);
}

/* ---- the two processes ---- */

static void sender(void)
{
	char what;

	set_up();
	for (;;) {
		all(w.order, &what, 1, false);
		if (what == 'q')
			exit(0);
		if (what == 'v')
			verbs_run(true);
		else
			plain_run(true);
	}
}

/* GB/s of one run, as the receiver sees it. */
static double run(char what)
{
	struct timespec a, b;

	clock_gettime(CLOCK_MONOTONIC, &a);
	all(w.order, &what, 1, true);
	if (what == 'v')
		verbs_run(false);
	else
		plain_run(false);
	clock_gettime(CLOCK_MONOTONIC, &b);
	return (double)size * (double)messages / 1e9 /
	       ((double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(double *v)
{
	qsort(v, runs, sizeof *v, by_value);
	return v[runs / 2];
}

static void receiver(void)
{
	double verbs[MAX_RUNS], plain[MAX_RUNS], ratio[MAX_RUNS], v, p, r;

	set_up();
	for (uint32_t i = 0; i < depth; i++)
		post(false, i);
	run('p');
	run('v');
	for (unsigned long i = 0; i < runs; i++) {
		plain[i] = run('p');
		verbs[i] = run('v');
		ratio[i] = verbs[i] / plain[i];
	}
	all(w.order, &(char){'q'}, 1, true);
	v = median(verbs);
	p = median(plain);
	r = median(ratio);
	if (json)
		printf("{\"bench\":\"bench_wire\",\"size\":%u,\"depth\":%u,\"verbs_gb_per_s\":%.3f,"
		       "\"plain_gb_per_s\":%.3f,\"ratio\":%.3f,\"ratio_lowest\":%.3f}\n",
		       size, depth, v, p, r, ratio[0]);
	else
		printf("%u-byte SENDs, %u at a time, between two processes: median %.2f GB/s; a "
		       "plain "
		       "Unix socket %.2f GB/s; ratio %.2f (lowest %.2f)\n",
		       size, depth, v, p, r, ratio[0]);
}

static const char usage[] =
	"usage: bench_wire [--size BYTES] [--depth N] [--runs N] [--messages N] [--json]\n\n"
	"SENDs between two processes on softverbs, against a plain Unix socket.\n\n"
	"  --size BYTES  a message (default 65536)\n"
	"  --depth N     posted at a time (default 16, at most 128)\n"
	"  --runs N      of each, of which the median is told (default 15, at most 101)\n"
	"  --messages N  a run (default 4000)\n"
	"  --json        one object instead of a sentence";

static const struct option options[] = {{"size", required_argument, NULL, 's'},
					{"depth", required_argument, NULL, 'd'},
					{"runs", required_argument, NULL, 'r'},
					{"messages", required_argument, NULL, 'm'},
					{"json", no_argument, NULL, 'j'},
					{"help", no_argument, NULL, 'h'},
					{0}};

int main(int argc, char **argv)
{
	int c, order[2], plain[2], room = 4 << 20, status;
	char world[32];
	pid_t pid;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 's':
			size = (uint32_t)strtoul(optarg, NULL, 0);
			break;
		case 'd':
			depth = (uint32_t)strtoul(optarg, NULL, 0);
			break;
		case 'r':
			runs = strtoul(optarg, NULL, 0);
			break;
		case 'm':
			messages = strtoul(optarg, NULL, 0);
			break;
		case 'j':
			json = true;
			break;
		case 'h':
			puts(usage);
			return 0;
		default:
			return 2;
		}
	}
	if (optind < argc || !size || !depth || depth > MAX_DEPTH || !runs || runs > MAX_RUNS ||
	    !messages)
		return fprintf(stderr, "%s\n", usage), 2;
	snprintf(world, sizeof world, "bench%d", getpid());
	setenv("SGP_SOFTVERBS_WORLD", world, 1);
	setenv("SGP_SOFTVERBS_NET", "local", 1);
	need(!socketpair(AF_UNIX, SOCK_STREAM, 0, order) &&
		     !socketpair(AF_UNIX, SOCK_STREAM, 0, plain),
	     "socketpair");
	setsockopt(plain[1], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
	w.buf = aligned_alloc(4096, ((size_t)size * depth + 4095) & ~4095ul);
	need(w.buf != NULL, "memory");
	memset(w.buf, 'x', (size_t)size * depth);
	pid = fork();
	need(pid >= 0, "fork");
	w.order = order[pid == 0];
	w.plain = plain[pid == 0];
	close(order[pid != 0]);
	close(plain[pid != 0]);
	if (!pid)
		sender();
	receiver();
	return waitpid(pid, &status, 0) != pid || status;
}
