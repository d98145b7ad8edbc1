/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queue pairs of ids: made with their CQs if the caller gave none, and taken through their states.
 * These functions call the public verbs, as librdmacm does, so that a fault set for modify_qp
 * strikes here too; none of them holds the lock while it does.
 */
#include <fcntl.h>

#include "softverbs/cm.h"

void sw_cm_destroy_cqs(struct rdma_cm_id *id)
{
	if (id->qp_type == IBV_QPT_XRC_RECV && id->srq)
		return; /* they are the SRQ's */
	if (id->recv_cq)
		ibv_destroy_cq(id->recv_cq);
	if (id->send_cq && id->send_cq != id->recv_cq)
		ibv_destroy_cq(id->send_cq);
	id->recv_cq = id->send_cq = NULL;
	if (id->recv_cq_channel)
		ibv_destroy_comp_channel(id->recv_cq_channel);
	if (id->send_cq_channel && id->send_cq_channel != id->recv_cq_channel)
		ibv_destroy_comp_channel(id->send_cq_channel);
	id->recv_cq_channel = id->send_cq_channel = NULL;
}

/* The domain that all ids of the device have. */
static struct ibv_xrcd *xrcd_of(struct rdma_cm_id *id)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct sw_cm_dev *dev = sw_id(id)->dev;

	if (!dev->xrcd)
		dev->xrcd = ibv_open_xrcd(id->verbs, &attr);
	return dev->xrcd;
}

/* Law 1: sized from the requested depth; a depth of zero makes no CQ. */
static int create_cqs(struct rdma_cm_id *id, uint32_t send, uint32_t recv)
{
	if (recv) {
		id->recv_cq_channel = ibv_create_comp_channel(id->verbs);
		id->recv_cq = id->recv_cq_channel ? ibv_create_cq(id->verbs, (int)recv, id,
								  id->recv_cq_channel, 0)
						  : NULL;
		if (!id->recv_cq)
			return -1;
	}
	if (send) {
		id->send_cq_channel = ibv_create_comp_channel(id->verbs);
		id->send_cq = id->send_cq_channel ? ibv_create_cq(id->verbs, (int)send, id,
								  id->send_cq_channel, 0)
						  : NULL;
		if (!id->send_cq)
			return -1;
	}
	return 0;
}

static int init_qp(struct rdma_cm_id *id, struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};
	int mask, err;

	if (rdma_init_qp_attr(id, &attr, &mask))
		return -1;
	err = ibv_modify_qp(qp, &attr, mask);
	if (err || id->qp_type != IBV_QPT_UD)
		return err ? sw_fail(err) : 0;
	attr.qp_state = IBV_QPS_RTR;
	err = ibv_modify_qp(qp, &attr, IBV_QP_STATE);
	if (err)
		return sw_fail(err);
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = 0;
	err = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
	return err ? sw_fail(err) : 0;
}

int rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *a)
{
	struct ibv_qp *qp = NULL;
	int err;

	if (id->qp || !id->verbs)
		return sw_fail(EINVAL);
	if (!(a->comp_mask & IBV_QP_INIT_ATTR_PD) || !a->pd) {
		a->comp_mask |= IBV_QP_INIT_ATTR_PD;
		a->pd = id->pd;
	} else if (a->pd->context != id->verbs) {
		return sw_fail(EINVAL);
	}
	if ((id->recv_cq && a->recv_cq && id->recv_cq != a->recv_cq) ||
	    (id->send_cq && a->send_cq && id->send_cq != a->send_cq))
		return sw_fail(EINVAL);
	if (id->qp_type == IBV_QPT_XRC_RECV &&
	    (!(a->comp_mask & IBV_QP_INIT_ATTR_XRCD) || !a->xrcd)) {
		a->comp_mask |= IBV_QP_INIT_ATTR_XRCD;
		a->xrcd = xrcd_of(id);
		if (!a->xrcd)
			return -1;
	}
	if (create_cqs(id, a->send_cq || id->send_cq ? 0 : a->cap.max_send_wr,
		       a->recv_cq || id->recv_cq ? 0 : a->cap.max_recv_wr))
		goto fail;
	if (!a->send_cq)
		a->send_cq = id->send_cq;
	if (!a->recv_cq)
		a->recv_cq = id->recv_cq;
	if (!a->srq)
		a->srq = id->srq;
	qp = ibv_create_qp_ex(id->verbs, a);
	if (!qp || init_qp(id, qp))
		goto fail;
	if (qp->pd)
		id->pd = qp->pd;
	id->qp = qp;
	sw_lock();
	sw_id(id)->qp = sw_qp(qp);
	sw_unlock();
	return 0;
fail:
	err = errno;
	if (qp)
		ibv_destroy_qp(qp);
	sw_cm_destroy_cqs(id);
	return sw_fail(err);
}

