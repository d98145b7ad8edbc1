/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * From an operation to its slots and work requests, which wait on the endpoint for the doorbell.
 * The holds are in the slots before the provider can complete them; the list stays as it is until
 * the queue has it.
 */
#include <errno.h>
#include <string.h>

#include "pool/errmsg.h"
#include "pool/served.h"
#include "post/checked.h"
#include "post/plan.h"
#include "post/sgl.h"
#include "post/wr.h"

#define VERBS_FLAGS (IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE)
#define OUR_FLAGS   (SGP_HANDOVER | SGP_LINEARISE | SGP_BATCH)

static const struct {
	uint8_t kind;
	uint8_t completes_as; /* enum ibv_wc_opcode */
} ops[] = {
#define OP(wr, wc, ...) [IBV_WR_##wr] = {SGP_KIND_KNOWN | (__VA_ARGS__), IBV_WC_##wc}
	OP(SEND, SEND, SGP_KIND_SEND | SGP_KIND_MESSAGE),
	OP(SEND_WITH_IMM, SEND, SGP_KIND_SEND | SGP_KIND_MESSAGE | SGP_KIND_IMM),
	OP(SEND_WITH_INV, SEND, SGP_KIND_SEND | SGP_KIND_MESSAGE | SGP_KIND_INV),
	OP(RDMA_WRITE, RDMA_WRITE, SGP_KIND_ONE_SIDED),
	OP(RDMA_WRITE_WITH_IMM, RDMA_WRITE, SGP_KIND_ONE_SIDED | SGP_KIND_MESSAGE | SGP_KIND_IMM),
	OP(RDMA_READ, RDMA_READ, SGP_KIND_ONE_SIDED | SGP_KIND_SINK),
	OP(ATOMIC_CMP_AND_SWP, COMP_SWAP, SGP_KIND_ONE_SIDED | SGP_KIND_SINK | SGP_KIND_ATOMIC),
	OP(ATOMIC_FETCH_AND_ADD, FETCH_ADD, SGP_KIND_ONE_SIDED | SGP_KIND_SINK | SGP_KIND_ATOMIC),
#undef OP
};

/* The slot has its holds. If some are objects of a heap, that wants to know what is written to. */
static inline void fill_objects(struct sgp_slot *slot, const struct sgp_sgl *sgl)
{
	if (!(sgl->flags & SGP_SGL_OBJECTS))
		return;
	slot->flags |= SGP_SLOT_OBJECTS;
	if (slot->flags & SGP_SLOT_HANDOVER)
		sgp_slot_tell_sinks(slot, true);
}

/* SGEs that outlast the post: the device reads them later, or they are handed back. */
static inline void fill_sges(struct sgp_slot *slot, const struct sgp_sgl *sgl)
{
	const struct ibv_sge *from = sgl->sge;
	struct ibv_sge *to = slot->sge;

	slot->num_sge = (uint16_t)sgl->num_sge;
	for (const struct ibv_sge *end = from + sgl->num_sge; from != end;)
		*to++ = *from++;
}

/* A list that a completion hands back needs its SGEs then. */
void sgp_fill_handover(struct sgp_slot *slot, const struct sgp_sgl *sgl)
{
	slot->pds = sgl->pds;
	slot->access = sgl->access;
	fill_sges(slot, sgl);
	fill_objects(slot, sgl);
}

/*
 * Whether the next request is to carry IBV_SEND_SIGNALED though nobody asked: half a queue without
 * one, or the queue is full with it (law 3: a queue of unsignalled requests is stuck).
 */
static bool must_signal(struct sgp_side *side)
{
	return side->unsignalled + 1 >= (side->depth + 1) / 2 || !sgp_side_has_room(side, 2);
}

/* The next place among the requests that wait for the doorbell, chained to the one before. */
static inline struct ibv_send_wr *next_request(struct sgp_ep *ep)
{
	struct ibv_send_wr *wr = &ep->wr[ep->nwr];

	if (ep->nwr++)
		wr[-1].next = wr;
	return wr;
}

