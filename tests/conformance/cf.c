/* SPDX-License-Identifier: BSD-2-Clause */
/* What the behaviours share: connecting, posting, waiting, saying. */
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "cf.h"

struct cf cf;
int cf_patience = 100;

/* Another process takes its time, on a loaded machine, whatever the device does. */
void cf_sleep(int ms)
{
#ifdef CF_TWO
	usleep((useconds_t)ms * 1000);
#else
	usleep((useconds_t)(ms * cf_patience * 10));
#endif
}

void say(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	fflush(stdout);
}

const char *cf_err(int err)
{
	static char text[8][32];
	static int turn;
	char *t = text[turn++ & 7];
	const char *name = strerrorname_np(err < 0 ? -err : err);

	if (!err)
		return "0";
	snprintf(t, sizeof *text, "%s%s", err < 0 ? "-" : "", name ? name : "?");
	return t;
}

void say_ret(const char *what, int ret)
{
	say(" %s=%s", what, ret == -1 ? cf_err(errno) : cf_err(ret));
}

void say_post(const char *what, int ret)
{
	if (ret == -1) /* not an errno, but "see errno": siw, law 1 */
		say(" %s=-1/%s", what, cf_err(errno));
	else
		say(" %s=%s", what, cf_err(ret));
}

void say_ptr(const char *what, const void *ptr)
{
	say(" %s=%s", what, ptr ? "ok" : cf_err(errno));
}

void cf_need(bool ok, const char *what)
{
	if (ok)
		return;
	say(" setup: %s: %s", what, cf_err(errno));
	exit(0);
}

void say_state(const char *what, struct ibv_qp *qp)
{
	static const char *const names[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	if (ibv_query_qp(qp, &attr, IBV_QP_STATE, &init))
		say(" %s=query-failed", what);
	else
		say(" %s=%s", what, attr.qp_state <= IBV_QPS_ERR ? names[attr.qp_state] : "?");
}

const char *cf_status(enum ibv_wc_status status)
{
	static const char *const names[] = {
		"SUCCESS",      "LOC_LEN",  "LOC_QP_OP",    "LOC_EEC_OP",  "LOC_PROT",   "FLUSH",
		"MW_BIND",      "BAD_RESP", "LOC_ACCESS",   "REM_INV_REQ", "REM_ACCESS", "REM_OP",
		"RETRY_EXC",    "RNR_EXC",  "LOC_RDD",      "REM_INV_RD",  "REM_ABORT",  "INV_EECN",
		"INV_EECSTATE", "FATAL",    "RESP_TIMEOUT", "GENERAL",     "TM",
	};

	return (size_t)status < sizeof names / sizeof *names ? names[status] : "unknown";
}

const char *cf_opcode(enum ibv_wc_opcode op)
{
	switch (op) {
	case IBV_WC_SEND:
		return "SEND";
	case IBV_WC_RDMA_WRITE:
		return "WRITE";
	case IBV_WC_RDMA_READ:
		return "READ";
	case IBV_WC_COMP_SWAP:
		return "COMP_SWAP";
	case IBV_WC_FETCH_ADD:
		return "FETCH_ADD";
	case IBV_WC_BIND_MW:
		return "BIND_MW";
	case IBV_WC_LOCAL_INV:
		return "LOCAL_INV";
	case IBV_WC_RECV:
		return "RECV";
	case IBV_WC_RECV_RDMA_WITH_IMM:
		return "RECV_IMM";
	default:
		return "other";
	}
}

/* ---- waiting ---- */

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

bool next_wc(struct ibv_cq *cq, struct ibv_wc *wc, int ms)
{
	int64_t end = now_ms() + (int64_t)ms * cf_patience / 100;
	int n;

	memset(wc, 0, sizeof *wc);
	do {
		n = ibv_poll_cq(cq, 1, wc);
		if (!n) /* not too often: an emulated processor needs its time for the device */
			usleep(1000);
	} while (!n && now_ms() < end);
	return n > 0;
}

void say_wc(const char *what, struct ibv_cq *cq, int ms)
{
	struct ibv_wc wc;

	say(" %s=%s", what, next_wc(cq, &wc, ms) ? cf_status(wc.status) : "none");
}

void say_all(const char *what, struct ibv_cq *cq, int ms)
{
	struct ibv_wc wc;
	int n = 0;

	say(" %s=", what);
	while (next_wc(cq, &wc, ms))
		say("%s%d:%s", n++ ? "," : "", (int)wc.wr_id, cf_status(wc.status));
	if (!n)
		say("none");
}

#ifdef CF_TWO

#define TOGETHER_MS 400

static struct rdma_event_channel *channel, *twin;
static struct ibv_context *peer_context;

struct rdma_event_channel *cf_peer_channel(struct rdma_event_channel *ec)
{
	channel = ec;
	if (!twin)
		twin = (struct rdma_event_channel *)cf_peer_call(
			(cf_function *)rdma_create_event_channel, 0, 0, 0, 0, 0);
	return twin;
}

struct ibv_context *cf_peer_context(void)
{
	if (!peer_context)
		peer_context =
			(struct ibv_context *)cf_peer_call((cf_function *)cf_open, 0, 0, 0, 0, 0);
	return peer_context;
}

static bool readable_now(int fd, int ms)
{
	return fd < CF_PEER_FD
		       ? cf_readable_here(fd, ms)
		       : (bool)cf_peer_call((cf_function *)cf_readable_here, fd, ms, 0, 0, 0);
}

/* Of the two channels that stand for one; if both have an event the nearer one comes first, so that
 * the order is always the same. Only a request is never one of two. */
struct rdma_cm_event *next_event(struct rdma_event_channel *ec, int ms)
{
	int64_t until = now_ms() + (int64_t)ms * cf_patience / 100;
	static struct rdma_cm_event *kept;
	struct rdma_cm_event *e = kept;

	kept = NULL;
	if (e && ec == channel)
		return e;
	do {
		if (readable_now(ec->fd, 1))
			return rdma_get_cm_event(ec, &e) ? NULL : e;
		if (!twin || ec != channel || !readable_now(twin->fd, 1))
			continue;
		if (rdma_get_cm_event(twin, &e))
			return NULL;
		if (e->event == RDMA_CM_EVENT_CONNECT_REQUEST || !readable_now(ec->fd, TOGETHER_MS))
			return e;
		kept = e;
		return rdma_get_cm_event(ec, &e) ? NULL : e;
	} while (now_ms() < until);
	return NULL;
}

/* Where the context is, which is no argument of it. */
static void ack_there(struct ibv_context *ctx, struct ibv_async_event *ev)
{
	(void)ctx;
	ibv_ack_async_event(ev);
}

static void ack_async(struct ibv_context *ctx, struct ibv_async_event *ev)
{
	cf_call((cf_function *)ack_there, (long)ctx, (long)ev, 0, 0, 0);
}

#else

static void ack_async(struct ibv_context *ctx, struct ibv_async_event *ev)
{
	(void)ctx;
	ibv_ack_async_event(ev);
}

struct rdma_event_channel *cf_peer_channel(struct rdma_event_channel *ec)
{
	return ec;
}

struct ibv_context *cf_peer_context(void)
{
	return cf.ctx;
}

static bool readable_now(int fd, int ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, ms) == 1;
}

