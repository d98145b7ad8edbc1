/* SPDX-License-Identifier: BSD-2-Clause */
/* Which parts of chunks the device has, see flight.h. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "pool/flight.h"
#include "pool/hide.h"

struct sgp_flight {
	struct sgp_flight *next;
	const void *by;
	uint64_t from, to; /* addresses */
	bool sink;         /* the device writes */
	bool summed;
	uint64_t sum;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* FNV-1a, eight bytes at a time: it is to notice a change, not to withstand an attack. */
static uint64_t sum(const struct sgp_flight *flight)
{
	const unsigned char *p = (const unsigned char *)(uintptr_t)flight->from;
	size_t n = flight->to - flight->from;
	uint64_t h = 0xcbf29ce484222325u, word;

	for (; n >= sizeof word; p += sizeof word, n -= sizeof word) {
		memcpy(&word, p, sizeof word);
		h = (h ^ word) * 0x100000001b3u;
	}
	while (n--)
		h = (h ^ *p++) * 0x100000001b3u;
	return h;
}

/* The part of the SGE that lies in the chunk. Returns false if there is none. */
static bool clip(const struct sgp_chunk *chunk, const struct ibv_sge *sge, uint64_t *from,
		 uint64_t *to)
{
	uint64_t start = (uintptr_t)chunk->addr, end = start + chunk->size;

	*from = sge->addr > start ? sge->addr : start;
	*to = sge->addr + sge->length < end ? sge->addr + sge->length : end;
	return *from < *to;
}

static bool overlaps_locked(const struct sgp_track *track, uint64_t from, uint64_t to, bool sinks)
{
	const struct sgp_flight *flight;

	for (flight = track->flights; flight; flight = flight->next)
		if (flight->from < to && from < flight->to && (flight->sink || !sinks))
			return true;
	return false;
}

/* A list may have several holds of a chunk: each part of it is noted once. */
static bool is_noted_locked(const struct sgp_track *track, const struct sgp_flight *as)
{
	const struct sgp_flight *flight;

	for (flight = track->flights; flight; flight = flight->next)
		if (flight->by == as->by && flight->from == as->from && flight->to == as->to)
			return true;
	return false;
}

void sgp_flight_begin(struct sgp_chunk *chunk, const struct ibv_sge *sge, bool sink, const void *by)
{
	const uint32_t others = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
	struct sgp_track *track = sgp_track_of(chunk);
	struct sgp_flight flight = {.by = by, .sink = sink}, *noted;

	if (!track || !clip(chunk, sge, &flight.from, &flight.to))
		return;
	/* Without memory for it this one goes unnoticed: no reason to refuse a post. */
	noted = malloc(sizeof *noted);
	if (!noted)
		return;
	pthread_mutex_lock(&lock);
	if (is_noted_locked(track, &flight)) {
		pthread_mutex_unlock(&lock);
		free(noted);
		return;
	}
	flight.summed = !sink && !(chunk->owner->region.access & others) &&
			!overlaps_locked(track, flight.from, flight.to, true);
	if (flight.summed)
		flight.sum = sum(&flight);
	flight.next = track->flights;
	*noted = flight;
	track->flights = noted;
	pthread_mutex_unlock(&lock);
}

/* Take what by has of the chunk out of its track. */
static struct sgp_flight *take(struct sgp_track *track, const void *by)
{
	struct sgp_flight **p, *flight, *taken = NULL;

	pthread_mutex_lock(&lock);
	for (p = &track->flights; (flight = *p);) {
		if (flight->by != by) {
			p = &flight->next;
			continue;
		}
		*p = flight->next;
		flight->next = taken;
		taken = flight;
	}
	pthread_mutex_unlock(&lock);
	return taken;
}

void sgp_flight_end(struct sgp_chunk *chunk, const void *by)
{
	struct sgp_track *track = sgp_track_of(chunk);
	struct sgp_flight *flight, *next;

	for (flight = track ? take(track, by) : NULL; flight; flight = next) {
		next = flight->next;
		if (flight->summed && flight->sum != sum(flight))
			sgp_found(SGP_FOUND_WRITE_IN_FLIGHT, chunk->owner->pool, chunk, &track->got,
				  NULL,
				  "written to while it was posted: some of %zu bytes from byte %zu "
				  "on",
				  (size_t)(flight->to - flight->from),
				  (size_t)(flight->from - (uintptr_t)chunk->addr));
		free(flight);
	}
}

bool sgp_flight_overlaps(struct sgp_chunk *chunk, const struct ibv_sge *sge, bool sinks)
{
	struct sgp_track *track = sgp_track_of(chunk);
	uint64_t from, to;
	bool found;

	if (!track || !clip(chunk, sge, &from, &to))
		return false;
	pthread_mutex_lock(&lock);
	found = overlaps_locked(track, from, to, sinks);
	pthread_mutex_unlock(&lock);
	return found;
}

bool sgp_flight_any(const struct sgp_track *track)
{
	bool any;

	pthread_mutex_lock(&lock);
	any = track->flights != NULL;
	pthread_mutex_unlock(&lock);
	return any;
}
