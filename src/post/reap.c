/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * From the device's completions to the caller's: what has ended (match.c finds that) is handed over,
 * dropped, or kept for later. All of it is the poller's and runs under the queue's lock.
 */
#include <errno.h>
#include <string.h>

#include "pool/errmsg.h"
#include "pool/get.h"
#include "pool/probe.h"
#include "post/datagram.h"
#include "post/checked.h"
#include "post/reap.h"
#include "post/sgl.h"
#include "post/srq.h"
#include "post/window.h"

/*
 * Empty polls in a row after which gathered posts go out, and after which unsignalled tails are
 * retired. A tail costs a message on the wire to retire: most often the next send does it for nothing,
 * and in a busy loop that one waits for the peer's answer, many polls away.
 */
#define PATIENCE      16
#define TAIL_PATIENCE 2048

/* Polls that found something after which both are done: one endpoint's traffic does not keep another's
 * waiting. */
#define BUSY_PATIENCE 64

static struct sgp_side *side_of_leader(struct sgp_ep *ep, const struct sgp_slot *leader)
{
	return leader->opcode & IBV_WC_RECV ? ep->in : &ep->send;
}

/* ---- the holds of messages that have ended ---- */

/*
 * They go to the pool together, many messages' at once: a poll's, before it returns. The slots they
 * were in are the poster's again before that.
 */
static void give_back(struct sgp_cq *cq)
{
	size_t n = cq->nback;

	cq->nback = 0;
	if (n)
		sgp_chunk_put_bulk(cq->back, n);
}

/* The same when a message's do not find room any more. */
static SGP_COLD void drop_many(struct sgp_cq *cq, struct sgp_chunk *const *chunk, size_t n)
{
	give_back(cq);
	sgp_chunk_put_bulk(chunk, n);
}

static SGP_HOT void drop(struct sgp_cq *cq, struct sgp_chunk *const *chunk, size_t n)
{
	size_t before = cq->nback;

	if (!SGP_LIKELY(before + n <= SGP_CQ_BACK)) {
		drop_many(cq, chunk, n);
		return;
	}
	sgp_chunks_copy(cq->back + before, chunk, n, true);
	cq->nback = before + n;
}

/* What the caller has left in a completion. */
static __attribute__((noinline)) void drop_list(struct sgp_cq *cq, struct sgp_sgl *sgl)
{
	drop(cq, sgl->chunk, (size_t)sgl->num_chunk);
	sgp_sgl_reset(sgl);
}

/* A slot that is plain gives up its holds and is free. */
static SGP_HOT void drop_plain(struct sgp_cq *cq, struct sgp_slot *slot)
{
	drop(cq, slot->chunk, slot->num_chunk);
	sgp_slot_free(slot);
}

/* ---- ending a slot, and its group ---- */

static void free_group(struct sgp_side *side, const struct sgp_slot *leader)
{
	uint32_t first = sgp_slot_seq(leader) - leader->parts + 1u;

	for (uint32_t i = 0, parts = leader->parts; i < parts; i++)
		sgp_slot_free(sgp_side_slot(side, first + i));
}

/* The numbers of holds stay: a post looks at them after the doorbell, to tell a list from a copy. */
static unsigned int put_holds(struct sgp_side *side, const struct sgp_slot *leader)
{
	uint32_t first = sgp_slot_seq(leader) - leader->parts + 1u;
	unsigned int dropped = 0;

	for (uint32_t i = 0; i < leader->parts; i++) {
		struct sgp_slot *slot = sgp_side_slot(side, first + i);

		sgp_slot_writes_no_more(slot);
		sgp_check_ended(slot);
		sgp_chunk_put_bulk(slot->chunk, slot->num_chunk);
		dropped += slot->num_chunk;
	}
	return dropped;
}

unsigned int sgp_group_drop_holds(struct sgp_side *side, struct sgp_slot *leader)
{
	uint32_t first = sgp_slot_seq(leader) - leader->parts + 1u;
	unsigned int dropped = put_holds(side, leader);

	for (uint32_t i = 0; i < leader->parts; i++)
		sgp_side_slot(side, first + i)->num_chunk = 0;
	return dropped;
}

void sgp_group_drop(struct sgp_cq *cq, struct sgp_side *side, struct sgp_slot *leader)
{
	if (sgp_slot_is_plain(leader) && sgp_mode_is_ordinary()) {
		drop_plain(cq, leader);
		return;
	}
	put_holds(side, leader);
	free_group(side, leader);
}

