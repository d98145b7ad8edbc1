/* SPDX-License-Identifier: BSD-2-Clause */
/* The owners that there are, see known.h: a hash table of their addresses, chained through them. */
#include <pthread.h>

#include "pool/known.h"

#define BUCKETS 1024

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sgp_owner *bucket[BUCKETS];

static struct sgp_owner **bucket_of(const struct sgp_owner *owner)
{
	/* Neighbours are 64 bytes apart at least. */
	return &bucket[((uintptr_t)owner >> 6 ^ (uintptr_t)owner >> 16) % BUCKETS];
}

void sgp_known_add(struct sgp_owner *owner)
{
	struct sgp_owner **first = bucket_of(owner);

	pthread_mutex_lock(&lock);
	owner->next_known = *first;
	*first = owner;
	pthread_mutex_unlock(&lock);
}

void sgp_known_remove(struct sgp_owner *owner)
{
	struct sgp_owner **p = bucket_of(owner);

	pthread_mutex_lock(&lock);
	while (*p && *p != owner)
		p = &(*p)->next_known;
	if (*p)
		*p = owner->next_known;
	pthread_mutex_unlock(&lock);
}

bool sgp_known(const struct sgp_owner *owner)
{
	const struct sgp_owner *o;

	pthread_mutex_lock(&lock);
	for (o = *bucket_of(owner); o && o != owner; o = o->next_known)
		;
	pthread_mutex_unlock(&lock);
	return o != NULL;
}
