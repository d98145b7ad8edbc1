/* SPDX-License-Identifier: BSD-2-Clause */
/* Client identifiers, see registry.h. */
#include <string.h>

#include "hash.h"
#include "registry.h"

enum {
	BUCKETS_MIN = 64,
};

struct registered {
	struct registered *next;
	uint64_t session;
	uint32_t hash;
	uint16_t n;
	uint8_t id[];
};

int registry_open(struct registry *registry, struct budget *budget)
{
	*registry = (struct registry){.budget = budget, .nbuckets = BUCKETS_MIN};
	registry->buckets = budget_alloc(budget, BUCKETS_MIN * sizeof(void *));
	if (!registry->buckets)
		return -1;
	pthread_mutex_init(&registry->lock, NULL);
	return 0;
}

void registry_close(struct registry *registry)
{
	for (size_t i = 0; i < registry->nbuckets; i++) {
		struct registered *r = registry->buckets[i];

		while (r) {
			struct registered *next = r->next;

			budget_free(registry->budget, r, sizeof *r + r->n);
			r = next;
		}
	}
	budget_free(registry->budget, registry->buckets, registry->nbuckets * sizeof(void *));
	pthread_mutex_destroy(&registry->lock);
}

/* What points to the entry, or to the end of its bucket. */
static struct registered **find(struct registry *registry, struct mqtt_bytes id, uint32_t hash)
{
	struct registered **at = &registry->buckets[hash & (registry->nbuckets - 1)];

	while (*at &&
	       ((*at)->hash != hash || (*at)->n != id.n || memcmp((*at)->id, id.p, id.n) != 0))
		at = &(*at)->next;
	return at;
}

static void widen(struct registry *registry)
{
	const size_t n = registry->nbuckets;
	struct registered **old = registry->buckets;
	struct registered **wider = budget_alloc(registry->budget, 2 * n * sizeof(void *));

	if (!wider)
		return;
	for (size_t i = 0; i < n; i++) {
		while (old[i]) {
			struct registered *r = old[i];
			struct registered **at = &wider[r->hash & (2 * n - 1)];

			old[i] = r->next;
			r->next = *at;
			*at = r;
		}
	}
	registry->buckets = wider;
	registry->nbuckets = 2 * n;
	budget_free(registry->budget, old, n * sizeof(void *));
}

static int claim(struct registry *registry, struct mqtt_bytes id, uint64_t session,
		 uint64_t *before)
{
	const uint32_t hash = hash_bytes(HASH_START, id.p, id.n);
	struct registered **at = find(registry, id, hash), *r = *at;

	*before = r ? r->session : 0;
	if (!r) {
		r = budget_alloc(registry->budget, sizeof *r + id.n);
		if (!r)
			return -1;
		r->hash = hash;
		r->n = id.n;
		memcpy(r->id, id.p, id.n);
		*at = r;
		if (++registry->n > registry->nbuckets)
			widen(registry);
	}
	r->session = session;
	return 0;
}

int registry_claim(struct registry *registry, struct mqtt_bytes id, uint64_t session,
		   uint64_t *before)
{
	int ret;

	pthread_mutex_lock(&registry->lock);
	ret = claim(registry, id, session, before);
	pthread_mutex_unlock(&registry->lock);
	return ret;
}

void registry_leave(struct registry *registry, struct mqtt_bytes id, uint64_t session)
{
	struct registered **at, *r;

	pthread_mutex_lock(&registry->lock);
	at = find(registry, id, hash_bytes(HASH_START, id.p, id.n));
	r = *at;
	if (r && r->session == session) {
		*at = r->next;
		registry->n--;
		budget_free(registry->budget, r, sizeof *r + r->n);
	}
	pthread_mutex_unlock(&registry->lock);
}
