/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Building a scatter-gather list: pure arithmetic on the caller's arrays. Nothing here allocates,
 * locks or calls verbs. A hold is never joined with another; an SGE is, when it continues the one
 * before it inside one registration.
 */
#define SGP_NO_INLINE
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "pool/chunk.h"
#include "pool/errmsg.h"
#include "pool/import.h"
#include "pool/watch.h"
#include "pool/get.h"
#include "post/sgl.h"

void sgp_sgl_init(struct sgp_sgl *sgl, struct ibv_sge *sge, int max_sge, struct sgp_chunk **chunk,
		  int max_chunk)
{
	*sgl = (struct sgp_sgl){
		.sge = sge, .chunk = chunk, .max_sge = max_sge, .max_chunk = max_chunk};
	sgp_sgl_reset(sgl);
}

/* ---- a slice at either end ---- */

/* Whether b continues a, which is adjacent in memory: of one registration, and not too long then.
 */
static bool joins(const struct ibv_sge *a, const struct sgp_chunk *held_by_a,
		  const struct ibv_sge *b, const struct sgp_chunk *held_by_b)
{
	return a->lkey == b->lkey && (uint64_t)a->length + b->length <= SGP_MAX_SGE_LENGTH &&
	       sgp_chunk_region(held_by_a) == sgp_chunk_region(held_by_b);
}

static int outside(const struct sgp_chunk *chunk, size_t offset, size_t length)
{
	if (length > SGP_MAX_SGE_LENGTH)
		return sgp_fail(EINVAL, "slice: %zu bytes; at most %d", length, SGP_MAX_SGE_LENGTH);
	return sgp_fail(EFAULT, "slice: %zu bytes from %zu on, of a chunk of %u", length, offset,
			chunk->size);
}

static int full(const struct sgp_sgl *sgl)
{
	return sgp_fail(E2BIG, "the list is full: %d SGEs and %d holds", sgl->max_sge,
			sgl->max_chunk);
}

/* What both ends refuse, and the slice's SGE. */
static inline int begin_slice(const struct sgp_sgl *sgl, const struct sgp_chunk *chunk,
			      size_t offset, size_t length, struct ibv_sge *slice)
{
	if (!sgl || !chunk)
		return sgp_fail(EINVAL, "slice: no list or no chunk");
	if (sgp_refuse_stale(chunk))
		return -1;
	if (length > chunk->size || offset > chunk->size - length)
		return outside(chunk, offset, length);
	if (!sgp_sgl_meet(sgl->pds, sgp_chunk_pds(chunk)) &&
	    !sgp_sgl_meet(sgp_sgl_pds_now(sgl), sgp_chunk_pds(chunk)))
		return sgp_fail(EXDEV,
				"slice: the chunk shares no protection domain with the list");
	if (sgl->num_chunk == sgl->max_chunk)
		return full(sgl);
	*slice = (struct ibv_sge){.addr = (uintptr_t)chunk->addr + offset,
				  .length = (uint32_t)length,
				  .lkey = chunk->lkey};
	return 0;
}

/* What a slice adds besides its SGE and its hold. */
static inline void account(struct sgp_sgl *sgl, const struct sgp_chunk *chunk, size_t length)
{
	sgl->num_chunk++;
	sgl->length += length;
	sgl->pds &= sgp_chunk_pds(chunk);
	sgl->keys &= sgp_chunk_home(chunk);
	sgl->access &= sgp_chunk_access(chunk);
}

int sgp_sgl_append(struct sgp_sgl *sgl, struct sgp_chunk *chunk, size_t offset, size_t length)
{
	struct ibv_sge slice, *end;

	if (begin_slice(sgl, chunk, offset, length, &slice))
		return -1;
	end = sgl->sge + sgl->num_sge;
	if (sgl->num_sge && sgl->num_chunk && end[-1].addr + end[-1].length == slice.addr &&
	    joins(&end[-1], sgl->chunk[sgl->num_chunk - 1], &slice, chunk)) {
		end[-1].length += slice.length;
	} else if (length) {
		if (sgl->num_sge == sgl->max_sge)
			return full(sgl);
		*end = slice;
		sgl->num_sge++;
	}
	sgl->chunk[sgl->num_chunk] = chunk;
	account(sgl, chunk, length);
	return 0;
}

