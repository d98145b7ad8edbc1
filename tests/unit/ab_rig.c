/* SPDX-License-Identifier: BSD-2-Clause */
#include "../asserts.h"
#include "ab_rig.h"

struct rig rig;
struct rig_side *a, *b;
int context[64];

void open_rig(struct rig_attr attr)
{
	rig_open(&rig, &attr);
	a = &rig.side[0];
	b = &rig.side[1];
}

void open_remote(struct rig_attr attr)
{
	attr.pool_flags = SGP_POOL_REMOTE_READ | SGP_POOL_REMOTE_WRITE | SGP_POOL_REMOTE_ATOMIC;
	open_rig(attr);
}

void close_rig(void)
{
	rig_close(&rig);
	rig_check_no_leak();
}

struct sgp_ep_stats stats_of(struct rig_side *side)
{
	struct sgp_ep_stats stats;

	ck_assert_int_eq(sgp_ep_stats(side->ep, &stats), 0);
	return stats;
}

void build(struct rig_side *side, struct sgp_sgl *sgl, int n, size_t bytes, int first)
{
	for (int i = 0; i < n; i++)
		ck_assert_msg(!sgp_sgl_append(sgl, rig_chunk(side, first + i), 8, bytes), "%s",
			      sgp_errmsg());
}

void check_run(const char *at, int n, size_t bytes, int first)
{
	int wrong = 0;

	for (int i = 0; i < n; i++)
		for (size_t j = 0; j < bytes; j++)
			wrong += at[(size_t)i * bytes + j] != (char)(first + i);
	ck_assert_int_eq(wrong, 0);
}

void reaped(struct rig_side *side, void *ctx, enum ibv_wc_opcode opcode)
{
	rig_reap(side, 1);
	ck_assert_ptr_eq(side->wc[0].context, ctx);
	ck_assert_int_eq(side->wc[0].opcode, opcode);
	ck_assert_int_eq(side->wc[0].status, IBV_WC_SUCCESS);
	ck_assert_int_eq(side->wc[0].error, 0);
}

int send_one(struct rig_side *side, void *ctx, int flags)
{
	struct sgp_chunk *chunk = rig_chunk(side, 1);
	int ret = sgp_post_send(side->ep, ctx, chunk, 0, 64, flags);

	if (ret)
		sgp_chunk_put(chunk);
	return ret;
}
