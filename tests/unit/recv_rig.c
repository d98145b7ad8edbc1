/* SPDX-License-Identifier: BSD-2-Clause */

#include "../asserts.h"
#include "../plain.h"
#include "pool/pool.h"
#include "recv_rig.h"

const char *const personas[] = {"soft", "rxe", "siw", "mlx4", "mlx5", "hns", "irdma"};
const int npersonas = sizeof personas / sizeof *personas;
const char *const roce[] = {"soft", "rxe", "mlx4", "mlx5", "hns"};
const int nroce = sizeof roce / sizeof *roce;

struct sgp_recv_part parts[3];
int nparts, held_of_b; /* chunks that the test holds */

static void keep_b_full(struct rig_side *side, struct sgp_ep_attr *ep)
{
	if (side->number == 0)
		return;
	for (int i = 0; i < nparts; i++)
		if (!parts[i].pool)
			parts[i].pool = side->pool;
	ep->recv = parts;
	ep->num_recv = nparts;
	ep->recv_context = &context[15];
}

void one_part(size_t size)
{
	parts[0] = (struct sgp_recv_part){.size = size};
	nparts = 1;
}

void open_full(const char *persona, struct rig_attr attr)
{
	if (persona)
		ck_assert_int_eq(sv_device_add("dev0", persona, 1), 0);
	if (!nparts)
		one_part(4096);
	attr.tune = keep_b_full;
	open_rig(attr);
}

struct sgp_ep_info info_of(struct rig_side *side)
{
	struct sgp_ep_info info;

	ck_assert_int_eq(sgp_ep_query(side->ep, &info), 0);
	return info;
}

int chunks_a_receive(void)
{
	int n = 0;

	for (int i = 0; i < nparts; i++)
		n += parts[i].n ? parts[i].n : 1;
	return n;
}

/* So many receives are posted; nothing else is out of the pool but what the test holds. */
void check_b(int posted)
{
	const char *wrong = sgp_pool_check(b->pool);

	ck_assert_msg(!wrong, "%s", wrong);
	ck_assert_int_eq(info_of(b).recv_posted, posted);
	ck_assert_int_eq(info_of(b).recv_missing, (int)rig.attr.depth - posted);
	rig_check_live(b, (uint64_t)(posted * chunks_a_receive() + held_of_b));
}

/* a sends n bytes, byte i being byte + i. */
void send_bytes(size_t n, int byte)
{
	SGP_SGL(sgl, 4);
	size_t done = 0;

	while (done < n) {
		struct sgp_chunk *chunk = sgp_pool_get(a->pool, 4096, 0);
		size_t piece = n - done < sgp_chunk_size(chunk) ? n - done : sgp_chunk_size(chunk);
		uint8_t *p = sgp_chunk_addr(chunk);

		for (size_t i = 0; i < piece; i++)
			p[i] = (uint8_t)(byte + (int)(done + i));
		ck_assert_int_eq(sgp_sgl_append(&sgl, chunk, 0, piece), 0);
		done += piece;
	}
	ck_assert_msg(!sgp_post_sendv(a->ep, &context[0], &sgl, IBV_SEND_SIGNALED), "%s",
		      sgp_errmsg());
	rig_reap(a, 1);
	ck_assert_int_eq(a->wc[0].status, IBV_WC_SUCCESS);
}

/* wc is a message of n such bytes. */
void check_message(const struct sgp_wc *wc, size_t n, int byte)
{
	size_t done = 0;

	ck_assert_int_eq(wc->status, IBV_WC_SUCCESS);
	ck_assert_int_eq(wc->opcode, IBV_WC_RECV);
	ck_assert_ptr_eq(wc->context, &context[15]);
	ck_assert_uint_eq(wc->byte_len, n);
	ck_assert_uint_eq(wc->sgl.length, n);
	for (int i = 0; i < wc->sgl.num_sge; i++) {
		const uint8_t *p = (const uint8_t *)(uintptr_t)wc->sgl.sge[i].addr;

		for (uint32_t j = 0; j < wc->sgl.sge[i].length; j++, done++)
			ck_assert_uint_eq(p[j], (uint8_t)(byte + (int)done));
	}
	ck_assert_uint_eq(done, n);
}

/* One message at b, and its list is kept or dropped. */
void receive(size_t n, int byte, struct sgp_sgl *keep)
{
	rig_reap(b, 1);
	check_message(&b->wc[0], n, byte);
	if (keep) {
		held_of_b += b->wc[0].sgl.num_chunk;
		ck_assert_int_eq(sgp_sgl_move(keep, &b->wc[0].sgl), 0);
	} else {
		sgp_sgl_clear(&b->wc[0].sgl);
	}
}

void let_go(struct sgp_sgl *sgl)
{
	held_of_b -= sgl->num_chunk;
	sgp_sgl_clear(sgl);
}

/* A second endpoint on b's queue and pool: a plain queue pair in INIT. */
struct sgp_ep *plain_ep(const struct sgp_recv_part *recv, int n, uint32_t depth)
{
	struct sgp_ep_attr attr = {.cq = b->cq,
				   .pd = b->pd,
				   .cap = {.max_send_wr = 4,
					   .max_recv_wr = depth,
					   .max_send_sge = 4,
					   .max_recv_sge = 4},
				   .recv = recv,
				   .num_recv = n};
	struct sgp_ep *ep = sgp_ep_create(NULL, &attr);

	ck_assert_msg(ep != NULL, "%s", sgp_errmsg());
	ck_assert_int_eq(plain_init(sgp_ep_qp(ep)), 0);
	return ep;
}

int posted_of(struct sgp_ep *ep)
{
	struct sgp_ep_info info;

	ck_assert_int_eq(sgp_ep_query(ep, &info), 0);
	return info.recv_posted;
}

void close_plain(struct sgp_ep *ep)
{
	int n;

	ck_assert_int_eq(sgp_ep_close(ep, 100), 0);
	while ((n = sgp_poll(b->cq, RIG_WC, b->wc)) > 0)
		for (int i = 0; i < n; i++)
			sgp_sgl_clear(&b->wc[i].sgl);
	ck_assert_int_eq(sgp_ep_destroy(ep), 0);
}