/* A group that the caller has cancelled is over: its holds go, and it's told already or will be. */
static void end_cancelled(struct sgp_ep *ep, struct sgp_slot *leader)
{
	ep->quarantined -= sgp_group_drop_holds(&ep->send, leader);
	if (!leader->to_tell)
		free_group(&ep->send, leader);
}

struct sgp_slot *sgp_group_end_special(struct sgp_ep *ep, struct sgp_side *side,
				       struct sgp_slot *slot)
{
	struct sgp_slot *leader = sgp_side_slot(side, sgp_slot_seq(slot) + slot->to_lead);

	if (slot->flags & SGP_SLOT_WINDOW)
		sgp_window_ended_locked(slot);
	if (slot->parts != 1) {
		if (leader->failed.status == IBV_WC_SUCCESS)
			leader->failed = (struct sgp_failure){slot->done.status, slot->done.error,
							      slot->done.vendor_err};
		if (--leader->left)
			return NULL;
		leader->done.status = leader->failed.status;
		leader->done.error = leader->failed.error;
		leader->done.vendor_err = leader->failed.vendor_err;
	}
	if (!(leader->flags & SGP_SLOT_CANCELLED))
		return leader;
	end_cancelled(ep, leader);
	return NULL;
}

static inline bool is_owed(const struct sgp_slot *leader)
{
	if (leader->flags & SGP_SLOT_OURS)
		return false;
	return leader->flags & SGP_SLOT_WANTED || leader->done.status != IBV_WC_SUCCESS;
}

/* Fill in the caller's completion, but for what only a success brings. */
static SGP_HOT void fill_wc(struct sgp_ep *ep, const struct sgp_slot *leader,
			    const struct sgp_done *done, struct sgp_wc *wc)
{
	if (wc->sgl.num_chunk || wc->sgl.num_sge)
		drop_list(ep->cq, &wc->sgl);
	wc->context = leader->context;
	wc->ep = ep;
	wc->opcode = (enum ibv_wc_opcode)leader->opcode;
	/* All up to the list; the time is told where it's known. */
	memset(&wc->error, 0, offsetof(struct sgp_wc, sgl) - offsetof(struct sgp_wc, error));
	wc->status = done->status;
	wc->error = done->error;
	wc->vendor_err = done->vendor_err;
	ep->completions++;
	if (done->status != IBV_WC_SUCCESS) {
		ep->errors++;
		SGP_PROBE3(failed, ep, done->status, done->vendor_err);
	}
}

/* Tell that a group was cancelled. It stays where it is until the device is finished with it. */
static void deliver_cancelled(struct sgp_ep *ep, struct sgp_slot *leader, struct sgp_wc *wc)
{
	static const struct sgp_done cancelled = {.status = IBV_WC_WR_FLUSH_ERR,
						  .error = ECANCELED};

	fill_wc(ep, leader, &cancelled, wc);
	leader->to_tell = false;
	if (sgp_group_has_ended(leader))
		free_group(&ep->send, leader);
}

/* Tell of a group that has ended, and free its slots. */
static void deliver(struct sgp_ep *ep, struct sgp_slot *leader, struct sgp_wc *wc)
{
	const struct sgp_done *done = &leader->done;
	struct sgp_side *side = side_of_leader(ep, leader);

	fill_wc(ep, leader, done, wc);
	if (!(leader->flags & SGP_SLOT_HANDOVER)) {
		sgp_group_drop(ep->cq, side, leader);
		return;
	}
	sgp_hand_over(side, leader, &wc->sgl);
	if (done->status == IBV_WC_SUCCESS && wc->opcode & IBV_WC_RECV) {
		wc->byte_len = done->byte_len;
		wc->imm_data = done->imm_data;
		wc->wc_flags = done->wc_flags;
		/* A WRITE's bytes are elsewhere: its receive only carried the immediate. */
		if (wc->opcode == IBV_WC_RECV)
			sgp_sgl_cut(&wc->sgl, done->byte_len);
		if (ep->type == IBV_QPT_UD)
			sgp_fill_datagram(leader, wc);
	} else if (done->status == IBV_WC_SUCCESS) {
		wc->byte_len = wc->sgl.length;
	}
	/* The poster may fill it again now. */
	if (leader->flags & SGP_SLOT_SHARED)
		sgp_srq_free_locked(ep->srq, leader);
	else
		free_group(side, leader);
	if (ep->seat && wc->opcode & IBV_WC_RECV)
		sgp_seat_list_locked(ep->cq, ep->seat);
}

