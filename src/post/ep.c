/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The endpoint's life: made on an rdma_cm_id, asked, destroyed; close.c has how it is closed.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pool/chunk.h"
#include "pool/errmsg.h"
#include "pool/mode.h"
#include "pool/served.h"
#include "post/checked.h"
#include "post/datagram.h"
#include "post/plan.h"
#include "post/refill.h"
#include "post/srq.h"

/* ---- making one ---- */

static uint32_t sge_or_one(uint32_t n)
{
	return n ? n : 1;
}

static int check_attr(const struct rdma_cm_id *id, const struct sgp_ep_attr *attr)
{
	const struct ibv_qp_cap *cap;

	if (!attr || !attr->cq || !attr->pd)
		return sgp_fail(EINVAL, "endpoint: there %s",
				!attr       ? "are no attributes"
				: !attr->cq ? "is no completion queue (cq)"
					    : "is no protection domain (pd)");
	if (attr->comp_mask || attr->flags || attr->max_chunk < 0 || attr->max_chunk > UINT16_MAX)
		return sgp_fail(EINVAL,
				"endpoint: comp_mask and flags must be 0, and max_chunk from "
				"0 to %d: zero the structure first",
				UINT16_MAX);
	if (attr->num_recv < 0 || (attr->num_recv && (!attr->recv || attr->srq)))
		return sgp_fail(EINVAL, "endpoint: num_recv counts the parts of recv, which srq "
					"excludes");
	cap = &attr->cap;
	if (id && (!id->verbs || id->qp))
		return sgp_fail(EINVAL, id->qp ? "endpoint: the identifier has a queue pair"
					       : "endpoint: the identifier has no device yet: "
						 "resolve its address first");
	if (attr->pd->context != attr->cq->cq->context || (id && id->verbs != attr->pd->context))
		return sgp_fail(EINVAL, "endpoint: identifier, completion queue and protection "
					"domain are of different devices");
	if (!cap->max_send_wr || (!cap->max_recv_wr && !attr->srq))
		return sgp_fail(EINVAL, "endpoint: both depths must be above 0");
	if (cap->max_send_wr > SGP_MAX_DEPTH || cap->max_recv_wr > SGP_MAX_DEPTH)
		return sgp_fail(E2BIG, "endpoint: a queue of at most %d is possible",
				SGP_MAX_DEPTH);
	return 0;
}

static int check_device(struct sgp_ep *ep, const struct rdma_cm_id *id,
			const struct sgp_ep_attr *attr)
{
	struct ibv_context *verbs = attr->pd->context;
	const struct ibv_qp_cap *cap = &attr->cap;
	struct ibv_device_attr dev;
	struct ibv_port_attr port;
	uint8_t port_num = id ? id->port_num : attr->port_num;
	uint32_t max_sge, send_sge = sge_or_one(cap->max_send_sge);
	int err;

	errno = 0;
	err = sgp_provider_errno(ibv_query_device(verbs, &dev));
	if (!err)
		err = sgp_provider_errno(ibv_query_port(verbs, port_num ? port_num : 1, &port));
	if (err)
		return sgp_fail(err, "endpoint: the device does not answer: %s", strerror(err));
	max_sge = (uint32_t)dev.max_sge;
	if (cap->max_send_sge > max_sge || cap->max_recv_sge > max_sge)
		return sgp_fail(E2BIG, "endpoint: the device takes %u SGEs a list", max_sge);
	if (cap->max_send_wr > (uint32_t)dev.max_qp_wr ||
	    cap->max_recv_wr > (uint32_t)dev.max_qp_wr)
		return sgp_fail(E2BIG, "endpoint: the device has queues of %d", dev.max_qp_wr);
	ep->max_sge_rd = dev.max_sge_rd > 0 && (uint32_t)dev.max_sge_rd < send_sge ? dev.max_sge_rd
										   : (int)send_sge;
	ep->max_msg = port.max_msg_sz && port.max_msg_sz < INT32_MAX ? port.max_msg_sz : INT32_MAX;
	ep->iwarp = verbs->device->transport_type == IBV_TRANSPORT_IWARP;
	if (attr->qp_type)
		ep->type = attr->qp_type;
	else
		ep->type = id && id->ps == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC;
	if (ep->type == IBV_QPT_UD) {
		ep->lacks = SGP_KIND_ONE_SIDED | SGP_KIND_INV;
		/* A datagram is one packet. */
		if (port.active_mtu >= IBV_MTU_256 && port.active_mtu <= IBV_MTU_4096)
			ep->max_msg = 128u << port.active_mtu;
	} else if (ep->iwarp) {
		ep->lacks = SGP_KIND_IMM | SGP_KIND_ATOMIC;
	}
	return 0;
}

