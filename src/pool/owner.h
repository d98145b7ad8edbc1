/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a chunk is a piece of. A list and a queue hold memory as struct sgp_chunk * and know nothing
 * else of it: keys, rights and pool are the owner's, and the last put goes where the owner's kind
 * says.
 *
 *      list, queue          descriptor                 owner, first member of what it is in
 *      chunk[i] ----------> | addr, size, lkey |       | kind ---> release, find |
 *                           | owner -----------------> | pool                    |
 *                           | slot, refs       |       | region: MRs, rights     |
 *                                                      | ... slab, import, extent of a heap
 *
 *      slab's chunk    slot of its class; the last put gives it back to the class: kind->release is
 *                      NULL, since the short ways of put never ask for it
 *      any other       slot 0, which is no magazine's: so the inline put takes the call, which drops
 *                      the reference and calls kind->release() for the last one
 *
 * refs counts the references beyond the first. Whoever makes a descriptor has the first one, and
 * either puts it (release() is called when it and all others are gone), or keeps it for as long as
 * the descriptor stands and asks sgp_chunk_is_shared() before it ends it.
 *
 * The interface for owners in other libraries of this project (the heap's) is this file: the
 * functions marked SGP_API are exported for them and are not for programs.
 *
 * Locking: an owner's members do not change while a chunk of it is held, but for those that say so.
 */
#ifndef SGP_OWNER_H
#define SGP_OWNER_H

#include <stdbool.h>

#include "pool/region.h"

struct sgp_owner;

_Static_assert(sizeof(struct sgp_chunk) == 32, "two descriptors a cache line");

struct sgp_owner_kind {
	/*
	 * The last reference to the chunk was dropped. It runs in the thread that put it, perhaps
	 * under a queue's locks: it may take the pool's locks, but neither post, poll, nor wait. errno
	 * is kept for it. Not called in a forked child. NULL: it is a slab's.
	 */
	void (*release)(struct sgp_chunk *chunk);
	/* The chunk that an address of the owner's granules lies in; NULL: in none. */
	struct sgp_chunk *(*find)(struct sgp_owner *owner, const void *addr);
	/*
	 * A posted operation is to write to the chunk's memory; or (false) that operation has ended,
	 * before the chunk is handed over or put. Only told of lists with SGP_SGL_OBJECTS. NULL: it's of
	 * no interest.
	 */
	void (*sink)(struct sgp_chunk *chunk, bool posted);
};

struct sgp_owner {
	struct sgp_region region;
	const struct sgp_owner_kind *kind;
	struct sgp_pool *pool;
	struct sgp_owner *next_known; /* known.c's */
};

/* As the inline forms see it, which know neither this structure nor C11's atomics. */
_Static_assert(offsetof(struct sgp_owner, region.pds) == offsetof(struct sgp_rights, pds) &&
		       offsetof(struct sgp_owner, region.home) ==
			       offsetof(struct sgp_rights, home) &&
		       offsetof(struct sgp_owner, region.access) ==
			       offsetof(struct sgp_rights, access),
	       "what a list asks of a chunk's memory");

/*
 * Make *chunk the descriptor of size bytes at addr, inside owner's region, with one reference: the
 * caller's. size is below 2^31, as an SGE's.
 */
SGP_API void sgp_owner_describe(struct sgp_owner *owner, struct sgp_chunk *chunk, void *addr,
				uint32_t size);

/* Does anybody hold the chunk besides the caller? Acquires what the other holders did before. */
static inline bool sgp_chunk_is_shared(const struct sgp_chunk *chunk)
{
	return __atomic_load_n(&chunk->refs, __ATOMIC_ACQUIRE) != 0;
}

#endif
