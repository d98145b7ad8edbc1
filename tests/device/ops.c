/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ops ADDR [LAST]: every operation that the device at ADDR has, between two processes, with the
 * contents compared and every chunk home after each of them. LAST: only this one of those that the
 * connection does not survive.
 *
 *      child: the client                        parent: the server
 *                                               prepare(): post a receive, fill the shared chunk
 *               <------------ "go" ------------
 *      act(): post, reap, compare
 *               ------- what went wrong ------>
 *                                               check(): reap, compare; print a line
 *
 * The two talk over a socket pair besides; they are forked before either of them uses verbs.
 */
#include <endian.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ops.h"

#define PORT  "7480"
#define DEPTH 32

/* ---- saying what is wrong, and the socket pair ---- */

const char *wrong(const char *fmt, ...)
{
	static char text[OPS_TEXT];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	return text;
}

static void die(const char *what)
{
	fprintf(stderr, "ops: %s: %s (%s)\n", what, strerror(errno), sgp_errmsg());
	exit(1);
}

void tell(const struct side *s, const void *data, size_t n)
{
	if (send(s->socket, data, n, MSG_NOSIGNAL) != (ssize_t)n)
		die("the other process is gone");
}

void hear(const struct side *s, void *data, size_t n)
{
	if (recv(s->socket, data, n, MSG_WAITALL) != (ssize_t)n)
		die("the other process is gone");
}

/* ---- bytes ---- */

uint8_t byte_at(unsigned int seed, size_t i)
{
	return (uint8_t)(seed * 37 + i + (i >> 8) * 5 + (i >> 16) * 11);
}

void fill(void *to, size_t n, unsigned int seed, size_t from)
{
	uint8_t *p = to;

	for (size_t i = 0; i < n; i++)
		p[i] = byte_at(seed, from + i);
}

const char *compare(const void *with, size_t n, unsigned int seed, size_t from)
{
	const uint8_t *p = with;

	for (size_t i = 0; i < n; i++)
		if (p[i] != byte_at(seed, from + i))
			return wrong("byte %zu is %u instead of %u", from + i, p[i],
				     byte_at(seed, from + i));
	return NULL;
}

const char *compare_list(const struct sgp_sgl *sgl, size_t n, unsigned int seed)
{
	size_t done = 0;

	if (sgl->length != n)
		return wrong("%zu bytes instead of %zu", (size_t)sgl->length, n);
	for (int i = 0; i < sgl->num_sge; i++) {
		const char *bad = compare((void *)(uintptr_t)sgl->sge[i].addr, sgl->sge[i].length,
					  seed, done);

		if (bad)
			return bad;
		done += sgl->sge[i].length;
	}
	return NULL;
}

/* n chunks' first size bytes; filled as one stream unless seed is 0. */
void get_list(struct side *s, struct sgp_sgl *sgl, int n, size_t size, unsigned int seed)
{
	if (sgp_sgl_get(sgl, s->local, size, n, 0))
		die("no list");
	for (int i = 0; i < n; i++)
		memset(sgp_chunk_addr(sgl->chunk[i]), OPS_EMPTY, size);
	for (int i = 0; seed && i < n; i++)
		fill(sgp_chunk_addr(sgl->chunk[i]), size, seed, (size_t)i * size);
}

/* ---- completions ---- */

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

const char *reap(struct side *s, struct sgp_ep *ep, enum ibv_wc_opcode opcode)
{
	struct sgp_wc *wc = s->wc;
	int n = sgp_wait(s->cq, 1, wc, OPS_MS);

	if (n <= 0)
		return wrong("no completion: %s", n ? sgp_errmsg() : "time out");
	if (wc->status)
		return wrong("a completion says %s, error %d, vendor's %u",
			     ibv_wc_status_str(wc->status), wc->error, wc->vendor_err);
	if (wc->opcode != opcode || wc->ep != ep || wc->context != s)
		return wrong("a completion with opcode %d instead of %d, or of another operation",
			     (int)wc->opcode, (int)opcode);
	return NULL;
}

/* Whatever was posted is home, and no completion that nobody asked for came. */
const char *all_home(struct side *s, uint64_t live)
{
	double end = now() + OPS_MS / 1e3;
	struct sgp_pool_stats stats;

	sgp_sgl_clear(&s->wc->sgl);
	do {
		if (sgp_poll(s->cq, 1, s->wc))
			return wrong("a completion too many: opcode %d, %s", (int)s->wc->opcode,
				     ibv_wc_status_str(s->wc->status));
		sgp_pool_stats(s->local, &stats);
	} while (stats.live != live && now() < end);
	return stats.live == live ? NULL : wrong("%d chunks are out", (int)stats.live);
}

