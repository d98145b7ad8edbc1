/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which parts of a checked pool's chunks the device has, and for what: noted by the posts, ended when
 * the completion is seen to. A chunk's flights hang on its track (watch.h). What the device reads is
 * summed at both ends, so that a write in between shows, unless others than the program may write
 * there: peers, or a post whose sink it is as well.
 *
 * Locking: one lock for all flights, inside; it is taken last.
 */
#ifndef SGP_FLIGHT_H
#define SGP_FLIGHT_H

#include "pool/watch.h"

/* Note that by, a slot, has the SGE's bytes, as far as these are the chunk's. */
void sgp_flight_begin(struct sgp_chunk *chunk, const struct ibv_sge *sge, bool sink,
		      const void *by);

/* by has nothing of the chunk any more. */
void sgp_flight_end(struct sgp_chunk *chunk, const void *by);

/* Whether a post has a part of the SGE's bytes in the chunk; sinks: for the device to write. */
bool sgp_flight_overlaps(struct sgp_chunk *chunk, const struct ibv_sge *sge, bool sinks);

/* Whether a post has any of it. */
bool sgp_flight_any(const struct sgp_track *track);

#endif
