/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Building a scatter-gather list: pure arithmetic on the caller's arrays. Nothing here allocates,
 * locks or calls verbs. A hold is never joined with another; an SGE is, when it continues the one
 * before it inside one registration.
 */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "pool/chunk.h"
#include "pool/errmsg.h"
#include "post/sgl.h"

void sgp_sgl_init(struct sgp_sgl *sgl, struct ibv_sge *sge, int max_sge, struct sgp_chunk **chunk,
		  int max_chunk)
{
	*sgl = (struct sgp_sgl){
		.sge = sge, .chunk = chunk, .max_sge = max_sge, .max_chunk = max_chunk};
	sgp_sgl_reset(sgl);
}

/* ---- a slice at either end ---- */

/* Whether b continues a: adjacent in memory, of one registration, and not too long together. */
static bool continues(const struct ibv_sge *a, const struct sgp_chunk *held_by_a,
		      const struct ibv_sge *b, const struct sgp_chunk *held_by_b)
{
	return a->addr + a->length == b->addr && a->lkey == b->lkey &&
	       (uint64_t)a->length + b->length <= SGP_MAX_SGE_LENGTH &&
	       sgp_chunk_region(held_by_a) == sgp_chunk_region(held_by_b);
}

static int check_slice(const struct sgp_sgl *sgl, const struct sgp_chunk *chunk, size_t offset,
		       size_t length)
{
	size_t size;

	if (!sgl || !chunk)
		return sgp_fail(EINVAL, "slice: no list or no chunk");
	if (length > SGP_MAX_SGE_LENGTH)
		return sgp_fail(EINVAL, "slice: %zu bytes; at most %d", length, SGP_MAX_SGE_LENGTH);
	size = sgp_chunk_size(chunk);
	if (offset > size || length > size - offset)
		return sgp_fail(EFAULT, "slice: %zu bytes from %zu on, of a chunk of %zu", length,
				offset, size);
	if (!(sgl->pds & sgp_chunk_pds(chunk)))
		return sgp_fail(EXDEV,
				"slice: the chunk shares no protection domain with the list");
	return 0;
}

static struct ibv_sge slice_of(const struct sgp_chunk *chunk, size_t offset, size_t length)
{
	return (struct ibv_sge){.addr = (uintptr_t)sgp_chunk_addr(chunk) + offset,
				.length = (uint32_t)length,
				.lkey = sgp_chunk_lkey(chunk)};
}

static int full(const struct sgp_sgl *sgl)
{
	return sgp_fail(E2BIG, "the list is full: %d SGEs and %d holds", sgl->max_sge,
			sgl->max_chunk);
}

/* What a slice adds besides its SGE. */
static void account(struct sgp_sgl *sgl, const struct sgp_chunk *chunk, size_t length)
{
	sgl->num_chunk++;
	sgl->length += length;
	sgl->pds &= sgp_chunk_pds(chunk);
	sgl->access &= sgp_chunk_access(chunk);
}

int sgp_sgl_append(struct sgp_sgl *sgl, struct sgp_chunk *chunk, size_t offset, size_t length)
{
	struct ibv_sge slice, *last;
	bool join;

	if (check_slice(sgl, chunk, offset, length))
		return -1;
	slice = slice_of(chunk, offset, length);
	last = sgl->num_sge ? &sgl->sge[sgl->num_sge - 1] : NULL;
	join = last && sgl->num_chunk &&
	       continues(last, sgl->chunk[sgl->num_chunk - 1], &slice, chunk);
	if (sgl->num_chunk == sgl->max_chunk || (length && !join && sgl->num_sge == sgl->max_sge))
		return full(sgl);
	if (join)
		last->length += slice.length;
	else if (length)
		sgl->sge[sgl->num_sge++] = slice;
	sgl->chunk[sgl->num_chunk] = chunk;
	account(sgl, chunk, length);
	return 0;
}

int sgp_sgl_prepend(struct sgp_sgl *sgl, struct sgp_chunk *chunk, size_t offset, size_t length)
{
	struct ibv_sge slice;
	bool join;

	if (check_slice(sgl, chunk, offset, length))
		return -1;
	slice = slice_of(chunk, offset, length);
	join = sgl->num_sge && sgl->num_chunk &&
	       continues(&slice, chunk, &sgl->sge[0], sgl->chunk[0]);
	if (sgl->num_chunk == sgl->max_chunk || (length && !join && sgl->num_sge == sgl->max_sge))
		return full(sgl);
	if (join) {
		sgl->sge[0].addr = slice.addr;
		sgl->sge[0].length += slice.length;
	} else if (length) {
		memmove(sgl->sge + 1, sgl->sge, sgl->num_sge * sizeof *sgl->sge);
		sgl->sge[0] = slice;
		sgl->num_sge++;
	}
	memmove(sgl->chunk + 1, sgl->chunk, sgl->num_chunk * sizeof(struct sgp_chunk *));
	sgl->chunk[0] = chunk;
	account(sgl, chunk, length);
	return 0;
}

/* ---- several slices at once: all or none ---- */

