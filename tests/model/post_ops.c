/* SPDX-License-Identifier: BSD-2-Clause */
/* The random operations. A list's bytes are 8-byte stamps, all the same in one message. */
#include <errno.h>
#include <string.h>

#include "../plain.h"
#include "post_model.h"

/* What is READ is full of. */
#define SOURCE 0x7373737373737373u

static struct model_ep *some_ep(void)
{
	struct model_ep *e = &w.ep[pick((uint32_t)w.eps)];

	return e->ep ? e : NULL;
}

static struct op *new_op(struct model_ep *e)
{
	for (int n = 0; n < OPS; n++) {
		struct op *op = &w.op[pick(OPS)];

		if (op->out)
			continue;
		*op = (struct op){.serial = ++w.serials, .ep = (int)(e - w.ep)};
		return op;
	}
	return NULL;
}

/* ---- the caller's references ---- */

static void keep_held(struct sgp_chunk *chunk)
{
	if (w.nheld == HELD) {
		sgp_chunk_put(chunk);
		return;
	}
	w.held[w.nheld++] = chunk;
}

void drop_held(int i)
{
	sgp_chunk_put(w.held[i]);
	w.held[i] = w.held[--w.nheld];
}

/* Move what a list holds to the caller's references. */
static void keep_list(struct sgp_sgl *sgl)
{
	for (int i = 0; i < sgl->num_chunk; i++) {
		sgp_chunk_ref(sgl->chunk[i]);
		keep_held(sgl->chunk[i]);
	}
	sgp_sgl_clear(sgl);
}

/* ---- lists ---- */

static void fill(const struct sgp_sgl *sgl, uint64_t stamp)
{
	for (int i = 0; i < sgl->num_sge; i++)
		for (uint32_t at = 0; at < sgl->sge[i].length; at += 8)
			memcpy((char *)(uintptr_t)sgl->sge[i].addr + at, &stamp, 8);
}

/* The stamp that all of the list has; 0: of nothing. */
static uint64_t stamp_of(const struct sgp_sgl *sgl)
{
	uint64_t stamp = 0, word;

	for (int i = 0; i < sgl->num_sge; i++)
		for (uint32_t at = 0; at < sgl->sge[i].length; at += 8) {
			memcpy(&word, (char *)(uintptr_t)sgl->sge[i].addr + at, 8);
			CHECK(!stamp || word == stamp);
			stamp = word;
		}
	return stamp;
}

/* n chunks of the pool, a slice of each, or all of it. */
static bool make_list(struct sgp_sgl *sgl, int n, bool whole)
{
	for (int i = 0; i < n; i++) {
		struct sgp_chunk *chunk = sgp_pool_get(w.pool, CHUNK, 0);
		size_t from = whole ? 0 : 8 * pick(16);

		if (!chunk) {
			CHECK(errno == ENOBUFS);
			sgp_sgl_clear(sgl);
			return false;
		}
		CHECK(sgp_sgl_append(sgl, chunk, from, whole ? CHUNK : 8 * (1 + pick(16))) == 0);
	}
	return true;
}

static void remember(struct op *op, const struct sgp_sgl *sgl)
{
	op->nchunks = sgl->num_chunk;
	memcpy(op->chunk, sgl->chunk, (size_t)sgl->num_chunk * sizeof *sgl->chunk);
	op->length = sgl->length;
}

static bool is_as_remembered(const struct op *op, const struct sgp_sgl *sgl)
{
	return sgl->num_chunk == op->nchunks && sgl->length == op->length &&
	       !memcmp(sgl->chunk, op->chunk, (size_t)op->nchunks * sizeof *op->chunk);
}

/* ---- posts ---- */

/* Errors that a post may give without a fault of the device's. */
static void check_refusal(const struct model_ep *e, int err, bool send)
{
	struct sgp_ep_info info;

	w.count.refused++;
	CHECK(sgp_ep_query(e->ep, &info) == 0);
	switch (err) {
	case EAGAIN: /* or it needs more requests than there is room for */
		CHECK(send || info.recv_room == 0);
		break;
	case ESHUTDOWN:
		CHECK(sgp_ep_is_stopped(e->ep));
		break;
	case E2BIG:
	case ENOTCONN:
	case ENOBUFS:  /* for a copy: no chunk, */
	case EMSGSIZE: /* or none as large */
		CHECK(send);
		break;
	default: /* the provider's; a receive in RESET is refused */
		CHECK(w.faulty || w.removed || !send);
		break;
	}
}

