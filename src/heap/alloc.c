/* SPDX-License-Identifier: BSD-2-Clause */
/* malloc and its like, with the C library's rules. */
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "heap/cache.h"
#include "heap/holds.h"
#include "pool/errmsg.h"

/* jemalloc had none. The reason is our own hook's, if it was asked. */
static __attribute__((noinline, cold)) void *none(const struct sgp_heap *heap, size_t size)
{
	int err = sgp_heap_hook_error();

	if (size > heap->most)
		return sgp_fail_null(EMSGSIZE, "%zu bytes: objects have at most %zu", size,
				     heap->most);
	if (!err)
		return sgp_fail_null(ENOMEM, "no memory for jemalloc's own data");
	errno = err; /* and the sentence is the pool's */
	return NULL;
}

static inline void *allocate(struct sgp_heap *heap, size_t size, int more)
{
	int flags = sgp_heap_flags(heap);
	void *obj = NULL;

	if (flags < 0)
		return NULL;
	if (SGP_LIKELY(size <= heap->most))
		obj = sgp_je_mallocx(size + !size, flags | more);
	return SGP_LIKELY(obj != NULL) ? obj : none(heap, size);
}

void *sgp_malloc(struct sgp_heap *heap, size_t size)
{
	return allocate(heap, size, 0);
}

void *sgp_calloc(struct sgp_heap *heap, size_t n, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(n, size, &bytes))
		return sgp_fail_null(ENOMEM, "%zu objects of %zu bytes", n, size);
	return allocate(heap, bytes, MALLOCX_ZERO);
}

void *sgp_aligned_alloc(struct sgp_heap *heap, size_t alignment, size_t size)
{
	if (!alignment || alignment & (alignment - 1))
		return sgp_fail_null(EINVAL, "an alignment of %zu", alignment);
	if (alignment > heap->most)
		return sgp_fail_null(EMSGSIZE,
				     "an alignment of %zu: the pool's regions have at "
				     "most %zu bytes",
				     alignment, heap->most);
	return allocate(heap, size, MALLOCX_LG_ALIGN(__builtin_ctzl(alignment)));
}

/* jemalloc's flags for freeing an object; -1 when it is no heap's, or in a forked child. */
static inline int flags_for(const struct sgp_heap_region *region)
{
	return SGP_LIKELY(region != NULL) ? sgp_heap_flags(region->heap) : -1;
}

void sgp_free(void *ptr)
{
	struct sgp_heap_region *region = sgp_heap_region_at(ptr);
	int flags = flags_for(region);

	if (flags < 0)
		return;
	if (sgp_hold_maybe(region->heap->holds, ptr) && sgp_hold_free(region->heap->holds, ptr))
		return;
	sgp_je_dallocx(ptr, flags);
}

size_t sgp_usable_size(const void *ptr)
{
	return flags_for(sgp_heap_region_at(ptr)) < 0 ? 0 : sgp_je_sallocx(ptr, 0);
}

/* A held object stays where it is, until it is dropped; the caller gets another one. */
static void *move(struct sgp_heap *heap, void *ptr, size_t size)
{
	size_t old = sgp_je_sallocx(ptr, 0);
	void *obj = allocate(heap, size, 0);

	if (obj) {
		memcpy(obj, ptr, old < size ? old : size);
		sgp_free(ptr);
	}
	return obj;
}

void *sgp_realloc(struct sgp_heap *heap, void *ptr, size_t size)
{
	const struct sgp_heap_region *region;
	int flags;
	void *obj;

	if (!ptr)
		return allocate(heap, size, 0);
	region = sgp_heap_region_at(ptr);
	if (!region || region->heap != heap)
		return sgp_fail_null(EFAULT, "realloc: the address is not the heap's");
	flags = sgp_heap_flags(heap);
	if (flags < 0)
		return NULL;
	if (!size) {
		sgp_free(ptr);
		return NULL;
	}
	switch (sgp_hold_state(heap->holds, ptr)) {
	case SGP_HOLD_FREED:
		return sgp_fail_null(EFAULT, "realloc: the object has been freed");
	case SGP_HOLD_SINK:
		return sgp_fail_null(EBUSY, "realloc: a posted operation writes to the object");
	case SGP_HOLD_HELD:
		return move(heap, ptr, size);
	case SGP_HOLD_NONE:
		break;
	}
	obj = size <= heap->most ? sgp_je_rallocx(ptr, size, flags) : NULL;
	return obj ? obj : none(heap, size);
}