/* ---- the pending list ---- */

void sgp_cq_tell_locked(struct sgp_cq *cq, struct sgp_ep *ep, struct sgp_slot *leader)
{
	leader->next = NULL;
	*cq->pending_end = leader;
	cq->pending_end = &leader->next;
	ep->pending++;
}

static void keep(struct sgp_cq *cq, struct sgp_ep *ep, struct sgp_slot *leader)
{
	if (is_owed(leader))
		sgp_cq_tell_locked(cq, ep, leader);
	else
		sgp_group_drop(cq, side_of_leader(ep, leader), leader);
}

/* A slot that no completion ends. */
static void end_with(struct sgp_slot *slot, enum ibv_wc_status status)
{
	slot->done = (struct sgp_done){
		.status = status,
		.error = atomic_load_explicit(&slot->error, memory_order_relaxed)};
}

void sgp_cq_end_locked(struct sgp_cq *cq, struct sgp_ep *ep, struct sgp_side *side,
		       struct sgp_slot *slot, enum ibv_wc_status status)
{
	end_with(slot, status);
	slot = sgp_group_end_slot(ep, side, slot);
	if (slot)
		keep(cq, ep, slot);
	give_back(cq);
}

/* ---- a completion of the device ---- */

/* Of the completions that came together: the send side that the last one was of, found once for its neighbours. */
struct neighbour {
	uint64_t place; /* wr_id >> 32; at first more than any can be */
	struct sgp_ep *ep;
};

/* The device has been asked before: whatever is checked was, or was not, posted as such by then. */
static SGP_HOT bool find_neighbour(const struct sgp_cq *cq, uint64_t wr_id, struct neighbour *last)
{
	struct sgp_ep *ep;

	if (wr_id & SGP_WR_RECV || !sgp_mode_is_ordinary())
		return false;
	ep = sgp_cq_ep_of(cq, wr_id);
	if (!ep)
		return false;
	*last = (struct neighbour){.place = wr_id >> 32, .ep = ep};
	return true;
}

/*
 * The same where it's the end of one plain message that went well, as almost always: its slot. NULL:
 * anything else, and nothing has changed.
 */
static SGP_HOT struct sgp_slot *match_plain(struct sgp_cq *cq, const struct ibv_wc *raw,
					    struct neighbour *last)
{
	uint64_t wr_id = raw->wr_id;
	struct sgp_slot *slot;
	struct sgp_ep *ep;

	if (!SGP_LIKELY(wr_id >> 32 == last->place) && !find_neighbour(cq, wr_id, last))
		return NULL;
	ep = last->ep;
	if (!ep)
		__builtin_unreachable(); /* no wr_id is of the place that stands for none */
	slot = sgp_side_slot(&ep->send, (uint32_t)wr_id);
	if (!SGP_LIKELY(raw->status == IBV_WC_SUCCESS) ||
	    !SGP_LIKELY(atomic_load_explicit(&slot->tag, memory_order_acquire) == wr_id) ||
	    !SGP_LIKELY(sgp_slot_is_plain(slot)) ||
	    !SGP_LIKELY(!atomic_load_explicit(&slot->error, memory_order_relaxed)))
		return NULL;
	if (SGP_LIKELY((uint32_t)wr_id == ep->send.reaped))
		ep->send.reaped++;
	else
		sgp_cq_retire_before(cq, ep, (uint32_t)wr_id);
	return slot;
}

/* ---- emptying the lists ---- */

static int take_pending(struct sgp_cq *cq, int n, struct sgp_wc *wc)
{
	int got = 0;

	if (atomic_load_explicit(&cq->inbox, memory_order_acquire))
		sgp_cq_take_untaken_locked(cq);
	while (got < n && cq->pending) {
		struct sgp_slot *leader = cq->pending;
		struct sgp_ep *ep =
			leader->flags & SGP_SLOT_SHARED
				? leader->ep
				: sgp_cq_ep_of(cq, atomic_load_explicit(&leader->tag,
									memory_order_relaxed));

		cq->pending = leader->next;
		if (!cq->pending)
			cq->pending_end = &cq->pending;
		ep->pending--;
		if (leader->flags & SGP_SLOT_CANCELLED)
			deliver_cancelled(ep, leader, &wc[got++]);
		else
			deliver(ep, leader, &wc[got++]); /* the time is not kept with it */
	}
	return got;
}

