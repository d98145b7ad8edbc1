/* SPDX-License-Identifier: BSD-2-Clause */
/* The shared receive queue's life and public calls. What pollers and posters do is in srq.c. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pool/chunk.h"
#include "pool/errmsg.h"
#include "pool/mode.h"
#include "pool/served.h"
#include "post/checked.h"
#include "post/plan.h"
#include "post/refill.h"
#include "post/sgl.h"
#include "post/srq.h"
#include "post/wr.h"

/* ---- the process's numbers of queues ---- */

static pthread_mutex_t numbers_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	bool used;
	uint32_t seq; /* where the sequences of the next queue of this number start */
} numbers[SGP_MAX_SRQS];

static int take_number(struct sgp_srq *srq)
{
	uint32_t slots = srq->side.mask + 1, i, seq;

	pthread_mutex_lock(&numbers_lock);
	for (i = 0; i < SGP_MAX_SRQS && numbers[i].used; i++)
		;
	if (i < SGP_MAX_SRQS)
		numbers[i].used = true;
	seq = i < SGP_MAX_SRQS ? numbers[i].seq : 0;
	pthread_mutex_unlock(&numbers_lock);
	if (i == SGP_MAX_SRQS)
		return sgp_fail(ENOSPC, "%d shared receive queues are in use", SGP_MAX_SRQS);
	srq->index = i;
	srq->side.wr_base = SGP_WR_RECV | (uint64_t)SGP_SRQ_GENERATION << 48 | (uint64_t)i << 32;
	seq = (seq + slots) & ~srq->side.mask;
	for (uint32_t slot = 0; slot < slots; slot++)
		srq->use[slot].seq = seq | slot;
	return 0;
}

static void give_number(struct sgp_srq *srq)
{
	uint32_t from = numbers[srq->index].seq, most = 0;

	for (uint32_t slot = 0; slot <= srq->side.mask; slot++)
		if (srq->use[slot].seq - from > most)
			most = srq->use[slot].seq - from;
	pthread_mutex_lock(&numbers_lock);
	numbers[srq->index].seq = from + most + 1;
	numbers[srq->index].used = false;
	pthread_mutex_unlock(&numbers_lock);
}

/* ---- making and ending one ---- */

static int check_attr(const struct sgp_srq_attr *attr, struct ibv_device_attr *dev)
{
	int err;

	if (!attr || attr->comp_mask || attr->flags & ~SGP_SRQ_SINGLE_THREADED || !attr->pd ||
	    !attr->depth || attr->num_recv < 0 || (attr->num_recv && !attr->recv) ||
	    attr->max_sge < 0 || attr->max_chunk < 0 || attr->max_chunk > UINT16_MAX)
		return sgp_fail(EINVAL, "shared receive queue: a protection domain, a depth and "
					"known flags are needed");
	if (attr->limit > attr->depth)
		return sgp_fail(EINVAL, "shared receive queue: a limit above its depth");
	errno = 0;
	err = sgp_provider_errno(ibv_query_device(attr->pd->context, dev));
	if (err)
		return sgp_fail(err, "shared receive queue: the device does not answer: %s",
				strerror(err));
	if (attr->depth > SGP_MAX_DEPTH / 2 || attr->depth > (uint32_t)dev->max_srq_wr)
		return sgp_fail(E2BIG, "shared receive queue: of at most %d, the device has %d",
				SGP_MAX_DEPTH / 2, dev->max_srq_wr);
	return 0;
}

static void free_slots(struct sgp_srq *srq)
{
	free(srq->free);
	free(srq->use);
	sgp_side_fini(&srq->side);
}

static int make_slots(struct sgp_srq *srq, int max_sge, int max_chunk)
{
	uint32_t slots;

	/* As many again for what is lost. */
	if (sgp_side_init(&srq->side, 2 * srq->depth, max_sge, max_chunk, srq->single_threaded))
		return -1;
	srq->side.pd_bit = sgp_pd_bit(srq->pd_index);
	slots = srq->side.mask + 1;
	srq->use = calloc(slots, sizeof *srq->use);
	srq->free = calloc(slots, sizeof *srq->free);
	if (!srq->use || !srq->free) {
		sgp_set_error(ENOMEM, "no memory for a shared receive queue of %u", srq->depth);
		goto fail;
	}
	for (uint32_t i = 0; i < slots; i++)
		srq->free[srq->nfree++] = slots - 1 - i;
	if (!take_number(srq))
		return 0;
fail:
	free_slots(srq);
	return -1;
}

static int make_srq(struct sgp_srq *srq, const struct sgp_srq_attr *attr, int max_sge)
{
	struct ibv_srq_init_attr init = {
		.srq_context = srq, .attr = {.max_wr = attr->depth, .max_sge = (uint32_t)max_sge}};

	errno = 0;
	srq->srq = ibv_create_srq(attr->pd, &init);
	if (srq->srq)
		return 0;
	return sgp_fail(errno > 0 ? errno : EIO, "no shared receive queue (%u deep, %d SGEs): %s",
			attr->depth, max_sge, strerror(errno));
}

