/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <string.h>

#include "../asserts.h"
#include "pds_rig.h"
#include "pool/chunk.h"
#include "pool/pool.h"

#define CHUNKS 64

struct sgp_pool *pool;
struct ibv_context *verbs;
int context;

static struct ibv_pd *home;

void make_pool(struct ibv_pd *pd)
{
	struct sgp_class_attr cls = {.size = PAGE, .chunks = CHUNKS};
	struct sgp_pool_attr attr = {.classes = &cls,
				     .nclasses = 1,
				     .pages = SGP_PAGES_BASE,
				     .region_bytes = 2 * PAGE,
				     .flags = SGP_POOL_REMOTE_READ | SGP_POOL_REMOTE_WRITE};

	pool = sgp_pool_create(pd, &attr);
	ck_assert_msg(pool != NULL, "%s", sgp_errmsg());
}

static void make_home(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	verbs = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	home = ibv_alloc_pd(verbs);
	ck_assert_ptr_nonnull(home);
}

void pds_setup(void)
{
	/* Without other processes, two devices number their queue pairs alike: case 44b. */
	setenv("SGP_SOFTVERBS_NET", "none", 1);
	ck_assert_int_eq(sv_device_add("soft0", "soft", 1), 0);
	ck_assert_int_eq(sv_device_add("soft1", "soft", 1), 0);
	sv_strict(1);
	make_home();
	make_pool(home);
}

void pds_teardown(void)
{
	struct sgp_pool_stats stats;

	ck_assert_int_eq(sgp_pool_stats(pool, &stats), 0);
	ck_assert_uint_eq(stats.live, 0);
	ck_assert_ptr_null(sgp_pool_check(pool));
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
	ck_assert_int_eq(ibv_dealloc_pd(home), 0);
	ck_assert_int_eq(ibv_close_device(verbs), 0);
	ck_assert_msg(sv_strict_count() == 0, "%s", sv_strict_sentence(0));
	rig_check_no_leak();
}

const char *const addrs[] = {"127.0.0.1", "127.0.1.1"};

void open_on(struct rig *rig, int device)
{
	struct rig_attr attr = {.pool = pool, .addr = addrs[device], .cq_sge = 16, .max_sge = 8};

	rig_open(rig, &attr);
	ck_assert_str_eq(ibv_get_device_name(rig->side[0].id->verbs->device),
			 device ? "soft1" : "soft0");
	ck_assert_str_eq(ibv_get_device_name(rig->side[1].id->verbs->device),
			 device ? "soft1" : "soft0");
}

void fill_list(struct sgp_sgl *sgl, int n, int seed)
{
	ck_assert_msg(!sgp_sgl_get(sgl, pool, PAGE, n, 0), "%s", sgp_errmsg());
	for (int i = 0; i < sgl->num_chunk; i++)
		memset(sgp_chunk_addr(sgl->chunk[i]), seed + i, PAGE);
}

void expect_bytes(const struct sgp_sgl *sgl, uint64_t from, int n, int seed)
{
	uint64_t at = from;

	for (int i = 0; i < sgl->num_sge; i++) {
		const uint8_t *p = (const uint8_t *)(uintptr_t)sgl->sge[i].addr;

		for (uint32_t j = 0; j < sgl->sge[i].length; j++, at++)
			ck_assert_uint_eq(p[j], (uint8_t)(seed + (int)(at / PAGE)));
	}
	ck_assert_uint_eq(at, (uint64_t)n * PAGE);
}

void expect_keys_of(const struct sgp_sgl *sgl, const struct rig_side *side)
{
	for (int i = 0; i < sgl->num_sge; i++) {
		struct sgp_chunk *chunk =
			sgp_pool_chunk_at(pool, (void *)(uintptr_t)sgl->sge[i].addr);
		uint32_t lkey;

		ck_assert_int_eq(sgp_chunk_keys(chunk, side->pd, &lkey, NULL), 0);
		ck_assert_uint_eq(sgl->sge[i].lkey, lkey);
	}
}

void carry(struct rig_side *from, struct rig_side *to, int n, int seed)
{
	SGP_SGL(out, 8);
	SGP_SGL(in, 8);

	ck_assert_int_eq(sgp_sgl_get(&in, pool, PAGE, n, 0), 0);
	ck_assert_msg(!sgp_post_recvv(to->ep, &context, &in), "%s", sgp_errmsg());
	fill_list(&out, n, seed);
	ck_assert_msg(!sgp_post_sendv(from->ep, &context, &out, IBV_SEND_SIGNALED), "%s",
		      sgp_errmsg());
	rig_reap(from, 1);
	ck_assert_int_eq(from->wc[0].status, IBV_WC_SUCCESS);
	rig_reap(to, 1);
	ck_assert_int_eq(to->wc[0].status, IBV_WC_SUCCESS);
	expect_bytes(&to->wc[0].sgl, 0, n, seed);
	expect_keys_of(&to->wc[0].sgl, to);
}