static int make_sides(struct sgp_ep *ep, const struct sgp_ep_attr *attr)
{
	const struct ibv_qp_cap *cap = &attr->cap;
	int send_sge = (int)sge_or_one(cap->max_send_sge);
	/* Lists of a shared receive queue come out of this completion queue too. */
	int recv_sge = attr->srq ? attr->srq->side.max_sge : (int)sge_or_one(cap->max_recv_sge);
	int most = send_sge > recv_sge ? send_sge : recv_sge;
	int max_chunk = attr->max_chunk ? attr->max_chunk : most;
	int shared = attr->srq ? attr->srq->side.max_chunk : 0;
	int handed = max_chunk > shared ? max_chunk : shared;
	uint32_t recv_depth = attr->srq ? 0 : cap->max_recv_wr;
	bool unlocked = attr->cq->single_threaded;

	if (recv_sge > attr->cq->max_sge || handed > attr->cq->max_chunk)
		return sgp_fail(
			EINVAL,
			"endpoint: lists of %d SGEs and %d holds, but the completion queue "
			"hands over %d and %d: create it with a larger max_sge or max_chunk",
			recv_sge, handed, attr->cq->max_sge, attr->cq->max_chunk);
	if (sgp_side_init(&ep->send, cap->max_send_wr, send_sge, max_chunk, unlocked))
		return -1;
	if (sgp_side_init(&ep->recv, recv_depth, recv_sge, max_chunk, unlocked)) {
		sgp_side_fini(&ep->send);
		return -1;
	}
	return 0;
}

static int create_qp(struct sgp_ep *ep, struct rdma_cm_id *id, struct ibv_pd *pd,
		     struct ibv_qp_init_attr *init)
{
	errno = 0;
	if (id) {
		if (!rdma_create_qp(id, pd, init))
			ep->qp = id->qp;
	} else {
		ep->qp = ibv_create_qp(pd, init);
	}
	if (ep->qp)
		return 0;
	return errno > 0 ? errno : EIO;
}

/*
 * The queue pair with the caps asked for; as much inline room as the device gives, halving what it
 * refuses (law 3). What it gives above the depths is not used: librdmacm and some providers round
 * up, and the completion queue has room for what was asked.
 */
static int make_qp(struct sgp_ep *ep, struct rdma_cm_id *id, const struct sgp_ep_attr *attr)
{
	struct ibv_qp_init_attr init;
	uint32_t inline_bytes = attr->cap.max_inline_data;
	int err;

	for (;; inline_bytes /= 2) {
		init = (struct ibv_qp_init_attr){
			.qp_context = ep,
			.send_cq = ep->cq->cq,
			.recv_cq = ep->cq->cq,
			.cap = attr->cap,
			.qp_type = ep->type,
			.srq = attr->srq ? attr->srq->srq : NULL,
		};
		init.cap.max_send_sge = sge_or_one(attr->cap.max_send_sge);
		init.cap.max_recv_sge = sge_or_one(attr->cap.max_recv_sge);
		init.cap.max_inline_data = inline_bytes;
		err = create_qp(ep, id, attr->pd, &init);
		if (!err)
			break;
		if ((err != EINVAL && err != ENOMEM) || !inline_bytes)
			return sgp_fail(
				err, "endpoint: no queue pair (%u + %u deep, %u + %u SGEs): %s",
				init.cap.max_send_wr, init.cap.max_recv_wr, init.cap.max_send_sge,
				init.cap.max_recv_sge, strerror(err));
	}
	ep->id = id;
	ep->max_inline = init.cap.max_inline_data;
	ep->auto_inline = inline_bytes < ep->max_inline ? inline_bytes : ep->max_inline;
	sgp_ep_find_plain(ep);
	return 0;
}

