/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is done to lists that stand: moved, cloned, trimmed, split, copied into one chunk, described
 * for others.
 */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "pool/chunk.h"
#include "pool/errmsg.h"
#include "post/sgl.h"

/* ---- from one list to another ---- */

static int check_transfer(const struct sgp_sgl *dst, const struct sgp_sgl *src)
{
	if (!dst || !src || dst == src)
		return sgp_fail(EINVAL, "lists: from one to another");
	if (!sgp_sgl_meet(dst->pds, src->pds) &&
	    !sgp_sgl_meet(sgp_sgl_pds_now(dst), sgp_sgl_pds_now(src)))
		return sgp_fail(EXDEV, "lists: they share no protection domain");
	if (src->num_sge > dst->max_sge - dst->num_sge ||
	    src->num_chunk > dst->max_chunk - dst->num_chunk)
		return sgp_fail(E2BIG, "lists: %d SGEs and %d holds more than there is room for",
				src->num_sge, src->num_chunk);
	return 0;
}

/* Append src's SGEs and holds to dst; whose references these are then is the caller's matter. */
static void copy_entries(struct sgp_sgl *dst, const struct sgp_sgl *src)
{
	if (src->num_sge)
		memcpy(dst->sge + dst->num_sge, src->sge, src->num_sge * sizeof *src->sge);
	if (src->num_chunk)
		memcpy(dst->chunk + dst->num_chunk, src->chunk,
		       src->num_chunk * sizeof(struct sgp_chunk *));
	dst->num_sge += src->num_sge;
	dst->num_chunk += src->num_chunk;
	dst->length += src->length;
	dst->pds &= src->pds;
	dst->keys &= src->keys;
	dst->access &= src->access;
	dst->flags |= src->flags;
}

int sgp_sgl_move(struct sgp_sgl *dst, struct sgp_sgl *src)
{
	if (check_transfer(dst, src))
		return -1;
	copy_entries(dst, src);
	sgp_sgl_reset(src);
	return 0;
}

int sgp_sgl_clone(struct sgp_sgl *dst, const struct sgp_sgl *src)
{
	if (check_transfer(dst, src))
		return -1;
	for (int i = 0; i < src->num_chunk; i++)
		sgp_chunk_ref(src->chunk[i]);
	copy_entries(dst, src);
	return 0;
}

/* ---- shorter ---- */

/* Whether any of n SGEs touches the chunk's memory. The later ones are asked first. */
static bool uses(const struct ibv_sge *sge, int n, const struct sgp_chunk *chunk)
{
	uint64_t start = (uintptr_t)chunk->addr;
	uint64_t end = start + chunk->size;

	while (n-- > 0)
		if (sge[n].addr < end && sge[n].addr + sge[n].length > start)
			return true;
	return false;
}

/* Drop the holds that none of the list's SGEs uses; the others keep their order. */
static void drop_unused(struct sgp_sgl *sgl)
{
	int kept = 0;

	for (int i = 0; i < sgl->num_chunk; i++) {
		struct sgp_chunk *chunk = sgl->chunk[i];

		if (uses(sgl->sge, sgl->num_sge, chunk))
			sgl->chunk[kept++] = chunk;
		else
			sgp_chunk_put(chunk);
	}
	sgl->num_chunk = kept;
}

void sgp_sgl_cut(struct sgp_sgl *sgl, uint64_t length)
{
	uint64_t excess;

	if (length >= sgl->length)
		return;
	excess = sgl->length - length;
	while (excess && excess >= sgl->sge[sgl->num_sge - 1].length)
		excess -= sgl->sge[--sgl->num_sge].length;
	if (excess)
		sgl->sge[sgl->num_sge - 1].length -= (uint32_t)excess;
	sgl->length = length;
	drop_unused(sgl);
	if (!length)
		sgp_sgl_reset(sgl); /* domains and rights of what it had bind it no more */
}

/* Whether the list holds the memory that the SGE begins in. */
static bool has_hold_of(const struct sgp_sgl *sgl, const struct ibv_sge *sge)
{
	for (int i = 0; i < sgl->num_chunk; i++)
		if (sge->addr - (uintptr_t)sgl->chunk[i]->addr < sgl->chunk[i]->size)
			return true;
	return false;
}