static void do_recv(void)
{
	struct model_ep *e = some_ep();
	struct op *op = e && !e->ring && !e->shared ? new_op(e) : NULL;
	SGP_SGL(sgl, LIST);

	if (!op || !make_list(&sgl, 1 + (int)pick((uint32_t)w.max_sge), true))
		return;
	fill(&sgl, 0);
	op->recv = op->wanted = op->handover = true;
	op->opcode = IBV_WC_RECV;
	remember(op, &sgl);
	if (sgp_post_recvv(e->ep, op_context(op), &sgl)) {
		check_refusal(e, errno, false);
		CHECK(is_as_remembered(op, &sgl));
		sgp_sgl_clear(&sgl);
		return;
	}
	CHECK(!sgl.num_chunk && !sgl.num_sge);
	op->out = true;
	w.count.posts++;
}

struct post {
	struct sgp_sgl *sgl;
	struct sgp_wr wr;
	struct op *op;
};

static void choose_operation(struct post *p)
{
	static const struct {
		enum ibv_wr_opcode wr;
		enum ibv_wc_opcode wc;
	} ops[] = {
		{IBV_WR_SEND, IBV_WC_SEND},
		{IBV_WR_SEND, IBV_WC_SEND},
		{IBV_WR_SEND_WITH_IMM, IBV_WC_SEND},
		{IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE},
		{IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RDMA_WRITE},
		{IBV_WR_RDMA_READ, IBV_WC_RDMA_READ},
	};
	uint32_t i = pick(sizeof ops / sizeof *ops);
	bool read = ops[i].wr == IBV_WR_RDMA_READ;
	const struct sgp_chunk *remote = read ? w.source : w.target;

	p->wr.opcode = ops[i].wr;
	p->op->opcode = (uint8_t)ops[i].wc;
	p->wr.remote_addr = (uintptr_t)sgp_chunk_addr(remote);
	p->wr.rkey = sgp_chunk_rkey(remote);
	if (one_in(40))
		p->wr.rkey ^= 0x55; /* the peer refuses it */
	if (one_in(2))
		p->wr.flags |= IBV_SEND_SIGNALED;
	if (one_in(3))
		p->wr.flags |= SGP_BATCH;
	if (!read && one_in(5))
		p->wr.flags |= SGP_HANDOVER;
	if (!read && one_in(3))
		p->wr.flags |= SGP_LINEARISE;
	p->op->may_copy = p->wr.flags & SGP_LINEARISE;
	p->op->handover = read || p->wr.flags & SGP_HANDOVER;
	p->op->wanted = w.sig_all || p->op->handover || p->wr.flags & IBV_SEND_SIGNALED;
}

/* The list: new chunks, or (not for a sink) a clone of what the caller holds besides. */
static bool choose_list(struct post *p, const struct sgp_sgl *before)
{
	bool read = p->wr.opcode == IBV_WR_RDMA_READ;
	bool remote = read || p->wr.opcode == IBV_WR_RDMA_WRITE ||
		      p->wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	uint32_t most = one_in(8) ? LIST : (uint32_t)w.max_sge;
	int n = (int)pick(most + 1);

	if (read)
		n = n ? n : 1;
	if (!make_list(p->sgl, n, false))
		return false;
	/* What is READ or written lies in one chunk at the peer. */
	if (remote && p->sgl->length > CHUNK)
		CHECK(sgp_sgl_trim(p->sgl, CHUNK) == 0);
	fill(p->sgl, p->op->serial);
	if (!read && before && one_in(3)) { /* one message to two */
		sgp_sgl_clear(p->sgl);
		CHECK(sgp_sgl_clone(p->sgl, before) == 0);
	}
	if (one_in(6) && p->sgl->num_chunk && !read) {
		sgp_chunk_ref(p->sgl->chunk[0]);
		keep_held(p->sgl->chunk[0]);
	}
	remember(p->op, p->sgl);
	return true;
}

