/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The process-wide numbers of protection domains, see chunk.h.
 *
 * One mutex over a table; nothing on the data path comes here.
 */
#include <errno.h>
#include <pthread.h>

#include "pool/chunk.h"
#include "pool/errmsg.h"

#define MAX_PDS 64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	struct ibv_pd *pd;
	unsigned int uses;
} table[MAX_PDS];

int sgp_pd_acquire(struct ibv_pd *pd)
{
	int i, found = -1;

	pthread_mutex_lock(&lock);
	for (i = 0; i < MAX_PDS; i++) {
		if (table[i].uses && table[i].pd == pd) {
			found = i;
			break;
		}
		if (!table[i].uses && found < 0)
			found = i;
	}
	if (found >= 0) {
		table[found].pd = pd;
		table[found].uses++;
	}
	pthread_mutex_unlock(&lock);
	if (found < 0)
		return sgp_fail(ENOSPC, "%d protection domains are in use by sgpool already",
				MAX_PDS);
	return found;
}

void sgp_pd_release(int index)
{
	pthread_mutex_lock(&lock);
	table[index].uses--;
	pthread_mutex_unlock(&lock);
}
