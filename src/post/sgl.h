/* SPDX-License-Identifier: BSD-2-Clause */
/* What the queues do to a list besides the public calls. */
#ifndef SGP_SGL_H
#define SGP_SGL_H

#include "sgpool/sgl.h"

/* Empty the list without dropping its holds: they have moved elsewhere. */
static inline void sgp_sgl_reset(struct sgp_sgl *sgl)
{
	sgl->num_sge = 0;
	sgl->num_chunk = 0;
	sgl->length = 0;
	sgl->pds = UINT64_MAX;
	sgl->access = UINT32_MAX;
}

/* Cut the list to its first length bytes and drop the holds whose memory is not in it any more. */
void sgp_sgl_cut(struct sgp_sgl *sgl, uint64_t length);

#endif