static void settle(struct post *p, int n, const struct sgp_wr *refused)
{
	bool taken = true;

	for (int i = 0; i < n; i++) {
		taken = taken && &p[i].wr != refused;
		if (taken) {
			CHECK(!p[i].sgl->num_chunk && !p[i].sgl->num_sge);
			p[i].op->out = true;
			w.count.posts++;
		} else {
			CHECK(is_as_remembered(p[i].op, p[i].sgl));
			sgp_sgl_clear(p[i].sgl);
		}
	}
}

static void do_send(void)
{
	struct model_ep *e = some_ep();
	SGP_SGL(s0, LIST);
	SGP_SGL(s1, LIST);
	SGP_SGL(s2, LIST);
	SGP_SGL(s3, LIST);
	struct post p[CHAIN] = {{.sgl = &s0}, {.sgl = &s1}, {.sgl = &s2}, {.sgl = &s3}};
	struct sgp_wr *refused = NULL;
	int n = one_in(3) ? 1 + (int)pick(CHAIN) : 1, ret, err;

	if (!e)
		return;
	for (int i = 0; i < n; i++) {
		p[i].op = new_op(e);
		if (!p[i].op)
			n = i;
		else
			p[i].op->out = true; /* so that the next one takes another */
	}
	for (int i = 0; i < n; i++) {
		p[i].op->out = false;
		choose_operation(&p[i]);
		if (!choose_list(&p[i], i && p[i - 1].wr.opcode != IBV_WR_RDMA_READ &&
							p[i - 1].sgl->length <= CHUNK
						? p[i - 1].sgl
						: NULL))
			n = i;
		p[i].wr.context = op_context(p[i].op);
		p[i].wr.sgl = p[i].sgl;
		p[i].wr.next = NULL;
		if (i && i < n)
			p[i - 1].wr.next = &p[i].wr;
	}
	if (!n)
		return;
	ret = sgp_post(e->ep, &p[0].wr, &refused);
	err = errno;
	CHECK((ret != 0) == (refused != NULL));
	settle(p, n, refused);
	if (ret)
		check_refusal(e, err, true);
}

/* ---- completions ---- */

/* A message that went well has one stamp, that somebody gave it. */
static void check_stamp(const struct sgp_sgl *sgl)
{
	uint64_t stamp = stamp_of(sgl);

	CHECK(!stamp || stamp <= w.serials || stamp == SOURCE);
}

/* One of the library's receives: nobody knows what its chunks are before. */
static void take_ring(struct sgp_wc *wc)
{
	const struct model_ep *e = w.ep;

	if (wc->context == SHARED)
		while (e < w.ep + w.eps && e->ep != wc->ep)
			e++;
	else
		e += (uintptr_t)wc->context - 1;
	w.count.told++;
	w.count.errors += wc->status != IBV_WC_SUCCESS;
	CHECK(e < w.ep + w.eps && (e->shared || (e->ring && wc->context != SHARED)));
	CHECK(wc->ep == e->ep && wc->opcode & IBV_WC_RECV && wc->error != ECANCELED);
	if (wc->status != IBV_WC_SUCCESS)
		CHECK(wc->sgl.num_chunk >= 1 && wc->sgl.length % CHUNK == 0);
	else if (wc->opcode == IBV_WC_RECV) {
		CHECK(wc->sgl.length == wc->byte_len);
		check_stamp(&wc->sgl);
	}
}

static void check_message(const struct sgp_wc *wc, const struct op *op)
{

	if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
		CHECK(wc->byte_len <= CHUNK);
		CHECK(is_as_remembered(op, &wc->sgl));
		return;
	}
	CHECK(wc->sgl.length == wc->byte_len && wc->sgl.num_chunk <= op->nchunks);
	CHECK(!memcmp(wc->sgl.chunk, op->chunk, (size_t)wc->sgl.num_chunk * sizeof *wc->sgl.chunk));
	check_stamp(&wc->sgl);
}