struct rdma_cm_event *next_event(struct rdma_event_channel *ec, int ms)
{
	struct rdma_cm_event *e;

	return readable(ec->fd, ms) && !rdma_get_cm_event(ec, &e) ? e : NULL;
}

#endif

bool readable(int fd, int ms)
{
	return readable_now(fd, ms * cf_patience / 100);
}

void say_event(const char *what, struct rdma_event_channel *ec, int ms)
{
	struct rdma_cm_event *e = next_event(ec, ms);

	if (!e) {
		say(" %s=none", what);
		return;
	}
	say(" %s=%s/%d", what, rdma_event_str(e->event) + strlen("RDMA_CM_EVENT_"), e->status);
	rdma_ack_cm_event(e);
}

void say_async(const char *what, struct ibv_context *ctx, int ms)
{
	struct ibv_async_event ev;
	int n = 0;

	say(" %s=", what);
	while (readable(ctx->async_fd, ms) && !ibv_get_async_event(ctx, &ev)) {
		say("%s%d", n++ ? "," : "", ev.event_type);
		ack_async(ctx, &ev);
	}
	if (!n)
		say("none");
}

/* ---- posting ---- */

struct ibv_sge at(const struct end *e, size_t off, uint32_t len)
{
	return (struct ibv_sge){(uintptr_t)(e->buf + off), len, e->mr->lkey};
}

int post_wr(struct end *e, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad = NULL;

	return ibv_post_send(e->qp, wr, &bad);
}

int post_send(struct end *e, uint64_t id, size_t off, uint32_t len, unsigned int flags)
{
	struct ibv_sge s = at(e, off, len);
	struct ibv_send_wr wr = {.wr_id = id,
				 .sg_list = &s,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = flags};

	return post_wr(e, &wr);
}

int post_recv(struct end *e, uint64_t id, size_t off, uint32_t len)
{
	struct ibv_sge s = at(e, off, len);
	struct ibv_recv_wr *bad = NULL, wr = {.wr_id = id, .sg_list = &s, .num_sge = 1};

	return e->srq ? ibv_post_srq_recv(e->srq, &wr, &bad) : ibv_post_recv(e->qp, &wr, &bad);
}

int post_rdma(struct end *e, uint64_t id, enum ibv_wr_opcode op, const struct end *to, size_t off,
	      uint32_t len)
{
	struct ibv_sge s = at(e, 0, len);
	struct ibv_send_wr wr = {.wr_id = id,
				 .sg_list = &s,
				 .num_sge = 1,
				 .opcode = op,
				 .send_flags = IBV_SEND_SIGNALED};

	wr.wr.rdma.remote_addr = (uintptr_t)to->buf + off;
	wr.wr.rdma.rkey = to->mr->rkey;
	return post_wr(e, &wr);
}

/* ---- connecting ---- */