/* Where work requests wait for the doorbell, and inline payloads with them. */
static int make_gathering(struct sgp_ep *ep)
{
	size_t ring = (size_t)ep->send.mask + 1;

	ep->wr = calloc(ep->send.depth, sizeof *ep->wr);
	ep->inlined = malloc(ring * ep->max_inline + 1);
	if (!ep->wr || !ep->inlined)
		return sgp_fail(ENOMEM, "no memory for %u work requests", ep->send.depth);
	return 0;
}

/* What is to come of its receives: posted by the caller, kept full, or shared. */
static int make_receives(struct sgp_ep *ep, const struct sgp_ep_attr *attr)
{
	size_t first = ep->type == IBV_QPT_UD ? SGP_GRH : 0;

	ep->in = &ep->recv;
	if (attr->srq) {
		ep->recv_context = attr->recv_context;
		return sgp_srq_join(attr->srq, ep);
	}
	if (!attr->num_recv)
		return 0;
	ep->refill = sgp_refill_make(&ep->recv, attr->recv, attr->num_recv, ep->recv.max_sge,
				     ep->pd_index, first);
	if (!ep->refill)
		return -1;
	ep->refill->ep = ep;
	ep->refill->context = attr->recv_context;
	ep->own_seat = (struct sgp_seat){.cq = ep->cq, .refill = ep->refill};
	ep->seat = &ep->own_seat;
	return 0;
}

/* The queue pair is gone before it was used, and its refill has stopped: its receives go back. */
static void abandon_receives(struct sgp_ep *ep)
{
	struct sgp_side *side = &ep->recv;

	for (; side->tail != side->head; side->tail++) {
		sgp_slot_drop_receive(sgp_side_slot(side, side->tail));
	}
}

static void end_receives(struct sgp_ep *ep)
{
	int err = errno;

	if (ep->srq)
		sgp_srq_leave(ep);
	if (ep->refill) {
		sgp_lock(&ep->cq->lock);
		sgp_seat_forget_locked(ep->cq, &ep->own_seat);
		sgp_unlock(&ep->cq->lock);
		sgp_refill_free(ep->refill);
	}
	errno = err;
}

static void free_ep(struct sgp_ep *ep)
{
	free(ep->inlined);
	free(ep->wr);
	free(ep);
}

struct sgp_ep *sgp_ep_create(struct rdma_cm_id *id, const struct sgp_ep_attr *attr)
{
	struct sgp_ep *ep;
	/* A queue pair that the device keeps keeps its receives' memory, their room in the completion
	 * queue and the domain, for ever. */
	bool gone = true;
	int err;

	if (sgp_check_fork() || check_attr(id, attr))
		return NULL;
	ep = calloc(1, sizeof *ep);
	if (!ep)
		return sgp_fail_null(ENOMEM, "no memory for an endpoint");
	ep->cq = attr->cq;
	ep->sig_all = attr->sq_sig_all;
	if (check_device(ep, id, attr) || make_sides(ep, attr))
		goto no_sides;
	ep->pd_index = sgp_pd_acquire(attr->pd);
	if (ep->pd_index < 0)
		goto no_pd;
	ep->pd_bit = ep->send.pd_bit = ep->recv.pd_bit = sgp_pd_bit(ep->pd_index);
	if (make_receives(ep, attr))
		goto no_receives;
	if (sgp_cq_attach(ep->cq, ep, ep->send.depth + ep->recv.depth))
		goto no_place;
	if (make_qp(ep, id, attr))
		goto no_qp;
	if (make_gathering(ep) || (ep->refill && id && sgp_refill_now(ep->refill)))
		goto no_gathering;
	if (ep->srq)
		sgp_srq_qp_made(ep);
	return ep;

no_gathering:
	err = errno;
	if (ep->refill) /* a poll or a put might go on with it */
		sgp_refill_stop(ep->refill);
	gone = !sgp_ep_destroy_qp(ep);
	if (!gone)
		sgp_cq_forgo_room(ep->cq, ep);
	else if (ep->refill)
		abandon_receives(ep);
	errno = err;
no_qp:
	sgp_cq_detach(ep->cq, ep);
no_place:
	end_receives(ep);
no_receives:
	if (gone)
		sgp_pd_release(ep->pd_index);
no_pd:
	sgp_side_fini(&ep->recv);
	sgp_side_fini(&ep->send);
no_sides:
	free_ep(ep);
	return NULL;
}