const char *post_receive(struct side *s, struct sgp_ep *ep, int n, size_t size)
{
	SGP_SGL(sgl, OPS_SGES);

	get_list(s, &sgl, n, size, 0);
	return sgp_post_recvv(ep, s, &sgl) ? wrong("receive: %s", sgp_errmsg()) : NULL;
}

/* ---- the two sides ---- */

static struct sgp_pool *make_pool(struct ibv_pd *pd, const struct sgp_class_attr *cls, uint32_t n,
				  uint32_t flags)
{
	struct sgp_pool_attr attr = {
		.classes = cls, .nclasses = n, .flags = flags, .pages = SGP_PAGES_BASE};
	struct sgp_pool *pool = sgp_pool_create(pd, &attr);

	if (!pool)
		die("no pool");
	return pool;
}

/* What a peer may do with the shared chunk: all that the device has. */
static uint32_t shared_flags(const struct side *s)
{
	uint32_t flags = SGP_POOL_REMOTE_READ | SGP_POOL_REMOTE_WRITE;

	if (!s->iwarp)
		flags |= SGP_POOL_REMOTE_ATOMIC | SGP_POOL_WINDOWS;
	return flags;
}

static void make_side(struct side *s)
{
	const struct sgp_class_attr local[] = {
		{.size = 512, .chunks = 4 * OPS_SGES},
		{.size = 16384, .chunks = 4},
		{.size = OPS_SHARED, .chunks = 1},
	};
	const struct sgp_class_attr shared = {.size = OPS_SHARED, .chunks = 1};
	const struct sgp_class_attr secret = {.size = 4096, .chunks = 1};
	struct sgp_ep_attr attr = {.cap = {DEPTH, DEPTH, 0, 0, OPS_INLINE}};
	struct ibv_device_attr device;

	if (ibv_query_device(s->id->verbs, &device))
		die("ibv_query_device");
	s->iwarp = s->id->verbs->device->transport_type == IBV_TRANSPORT_IWARP;
	s->max_sge = device.max_sge < OPS_SGES / 4 ? device.max_sge : OPS_SGES / 4;
	s->pd = ibv_alloc_pd(s->id->verbs);
	if (!s->pd)
		die("ibv_alloc_pd");
	s->local = make_pool(s->pd, local, 3, SGP_POOL_READ_SINK);
	s->cq = sgp_cq_create(s->id->verbs,
			      &(struct sgp_cq_attr){.cqe = 4 * DEPTH, .max_sge = OPS_SGES});
	s->wc = s->cq ? sgp_wc_alloc(s->cq, 1) : NULL;
	attr.cq = s->cq;
	attr.pd = s->pd;
	attr.cap.max_send_sge = attr.cap.max_recv_sge = (uint32_t)s->max_sge;
	s->ep = s->wc ? sgp_ep_create(s->id, &attr) : NULL;
	if (!s->ep)
		die("no endpoint");
	if (!s->server)
		return;
	s->shared_pool = make_pool(s->pd, &shared, 1, shared_flags(s));
	s->secret_pool = make_pool(s->pd, &secret, 1, 0);
	s->shared = sgp_pool_get(s->shared_pool, OPS_SHARED, 0);
	s->secret = sgp_pool_get(s->secret_pool, 4096, 0);
	if (!s->shared || !s->secret)
		die("no chunk");
	s->told = (struct ops_told){
		.addr = (uintptr_t)sgp_chunk_addr(s->shared),
		.rkey = sgp_chunk_rkey(s->shared),
		.secret_addr = (uintptr_t)sgp_chunk_addr(s->secret),
		.secret_rkey = sgp_chunk_rkey(s->secret),
	};
}

