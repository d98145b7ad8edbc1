/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The posts. An operation is planned and gathered, the doorbell rings for all that are, and then
 * each list is settled: emptied, as the queue has it, or left alone.
 */
#include <errno.h>
#include <string.h>

#include "pool/errmsg.h"
#include "pool/mode.h"
#include "pool/probe.h"
#include "pool/served.h"
#include "post/datagram.h"
#include "post/checked.h"
#include "post/plan.h"
#include "post/sgl.h"
#include "post/wr.h"

static SGP_COLD void drop_copied(struct sgp_sgl *sgl)
{
	sgp_chunk_put_bulk(sgl->chunk, (size_t)sgl->num_chunk);
}

/* The queue has the list, which is empty now. */
static SGP_HOT void empty_list(struct sgp_ep *ep, struct sgp_sgl *sgl)
{
	if (sgl->num_chunk > sgl->num_sge)
		ep->stats.joined += (uint64_t)(sgl->num_chunk - sgl->num_sge);
	sgp_sgl_reset(sgl);
}

/* The same, counted, where its first slot is at seq. Returns the next seq. */
static SGP_HOT uint32_t settle_accepted(struct sgp_ep *ep, struct sgp_sgl *sgl, uint32_t seq)
{
	const struct sgp_slot *slot = sgp_side_slot(&ep->send, seq);

	if (slot->flags & SGP_SLOT_COPIED)
		drop_copied(sgl);
	ep->stats.posts++;
	empty_list(ep, sgl);
	return seq + slot->parts;
}

/* The queue does not have the slots from seq to end after all: copies go back, lists stay as they are. */
static SGP_COLD int settle_rejected(struct sgp_ep *ep, uint32_t seq, uint32_t end, int err)
{
	while (seq != end) {
		const struct sgp_slot *slot = sgp_side_slot(&ep->send, seq);

		for (uint32_t i = 0; i < slot->parts; i++)
			sgp_check_ended(sgp_side_slot(&ep->send, seq + i));
		if (slot->flags & SGP_SLOT_COPIED)
			sgp_chunk_put_bulk(slot->chunk, slot->num_chunk);
		for (uint32_t i = 0; i < slot->parts; i++)
			sgp_slot_writes_no_more(sgp_side_slot(&ep->send, seq + i));
		seq += slot->parts;
	}
	return sgp_fail(err, "the device refused the post: %s", strerror(err));
}

/*
 * Ring for what has been gathered from seq on, of n operations from wr on (more may be gathered that are
 * older), and settle each list. *posted: how many of the n the queue has.
 */
static int ring_and_settle(struct sgp_ep *ep, struct sgp_wr *wr, uint32_t n, uint32_t seq,
			   bool later, uint32_t *posted)
{
	const uint32_t gathered = ep->send.head;
	uint32_t withdrawn = gathered, i;
	int err = 0;

	if (later)
		ep->accepted = ep->nwr;
	else
		withdrawn = sgp_ep_ring_locked(ep, &err);
	for (i = 0; i < n && (int32_t)(withdrawn - seq) > 0; i++, wr = wr->next)
		seq = settle_accepted(ep, wr->sgl, seq);
	*posted = i;
	if (SGP_LIKELY(i == n))
		return 0; /* an error, if any, is told by the completions of what was accepted */
	return settle_rejected(ep, seq, gathered, err);
}

/* A chain of any operations. Returns 0, or -1 with errno; *posted: how many the queue has. */
static SGP_HOT int post_chain(struct sgp_ep *ep, struct sgp_wr *wr, uint32_t *posted)
{
	const uint32_t seq = ep->send.head;
	struct sgp_wr *at = wr;
	bool later = true; /* as long as every one says so */
	uint32_t n = 0;
	int ret, err = 0;

	do {
		ret = sgp_gather(ep, at);
		if (ret)
			break;
		later = later && at->flags & SGP_BATCH;
		at = at->next;
		n++;
	} while (at);
	*posted = n;
	if (ret) {
		err = errno;
		later = later && err != EAGAIN; /* room comes only from what the device has */
	}
	if (n || (err == EAGAIN && ep->nwr)) {
		if (ring_and_settle(ep, wr, n, seq, later, posted))
			return -1;
	}
	if (ret)
		errno = err;
	return ret;
}

/* A child is refused; where pools are checked, the endpoint takes the long way from here on. */
static SGP_COLD int leave_short_way(struct sgp_ep *ep)
{
	if (ep)
		atomic_store_explicit(&ep->plain, 0, memory_order_relaxed);
	return sgp_check_fork();
}

