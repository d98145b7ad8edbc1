/* SPDX-License-Identifier: BSD-2-Clause */
/* The protection domains of a living pool: the calls. See registrar.h. */
#include <errno.h>

#include "pool/errmsg.h"
#include "pool/extent.h"
#include "pool/pool.h"
#include "pool/thread.h"

/* The shortest region that the pool can work with. */
static size_t least_region(const struct sgp_pool *pool)
{
	size_t page = sgp_least_page(pool->backing.pages);
	size_t bytes = page;

	if (pool->nclasses && pool->classes[pool->nclasses - 1].cut.size > bytes)
		bytes = pool->classes[pool->nclasses - 1].cut.size;
	return sgp_round_up(bytes, page);
}

int sgp_pool_add_pd(struct sgp_pool *pool, struct ibv_pd *pd)
{
	size_t most;
	int ret;

	if (sgp_check_fork())
		return -1;
	if (!pool || !pd)
		return sgp_fail(EINVAL, "a pool and a protection domain are needed");
	pthread_mutex_lock(&pool->grow);
	ret = sgp_registrar_add(&pool->reg, pd, least_region(pool));
	most = sgp_registrar_most(&pool->reg);
	if (!ret && most < pool->backing.max_bytes)
		pool->backing.max_bytes = most & ~(sgp_least_page(pool->backing.pages) - 1);
	pthread_mutex_unlock(&pool->grow);
	return ret;
}

int sgp_pool_remove_pd(struct sgp_pool *pool, struct ibv_pd *pd)
{
	int ret;

	if (sgp_check_fork())
		return -1;
	if (!pool || !pd)
		return sgp_fail(EINVAL, "a pool and a protection domain are needed");
	pthread_mutex_lock(&pool->grow);
	ret = sgp_registrar_remove(&pool->reg, pd);
	pthread_mutex_unlock(&pool->grow);
	return ret;
}
