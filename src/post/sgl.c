/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The scatter-gather list: pure arithmetic on the caller's arrays. Nothing here allocates, locks or
 * calls verbs. A hold is never joined with another; an SGE is, when it continues the one before it
 * inside one region.
 */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "pool/chunk.h"
#include "pool/errmsg.h"
#include "post/sgl.h"

/* An SGE stays below 2^31: one provider encodes a length of 0 as 0x80000000 (law 3). */
#define MAX_SGE_LENGTH INT32_MAX

void sgp_sgl_init(struct sgp_sgl *sgl, struct ibv_sge *sge, int max_sge, struct sgp_chunk **chunk,
		  int max_chunk)
{
	*sgl = (struct sgp_sgl){
		.sge = sge, .chunk = chunk, .max_sge = max_sge, .max_chunk = max_chunk};
	sgp_sgl_reset(sgl);
}

/* Whether a slice would continue the last SGE: adjacent in memory, and of the same registration. */
static bool joins(const struct sgp_sgl *sgl, const struct sgp_chunk *chunk,
		  const struct ibv_sge *slice)
{
	const struct ibv_sge *last;

	if (!sgl->num_sge)
		return false;
	last = &sgl->sge[sgl->num_sge - 1];
	return last->addr + last->length == slice->addr && last->lkey == slice->lkey &&
	       (uint64_t)last->length + slice->length <= MAX_SGE_LENGTH &&
	       sgp_chunk_region(sgl->chunk[sgl->num_chunk - 1]) == sgp_chunk_region(chunk);
}

int sgp_sgl_append(struct sgp_sgl *sgl, struct sgp_chunk *chunk, size_t offset, size_t length)
{
	struct ibv_sge slice;
	uint64_t pds;
	size_t size;
	bool join;

	if (!sgl || !chunk)
		return sgp_fail(EINVAL, "append: no list or no chunk");
	if (length > MAX_SGE_LENGTH)
		return sgp_fail(EINVAL, "append: a slice of %zu bytes; at most %d", length,
				MAX_SGE_LENGTH);
	size = sgp_chunk_size(chunk);
	if (offset > size || length > size - offset)
		return sgp_fail(EFAULT, "append: bytes %zu to %zu of a chunk of %zu", offset,
				offset + length, size);
	pds = sgl->pds & sgp_chunk_pds(chunk);
	if (!pds)
		return sgp_fail(EXDEV,
				"append: the chunk shares no protection domain with the list");
	slice = (struct ibv_sge){.addr = (uintptr_t)sgp_chunk_addr(chunk) + offset,
				 .length = (uint32_t)length,
				 .lkey = sgp_chunk_lkey(chunk)};
	join = length && joins(sgl, chunk, &slice);
	if (sgl->num_chunk == sgl->max_chunk || (length && !join && sgl->num_sge == sgl->max_sge))
		return sgp_fail(E2BIG, "append: the list is full (%d SGEs, %d holds)", sgl->max_sge,
				sgl->max_chunk);

	if (join)
		sgl->sge[sgl->num_sge - 1].length += slice.length;
	else if (length)
		sgl->sge[sgl->num_sge++] = slice;
	sgl->chunk[sgl->num_chunk++] = chunk;
	sgl->length += length;
	sgl->pds = pds;
	sgl->access &= sgp_chunk_access(chunk);
	return 0;
}

void sgp_sgl_clear(struct sgp_sgl *sgl)
{
	sgp_chunk_put_bulk(sgl->chunk, sgl->num_chunk);
	sgp_sgl_reset(sgl);
}

int sgp_sgl_move(struct sgp_sgl *dst, struct sgp_sgl *src)
{
	uint64_t pds;

	if (!dst || !src || dst == src)
		return sgp_fail(EINVAL, "move: from one list to another");
	pds = dst->pds & src->pds;
	if (!pds)
		return sgp_fail(EXDEV, "move: the lists share no protection domain");
	if (src->num_sge > dst->max_sge - dst->num_sge ||
	    src->num_chunk > dst->max_chunk - dst->num_chunk)
		return sgp_fail(E2BIG, "move: %d SGEs and %d holds more than the list takes",
				src->num_sge, src->num_chunk);
	if (src->num_sge)
		memcpy(dst->sge + dst->num_sge, src->sge, src->num_sge * sizeof *src->sge);
	if (src->num_chunk)
		memcpy(dst->chunk + dst->num_chunk, src->chunk,
		       src->num_chunk * sizeof(struct sgp_chunk *));
	dst->num_sge += src->num_sge;
	dst->num_chunk += src->num_chunk;
	dst->length += src->length;
	dst->pds = pds;
	dst->access &= src->access;
	sgp_sgl_reset(src);
	return 0;
}

int sgp_sgl_iovec(const struct sgp_sgl *sgl, struct iovec *iov, int max)
{
	if (sgl->num_sge > max)
		return sgp_fail(E2BIG, "iovec: the list has %d SGEs, there is room for %d",
				sgl->num_sge, max);
	for (int i = 0; i < sgl->num_sge; i++)
		iov[i] = (struct iovec){.iov_base = (void *)(uintptr_t)sgl->sge[i].addr,
					.iov_len = sgl->sge[i].length};
	return sgl->num_sge;
}

/* Whether any of the list's SGEs touches the chunk's memory. The later ones are asked first. */
static bool uses(const struct sgp_sgl *sgl, const struct sgp_chunk *chunk)
{
	uint64_t start = (uintptr_t)sgp_chunk_addr(chunk);
	uint64_t end = start + sgp_chunk_size(chunk);

	for (int i = sgl->num_sge - 1; i >= 0; i--)
		if (sgl->sge[i].addr < end && sgl->sge[i].addr + sgl->sge[i].length > start)
			return true;
	return false;
}

void sgp_sgl_cut(struct sgp_sgl *sgl, uint64_t length)
{
	uint64_t excess;
	int kept;

	if (length >= sgl->length)
		return;
	excess = sgl->length - length;
	while (excess && excess >= sgl->sge[sgl->num_sge - 1].length)
		excess -= sgl->sge[--sgl->num_sge].length;
	if (excess)
		sgl->sge[sgl->num_sge - 1].length -= (uint32_t)excess;
	sgl->length = length;

	kept = sgl->num_chunk;
	while (kept && !uses(sgl, sgl->chunk[kept - 1]))
		kept--;
	sgp_chunk_put_bulk(sgl->chunk + kept, sgl->num_chunk - kept);
	sgl->num_chunk = kept;
}
