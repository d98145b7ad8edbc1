/* SPDX-License-Identifier: BSD-2-Clause */
/* A receive from the pools to the device, by whoever has the lock or a chunk. See refill.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pool/chunk.h"
#include "pool/errmsg.h"
#include "pool/pool.h"
#include "pool/probe.h"
#include "pool/served.h"
#include "post/checked.h"
#include "post/ep.h"
#include "post/plan.h"
#include "post/refill.h"
#include "post/sgl.h"
#include "post/srq.h"
#include "post/wr.h"

void sgp_refill_drop_held(struct sgp_refill *r)
{
	for (int i = 0; i < r->nheld; i++)
		sgp_chunk_put_bulk(r->held + r->need[i].first, (size_t)r->need[i].n);
	r->nheld = 0;
}

/* ---- from the pools ---- */

/* Chunks for k receives, all or none, to bulk[]: the chunks of one after those of another. */
static bool take_bulk(struct sgp_refill *r, uint32_t k)
{
	for (int i = 0; i < r->nneeds; i++) {
		const struct sgp_need *need = &r->need[i];
		struct sgp_chunk **to = r->nneeds == 1 ? r->bulk : r->scratch;
		size_t n = (size_t)need->n;

		if (sgp_pool_get_bulk(need->pool, need->size, SGP_GET_RESERVED, to, k * n)) {
			for (uint32_t j = 0; j < k && i; j++)
				sgp_chunk_put_bulk(r->bulk + j * (size_t)r->nchunks,
						   (size_t)need->first);
			return false;
		}
		for (uint32_t j = 0; j < k && r->nneeds > 1; j++)
			memcpy(r->bulk + j * (size_t)r->nchunks + need->first, to + j * n,
			       n * sizeof(struct sgp_chunk *));
	}
	return true;
}

/* Chunks for one receive, to[]; false when they are waited for, or with *err. */
static bool take_one(struct sgp_refill *r, struct sgp_chunk **to, int *err)
{
	for (; r->nheld < r->nneeds; r->nheld++) {
		const struct sgp_need *need = &r->need[r->nheld];
		int ret;

		r->waiter.chunks = r->held + need->first;
		r->waiter.n = (size_t)need->n;
		/* Before ready() can be called. */
		atomic_store(&r->state, SGP_REFILL_WAITING);
		atomic_fetch_add(&r->busy, 1);
		ret = sgp_waiter_start(&r->waiter, need->pool, need->size, SGP_GET_RESERVED);
		if (!ret) {
			r->dry++;
			*err = ENOBUFS;
			SGP_PROBE3(dry, r, need->size, need->n);
			return false;
		}
		*err = ret < 0 ? errno : 0;
		atomic_store(&r->state, SGP_REFILL_IDLE);
		atomic_fetch_sub(&r->busy, 1);
		if (ret < 0)
			return false;
	}
	memcpy(to, r->held, (size_t)r->nchunks * sizeof(struct sgp_chunk *));
	r->nheld = 0;
	return true;
}

/* Chunks for up to k receives, to bulk[]. */
static uint32_t take(struct sgp_refill *r, uint32_t k, int *err)
{
	uint32_t n = 0;

	if (k > 1 && !r->nheld && take_bulk(r, k))
		return k;
	while (n < k && take_one(r, r->bulk + n * (size_t)r->nchunks, err))
		n++;
	return n;
}

/* ---- to the device ---- */

/* The next free slot, filled with these chunks and offered; *wr is its request. */
static void offer(struct sgp_refill *r, struct sgp_chunk *const *chunk, struct ibv_recv_wr *wr)
{
	struct sgp_slot *slot =
		r->srq ? sgp_srq_next_locked(r->srq) : sgp_side_slot(r->side, r->side->head);

	sgp_init_slot(slot, r->context, IBV_WC_RECV,
		      SGP_SLOT_WANTED | SGP_SLOT_SIGNALLED | SGP_SLOT_HANDOVER);
	slot->pds = UINT64_MAX;
	slot->access = UINT32_MAX;
	slot->num_chunk = slot->num_sge = (uint16_t)r->nchunks;
	for (int i = 0; i < r->nchunks; i++) {
		const struct sgp_portion *portion = &r->portion[i];
		struct sgp_chunk *c = chunk[portion->chunk];

		slot->chunk[i] = c;
		slot->sge[i] = (struct ibv_sge){.addr = (uintptr_t)c->addr + portion->offset,
						.length = portion->size,
						.lkey = sgp_chunk_lkey_on(c, r->pd_index)};
		slot->pds &= sgp_chunk_pds(c);
		slot->access &= sgp_chunk_access(c);
	}
	if (!sgp_mode_is_ordinary())
		sgp_check_received_into(slot);
	*wr = (struct ibv_recv_wr){.wr_id = r->srq ? sgp_srq_offer_locked(r->srq, slot)
						   : sgp_side_offer(r->side, slot),
				   .sg_list = slot->sge,
				   .num_sge = r->nchunks,
				   .next = wr + 1};
}

