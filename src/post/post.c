/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Posting: everything that can be refused is refused before the provider is called, and a refusal
 * changes nothing. The holds are in the slot before the provider can complete it.
 */
#include <errno.h>
#include <string.h>

#include "pool/errmsg.h"
#include "post/ep.h"
#include "post/sgl.h"
#include "post/wr.h"

#define SEND_FLAGS (IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_FENCE)

/* What both sides refuse. The side's lock is held. */
static int check_list(struct sgp_ep *ep, const struct sgp_side *side, const struct sgp_sgl *sgl)
{
	if (atomic_load_explicit(&ep->stopped, memory_order_relaxed))
		return sgp_fail(ESHUTDOWN, "the endpoint is closing, disconnected or in error");
	if (sgl->num_sge > side->max_sge || sgl->num_chunk > side->max_chunk)
		return sgp_fail(E2BIG, "%d SGEs and %d holds: the queue takes %d and %d",
				sgl->num_sge, sgl->num_chunk, side->max_sge, side->max_chunk);
	if (sgl->length > ep->max_msg)
		return sgp_fail(EMSGSIZE, "%llu bytes: the port takes %llu",
				(unsigned long long)sgl->length, (unsigned long long)ep->max_msg);
	if (!(sgl->pds >> ep->pd_index & 1))
		return sgp_fail(EXDEV, "memory that is not registered on the queue pair's "
				       "protection domain");
	return 0;
}

/*
 * Whether the queue pair may send. A passive side may reply before it has seen ESTABLISHED, so the
 * queue pair itself is asked until it has been in RTS. A provider that doesn't tell its state
 * (RESET, though librdmacm has moved it on) is believed by its events only: sgp_ep_event(), or the
 * one that a synchronous identifier keeps.
 */
static int check_connected(struct sgp_ep *ep)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
	struct ibv_qp_init_attr init;
	const struct rdma_cm_event *event = ep->id->channel ? NULL : ep->id->event;
	int err;

	if (atomic_load_explicit(&ep->connected, memory_order_relaxed))
		return 0;
	if (event && event->event == RDMA_CM_EVENT_ESTABLISHED) {
		attr.qp_state = IBV_QPS_RTS;
	} else {
		errno = 0;
		err = sgp_provider_errno(ibv_query_qp(ep->qp, &attr, IBV_QP_STATE, &init));
		if (err)
			return sgp_fail(err, "the queue pair's state: %s", strerror(err));
	}
	switch (attr.qp_state) {
	case IBV_QPS_RTS:
	case IBV_QPS_SQD:
		atomic_store(&ep->connected, true);
		return 0;
	case IBV_QPS_SQE:
	case IBV_QPS_ERR:
		atomic_store(&ep->stopped, true);
		return sgp_fail(ESHUTDOWN, "the queue pair is in error");
	default:
		return sgp_fail(ENOTCONN, "the connection is not established yet");
	}
}

/*
 * What the provider's answer makes of an offered slot. The list is emptied when the queue has it.
 */
static int settle(struct sgp_side *side, struct sgp_slot *slot, struct sgp_sgl *sgl, int ret,
		  const void *bad_wr)
{
	int err = 0;

	switch (sgp_wr_judge(ret, bad_wr, &err)) {
	case SGP_WR_REFUSED:
		sgp_side_withdraw(slot);
		return sgp_fail(err, "the device refused the post: %s", strerror(err));
	case SGP_WR_UNSURE:
		slot->error = err;
		break;
	case SGP_WR_TAKEN:
		break;
	}
	sgp_side_commit(side);
	sgp_sgl_reset(sgl);
	return 0;
}

int sgp_post_sendv(struct sgp_ep *ep, void *context, struct sgp_sgl *sgl, int flags)
{
	struct ibv_send_wr wr, *bad_wr = NULL;
	struct sgp_side *side;
	struct sgp_slot *slot;
	uint64_t wr_id;
	int ret = -1;

	if (!ep || !sgl || flags & ~SEND_FLAGS)
		return sgp_fail(EINVAL, "send: an endpoint, a list and known flags are needed");
	side = &ep->send;
	sgp_lock(&side->lock);
	if (check_list(ep, side, sgl) || check_connected(ep))
		goto out;
	slot = sgp_side_next(side);
	if (!slot) {
		sgp_fail(EAGAIN, "the send queue is full (%u): poll, then try again", side->depth);
		goto out;
	}
	wr_id = sgp_side_offer(side, slot, sgl, context, SGP_OP_SEND,
			       ep->sig_all || flags & IBV_SEND_SIGNALED ? SGP_SLOT_WANTED : 0);
	sgp_wr_fill(&wr, wr_id, sgl, IBV_WR_SEND, (unsigned int)flags | IBV_SEND_SIGNALED);
	errno = 0;
	ret = ibv_post_send(ep->qp, &wr, &bad_wr);
	ret = settle(side, slot, sgl, ret, bad_wr);
out:
	sgp_unlock(&side->lock);
	return ret;
}

int sgp_post_recvv(struct sgp_ep *ep, void *context, struct sgp_sgl *sgl)
{
	struct ibv_recv_wr wr, *bad_wr = NULL;
	struct sgp_side *side;
	struct sgp_slot *slot;
	int ret = -1;

	if (!ep || !sgl || !sgl->num_sge)
		return sgp_fail(EINVAL, "receive: an endpoint and a list with memory are needed");
	if (!(sgl->access & IBV_ACCESS_LOCAL_WRITE))
		return sgp_fail(EACCES, "receive: into memory that is registered for reading only");
	side = &ep->recv;
	sgp_lock(&side->lock);
	if (check_list(ep, side, sgl))
		goto out;
	slot = sgp_side_next(side);
	if (!slot) {
		sgp_fail(EAGAIN, "the receive queue is full (%u): poll, then try again",
			 side->depth);
		goto out;
	}
	wr = (struct ibv_recv_wr){
		.wr_id = sgp_side_offer(side, slot, sgl, context, SGP_OP_RECV, SGP_SLOT_WANTED),
		.sg_list = sgl->sge,
		.num_sge = sgl->num_sge,
	};
	errno = 0;
	ret = ibv_post_recv(ep->qp, &wr, &bad_wr);
	ret = settle(side, slot, sgl, ret, bad_wr);
out:
	sgp_unlock(&side->lock);
	return ret;
}
