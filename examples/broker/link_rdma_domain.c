/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Links over RDMA: protection domains, one a device and pool, for all threads. A pool is registered on
 * one when its first user comes, and deregistered when the last goes; a lock guards the table.
 */
#include <errno.h>
#include <pthread.h>

#include "link_rdma_parts.h"

enum {
	PDS = 16,
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct domain {
	struct ibv_context *verbs;
	struct sgp_pool *pool;
	struct ibv_pd *pd;
	int users;
} domains[PDS];

static struct ibv_pd *make_domain(struct domain *d, struct ibv_context *verbs,
				  struct sgp_pool *pool)
{
	*d = (struct domain){.verbs = verbs, .pool = pool, .pd = ibv_alloc_pd(verbs)};
	if (d->pd && sgp_pool_add_pd(pool, d->pd)) {
		const int err = errno;

		ibv_dealloc_pd(d->pd);
		d->pd = NULL;
		errno = err;
	}
	return d->pd;
}

struct ibv_pd *rdma_domain_get(struct ibv_context *verbs, struct sgp_pool *pool)
{
	struct ibv_pd *pd = NULL;
	int at = -1;

	pthread_mutex_lock(&lock);
	for (int i = 0; i < PDS; i++) {
		if (domains[i].pd && domains[i].verbs == verbs && domains[i].pool == pool) {
			at = i;
			break;
		}
		if (!domains[i].pd && at < 0)
			at = i;
	}
	errno = ENOSPC;
	if (at >= 0)
		pd = domains[at].pd ? domains[at].pd : make_domain(&domains[at], verbs, pool);
	if (pd)
		domains[at].users++;
	pthread_mutex_unlock(&lock);
	return pd;
}

int rdma_domain_put(struct ibv_pd *pd)
{
	int ret = 0;

	pthread_mutex_lock(&lock);
	for (int i = 0; i < PDS; i++)
		if (domains[i].pd == pd && --domains[i].users == 0) {
			ret = sgp_pool_remove_pd(domains[i].pool, pd) || ibv_dealloc_pd(pd) ? -1
											    : 0;
			domains[i].pd = NULL;
		}
	pthread_mutex_unlock(&lock);
	return ret;
}
