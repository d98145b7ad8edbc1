/* SPDX-License-Identifier: BSD-2-Clause */
/* See other_layout.h. */
#include "sgpool/sgpool.h"

#include "other_layout.h"

int other_layout(void)
{
	return SGP_LAYOUT;
}

struct sgp_chunk *other_layout_get(struct sgp_pool *pool, size_t size)
{
	return sgp_pool_get(pool, size, 0);
}

void other_layout_put(struct sgp_chunk *chunk)
{
	sgp_chunk_put(chunk);
}

void *other_layout_addr(const struct sgp_chunk *chunk)
{
	return sgp_chunk_addr(chunk);
}

int other_layout_sgl_get(struct sgp_sgl *sgl, struct sgp_pool *pool, size_t size, int n)
{
	return sgp_sgl_get(sgl, pool, size, n, 0);
}

bool other_layout_serves(struct sgp_pool *pool, size_t size)
{
	struct sgp_chunk *chunk;

	return sgp_mag_get(&sgp_thread, pool, size, &chunk);
}

bool other_layout_takes(struct sgp_chunk *chunk)
{
	return sgp_mag_put(&sgp_thread, chunk);
}

bool other_layout_serves_list(struct sgp_sgl *sgl, struct sgp_pool *pool, size_t size, int n)
{
	return sgp_sgl_take(sgl, pool, size, n, 0);
}