/* ---- asking the device ---- */

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
	if (cq->nleft)
		sgp_cq_free_seats_locked(cq);
}

static inline int ask(struct sgp_cq *cq, int n, struct ibv_wc *raw)
{
	return cq->ex ? sgp_cq_poll_ex_locked(cq, n, raw) : ibv_poll_cq(cq->cq, n, raw);
}

bool sgp_cq_keep_all_locked(struct sgp_cq *cq)
{
	struct ibv_wc raw[SGP_CQ_BATCH];
	int n;

	sgp_cq_take_untaken_locked(cq);
	while ((n = ask(cq, SGP_CQ_BATCH, raw)) > 0) {
		for (int i = 0; i < n; i++) {
			struct sgp_ep *ep;
			struct sgp_slot *leader = sgp_cq_match(cq, &raw[i], &ep);

			if (leader)
				keep(cq, ep, leader);
		}
	}
	give_back(cq);
	if (!n)
		seen_empty(cq);
	return !n && !cq->failed;
}

/* What is more than the success of one plain message. */
static __attribute__((noinline)) bool take_special(struct sgp_cq *cq, const struct ibv_wc *raw,
						   struct sgp_wc *wc)
{
	struct sgp_ep *ep;
	struct sgp_slot *leader = sgp_cq_match(cq, raw, &ep);

	if (!leader)
		return false;
	if (is_owed(leader)) {
		deliver(ep, leader, wc);
		return true;
	}
	sgp_group_drop(cq, side_of_leader(ep, leader), leader);
	return false;
}

/* Deal with one completion of the device. Returns whether *wc was filled in: there was something to tell. */
static SGP_HOT bool take_one(struct sgp_cq *cq, const struct ibv_wc *raw, struct sgp_wc *wc,
			     struct neighbour *last)
{
	static const struct sgp_done success = {.status = IBV_WC_SUCCESS};
	struct sgp_slot *slot = match_plain(cq, raw, last);

	if (!SGP_LIKELY(slot != NULL))
		return take_special(cq, raw, wc);
	if (!(slot->flags & SGP_SLOT_WANTED)) {
		drop_plain(cq, slot);
		return false;
	}
	fill_wc(last->ep, slot, &success, wc);
	drop_plain(cq, slot);
	return true;
}

static inline int reap(struct sgp_cq *cq, int n, struct sgp_wc *wc)
{
	const uint64_t *stamp = cq->stamp;
	struct ibv_wc raw[SGP_CQ_BATCH];
	int got = take_pending(cq, n, wc);
	bool tails;

	while (got < n) {
		int want = n - got < SGP_CQ_BATCH ? n - got : SGP_CQ_BATCH;
		int k = ask(cq, want, raw);
		struct neighbour last = {.place = UINT64_MAX};
		struct sgp_wc *to = wc + got;

		if (k < 0)
			return got ? got : sgp_fail(EIO, "the completion queue has failed (%d)", k);
		for (int i = 0; i < k; i++) {
			if (!take_one(cq, &raw[i], to, &last))
				continue;
			if (stamp)
				to->timestamp = stamp[i];
			got++;
			to++;
		}
		if (k < want) {
			seen_empty(cq);
			break;
		}
	}
	if (got < n && cq->pending) /* a retired one had an error */
		got += take_pending(cq, n - got, wc + got);
	if (got) {
		cq->empty_polls = 0;
		if (++cq->full_polls < BUSY_PATIENCE)
			return got;
	} else if (cq->failed) {
		return sgp_fail(EIO, "the completion queue has failed: close its endpoints");
	} else if (++cq->empty_polls < TAIL_PATIENCE && cq->empty_polls != PATIENCE) {
		return 0;
	}
	tails = cq->empty_polls != PATIENCE;
	if (tails)
		cq->empty_polls = cq->full_polls = 0;
	if (atomic_load_explicit(&cq->inbox, memory_order_relaxed))
		sgp_cq_attend_locked(cq, tails);
	return got;
}

int sgp_cq_reap_locked(struct sgp_cq *cq, int n, struct sgp_wc *wc)
{
	int got = reap(cq, n, wc);

	give_back(cq);
	/* Whatever became of the batch: what it took of the receives is replaced (case 43). */
	if (cq->listed || atomic_load_explicit(&cq->served, memory_order_relaxed))
		sgp_cq_refill_locked(cq);
	return got;
}