static void take(struct sgp_wc *wc)
{
	struct op *op = op_of(wc->context);
	struct model_ep *e = &w.ep[op->ep];
	bool good = wc->status == IBV_WC_SUCCESS;

	op->out = false;
	w.count.told++;
	w.count.errors += !good;
	CHECK(wc->ep == e->ep);
	CHECK(op->cancelled == (wc->error == ECANCELED));
	if (op->cancelled) {
		CHECK(wc->status == IBV_WC_WR_FLUSH_ERR && wc->opcode == op->opcode);
		CHECK(!wc->sgl.num_chunk && !wc->sgl.num_sge);
		return;
	}
	CHECK(op->wanted || !good);
	if (op->recv) {
		CHECK(wc->opcode & IBV_WC_RECV);
		if (good)
			check_message(wc, op);
		else
			CHECK(is_as_remembered(op, &wc->sgl));
		return;
	}
	CHECK(wc->opcode == op->opcode);
	if (!op->handover) {
		CHECK(!wc->sgl.num_chunk);
		return;
	}
	CHECK(op->length == wc->sgl.length);
	CHECK(op->nchunks == wc->sgl.num_chunk || (op->may_copy && wc->sgl.num_chunk == 1));
	if (good && op->opcode == IBV_WC_RDMA_READ) {
		CHECK(wc->byte_len == op->length);
		CHECK(!op->length || stamp_of(&wc->sgl) == SOURCE);
	}
}

static int poll_some(int n)
{
	int got = sgp_poll(w.cq, n, w.wc);

	if (got < 0) {
		CHECK(errno == EIO && (w.faulty || w.dead));
		return got;
	}
	for (int i = 0; i < got; i++)
		if (is_ring(w.wc[i].context))
			take_ring(&w.wc[i]);
		else
			take(&w.wc[i]);
	return got;
}

void poll_all(void)
{
	while (poll_some(WCS) > 0)
		check_world();
	for (int i = 0; i < WCS; i++)
		sgp_sgl_clear(&w.wc[i].sgl);
}

static void do_poll(void)
{
	(void)poll_some(1 + (int)pick(WCS));
}

/* What a completion handed over is kept, or posted as it is: forwarded. */
static void do_forward(void)
{
	struct sgp_wc *wc = &w.wc[pick(WCS)];
	struct sgp_sgl *sgl = &wc->sgl;
	struct model_ep *e = some_ep();
	struct op *op = e ? new_op(e) : NULL;

	/* After an error, or for an immediate alone, a list has whatever was in its chunks. */
	if (!op || !sgl->num_chunk || wc->status != IBV_WC_SUCCESS ||
	    wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM || one_in(3)) {
		keep_list(sgl);
		return;
	}
	op->opcode = IBV_WC_SEND;
	op->wanted = w.sig_all;
	remember(op, sgl);
	if (!sgp_post_sendv(e->ep, op_context(op), sgl, SGP_LINEARISE)) {
		CHECK(!sgl->num_chunk);
		op->out = true;
		w.count.posts++;
		return;
	}
	CHECK(is_as_remembered(op, sgl));
}

/* ---- the rest ---- */

static void do_cancel(void)
{
	struct op *op = &w.op[pick(OPS)];
	struct sgp_ep *ep = w.ep[op->ep].ep;

	for (int n = 0; n < 50 && !op->out; n++)
		op = &w.op[pick(OPS)];
	ep = w.ep[op->ep].ep;
	if (!op->out) {
		CHECK(!ep || (sgp_cancel(ep, op_context(op)) == -1 && errno == ENOENT));
		return;
	}
	if (!sgp_cancel(ep, op_context(op))) {
		CHECK(!op->recv && !op->cancelled);
		op->cancelled = true;
		w.count.cancels++;
		return;
	}
	CHECK(errno == ENOENT || (errno == EOPNOTSUPP && op->recv));
}

static void do_close(void)
{
	struct model_ep *e = some_ep();

	if (!e)
		return;
	if (sgp_ep_close(e->ep, 0)) { /* no time: how often it polls would not be the seed's */
		CHECK(w.faulty);
		return;
	}
	e->closed = true;
	w.count.closes++;
}