/* The list has lost some of what it was made of: what that alone had brought is not said of the rest. */
static void restate(struct sgp_sgl *sgl)
{
	bool foreign = false;

	if (!sgl->num_chunk && !sgl->num_sge) {
		sgp_sgl_reset(sgl);
		return;
	}
	sgl->pds = UINT64_MAX;
	sgl->access = UINT32_MAX;
	for (int i = 0; i < sgl->num_chunk; i++) {
		sgl->pds &= sgp_chunk_pds(sgl->chunk[i]);
		sgl->access &= sgp_chunk_access(sgl->chunk[i]);
	}
	if (!(sgl->flags & SGP_SGL_FOREIGN))
		return;
	for (int i = 0; i < sgl->num_sge && !foreign; i++)
		foreign = !has_hold_of(sgl, &sgl->sge[i]);
	if (foreign)
		return;
	sgl->flags &= ~(uint32_t)SGP_SGL_FOREIGN;
	/* What came as foreign may be held by another slice: it has no key yet. */
	sgl->keys = 0;
}

int sgp_sgl_trim(struct sgp_sgl *sgl, uint64_t length)
{
	if (!sgl || length > sgl->length)
		return sgp_fail(EINVAL, "trim: the list is shorter");
	if (length == sgl->length)
		return 0;
	sgp_sgl_cut(sgl, length);
	restate(sgl);
	return 0;
}

int sgp_sgl_split(struct sgp_sgl *sgl, uint64_t length, struct sgp_sgl *dst)
{
	uint64_t before = 0;
	int first = 0, moved, holds = 0;
	uint32_t inside;

	if (!sgl || !dst || sgl == dst || dst->num_sge || dst->num_chunk || length > sgl->length)
		return sgp_fail(EINVAL, "split: the list is shorter, or the other is not empty");
	while (first < sgl->num_sge && before + sgl->sge[first].length <= length)
		before += sgl->sge[first++].length;
	inside = (uint32_t)(length - before); /* bytes of sge[first] that stay */
	moved = sgl->num_sge - first;
	if (moved > dst->max_sge)
		return sgp_fail(E2BIG, "split: %d SGEs go over", moved);
	if (moved)
		memcpy(dst->sge, sgl->sge + first, (size_t)moved * sizeof *dst->sge);
	if (inside) {
		dst->sge[0].addr += inside;
		dst->sge[0].length -= inside;
	}
	for (int i = 0; i < sgl->num_chunk; i++) {
		if (!uses(dst->sge, moved, sgl->chunk[i]))
			continue;
		if (holds == dst->max_chunk)
			return sgp_fail(E2BIG, "split: more than %d holds go over", holds);
		dst->chunk[holds++] = sgl->chunk[i];
	}

	for (int i = 0; i < holds; i++)
		sgp_chunk_ref(dst->chunk[i]);
	dst->num_sge = moved;
	dst->num_chunk = holds;
	dst->length = sgl->length - length;
	dst->pds = sgl->pds;
	dst->keys = sgl->keys;
	dst->access = sgl->access;
	dst->flags = sgl->flags;
	restate(dst);
	return sgp_sgl_trim(sgl, length);
}

/* ---- in one piece ---- */

int sgp_sgl_refuse_unmapped(void)
{
	return sgp_fail(EOPNOTSUPP,
			"the list has memory that the processor can't reach (a dma-buf): it "
			"is neither copied nor sent inline");
}

void sgp_sgl_gather(const struct sgp_sgl *sgl, void *to)
{
	char *at = to;

	for (int i = 0; i < sgl->num_sge; i++) {
		memcpy(at, (const void *)(uintptr_t)sgl->sge[i].addr, sgl->sge[i].length);
		at += sgl->sge[i].length;
	}
}

int sgp_sgl_linearise(struct sgp_sgl *sgl, struct sgp_pool *pool)
{
	struct sgp_chunk *chunk;
	uint64_t length;

	if (!sgl || !pool)
		return sgp_fail(EINVAL, "linearise: a list and a pool are needed");
	if (!sgl->length)
		return 0;
	if (sgp_sgl_check_mapped(sgl))
		return -1;
	if (sgl->max_chunk < 1 || sgl->max_sge < 1)
		return sgp_fail(E2BIG, "linearise: the list has no room at all");
	chunk = sgp_pool_get(pool, sgl->length, 0);
	if (!chunk)
		return -1;
	length = sgl->length;
	sgp_sgl_gather(sgl, chunk->addr);
	sgp_sgl_clear(sgl);
	return sgp_sgl_append(sgl, chunk, 0, length);
}

int sgp_sgl_iovec(const struct sgp_sgl *sgl, struct iovec *iov, int max)
{
	if (!sgl || sgl->num_sge > max || (max && !iov))
		return sgp_fail(sgl && iov ? E2BIG : EINVAL, "iovec: room for %d is too little",
				max);
	if (sgp_sgl_check_mapped(sgl))
		return -1;
	for (int i = 0; i < sgl->num_sge; i++)
		iov[i] = (struct iovec){.iov_base = (void *)(uintptr_t)sgl->sge[i].addr,
					.iov_len = sgl->sge[i].length};
	return sgl->num_sge;
}