static void connect_side(struct side *s, const char *addr)
{
	struct rdma_conn_param param = {.responder_resources = 4,
					.initiator_depth = 4,
					.retry_count = 7,
					.rnr_retry_count = 7};
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP,
				      .ai_flags = s->server ? RAI_PASSIVE : 0};
	struct rdma_addrinfo *to;
	struct rdma_cm_id *listener = NULL;

	if (rdma_getaddrinfo(addr, PORT, &hints, &to))
		die("rdma_getaddrinfo");
	if (!s->server)
		hear(s, &s->told, 1); /* it listens */
	if (rdma_create_ep(s->server ? &listener : &s->id, to, NULL, NULL))
		die("rdma_create_ep");
	rdma_freeaddrinfo(to);
	if (s->server) {
		if (rdma_listen(listener, 1))
			die("rdma_listen");
		tell(s, "", 1);
		hear(s, &s->told, 1); /* the client has all it needs to connect */
		if (rdma_get_request(listener, &s->id))
			die("rdma_get_request");
	}
	make_side(s);
	if (!s->server)
		tell(s, "", 1);
	if (s->server ? rdma_accept(s->id, &param) : rdma_connect(s->id, &param))
		die("can't connect");
	if (listener)
		rdma_destroy_ep(listener);
	if (s->server)
		tell(s, &s->told, sizeof s->told);
	else
		hear(s, &s->told, sizeof s->told);
}

/* Everything ends, which it does only when no chunk is out and no completion is left. */
static const char *end_side(struct side *s)
{
	int n;

	sgp_chunk_put(s->shared);
	sgp_chunk_put(s->secret);
	if (sgp_ep_close(s->ep, 1000))
		return wrong("close: %s", sgp_errmsg());
	while ((n = sgp_poll(s->cq, 1, s->wc)) > 0)
		;
	sgp_wc_free(s->wc);
	if (n || sgp_ep_destroy(s->ep) || sgp_cq_destroy(s->cq) || sgp_pool_destroy(s->local) ||
	    (s->server && (sgp_pool_destroy(s->shared_pool) || sgp_pool_destroy(s->secret_pool))))
		return wrong("end: %s", sgp_errmsg());
	if (ibv_dealloc_pd(s->pd))
		return wrong("the protection domain is in use");
	rdma_destroy_ep(s->id);
	return NULL;
}

/* ---- one operation after the other ---- */

static bool is_wanted(const struct side *s, const struct op *op)
{
	if (op->on == (s->iwarp ? OPS_IB : OPS_IWARP))
		return false;
	return s->last ? op->last == s->last : op->last <= 1;
}

static int serve(struct side *s)
{
	int failures = 0;

	for (const struct op *op = ops; op->name; op++) {
		char peer[OPS_TEXT];
		const char *bad;

		if (!is_wanted(s, op))
			continue;
		memset(sgp_chunk_addr(s->shared), 0, OPS_SHARED);
		bad = op->prepare ? op->prepare(s, op) : NULL;
		tell(s, &s->told, sizeof s->told);
		hear(s, peer, sizeof peer);
		if (!bad && peer[0])
			bad = peer;
		if (!bad && op->check)
			bad = op->check(s, op);
		if (!bad)
			bad = all_home(s, 0);
		printf("%s: %s%s%s\n", bad ? "FAILED" : "ok", op->name, bad ? ": " : "",
		       bad ? bad : "");
		fflush(stdout);
		/* What comes next would fail as well. */
		if (bad && ++failures)
			return 1;
	}
	return 0;
}

static void ask(struct side *s)
{
	for (const struct op *op = ops; op->name; op++) {
		char text[OPS_TEXT] = "";
		const char *bad;

		if (!is_wanted(s, op))
			continue;
		hear(s, &s->told, sizeof s->told);
		bad = op->act(s, op);
		if (!bad)
			bad = all_home(s, 0);
		if (bad)
			snprintf(text, sizeof text, "client: %s", bad);
		tell(s, text, sizeof text);
	}
}

int main(int argc, char **argv)
{
	struct side s = {0};
	int pair[2], status = 0, failed;
	const char *bad;
	pid_t child;

	if (argc < 2 || argc > 3)
		return fprintf(stderr, "Usage: ops ADDR [LAST]\n"), 2;
	s.last = argc > 2 ? atoi(argv[2]) : 0;
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		die("socketpair");
	child = fork();
	if (child < 0)
		die("fork");
	s.server = child > 0;
	s.socket = pair[s.server];
	close(pair[!s.server]);
	connect_side(&s, argv[1]);
	if (!s.server) {
		ask(&s);
		bad = end_side(&s);
		if (bad)
			fprintf(stderr, "ops: client: %s\n", bad);
		return bad ? 1 : 0;
	}
	failed = serve(&s);
	close(s.socket); /* a client that still wants something ends */
	bad = end_side(&s);
	if (bad)
		printf("FAILED: server's end: %s\n", bad);
	if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status)) {
		printf("FAILED: the client's end: status %x\n", (unsigned int)status);
		failed = 1;
	}
	return failed || bad;
}
