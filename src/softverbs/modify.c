/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ibv_modify_qp: which transition is legal, what it needs, what it may change (the table is that of
 * the InfiniBand specification, volume 1, 11.2.5.2), and what it sets off.
 *
 *	RESET -> INIT -> RTR -> RTS <-> SQD        any -> ERR, any -> RESET
 */
#include "softverbs/net.h"

#define ACCESS IBV_QP_ACCESS_FLAGS
#define CUR    IBV_QP_CUR_STATE

struct rule {
	enum ibv_qp_state from, to;
	int need, may;
};

static const struct rule rc_rules[] = {
	{IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | ACCESS, 0},
	{IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | ACCESS},
	{IBV_QPS_INIT, IBV_QPS_RTR,
	 IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
		 IBV_QP_MIN_RNR_TIMER,
	 IBV_QP_ALT_PATH | ACCESS | IBV_QP_PKEY_INDEX},
	{IBV_QPS_RTR, IBV_QPS_RTS,
	 IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		 IBV_QP_MAX_QP_RD_ATOMIC,
	 CUR | IBV_QP_ALT_PATH | ACCESS | IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE},
	{IBV_QPS_RTS, IBV_QPS_RTS, 0,
	 CUR | ACCESS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE | IBV_QP_MIN_RNR_TIMER},
	{IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
	{IBV_QPS_SQD, IBV_QPS_RTS, 0,
	 CUR | IBV_QP_ALT_PATH | ACCESS | IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE},
	{IBV_QPS_SQD, IBV_QPS_SQD, 0,
	 IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		 IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_ALT_PATH | ACCESS |
		 IBV_QP_PKEY_INDEX | IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE},
};

static const struct rule uc_rules[] = {
	{IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | ACCESS, 0},
	{IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | ACCESS},
	{IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
	 IBV_QP_ALT_PATH | ACCESS | IBV_QP_PKEY_INDEX},
	{IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN,
	 CUR | IBV_QP_ALT_PATH | ACCESS | IBV_QP_PATH_MIG_STATE},
	{IBV_QPS_RTS, IBV_QPS_RTS, 0, CUR | ACCESS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE},
	{IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
	{IBV_QPS_SQD, IBV_QPS_RTS, 0, CUR | IBV_QP_ALT_PATH | ACCESS | IBV_QP_PATH_MIG_STATE},
	{IBV_QPS_SQD, IBV_QPS_SQD, 0,
	 IBV_QP_AV | IBV_QP_ALT_PATH | ACCESS | IBV_QP_PKEY_INDEX | IBV_QP_PATH_MIG_STATE},
	{IBV_QPS_SQE, IBV_QPS_RTS, 0, CUR | ACCESS},
};

static const struct rule ud_rules[] = {
	{IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, 0},
	{IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY},
	{IBV_QPS_INIT, IBV_QPS_RTR, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
	{IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, CUR | IBV_QP_QKEY},
	{IBV_QPS_RTS, IBV_QPS_RTS, 0, CUR | IBV_QP_QKEY},
	{IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
	{IBV_QPS_SQD, IBV_QPS_RTS, 0, CUR | IBV_QP_QKEY},
	{IBV_QPS_SQD, IBV_QPS_SQD, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
	{IBV_QPS_SQE, IBV_QPS_RTS, 0, CUR | IBV_QP_QKEY},
};

/* XRC: the sender alone asks, the receiver alone answers; so each is told its half of RC's. */
static const struct rule xrc_send_rules[] = {
	{IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | ACCESS, 0},
	{IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | ACCESS},
	{IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
	 IBV_QP_ALT_PATH | ACCESS | IBV_QP_PKEY_INDEX},
	{IBV_QPS_RTR, IBV_QPS_RTS,
	 IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		 IBV_QP_MAX_QP_RD_ATOMIC,
	 CUR | IBV_QP_ALT_PATH | ACCESS | IBV_QP_PATH_MIG_STATE},
	{IBV_QPS_RTS, IBV_QPS_RTS, 0, CUR | ACCESS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE},
	{IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
	{IBV_QPS_SQD, IBV_QPS_RTS, 0, CUR | IBV_QP_ALT_PATH | ACCESS | IBV_QP_PATH_MIG_STATE},
};

static const struct rule xrc_recv_rules[] = {
	{IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | ACCESS, 0},
	{IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | ACCESS},
	{IBV_QPS_INIT, IBV_QPS_RTR,
	 IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
		 IBV_QP_MIN_RNR_TIMER,
	 IBV_QP_ALT_PATH | ACCESS | IBV_QP_PKEY_INDEX},
	{IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_TIMEOUT | IBV_QP_SQ_PSN,
	 CUR | IBV_QP_ALT_PATH | ACCESS | IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE},
	{IBV_QPS_RTS, IBV_QPS_RTS, 0,
	 CUR | ACCESS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE | IBV_QP_MIN_RNR_TIMER},
};

#define RULES(table)                                                                               \
	{                                                                                          \
		table, sizeof(table) / sizeof *(table)                                             \
	}
static const struct {
	const struct rule *rule;
	size_t n;
} rules_of[] = {
	[IBV_QPT_RC] = RULES(rc_rules),
	[IBV_QPT_UC] = RULES(uc_rules),
	[IBV_QPT_UD] = RULES(ud_rules),
	[IBV_QPT_XRC_SEND] = RULES(xrc_send_rules),
	[IBV_QPT_XRC_RECV] = RULES(xrc_recv_rules),
};

static int check_rules(const struct sw_qp *qp, enum ibv_qp_state to, int mask)
{
	const struct rule *r = rules_of[qp->ibv.qp_base.qp_type].rule;
	const size_t n = rules_of[qp->ibv.qp_base.qp_type].n;

	if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
		return mask & ~(IBV_QP_STATE | CUR) ? EINVAL : 0;
	for (size_t i = 0; i < n; i++)
		if (r[i].from == qp->state && r[i].to == to)
			return (mask & r[i].need) != r[i].need ||
					       mask & ~(r[i].need | r[i].may | IBV_QP_STATE)
				       ? EINVAL
				       : 0;
	return EINVAL;
}

static int check_values(const struct sw_qp *qp, const struct ibv_qp_attr *a, int mask)
{
	const struct sw_device *dev = qp->dev;

	if (mask & IBV_QP_PORT && (a->port_num < 1 || a->port_num > dev->nports))
		return EINVAL;
	if (mask & IBV_QP_PATH_MTU && (a->path_mtu < IBV_MTU_256 || a->path_mtu > IBV_MTU_4096))
		return EINVAL;
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC && a->max_rd_atomic > dev->p.attr.max_qp_init_rd_atom)
		return EINVAL;
	if (mask & IBV_QP_TIMEOUT && a->timeout > 31)
		return EINVAL;
	if (dev->p.lax_modify)
		return 0;
	if (mask & IBV_QP_PKEY_INDEX && a->pkey_index >= dev->p.npkey)
		return EINVAL;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC && a->max_dest_rd_atomic > dev->p.attr.max_qp_rd_atom)
		return EINVAL;
	if (mask & IBV_QP_RNR_RETRY && a->rnr_retry > 7)
		return EINVAL;
	if (mask & IBV_QP_RETRY_CNT && a->retry_cnt > 7)
		return EINVAL;
	if (mask & IBV_QP_MIN_RNR_TIMER && a->min_rnr_timer > 31)
		return EINVAL;
	return 0;
}

/* The device the address vector leads to; it may be one that doesn't answer. */
static int resolve(struct sw_qp *qp, const struct ibv_ah_attr *av)
{
	int port;

	if (av->is_global) {
		if (av->grh.sgid_index >= SW_MAX_GIDS)
			return EINVAL;
		qp->dest = sw_port_by_gid(&av->grh.dgid, &port);
		return 0;
	}
	if (qp->dev->p.link_layer == IBV_LINK_LAYER_ETHERNET &&
	    qp->dev->p.transport == IBV_TRANSPORT_IB)
		return EINVAL; /* RoCE has no LIDs */
	qp->dest = sw_port_by_lid(av->dlid, &port);
	return 0;
}

static void store(struct sw_qp *qp, const struct ibv_qp_attr *a, int mask)
{
	struct ibv_qp_attr *q = &qp->attr;

	if (mask & ACCESS)
		q->qp_access_flags = a->qp_access_flags;
	if (mask & IBV_QP_PKEY_INDEX)
		q->pkey_index = a->pkey_index;
	if (mask & IBV_QP_PORT)
		q->port_num = a->port_num;
	if (mask & IBV_QP_QKEY)
		q->qkey = a->qkey;
	if (mask & IBV_QP_AV)
		q->ah_attr = a->ah_attr;
	if (mask & IBV_QP_PATH_MTU)
		q->path_mtu = a->path_mtu;
	if (mask & IBV_QP_TIMEOUT)
		q->timeout = a->timeout;
	if (mask & IBV_QP_RETRY_CNT)
		q->retry_cnt = a->retry_cnt;
	if (mask & IBV_QP_RNR_RETRY)
		q->rnr_retry = a->rnr_retry;
	if (mask & IBV_QP_RQ_PSN)
		q->rq_psn = a->rq_psn & 0xffffff;
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
		q->max_rd_atomic = a->max_rd_atomic;
	if (mask & IBV_QP_MIN_RNR_TIMER)
		q->min_rnr_timer = a->min_rnr_timer;
	if (mask & IBV_QP_SQ_PSN)
		q->sq_psn = a->sq_psn & 0xffffff;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
		q->max_dest_rd_atomic = a->max_dest_rd_atomic;
	if (mask & IBV_QP_PATH_MIG_STATE)
		q->path_mig_state = a->path_mig_state;
	if (mask & IBV_QP_DEST_QPN)
		q->dest_qp_num = a->dest_qp_num & 0xffffff;
	if (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY)
		q->en_sqd_async_notify = a->en_sqd_async_notify;
}

/* iWARP: the connection manager makes the connection, and with it RTS; what the user may do is end
 * it. */
static int modify_iwarp(struct sw_qp *qp, const struct ibv_qp_attr *a, int mask)
{
	enum ibv_qp_state to = mask & IBV_QP_STATE ? a->qp_state : qp->state;

	if (mask & IBV_QP_PORT && (a->port_num < 1 || a->port_num > qp->dev->nports))
		return EINVAL;
	if (to == IBV_QPS_RTS && qp->state != IBV_QPS_RTS)
		return EINVAL;
	if (mask & ACCESS)
		qp->attr.qp_access_flags = a->qp_access_flags;
	if (to == IBV_QPS_ERR || (to == IBV_QPS_SQD && qp->state == IBV_QPS_RTS))
		sw_qp_error(qp);
	else if (to == IBV_QPS_RESET)
		sw_qp_reset(qp);
	return 0;
}

void sw_iwarp_connect(struct sw_qp *qp, struct sw_device *dest, uint32_t qpn, uint8_t init_depth,
		      uint8_t resp_res)
{
	qp->dest = dest;
	qp->attr.dest_qp_num = qpn;
	qp->remote = !dest;
	qp->attr.port_num = 1;
	qp->attr.max_rd_atomic = init_depth;
	qp->attr.max_dest_rd_atomic = resp_res;
	qp->attr.qp_access_flags |=
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	qp->state = qp->ibv.qp_base.state = IBV_QPS_RTS;
	sw_wire_state(qp);
}

/* The kernel takes all of RC's attributes for each half of XRC, and leaves out the other half's. */
static int own_half(const struct sw_qp *qp, int mask)
{
	switch (qp->ibv.qp_base.qp_type) {
	case IBV_QPT_XRC_SEND:
		return mask & ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	case IBV_QPT_XRC_RECV:
		return mask & ~(IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
	default:
		return mask;
	}
}

static int modify(struct sw_qp *qp, const struct ibv_qp_attr *a, int mask)
{
	enum ibv_qp_state to = mask & IBV_QP_STATE ? a->qp_state : qp->state;
	int err;

	mask = own_half(qp, mask);
	if (qp->dev->removed && to != IBV_QPS_ERR && to != IBV_QPS_RESET)
		return EIO;
	if (qp->dev->p.transport == IBV_TRANSPORT_IWARP)
		return modify_iwarp(qp, a, mask);
	if (mask & CUR && a->cur_qp_state != qp->state)
		return EINVAL;
	err = check_rules(qp, to, mask);
	if (!err)
		err = check_values(qp, a, mask);
	if (!err && mask & IBV_QP_AV)
		err = resolve(qp, &a->ah_attr);
	if (err)
		return err;
	if (to == IBV_QPS_RESET) {
		sw_qp_reset(qp);
		return 0;
	}
	store(qp, a, mask);
	if (to == IBV_QPS_ERR) {
		sw_qp_error(qp);
		sw_leave(qp);
		return 0;
	}
	if (to == IBV_QPS_SQD && qp->state != IBV_QPS_SQD && qp->attr.en_sqd_async_notify)
		sw_async_qp(qp, IBV_EVENT_SQ_DRAINED);
	qp->state = qp->ibv.qp_base.state = to;
	if (mask & IBV_QP_DEST_QPN)
		qp->remote = sw_net_remote(
			qp->dev, qp->attr.ah_attr.is_global ? &qp->attr.ah_attr.grh.dgid : NULL,
			qp->attr.dest_qp_num);
	sw_wire_state(qp);
	/* Now it can receive what peers were retrying, and send what was posted. */
	if (to == IBV_QPS_RTR || to == IBV_QPS_RTS) {
		sw_kick(qp);
		sw_run(qp);
	}
	return 0;
}

int ibv_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask)
{
	int err = SW_FAULT(modify_qp);

	if (err)
		return err;
	sw_lock();
	err = modify(sw_qp(ibv), attr, mask);
	sw_unlock();
	return err;
}