/* The next request is signalled, or not: the flag to send it with. */
static inline unsigned int signal_flag(struct sgp_ep *ep, bool signalled)
{
	if (!signalled) {
		ep->send.unsignalled++;
		ep->quiet++;
		return 0;
	}
	ep->send.unsignalled = 0;
	return IBV_SEND_SIGNALED;
}

/* Offer the slot at head and make its request; extra: flags besides those that the caller of the post gave. */
static inline __attribute__((always_inline)) void
fill_request(struct sgp_ep *ep, const struct sgp_wr *wr, struct ibv_send_wr *to,
	     struct sgp_slot *slot, struct ibv_sge *sge, int num_sge, unsigned int extra,
	     uint64_t offset)
{
	unsigned int send_flags =
		((unsigned int)wr->flags & (IBV_SEND_FENCE | IBV_SEND_SOLICITED)) | extra;

	sgp_wr_fill(to, wr, sgp_side_offer(&ep->send, slot), sge, num_sge, send_flags, offset);
}

static inline void add_request(struct sgp_ep *ep, const struct sgp_wr *wr, struct sgp_slot *slot,
			       struct ibv_sge *sge, int num_sge, unsigned int extra,
			       uint64_t offset)
{
	extra |= signal_flag(ep, slot->flags & SGP_SLOT_SIGNALLED);
	ep->stats.wrs++;
	fill_request(ep, wr, next_request(ep), slot, sge, num_sge, extra, offset);
}

void sgp_add_request(struct sgp_ep *ep, struct sgp_slot *slot, const struct ibv_send_wr *wr,
		     unsigned int send_flags)
{
	struct ibv_send_wr *to = next_request(ep);

	ep->stats.wrs++;
	*to = *wr;
	to->wr_id = sgp_side_offer(&ep->send, slot);
	to->send_flags = send_flags | signal_flag(ep, slot->flags & SGP_SLOT_SIGNALLED);
	to->next = NULL;
}

/*
 * An inline payload is one SGE: some devices send only the first (case 25). It's copied now where
 * it is more than one, or where the doorbell comes later than the caller's next step.
 */
static void add_inline(struct sgp_ep *ep, const struct sgp_wr *wr, struct sgp_slot *slot)
{
	const struct sgp_sgl *sgl = wr->sgl;
	struct ibv_sge *sge = slot->sge;
	int n = sgl->num_sge ? 1 : 0;

	if (n && (sgl->num_sge > 1 || wr->flags & SGP_BATCH)) {
		char *to = ep->inlined +
			   (size_t)(ep->send.head & ep->send.mask) * (size_t)ep->max_inline;

		sgp_sgl_gather(sgl, to);
		*sge = (struct ibv_sge){.addr = (uintptr_t)to, .length = (uint32_t)sgl->length};
	} else if (n) {
		*sge = sgl->sge[0];
	}
	slot->num_chunk = slot->num_sge = 0;
	slot->flags |= SGP_SLOT_COPIED;
	add_request(ep, wr, slot, sge, n, IBV_SEND_INLINE, 0);
	ep->stats.inlined++;
}

/*
 * Fill in the slot for the whole list. Returns the SGEs for its request: the list's own, or, if these would not
 * last, the slot's.
 */
static inline __attribute__((always_inline)) struct ibv_sge *
fill_whole(struct sgp_slot *slot, const struct sgp_sgl *sgl, unsigned int flags, bool later)
{
	sgp_fill_holds(slot, sgl->chunk, sgl->num_chunk);
	if (flags & SGP_SLOT_HANDOVER) {
		sgp_fill_handover(slot, sgl);
	} else if (later) {
		fill_sges(slot, sgl);
		fill_objects(slot, sgl);
	} else {
		return sgl->sge;
	}
	return slot->sge;
}

/* A walk over a list that is split. */
struct cursor {
	const struct sgp_sgl *sgl;
	int sge;         /* next SGE */
	uint32_t inside; /* bytes of it that are done */
	int chunk;       /* next hold */
	uint64_t done;   /* bytes */
};

