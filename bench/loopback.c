/* SPDX-License-Identifier: BSD-2-Clause */
/* A queue pair connected to itself, see loopback.h. */
#include "loopback.h"

int loopback_to_rts(struct ibv_qp *qp, unsigned int access)
{
	struct ibv_port_attr port;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access};

	if (ibv_query_port(qp->context, 1, &port) ||
	    ibv_modify_qp(qp, &attr,
			  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		return -1;
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
				    .path_mtu = port.active_mtu,
				    .dest_qp_num = qp->qp_num,
				    .max_dest_rd_atomic = 1,
				    .min_rnr_timer = 12,
				    .ah_attr = {.dlid = 1,
						.port_num = 1,
						.is_global = 1,
						.grh = {.hop_limit = 1, .sgid_index = 0}}};
	if (ibv_query_gid(qp->context, 1, 0, &attr.ah_attr.grh.dgid) ||
	    ibv_modify_qp(qp, &attr,
			  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		return -1;
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
				    .timeout = 14,
				    .retry_cnt = 7,
				    .rnr_retry = 7,
				    .max_rd_atomic = 1};
	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC)
		       ? -1
		       : 0;
}
