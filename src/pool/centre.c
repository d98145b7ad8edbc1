/* SPDX-License-Identifier: BSD-2-Clause */
/* The stack of free chunks that all threads share, see centre.h. */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "pool/centre.h"
#include "pool/errmsg.h"

static void check_locked(const struct sgp_class *cls)
{
	assert(cls->nfree <= cls->made);
	assert(cls->made <= cls->max_chunks);
	assert(cls->nfree == 0 || cls->free[cls->nfree - 1]->slab->cls == cls);
}

static size_t stack_bytes(const struct sgp_class *cls)
{
	return cls->max_chunks * sizeof cls->free[0];
}

int sgp_centre_init(struct sgp_class *cls, const struct sgp_class_attr *attr)
{
	if (sgp_cut_init(&cls->cut, attr->size, attr->align))
		return -1;
	cls->max_chunks = attr->max_chunks ? attr->max_chunks : attr->chunks;
	if (cls->max_chunks == 0 || attr->chunks > cls->max_chunks)
		return sgp_fail(EINVAL, "a class of %zu chunks, at most %zu", attr->chunks,
				cls->max_chunks);
	if (cls->max_chunks > SIZE_MAX / 8 / cls->cut.stride)
		return sgp_fail(EINVAL, "%zu chunks of %zu bytes are more than fit in memory",
				cls->max_chunks, attr->size);
	cls->free = mmap(NULL, stack_bytes(cls), PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (cls->free == MAP_FAILED)
		return sgp_fail(ENOMEM, "no memory to keep account of %zu chunks", cls->max_chunks);
	pthread_mutex_init(&cls->lock, NULL);
	return 0;
}

void sgp_centre_fini(struct sgp_class *cls)
{
	munmap(cls->free, stack_bytes(cls));
	pthread_mutex_destroy(&cls->lock);
}

bool sgp_centre_get(struct sgp_class *cls, struct sgp_chunk *chunks[], size_t n)
{
	bool enough;

	pthread_mutex_lock(&cls->lock);
	enough = n <= cls->nfree;
	if (enough) {
		cls->nfree -= n;
		memcpy(chunks, cls->free + cls->nfree, n * sizeof chunks[0]);
	}
	check_locked(cls);
	pthread_mutex_unlock(&cls->lock);
	return enough;
}

void sgp_centre_put(struct sgp_class *cls, struct sgp_chunk *const chunks[], size_t n)
{
	pthread_mutex_lock(&cls->lock);
	memcpy(cls->free + cls->nfree, chunks, n * sizeof chunks[0]);
	cls->nfree += n;
	check_locked(cls);
	pthread_mutex_unlock(&cls->lock);
}

void sgp_centre_add(struct sgp_class *cls, struct sgp_slab *slab, size_t n)
{
	size_t i;

	pthread_mutex_lock(&cls->lock);
	/* The lowest address on top, so that a young pool hands its memory out in order. */
	for (i = n; i-- > 0;)
		cls->free[cls->nfree++] = &slab->chunks[slab->made + i];
	slab->made += n;
	cls->made += n;
	check_locked(cls);
	pthread_mutex_unlock(&cls->lock);
}

void sgp_centre_retire(struct sgp_class *cls)
{
	struct sgp_slab *slab;

	pthread_mutex_lock(&cls->lock);
	for (slab = cls->slabs; slab; slab = slab->next)
		slab->made = 0;
	cls->made = 0;
	cls->nfree = 0;
	pthread_mutex_unlock(&cls->lock);
}

void sgp_centre_count(struct sgp_class *cls, size_t *made, size_t *nfree)
{
	pthread_mutex_lock(&cls->lock);
	*made = cls->made;
	*nfree = cls->nfree;
	pthread_mutex_unlock(&cls->lock);
}
