/* SPDX-License-Identifier: BSD-2-Clause */
#include <string.h>

#include "../asserts.h"
#include "heap_rig.h"

struct rig rig;
struct rig_side *a, *b;
struct sgp_pool *pool;
struct sgp_heap *heap;

void make_heap(size_t pool_bytes, const struct sgp_heap_attr *attr)
{
	struct sgp_pool_attr bare = {
		.max_bytes = pool_bytes, .pages = SGP_PAGES_BASE, .region_bytes = 16 * MIB};

	pool = sgp_pool_create(a->pd, &bare);
	ck_assert_msg(pool != NULL, "%s", sgp_errmsg());
	heap = sgp_heap_create(pool, attr);
	ck_assert_msg(heap != NULL, "%s", sgp_errmsg());
}

void setup(void)
{
	rig_open(&rig, &(struct rig_attr){.chunk_size = 256 * KIB});
	a = &rig.side[0];
	b = &rig.side[1];
	make_heap(256 * MIB, NULL);
}

void end_heap(void)
{
	ck_assert_msg(!sgp_heap_destroy(heap), "%s", sgp_errmsg());
	ck_assert_msg(!sgp_pool_destroy(pool), "%s", sgp_errmsg());
}

void teardown(void)
{
	end_heap();
	rig_close(&rig);
	rig_check_no_leak();
}

struct sgp_heap_stats stats_of(void)
{
	struct sgp_heap_stats stats;

	ck_assert_int_eq(sgp_heap_stats(heap, &stats), 0);
	return stats;
}

void *object(size_t size, int byte)
{
	void *obj = sgp_malloc(heap, size);

	ck_assert_msg(obj != NULL, "%zu: %s", size, sgp_errmsg());
	memset(obj, byte, sgp_usable_size(obj));
	return obj;
}

bool all(const void *mem, int byte, size_t n)
{
	const unsigned char *p = mem;

	for (size_t i = 0; i < n; i++)
		if (p[i] != (unsigned char)byte)
			return false;
	return true;
}
