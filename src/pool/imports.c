/* SPDX-License-Identifier: BSD-2-Clause */
/* The table from addresses to imported memory, see import.h. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#include "pool/errmsg.h"
#include "pool/import.h"

#define LEAST 16

/*
 * Acquire, and release in set(): who reads something of a change in progress also sees that seq is
 * not what it was.
 */
static uintptr_t load(const _Atomic uintptr_t *word)
{
	return atomic_load_explicit(word, memory_order_acquire);
}

static struct sgp_import *load_import(const struct sgp_import_entry *entry)
{
	return atomic_load_explicit(&entry->import, memory_order_acquire);
}

/* The first of n entries that ends behind addr; n: none. */
static size_t search(const struct sgp_import_array *array, size_t n, uintptr_t addr)
{
	size_t low = 0, high = n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (load(&array->entry[middle].end) > addr)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

/* One look at a table that may be changing: any descriptor, or none; the caller asks seq. */
static struct sgp_chunk *look(struct sgp_imports *imports, uintptr_t addr)
{
	struct sgp_import_array *array =
		atomic_load_explicit(&imports->array, memory_order_acquire);
	size_t n = atomic_load_explicit(&imports->n, memory_order_acquire), i;
	struct sgp_import *import;
	uintptr_t start;

	if (!array)
		return NULL;
	if (n > array->room)
		n = array->room;
	i = search(array, n, addr);
	if (i == n)
		return NULL;
	start = load(&array->entry[i].start);
	import = load_import(&array->entry[i]);
	if (!import || addr < start || addr - start >= import->room << SGP_IMPORT_SHIFT)
		return NULL;
	return &import->chunk[(addr - start) >> SGP_IMPORT_SHIFT];
}

struct sgp_chunk *sgp_imports_hold(struct sgp_imports *imports, const void *addr)
{
	struct sgp_chunk *chunk;
	uint64_t seq;

	for (;; sched_yield()) {
		seq = atomic_load(&imports->seq);
		if (seq & 1)
			continue;
		chunk = look(imports, (uintptr_t)addr);
		if (chunk)
			__atomic_fetch_add(&chunk->refs, 1, __ATOMIC_SEQ_CST);
		if (atomic_load(&imports->seq) == seq)
			return chunk;
		if (chunk)
			__atomic_fetch_sub(&chunk->refs, 1, __ATOMIC_RELEASE);
	}
}

int sgp_imports_reserve(struct sgp_imports *imports)
{
	struct sgp_import_array *old = imports->array, *array;
	size_t n = imports->n, room = n < LEAST ? LEAST : 2 * n;

	if (old && n < old->room)
		return 0;
	array = calloc(1, sizeof *array + room * sizeof array->entry[0]);
	if (!array)
		return sgp_fail(ENOMEM, "no memory for a table of %zu imports", room);
	array->room = room;
	array->older = old;
	for (size_t i = 0; i < n; i++) {
		array->entry[i].start = load(&old->entry[i].start);
		array->entry[i].end = load(&old->entry[i].end);
		array->entry[i].import = load_import(&old->entry[i]);
	}
	/* The same table in another place: whoever reads the old one is not wrong. */
	atomic_store_explicit(&imports->array, array, memory_order_release);
	return 0;
}

bool sgp_imports_overlap(const struct sgp_imports *imports, const void *addr, size_t bytes)
{
	const struct sgp_import_array *array = imports->array;
	uintptr_t start = (uintptr_t)addr;
	size_t i;

	if (!array)
		return false;
	i = search(array, imports->n, start);
	return i < imports->n && load(&array->entry[i].start) < start + bytes;
}

static void set(struct sgp_import_entry *entry, uintptr_t start, uintptr_t end,
		struct sgp_import *import)
{
	atomic_store_explicit(&entry->start, start, memory_order_release);
	atomic_store_explicit(&entry->end, end, memory_order_release);
	atomic_store_explicit(&entry->import, import, memory_order_release);
}

static void copy(struct sgp_import_entry *to, const struct sgp_import_entry *from)
{
	set(to, load(&from->start), load(&from->end), load_import(from));
}

void sgp_imports_insert(struct sgp_imports *imports, struct sgp_import *import)
{
	const struct sgp_piece *piece = &import->owner.region.piece;
	struct sgp_import_array *array = imports->array;
	uintptr_t start = (uintptr_t)piece->addr;
	size_t i = search(array, imports->n, start), k;

	atomic_fetch_add(&imports->seq, 1);
	for (k = imports->n; k > i; k--)
		copy(&array->entry[k], &array->entry[k - 1]);
	set(&array->entry[i], start, start + piece->bytes, import);
	atomic_fetch_add(&imports->n, 1);
	atomic_fetch_add(&imports->seq, 1);
}

void sgp_imports_remove(struct sgp_imports *imports, const struct sgp_import *import)
{
	struct sgp_import_array *array = imports->array;
	size_t i = search(array, imports->n, (uintptr_t)import->owner.region.piece.addr);

	atomic_fetch_add(&imports->seq, 1);
	for (; i + 1 < imports->n; i++)
		copy(&array->entry[i], &array->entry[i + 1]);
	atomic_fetch_sub(&imports->n, 1);
	atomic_fetch_add(&imports->seq, 1);
}

void sgp_imports_free(struct sgp_imports *imports)
{
	struct sgp_import_array *array = imports->array, *older;
	struct sgp_import *import;

	for (; array; array = older) {
		older = array->older;
		free(array);
	}
	while ((import = imports->spares)) {
		imports->spares = import->next;
		free(import);
	}
}

const char *sgp_imports_check(struct sgp_imports *imports)
{
	const struct sgp_import_array *array = imports->array;
	const struct sgp_import *import;
	uint64_t bytes = 0, n = 0;
	uintptr_t end = 0;

	for (size_t i = 0; i < imports->n; i++) {
		const struct sgp_import_entry *entry = &array->entry[i];

		if (entry->start < end || entry->end <= entry->start)
			return "imports overlap, or are in disorder";
		end = entry->end;
		bytes += entry->end - entry->start;
		if ((uintptr_t)load_import(entry)->owner.region.piece.addr != entry->start)
			return "an address does not lead to its import";
	}
	for (import = imports->first; import; import = import->next, n++) {
		for (size_t i = 0; i < sgp_import_chunks(import); i++)
			if (import->chunk[i].owner != &import->owner || import->chunk[i].slot)
				return "a descriptor does not fit its import";
		if (!sgp_imports_overlap(imports, import->owner.region.piece.addr, 1))
			return "an import is not in the table";
	}
	if (n != imports->n || n != imports->count || bytes != imports->bytes)
		return "the table is not the list of imports";
	return NULL;
}
