/* SPDX-License-Identifier: BSD-2-Clause */
/* Plain queue pairs, without a connection manager: from RESET to RTS, towards each other. */
#ifndef TESTS_PLAIN_H
#define TESTS_PLAIN_H

#include <infiniband/verbs.h>
#include <stdbool.h>

/* To INIT, with all remote rights. Returns 0 or the errno of ibv_modify_qp(3). */
static inline int plain_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
				   .port_num = 1,
				   .qp_access_flags = IBV_ACCESS_REMOTE_READ |
						      IBV_ACCESS_REMOTE_WRITE |
						      IBV_ACCESS_REMOTE_ATOMIC};

	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS);
}

/* From INIT to RTS of a connected queue pair, with queue pair number `to` of the same port at the other end. */
static inline int plain_join(struct ibv_qp *qp, uint32_t to, uint8_t rnr_retry, uint8_t rnr_timer)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
				   .path_mtu = IBV_MTU_1024,
				   .dest_qp_num = to,
				   .max_dest_rd_atomic = 4,
				   .min_rnr_timer = rnr_timer};
	/* On UC nobody answers, and nothing is said of answers. */
	const bool uc = qp->qp_type == IBV_QPT_UC;
	const int answered = uc ? 0 : IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	const int asked =
		uc ? 0
		   : IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	int err;

	attr.ah_attr.is_global = 1;
	attr.ah_attr.port_num = 1;
	err = ibv_query_gid(qp->context, 1, 0, &attr.ah_attr.grh.dgid);
	if (!err)
		err = ibv_modify_qp(qp, &attr,
				    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					    IBV_QP_RQ_PSN | answered);
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = 3;
	attr.rnr_retry = rnr_retry;
	attr.max_rd_atomic = 4;
	if (!err)
		err = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | asked);
	return err;
}

#endif