/* ---- what it knows ---- */

struct ibv_qp *sgp_ep_qp(const struct sgp_ep *ep)
{
	return ep ? ep->qp : NULL;
}

static void count_refills(const struct sgp_refill *r, struct sgp_ep_stats *stats)
{
	stats->recvs = stats->refilled = r->posted;
	stats->refills = r->chains;
	stats->recv_dry = r->dry;
	stats->recv_by_put = r->by_put;
	stats->recv_refused = r->refused;
}

int sgp_ep_refill(struct sgp_ep *ep)
{
	if (sgp_check_fork())
		return -1;
	if (!ep || !ep->refill || !ep->qp)
		return sgp_fail(EINVAL, "refill: an open endpoint with receives of its own is "
					"needed");
	return sgp_refill_now(ep->refill);
}

int sgp_ep_stats(struct sgp_ep *ep, struct sgp_ep_stats *stats)
{
	if (sgp_check_fork())
		return -1;
	if (!ep || !stats)
		return sgp_fail(EINVAL, "statistics: an endpoint and room for them are needed");
	sgp_lock(&ep->cq->lock);
	sgp_lock(&ep->send.lock);
	sgp_sum_posts(ep, stats);
	sgp_unlock(&ep->send.lock);
	stats->completions = ep->completions;
	stats->errors = ep->errors;
	stats->cancelled = ep->cancelled;
	stats->quarantined = sgp_ep_quarantined_locked(ep);
	sgp_lock(&ep->recv.lock);
	stats->recvs = ep->recvs;
	stats->recv_refused = ep->recv_refused;
	if (ep->refill)
		count_refills(ep->refill, stats);
	sgp_unlock(&ep->recv.lock);
	sgp_unlock(&ep->cq->lock);
	return 0;
}

int sgp_ep_query(struct sgp_ep *ep, struct sgp_ep_info *info)
{
	if (sgp_check_fork())
		return -1;
	if (!ep || !info)
		return sgp_fail(EINVAL, "query: an endpoint and room for the answer are needed");
	*info = (struct sgp_ep_info){
		.max_send_sge = ep->send.max_sge,
		.max_recv_sge = ep->recv.max_sge,
		.max_inline = ep->max_inline,
		.max_msg = ep->max_msg,
	};
	sgp_lock(&ep->send.lock);
	info->send_room = (int)sgp_side_room(&ep->send);
	sgp_unlock(&ep->send.lock);
	sgp_lock(&ep->recv.lock);
	info->recv_room = (int)sgp_side_room(&ep->recv);
	sgp_unlock(&ep->recv.lock);
	info->send_posted = (int)ep->send.depth - info->send_room;
	info->recv_posted = (int)ep->recv.depth - info->recv_room;
	if (ep->refill) {
		info->recv_missing = info->recv_room;
		info->recv_room = 0; /* the library's */
	}
	if (ep->srq)
		sgp_srq_query(ep->srq, info);
	return 0;
}

/* ---- ending it ---- */

int sgp_ep_destroy(struct sgp_ep *ep)
{
	bool busy;

	if (sgp_check_fork())
		return -1;
	if (!ep)
		return sgp_fail(EINVAL, "no endpoint");
	sgp_lock(&ep->cq->lock);
	busy = ep->qp || ep->pending || ep->windows;
	sgp_unlock(&ep->cq->lock);
	if (busy)
		return sgp_fail(EBUSY, ep->qp ? "the endpoint is not closed"
					      : "the endpoint has completions to poll first, or "
						"windows to destroy");
	end_receives(ep);
	sgp_cq_detach(ep->cq, ep);
	sgp_pd_release(ep->pd_index);
	sgp_side_fini(&ep->recv);
	sgp_side_fini(&ep->send);
	free_ep(ep);
	return 0;
}
