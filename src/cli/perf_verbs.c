/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Modes raw and register: verbs without a library, as one would write it by hand for this purpose.
 *
 *      memory   | message 0 | message 1 | ... message tx - 1 | receive 0 | ... rx + CREDITS - 1 |
 *
 * raw: a connection's memory is registered once, messages go out of its ring in turn. register: each
 * message is registered when it's posted and deregistered when it has completed, unless it goes
 * inline, as programs do whose memory comes from anywhere; receives are registered once all the same.
 *
 * Flow control is the least there can be: for half a depth of messages the receiver sends a credit, a
 * message of CREDIT_BYTES, shorter than any other. To and fro none is needed.
 */
#include <errno.h>
#include <poll.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "cli/perf_test.h"

enum {
	CREDIT_BYTES = 4,
	CREDITS = 4, /* on the way, at most */
	ACK_EVENTS = 1000,
	ALIGN = 4096,
};
_Static_assert((int)CREDIT_BYTES < (int)PERF_SIZE_MIN,
	       "a credit is told from a message by its length");

/* What a wr_id says: the link, what it was, and how many sends a completion retires. */
enum kind {
	KIND_SEND = 0,
	KIND_FENCE,
	KIND_RECV,
};
#define WR_ID(index, kind, n) ((uint64_t)(index) << 32 | (uint64_t)(kind) << 28 | (n))

struct perf_ring {
	char *memory;
	size_t stride;           /* bytes from one message to the next */
	struct ibv_mr *out, *in; /* the registrations of all that is sent (raw), received */
	struct ibv_mr **each;    /* [tx] of register: NULL, or those of messages on their way */
	uint32_t posted, retired, signalled; /* sends; signalled: the last one that was */
	uint32_t credits;                    /* messages that the peer can take */
	uint32_t owed;                       /* receives posted again, of which it has not heard */
	uint32_t credits_out;                /* credits on their way */
	uint32_t next_recv;
	uint32_t max_inline;
};

static uint32_t receives(const struct perf_params *p)
{
	return p->op == PERF_SEND ? p->rx + CREDITS : 0;
}

static uint32_t send_depth(const struct perf_params *p)
{
	return p->tx + CREDITS + 1;
}

static uint32_t index_of(const struct perf_link *l)
{
	return (uint32_t)(l - l->worker->test->link);
}

/* Some providers' errors are negative, or -1 with errno. */
static int failed(struct perf_worker *w, const char *what, int err)
{
	return perf_fail(w, what, strerror(err == -1 ? errno : abs(err)));
}

/* ---- posts ---- */

/* Receive number slot. Returns 0, or the provider's error. */
static int post_recv(struct perf_link *l)
{
	const struct perf_params *p = &l->worker->test->p;
	struct perf_ring *r = l->ring;
	char *at = r->memory + (p->tx + r->next_recv) * r->stride;
	struct ibv_sge sge = {(uintptr_t)at, p->size, r->in->lkey};
	struct ibv_recv_wr wr = {
		.wr_id = WR_ID(index_of(l), KIND_RECV, 0), .sg_list = &sge, .num_sge = 1};
	struct ibv_recv_wr *bad;

	if (++r->next_recv == receives(p))
		r->next_recv = 0;
	return ibv_post_recv(l->id->qp, &wr, &bad);
}

/* What a message's own registration has to allow. */
static int access_of(const struct perf_test *t)
{
	if (t->p.op != PERF_READ)
		return 0;
	return IBV_ACCESS_LOCAL_WRITE | (t->iwarp ? IBV_ACCESS_REMOTE_WRITE : 0);
}

static bool goes_inline(const struct perf_link *l)
{
	const struct perf_params *p = &l->worker->test->p;

	return p->op != PERF_READ && p->size <= l->ring->max_inline;
}

/* The key of the message in this slot. Returns 0; -1, why is set. */
static int key(struct perf_link *l, uint32_t slot, uint32_t *lkey)
{
	struct perf_worker *w = l->worker;
	struct perf_ring *r = l->ring;
	void *at = r->memory + slot * r->stride;

	if (!r->each) {
		*lkey = r->out->lkey;
		return 0;
	}
	*lkey = 0;
	if (goes_inline(l))
		return 0;
	r->each[slot] = ibv_reg_mr(w->test->pd, at, w->test->p.size, access_of(w->test));
	if (!r->each[slot])
		return failed(w, "a message can't be registered", -1);
	atomic_fetch_add_explicit(&w->registrations, 1, memory_order_relaxed);
	*lkey = r->each[slot]->lkey;
	return 0;
}

