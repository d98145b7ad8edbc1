/* SPDX-License-Identifier: BSD-2-Clause */
/* FNV-1a, for the tables of names. Begin with HASH_START. */
#ifndef BROKER_HASH_H
#define BROKER_HASH_H

#include <stddef.h>
#include <stdint.h>

#define HASH_START 2166136261u

static inline uint32_t hash_bytes(uint32_t hash, const void *bytes, size_t n)
{
	const uint8_t *p = bytes;

	for (size_t i = 0; i < n; i++)
		hash = (hash ^ p[i]) * 16777619u;
	return hash;
}

#endif
