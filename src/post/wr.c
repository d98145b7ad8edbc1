/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>

#include "pool/errmsg.h"
#include "post/wr.h"

void sgp_wr_fill(struct ibv_send_wr *wr, uint64_t wr_id, const struct sgp_sgl *sgl,
		 enum ibv_wr_opcode opcode, unsigned int flags)
{
	*wr = (struct ibv_send_wr){
		.wr_id = wr_id,
		.sg_list = sgl->sge,
		.num_sge = sgl->num_sge,
		.opcode = opcode,
		.send_flags = flags,
	};
}

enum sgp_verdict sgp_wr_judge(int ret, const void *bad_wr, int *err)
{
	if (!ret && !bad_wr)
		return SGP_WR_TAKEN;
	/* 0 with bad_wr set is siw's: the doorbell's result overwrote the error. */
	*err = ret ? sgp_provider_errno(ret) : EIO;
	return bad_wr ? SGP_WR_REFUSED : SGP_WR_UNSURE;
}
