/* SPDX-License-Identifier: BSD-2-Clause */
/* The shared receive queue's slots and seats, and what is lost. See srq.h. */
#include <errno.h>
#include <stdlib.h>

#include "pool/errmsg.h"
#include "post/checked.h"
#include "post/refill.h"
#include "post/srq.h"

/* ---- slots ---- */

static uint32_t number_of(const struct sgp_srq *srq, const struct sgp_slot *slot)
{
	return (uint32_t)(slot - srq->side.slot);
}

uint32_t sgp_srq_missing_locked(struct sgp_srq *srq)
{
	uint32_t wanted = srq->depth + srq->lost - srq->written_off;
	uint32_t n = wanted > srq->outstanding ? wanted - srq->outstanding : 0;

	return n < srq->nfree ? n : srq->nfree;
}

struct sgp_slot *sgp_srq_next_locked(struct sgp_srq *srq)
{
	return &srq->side.slot[srq->free[srq->nfree - 1]];
}

uint64_t sgp_srq_offer_locked(struct sgp_srq *srq, struct sgp_slot *slot)
{
	struct sgp_srq_use *use = &srq->use[number_of(srq, slot)];
	uint64_t wr_id;

	srq->nfree--;
	srq->outstanding++;
	srq->recvs++;
	use->seq += srq->side.mask + 1;
	use->order = ++srq->posted;
	slot->flags |= SGP_SLOT_SHARED;
	wr_id = srq->side.wr_base | use->seq;
	atomic_store_explicit(&slot->tag, wr_id, memory_order_release);
	return wr_id;
}

/* Where it was taken from the stack, it still stands. */
struct sgp_slot *sgp_srq_offered_locked(struct sgp_srq *srq, uint32_t n)
{
	return &srq->side.slot[srq->free[srq->nfree + n]];
}

void sgp_srq_withdraw_locked(struct sgp_srq *srq, uint32_t n)
{
	for (; n; n--) {
		struct sgp_slot *slot = sgp_srq_offered_locked(srq, 0);

		atomic_store_explicit(&slot->tag, 0, memory_order_relaxed);
		srq->nfree++;
		srq->outstanding--;
		srq->posted--;
		srq->recvs--;
		srq->refused++;
	}
}

bool sgp_srq_gave_up_locked(struct sgp_srq *srq)
{
	if (srq->written_off == srq->lost)
		return false;
	srq->written_off = srq->lost;
	return true;
}

void sgp_srq_rearm_locked(struct sgp_srq *srq)
{
	struct ibv_srq_attr attr = {.srq_limit = srq->limit};

	if (srq->armed || !srq->limit || srq->outstanding - srq->lost <= srq->limit)
		return;
	srq->armed = !ibv_modify_srq(srq->srq, &attr, IBV_SRQ_LIMIT);
}

static void free_slot(struct sgp_srq *srq, struct sgp_slot *slot)
{
	sgp_slot_free(slot);
	srq->free[srq->nfree++] = number_of(srq, slot);
	srq->outstanding--;
}

void sgp_srq_free_locked(struct sgp_srq *srq, struct sgp_slot *slot)
{
	sgp_lock(&srq->side.lock);
	free_slot(srq, slot);
	sgp_unlock(&srq->side.lock);
}

static struct sgp_seat *seat_of_wr(struct sgp_cq *cq, uint64_t wr_id)
{
	uint32_t index = (uint32_t)(wr_id >> 32) & 0xffff;
	struct sgp_seat *seat = cq->seats;

	while (seat && !(seat->srq && seat->srq->index == index))
		seat = seat->next_on_cq;
	return seat;
}

__attribute__((noinline)) struct sgp_slot *
sgp_srq_claim_locked(struct sgp_cq *cq, uint64_t wr_id, uint32_t qp_num, struct sgp_ep **which)
{
	struct sgp_seat *seat = seat_of_wr(cq, wr_id);
	struct sgp_srq *srq = seat ? seat->srq : NULL;
	struct sgp_ep *ep = cq->by_qpn[qp_num % SGP_QPN_BUCKETS];
	struct sgp_slot *slot;
	struct sgp_srq_use *use;

	if (!srq)
		return NULL;
	while (ep && (ep->qpn != qp_num || ep->srq != srq))
		ep = ep->next_qpn;
	sgp_lock(&srq->side.lock);
	slot = sgp_side_find(&srq->side, wr_id);
	if (!slot || slot->ended) {
		sgp_unlock(&srq->side.lock);
		return NULL;
	}
	slot->ended = true;
	use = &srq->use[number_of(srq, slot)];
	if (use->order > srq->newest_done)
		srq->newest_done = use->order;
	if (use->lost) { /* it wasn't */
		use->lost = false;
		srq->lost--;
		if (srq->written_off > srq->lost)
			srq->written_off = srq->lost;
	}
	if (!ep) {
		srq->orphans++;
		sgp_slot_drop_receive(slot);
		free_slot(srq, slot);
	}
	sgp_unlock(&srq->side.lock);
	if (!ep) {
		sgp_seat_list_locked(cq, seat);
		return NULL;
	}
	slot->ep = *which = ep;
	if (ep->recv_context)
		slot->context = ep->recv_context;
	return slot;
}

void sgp_srq_rouse(struct sgp_srq *srq)
{
	pthread_mutex_lock(&srq->seats_lock);
	for (struct sgp_seat *seat = srq->seats; seat; seat = seat->next_of_srq)
		sgp_seat_rouse(seat);
	pthread_mutex_unlock(&srq->seats_lock);
}

/* ---- endpoints ---- */

