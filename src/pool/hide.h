/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Telling AddressSanitizer, in a library that was built with it, which memory nobody may touch;
 * sgpool/inline.h does so for chunks on the short ways.
 *
 *      a slab's piece   hidden as a whole from its beginning to its end
 *      a chunk          shown from its get to its last put: its size, not its stride
 *
 * What peers may reach at any time stays shown: a device in software would be blamed for them.
 *
 * Locking: none; whoever calls owns the memory.
 */
#ifndef SGP_HIDE_H
#define SGP_HIDE_H

#include "pool/slab.h"

/* Rights with which a peer may come at any time. */
#define SGP_REMOTE_ACCESS                                                                          \
	(IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC |             \
	 IBV_ACCESS_MW_BIND)

static inline bool sgp_is_for_peers(const struct sgp_slab *slab)
{
	return slab->owner.region.access & SGP_REMOTE_ACCESS;
}

static inline void sgp_hide_chunk(const struct sgp_chunk *chunk)
{
	if (SGP_ASAN && !sgp_is_for_peers(sgp_slab_of(chunk)))
		SGP_HIDE(chunk->addr, sgp_slab_of(chunk)->cut.size);
}

/* Whatever it is for now: it may have been hidden before a domain came by which peers reach it. */
static inline void sgp_show_chunk(const struct sgp_chunk *chunk)
{
	(void)chunk; /* where there is no AddressSanitizer */
	if (SGP_ASAN)
		SGP_SHOW(chunk->addr, sgp_slab_of(chunk)->cut.size);
}

/* The same for n of them. */
static inline void sgp_hide_chunks(struct sgp_chunk *const chunks[], size_t n)
{
	for (size_t i = 0; SGP_ASAN && i < n; i++)
		sgp_hide_chunk(chunks[i]);
}

static inline void sgp_show_chunks(struct sgp_chunk *const chunks[], size_t n)
{
	for (size_t i = 0; SGP_ASAN && i < n; i++)
		sgp_show_chunk(chunks[i]);
}

#endif
