/* SPDX-License-Identifier: BSD-2-Clause */
/* What can be asked of checked pools: whether free memory is as it was, and who holds the rest. */
#include <errno.h>
#include <stdio.h>

#include "pool/errmsg.h"
#include "pool/flight.h"

int sgp_check_verify(struct sgp_pool *pool)
{
	int ret = 0;

	if (sgp_check_fork())
		return -1;
	for (uint32_t c = 0; pool->watch & SGP_WATCH_CHECK && c < pool->nclasses; c++) {
		for (struct sgp_slab *slab = pool->classes[c].slabs; slab; slab = slab->next) {
			for (size_t i = 0; i < slab->room; i++) {
				if (slab->tracks[i].state != SGP_TRACK_FREE)
					continue;
				ret |= sgp_watch_verify(&slab->chunks[i]);
			}
		}
	}
	return ret;
}

static int tell_held(const struct sgp_class *cls,
		     int (*told)(const struct sgp_held *held, void *arg), void *arg)
{
	int ret = 0;

	for (const struct sgp_slab *slab = cls->slabs; slab; slab = slab->next) {
		for (size_t i = 0; !ret && slab->tracks && i < slab->made; i++) {
			const struct sgp_track *track = &slab->tracks[i];
			const struct sgp_who got = sgp_who_kept(&track->got);
			struct sgp_chunk *chunk = &slab->chunks[i];
			const struct sgp_held held = {
				.chunk = chunk,
				.references = __atomic_load_n(&chunk->refs, __ATOMIC_RELAXED) + 1,
				.posted = sgp_flight_any(track),
				.got = {.address = got.frame, .n = got.n}};

			if (track->state == SGP_TRACK_HELD)
				ret = told(&held, arg);
		}
	}
	return ret;
}

int sgp_check_held(struct sgp_pool *pool, int (*told)(const struct sgp_held *held, void *arg),
		   void *arg)
{
	int ret = 0;

	if (sgp_check_fork())
		return -1;
	for (uint32_t i = 0; pool->watch & SGP_WATCH_CHECK && !ret && i < pool->nclasses; i++)
		ret = tell_held(&pool->classes[i], told, arg);
	return ret;
}

int sgp_check_claim(struct sgp_chunk *chunk)
{
	struct sgp_track *track;

	if (sgp_check_fork())
		return -1;
	if (!chunk)
		return sgp_fail(EINVAL, "claim: no chunk");
	if (sgp_mode_is_ordinary())
		return 0;
	if (sgp_watch_use(chunk))
		return -1;
	track = sgp_track_of(chunk);
	if (track && sgp_flight_any(track))
		return sgp_fail(EBUSY, "claim: the chunk is posted: it's the device's until its "
				       "completion has been polled");
	return 0;
}

struct phrase {
	char *buf;
	size_t size, at;
	int told;
};

static int add_holder(const struct sgp_held *held, void *arg)
{
	struct phrase *phrase = arg;
	struct sgp_who who = {.n = held->got.n};
	char name[112];

	for (int i = 0; i < who.n; i++)
		who.frame[i] = held->got.address[i];
	phrase->at += (size_t)snprintf(phrase->buf + phrase->at, phrase->size - phrase->at,
				       "%s%s%s", phrase->told ? ", by " : ": taken by ",
				       sgp_who_print(&who, name, sizeof name),
				       held->posted ? " (posted)" : "");
	return ++phrase->told == 3 || phrase->at >= phrase->size;
}

char *sgp_watch_holders(const struct sgp_class *cls, char *buf, size_t size)
{
	struct phrase phrase = {.buf = buf, .size = size};

	buf[0] = 0;
	if (cls->pool->watch & SGP_WATCH_CHECK)
		tell_held(cls, add_holder, &phrase);
	return buf;
}
