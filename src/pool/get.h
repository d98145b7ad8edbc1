/* SPDX-License-Identifier: BSD-2-Clause */
/* The ways of a chunk between the centre, the caches and its owners, as far as other files need
 * them. */
#ifndef SGP_GET_H
#define SGP_GET_H

#include "pool/cache.h"

#define SGP_GET_FLAGS (SGP_MAY_GROW | SGP_GET_RESERVED)

/*
 * Drop one reference; true if it was the last. Whoever sees 0 is alone: the load acquires what the
 * other holders did before their decrements, which release it.
 */
static inline bool sgp_last_drop(struct sgp_chunk *chunk)
{
	if (__atomic_load_n(&chunk->refs, __ATOMIC_ACQUIRE) == 0)
		return true;
	if (__atomic_fetch_sub(&chunk->refs, 1, __ATOMIC_ACQ_REL) != 0)
		return false;
	/* The other holder was faster: the count went below its resting value. */
	__atomic_store_n(&chunk->refs, 0, __ATOMIC_RELAXED);
	return true;
}

#endif
