/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The work request: how it is filled, and what a provider's answer to it means.
 */
#ifndef SGP_WR_H
#define SGP_WR_H

#include <infiniband/verbs.h>

#include "sgpool/sgl.h"

/* Fill in a send request of one list. */
void sgp_wr_fill(struct ibv_send_wr *wr, uint64_t wr_id, const struct sgp_sgl *sgl,
		 enum ibv_wr_opcode opcode, unsigned int flags);

/* What the device did with a request that was posted. */
enum sgp_verdict {
	SGP_WR_TAKEN,   /* it's queued: a completion will come */
	SGP_WR_REFUSED, /* it's not: nothing changed */
	SGP_WR_UNSURE,  /* it's queued, but the provider reported an error (err): hold on to it */
};

/*
 * Judge the answer of ibv_post_send(3) or ibv_post_recv(3) to a single request: its return value
 * and bad_wr, which was NULL before the call, as errno was 0. Sets *err to a positive errno, unless
 * TAKEN. ibv_post_send(3) promises 0, or a positive errno with bad_wr set; providers also give (law
 * 1) a negative errno, -1 with errno, 0 with bad_wr set, and an error with bad_wr NULL when only
 * the doorbell failed.
 */
enum sgp_verdict sgp_wr_judge(int ret, const void *bad_wr, int *err);

#endif