/* What is posted goes back: the device has none of it any more. */
static void drop_posted(struct sgp_srq *srq)
{
	for (uint32_t i = 0; i <= srq->side.mask; i++) {
		struct sgp_slot *slot = &srq->side.slot[i];

		if (atomic_load(&slot->tag)) {
			sgp_slot_drop_receive(slot);
			sgp_slot_free(slot);
		}
	}
}

static void end_srq(struct sgp_srq *srq)
{
	int err = errno;

	drop_posted(srq);
	sgp_refill_free(srq->refill);
	give_number(srq);
	free_slots(srq);
	sgp_pd_release(srq->pd_index);
	pthread_mutex_destroy(&srq->seats_lock);
	free(srq);
	errno = err;
}

static int start(struct sgp_srq *srq)
{
	struct ibv_srq_attr limit = {.srq_limit = srq->limit};
	int err;

	if (srq->refill && sgp_srq_refill(srq))
		return -1;
	if (!srq->limit)
		return 0;
	errno = 0;
	err = sgp_provider_errno(ibv_modify_srq(srq->srq, &limit, IBV_SRQ_LIMIT));
	if (err)
		return sgp_fail(err, "shared receive queue: the limit: %s", strerror(err));
	srq->armed = true;
	return 0;
}

struct sgp_srq *sgp_srq_create(const struct sgp_srq_attr *attr)
{
	struct ibv_device_attr dev;
	struct sgp_srq *srq;
	int max_sge;

	if (sgp_check_fork())
		return NULL;
	if (check_attr(attr, &dev))
		return NULL;
	max_sge = attr->max_sge        ? attr->max_sge
		  : attr->num_recv > 0 ? sgp_refill_chunks(attr->recv, attr->num_recv)
				       : 1;
	if (max_sge < 0)
		return sgp_fail_null(EINVAL, "shared receive queue: a part has from 1 to %d chunks",
				     UINT16_MAX);
	if (max_sge > dev.max_srq_sge)
		return sgp_fail_null(E2BIG, "shared receive queue: the device takes %d SGEs",
				     dev.max_srq_sge);
	srq = calloc(1, sizeof *srq);
	if (!srq)
		return sgp_fail_null(ENOMEM, "no memory for a shared receive queue");
	srq->depth = attr->depth;
	srq->limit = attr->limit;
	srq->single_threaded = attr->flags & SGP_SRQ_SINGLE_THREADED;
	pthread_mutex_init(&srq->seats_lock, NULL);
	srq->pd_index = sgp_pd_acquire(attr->pd);
	if (srq->pd_index < 0)
		goto no_pd;
	if (make_slots(srq, max_sge, attr->max_chunk > max_sge ? attr->max_chunk : max_sge))
		goto no_slots;
	if (attr->num_recv) {
		srq->refill = sgp_refill_make(&srq->side, attr->recv, attr->num_recv, max_sge,
					      srq->pd_index, 0);
		if (!srq->refill)
			goto no_srq;
		srq->refill->srq = srq;
		srq->refill->context = attr->context;
	}
	if (make_srq(srq, attr, max_sge))
		goto no_srq;
	if (start(srq)) {
		int err = errno;

		if (srq->refill)
			sgp_refill_stop(srq->refill);
		(void)ibv_destroy_srq(srq->srq);
		errno = err;
		goto no_srq;
	}
	return srq;
no_srq:
	end_srq(srq);
	return NULL;
no_slots:
	sgp_pd_release(srq->pd_index);
no_pd:
	pthread_mutex_destroy(&srq->seats_lock);
	free(srq);
	return NULL;
}

int sgp_srq_destroy(struct sgp_srq *srq)
{
	unsigned int users;
	int err;

	if (sgp_check_fork())
		return -1;
	if (!srq)
		return sgp_fail(EINVAL, "no shared receive queue");
	pthread_mutex_lock(&srq->seats_lock);
	users = srq->users;
	pthread_mutex_unlock(&srq->seats_lock);
	if (users)
		return sgp_fail(EBUSY,
				"%u endpoints are on the shared receive queue: close and "
				"destroy them first",
				users);
	if (srq->refill)
		sgp_refill_stop(srq->refill);
	errno = 0;
	err = sgp_provider_errno(ibv_destroy_srq(srq->srq));
	if (err) {
		if (srq->refill)
			sgp_refill_resume(srq->refill);
		return sgp_fail(err, "ibv_destroy_srq: %s", strerror(err));
	}
	end_srq(srq);
	return 0;
}

struct ibv_srq *sgp_srq_ibv(const struct sgp_srq *srq)
{
	return srq ? srq->srq : NULL;
}

/* ---- while it stands ---- */

int sgp_srq_refill(struct sgp_srq *srq)
{
	if (sgp_check_fork())
		return -1;
	if (!srq || !srq->refill)
		return sgp_fail(EINVAL, "refill: a shared receive queue with receives of its own "
					"is needed");
	return sgp_refill_now(srq->refill);
}