/* Whether the device may write into the chunks of a receive: else what to say. */
static int check_chunks(const struct sgp_refill *r, struct sgp_chunk *const *chunk)
{
	for (int i = 0; i < r->nchunks; i++) {
		if (!sgp_chunk_is_on(chunk[i], r->pd_index))
			return EXDEV;
		if (!(sgp_chunk_access(chunk[i]) & IBV_ACCESS_LOCAL_WRITE))
			return EACCES;
	}
	return 0;
}

/* The last n receives offered are not the device's. */
static void withdraw(struct sgp_refill *r, struct sgp_chunk *const *chunk, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		sgp_check_ended(r->srq ? sgp_srq_offered_locked(r->srq, i)
				       : sgp_side_slot(r->side, r->side->head - 1 - i));
	if (r->srq)
		sgp_srq_withdraw_locked(r->srq, n);
	else
		sgp_side_withdraw(r->side, r->side->head - n);
	r->refused += n;
	sgp_chunk_put_bulk(chunk, n * (size_t)r->nchunks);
}

/* Post k receives of the chunks in bulk[], as one chain. Returns 0, or an errno. */
static int post(struct sgp_refill *r, uint32_t k)
{
	struct ibv_recv_wr wr[SGP_REFILL_CHAIN], *bad_wr = NULL;
	uint32_t taken = k;
	void *untaken;
	int ret, err = 0;

	for (uint32_t i = 0; i < k && !err; i++)
		err = check_chunks(r, r->bulk + i * (size_t)r->nchunks);
	for (uint32_t i = 0; i < k; i++)
		offer(r, r->bulk + i * (size_t)r->nchunks, &wr[i]);
	wr[k - 1].next = NULL;
	if (err) {
		withdraw(r, r->bulk, k);
		return err;
	}
	errno = 0;
	ret = r->srq ? ibv_post_srq_recv(r->srq->srq, wr, &bad_wr)
		     : ibv_post_recv(r->ep->qp, wr, &bad_wr);
	r->chains++;
	err = sgp_wr_judge(ret, bad_wr, &untaken);
	/* All queued, though only with an error: nobody but us has made this post, and a receive
	 * that succeeds then has succeeded. */
	if (untaken)
		taken = (uint32_t)((struct ibv_recv_wr *)untaken - wr);
	else
		err = 0;
	r->posted += taken;
	SGP_PROBE3(refill, r, taken, k);
	if (taken < k)
		withdraw(r, r->bulk + taken * (size_t)r->nchunks, k - taken);
	return err;
}

static uint32_t missing(struct sgp_refill *r)
{
	return r->srq ? sgp_srq_missing_locked(r->srq) : sgp_side_room(r->side);
}

static bool is_over(const struct sgp_refill *r)
{
	return r->stopped || (r->ep && sgp_ep_is_stopped(r->ep));
}

bool sgp_refill_locked(struct sgp_refill *r, int *err)
{
	uint32_t n;
	int ignored;

	err = err ? err : &ignored;
	*err = 0;
	switch (atomic_load(&r->state)) { /* once: a put may be changing it */
	case SGP_REFILL_WAITING:
		return false;
	case SGP_REFILL_SERVED:
		r->nheld++;
		atomic_store(&r->state, SGP_REFILL_IDLE);
		break;
	default:
		break;
	}
	if (is_over(r)) {
		sgp_refill_drop_held(r);
		return false;
	}
	while ((n = missing(r)) > 0) {
		n = take(r, n < SGP_REFILL_CHAIN ? n : SGP_REFILL_CHAIN, err);
		if (n) {
			int refused = post(r, n);

			if (refused && r->srq && sgp_srq_gave_up_locked(r->srq))
				refused = 0;
			if (refused) {
				*err = refused;
				return true;
			}
		}
		if (*err)
			break;
	}
	if (r->srq)
		sgp_srq_rearm_locked(r->srq);
	/* Waiting, somebody will call; after another error nobody will. */
	return *err && atomic_load(&r->state) == SGP_REFILL_IDLE;
}

