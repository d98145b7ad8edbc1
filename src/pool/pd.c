/* SPDX-License-Identifier: BSD-2-Clause */
/* The process-wide numbers of protection domains, see pd.h. */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>

#include "pool/errmsg.h"
#include "pool/pd.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	struct ibv_pd *pd;
	unsigned int uses, queues; /* of the uses */
	bool retired;
} table[SGP_MAX_PDS];

static int find_locked(const struct ibv_pd *pd)
{
	for (int i = 0; i < SGP_MAX_PDS; i++)
		if (table[i].uses && table[i].pd == pd)
			return i;
	return -1;
}

static int find_free_locked(bool retired)
{
	for (int i = 0; i < SGP_MAX_PDS; i++)
		if (!table[i].uses && table[i].retired == retired)
			return i;
	return -1;
}

static int use(struct ibv_pd *pd, unsigned int queues)
{
	int i;

	pthread_mutex_lock(&lock);
	i = find_locked(pd);
	if (i < 0)
		i = find_free_locked(false);
	if (i < 0)
		i = find_free_locked(true);
	if (i >= 0) {
		table[i].pd = pd;
		table[i].uses++;
		table[i].queues += queues;
	}
	pthread_mutex_unlock(&lock);
	if (i < 0)
		return sgp_fail(ENOSPC, "%d protection domains are in use by sgpool already",
				SGP_MAX_PDS);
	return i;
}

static void unuse(int index, unsigned int queues)
{
	pthread_mutex_lock(&lock);
	table[index].uses--;
	table[index].queues -= queues;
	pthread_mutex_unlock(&lock);
}

int sgp_pd_acquire(struct ibv_pd *pd)
{
	return use(pd, 1);
}

void sgp_pd_release(int index)
{
	unuse(index, 1);
}

int sgp_pd_join(struct ibv_pd *pd)
{
	return use(pd, 0);
}

void sgp_pd_leave(int index)
{
	unuse(index, 0);
}

uint64_t sgp_pd_bit(int index)
{
	uint64_t bit;

	pthread_mutex_lock(&lock);
	bit = table[index].retired ? 0 : UINT64_C(1) << index;
	pthread_mutex_unlock(&lock);
	return bit;
}

int sgp_pd_retire(int index)
{
	unsigned int queues;

	pthread_mutex_lock(&lock);
	queues = table[index].queues;
	if (!queues)
		table[index].retired = true;
	pthread_mutex_unlock(&lock);
	if (queues)
		return sgp_fail(EBUSY, "%u endpoints are on the protection domain", queues);
	return 0;
}

int sgp_pd_find(const struct ibv_pd *pd)
{
	int i;

	pthread_mutex_lock(&lock);
	i = find_locked(pd);
	pthread_mutex_unlock(&lock);
	return i;
}
