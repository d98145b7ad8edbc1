/* SPDX-License-Identifier: BSD-2-Clause */
/* The memory that messages are in, see memory.h. */
#include <errno.h>

#include "memory.h"

/* Of the memory, in 32nds; what is left over is for the space between strided chunks. */
enum {
	HEADS = 1,
	SMALLS = 9,
	LARGES = 21,
};

static struct sgp_class_attr class_of(size_t size, size_t bytes)
{
	const size_t n = bytes / size;

	return (struct sgp_class_attr){.size = size, .chunks = n, .reserve = n / 8};
}

int memory_open(struct memory *memory, size_t mib, struct ibv_pd *pd)
{
	const size_t part = (mib << 20) / 32;
	const struct sgp_class_attr classes[] = {
		class_of(MEMORY_HEAD, HEADS * part),
		class_of(MEMORY_SMALL, SMALLS * part),
		class_of(MEMORY_LARGE, LARGES * part),
	};
	const struct sgp_pool_attr attr = {.classes = classes, .nclasses = 3};

	*memory = (struct memory){.pool = sgp_pool_create(pd, &attr)};
	return memory->pool ? 0 : -1;
}

int memory_close(struct memory *memory)
{
	return memory->pool ? sgp_pool_destroy(memory->pool) : 0;
}