static const enum ibv_wr_opcode opcodes[] = {[PERF_SEND] = IBV_WR_SEND,
					     [PERF_WRITE] = IBV_WR_RDMA_WRITE,
					     [PERF_READ] = IBV_WR_RDMA_READ};

/* One send more; signal: this one's completion is wanted. It retires those since the last one. */
static unsigned int signal_flag(const struct perf_link *l, struct ibv_send_wr *wr, bool wanted)
{
	struct perf_ring *r = l->ring;

	r->posted++;
	if (!wanted && r->posted - r->signalled < l->worker->test->p.tx / 4)
		return 0;
	wr->wr_id = WR_ID(index_of(l), KIND_SEND, r->posted - r->signalled);
	r->signalled = r->posted;
	return IBV_SEND_SIGNALED;
}

static int verbs_send(struct perf_link *l)
{
	const struct perf_params *p = &l->worker->test->p;
	struct perf_ring *r = l->ring;
	const uint32_t slot = r->posted % p->tx, part = p->size / p->sges;
	const bool credit = p->op == PERF_SEND && !p->latency;
	char *at = r->memory + slot * r->stride;
	struct ibv_sge sge[PERF_SGES_MAX];
	struct ibv_send_wr wr = {.sg_list = sge,
				 .num_sge = (int)p->sges,
				 .opcode = opcodes[p->op],
				 .wr.rdma = {.remote_addr = l->peer_addr, .rkey = l->peer_rkey}};
	struct ibv_send_wr *bad;
	uint32_t lkey;
	int err;

	if (r->posted - r->retired == p->tx || (credit && !r->credits))
		return 0;
	if (key(l, slot, &lkey))
		return -1;
	for (uint32_t i = 0; i < p->sges; i++)
		sge[i] = (struct ibv_sge){(uintptr_t)at + (uint64_t)i * part, part, lkey};
	if (p->latency && p->op == PERF_WRITE)
		at[p->size - 1] = (char)l->stamp;
	wr.send_flags = signal_flag(
		l, &wr, (r->each && r->each[slot]) || (p->latency && p->op == PERF_READ));
	if (goes_inline(l))
		wr.send_flags |= IBV_SEND_INLINE;
	if (credit)
		r->credits--;
	err = ibv_post_send(l->id->qp, &wr, &bad);
	return err ? failed(l->worker, "can't be posted", err) : 1;
}

static int verbs_fence(struct perf_link *l)
{
	struct ibv_sge sge = {(uintptr_t)sgp_chunk_addr(l->fence), PERF_FENCE_BYTES,
			      sgp_chunk_lkey(l->fence)};
	struct ibv_send_wr wr = {.wr_id = WR_ID(index_of(l), KIND_FENCE, 0),
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_READ,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.rdma = {.remote_addr = l->peer_addr, .rkey = l->peer_rkey}};
	struct ibv_send_wr *bad;
	const int err = ibv_post_send(l->id->qp, &wr, &bad);

	return err ? failed(l->worker, "the fence can't be posted", err) : 1;
}