/* ---- served by a put ---- */

/* Let the poller go on. */
static void rouse(struct sgp_refill *r)
{
	if (r->srq)
		sgp_srq_rouse(r->srq);
	else
		sgp_seat_rouse(&r->ep->own_seat);
}

/*
 * Called by the thread that put the last chunk, with no lock held. On a queue that its caller
 * serialises nothing may be touched but the state.
 */
void sgp_refill_ready(struct sgp_waiter *waiter)
{
	struct sgp_refill *r =
		(struct sgp_refill *)((char *)waiter - offsetof(struct sgp_refill, waiter));
	struct sgp_lock *lock = &r->side->lock;
	bool again = true;
	int err = errno;

	atomic_store(&r->state, SGP_REFILL_SERVED);
	if (sgp_trylock(lock)) {
		uint64_t before = r->posted;

		sgp_served_hold();
		again = sgp_refill_locked(r, NULL);
		r->by_put += r->posted - before;
		sgp_unlock(lock);
	}
	if (again)
		rouse(r);
	atomic_fetch_sub(&r->busy, 1); /* from here on it may be freed */
	sgp_served_release();
	errno = err;
}

void sgp_refill_stop(struct sgp_refill *r)
{
	static const struct timespec nap = {.tv_nsec = 20000};
	struct sgp_lock *lock = &r->side->lock;

	sgp_lock(lock);
	r->stopped = true;
	sgp_unlock(lock);
	if (sgp_waiter_cancel(&r->waiter)) {
		atomic_store(&r->state, SGP_REFILL_IDLE);
		atomic_fetch_sub(&r->busy, 1);
	}
	while (atomic_load(&r->busy)) {
		sgp_served_run_kept(); /* it may be this thread's */
		nanosleep(&nap, NULL);
	}
	sgp_served_hold();
	sgp_lock(lock);
	(void)sgp_refill_locked(r, NULL);
	sgp_unlock(lock);
	sgp_served_release();
}

int sgp_refill_now(struct sgp_refill *r)
{
	struct sgp_lock *lock = &r->side->lock;
	bool again, over;
	uint32_t n;
	int err;

	sgp_served_hold();
	sgp_lock(lock);
	again = sgp_refill_locked(r, &err);
	over = is_over(r);
	n = missing(r);
	sgp_unlock(lock);
	if (again)
		rouse(r);
	sgp_served_release();
	if (!n)
		return 0;
	if (over)
		return sgp_fail(ESHUTDOWN, "receives: the endpoint is closing, or in error");
	if (!err || err == ENOBUFS)
		return sgp_fail(ENOBUFS, "%u receives are missing: a pool has too few free chunks",
				n);
	return sgp_fail(err, "%u receives are missing: %s", n,
			err == EXDEV ? "a pool of recv is not registered on the endpoint's "
				       "protection domain (sgp_pool_add_pd)"
				     : strerror(err));
}

void sgp_refill_resume(struct sgp_refill *r)
{
	sgp_lock(&r->side->lock);
	r->stopped = false;
	sgp_unlock(&r->side->lock);
	(void)sgp_refill_now(r);
}

/* ---- after a reset ---- */

int sgp_recv_again_locked(struct sgp_ep *ep)
{
	struct ibv_recv_wr wr[SGP_REFILL_CHAIN], *bad_wr;
	struct sgp_side *side = &ep->recv;
	uint32_t seq = side->tail;

	while (seq != side->head) {
		uint32_t k = 0;
		void *untaken;
		int ret;

		for (; seq != side->head && k < SGP_REFILL_CHAIN; seq++) {
			struct sgp_slot *slot = sgp_side_slot(side, seq);

			/* Free, or it has its end already. */
			if (!atomic_load_explicit(&slot->tag, memory_order_acquire) || slot->ended)
				continue;
			wr[k] = (struct ibv_recv_wr){.wr_id = side->wr_base | seq,
						     .sg_list = slot->sge,
						     .num_sge = slot->num_sge,
						     .next = &wr[k + 1]};
			atomic_store_explicit(&slot->tag, wr[k].wr_id, memory_order_release);
			k++;
		}
		if (!k)
			break;
		wr[k - 1].next = NULL;
		bad_wr = NULL;
		errno = 0;
		ret = sgp_wr_judge(ibv_post_recv(ep->qp, wr, &bad_wr), bad_wr, &untaken);
		if (untaken)
			return ret;
	}
	return 0;
}
