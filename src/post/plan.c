/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What an operation would take, and everything that can be refused before the provider is called. A
 * refusal changes nothing.
 */
#include <errno.h>
#include <string.h>

#include "pool/errmsg.h"
#include "pool/probe.h"
#include "post/plan.h"
#include "post/sgl.h"

/* On iWARP a provider may send large unsignalled messages from the buffer even after a later
 * completion (law 2.3): these are signalled. */
#define IWARP_COPIES_BELOW 4096

void sgp_count_refusal(struct sgp_ep *ep, int err)
{
	struct sgp_ep_stats *stats = &ep->stats;

	SGP_PROBE3(refused, ep, err, ep->send.head - ep->send.tail);
	switch (err) {
	case EAGAIN:
		stats->queue_full++;
		break;
	case E2BIG:
	case EMSGSIZE:
		stats->too_big++;
		break;
	case ENOTCONN:
	case ESHUTDOWN:
		stats->not_ready++;
		break;
	case EXDEV:
	case EACCES:
	case EFAULT:
		stats->wrong_memory++;
		break;
	case EINVAL:
	case EBUSY: /* a window that is bound */
	case EOPNOTSUPP:
		stats->invalid++;
		break;
	default:
		stats->refused++;
		break;
	}
}

void sgp_sum_posts(const struct sgp_ep *ep, struct sgp_ep_stats *stats)
{
	*stats = ep->stats;
	stats->posts += ep->alone + ep->gathered;
	stats->wrs += ep->alone + ep->gathered;
	stats->doorbells += ep->alone;
	stats->signalled = stats->wrs - ep->quiet;
}

int sgp_check_list(const struct sgp_ep *ep, struct sgp_sgl *sgl)
{
	if (sgp_ep_is_stopped(ep))
		return sgp_fail(ESHUTDOWN, "the endpoint is closing, disconnected or in error");
	return sgp_sgl_key(sgl, ep->pd_index, ep->pd_bit);
}

int sgp_refuse_operation(const struct sgp_ep *ep, const struct sgp_wr *wr, unsigned int kind)
{
	if (!(kind & SGP_KIND_KNOWN))
		return sgp_fail(EINVAL, "opcode %d is not one of a list", (int)wr->opcode);
	if (ep->type == IBV_QPT_UD && kind & ep->lacks)
		return sgp_fail(EOPNOTSUPP, "a UD queue pair only sends");
	if (kind & ep->lacks)
		return sgp_fail(EOPNOTSUPP, "iWARP has neither immediate data nor atomics");
	return sgp_fail(EINVAL, "an address handle belongs to a send on a UD queue pair");
}

/* The device writes into the list: a READ's or an atomic's. */
static int check_sink(const struct sgp_ep *ep, const struct sgp_wr *wr)
{
	const struct sgp_sgl *sgl = wr->sgl;

	if (wr->flags & (IBV_SEND_INLINE | SGP_LINEARISE))
		return sgp_fail(EINVAL, "what the device writes is neither inline nor a copy");
	if (sgl->flags & SGP_SGL_FOREIGN)
		return sgp_fail(EFAULT, "foreign memory is for inline posts only");
	if (!(sgl->access & IBV_ACCESS_LOCAL_WRITE))
		return sgp_fail(EACCES, "into memory that is registered for reading only");
	if (ep->iwarp && wr->opcode == IBV_WR_RDMA_READ && !(sgl->access & IBV_ACCESS_REMOTE_WRITE))
		return sgp_fail(EACCES, "on iWARP the sink of a READ needs REMOTE_WRITE");
	if (wr->opcode != IBV_WR_RDMA_READ && (sgl->num_sge != 1 || sgl->length != 8))
		return sgp_fail(EINVAL, "an atomic operation returns 8 bytes in one slice");
	return 0;
}

/*
 * soft-iWARP's kernel takes SENDs and WRITEs inline only. It refuses a SEND_WITH_INV when it's already
 * in the queue, and all behind it waits for ever (siw_activate_tx_from_sq()).
 */
static bool never_inline(const struct sgp_ep *ep, const struct sgp_wr *wr)
{
	return ep->iwarp && wr->opcode == IBV_WR_SEND_WITH_INV;
}

/* Inline where it's asked for or where it fits; otherwise the memory must be the pool's. */
static int plan_inline(const struct sgp_ep *ep, const struct sgp_wr *wr, struct sgp_plan *plan)
{
	const struct sgp_sgl *sgl = wr->sgl;

	if (wr->flags & IBV_SEND_INLINE) {
		if (wr->flags & SGP_HANDOVER)
			return sgp_fail(EINVAL, "an inline post keeps nothing to hand over");
		if (never_inline(ep, wr))
			return sgp_fail(EOPNOTSUPP, "on iWARP no SEND_WITH_INV goes inline");
		if (sgp_sgl_check_mapped(sgl))
			return -1;
		if (sgl->length > ep->max_inline)
			return sgp_fail(EMSGSIZE, "%llu bytes inline: the queue pair takes %u",
					(unsigned long long)sgl->length, ep->max_inline);
		plan->goes_inline = true;
	} else if (sgl->flags & SGP_SGL_FOREIGN) {
		return sgp_fail(EFAULT, "foreign memory, and the post does not ask to go inline");
	} else {
		plan->goes_inline = sgl->length && sgl->length <= ep->auto_inline &&
				    !(wr->flags & SGP_HANDOVER) && sgl->access & SGP_ACCESS_CPU &&
				    !never_inline(ep, wr);
	}
	return 0;
}

