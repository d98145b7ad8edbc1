/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Strict mode: what a device can't know, but a test wants to. Buffers are summed when they are
 * posted and again when their completion is polled; everything posted is looked through when a
 * region goes; what is destroyed in the wrong order, not acknowledged or never destroyed is told in
 * a sentence.
 *
 * A send is summed at its post, a receive when its bytes have arrived, both until their slot is
 * retired by a poll; receives of an SRQ leave its queue when they are taken and are not summed. A
 * chain of bytes is summed with FNV-1a, eight at a time.
 */
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "softverbs/ops.h"

#define SENTENCES 32

bool sw_strict_on;
static bool fatal; /* from the environment: the first sentence ends the program */
static char sentence[SENTENCES][256];
static unsigned int told;

void sw_strict(const char *fmt, ...)
{
	char text[sizeof *sentence];
	va_list ap;

	if (!sw_strict_on)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	if (told < SENTENCES)
		memcpy(sentence[told], text, sizeof text);
	told++;
	if (fatal) {
		fprintf(stderr, "softverbs: %s\n", text);
		abort();
	}
}

void sv_strict(int on)
{
	sw_lock();
	sw_strict_on = on != 0;
	told = 0;
	sw_unlock();
}

unsigned int sv_strict_count(void)
{
	unsigned int n;

	sw_lock();
	n = told;
	sw_unlock();
	return n;
}

const char *sv_strict_sentence(unsigned int i)
{
	return i < sv_strict_count() && i < SENTENCES ? sentence[i] : NULL;
}

/* ---- sums ---- */

static uint64_t sum(const struct sw_piece *p, uint32_t n)
{
	uint64_t h = 0xcbf29ce484222325u, w;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t at = 0;

		for (; at + sizeof w <= p[i].n; at += (uint32_t)sizeof w) {
			memcpy(&w, p[i].p + at, sizeof w);
			h = (h ^ w) * 0x100000001b3u;
		}
		for (; at < p[i].n; at++)
			h = (h ^ p[i].p[at]) * 0x100000001b3u;
	}
	return h;
}

static bool reads_memory(const struct sw_swqe *w)
{
	return !w->inl && w->num_sge && w->op != IBV_WR_RDMA_READ &&
	       w->op != IBV_WR_ATOMIC_CMP_AND_SWP && w->op != IBV_WR_ATOMIC_FETCH_AND_ADD &&
	       w->op != IBV_WR_BIND_MW && w->op != IBV_WR_LOCAL_INV;
}

static bool sum_send(struct sw_qp *qp, uint32_t at, uint64_t *to)
{
	struct sw_piece p[SW_MAX_SGE];
	uint32_t n;

	if (!reads_memory(&qp->swqe[at & qp->sq.mask]) ||
	    sw_gather(qp, at, p, &n) != IBV_WC_SUCCESS)
		return false;
	*to = sum(p, n);
	return true;
}

static bool sum_recv(struct sw_qp *qp, uint32_t at, uint64_t *to)
{
	uint32_t slot = at & qp->rq.q.mask;
	struct sw_rwqe *w = &qp->rq.wqe[slot];
	struct sw_piece p[SW_MAX_SGE];
	uint64_t len;
	uint32_t n;

	if (sw_sges(qp->dev, qp->pd, qp->rq.sge + (size_t)slot * qp->rq.q.max_sge, w->num_sge,
		    IBV_ACCESS_LOCAL_WRITE, w->len, p, &n, &len) != IBV_WC_SUCCESS)
		return false;
	*to = sum(p, n);
	return true;
}

void sw_strict_sent(struct sw_qp *qp, uint32_t at)
{
	struct sw_swqe *w = &qp->swqe[at & qp->sq.mask];

	w->summed = sum_send(qp, at, &w->sum);
}

void sw_strict_received(struct sw_qp *qp, uint32_t at, uint32_t len)
{
	struct sw_rwqe *w = &qp->rq.wqe[at & qp->rq.q.mask];

	w->len = len;
	w->summed = sum_recv(qp, at, &w->sum);
}

void sw_strict_retire(struct sw_qp *qp, enum sw_side side, uint32_t upto)
{
	struct sw_queue *q = side == SW_SEND ? &qp->sq : &qp->rq.q;
	uint64_t now;

	for (uint32_t at = q->tail; (int32_t)(upto - at) > 0; at++) {
		struct sw_swqe *s = &qp->swqe[at & q->mask];
		struct sw_rwqe *r = &qp->rq.wqe[at & q->mask];

		if (side == SW_SEND && s->summed && sum_send(qp, at, &now) && now != s->sum)
			sw_strict(
				"QP %u: the buffer of send %#llx was changed before its completion "
				"was polled",
				qp->ibv.qp_base.qp_num, (unsigned long long)s->wr_id);
		if (side == SW_RECV && r->summed && sum_recv(qp, at, &now) && now != r->sum)
			sw_strict("QP %u: the buffer of receive %#llx was changed before its "
				  "completion was polled",
				  qp->ibv.qp_base.qp_num, (unsigned long long)r->wr_id);
		if (side == SW_SEND)
			s->summed = false;
		else
			r->summed = false;
	}
}

/* ---- everything that is posted ---- */

typedef void visit(void *arg, const struct ibv_sge *sge, bool sink, uint64_t wr_id, uint32_t qpn);