struct ibv_context *cf_open(void)
{
	const char *want = getenv("CF_DEVICE");
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	for (int i = 0; list && list[i] && !ctx; i++)
		if (!want || !strcmp(ibv_get_device_name(list[i]), want))
			ctx = ibv_open_device(list[i]);
	if (list)
		ibv_free_device_list(list);
	return ctx;
}

static void expect(struct pair *p, enum rdma_cm_event_type type, struct rdma_cm_id **id)
{
	struct rdma_cm_event *e = next_event(p->ec, 3000);

	cf_need(e != NULL, rdma_event_str(type));
	if (e->event != type) {
		say(" setup: %s, not %s", rdma_event_str(e->event), rdma_event_str(type));
		exit(0);
	}
	if (id)
		*id = e->id;
	rdma_ack_cm_event(e);
}

static void make_end(struct pair *p, struct end *e)
{
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RC, .sq_sig_all = p->sig_all};
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

	if (cf.dev.atomic_cap != IBV_ATOMIC_NONE)
		access |= IBV_ACCESS_REMOTE_ATOMIC;
	if (cf.dev.max_mw)
		access |= IBV_ACCESS_MW_BIND;
	e->pd = ibv_alloc_pd(e->id->verbs);
	e->ch = ibv_create_comp_channel(e->id->verbs);
	cf_need(e->pd && e->ch, "alloc_pd");
	e->scq = ibv_create_cq(e->id->verbs, p->cqe, NULL, e->ch, 0);
	e->rcq = ibv_create_cq(e->id->verbs, p->cqe, NULL, e->ch, 0);
	cf_need(e->scq && e->rcq, "create_cq");
	if (e == &p->b && p->srq_wr) {
		struct ibv_srq_init_attr s = {.attr = {.max_wr = p->srq_wr, .max_sge = 1}};

		e->srq = ibv_create_srq(e->pd, &s);
		cf_need(e->srq != NULL, "create_srq");
	}
	a.send_cq = e->scq;
	a.recv_cq = e->rcq;
	a.srq = e->srq;
	a.cap = (struct ibv_qp_cap){p->depth, p->depth, p->max_sge, p->max_sge, p->inl};
	cf_need(!rdma_create_qp(e->id, e->pd, &a), "create_qp");
	e->qp = e->id->qp;
	e->buf = aligned_alloc(4096, CF_BUF);
	memset(e->buf, 0, CF_BUF);
	e->mr = ibv_reg_mr(e->pd, e->buf, CF_BUF, p->access ? p->access : access);
	cf_need(e->mr != NULL, "reg_mr");
}

void pair_make(struct pair *p)
{
	struct sockaddr_in addr = cf.addr;
	struct rdma_conn_param param = {.retry_count = 3};

	p->depth = p->depth ? p->depth : 16;
	p->max_sge = p->max_sge ? p->max_sge : 2;
	p->cqe = p->cqe ? p->cqe : 64;
	p->ec = rdma_create_event_channel();
	cf_need(p->ec && !rdma_create_id(cf_peer_channel(p->ec), &p->listener, NULL, RDMA_PS_TCP) &&
			!rdma_bind_addr(p->listener, (struct sockaddr *)&addr) &&
			!rdma_listen(p->listener, 4),
		"listen");
	addr.sin_port = rdma_get_src_port(p->listener);
	cf_need(!rdma_create_id(p->ec, &p->a.id, NULL, RDMA_PS_TCP) &&
			!rdma_resolve_addr(p->a.id, NULL, (struct sockaddr *)&addr, 2000),
		"resolve_addr");
	expect(p, RDMA_CM_EVENT_ADDR_RESOLVED, NULL);
	cf_need(!rdma_resolve_route(p->a.id, 2000), "resolve_route");
	expect(p, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL);
	make_end(p, &p->a);
	param.rnr_retry_count = p->rnr_retry < 0 ? 0 : p->rnr_retry ? (uint8_t)p->rnr_retry : 7;
	param.responder_resources = param.initiator_depth = p->no_rd ? 0 : 4;
	param.private_data = p->hello;
	param.private_data_len = p->hello ? (uint8_t)(strlen(p->hello) + 1) : 0;
	cf_need(!rdma_connect(p->a.id, &param), "connect");
	expect(p, RDMA_CM_EVENT_CONNECT_REQUEST, &p->b.id);
	make_end(p, &p->b);
}

void pair_connect(struct pair *p)
{
	struct rdma_conn_param param = {.retry_count = 3};

	pair_make(p);
	param.rnr_retry_count = p->rnr_retry < 0 ? 0 : p->rnr_retry ? (uint8_t)p->rnr_retry : 7;
	param.responder_resources = param.initiator_depth = p->no_rd ? 0 : 4;
	param.private_data = p->answer;
	param.private_data_len = p->answer ? (uint8_t)(strlen(p->answer) + 1) : 0;
	cf_need(!rdma_accept(p->b.id, &param), "accept");
	for (int i = 0; i < 2; i++)
		expect(p, RDMA_CM_EVENT_ESTABLISHED, NULL);
}