int sgp_sgl_prepend(struct sgp_sgl *sgl, struct sgp_chunk *chunk, size_t offset, size_t length)
{
	struct ibv_sge slice, *first;

	if (begin_slice(sgl, chunk, offset, length, &slice))
		return -1;
	first = sgl->sge;
	if (sgl->num_sge && sgl->num_chunk && slice.addr + slice.length == first->addr &&
	    joins(&slice, chunk, first, sgl->chunk[0])) {
		first->addr = slice.addr;
		first->length += slice.length;
	} else if (length) {
		if (sgl->num_sge == sgl->max_sge)
			return full(sgl);
		memmove(first + 1, first, (size_t)sgl->num_sge * sizeof *first);
		*first = slice;
		sgl->num_sge++;
	}
	memmove(sgl->chunk + 1, sgl->chunk, (size_t)sgl->num_chunk * sizeof(struct sgp_chunk *));
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

/* What the chunks' registration allows. */
static inline void account_owner(struct sgp_sgl *sgl, const struct sgp_owner *owner)
{
	sgl->pds &= atomic_load_explicit(&owner->region.pds, memory_order_relaxed);
	sgl->keys &= atomic_load_explicit(&owner->region.home, memory_order_relaxed);
	sgl->access &= atomic_load_explicit(&owner->region.access, memory_order_relaxed);
}

/* The list is empty but for its array of holds: chunks of one pool are on the same protection domains. */
void sgp_sgl_fill(struct sgp_sgl *sgl, size_t size, int n)
{
	const struct sgp_owner *owner = NULL;
	struct ibv_sge *sge = sgl->sge;

	for (int i = 0; i < n; i++) {
		const struct sgp_chunk *chunk = sgl->chunk[i];
		struct ibv_sge whole = {.addr = (uintptr_t)chunk->addr,
					.length = (uint32_t)size,
					.lkey = chunk->lkey};

		if (chunk->owner != owner) {
			owner = chunk->owner;
			account_owner(sgl, owner);
			*sge++ = whole;
		} else if (sge[-1].addr + sge[-1].length == whole.addr &&
			   (uint64_t)sge[-1].length + size <= SGP_MAX_SGE_LENGTH) {
			sge[-1].length += whole.length;
		} else {
			*sge++ = whole;
		}
	}
	sgl->num_sge = (int)(sge - sgl->sge);
	sgl->num_chunk = n;
	sgl->length = (uint64_t)(unsigned int)n * size;
}

/* The chunks stand behind the list's holds, where their appends will put them. */
static __attribute__((noinline)) int append_whole(struct sgp_sgl *sgl, size_t size, int n)
{
	struct sgp_chunk **got = sgl->chunk + sgl->num_chunk;
	struct mark m = mark(sgl);
	int err;

	for (int i = 0; i < n; i++) {
		if (!sgp_sgl_append(sgl, got[i], 0, size))
			continue;
		err = errno;
		sgp_chunk_put_bulk(got, (size_t)n);
		errno = err;
		return back_to(sgl, &m, false);
	}
	return 0;
}

static __attribute__((noinline)) int get_slowly(struct sgp_sgl *sgl, struct sgp_pool *pool,
						size_t size, int n, int flags)
{
	if (!sgl || !pool || n < 0)
		return sgp_fail(EINVAL, "chunks as a list: no list, no pool, or %d of them", n);
	if (n > sgl->max_chunk - sgl->num_chunk)
		return full(sgl);
	if (sgp_pool_get_bulk(pool, size, flags, sgl->chunk + sgl->num_chunk, (size_t)n))
		return -1;
	if (sgl->num_chunk || sgl->num_sge || n > sgl->max_sge)
		return append_whole(sgl, size, n);
	sgp_sgl_fill(sgl, size, n);
	return 0;
}

int sgp_sgl_get(struct sgp_sgl *sgl, struct sgp_pool *pool, size_t size, int n, int flags)
{
	return SGP_LIKELY(sgp_sgl_take(sgl, pool, size, n, flags))
		       ? 0
		       : get_slowly(sgl, pool, size, n, flags);
}

/* Appends of a range, chunk by chunk, each with a reference of the list's own; may stop half-way.
 */
static int append_range(struct sgp_sgl *sgl, struct sgp_pool *pool, uintptr_t addr, size_t length)
{
	while (length) {
		struct sgp_chunk *chunk = sgp_pool_hold_at(pool, (const void *)addr);
		size_t offset, piece;

		if (!chunk)
			return -1;
		offset = addr - (uintptr_t)chunk->addr;
		piece = chunk->size - offset;
		if (piece > length)
			piece = length;
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

int sgp_sgl_append_region(struct sgp_sgl *sgl, struct sgp_import *region, size_t offset,
			  size_t length)
{
	struct mark m;

	if (!sgl || !region)
		return sgp_fail(EINVAL, "append: a list and an import are needed");
	if (length > sgp_import_size(region) || offset > sgp_import_size(region) - length)
		return sgp_fail(EFAULT, "append: %zu bytes from %zu on, of an import of %zu",
				length, offset, sgp_import_size(region));
	m = mark(sgl);
	while (length) {
		struct sgp_chunk *chunk = &region->chunk[offset >> SGP_IMPORT_SHIFT];
		size_t inside = offset & (((size_t)1 << SGP_IMPORT_SHIFT) - 1);
		size_t piece = chunk->size - inside;

		if (piece > length)
			piece = length;
		sgp_chunk_ref(chunk);
		if (sgp_sgl_append(sgl, chunk, inside, piece)) {
			sgp_chunk_put(chunk);
			return back_to(sgl, &m, true);
		}
		offset += piece;
		length -= piece;
	}
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
