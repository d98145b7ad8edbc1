/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The work request: how it is filled, and what a provider's answer to a chain of them means.
 */
#ifndef SGP_WR_H
#define SGP_WR_H

#include <infiniband/verbs.h>

#include "sgpool/post.h"

/* Fill in a send request from what the caller asked for. sge[num_sge] stays the caller's array;
 * offset: where in the remote range it starts, for a part of a longer transfer. */
void sgp_wr_fill(struct ibv_send_wr *wr, const struct sgp_wr *from, uint64_t wr_id,
		 struct ibv_sge *sge, int num_sge, unsigned int send_flags, uint64_t offset);

/* Fill in a request that does nothing: a zero-length RDMA WRITE needs no memory, no key, and no
 * receive at the peer. */
void sgp_wr_fill_nothing(struct ibv_send_wr *wr, uint64_t wr_id, unsigned int send_flags);

/*
 * Judge the answer of ibv_post_send(3) or ibv_post_recv(3) to a chain: its return value and bad_wr,
 * which was NULL before the call, as errno was 0.
 *
 * Returns 0 when the device took the whole chain, else a positive errno, and *untaken is the first
 * request that it did not take: NULL if it has queued them all but reported an error, so that they
 * must be held on to. ibv_post_send(3) promises 0, or a positive errno with bad_wr set; providers
 * also give (law 1) a negative errno, -1 with errno, 0 with bad_wr set when the doorbell's result
 * overwrote the error, and an error with bad_wr NULL when only the doorbell failed.
 */
int sgp_wr_judge(int ret, void *bad_wr, void **untaken);

#endif
