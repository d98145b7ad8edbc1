/* SPDX-License-Identifier: BSD-2-Clause */
/* A region cut into equal chunks, see slab.h. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "pool/errmsg.h"
#include "pool/known.h"
#include "pool/slab.h"
#include "pool/watch.h"

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

static int alloc_descriptors(struct sgp_slab *slab)
{
	size_t bytes = sgp_round_up(slab->room * sizeof slab->chunks[0], CACHE_LINE);

	assert(slab->room > 0);
	slab->chunks = aligned_alloc(CACHE_LINE, bytes);
	if (!slab->chunks)
		return sgp_fail(ENOMEM, "no memory for the descriptors of %zu chunks", slab->room);
	if (!(sgp_mode_now() & SGP_MODE_CHECKED))
		return 0;
	slab->tracks = calloc(slab->room, sizeof slab->tracks[0]);
	if (!slab->tracks) {
		free(slab->chunks);
		return sgp_fail(ENOMEM, "no memory to check %zu chunks", slab->room);
	}
	return 0;
}

static void init_descriptors(struct sgp_slab *slab, uint16_t slot)
{
	size_t i;

	for (i = 0; i < slab->room; i++)
		slab->chunks[i] = (struct sgp_chunk){.addr = slab->owner.region.piece.addr +
							     i * slab->cut.stride,
						     .owner = &slab->owner,
						     .size = slab->cut.size,
						     .lkey = sgp_region_lkey(&slab->owner.region),
						     .slot = slot};
}

/* A slab with room for as many descriptors, an ended one or a new one. NULL without memory. */
static struct sgp_slab *find_slab(size_t room, struct sgp_slab **spares)
{
	struct sgp_slab **p, *slab;

	for (p = spares; (slab = *p); p = &slab->next) {
		if (slab->room == room) {
			*p = slab->next;
			return slab;
		}
	}
	slab = calloc(1, sizeof *slab);
	if (!slab)
		return sgp_fail_null(ENOMEM, "no memory for a slab");
	slab->room = room;
	if (alloc_descriptors(slab)) {
		free(slab);
		return NULL;
	}
	sgp_known_add(&slab->owner);
	return slab;
}

static void make_spare(struct sgp_slab *slab, struct sgp_slab **spares)
{
	slab->made = 0;
	slab->next = *spares;
	*spares = slab;
}

struct sgp_slab *sgp_slab_make(struct sgp_memory *mem, struct sgp_registrar *reg,
			       const struct sgp_cut *cut, size_t n, uint16_t slot,
			       const struct sgp_backing *backing, struct sgp_slab **spares)
{
	struct sgp_piece piece;
	struct sgp_slab *slab;

	if (sgp_memory_commit(mem, sgp_cut_bytes(cut, n), backing, &piece))
		return NULL;
	slab = find_slab(sgp_cut_fit(cut, piece.bytes), spares);
	if (!slab)
		goto decommit;
	sgp_region_init(&slab->owner.region);
	slab->owner.region.piece = piece;
	if (sgp_region_register(&slab->owner.region, reg))
		goto keep_slab;
	slab->owner.kind = &sgp_slab_kind;
	slab->cut = *cut;
	slab->leaving = false;
	init_descriptors(slab, slot);
	return slab;

keep_slab:
	make_spare(slab, spares);
decommit:
	sgp_memory_decommit(mem, &piece);
	return NULL;
}

int sgp_slab_end(struct sgp_slab *slab, struct sgp_memory *mem, struct sgp_registrar *reg,
		 struct sgp_slab **spares)
{
	if (sgp_region_end(&slab->owner.region, mem, reg))
		return -1;
	make_spare(slab, spares);
	return 0;
}

void sgp_slabs_free(struct sgp_slab *spares)
{
	struct sgp_slab *slab;

	while ((slab = spares)) {
		spares = slab->next;
		sgp_watch_bury(slab);
	}
}

/* The chunk in which addr lies, addr being in the slab's piece; NULL between and behind the chunks.
 */
static struct sgp_chunk *find_chunk(struct sgp_owner *owner, const void *addr)
{
	struct sgp_slab *slab = (struct sgp_slab *)owner;
	size_t off = (size_t)((const char *)addr - slab->owner.region.piece.addr);
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

const struct sgp_owner_kind sgp_slab_kind = {.find = find_chunk};
