/* SPDX-License-Identifier: BSD-2-Clause */
#include "sgpool/sgl.h"

void sgp_sgl_init(struct sgp_sgl *sgl, struct ibv_sge *sge, int max_sge, struct sgp_chunk **chunk,
		  int max_chunk)
{
	*sgl = (struct sgp_sgl){.sge = sge,
				.chunk = chunk,
				.max_sge = max_sge,
				.max_chunk = max_chunk,
				.pds = UINT64_MAX,
				.access = UINT32_MAX};
}