static void visit_rq(const struct sw_rq *rq, uint32_t from, uint32_t qpn, visit *f, void *arg)
{
	for (uint32_t at = from; at != rq->q.head; at++) {
		uint32_t slot = at & rq->q.mask;

		for (uint32_t i = 0; i < rq->wqe[slot].num_sge; i++)
			f(arg, &rq->sge[(size_t)slot * rq->q.max_sge + i], true,
			  rq->wqe[slot].wr_id, qpn);
	}
}

static void visit_all(struct sw_device *dev, visit *f, void *arg)
{
	for (uint32_t k = 0; k < dev->nqp; k++) {
		struct sw_qp *qp = dev->qp[k];

		if (!qp)
			continue;
		visit_rq(&qp->rq, qp->rq.q.tail, qp->ibv.qp_base.qp_num, f, arg);
		if (qp->srq)
			visit_rq(&qp->srq->rq, qp->srq->rq.q.next, 0, f, arg);
		for (uint32_t at = qp->sq.tail; at != qp->sq.head; at++) {
			uint32_t slot = at & qp->sq.mask;
			const struct sw_swqe *w = &qp->swqe[slot];

			for (uint32_t i = 0; !w->inl && i < w->num_sge; i++)
				f(arg, &qp->ssge[(size_t)slot * qp->sq.max_sge + i],
				  w->op == IBV_WR_RDMA_READ, w->wr_id, qp->ibv.qp_base.qp_num);
		}
	}
}

struct search {
	uint32_t lkey;
	const struct ibv_sge *sge;
	unsigned int hits;
	uint64_t wr_id;
	uint32_t qpn;
};

static void uses_key(void *arg, const struct ibv_sge *sge, bool sink, uint64_t wr_id, uint32_t qpn)
{
	struct search *s = arg;

	(void)sink;
	if (sge->length && sge->lkey == s->lkey) {
		s->hits++;
		s->wr_id = wr_id;
		s->qpn = qpn;
	}
}

void sw_strict_dereg(struct sw_mr *mr)
{
	struct search s = {.lkey = mr->ibv.lkey};

	visit_all(sw_dev(mr->ibv.context), uses_key, &s);
	if (s.hits)
		sw_strict(
			"the region with lkey %#x is deregistered while %u posted SGEs use it, the "
			"last in request %#llx of QP %u",
			s.lkey, s.hits, (unsigned long long)s.wr_id, s.qpn);
}

static void overlaps(void *arg, const struct ibv_sge *sge, bool sink, uint64_t wr_id, uint32_t qpn)
{
	struct search *s = arg;

	if (!sink || sge == s->sge || sge->lkey != s->sge->lkey ||
	    sge->addr >= s->sge->addr + s->sge->length || s->sge->addr >= sge->addr + sge->length)
		return;
	s->hits++;
	s->wr_id = wr_id;
	s->qpn = qpn;
}

void sw_strict_sinks(struct sw_device *dev, const struct ibv_sge *sge, uint32_t n, uint64_t wr_id)
{
	for (uint32_t i = 0; i < n; i++) {
		struct search s = {.sge = &sge[i]};

		if (!sge[i].length)
			continue;
		visit_all(dev, overlaps, &s);
		if (s.hits)
			sw_strict("the sink of request %#llx overlaps that of request %#llx of QP "
				  "%u, "
				  "which is still posted",
				  (unsigned long long)wr_id, (unsigned long long)s.wr_id, s.qpn);
	}
}

bool sw_strict_mapped(const void *p, size_t n)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)p & ~(page - 1);
	uintptr_t to = ((uintptr_t)p + n + page - 1) & ~(page - 1);
	unsigned char vec[256];

	for (; from < to; from += page * sizeof vec) {
		size_t len = to - from < page * sizeof vec ? to - from : page * sizeof vec;

		if (mincore((void *)from, len, vec)) {
			sw_strict("%zu bytes at %p were posted and are not mapped any more", n, p);
			return false;
		}
	}
	return true;
}

/* ---- beginning and end ---- */

static void at_exit(void)
{
	static const char *const names[SV_NCOUNTERS] = {
		"contexts",
		"protection domains",
		"memory regions",
		"memory windows",
		"completion channels",
		"completion queues",
		"queue pairs",
		"shared receive queues",
		"address handles",
		"event channels",
		"ids",
		"unacknowledged connection events",
	};
	bool leak = false;

	if (!sw_strict_on || !fatal)
		return;
	for (int i = 0; i < SV_NCOUNTERS; i++)
		if (sv_live((enum sv_counter)i) > 0) {
			fprintf(stderr, "softverbs: %d %s left at exit\n",
				sv_live((enum sv_counter)i), names[i]);
			leak = true;
		}
	if (leak) {
		fflush(NULL);
		_exit(66);
	}
}

/* SGP_SOFTVERBS_STRICT=1 and SGP_SOFTVERBS_FAULTS, before the program's first call. */
__attribute__((constructor)) static void from_environment(void)
{
	const char *strict = getenv("SGP_SOFTVERBS_STRICT"), *wrong;
	const char *faults = getenv("SGP_SOFTVERBS_FAULTS");

	if (strict && *strict && strcmp(strict, "0") != 0) {
		sw_strict_on = fatal = true;
		atexit(at_exit);
	}
	if (faults && sv_faults(faults, &wrong)) {
		fprintf(stderr, "softverbs: SGP_SOFTVERBS_FAULTS: what is \"%.40s\"?\n", wrong);
		exit(2);
	}
}
