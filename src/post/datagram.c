/* SPDX-License-Identifier: BSD-2-Clause */
#include "post/datagram.h"

#include <errno.h>
#include <string.h>

#include "pool/errmsg.h"
#include "pool/mode.h"

void sgp_fill_datagram(const struct sgp_slot *slot, struct sgp_wc *wc)
{
	struct sgp_sgl *sgl = &wc->sgl;
	struct ibv_sge *first = sgl->sge;

	wc->src_qp = slot->from.src_qp;
	wc->slid = slot->from.slid;
	wc->pkey_index = slot->from.pkey_index;
	wc->sl = slot->from.sl;
	wc->dlid_path_bits = slot->from.dlid_path_bits;
	/* The posts have seen to it that the first SGE has room for the header. A device that says
	 * that less than one has arrived is not to be believed. */
	if (!sgl->num_sge || first->length < SGP_GRH)
		return;
	/* The hold stays even if the chunk has nothing but the header. */
	wc->grh = wc->wc_flags & IBV_WC_GRH ? (struct ibv_grh *)(uintptr_t)first->addr : NULL;
	wc->byte_len -= SGP_GRH;
	sgl->length -= SGP_GRH;
	first->addr += SGP_GRH;
	first->length -= SGP_GRH;
	if (!first->length) {
		sgl->num_sge--;
		memmove(first, first + 1, (size_t)sgl->num_sge * sizeof *first);
	}
}

struct ibv_ah *sgp_create_ah_from_wc(struct ibv_pd *pd, const struct sgp_wc *wc, uint8_t port_num)
{
	struct ibv_wc raw;
	struct ibv_ah *ah;

	if (sgp_check_fork())
		return NULL;
	if (!pd || !wc || !wc->src_qp || wc->status != IBV_WC_SUCCESS)
		return sgp_fail_null(EINVAL, "address of a datagram: a protection domain and a "
					     "datagram's completion are needed");
	memset(&raw, 0, sizeof raw);
	raw.wc_flags = wc->wc_flags;
	raw.src_qp = wc->src_qp;
	raw.slid = wc->slid;
	raw.pkey_index = wc->pkey_index;
	raw.sl = wc->sl;
	raw.dlid_path_bits = wc->dlid_path_bits;
	errno = 0;
	ah = ibv_create_ah_from_wc(pd, &raw, wc->grh, port_num);
	if (ah)
		return ah;
	return sgp_fail_null(errno > 0 ? errno : EIO,
			     "no address handle for where the datagram "
			     "came from: %s",
			     strerror(errno));
}