static void do_destroy(void)
{
	struct model_ep *e = &w.ep[pick((uint32_t)w.eps)];

	if (!e->ep) {
		if (!w.removed && !w.dead)
			make_endpoint(e);
		return;
	}
	if (!sgp_ep_destroy(e->ep)) {
		CHECK(e->closed);
		e->ep = NULL;
		/* At once, so that what is late of the old one's meets a new one in its place. */
		if (!w.removed && !w.dead && one_in(2))
			make_endpoint(e);
		return;
	}
	CHECK(errno == EBUSY);
}

/* Of a pair that does not work any more; now and then of one that does. */
static bool is_working(const struct model_ep *e)
{
	return e->ep && !e->closed && !sgp_ep_is_stopped(e->ep) &&
	       sgp_ep_qp(e->ep)->state == IBV_QPS_RTS;
}

static void do_reset(void)
{
	int pair = (int)pick((uint32_t)w.eps) & ~1;

	if (is_working(&w.ep[pair]) && (pair + 1 == w.eps || is_working(&w.ep[pair + 1])) &&
	    !one_in(20))
		return;
	for (int i = pair; i < pair + 2 && i < w.eps; i++) {
		struct model_ep *e = &w.ep[i];

		if (!e->ep || e->closed)
			continue;
		if (sgp_ep_reset(e->ep)) {
			CHECK(w.faulty || w.removed);
			continue;
		}
		w.count.resets++;
		if (sgp_ep_qp(e->ep)->state == IBV_QPS_RESET)
			start_endpoint(e);
	}
	connect_endpoints(pair);
}

/* The connection breaks, in one of the ways in which the endpoint hears of it or not. */
static void do_break(void)
{
	struct model_ep *e = some_ep();
	struct rdma_cm_event event = {.event = RDMA_CM_EVENT_DISCONNECTED};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	if (!e || e->closed)
		return;
	if (one_in(2))
		(void)ibv_modify_qp(sgp_ep_qp(e->ep), &attr, IBV_QP_STATE);
	else
		CHECK(sgp_ep_event(e->ep, &event) == 0);
}

static void do_submit(void)
{
	struct model_ep *e = some_ep();

	if (!e)
		return;
	if (one_in(2) ? sgp_ep_submit(e->ep) : sgp_ep_sync(e->ep))
		CHECK(w.faulty || w.removed || errno == ESHUTDOWN || errno == EAGAIN);
}

static void do_sleep(void)
{
	if (sgp_cq_arm(w.cq))
		CHECK(w.faulty);
	sv_clock_advance(1000u << pick(16));
	take_events();
}

static void do_put(void)
{
	if (w.nheld)
		drop_held((int)pick((uint32_t)w.nheld));
}

static void do_remove(void)
{
	if (w.removed || !one_in(200))
		return;
	CHECK(sv_device_remove(w.device) == 0);
	w.removed = true;
	take_events();
}

/* More completions at once than the queue has room for, where there is no room for duplicates. */
static void do_overrun(void)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	if (!w.small_cq || !one_in(15))
		return;
	w.faulty = true;
	CHECK(sv_faults("completion duplicate", NULL) == 0);
	for (int i = 0; i < w.eps; i++)
		if (w.ep[i].ep && !w.ep[i].closed)
			(void)ibv_modify_qp(sgp_ep_qp(w.ep[i].ep), &attr, IBV_QP_STATE);
	take_events();
}

void random_operation(void)
{
	static const struct {
		unsigned int weight;
		void (*what)(void);
	} menu[] = {
		{260, do_recv},  {260, do_send}, {240, do_poll},   {40, do_forward},
		{50, do_cancel}, {30, do_put},   {20, do_submit},  {20, do_sleep},
		{3, do_break},   {8, do_close},  {40, do_destroy}, {60, do_reset},
		{4, new_faults}, {1, do_remove}, {4, do_overrun},
	};
	unsigned int all = 0, n;

	for (size_t i = 0; i < sizeof menu / sizeof *menu; i++)
		all += menu[i].weight;
	n = pick(all);
	for (size_t i = 0; i < sizeof menu / sizeof *menu; i++) {
		if (n < menu[i].weight) {
			menu[i].what();
			return;
		}
		n -= menu[i].weight;
	}
}