/* What a post left for later is seen to in time. */
static SGP_HOT void see_to_later(struct sgp_ep *ep)
{
	if (!ep->listed) {
		sgp_cq_list(ep->cq, ep);
		sgp_cq_rouse(ep->cq);
	}
}

/* The long way: any operations, where anything may be out of the ordinary. The lock is held, and let go. */
static __attribute__((noinline, flatten)) int post_locked(struct sgp_ep *ep, struct sgp_wr *wr,
							  struct sgp_wr **bad_wr)
{
	uint32_t posted = 0;
	int err = 0;

	if (post_chain(ep, wr, &posted))
		err = errno;
	if (ep->send.unsignalled || ep->nwr)
		see_to_later(ep);
	if (err)
		sgp_count_refusal(ep, err);
	sgp_unlock(&ep->send.lock);
	if (sgp_served.held) /* something may have been put: gather.c */
		sgp_served_release();
	if (!err)
		return 0;
	if (bad_wr) {
		for (; posted; posted--)
			wr = wr->next;
		*bad_wr = wr;
	}
	errno = err;
	return -1;
}

/* The same, where not even the arguments have been looked at. */
static __attribute__((noinline)) int post_any(struct sgp_ep *ep, struct sgp_wr *wr,
					      struct sgp_wr **bad_wr)
{
	if (!sgp_mode_is_ordinary() && leave_short_way(ep))
		return -1;
	if (!ep || !wr)
		return sgp_fail(EINVAL, "post: an endpoint and an operation are needed");
	sgp_lock(&ep->send.lock);
	return post_locked(ep, wr, bad_wr);
}

/* The device did not take the one request, whose slot is free again. */
static SGP_COLD int refused(struct sgp_ep *ep, int err)
{
	settle_rejected(ep, ep->send.head, ep->send.head + 1, err);
	if (ep->send.unsignalled)
		see_to_later(ep);
	ep->stats.wrs++;
	ep->stats.doorbells++;
	sgp_count_refusal(ep, err);
	errno = err;
	return -1;
}

/* Is one plain operation all that there is to do? */
static SGP_HOT bool is_plain(struct sgp_ep *ep, struct sgp_wr *wr)
{
	return SGP_LIKELY(!wr->next) && sgp_is_plain(ep, wr) &&
	       (wr->flags & SGP_BATCH || SGP_LIKELY(!ep->nwr));
}

/* Then it's posted. Returns 0; -1 with errno, nothing having changed. */
static SGP_HOT int post_plain_locked(struct sgp_ep *ep, struct sgp_wr *wr)
{
	if (wr->flags & SGP_BATCH) {
		sgp_gather_plain(ep, wr);
		ep->accepted = ep->nwr;
		ep->gathered++;
		see_to_later(ep);
	} else {
		int err;

		sgp_fill_alone(ep, wr);
		err = sgp_ep_ring_alone_locked(ep);
		if (!SGP_LIKELY(err == 0))
			return refused(ep, err);
		ep->alone++;
		if (ep->send.unsignalled)
			see_to_later(ep);
	}
	empty_list(ep, wr->sgl);
	return 0;
}

/*
 * A post, if a plain operation is all that it is. Returns 1: it was accepted; 0: it is none, nothing has
 * changed, and the lock is held for post_locked(); -1 with errno.
 *
 * With and without a lock apart: what has to be kept over the calls of a mutex would cost the other.
 */
static SGP_HOT int try_plain(struct sgp_ep *ep, struct sgp_wr *wr, bool lock)
{
	int done;

	if (lock)
		sgp_lock(&ep->send.lock);
	if (!SGP_LIKELY(is_plain(ep, wr)))
		return 0;
	done = post_plain_locked(ep, wr) ? -1 : 1;
	if (lock)
		sgp_unlock(&ep->send.lock);
	return done;
}

static SGP_HOT bool may_be_plain(const struct sgp_ep *ep)
{
	return sgp_mode_is_ordinary() && SGP_LIKELY(ep != NULL);
}

/* Flattened: the way of one plain operation is short, and its calls would cost as much again. */
static __attribute__((noinline, flatten)) int try_locked(struct sgp_ep *ep, struct sgp_wr *wr)
{
	return try_plain(ep, wr, true);
}

__attribute__((flatten)) int sgp_post(struct sgp_ep *ep, struct sgp_wr *wr, struct sgp_wr **bad_wr)
{
	int done;

	if (!may_be_plain(ep) || !SGP_LIKELY(wr != NULL))
		return post_any(ep, wr, bad_wr);
	done = ep->send.lock.off ? try_plain(ep, wr, false) : try_locked(ep, wr);
	if (SGP_LIKELY(done > 0))
		return 0;
	if (!done)
		return post_locked(ep, wr, bad_wr);
	if (bad_wr)
		*bad_wr = wr;
	return -1;
}

