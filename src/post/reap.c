/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * From the device's completions to the caller's: find the slot, end it, hand over or drop what it
 * held, or keep it for later. All of it is the poller's and runs under the queue's lock.
 */
#include <errno.h>
#include <string.h>

#include "pool/errmsg.h"
#include "post/ep.h"
#include "post/sgl.h"

#define BATCH 32 /* completions asked of the device at a time */

static struct sgp_ep *ep_of(const struct sgp_cq *cq, uint64_t wr_id)
{
	uint64_t index = wr_id >> 32 & (SGP_MAX_ENDPOINTS - 1);

	return index < cq->nplaces ? cq->place[index].ep : NULL;
}

static struct sgp_side *side_of(struct sgp_ep *ep, uint64_t wr_id)
{
	return wr_id & SGP_WR_RECV ? &ep->recv : &ep->send;
}

/*
 * The posted slot that a completion ends, with slot->done filled in; NULL when there is none. Only
 * wr_id, status and vendor_err are read of a failed one (law 2.11); the direction is in wr_id.
 */
static struct sgp_slot *match(struct sgp_cq *cq, const struct ibv_wc *raw)
{
	struct sgp_ep *ep = ep_of(cq, raw->wr_id);
	struct sgp_slot *slot = ep ? sgp_side_find(side_of(ep, raw->wr_id), raw->wr_id) : NULL;

	if (!slot || slot->flags & SGP_SLOT_DONE) {
		cq->stale++;
		return NULL;
	}
	slot->done = (struct sgp_done){
		.status = raw->status, .error = slot->error, .vendor_err = raw->vendor_err};
	if (raw->status != IBV_WC_SUCCESS) {
		atomic_store_explicit(&ep->stopped, true, memory_order_relaxed);
	} else if (slot->error) {
		slot->done.status = IBV_WC_GENERAL_ERR;
	} else if (slot->op == SGP_OP_RECV) {
		slot->done.byte_len = raw->byte_len;
		slot->done.imm_data = raw->imm_data;
		slot->done.wc_flags = raw->wc_flags;
		atomic_store_explicit(&ep->connected, true, memory_order_relaxed);
	}
	return slot;
}

/* Whether the slot's end is to be told to the caller. */
static bool is_owed(const struct sgp_slot *slot)
{
	return slot->flags & SGP_SLOT_WANTED || slot->done.status != IBV_WC_SUCCESS;
}

/* A success that nobody asked to hear of: the holds go, and the slot. */
static void retire(struct sgp_slot *slot)
{
	sgp_chunk_put_bulk(slot->chunk, slot->num_chunk);
	sgp_slot_free(slot);
}

static void hand_over(const struct sgp_slot *slot, struct sgp_sgl *sgl)
{
	memcpy(sgl->sge, slot->sge, slot->num_sge * sizeof *slot->sge);
	memcpy(sgl->chunk, slot->chunk, slot->num_chunk * sizeof(struct sgp_chunk *));
	sgl->num_sge = slot->num_sge;
	sgl->num_chunk = slot->num_chunk;
	sgl->length = slot->length;
	sgl->pds = slot->pds;
	sgl->access = slot->access;
}

/* Fill in the caller's completion from an ended slot, and free it. */
static void deliver(struct sgp_cq *cq, struct sgp_slot *slot, struct sgp_wc *wc)
{
	const struct sgp_done *done = &slot->done;

	sgp_sgl_clear(&wc->sgl);
	wc->context = slot->context;
	wc->ep = ep_of(cq, atomic_load_explicit(&slot->tag, memory_order_relaxed));
	wc->opcode = (enum sgp_opcode)slot->op;
	wc->status = done->status;
	wc->error = done->error;
	wc->vendor_err = done->vendor_err;
	wc->byte_len = done->byte_len;
	wc->imm_data = done->imm_data;
	wc->wc_flags = done->wc_flags;
	if (slot->op != SGP_OP_RECV) {
		retire(slot);
		return;
	}
	hand_over(slot, &wc->sgl);
	if (done->status == IBV_WC_SUCCESS)
		sgp_sgl_cut(&wc->sgl, done->byte_len);
	sgp_slot_free(slot);
}