/* Tell the peer of half a depth of receives. Its content is of no interest. Returns 0; -1. */
static int grant(struct perf_link *l)
{
	const uint32_t half = l->worker->test->p.rx / 2;
	struct perf_ring *r = l->ring;
	struct ibv_sge sge = {(uintptr_t)sgp_chunk_addr(l->fence) + 32, CREDIT_BYTES,
			      sgp_chunk_lkey(l->fence)};
	struct ibv_send_wr wr = {.wr_id = WR_ID(index_of(l), KIND_FENCE, 1),
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;

	while (r->owed >= half && r->credits_out < CREDITS) {
		const int err = ibv_post_send(l->id->qp, &wr, &bad);

		if (err)
			return failed(l->worker, "a credit can't be posted", err);
		r->owed -= half;
		r->credits_out++;
	}
	return 0;
}

/* ---- completions ---- */

/* n sends more have completed. Returns 0; -1. */
static int retire(struct perf_link *l, uint32_t n)
{
	struct perf_ring *r = l->ring;

	for (; n; n--, r->retired++, l->done++) {
		const uint32_t slot = r->retired % l->worker->test->p.tx;

		if (!r->each || !r->each[slot])
			continue;
		if (ibv_dereg_mr(r->each[slot]))
			return failed(l->worker, "a message can't be deregistered", -1);
		r->each[slot] = NULL;
	}
	return 0;
}

/* A message has come, or a credit. Returns 0; -1. */
static int take_message(struct perf_link *l, uint32_t bytes)
{
	const struct perf_params *p = &l->worker->test->p;
	struct perf_ring *r = l->ring;
	const int err = post_recv(l);

	if (err)
		return failed(l->worker, "a receive can't be posted", err);
	if (bytes == p->size) {
		l->received++;
		if (p->latency)
			return 0;
		r->owed++;
		return grant(l);
	}
	if (bytes != CREDIT_BYTES || r->credits + p->rx / 2 > p->rx)
		return perf_fail(l->worker, "the other end broke the protocol",
				 bytes != CREDIT_BYTES ? "a message of another length"
						       : "more credits than it can have");
	r->credits += p->rx / 2;
	return 0;
}

static int take(struct perf_worker *w, const struct ibv_wc *wc)
{
	struct perf_link *l = &w->test->link[wc->wr_id >> 32];
	const uint32_t n = wc->wr_id & 0xfffffff;

	if (wc->status != IBV_WC_SUCCESS)
		return perf_fail(w, "the connection broke", ibv_wc_status_str(wc->status));
	switch ((enum kind)(wc->wr_id >> 28 & 0xf)) {
	case KIND_SEND:
		return retire(l, n);
	case KIND_RECV:
		return take_message(l, wc->byte_len);
	case KIND_FENCE:
		break;
	}
	if (n) { /* a credit has gone */
		l->ring->credits_out--;
		return grant(l);
	}
	l->fenced = true;
	l->ring->signalled = l->ring->posted;
	return retire(l, l->ring->posted - l->ring->retired);
}

/* Sleep until there may be a completion. Returns 0; -1. */
static int sleep_for_event(struct perf_worker *w)
{
	struct pollfd fd = {.fd = w->channel->fd, .events = POLLIN};
	struct ibv_cq *cq;
	void *context;

	if (poll(&fd, 1, PERF_SLEEP_MS) <= 0)
		return 0;
	if (ibv_get_cq_event(w->channel, &cq, &context))
		return errno == EAGAIN || errno == EINTR ? 0 : failed(w, "completion events", -1);
	if (++w->events == ACK_EVENTS) {
		ibv_ack_cq_events(w->raw_cq, w->events);
		w->events = 0;
	}
	return 0;
}

static int verbs_reap(struct perf_worker *w, bool idle)
{
	struct ibv_wc wc[PERF_BATCH];
	int n = ibv_poll_cq(w->raw_cq, PERF_BATCH, wc);

	if (n == 0 && idle && w->test->p.events) {
		const int err = ibv_req_notify_cq(w->raw_cq, 0);

		if (err)
			return failed(w, "completion events", err);
		n = ibv_poll_cq(w->raw_cq, PERF_BATCH, wc);
		if (n == 0 && sleep_for_event(w))
			return -1;
		if (n == 0)
			n = ibv_poll_cq(w->raw_cq, PERF_BATCH, wc);
	}
	if (n < 0)
		return perf_fail(w, "the completion queue failed", "ibv_poll_cq");
	for (int i = 0; i < n; i++)
		if (take(w, &wc[i]))
			return -1;
	return n;
}

/* ---- beginning and end ---- */

static int verbs_open(struct perf_test *t)
{
	struct ibv_device_attr attr;

	if (t->p.op != PERF_READ)
		return 0;
	/* Soft-iWARP would read into the first and forget the others. */
	if (ibv_query_device(t->verbs, &attr))
		return -1;
	if (attr.max_sge_rd > 0 && t->p.sges > (uint32_t)attr.max_sge_rd) {
		errno = E2BIG;
		return -1;
	}
	return 0;
}

static int verbs_open_worker(struct perf_worker *w)
{
	const struct perf_params *p = &w->test->p;
	const uint32_t links = (p->conns + p->threads - 1) / p->threads;
	const uint32_t cqe = links * (send_depth(p) + receives(p) + 1);
	int flags;

	w->channel = ibv_create_comp_channel(w->test->verbs);
	if (!w->channel)
		return -1;
	flags = fcntl(w->channel->fd, F_GETFL);
	if (flags < 0 || fcntl(w->channel->fd, F_SETFL, flags | O_NONBLOCK))
		return -1;
	w->raw_cq = ibv_create_cq(w->test->verbs, (int)cqe, NULL, w->channel, 0);
	return w->raw_cq ? 0 : -1;
}

static int make_ring(struct perf_link *l)
{
	const struct perf_test *t = l->worker->test;
	const uint32_t count = t->p.tx + receives(&t->p);
	struct perf_ring *r = calloc(1, sizeof *r);
	size_t sent;

	l->ring = r;
	if (!r)
		return -1;
	/* Small messages lie a cache line apart, as the pool's; those of a page and more on pages. */
	r->stride = t->p.size < ALIGN ? (t->p.size + 63) & ~(size_t)63
				      : (t->p.size + ALIGN - 1) & ~(size_t)(ALIGN - 1);
	sent = t->p.tx * r->stride;
	r->memory = aligned_alloc(ALIGN, (count * r->stride + ALIGN - 1) & ~(size_t)(ALIGN - 1));
	if (!r->memory)
		return -1;
	memset(r->memory, 0, count * r->stride);
	r->credits = t->p.rx;
	if (t->p.mode == PERF_REGISTER)
		r->each = calloc(t->p.tx, sizeof(struct ibv_mr *));
	else
		r->out = ibv_reg_mr(t->pd, r->memory, sent, access_of(t));
	if (!r->each && !r->out)
		return -1;
	if (receives(&t->p) == 0)
		return 0;
	r->in = ibv_reg_mr(t->pd, r->memory + sent, receives(&t->p) * r->stride,
			   IBV_ACCESS_LOCAL_WRITE);
	return r->in ? 0 : -1;
}

static int verbs_open_link(struct perf_link *l)
{
	const struct perf_worker *w = l->worker;
	const struct perf_params *p = &w->test->p;
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC,
					.send_cq = w->raw_cq,
					.recv_cq = w->raw_cq,
					.cap = {.max_send_wr = send_depth(p),
						.max_recv_wr = receives(p) ? receives(p) : 1,
						.max_send_sge = p->sges,
						.max_recv_sge = 1,
						.max_inline_data = p->inlined}};
	int err;

	if (make_ring(l) || rdma_create_qp(l->id, w->test->pd, &attr))
		return -1;
	l->ring->max_inline = attr.cap.max_inline_data;
	for (uint32_t i = 0; i < receives(p); i++) {
		err = post_recv(l);
		if (err) {
			errno = err == -1 ? errno : abs(err);
			return -1;
		}
	}
	return 0;
}

