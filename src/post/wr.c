/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>

#include "pool/errmsg.h"
#include "post/wr.h"

void sgp_wr_fill(struct ibv_send_wr *wr, const struct sgp_wr *from, uint64_t wr_id,
		 struct ibv_sge *sge, int num_sge, unsigned int send_flags, uint64_t offset)
{
	/* Members that the opcode does not use stay as they are: a provider does not read them. */
	wr->wr_id = wr_id;
	wr->next = NULL;
	wr->sg_list = sge;
	wr->num_sge = num_sge;
	wr->opcode = from->opcode;
	wr->send_flags = send_flags;
	switch (from->opcode) {
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		wr->imm_data = from->imm_data;
		/* fall through */
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_READ:
		wr->wr.rdma.remote_addr = from->remote_addr + offset;
		wr->wr.rdma.rkey = from->rkey;
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		wr->wr.atomic.remote_addr = from->remote_addr;
		wr->wr.atomic.rkey = from->rkey;
		wr->wr.atomic.compare_add = from->compare_add;
		wr->wr.atomic.swap = from->swap;
		break;
	case IBV_WR_SEND_WITH_INV:
		wr->invalidate_rkey = from->invalidate_rkey;
		/* libsiw's push_send_wqe() looks for the key here; no other provider does. */
		wr->wr.rdma.rkey = from->invalidate_rkey;
		break;
	default:
		/* imm_data and invalidate_rkey are one union in both structures. */
		wr->imm_data = from->imm_data;
		if (from->ah) {
			wr->wr.ud.ah = from->ah;
			wr->wr.ud.remote_qpn = from->remote_qpn;
			wr->wr.ud.remote_qkey = from->remote_qkey;
		}
		break;
	}
}

void sgp_wr_fill_nothing(struct ibv_send_wr *wr, uint64_t wr_id, unsigned int send_flags)
{
	static const struct sgp_wr nothing = {.opcode = IBV_WR_RDMA_WRITE};

	sgp_wr_fill(wr, &nothing, wr_id, NULL, 0, send_flags, 0);
}

int sgp_wr_judge(int ret, void *bad_wr, void **untaken)
{
	*untaken = bad_wr;
	if (!ret && !bad_wr)
		return 0;
	return ret ? sgp_provider_errno(ret) : EIO;
}
