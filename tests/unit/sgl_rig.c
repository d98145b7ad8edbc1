/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdbool.h>
#include <stdlib.h>

#include "../asserts.h"
#include "sgl_rig.h"

struct ibv_pd *pd;
struct sgp_pool *pool;
struct sgp_chunk *chunks[NCHUNKS];

static struct ibv_device **devices;
static struct ibv_context *verbs;

int by_address(const void *a, const void *b)
{
	uintptr_t x = (uintptr_t)sgp_chunk_addr(*(struct sgp_chunk *const *)a);
	uintptr_t y = (uintptr_t)sgp_chunk_addr(*(struct sgp_chunk *const *)b);

	return x < y ? -1 : x > y;
}

void sgl_setup(void)
{
	struct sgp_class_attr class = {.size = 4096, .chunks = NCHUNKS};
	struct sgp_pool_attr attr = {.classes = &class, .nclasses = 1, .pages = SGP_PAGES_BASE};

	devices = ibv_get_device_list(NULL);
	ck_assert_ptr_nonnull(devices);
	verbs = ibv_open_device(devices[0]);
	pd = ibv_alloc_pd(verbs);
	pool = sgp_pool_create(pd, &attr);
	ck_assert_msg(pool != NULL, "%s", sgp_errmsg());
	ck_assert_int_eq(sgp_pool_get_bulk(pool, 4096, 0, chunks, NCHUNKS), 0);
	qsort(chunks, NCHUNKS, sizeof *chunks, by_address);
}

void sgl_teardown(void)
{
	sgp_chunk_put_bulk(chunks, NCHUNKS);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
	ck_assert_int_eq(ibv_close_device(verbs), 0);
	ibv_free_device_list(devices);
}

int add(struct sgp_sgl *sgl, int chunk, size_t offset, size_t length)
{
	int ret;

	sgp_chunk_ref(chunks[chunk]);
	ret = sgp_sgl_append(sgl, chunks[chunk], offset, length);
	if (ret)
		sgp_chunk_put(chunks[chunk]);
	return ret;
}

void check_sums(const struct sgp_sgl *sgl, uint64_t length)
{
	uint64_t sum = 0;
	bool empty = false;

	for (int i = 0; i < sgl->num_sge; i++) {
		empty |= !sgl->sge[i].length;
		sum += sgl->sge[i].length;
	}
	/* One assertion: Check makes each a write to a file. */
	ck_assert_msg(!empty && sum == length && sgl->length == length,
		      "%d SGEs of %llu bytes, length %llu, wanted %llu", sgl->num_sge,
		      (unsigned long long)sum, (unsigned long long)sgl->length,
		      (unsigned long long)length);
}