/* How many work requests: by SGEs, and for one-sided operations by bytes and holds too. */
static int plan_parts(const struct sgp_ep *ep, const struct sgp_wr *wr, unsigned int kind,
		      struct sgp_plan *plan)
{
	const struct sgp_side *side = &ep->send;
	const struct sgp_sgl *sgl = wr->sgl;
	bool too_many;
	uint64_t most;

	plan->parts = 1;
	plan->sge_a_part = wr->opcode == IBV_WR_RDMA_READ ? ep->max_sge_rd : side->max_sge;
	if (kind & SGP_KIND_MESSAGE && sgl->length > ep->max_msg)
		return sgp_fail(EMSGSIZE, "%llu bytes: the port takes %llu",
				(unsigned long long)sgl->length, (unsigned long long)ep->max_msg);
	if (plan->goes_inline)
		return 0;
	too_many = sgl->num_sge > plan->sge_a_part || sgl->num_chunk > side->max_chunk;
	if (!too_many && sgl->length <= ep->max_msg)
		return 0;
	if (kind & SGP_KIND_MESSAGE) {
		plan->linearise = wr->flags & SGP_LINEARISE;
		if (plan->linearise)
			return 0;
		return sgp_fail(E2BIG,
				"%d SGEs and %d holds: a message takes %d and %d here; make the "
				"endpoint with a larger cap.max_send_sge (or max_chunk)",
				sgl->num_sge, sgl->num_chunk, side->max_sge, side->max_chunk);
	}
	/* A bound that keeps the count short: bytes cut an SGE at most once a part. */
	most = (uint64_t)side->depth * (uint64_t)plan->sge_a_part;
	if ((uint64_t)sgl->num_sge > most || sgl->length > side->depth * ep->max_msg)
		return sgp_fail(E2BIG, "%d SGEs: the queue has %u requests of %d", sgl->num_sge,
				side->depth, plan->sge_a_part);
	plan->parts = 0;
	return 0;
}

int sgp_plan(const struct sgp_ep *ep, const struct sgp_wr *wr, unsigned int kind,
	     struct sgp_plan *plan)
{
	const struct sgp_sgl *sgl = wr->sgl;

	*plan = (struct sgp_plan){.parts = 1};
	if (kind & SGP_KIND_SINK ? check_sink(ep, wr) : plan_inline(ep, wr, plan))
		return -1;
	if (plan_parts(ep, wr, kind, plan))
		return -1;
	plan->flags = ep->sig_all || wr->flags & IBV_SEND_SIGNALED ? SGP_SLOT_WANTED : 0;
	if (kind & SGP_KIND_SINK || wr->flags & SGP_HANDOVER) {
		plan->flags = SGP_SLOT_WANTED | SGP_SLOT_HANDOVER;
		if (sgl->num_sge > ep->cq->max_sge || sgl->num_chunk > ep->cq->max_chunk)
			return sgp_fail(E2BIG,
					"%d SGEs and %d holds to hand back: the completion queue "
					"was made for %d and %d",
					sgl->num_sge, sgl->num_chunk, ep->cq->max_sge,
					ep->cq->max_chunk);
	}
	plan->own_signal =
		ep->type == IBV_QPT_UD || (ep->iwarp && sgl->length >= IWARP_COPIES_BELOW);
	return 0;
}

/*
 * Whether the queue pair may send. A passive side may reply before it has seen ESTABLISHED, so the
 * queue pair itself is asked until it has been in RTS. A provider that doesn't tell its state
 * (RESET, though librdmacm has moved it on) is believed by its events only: sgp_ep_event(), or the
 * one that a synchronous identifier keeps.
 */
int sgp_check_connected(struct sgp_ep *ep)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
	struct ibv_qp_init_attr init;
	const struct rdma_cm_event *event = ep->id ? ep->id->event : NULL; /* synchronous only */
	int err;

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
		atomic_fetch_or(&ep->life, SGP_EP_CONNECTED);
		return 0;
	case IBV_QPS_SQE:
	case IBV_QPS_ERR:
		atomic_fetch_or(&ep->life, SGP_EP_STOPPED);
		return sgp_fail(ESHUTDOWN, "the queue pair is in error");
	default:
		return sgp_fail(ENOTCONN, "the connection is not established yet");
	}
}
