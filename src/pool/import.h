/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Imported memory: a region of its own, with descriptors of 1 GiB each (an SGE's length is 32 bits),
 * and the table that leads from an address to it.
 *
 *      struct sgp_import | owner (region) | chunk 0: 1 GiB | chunk 1: 1 GiB | ... rest |
 *
 *      table             | start, end, import | start, end, import | ...   by address, none overlap
 *
 * The import has the first reference of each of its descriptors for as long as it stands, so a put
 * never ends anything: the unimport asks whether there are others. Handles are type-stable until
 * their pool ends, and a descriptor's refs are never written but by ref and put: somebody may look up
 * an address just now.
 *
 * A lookup takes no lock: it reads the table, takes a reference, and looks whether the table has
 * changed meanwhile (seq); if so, it gives the reference back and starts again. Who changes the table
 * makes seq odd, changes it, makes it even, and only then asks for references. So either the lookup
 * sees another seq, or the unimport sees its reference.
 *
 * Locking: the pool's growth lock for everything but the lookup.
 */
#ifndef SGP_IMPORT_H
#define SGP_IMPORT_H

#include "pool/owner.h"
#include "sgpool/import.h"

#define SGP_IMPORT_SHIFT 30

struct sgp_import {
	struct sgp_owner owner;
	struct sgp_import *next; /* of those that stand, or of the spare ones */
	void *map;               /* what the library has mapped for it, or NULL */
	size_t map_bytes;
	size_t room; /* descriptors that it can have */
	struct sgp_chunk chunk[];
};

struct sgp_import_entry {
	_Atomic uintptr_t start, end;
	_Atomic(struct sgp_import *) import;
};

struct sgp_import_array {
	struct sgp_import_array *older; /* somebody may still read it */
	size_t room;
	struct sgp_import_entry entry[];
};

struct sgp_imports {
	struct sgp_import *first, *spares;
	_Atomic uint64_t count, bytes;
	/* The table. */
	_Atomic uint64_t seq;
	_Atomic(struct sgp_import_array *) array;
	_Atomic size_t n;
};

extern const struct sgp_owner_kind sgp_import_kind;

/* The descriptor that an address lies in, with a reference to it more; NULL: in none. Any thread. */
struct sgp_chunk *sgp_imports_hold(struct sgp_imports *imports, const void *addr);

/* Room for one entry more. 0, or -1 with ENOMEM. */
int sgp_imports_reserve(struct sgp_imports *imports);

/* Does the memory overlap with one that is in the table? */
bool sgp_imports_overlap(const struct sgp_imports *imports, const void *addr, size_t bytes);

void sgp_imports_insert(struct sgp_imports *imports, struct sgp_import *import);
void sgp_imports_remove(struct sgp_imports *imports, const struct sgp_import *import);

/* The pool ends, and none stands any more. */
void sgp_imports_free(struct sgp_imports *imports);

/* What is wrong with them, or NULL: for sgp_pool_check(). */
const char *sgp_imports_check(struct sgp_imports *imports);

/* How many descriptors the import has. */
static inline size_t sgp_import_chunks(const struct sgp_import *import)
{
	return ((import->owner.region.piece.bytes - 1) >> SGP_IMPORT_SHIFT) + 1;
}

#endif
