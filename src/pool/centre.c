/* SPDX-License-Identifier: BSD-2-Clause */
/* The stack of free chunks that all threads share, see centre.h. */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "pool/errmsg.h"
#include "pool/wait.h"
#include "pool/watch.h"

/*
 * So many that a burst of 512 stays within the thread's own. What must not be is a full magazine whose
 * top is 4096 bytes behind the magazine's own line: a store there is taken for one to that.
 */
#define CACHE_MOST  768
#define CACHE_LEAST 4
#define MAX_BYTES   ((size_t)1 << 46) /* of one class: half of what x86 can address */
#define CACHE_SHARE 8 /* of a class's chunks, a thread may hide so many away: one in eight */

static void check_locked(const struct sgp_class *cls)
{
	(void)cls;
	assert(cls->nfree <= cls->made);
	assert(cls->made <= cls->max_chunks);
	assert(cls->nfree == 0 || sgp_slab_of(cls->free[cls->nfree - 1])->cls == cls);
}

static void set(_Atomic size_t *where, size_t n)
{
	atomic_store_explicit(where, n, memory_order_relaxed);
}

static size_t get(const _Atomic size_t *where)
{
	return atomic_load_explicit(where, memory_order_relaxed);
}

static size_t stack_bytes(const struct sgp_class *cls)
{
	return cls->max_chunks * sizeof cls->free[0];
}

