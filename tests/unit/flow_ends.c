/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <string.h>

#include "../asserts.h"
#include "flow_ends.h"

static struct rig rig;
struct end ends[2];

void end_check(const struct end *e)
{
	const struct sgp_flow *f = &e->flow;

	ck_assert_uint_eq(f->peer_credits + f->used + f->owed, f->depth);
	ck_assert_uint_eq(f->peer_slots + f->used_slots + f->owed_slots, SGP_FLOW_RESERVE);
	ck_assert_uint_le(f->credits, f->peer_depth);
	ck_assert_uint_le(f->slots, SGP_FLOW_RESERVE);
}

static void post_chunk(struct end *e, struct sgp_chunk *chunk)
{
	ck_assert_msg(!sgp_post_recv(e->side->ep, NULL, chunk, 0, BYTES), "%s", sgp_errmsg());
}

static void greet(struct end *to, const struct end *from)
{
	uint8_t hello[SGP_FLOW_HELLO];

	sgp_flow_hello(&from->flow, hello);
	ck_assert_msg(!sgp_flow_greet(&to->flow, hello, sizeof hello), "%s", sgp_errmsg());
}

/* Both ends of a connection on a device of this persona, with these depths and send queues. */
void ends_open(const char *persona, uint32_t depth0, uint32_t depth1, uint32_t flags)
{
	const uint32_t depth[2] = {depth0, depth1};

	ck_assert_int_eq(sv_device_add("dev0", persona, 1), 0);
	rig_prepare(&rig, &(struct rig_attr){.depth = 16, .chunks = 64, .chunk_size = BYTES});
	for (int i = 0; i < 2; i++) {
		struct end *e = &ends[i];

		*e = (struct end){.side = &rig.side[i]};
		ck_assert_msg(
			!sgp_flow_init(&e->flow, &(struct sgp_flow_attr){.flags = flags,
									 .ep = e->side->ep,
									 .pool = e->side->pool,
									 .depth = depth[i],
									 .bytes = BYTES}),
			"%s", sgp_errmsg());
		for (uint32_t n = 0; n < depth[i] + SGP_FLOW_RESERVE; n++)
			post_chunk(e, rig_chunk(e->side, 0));
	}
	greet(&ends[0], &ends[1]);
	greet(&ends[1], &ends[0]);
	rig_connect(&rig);
}

void ends_close(void)
{
	for (int i = 0; i < 2; i++)
		while (ends[i].nheld)
			sgp_chunk_put(ends[i].held[--ends[i].nheld]);
	rig_close(&rig);
	rig_check_no_leak();
}

/* Send the next message, numbered. Returns as sgp_flow_sendv(). */
int end_send(struct end *e, int flags)
{
	struct sgp_chunk *chunk = rig_chunk(e->side, 0);
	SGP_SGL(sgl, 1);

	memcpy((char *)sgp_chunk_addr(chunk) + SGP_FLOW_HEADER, &e->sent, sizeof e->sent);
	ck_assert_int_eq(sgp_sgl_append(&sgl, chunk, 0, BYTES), 0);
	if (sgp_flow_sendv(&e->flow, NULL, &sgl, flags | IBV_SEND_SIGNALED)) {
		const int err = errno;

		sgp_sgl_clear(&sgl);
		errno = err;
		return -1;
	}
	e->sent++;
	e->sending++;
	end_check(e);
	return 0;
}

int end_update(struct end *e, int flags)
{
	int ret = sgp_flow_update(&e->flow, NULL, IBV_SEND_SIGNALED | flags);

	e->sending += ret > 0;
	end_check(e);
	return ret;
}

void end_repost(struct end *e)
{
	post_chunk(e, e->held[--e->nheld]);
	ck_assert_msg(!sgp_flow_posted(&e->flow, 1), "%s", sgp_errmsg());
	end_check(e);
}

static void take(struct end *e, struct sgp_wc *wc)
{
	int kind;
	uint32_t number;

	ck_assert_msg(wc->status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(wc->status));
	if (wc->opcode == IBV_WC_SEND) {
		e->sending--;
		return;
	}
	kind = sgp_flow_received(&e->flow, wc);
	ck_assert_msg(kind >= 0, "%s", sgp_errmsg());
	end_check(e);
	ck_assert_int_lt(e->nheld, HELD);
	if (wc->sgl.num_chunk)
		sgp_chunk_ref(wc->sgl.chunk[0]);
	e->held[e->nheld++] = wc->sgl.num_chunk ? wc->sgl.chunk[0] : rig_chunk(e->side, 0);
	sgp_sgl_clear(&wc->sgl);
	if (kind == 0) {
		ck_assert_int_eq(wc->byte_len,
				 e->flow.flags & SGP_FLOW_IMMEDIATE ? 0 : SGP_FLOW_HEADER);
		if (e->flow.used_slots) {
			ck_assert_int_eq(end_send(e, 0), -1);
			ck_assert_int_eq(errno, e->flow.ended ? ESHUTDOWN : EAGAIN);
		}
		end_repost(e);
		return;
	}
	ck_assert_uint_eq(wc->byte_len, BYTES);
	memcpy(&number, (char *)sgp_chunk_addr(e->held[e->nheld - 1]) + SGP_FLOW_HEADER,
	       sizeof number);
	ck_assert_uint_eq(number, e->got);
	e->got++;
}

/* Take what has come. Returns how many completions. */
int end_reap(struct end *e)
{
	int n = sgp_poll(e->side->cq, RIG_WC, e->side->wc);

	ck_assert_int_ge(n, 0);
	for (int i = 0; i < n; i++)
		take(e, &e->side->wc[i]);
	return n;
}

/* Listen and answer until nothing comes any more. */
void ends_settle(void)
{
	for (int quiet = 0; quiet < 50;) {
		quiet++;
		for (int i = 0; i < 2; i++) {
			if (end_reap(&ends[i]) || ends[i].sending)
				quiet = 0;
			while (ends[i].nheld)
				end_repost(&ends[i]);
			ck_assert_int_ge(end_update(&ends[i], 0), 0);
		}
	}
}