/* Only what a SEND uses: clearing the rest would cost more than the call. */
static inline void fill_send(struct sgp_wr *wr, void *context, struct sgp_sgl *sgl, int flags)
{
	wr->next = NULL;
	wr->context = context;
	wr->sgl = sgl;
	wr->opcode = IBV_WR_SEND;
	wr->flags = flags;
	wr->imm_data = 0;
	wr->ah = NULL;
}

static __attribute__((noinline)) int sendv_any(struct sgp_ep *ep, void *context,
					       struct sgp_sgl *sgl, int flags)
{
	struct sgp_wr wr;

	fill_send(&wr, context, sgl, flags);
	return post_any(ep, &wr, NULL);
}

/* The lock is held, and let go. */
static __attribute__((noinline)) int sendv_rest(struct sgp_ep *ep, void *context,
						struct sgp_sgl *sgl, int flags)
{
	struct sgp_wr wr;

	fill_send(&wr, context, sgl, flags);
	return post_locked(ep, &wr, NULL);
}

static SGP_HOT int sendv(struct sgp_ep *ep, void *context, struct sgp_sgl *sgl, int flags,
			 bool lock)
{
	struct sgp_wr wr; /* in registers: it does not go farther than here */
	int done;

	fill_send(&wr, context, sgl, flags);
	done = try_plain(ep, &wr, lock);
	if (SGP_LIKELY(done > 0))
		return 0;
	return done ? -1 : sendv_rest(ep, context, sgl, flags);
}

static __attribute__((noinline, flatten)) int sendv_unlocked(struct sgp_ep *ep, void *context,
							     struct sgp_sgl *sgl, int flags)
{
	return sendv(ep, context, sgl, flags, false);
}

static __attribute__((noinline, flatten)) int sendv_locked(struct sgp_ep *ep, void *context,
							   struct sgp_sgl *sgl, int flags)
{
	return sendv(ep, context, sgl, flags, true);
}

int sgp_post_sendv(struct sgp_ep *ep, void *context, struct sgp_sgl *sgl, int flags)
{
	if (!may_be_plain(ep))
		return sendv_any(ep, context, sgl, flags);
	return ep->send.lock.off ? sendv_unlocked(ep, context, sgl, flags)
				 : sendv_locked(ep, context, sgl, flags);
}

int sgp_post_writev(struct sgp_ep *ep, void *context, struct sgp_sgl *sgl, int flags,
		    uint64_t remote_addr, uint32_t rkey)
{
	struct sgp_wr wr = {.context = context,
			    .sgl = sgl,
			    .opcode = IBV_WR_RDMA_WRITE,
			    .flags = flags,
			    .remote_addr = remote_addr,
			    .rkey = rkey};

	return sgp_post(ep, &wr, NULL);
}

int sgp_post_readv(struct sgp_ep *ep, void *context, struct sgp_sgl *sgl, int flags,
		   uint64_t remote_addr, uint32_t rkey)
{
	struct sgp_wr wr = {.context = context,
			    .sgl = sgl,
			    .opcode = IBV_WR_RDMA_READ,
			    .flags = flags,
			    .remote_addr = remote_addr,
			    .rkey = rkey};

	return sgp_post(ep, &wr, NULL);
}

int sgp_post_ud_sendv(struct sgp_ep *ep, void *context, struct sgp_sgl *sgl, int flags,
		      struct ibv_ah *ah, uint32_t remote_qpn)
{
	struct sgp_wr wr = {.context = context,
			    .sgl = sgl,
			    .opcode = IBV_WR_SEND,
			    .flags = flags,
			    .ah = ah,
			    .remote_qpn = remote_qpn,
			    .remote_qkey = RDMA_UDP_QKEY};

	return sgp_post(ep, &wr, NULL);
}