/* The next part: at most max_sge SGEs and max_msg bytes of them into sge[]. */
static int next_part(struct cursor *at, struct ibv_sge *sge, int max_sge, uint64_t max_msg)
{
	uint64_t room = max_msg;
	int n = 0;

	for (; n < max_sge && room && at->sge < at->sgl->num_sge; n++) {
		const struct ibv_sge *from = &at->sgl->sge[at->sge];
		uint32_t left = from->length - at->inside;
		uint32_t piece = left < room ? left : (uint32_t)room;

		sge[n] = (struct ibv_sge){
			.addr = from->addr + at->inside, .length = piece, .lkey = from->lkey};
		at->inside = piece == left ? 0 : at->inside + piece;
		at->sge += piece == left;
		room -= piece;
		at->done += piece;
	}
	return n;
}

/* How many requests a list takes. Returns 0; -1 with E2BIG: more than the queue has. */
static int count_parts(const struct sgp_ep *ep, const struct sgp_sgl *sgl, struct sgp_plan *plan)
{
	const struct sgp_side *side = &ep->send;
	struct cursor at = {.sgl = sgl};
	struct ibv_sge scratch;
	uint64_t room = ep->max_msg;
	uint32_t parts = 1;
	int n = 0;

	while (!plan->parts && at.sge < sgl->num_sge) {
		uint64_t before = at.done;

		if (n == plan->sge_a_part || !room) {
			parts++;
			n = 0;
			room = ep->max_msg;
		}
		next_part(&at, &scratch, 1, room);
		room -= at.done - before;
		n++;
	}
	if (parts > side->depth ||
	    (uint64_t)sgl->num_chunk > (uint64_t)parts * (uint64_t)side->max_chunk)
		return sgp_fail(E2BIG,
				"a list of %d holds that takes %u requests: the queue has %u, "
				"of %d holds each",
				sgl->num_chunk, parts, side->depth, side->max_chunk);
	plan->parts = parts;
	return 0;
}

/*
 * A list over several requests, each of which is signalled. The holds go to the slots in order, as
 * many as each takes; they are dropped or handed back together.
 */
static SGP_COLD void add_parts(struct sgp_ep *ep, const struct sgp_wr *wr,
			       const struct sgp_plan *plan)
{
	struct cursor at = {.sgl = wr->sgl};
	struct sgp_side *side = &ep->send;
	uint32_t parts = plan->parts;

	for (uint32_t i = 0; i < parts; i++) {
		struct sgp_slot *slot =
			sgp_fill_slot(side, wr->context, ops[wr->opcode].completes_as,
				      plan->flags | SGP_SLOT_SIGNALLED);
		int holds = wr->sgl->num_chunk - at.chunk;
		uint64_t offset = at.done;

		slot->parts = slot->left = (uint16_t)parts;
		slot->failed.status = IBV_WC_SUCCESS;
		slot->to_lead = (uint16_t)(parts - 1 - i);
		slot->pds = wr->sgl->pds;
		slot->access = wr->sgl->access;
		slot->num_sge = (uint16_t)next_part(&at, slot->sge, plan->sge_a_part, ep->max_msg);
		if (holds > side->max_chunk)
			holds = side->max_chunk;
		sgp_fill_holds(slot, wr->sgl->chunk + at.chunk, holds);
		fill_objects(slot, wr->sgl);
		at.chunk += holds;
		add_request(ep, wr, slot, slot->sge, slot->num_sge, 0, offset);
	}
	ep->stats.split++;
}

/*
 * A message of too many SGEs, copied into a chunk of its own: that goes in its place, and its
 * memory stays out of the list's.
 */