/* Where a list stood: what appends change in place, so that they can be taken back. */
struct mark {
	struct sgp_sgl sgl;
	uint32_t last_length;
};

static struct mark mark(const struct sgp_sgl *sgl)
{
	return (struct mark){.sgl = *sgl,
			     .last_length = sgl->num_sge ? sgl->sge[sgl->num_sge - 1].length : 0};
}

/* Take back what was appended since; the references too, if they were the list's own. */
static int back_to(struct sgp_sgl *sgl, const struct mark *m, bool drop)
{
	int err = errno;

	if (drop)
		sgp_chunk_put_bulk(sgl->chunk + m->sgl.num_chunk,
				   (size_t)(sgl->num_chunk - m->sgl.num_chunk));
	*sgl = m->sgl;
	if (sgl->num_sge)
		sgl->sge[sgl->num_sge - 1].length = m->last_length;
	errno = err;
	return -1;
}

int sgp_sgl_get(struct sgp_sgl *sgl, struct sgp_pool *pool, size_t size, int n, int flags)
{
	struct mark m;

	if (!sgl || !pool || n < 0)
		return sgp_fail(EINVAL, "chunks as a list: no list, no pool, or %d of them", n);
	if (n > sgl->max_chunk - sgl->num_chunk)
		return full(sgl);
	m = mark(sgl);
	/* Straight into the list's own array: they are its holds once they are appended. */
	if (sgp_pool_get_bulk(pool, size, flags, sgl->chunk + sgl->num_chunk, (size_t)n))
		return -1;
	for (int i = 0; i < n; i++) {
		struct sgp_chunk *chunk = sgl->chunk[m.sgl.num_chunk + i];

		if (sgp_sgl_append(sgl, chunk, 0, size)) {
			int err = errno;

			sgp_chunk_put_bulk(sgl->chunk + m.sgl.num_chunk, (size_t)n);
			errno = err;
			return back_to(sgl, &m, false);
		}
	}
	return 0;
}

/* Appends of a range, chunk by chunk, each with a reference of the list's own; may stop half-way.
 */
static int append_range(struct sgp_sgl *sgl, struct sgp_pool *pool, uintptr_t addr, size_t length)
{
	while (length) {
		struct sgp_chunk *chunk = sgp_pool_chunk_at(pool, (const void *)addr);
		size_t offset, piece;

		if (!chunk)
			return -1;
		offset = addr - (uintptr_t)sgp_chunk_addr(chunk);
		piece = sgp_chunk_size(chunk) - offset;
		if (piece > length)
			piece = length;
		sgp_chunk_ref(chunk);
		if (sgp_sgl_append(sgl, chunk, offset, piece)) {
			sgp_chunk_put(chunk);
			return -1;
		}
		addr += piece;
		length -= piece;
	}
	return 0;
}

int sgp_sgl_append_iov(struct sgp_sgl *sgl, struct sgp_pool *pool, const struct iovec *iov, int n)
{
	struct mark m;

	if (!sgl || !pool || n < 0 || (n && !iov))
		return sgp_fail(EINVAL, "append: a list, its pool and an array are needed");
	m = mark(sgl);
	for (int i = 0; i < n; i++)
		if (append_range(sgl, pool, (uintptr_t)iov[i].iov_base, iov[i].iov_len))
			return back_to(sgl, &m, true);
	return 0;
}

int sgp_sgl_append_addr(struct sgp_sgl *sgl, struct sgp_pool *pool, const void *addr, size_t length)
{
	struct iovec one = {.iov_base = (void *)(uintptr_t)addr, .iov_len = length};

	return sgp_sgl_append_iov(sgl, pool, &one, 1);
}

int sgp_sgl_append_sge(struct sgp_sgl *sgl, struct sgp_pool *pool, const struct ibv_sge *sge, int n)
{
	struct mark m;

	if (!sgl || !pool || n < 0 || (n && !sge))
		return sgp_fail(EINVAL, "append: a list, its pool and an array are needed");
	m = mark(sgl);
	for (int i = 0; i < n; i++)
		if (append_range(sgl, pool, (uintptr_t)sge[i].addr, sge[i].length))
			return back_to(sgl, &m, true);
	return 0;
}

int sgp_sgl_append_foreign(struct sgp_sgl *sgl, const void *addr, size_t length)
{
	if (!sgl || (length && !addr) || length > SGP_MAX_SGE_LENGTH)
		return sgp_fail(EINVAL, "append: no list, no memory, or over %d bytes",
				SGP_MAX_SGE_LENGTH);
	if (!length)
		return 0;
	if (sgl->num_sge == sgl->max_sge)
		return full(sgl);
	sgl->sge[sgl->num_sge++] =
		(struct ibv_sge){.addr = (uintptr_t)addr, .length = (uint32_t)length};
	sgl->length += length;
	sgl->flags |= SGP_SGL_FOREIGN;
	return 0;
}

void sgp_sgl_clear(struct sgp_sgl *sgl)
{
	sgp_chunk_put_bulk(sgl->chunk, (size_t)sgl->num_chunk);
	sgp_sgl_reset(sgl);
}