int sgp_centre_init(struct sgp_class *cls, const struct sgp_class_attr *attr)
{
	pthread_mutexattr_t adaptive;

	if (sgp_cut_init(&cls->cut, attr->size, attr->align))
		return -1;
	cls->max_chunks = attr->max_chunks ? attr->max_chunks : attr->chunks;
	if (cls->max_chunks == 0 || attr->chunks > cls->max_chunks)
		return sgp_fail(EINVAL, "a class of %zu chunks, at most %zu", attr->chunks,
				cls->max_chunks);
	if (cls->max_chunks > MAX_BYTES / cls->cut.stride)
		return sgp_fail(EINVAL, "%zu chunks of %zu bytes are more than fit in memory",
				cls->max_chunks, attr->size);
	if (attr->reserve > cls->max_chunks || attr->low_water > cls->max_chunks)
		return sgp_fail(EINVAL, "a reserve of %zu or a low water of %zu of %zu chunks",
				attr->reserve, attr->low_water, cls->max_chunks);
	cls->free = mmap(NULL, stack_bytes(cls), PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (cls->free == MAP_FAILED)
		return sgp_fail(ENOMEM, "no memory to keep account of %zu chunks", cls->max_chunks);
	cls->initial_chunks = attr->chunks;
	cls->cap = cls->max_chunks;
	cls->reserve = attr->reserve;
	cls->low_water = attr->low_water;
	cls->cache_chunks = cls->max_chunks / CACHE_SHARE;
	if (cls->cache_chunks > CACHE_MOST)
		cls->cache_chunks = CACHE_MOST;
	if (cls->cache_chunks < CACHE_LEAST)
		cls->cache_chunks = 0;
	/* It is held for the copy of a few hundred pointers: worth a short spin. */
	pthread_mutexattr_init(&adaptive);
	pthread_mutexattr_settype(&adaptive, PTHREAD_MUTEX_ADAPTIVE_NP);
	pthread_mutex_init(&cls->lock, &adaptive);
	pthread_mutexattr_destroy(&adaptive);
	sgp_waiters_init(cls);
	return 0;
}

void sgp_centre_fini(struct sgp_class *cls)
{
	munmap(cls->free, stack_bytes(cls));
	pthread_mutex_destroy(&cls->lock);
}

size_t sgp_centre_avail_locked(const struct sgp_class *cls, int flags)
{
	size_t n = get(&cls->nfree), out = get(&cls->made) - n;
	size_t cap = get(&cls->cap), reserve = get(&cls->reserve);
	size_t left = cap > out ? cap - out : 0;
	size_t kept = reserve > cls->reserved_out ? reserve - cls->reserved_out : 0;

	if (n > left)
		n = left;
	if (!(flags & SGP_GET_RESERVED))
		n = n > kept ? n - kept : 0;
	return n;
}

void sgp_centre_prefetch(const struct sgp_class *cls, size_t n, bool to_give)
{
	size_t nfree = get(&cls->nfree), first;
	const char *line, *end;

	if (n > CACHE_MOST)
		n = CACHE_MOST; /* more would throw out what it brought in */
	first = nfree > n ? nfree - n : 0;
	line = (const char *)(cls->free + (to_give ? nfree : first));
	end = line + n * sizeof cls->free[0];
	for (; line < end; line += 64) {
#if defined(__x86_64__)
		/* The builtin asks to write only on request of -mprfchw; all x86-64 know it. */
		if (to_give)
			__asm__ volatile("prefetchw %0" : : "m"(*line));
		else
#endif
			__builtin_prefetch(line, 0, 3);
	}
}

void sgp_centre_take_locked(struct sgp_class *cls, struct sgp_chunk *chunks[], size_t n)
{
	size_t nfree = get(&cls->nfree) - n, out = get(&cls->made) - nfree;

	memcpy(chunks, cls->free + nfree, n * sizeof chunks[0]);
	set(&cls->nfree, nfree);
	if (nfree < cls->lowest)
		cls->lowest = nfree;
	if (out > atomic_load_explicit(&cls->count.peak, memory_order_relaxed))
		atomic_store_explicit(&cls->count.peak, out, memory_order_relaxed);
	check_locked(cls);
}

void sgp_centre_give_locked(struct sgp_class *cls, struct sgp_chunk *const chunks[], size_t n)
{
	size_t nfree = get(&cls->nfree), room = get(&cls->made) - nfree;

	/* Nothing is written past the stack, whatever a program does. Its end tells (pool.c). */
	if (!SGP_LIKELY(n <= room)) {
		cls->overput += n - room;
		n = room;
	}
	if (cls->pool->watch & SGP_WATCH_CHECK) {
		/* To the bottom: used again as late as possible, so that a stray write shows. */
		memmove(cls->free + n, cls->free, nfree * sizeof chunks[0]);
		memcpy(cls->free, chunks, n * sizeof chunks[0]);
	} else {
		memcpy(cls->free + nfree, chunks, n * sizeof chunks[0]);
	}
	set(&cls->nfree, nfree + n);
	check_locked(cls);
}

void sgp_centre_get_locked(struct sgp_class *cls, struct sgp_chunk *chunks[], size_t n, int flags)
{
	sgp_centre_take_locked(cls, chunks, n);
	if (!(flags & SGP_GET_RESERVED) || get(&cls->reserve) == 0)
		return;
	for (size_t i = 0; i < n; i++)
		chunks[i]->mark = SGP_MARK_RESERVED;
	cls->reserved_out += n;
}

bool sgp_centre_unmark_locked(struct sgp_class *cls, struct sgp_chunk *const chunks[], size_t n)
{
	size_t before = cls->reserved_out;

	for (size_t i = 0; i < n && cls->reserved_out; i++) {
		if (chunks[i]->mark & SGP_MARK_RESERVED) {
			chunks[i]->mark = 0;
			cls->reserved_out--;
		}
	}
	return cls->reserved_out < before;
}

void sgp_centre_add_locked(struct sgp_class *cls, struct sgp_slab *slab, size_t n)
{
	size_t nfree = get(&cls->nfree), made = get(&slab->made), i;

	/* The lowest address on top, so that a young pool hands its memory out in order. */
	for (i = n; i-- > 0;)
		cls->free[nfree++] = &slab->chunks[made + i];
	/* Release: who finds a chunk of the slab by its address sees the descriptor whole. */
	atomic_store_explicit(&slab->made, made + n, memory_order_release);
	set(&cls->made, get(&cls->made) + n);
	set(&cls->nfree, nfree);
	check_locked(cls);
}

void sgp_centre_remove_locked(struct sgp_class *cls)
{
	size_t nfree = get(&cls->nfree), made = get(&cls->made), kept = 0, i;
	struct sgp_slab *slab;

	for (i = 0; i < nfree; i++)
		if (!sgp_slab_of(cls->free[i])->leaving)
			cls->free[kept++] = cls->free[i];
	for (slab = cls->slabs; slab; slab = slab->next) {
		if (slab->leaving) {
			made -= slab->made;
			set(&slab->made, 0);
		}
	}
	assert(nfree - kept == get(&cls->made) - made);
	set(&cls->nfree, kept);
	set(&cls->made, made);
	if (cls->lowest > kept)
		cls->lowest = kept;
	check_locked(cls);
}
