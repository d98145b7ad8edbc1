/* SPDX-License-Identifier: BSD-2-Clause */
/* xorshift64*, so that a seed means the same everywhere. */
#ifndef MODEL_RND_H
#define MODEL_RND_H

#include <stdint.h>

static inline uint32_t rnd(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return (uint32_t)((*state * 2685821657736338717ull) >> 32);
}

#endif