static SGP_COLD int gather_copy(struct sgp_ep *ep, const struct sgp_wr *wr)
{
	SGP_SGL(copy, 1);
	struct sgp_wr of_copy = *wr;
	struct sgp_chunk *chunk;
	int ret;

	if (!wr->sgl->num_chunk)
		return sgp_fail(E2BIG, "a list of foreign memory with %d SGEs", wr->sgl->num_sge);
	if (sgp_sgl_check_mapped(wr->sgl))
		return -1;
	chunk = sgp_pool_get(sgp_chunk_pool(wr->sgl->chunk[0]), wr->sgl->length, 0);
	if (!chunk)
		return -1;
	sgp_sgl_gather(wr->sgl, sgp_chunk_addr(chunk));
	ret = sgp_sgl_append(&copy, chunk, 0, wr->sgl->length);
	of_copy.sgl = &copy;
	of_copy.flags |= SGP_BATCH; /* its SGE has to outlast this function */
	if (!ret)
		ret = sgp_gather(ep, &of_copy);
	if (ret) {
		sgp_chunk_put(chunk);
		return -1;
	}
	sgp_side_slot(&ep->send, ep->send.head - 1)->flags |= SGP_SLOT_COPIED;
	ep->stats.linearised++;
	return 0;
}

/* The queue's room, the last that can be lacking. */
static inline int begin_connected(struct sgp_ep *ep, uint32_t parts)
{
	struct sgp_side *side = &ep->send;

	if (!SGP_LIKELY(sgp_side_has_room(side, parts)))
		return sgp_fail(EAGAIN, "the send queue (%u) is full: poll, then try again",
				side->depth);
	if (!ep->nwr)
		ep->doorbell_seq = side->head;
	return 0;
}

int sgp_begin(struct sgp_ep *ep, uint32_t parts)
{
	if (!sgp_ep_was_connected(ep) && sgp_check_connected(ep))
		return -1;
	return begin_connected(ep, parts);
}

void sgp_ep_find_plain(struct sgp_ep *ep)
{
	bool special = ep->sig_all || ep->iwarp || ep->type == IBV_QPT_UD ||
		       ep->max_msg <= ep->auto_inline;

	ep->plain = 0;
	ep->plain_least = ep->auto_inline + UINT64_C(1);
	ep->plain_span = ep->max_msg - ep->plain_least;
	for (unsigned int i = 0; i < sizeof ops / sizeof *ops && !special; i++)
		if (ops[i].kind & SGP_KIND_KNOWN && !(ops[i].kind & (SGP_KIND_SINK | ep->lacks)))
			ep->plain |= 1u << i;
}

/*
 * A plain operation: one work request, from memory that stands, nothing comes back, and there is
 * nothing to refuse but for the room.
 */
static inline bool is_plain(const struct sgp_ep *ep, const struct sgp_wr *wr)
{
	const struct sgp_sgl *sgl = wr->sgl;

	_Static_assert(sizeof ops / sizeof *ops <= 32, "a bit each");
	return SGP_LIKELY((unsigned int)wr->opcode < 32) &&
	       SGP_LIKELY(atomic_load_explicit(&ep->plain, memory_order_relaxed) >> wr->opcode &
			  1) &&
	       SGP_LIKELY(!(wr->flags & ~(IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED |
					  SGP_BATCH))) &&
	       SGP_LIKELY(!wr->ah) && SGP_LIKELY(sgl != NULL) && SGP_LIKELY(!sgl->flags) &&
	       SGP_LIKELY(sgl->keys & ep->pd_bit) &&
	       SGP_LIKELY(sgl->length - ep->plain_least <= ep->plain_span) &&
	       SGP_LIKELY(sgl->num_sge <= ep->send.max_sge) &&
	       SGP_LIKELY(sgl->num_chunk <= ep->send.max_chunk) &&
	       SGP_LIKELY(sgp_ep_life(ep) == SGP_EP_CONNECTED);
}

