/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Growth: first all memory is made, registered and cut, then it is published, then its chunks are
 * put into use; so no thread ever sees half a slab, and a failure leaves the class as it was. See
 * grow.h.
 */
#include <errno.h>

#include "pool/errmsg.h"
#include "pool/get.h"
#include "pool/grow.h"
#include "pool/probe.h"
#include "pool/slabs.h"

/* How many chunks to give the next slab, n being wanted and most possible. */
static size_t slab_chunks(const struct sgp_class *cls, size_t n, size_t most)
{
	const struct sgp_pool *pool = cls->pool;
	size_t granule = (size_t)1 << pool->mem.shift;
	size_t largest = sgp_cut_fit(&cls->cut, pool->backing.max_bytes);
	/* A slab owns its granules whole: filling them saves addresses and registrations. */
	size_t whole = sgp_round_up(sgp_cut_bytes(&cls->cut, n < largest ? n : largest), granule);
	size_t fit = sgp_cut_fit(&cls->cut, whole);

	if (fit > largest)
		fit = largest;
	return fit < most ? fit : most;
}

/* Make a slab for at most n chunks: fewer where the free addresses lie scattered. */
static int add_slab(struct sgp_class *cls, size_t n)
{
	while (sgp_slabs_add(cls, n)) {
		if (errno != ENOBUFS || n == 1)
			return -1;
		n /= 2;
	}
	return 0;
}

static size_t room_left(const struct sgp_slab *slab)
{
	return slab->owner.region.whole ? slab->room - slab->made : 0;
}

/* Put n chunks of the class's slabs into use, and serve who waited for them. */
static void use_room(struct sgp_class *cls, size_t n, struct sgp_waiter **served)
{
	struct sgp_slab *slab;
	size_t use;

	pthread_mutex_lock(&cls->lock);
	for (slab = cls->slabs; slab && n; slab = slab->next) {
		use = room_left(slab) < n ? room_left(slab) : n;
		if (use)
			sgp_centre_add_locked(cls, slab, use);
		n -= use;
	}
	sgp_serve_locked(cls, served);
	pthread_mutex_unlock(&cls->lock);
}

/*
 * Give the class n chunks more, or with most > n up to most where that costs no more addresses. (A
 * slab that cannot be deregistered in the unwinding stays as room for the next growth.)
 */
static int grow_class(struct sgp_class *cls, size_t n, size_t most, struct sgp_waiter **served)
{
	struct sgp_slab *before = cls->slabs, *slab;
	size_t room = 0, possible;

	for (slab = cls->slabs; slab; slab = slab->next)
		room += room_left(slab);
	while (room < n) {
		/* A new pool's is as asked for, the others are as large as they can be. */
		possible = cls->made ? cls->max_chunks - cls->made : most;
		if (add_slab(cls, slab_chunks(cls, n - room, possible - room))) {
			int err = errno;

			while (cls->slabs != before && sgp_slabs_drop(cls, cls->slabs) == 0)
				;
			errno = err;
			return -1;
		}
		room += cls->slabs->room;
	}
	if (n < most)
		n = room < most ? room : most;
	use_room(cls, n, served);
	return 0;
}

/* Growth of a class that lives. The growth lock is held. */
static int grow_counted(struct sgp_class *cls, size_t n, size_t most, struct sgp_waiter **served)
{
	uint64_t before = cls->pool->reg.nregions;
	int ret = grow_class(cls, n, most, served);

	for (; before < cls->pool->reg.nregions; before++)
		sgp_count(&cls->count.growths);
	SGP_PROBE3(grow, cls->pool, cls->cut.size, ret ? 0 : n);
	return ret;
}

int sgp_grow_first(struct sgp_class *cls, size_t n)
{
	struct sgp_waiter *nobody = NULL;

	return grow_class(cls, n, n, &nobody);
}

int sgp_pool_grow(struct sgp_pool *pool, size_t size, size_t nchunks)
{
	struct sgp_waiter *served = NULL;
	struct sgp_class *cls;
	size_t left;
	int ret;

	if (sgp_check_fork())
		return -1;
	if (nchunks == 0)
		return sgp_fail(EINVAL, "growth by 0 chunks");
	cls = sgp_pool_class(pool, size);
	if (!cls)
		return -1;
	pthread_mutex_lock(&pool->grow);
	left = cls->max_chunks - cls->made;
	if (nchunks > left)
		ret = sgp_fail(ENOBUFS, "%zu chunks more: the class has %zu of at most %zu",
			       nchunks, cls->made, cls->max_chunks);
	else
		ret = grow_counted(cls, nchunks, left, &served);
	pthread_mutex_unlock(&pool->grow);
	sgp_served_run(served);
	return ret;
}

/* Grow by at least need, half as much again of what is there if it can be had. */
static int grow_step(struct sgp_class *cls, size_t need, size_t left, struct sgp_waiter **served)
{
	size_t step = cls->made / 2;

	if (step > left)
		step = left;
	if (step > need && grow_counted(cls, step, left, served) == 0)
		return 0;
	return grow_counted(cls, need, left, served);
}

/* Chunks that the class lacks to have n available; *left is how many it may still make. */
static size_t lacking(struct sgp_class *cls, size_t n, int flags, size_t *left)
{
	size_t avail, most;

	pthread_mutex_lock(&cls->lock);
	avail = sgp_centre_avail_locked(cls, flags);
	most = cls->cap < cls->max_chunks ? cls->cap : cls->max_chunks;
	*left = most > cls->made ? most - cls->made : 0;
	pthread_mutex_unlock(&cls->lock);
	return avail < n ? n - avail : 0;
}

int sgp_grow_for_get(struct sgp_class *cls, size_t n, int flags, size_t made)
{
	struct sgp_waiter *served = NULL;
	size_t need, left;
	int ret = 0;

	pthread_mutex_lock(&cls->pool->grow);
	need = lacking(cls, n, flags, &left);
	if (need == 0)
		need = 1; /* what is there is for those who wait */
	if (cls->made != made)
		ret = 0;
	else if (need > left)
		ret = sgp_fail(ENOBUFS,
			       "%zu chunk%s of %u bytes asked for, not so many are free, and the "
			       "class has all it may have: %zu",
			       n, n == 1 ? "" : "s", cls->cut.size, cls->made);
	else
		ret = grow_step(cls, need, left, &served);
	pthread_mutex_unlock(&cls->pool->grow);
	sgp_served_run(served);
	return ret;
}

int sgp_drop_all(struct sgp_pool *pool)
{
	uint32_t i;

	for (i = 0; i < pool->nclasses; i++)
		while (pool->classes[i].slabs)
			if (sgp_slabs_drop(&pool->classes[i], pool->classes[i].slabs))
				return -1;
	return 0;
}

/* Is the class below its low water, and may it grow? */
static void top_up(struct sgp_class *cls)
{
	struct sgp_waiter *served = NULL;
	size_t need, left;

	if (!cls->low_water)
		return;
	pthread_mutex_lock(&cls->pool->grow);
	need = lacking(cls, cls->low_water, SGP_GET_RESERVED, &left);
	if (need > left)
		need = left;
	if (need)
		grow_step(cls, need, left, &served);
	pthread_mutex_unlock(&cls->pool->grow);
	sgp_served_run(served);
}

void sgp_top_up(struct sgp_pool *pool)
{
	uint32_t i;

	for (i = 0; i < pool->nclasses; i++)
		top_up(&pool->classes[i]);
}
