/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A slab: a region cut into equal chunks of one class, and the chunks' descriptors.
 *
 *      piece.addr
 *      | chunk 0 |pad| chunk 1 |pad| ...  | chunk made - 1 |pad| room for more | rest |
 *      |<- stride -->|
 *
 * The descriptors lie outside the data, which the library never writes. They live until the pool
 * ends, also when the slab's memory has been returned, so that a stale pointer never reads freed
 * memory.
 *
 * Locking: made and the publication of a slab are the pool's business; the rest does not change.
 */
#ifndef SGP_SLAB_H
#define SGP_SLAB_H

#include "pool/owner.h"

struct sgp_class;

/* A chunk's mark, of 7 bits: see SGP_STATE_KEY. Any keeps it off the short ways of put. */
enum {
	SGP_MARK_RESERVED = 1 << 0, /* it counts against its class's reserve */
	SGP_MARK_MET = 1 << 1,      /* sgp_pool_check() was there */
};

/* How chunks lie in a region. */
struct sgp_cut {
	uint32_t size;
	uint32_t stride;
	uint64_t inverse; /* 2^64 / stride rounded down, to divide by a multiplication */
};

struct sgp_slab {
	struct sgp_owner owner; /* first: see sgp_slab_of() */
	struct sgp_cut cut;
	struct sgp_class *cls;
	struct sgp_chunk *chunks; /* [room] */
	size_t room;              /* chunks that fit */
	_Atomic size_t made;      /* of these, in use by the class */
	size_t idle;              /* trim's: of these, in the centre */
	bool leaving;             /* trim's: it goes */
	struct sgp_track *tracks; /* [room], of a checked pool: see watch.h */
	struct sgp_slab *next;    /* of its class, or of the pool's spare ones */
};

/*
 * Work out how chunks of size bytes lie. align: as sgp_class_attr's.
 *
 * Aligned: each chunk on a multiple of align. Strided: an odd number of cache lines a chunk, so
 * that the first lines of all chunks spread over all of the cache's sets instead of sharing a few.
 * Returns 0; -1 with EINVAL.
 */
int sgp_cut_init(struct sgp_cut *cut, size_t size, uint32_t align);

/* Bytes that n chunks need, n > 0; and chunks that fit into bytes. */
size_t sgp_cut_bytes(const struct sgp_cut *cut, size_t n);
size_t sgp_cut_fit(const struct sgp_cut *cut, size_t bytes);

/*
 * Make a slab of at least n chunks for a class whose magazines have the index slot; none of the
 * chunks is in use yet. spares: ended slabs, one of which is used again if it fits.
 *
 * Returns it; NULL with ENOMEM or the errno of sgp_region_register(), and nothing changed.
 */
struct sgp_slab *sgp_slab_make(struct sgp_memory *mem, struct sgp_registrar *reg,
			       const struct sgp_cut *cut, size_t n, uint16_t slot,
			       const struct sgp_backing *backing, struct sgp_slab **spares);

/*
 * End the slab's region; the descriptors stay, and the slab goes to the spare ones. Returns 0, or
 * -1 as sgp_region_end() and the slab stands.
 */
int sgp_slab_end(struct sgp_slab *slab, struct sgp_memory *mem, struct sgp_registrar *reg,
		 struct sgp_slab **spares);

/* Free all spare slabs: the pool ends. */
void sgp_slabs_free(struct sgp_slab *spares);

extern const struct sgp_owner_kind sgp_slab_kind;

/* The slab of a chunk that is known to be one's. */
static inline struct sgp_slab *sgp_slab_of(const struct sgp_chunk *chunk)
{
	return (struct sgp_slab *)chunk->owner;
}

/* Not one's? Then its slot is none, and its owner has to be asked what a last put does. */
static inline bool sgp_is_slabs(const struct sgp_chunk *chunk)
{
	return chunk->owner->kind == &sgp_slab_kind;
}

#endif
