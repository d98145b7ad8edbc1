/* SPDX-License-Identifier: BSD-2-Clause */
/* Completions, against the operations that they are of; and what they hand over, posted again. */
#include <errno.h>
#include <string.h>

#include "post_model.h"

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

void do_poll(void)
{
	(void)poll_some(1 + (int)pick(WCS));
}

/* What a completion handed over is kept, or posted as it is: forwarded. */
void do_forward(void)
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
