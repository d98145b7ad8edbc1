/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The invariant: chunks = free + live; references = the caller's + the lists' + the slots' + the
 * quarantined; and an operation that is owed a completion is in exactly one place, until it is told.
 */
#include "pool/pool.h"
#include "post/refill.h"
#include "post_model.h"

static uint32_t refs[CHUNKS];
static uint64_t check;

static void count(const struct sgp_chunk *chunk)
{
	refs[chunk - sgp_slab_of(chunk)->chunks]++;
}

static void count_list(const struct sgp_sgl *sgl)
{
	for (int i = 0; i < sgl->num_chunk; i++)
		count(sgl->chunk[i]);
}

struct op *op_of(void *context)
{
	struct op *op = &w.op[(uintptr_t)context % OPS];

	CHECK(op->out && op_context(op) == context);
	return op;
}

/* A slot that leads: its operation is out, unless it has been told that it was cancelled. */
static void check_leader(const struct model_ep *e, const struct sgp_slot *slot, bool recv)
{
	bool cancelled = slot->flags & SGP_SLOT_CANCELLED;
	struct op *op;

	if (is_ring(slot->context) && recv) {
		CHECK(e->ring && &w.ep[(uintptr_t)slot->context - 1] == e && !cancelled);
		return;
	}
	if (slot->flags & SGP_SLOT_OURS || (cancelled && !slot->to_tell))
		return;
	op = op_of(slot->context);
	CHECK(op->seen != check); /* in one place only */
	op->seen = check;
	CHECK(&w.ep[op->ep] == e && op->recv == recv && op->cancelled == cancelled);
}

static void check_side(const struct model_ep *e, struct sgp_side *side, bool recv,
		       uint64_t *quarantined)
{
	uint32_t posted = 0;

	for (uint32_t i = 0; i <= side->mask; i++) {
		struct sgp_slot *slot = &side->slot[i];
		uint64_t tag = atomic_load_explicit(&slot->tag, memory_order_relaxed);

		if (!tag)
			continue;
		posted++;
		CHECK(!(tag & SGP_WR_RECV) == !recv);
		for (int j = 0; j < slot->num_chunk; j++)
			count(slot->chunk[j]);
		if (sgp_side_slot(side, (uint32_t)tag + slot->to_lead)->flags & SGP_SLOT_CANCELLED)
			*quarantined += slot->num_chunk;
		if (!slot->to_lead)
			check_leader(e, slot, recv);
	}
	CHECK(posted <= side->depth && side->head - side->tail <= side->depth);
}

/* What is held for the next receive that the library will post. */
static void count_refill(const struct sgp_refill *r)
{
	int needs = r->nheld + (atomic_load(&r->state) == SGP_REFILL_SERVED);

	for (int i = 0; i < needs; i++)
		for (int j = 0; j < r->need[i].n; j++)
			count(r->held[r->need[i].first + j]);
}

static void check_endpoint(const struct model_ep *e)
{
	uint64_t quarantined = 0;
	struct sgp_ep_stats stats;

	check_side(e, &e->ep->send, false, &quarantined);
	check_side(e, &e->ep->recv, true, &quarantined);
	CHECK(!e->shared || e->ep->recv.head == e->ep->recv.tail);
	if (e->ep->refill)
		count_refill(e->ep->refill);
	CHECK(sgp_ep_stats(e->ep, &stats) == 0);
	CHECK(stats.quarantined == quarantined || e->ep->stuck);
}

/* The slots of the shared queue: of the device, on their way to the caller, or lost. */
/* It has the shared queue's context, until it comes on an endpoint that has one of its own. */
static bool is_on_its_endpoint(const struct sgp_slot *slot)
{
	const struct model_ep *e = w.ep + (uintptr_t)slot->context - 1;

	return is_ring(slot->context) && e->shared && e->ep == slot->ep;
}

static void check_shared(struct sgp_srq *srq)
{
	uint32_t out = 0;

	for (uint32_t i = 0; i <= srq->side.mask; i++) {
		const struct sgp_slot *slot = &srq->side.slot[i];

		if (!atomic_load_explicit(&slot->tag, memory_order_relaxed))
			continue;
		out++;
		CHECK(slot->context == SHARED || is_on_its_endpoint(slot));
		for (int j = 0; j < slot->num_chunk; j++)
			count(slot->chunk[j]);
	}
	CHECK(out == srq->outstanding);
	count_refill(srq->refill);
}

/* What is in no slot any more was never to be told of, and has succeeded. */
static void retire_silent(void)
{
	for (int i = 0; i < OPS; i++) {
		struct op *op = &w.op[i];

		if (!op->out || op->seen == check)
			continue;
		CHECK(!op->wanted && !op->cancelled);
		op->out = false;
		w.count.retired++;
	}
}

void check_world(void)
{
	struct sgp_pool_stats stats;
	uint32_t live = 0;

	check++;
	for (int i = 0; i < CHUNKS; i++)
		refs[i] = 0;
	count(w.source);
	count(w.target);
	for (int i = 0; i < w.nheld; i++)
		count(w.held[i]);
	for (int i = 0; i < WCS; i++)
		count_list(&w.wc[i].sgl);
	for (int i = 0; i < w.eps; i++)
		if (w.ep[i].ep)
			check_endpoint(&w.ep[i]);
	if (w.srq)
		check_shared(w.srq);
	retire_silent();
	CHECK(sgp_pool_stats(w.pool, &stats) == 0);
	for (int i = 0; i < CHUNKS; i++) {
		live += refs[i] != 0;
		CHECK(!refs[i] || sgp_slab_of(w.source)->chunks[i].refs == refs[i] - 1);
	}
	CHECK(stats.findings == 0);
	CHECK(stats.live == live && stats.free + stats.live == stats.chunks);
	if (check % 64 == 0) {
		const char *wrong = sgp_pool_check(w.pool);

		if (wrong)
			model_fail(__FILE__, __LINE__, wrong);
	}
	if (sv_strict_count())
		model_fail(__FILE__, __LINE__, sv_strict_sentence(0));
}
