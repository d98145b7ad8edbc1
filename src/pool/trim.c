/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shrinking: whole free regions are given back while others use the pool.
 *
 * Under the class's lock the caches are emptied, the free chunks counted by slab, and the chunks of
 * the slabs that go are taken out of the centre; from then on nobody can get one. Deregistration,
 * which takes long, happens without that lock. See grow.h.
 */
#include <errno.h>

#include "pool/cache.h"
#include "pool/errmsg.h"
#include "pool/grow.h"
#include "pool/probe.h"
#include "pool/slabs.h"
#include "pool/trim.h"

/* Choose the slabs that go and take their chunks. Returns how many chunks these are. */
static size_t choose(struct sgp_class *cls, size_t keep)
{
	size_t made, gone = 0, i;
	struct sgp_slab *slab;

	pthread_mutex_lock(&cls->lock);
	sgp_reclaim_locked(cls);
	for (slab = cls->slabs; slab; slab = slab->next)
		slab->idle = 0;
	for (i = 0; i < cls->nfree; i++)
		sgp_slab_of(cls->free[i])->idle++;
	made = cls->made;
	for (slab = cls->slabs; slab; slab = slab->next) {
		slab->leaving = slab->idle == slab->made && made - slab->made >= keep;
		if (slab->leaving) {
			made -= slab->made;
			gone += slab->made;
		}
	}
	sgp_centre_remove_locked(cls);
	/* Fewer chunks than the reserve now: what comes back is the reserve's, not a cache's. */
	if (cls->reserve && sgp_centre_avail_locked(cls, 0) == 0)
		cls->pressure = true;
	pthread_mutex_unlock(&cls->lock);
	return gone;
}

/*
 * End what was chosen. A slab that the device keeps goes back into use; if it can't even do that, it
 * stays aside until the next trim.
 */
static int give_back(struct sgp_class *cls, struct sgp_waiter **served)
{
	struct sgp_slab *slab, *next;
	int err = 0;

	for (slab = cls->slabs; slab; slab = next) {
		next = slab->next;
		if (!slab->leaving)
			continue;
		slab->leaving = false;
		if (sgp_slabs_drop(cls, slab) == 0) {
			sgp_count(&cls->count.trims);
			continue;
		}
		err = errno;
		if (!slab->owner.region.whole)
			continue;
		pthread_mutex_lock(&cls->lock);
		sgp_centre_add_locked(cls, slab, slab->idle);
		sgp_serve_locked(cls, served);
		pthread_mutex_unlock(&cls->lock);
	}
	errno = err;
	return err ? -1 : 0;
}

int sgp_trim_class(struct sgp_class *cls, size_t keep)
{
	struct sgp_waiter *served = NULL;
	size_t gone;
	int ret;

	pthread_mutex_lock(&cls->pool->grow);
	gone = choose(cls, keep);
	ret = give_back(cls, &served);
	pthread_mutex_unlock(&cls->pool->grow);
	if (gone)
		SGP_PROBE3(trim, cls->pool, cls->cut.size, gone);
	sgp_served_run(served);
	return ret;
}

int sgp_pool_trim(struct sgp_pool *pool, size_t size, size_t keep)
{
	struct sgp_class *cls;
	int ret = 0, err = 0;
	uint32_t i;

	if (sgp_check_fork())
		return -1;
	if (size || !pool) {
		cls = sgp_pool_class(pool, size);
		return cls ? sgp_trim_class(cls, keep) : -1;
	}
	for (i = 0; i < pool->nclasses; i++) {
		if (sgp_trim_class(&pool->classes[i], keep)) {
			ret = -1;
			err = errno;
		}
	}
	if (ret)
		errno = err;
	return ret;
}