/* Gather what planning is needed for. */
static int gather_planned(struct sgp_ep *ep, const struct sgp_wr *wr, unsigned int kind)
{
	struct sgp_side *side = &ep->send;
	struct sgp_slot *slot;
	struct sgp_plan plan;

	if (sgp_plan(ep, wr, kind, &plan))
		return -1;
	if (plan.linearise)
		return gather_copy(ep, wr);
	if (!plan.goes_inline && count_parts(ep, wr->sgl, &plan))
		return -1;
	if (sgp_begin(ep, plan.parts))
		return -1;
	if (plan.parts > 1) {
		add_parts(ep, wr, &plan);
		return 0;
	}
	if (plan.flags & SGP_SLOT_WANTED || plan.own_signal || must_signal(side))
		plan.flags |= SGP_SLOT_SIGNALLED;
	slot = sgp_fill_slot(side, wr->context, ops[wr->opcode].completes_as, plan.flags);
	if (plan.goes_inline)
		add_inline(ep, wr, slot);
	else
		add_request(ep, wr, slot,
			    fill_whole(slot, wr->sgl, slot->flags, wr->flags & SGP_BATCH),
			    wr->sgl->num_sge, 0, 0);
	return 0;
}

/*
 * The long way: what has to be looked at more closely, or refused. Where pools are checked it's
 * everybody's: see sgp_post().
 */
static __attribute__((noinline)) int gather_special(struct sgp_ep *ep, const struct sgp_wr *wr)
{
	uint32_t first = ep->send.head;
	unsigned int kind = 0;
	bool sink;

	sgp_served_hold(); /* inline posts and copies drop chunks */
	if (!wr->sgl || wr->flags & ~(VERBS_FLAGS | OUR_FLAGS))
		return sgp_fail(EINVAL, "post: a list and known flags are needed");
	if ((unsigned int)wr->opcode < sizeof ops / sizeof *ops)
		kind = ops[wr->opcode].kind;
	if (!(kind & SGP_KIND_KNOWN) || kind & ep->lacks ||
	    (wr->ah != NULL) != (ep->type == IBV_QPT_UD))
		return sgp_refuse_operation(ep, wr, kind);
	if (sgp_check_list(ep, wr->sgl))
		return -1;
	sink = kind & SGP_KIND_SINK;
	if (sgp_mode_is_ordinary())
		return gather_planned(ep, wr, kind);
	if (sgp_check_post(wr->sgl, sink) || gather_planned(ep, wr, kind))
		return -1;
	sgp_check_posted(&ep->send, first, wr->sgl, sink);
	return 0;
}

/* One that is plain, and has room. */
static inline __attribute__((always_inline)) void
fill_plain(struct sgp_ep *ep, const struct sgp_wr *wr, struct ibv_send_wr *to, bool later)
{
	struct sgp_side *side = &ep->send;
	unsigned int signal = IBV_SEND_SIGNALED;
	struct sgp_slot *slot;
	struct ibv_sge *sge;
	uint8_t flags;

	if (SGP_LIKELY(wr->flags & IBV_SEND_SIGNALED)) {
		flags = SGP_SLOT_WANTED | SGP_SLOT_SIGNALLED;
		side->unsignalled = 0;
	} else {
		flags = must_signal(side) ? SGP_SLOT_SIGNALLED : 0;
		signal = signal_flag(ep, flags);
	}
	slot = sgp_fill_slot(side, wr->context, ops[wr->opcode].completes_as, flags);
	sge = fill_whole(slot, wr->sgl, 0, later);
	fill_request(ep, wr, to, slot, sge, wr->sgl->num_sge, signal, 0);
}

int sgp_gather(struct sgp_ep *ep, const struct sgp_wr *wr)
{
	if (!is_plain(ep, wr))
		return gather_special(ep, wr);
	if (begin_connected(ep, 1))
		return -1;
	ep->stats.wrs++;
	fill_plain(ep, wr, next_request(ep), wr->flags & SGP_BATCH);
	return 0;
}

bool sgp_is_plain(struct sgp_ep *ep, const struct sgp_wr *wr)
{
	return is_plain(ep, wr) && SGP_LIKELY(sgp_side_has_room(&ep->send, 1));
}

void sgp_fill_alone(struct sgp_ep *ep, const struct sgp_wr *wr)
{
	fill_plain(ep, wr, ep->wr, false);
}

void sgp_gather_plain(struct sgp_ep *ep, const struct sgp_wr *wr)
{
	if (!ep->nwr)
		ep->doorbell_seq = ep->send.head;
	fill_plain(ep, wr, next_request(ep), true);
}