static void verbs_close_link(struct perf_link *l)
{
	struct perf_ring *r = l->ring;

	if (l->id && l->id->qp)
		rdma_destroy_qp(l->id);
	if (!r)
		return;
	for (uint32_t i = 0; r->each && i < l->worker->test->p.tx; i++)
		if (r->each[i])
			ibv_dereg_mr(r->each[i]);
	if (r->in)
		ibv_dereg_mr(r->in);
	if (r->out)
		ibv_dereg_mr(r->out);
	free(r->each);
	free(r->memory);
	free(r);
	l->ring = NULL;
}

static void verbs_close_worker(struct perf_worker *w)
{
	if (w->raw_cq) {
		ibv_ack_cq_events(w->raw_cq, w->events);
		ibv_destroy_cq(w->raw_cq);
	}
	if (w->channel)
		ibv_destroy_comp_channel(w->channel);
}

static void verbs_close(struct perf_test *t)
{
	(void)t;
}

const struct perf_way perf_verbs = {.open = verbs_open,
				    .open_worker = verbs_open_worker,
				    .open_link = verbs_open_link,
				    .send = verbs_send,
				    .fence = verbs_fence,
				    .reap = verbs_reap,
				    .close_link = verbs_close_link,
				    .close_worker = verbs_close_worker,
				    .close = verbs_close};