int sgp_post_recvv(struct sgp_ep *ep, void *context, struct sgp_sgl *sgl)
{
	struct ibv_recv_wr wr, *bad_wr = NULL;
	struct sgp_side *side;
	struct sgp_slot *slot;
	void *untaken = NULL;
	uint32_t seq;
	int ret = -1;

	if (sgp_refuse_child())
		return -1;
	if (!ep || !sgl || !sgl->num_sge || sgl->flags & SGP_SGL_FOREIGN)
		return sgp_fail(EINVAL, "receive: an endpoint and a list of chunks are needed");
	if (ep->seat || ep->srq)
		return sgp_fail(EINVAL, "receive: the endpoint's receives are posted by the "
					"library, or the shared receive queue's");
	if (ep->type == IBV_QPT_UD && sgl->sge[0].length < SGP_GRH)
		return sgp_fail(EINVAL,
				"receive: a datagram's first slice needs %d bytes for the "
				"header before it",
				SGP_GRH);
	side = &ep->recv;
	sgp_lock(&side->lock);
	if (sgp_check_list(ep, sgl))
		goto out;
	/* Only now: a list that was made before its memory was on the domain has its rights from there. */
	if (!(sgl->access & IBV_ACCESS_LOCAL_WRITE)) {
		sgp_set_error(EACCES, "receive: into memory that is registered for reading only");
		goto out;
	}
	if (!sgp_mode_is_ordinary() && sgp_check_post(sgl, true))
		goto out;
	if (sgl->num_sge > side->max_sge || sgl->num_chunk > side->max_chunk) {
		sgp_set_error(E2BIG, "%d SGEs and %d holds: a receive takes %d and %d",
			      sgl->num_sge, sgl->num_chunk, side->max_sge, side->max_chunk);
		goto out;
	}
	if (!sgp_side_has_room(side, 1)) {
		sgp_set_error(EAGAIN, "the receive queue (%u) is full: poll, then try again",
			      side->depth);
		goto out;
	}
	slot = sgp_fill_slot(side, context, IBV_WC_RECV,
			     SGP_SLOT_WANTED | SGP_SLOT_SIGNALLED | SGP_SLOT_HANDOVER);
	sgp_fill_holds(slot, sgl->chunk, sgl->num_chunk);
	sgp_fill_handover(slot, sgl);
	seq = side->head;
	wr = (struct ibv_recv_wr){.wr_id = sgp_side_offer(side, slot),
				  .sg_list = slot->sge,
				  .num_sge = slot->num_sge};
	if (!sgp_mode_is_ordinary())
		sgp_check_posted(side, seq, sgl, true);
	errno = 0;
	ret = ibv_post_recv(ep->qp, &wr, &bad_wr);
	ret = sgp_wr_judge(ret, bad_wr, &untaken);
	if (untaken) {
		sgp_check_ended(slot);
		sgp_side_withdraw(side, seq);
		sgp_slot_writes_no_more(slot);
		ret = sgp_fail(ret, "the device refused the receive: %s", strerror(ret));
		goto out;
	}
	if (ret) /* queued, though only with an error: held until its completion */
		atomic_store_explicit(&slot->error, ret, memory_order_relaxed);
	sgp_sgl_reset(sgl);
	ep->recvs++;
	ret = 0;
out:
	ep->recv_refused += ret != 0;
	sgp_unlock(&side->lock);
	return ret;
}

/* ---- the same for one slice ---- */

static int post_slice(struct sgp_ep *ep, struct sgp_wr *wr, struct sgp_chunk *chunk, size_t offset,
		      size_t length)
{
	SGP_SGL(sgl, 1);
	int ret;

	if (sgp_sgl_append(&sgl, chunk, offset, length))
		return -1;
	wr->sgl = &sgl;
	ret = sgp_post(ep, wr, NULL);
	wr->sgl = NULL;
	return ret;
}

int sgp_post_send(struct sgp_ep *ep, void *context, struct sgp_chunk *chunk, size_t offset,
		  size_t length, int flags)
{
	struct sgp_wr wr = {.context = context, .opcode = IBV_WR_SEND, .flags = flags};

	return post_slice(ep, &wr, chunk, offset, length);
}

int sgp_post_write(struct sgp_ep *ep, void *context, struct sgp_chunk *chunk, size_t offset,
		   size_t length, int flags, uint64_t remote_addr, uint32_t rkey)
{
	struct sgp_wr wr = {.context = context,
			    .opcode = IBV_WR_RDMA_WRITE,
			    .flags = flags,
			    .remote_addr = remote_addr,
			    .rkey = rkey};

	return post_slice(ep, &wr, chunk, offset, length);
}

int sgp_post_read(struct sgp_ep *ep, void *context, struct sgp_chunk *chunk, size_t offset,
		  size_t length, int flags, uint64_t remote_addr, uint32_t rkey)
{
	struct sgp_wr wr = {.context = context,
			    .opcode = IBV_WR_RDMA_READ,
			    .flags = flags,
			    .remote_addr = remote_addr,
			    .rkey = rkey};

	return post_slice(ep, &wr, chunk, offset, length);
}

int sgp_post_recv(struct sgp_ep *ep, void *context, struct sgp_chunk *chunk, size_t offset,
		  size_t length)
{
	SGP_SGL(sgl, 1);

	if (sgp_sgl_append(&sgl, chunk, offset, length))
		return -1;
	return sgp_post_recvv(ep, context, &sgl);
}
