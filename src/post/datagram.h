/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a UD queue pair's receives have besides: 40 bytes for the routing header before the payload,
 * and where it came from.
 */
#ifndef SGP_DATAGRAM_H
#define SGP_DATAGRAM_H

#include "post/queue.h"

#define SGP_GRH 40

/* Keep where a datagram came from until it is handed out. */
static inline void sgp_note_origin(struct sgp_slot *slot, const struct ibv_wc *raw)
{
	slot->from = (struct sgp_origin){.src_qp = raw->src_qp,
					 .slid = raw->slid,
					 .pkey_index = raw->pkey_index,
					 .sl = raw->sl,
					 .dlid_path_bits = raw->dlid_path_bits};
}

/* The completion's list, cut to what arrived, skips the header; where it came from is filled in. */
void sgp_fill_datagram(const struct sgp_slot *slot, struct sgp_wc *wc);

#endif
