/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * This library's own jemalloc: the archive's objects made one, its symbols renamed to sgp_je_* and
 * hidden (CMakeLists.txt). The program's malloc, be it jemalloc or another, is not touched by it, nor
 * is this one by MALLOC_CONF.
 */
#ifndef SGP_HEAP_JEMALLOC_H
#define SGP_HEAP_JEMALLOC_H

#include <stdbool.h>
#include <stddef.h>

#include <jemalloc/jemalloc.h> /* for its types and flags: none of its functions is called */

void *sgp_je_mallocx(size_t size, int flags);
void *sgp_je_rallocx(void *ptr, size_t size, int flags);
size_t sgp_je_sallocx(const void *ptr, int flags);
void sgp_je_dallocx(void *ptr, int flags);
int sgp_je_mallctl(const char *name, void *old, size_t *old_size, void *new_value, size_t new_size);

/* As jemalloc 5.3 has it inside, to be given to experimental.arenas_create_ext. */
struct sgp_je_arena_config {
	extent_hooks_t *extent_hooks;
	bool metadata_use_hooks;
};

#endif
