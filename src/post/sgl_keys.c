/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A list's keys for another protection domain than the one whose it was built with.
 *
 * SGEs and holds are in the same order, each SGE beginning in a hold of its own; holds may lie
 * between that no SGE uses any more. So one walk finds for each SGE the chunk that it begins in, and
 * that chunk's region has the key. Nothing of this is on the way of a list that goes to its pool's
 * first domain.
 */
#include <errno.h>

#include "pool/chunk.h"
#include "pool/errmsg.h"
#include "post/sgl.h"

/* Does the SGE begin in the chunk, and end in its region? */
static bool is_in(const struct ibv_sge *sge, const struct sgp_chunk *chunk)
{
	const struct sgp_piece *piece = &chunk->owner->region.piece;
	uint64_t offset = sge->addr - (uintptr_t)piece->addr;

	return sge->addr - (uintptr_t)chunk->addr < chunk->size && offset < piece->bytes &&
	       sge->length <= piece->bytes - offset;
}

/* The hold that the SGE begins in, looked for from hold number *at on, and all around. */
static const struct sgp_chunk *find_hold(const struct sgp_sgl *sgl, const struct ibv_sge *sge,
					 int *at)
{
	for (int i = 0; i < sgl->num_chunk; i++) {
		const struct sgp_chunk *chunk;

		if (*at >= sgl->num_chunk)
			*at = 0;
		chunk = sgl->chunk[(*at)++];
		if (is_in(sge, chunk))
			return chunk;
	}
	return NULL;
}

uint64_t sgp_sgl_pds_now(const struct sgp_sgl *sgl)
{
	uint64_t pds = UINT64_MAX;

	for (int i = 0; i < sgl->num_chunk; i++)
		pds &= sgp_chunk_pds(sgl->chunk[i]);
	return pds;
}

int sgp_sgl_rekey(struct sgp_sgl *sgl, int pd_index)
{
	uint64_t pds = UINT64_MAX;
	uint32_t access = UINT32_MAX;
	int at = 0;

	/* The regions as they are now: domains may have come and gone since the list was built. */
	for (int i = 0; i < sgl->num_chunk; i++) {
		if (!sgp_chunk_is_on(sgl->chunk[i], pd_index))
			return sgp_fail(EXDEV, "memory that is not registered on the queue's "
					       "protection domain");
		pds &= sgp_chunk_pds(sgl->chunk[i]);
		access &= sgp_chunk_access(sgl->chunk[i]);
	}
	sgl->keys = 0;
	for (int i = 0; i < sgl->num_sge; i++) {
		const struct sgp_chunk *chunk = find_hold(sgl, &sgl->sge[i], &at);

		if (chunk)
			sgl->sge[i].lkey = sgp_chunk_lkey_on(chunk, pd_index);
		else if (!(sgl->flags & SGP_SGL_FOREIGN))
			return sgp_fail(EFAULT, "the list has memory that it does not hold");
	}
	sgl->pds = pds;
	sgl->access = access;
	sgl->keys = UINT64_C(1) << pd_index;
	return 0;
}