int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	struct ibv_qp_init_attr_ex ex = {0};
	int ret;

	memcpy(&ex, a, sizeof *a); /* the first members are the same; padding becomes comp_mask */
	ex.comp_mask = IBV_QP_INIT_ATTR_PD;
	ex.pd = pd ? pd : id->pd;
	ret = rdma_create_qp_ex(id, &ex);
	memcpy(a, &ex, sizeof *a);
	return ret;
}

/* Law 1: errors are ignored. */
void rdma_destroy_qp(struct rdma_cm_id *id)
{
	ibv_destroy_qp(id->qp);
	id->qp = NULL;
	sw_cm_destroy_cqs(id);
}

/* An XRC queue's domain and CQ, where the caller gave none; a CQ made for the QP serves it. */
static int add_xrc(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *a)
{
	if (!(a->comp_mask & IBV_SRQ_INIT_ATTR_XRCD) || !a->xrcd)
		a->xrcd = xrcd_of(id);
	if (!a->xrcd)
		return -1;
	if (!(a->comp_mask & IBV_SRQ_INIT_ATTR_CQ) || !a->cq) {
		if (!id->recv_cq && create_cqs(id, 0, a->attr.max_wr)) {
			sw_cm_destroy_cqs(id);
			return -1;
		}
		a->cq = id->recv_cq;
	}
	a->comp_mask |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
	return 0;
}

int rdma_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *a)
{
	struct ibv_srq *srq;

	if (!(a->comp_mask & IBV_SRQ_INIT_ATTR_TYPE))
		return sw_fail(EINVAL);
	if (!(a->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !a->pd) {
		a->pd = id->pd;
		a->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
	}
	if (a->srq_type == IBV_SRQT_XRC && add_xrc(id, a))
		return -1;
	srq = ibv_create_srq_ex(id->verbs, a);
	if (!srq)
		return -1;
	if (!id->pd)
		id->pd = a->pd;
	id->srq = srq;
	return 0;
}

int rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_srq_init_attr *a)
{
	struct ibv_srq_init_attr_ex ex = {0};
	int ret;

	memcpy(&ex, a, sizeof *a);
	ex.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
	ex.srq_type = id->qp_type == IBV_QPT_XRC_RECV ? IBV_SRQT_XRC : IBV_SRQT_BASIC;
	ex.pd = pd;
	ret = rdma_create_srq_ex(id, &ex);
	memcpy(a, &ex, sizeof *a);
	return ret;
}

void rdma_destroy_srq(struct rdma_cm_id *id)
{
	ibv_destroy_srq(id->srq);
	id->srq = NULL;
	sw_cm_destroy_cqs(id);
}

/* ---- states ---- */

static int attr_init(const struct sw_id *id, struct ibv_qp_attr *a)
{
	a->pkey_index = 0;
	a->port_num = id->id.port_num;
	a->qp_access_flags = 0;
	if (id->id.qp_type == IBV_QPT_UD) {
		a->qkey = RDMA_UDP_QKEY;
		return IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
	}
	/* Once connected the peer may write, and read if it was given resources to. */
	if (id->state >= SW_CM_CONNECT) {
		a->qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
		if (id->responder_resources)
			a->qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	}
	return IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
}