int sgp_srq_event(struct sgp_srq *srq, const struct ibv_async_event *event)
{
	if (sgp_check_fork())
		return -1;
	if (!srq || !event)
		return sgp_fail(EINVAL, "event: a shared receive queue and an event are needed");
	if (event->event_type != IBV_EVENT_SRQ_LIMIT_REACHED || event->element.srq != srq->srq)
		return 0;
	sgp_served_hold();
	sgp_lock(&srq->side.lock);
	srq->limits++;
	srq->armed = false;
	if (srq->refill)
		(void)sgp_refill_locked(srq->refill, NULL);
	sgp_srq_rearm_locked(srq);
	sgp_unlock(&srq->side.lock);
	sgp_served_release();
	return 0;
}

int sgp_srq_stats(struct sgp_srq *srq, struct sgp_srq_stats *stats)
{
	const struct sgp_refill *r;

	if (sgp_check_fork())
		return -1;
	if (!srq || !stats)
		return sgp_fail(EINVAL, "statistics: a shared receive queue and room for them "
					"are needed");
	sgp_lock(&srq->side.lock);
	r = srq->refill;
	*stats = (struct sgp_srq_stats){
		.depth = srq->depth,
		.posted = srq->outstanding,
		.missing = sgp_srq_missing_locked(srq),
		.lost = srq->lost,
		.recvs = srq->recvs,
		.chains = r ? r->chains : srq->recvs,
		.dry = r ? r->dry : 0,
		.by_put = r ? r->by_put : 0,
		.refused = srq->refused,
		.limits = srq->limits,
		.orphans = srq->orphans,
	};
	sgp_unlock(&srq->side.lock);
	return 0;
}

/* What can be refused before the device is asked. The lock is held. */
static int check_post_locked(struct sgp_srq *srq, struct sgp_sgl *sgl)
{
	if (sgp_sgl_key(sgl, srq->pd_index, srq->side.pd_bit))
		return -1;
	if (!(sgl->access & IBV_ACCESS_LOCAL_WRITE))
		return sgp_fail(EACCES, "receive: into memory that is registered for reading only");
	if (sgl->num_sge > srq->side.max_sge || sgl->num_chunk > srq->side.max_chunk)
		return sgp_fail(E2BIG, "%d SGEs and %d holds: a receive takes %d and %d",
				sgl->num_sge, sgl->num_chunk, srq->side.max_sge,
				srq->side.max_chunk);
	if (!sgp_mode_is_ordinary() && sgp_check_post(sgl, true))
		return -1;
	if (!sgp_srq_missing_locked(srq))
		return sgp_fail(EAGAIN,
				"the shared receive queue (%u) is full: poll, then try "
				"again",
				srq->depth);
	return 0;
}

int sgp_srq_post_recvv(struct sgp_srq *srq, void *context, struct sgp_sgl *sgl)
{
	struct ibv_recv_wr wr, *bad_wr = NULL;
	struct sgp_slot *slot;
	void *untaken;
	int ret, err;

	if (sgp_check_fork())
		return -1;
	if (!srq || srq->refill || !sgl || !sgl->num_sge || sgl->flags & SGP_SGL_FOREIGN)
		return sgp_fail(EINVAL, "receive: a shared receive queue without receives of its "
					"own and a list of chunks are needed");
	sgp_lock(&srq->side.lock);
	if (check_post_locked(srq, sgl)) {
		sgp_unlock(&srq->side.lock);
		return -1;
	}
	slot = sgp_srq_next_locked(srq);
	sgp_init_slot(slot, context, IBV_WC_RECV,
		      SGP_SLOT_WANTED | SGP_SLOT_SIGNALLED | SGP_SLOT_HANDOVER);
	sgp_fill_holds(slot, sgl->chunk, sgl->num_chunk);
	sgp_fill_handover(slot, sgl);
	wr = (struct ibv_recv_wr){.wr_id = sgp_srq_offer_locked(srq, slot),
				  .sg_list = slot->sge,
				  .num_sge = slot->num_sge};
	if (!sgp_mode_is_ordinary())
		sgp_check_received_into(slot);
	errno = 0;
	ret = ibv_post_srq_recv(srq->srq, &wr, &bad_wr);
	err = sgp_wr_judge(ret, bad_wr, &untaken);
	if (untaken) {
		sgp_check_ended(slot);
		sgp_srq_withdraw_locked(srq, 1);
		sgp_slot_writes_no_more(slot);
		sgp_srq_gave_up_locked(srq);
	} else {
		/* Queued, though only with an error: held until its completion. */
		atomic_store_explicit(&slot->error, err, memory_order_relaxed);
		sgp_sgl_reset(sgl);
		sgp_srq_rearm_locked(srq);
	}
	sgp_unlock(&srq->side.lock);
	return untaken ? sgp_fail(err, "the device refused the receive: %s", strerror(err)) : 0;
}
