/* SPDX-License-Identifier: BSD-2-Clause */
/* A region cut into equal chunks, see slab.h. */
#include <errno.h>
#include <stdlib.h>

#include "pool/errmsg.h"
#include "pool/slab.h"

#define CACHE_LINE 64

int sgp_cut_init(struct sgp_cut *cut, size_t size, uint32_t align)
{
	size_t page = sgp_page_size(), stride;

	if (size == 0 || size > INT32_MAX)
		return sgp_fail(EINVAL, "a class of %zu bytes: 1 to 2^31 - 1 are possible", size);
	if (align & (align - 1) || align > page)
		return sgp_fail(EINVAL,
				"an alignment of %u: it must be a power of two, at most a page",
				align);
	if (align == 0)
		align = size < page ? CACHE_LINE : (uint32_t)page;
	if (align > CACHE_LINE) {
		stride = sgp_round_up(size, align);
	} else {
		stride = sgp_round_up(size, CACHE_LINE);
		if (stride / CACHE_LINE % 2 == 0)
			stride += CACHE_LINE;
	}
	*cut = (struct sgp_cut){
		.size = (uint32_t)size, .stride = (uint32_t)stride, .inverse = UINT64_MAX / stride};
	return 0;
}

size_t sgp_cut_bytes(const struct sgp_cut *cut, size_t n)
{
	return (n - 1) * cut->stride + cut->size;
}

size_t sgp_cut_fit(const struct sgp_cut *cut, size_t bytes)
{
	return bytes < cut->size ? 0 : (bytes - cut->size) / cut->stride + 1;
}

static struct sgp_chunk *make_descriptors(struct sgp_slab *slab)
{
	size_t bytes = sgp_round_up(slab->room * sizeof slab->chunks[0], CACHE_LINE), i;
	struct sgp_chunk *chunks = aligned_alloc(CACHE_LINE, bytes);

	if (!chunks) {
		sgp_fail(ENOMEM, "no memory for the descriptors of %zu chunks", slab->room);
		return NULL;
	}
	for (i = 0; i < slab->room; i++)
		chunks[i] =
			(struct sgp_chunk){.addr = slab->region.piece.addr + i * slab->cut.stride,
					   .slab = slab,
					   .size = slab->cut.size};
	return chunks;
}

struct sgp_slab *sgp_slab_make(struct sgp_memory *mem, struct sgp_registrar *reg,
			       const struct sgp_cut *cut, size_t n,
			       const struct sgp_backing *backing)
{
	struct sgp_slab *slab = calloc(1, sizeof *slab);
	size_t i;

	if (!slab)
		return sgp_fail_null(ENOMEM, "no memory for a slab");
	slab->cut = *cut;
	if (sgp_region_back(&slab->region, mem, sgp_cut_bytes(cut, n), backing))
		goto free_slab;
	slab->room = sgp_cut_fit(cut, slab->region.piece.bytes);
	slab->chunks = make_descriptors(slab);
	if (!slab->chunks)
		goto decommit;
	if (sgp_region_register(&slab->region, reg))
		goto free_chunks;
	for (i = 0; i < slab->room; i++)
		slab->chunks[i].lkey = slab->region.mr->lkey;
	return slab;

free_chunks:
	free(slab->chunks);
decommit:
	sgp_memory_decommit(mem, &slab->region.piece);
free_slab:
	free(slab);
	return NULL;
}

int sgp_slab_end(struct sgp_slab *slab, struct sgp_memory *mem, struct sgp_registrar *reg)
{
	if (sgp_region_end(&slab->region, mem, reg))
		return -1;
	free(slab->chunks);
	free(slab);
	return 0;
}

struct sgp_chunk *sgp_slab_chunk_at(struct sgp_slab *slab, const void *addr)
{
	size_t off = (size_t)((const char *)addr - slab->region.piece.addr);
	/* The inverse is rounded down by less than 1, so i is at most one too small. */
	size_t i = (size_t)(((unsigned __int128)off * slab->cut.inverse) >> 64);

	off -= i * slab->cut.stride;
	if (off >= slab->cut.stride) {
		off -= slab->cut.stride;
		i++;
	}
	if (i >= slab->made || off >= slab->cut.size)
		return NULL;
	return &slab->chunks[i];
}
