/* SPDX-License-Identifier: BSD-2-Clause */
/* The memory that messages are in, see memory.h. */
#include <errno.h>

#include "memory.h"

/* Of the memory, in 32nds; what is left over is for the space between strided chunks. */
enum {
	HEADS = 1,
	SMALLS = 9,
	LARGES = 21,
	HUGES = 15, /* of these, if there are any */
	PAGE = 4096,
};

static struct sgp_class_attr class_of(size_t size, size_t bytes)
{
	const size_t n = bytes / size;

	return (struct sgp_class_attr){.size = size, .chunks = n, .reserve = n / 8};
}

/* What a receive needs beside a chunk of each class, in whole pages; SIZE_MAX: no class of its own. */
static size_t huge_for(size_t receive)
{
	const size_t others = MEMORY_HEAD + MEMORY_SMALL + MEMORY_LARGE;

	if (receive <= others + MEMORY_LARGE)
		return SIZE_MAX;
	return (receive - others + PAGE - 1) / PAGE * PAGE;
}

int memory_open(struct memory *memory, size_t mib, size_t receive)
{
	const size_t part = (mib << 20) / 32, huge = huge_for(receive);
	const bool has_huge = huge != SIZE_MAX;
	const struct sgp_class_attr classes[] = {
		class_of(MEMORY_HEAD, HEADS * part),
		class_of(MEMORY_SMALL, SMALLS * part),
		class_of(MEMORY_LARGE, (has_huge ? LARGES - HUGES : LARGES) * part),
		class_of(huge, HUGES * part),
	};
	const struct sgp_pool_attr attr = {.classes = classes, .nclasses = has_huge ? 4 : 3};

	*memory = (struct memory){.pool = sgp_pool_create(NULL, &attr), .huge = huge};
	return memory->pool ? 0 : -1;
}

uint32_t memory_receives(const struct memory *memory)
{
	const bool has_huge = memory->huge != SIZE_MAX;
	struct sgp_class_stats stats = {0};

	sgp_pool_class_stats(memory->pool, has_huge ? 3 : 2, &stats);
	return (uint32_t)(stats.max_chunks / (has_huge ? 4 : 8));
}

struct sgp_chunk *memory_chunk_for(const struct memory *memory, size_t bytes)
{
	if (bytes >= memory->huge) {
		struct sgp_chunk *chunk = sgp_pool_get(memory->pool, memory->huge, 0);

		if (chunk)
			return chunk;
	}
	return sgp_pool_get(memory->pool, bytes > MEMORY_SMALL ? MEMORY_LARGE : MEMORY_SMALL, 0);
}

int memory_close(struct memory *memory)
{
	return memory->pool ? sgp_pool_destroy(memory->pool) : 0;
}