static struct sgp_seat *add_seat_locked(struct sgp_srq *srq, struct sgp_cq *cq)
{
	struct sgp_seat *seat = calloc(1, sizeof *seat);

	if (!seat)
		return sgp_fail_null(ENOMEM, "no memory for a shared receive queue's seat");
	if (sgp_cq_reserve_locked(cq, srq->depth)) {
		free(seat);
		return NULL;
	}
	seat->cq = cq;
	seat->refill = srq->refill;
	seat->srq = srq;
	seat->room = srq->depth;
	seat->next_on_cq = cq->seats;
	cq->seats = seat;
	pthread_mutex_lock(&srq->seats_lock);
	seat->next_of_srq = srq->seats;
	srq->seats = seat;
	pthread_mutex_unlock(&srq->seats_lock);
	return seat;
}

int sgp_srq_join(struct sgp_srq *srq, struct sgp_ep *ep)
{
	struct sgp_cq *cq = ep->cq;
	struct sgp_seat *seat;

	if (srq->single_threaded != cq->single_threaded)
		return sgp_fail(EINVAL, "endpoint: a shared receive queue that its caller "
					"serialises goes with completion queues that are so too, "
					"and only with these");
	sgp_lock(&cq->lock);
	seat = cq->seats;
	while (seat && seat->srq != srq)
		seat = seat->next_on_cq;
	if (!seat)
		seat = add_seat_locked(srq, cq);
	if (seat) {
		seat->users++;
		pthread_mutex_lock(&srq->seats_lock);
		srq->users++;
		pthread_mutex_unlock(&srq->seats_lock);
		ep->srq = srq;
		ep->seat = seat;
		ep->in = &srq->side;
	}
	sgp_unlock(&cq->lock);
	return seat ? 0 : -1;
}

void sgp_srq_leave(struct sgp_ep *ep)
{
	struct sgp_srq *srq = ep->srq;
	struct sgp_seat *seat = ep->seat, **at;
	struct sgp_cq *cq = ep->cq;

	sgp_lock(&cq->lock);
	pthread_mutex_lock(&srq->seats_lock);
	srq->users--;
	if (!--seat->users) {
		for (at = &srq->seats; *at != seat; at = &(*at)->next_of_srq)
			;
		*at = seat->next_of_srq;
	}
	pthread_mutex_unlock(&srq->seats_lock);
	if (!seat->users) {
		sgp_seat_forget_locked(cq, seat);
		seat->srq = NULL;
		seat->refill = NULL;
		cq->nleft++;
	}
	sgp_unlock(&cq->lock);
	ep->srq = NULL;
	ep->seat = NULL;
}

void sgp_srq_query(struct sgp_srq *srq, struct sgp_ep_info *info)
{
	uint32_t missing;

	sgp_lock(&srq->side.lock);
	missing = sgp_srq_missing_locked(srq);
	info->recv_posted = (int)(srq->outstanding - srq->lost);
	sgp_unlock(&srq->side.lock);
	info->recv_missing = srq->refill ? (int)missing : 0;
	info->recv_room = srq->refill ? 0 : (int)missing;
}

void sgp_srq_qp_made(struct sgp_ep *ep)
{
	struct sgp_srq *srq = ep->srq;
	struct sgp_cq *cq = ep->cq;
	struct sgp_ep **bucket;

	ep->qpn = ep->qp->qp_num;
	bucket = &cq->by_qpn[ep->qpn % SGP_QPN_BUCKETS];
	sgp_lock(&cq->lock);
	ep->next_qpn = *bucket;
	*bucket = ep;
	sgp_lock(&srq->side.lock);
	ep->joined_at = srq->newest_done;
	ep->next_on_srq = srq->eps;
	srq->eps = ep;
	sgp_unlock(&srq->side.lock);
	sgp_unlock(&cq->lock);
}

/* What the endpoints that are left can't have taken and has been taken is lost. */
static void find_lost(struct sgp_srq *srq)
{
	uint64_t before = srq->newest_done;

	for (const struct sgp_ep *ep = srq->eps; ep; ep = ep->next_on_srq)
		before = ep->joined_at < before ? ep->joined_at : before;
	for (uint32_t i = 0; i <= srq->side.mask; i++) {
		struct sgp_slot *slot = &srq->side.slot[i];
		struct sgp_srq_use *use = &srq->use[i];

		if (!atomic_load_explicit(&slot->tag, memory_order_relaxed) || slot->ended ||
		    use->lost || use->order >= before)
			continue;
		use->lost = true;
		srq->lost++;
	}
}

void sgp_srq_qp_gone_locked(struct sgp_ep *ep)
{
	struct sgp_srq *srq = ep->srq;
	struct sgp_ep **at = &ep->cq->by_qpn[ep->qpn % SGP_QPN_BUCKETS];

	while (*at != ep)
		at = &(*at)->next_qpn;
	*at = ep->next_qpn;
	sgp_lock(&srq->side.lock);
	for (at = &srq->eps; *at != ep; at = &(*at)->next_on_srq)
		;
	*at = ep->next_on_srq;
	find_lost(srq);
	sgp_unlock(&srq->side.lock);
	sgp_seat_list_locked(ep->cq, ep->seat);
	sgp_cq_refill_locked(ep->cq);
}

void sgp_srq_qp_reset_locked(struct sgp_ep *ep)
{
	struct sgp_srq *srq = ep->srq;

	sgp_lock(&srq->side.lock);
	ep->joined_at = srq->newest_done;
	find_lost(srq);
	sgp_unlock(&srq->side.lock);
	sgp_seat_list_locked(ep->cq, ep->seat);
	sgp_cq_refill_locked(ep->cq);
}