static int attr_rtr(const struct sw_id *id, struct ibv_qp_attr *a)
{
	struct ibv_ah_attr *ah = &a->ah_attr;
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;

	*ah = (struct ibv_ah_attr){.is_global = 1, .port_num = id->id.port_num};
	ah->grh.dgid = id->id.route.addr.addr.ibaddr.dgid;
	ah->grh.sgid_index = (uint8_t)(id->dev->dev->port[id->id.port_num].ngid - 1);
	ah->grh.hop_limit = 64;
	ah->grh.traffic_class = id->tos;
	a->path_mtu = IBV_MTU_1024;
	a->dest_qp_num = id->remote_qpn;
	a->rq_psn = 0;
	if (id->id.qp_type != IBV_QPT_XRC_SEND) {
		a->max_dest_rd_atomic = id->responder_resources;
		a->min_rnr_timer = 0;
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	}
	return mask;
}

static int attr_rts(const struct sw_id *id, struct ibv_qp_attr *a)
{
	a->sq_psn = 0;
	a->timeout = id->ack_timeout ? id->ack_timeout : 19;
	if (id->id.qp_type == IBV_QPT_XRC_RECV)
		return IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT;
	a->retry_cnt = id->retry_count & 7;
	a->rnr_retry = id->rnr_retry_count & 7;
	a->max_rd_atomic = id->initiator_depth;
	return IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
	       IBV_QP_MAX_QP_RD_ATOMIC;
}

int rdma_init_qp_attr(struct rdma_cm_id *rid, struct ibv_qp_attr *a, int *mask)
{
	struct sw_id *id = sw_id(rid);
	bool early;
	int err = 0;

	sw_lock();
	early = !id->dev || (id->state < SW_CM_CONNECT && a->qp_state != IBV_QPS_INIT);
	if (!early && a->qp_state == IBV_QPS_INIT)
		*mask = attr_init(id, a);
	else if (!early && a->qp_state == IBV_QPS_RTR)
		*mask = attr_rtr(id, a);
	else if (!early && a->qp_state == IBV_QPS_RTS)
		*mask = attr_rts(id, a);
	else
		err = EINVAL;
	sw_unlock();
	return err ? sw_fail(err) : 0;
}

static int to_state(struct rdma_cm_id *id, enum ibv_qp_state state, uint8_t resp_res, uint8_t depth)
{
	struct ibv_qp_attr attr = {.qp_state = state};
	int mask = 0, err;

	if (rdma_init_qp_attr(id, &attr, &mask))
		return -1;
	if (state == IBV_QPS_RTR && resp_res != RDMA_MAX_RESP_RES)
		attr.max_dest_rd_atomic = resp_res;
	if (state == IBV_QPS_RTS && depth != RDMA_MAX_INIT_DEPTH)
		attr.max_rd_atomic = depth;
	err = ibv_modify_qp(id->qp, &attr, mask);
	return err ? sw_fail(err) : 0;
}

int sw_cm_qp_rts(struct rdma_cm_id *id, uint8_t resp_res, uint8_t init_depth)
{
	if (!id->qp || sw_cm_iwarp(sw_id(id)))
		return 0; /* on iWARP the connection itself moves it */
	if (to_state(id, IBV_QPS_INIT, resp_res, init_depth) ||
	    to_state(id, IBV_QPS_RTR, resp_res, init_depth))
		return -1;
	return to_state(id, IBV_QPS_RTS, resp_res, init_depth);
}

/* Law 1: disconnecting moves the QP to the error state. */
int sw_cm_qp_error(struct rdma_cm_id *id)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	int err = id->qp ? ibv_modify_qp(id->qp, &attr, IBV_QP_STATE) : 0;

	return err ? sw_fail(err) : 0;
}