/* ---- the pending list ---- */

static void keep(struct sgp_cq *cq, struct sgp_ep *ep, struct sgp_slot *slot)
{
	slot->flags |= SGP_SLOT_DONE;
	slot->next = NULL;
	*cq->pending_end = slot;
	cq->pending_end = &slot->next;
	ep->pending++;
}

static int take_pending(struct sgp_cq *cq, int n, struct sgp_wc *wc)
{
	int got = 0;

	while (got < n && cq->pending) {
		struct sgp_slot *slot = cq->pending;

		cq->pending = slot->next;
		if (!cq->pending)
			cq->pending_end = &cq->pending;
		deliver(cq, slot, &wc[got]);
		wc[got++].ep->pending--;
	}
	return got;
}

/*
 * The device's queue was seen empty: no completion of a destroyed queue pair is left in it, so the
 * room of those comes back and their places may be used again.
 */
static void seen_empty(struct sgp_cq *cq)
{
	for (unsigned int i = 0; cq->nawaiting; i++) {
		struct sgp_place *place = &cq->place[i];

		if (!place->awaits_empty)
			continue;
		cq->reserved -= place->room;
		place->room = 0;
		place->awaits_empty = false;
		cq->nawaiting--;
	}
}

void sgp_cq_keep_all_locked(struct sgp_cq *cq)
{
	struct ibv_wc raw[BATCH];
	int n;

	while ((n = ibv_poll_cq(cq->cq, BATCH, raw)) > 0) {
		for (int i = 0; i < n; i++) {
			struct sgp_slot *slot = match(cq, &raw[i]);

			if (slot && is_owed(slot))
				keep(cq, ep_of(cq, raw[i].wr_id), slot);
			else if (slot)
				retire(slot);
		}
	}
	if (!n)
		seen_empty(cq);
}

static void flush_side(struct sgp_cq *cq, struct sgp_ep *ep, struct sgp_side *side)
{
	sgp_lock(&side->lock);
	for (uint32_t seq = side->tail; seq != side->head; seq++) {
		struct sgp_slot *slot = sgp_side_find(side, side->wr_base | seq);

		if (!slot || slot->flags & SGP_SLOT_DONE)
			continue;
		slot->done = (struct sgp_done){.status = IBV_WC_WR_FLUSH_ERR, .error = slot->error};
		keep(cq, ep, slot);
	}
	sgp_unlock(&side->lock);
}

void sgp_cq_flush_locked(struct sgp_cq *cq, struct sgp_ep *ep)
{
	struct sgp_place *place = &cq->place[ep->index];

	flush_side(cq, ep, &ep->send);
	flush_side(cq, ep, &ep->recv);
	if (!place->awaits_empty) {
		place->awaits_empty = true;
		cq->nawaiting++;
	}
	if (cq->pending)
		sgp_cq_wake(cq);
}

int sgp_cq_reap_locked(struct sgp_cq *cq, int n, struct sgp_wc *wc)
{
	struct ibv_wc raw[BATCH];
	int got = take_pending(cq, n, wc);

	while (got < n) {
		int want = n - got < BATCH ? n - got : BATCH;
		int k = ibv_poll_cq(cq->cq, want, raw);

		if (k < 0)
			return got ? got : sgp_fail(EIO, "the completion queue has failed (%d)", k);
		for (int i = 0; i < k; i++) {
			struct sgp_slot *slot = match(cq, &raw[i]);

			if (slot && is_owed(slot))
				deliver(cq, slot, &wc[got++]);
			else if (slot)
				retire(slot);
		}
		if (k < want) {
			seen_empty(cq);
			break;
		}
	}
	return got;
}
