/* SPDX-License-Identifier: BSD-2-Clause */
/* The operations that ops.c runs. Most are rows for one generic function a step; the rest have
 * their own. */
#include <endian.h>

#include "ops.h"

#define LIMIT (-1)
#define OVER  (-2)
#define IMM   0x01020304u

unsigned int ops_seed(const struct op *op)
{
	return (unsigned int)(op - ops) + 1;
}

static int count(const struct side *s, int sges)
{
	return sges == LIMIT ? s->max_sge : sges == OVER ? 3 * s->max_sge + 1 : sges;
}

size_t ops_bytes(const struct side *s, const struct op *op)
{
	return (size_t)count(s, op->sges) * op->size;
}

static bool is_send(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ||
	       opcode == IBV_WR_SEND_WITH_INV;
}

enum ibv_wc_opcode ops_wc_opcode(enum ibv_wr_opcode opcode)
{
	switch (opcode) {
	case IBV_WR_RDMA_READ:
		return IBV_WC_RDMA_READ;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return IBV_WC_RDMA_WRITE;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return IBV_WC_FETCH_ADD;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return IBV_WC_COMP_SWAP;
	default:
		return IBV_WC_SEND;
	}
}

/*
 * A message behind a WRITE: it arrives when the WRITE's bytes are there. (The completion of a WRITE
 * says so on InfiniBand only.)
 */
const char *send_done(struct side *s)
{
	SGP_SGL(sgl, 1);

	get_list(s, &sgl, 1, 16, 1);
	return sgp_post_sendv(s->ep, s, &sgl, 0) ? wrong("done: %s", sgp_errmsg()) : NULL;
}

const char *receive_done(struct side *s)
{
	TRY(reap(s, s->ep, IBV_WC_RECV));
	return compare_list(&s->wc->sgl, 16, 1);
}

const char *post(struct side *s, struct sgp_wr *wr)
{
	if (sgp_post(s->ep, wr, NULL))
		return wrong("post: %s", sgp_errmsg());
	return wr->sgl->num_chunk || wr->sgl->num_sge ? "the posted list is not empty" : NULL;
}

static const char *compare_shared(const struct side *s, const struct op *op)
{
	const uint8_t *shared = sgp_chunk_addr(s->shared);
	size_t n = ops_bytes(s, op);

	TRY(compare(shared, n, ops_seed(op), 0));
	return n < OPS_SHARED && shared[n] ? "a WRITE went too far" : NULL;
}

/* ---- the rows' steps ---- */

const char *ops_prepare(struct side *s, const struct op *op)
{
	if (op->opcode == IBV_WR_RDMA_READ) {
		fill(sgp_chunk_addr(s->shared), ops_bytes(s, op), ops_seed(op), 0);
		return NULL;
	}
	if (op->recv_sges)
		return post_receive(s, s->ep, count(s, op->recv_sges), op->recv_size);
	return post_receive(s, s->ep, 1, 16);
}

static const char *act(struct side *s, const struct op *op)
{
	SGP_SGL(sgl, OPS_SGES);
	struct sgp_wr wr = {.context = s,
			    .sgl = &sgl,
			    .opcode = op->opcode,
			    .flags = op->flags,
			    .remote_addr = s->told.addr,
			    .rkey = s->told.rkey};
	bool read = op->opcode == IBV_WR_RDMA_READ;
	struct sgp_ep_stats before, after;

	if (op->opcode == IBV_WR_SEND_WITH_INV)
		wr.invalidate_rkey = s->told.window_rkey;
	else
		wr.imm_data = htobe32(IMM);
	if (op->sges)
		get_list(s, &sgl, count(s, op->sges), op->size, read ? 0 : ops_seed(op));
	sgp_ep_stats(s->ep, &before);
	TRY(post(s, &wr));
	sgp_ep_stats(s->ep, &after);
	if (after.inlined - before.inlined != (!read && op->sges && ops_bytes(s, op) <= OPS_INLINE))
		return "inline, or not, against what was expected";
	TRY(reap(s, s->ep, ops_wc_opcode(op->opcode)));
	if (read || op->flags & SGP_HANDOVER)
		TRY(compare_list(&s->wc->sgl, ops_bytes(s, op), ops_seed(op)));
	return op->opcode == IBV_WR_RDMA_WRITE ? send_done(s) : NULL;
}

const char *ops_check(struct side *s, const struct op *op)
{
	const struct sgp_wc *wc = s->wc;

	if (op->opcode == IBV_WR_RDMA_READ)
		return NULL;
	if (op->opcode == IBV_WR_RDMA_WRITE) {
		TRY(receive_done(s));
		return compare_shared(s, op);
	}
	TRY(reap(s, s->ep, is_send(op->opcode) ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM));
	if (wc->byte_len != ops_bytes(s, op))
		return wrong("%llu bytes arrived instead of %zu",
			     (unsigned long long)wc->byte_len, ops_bytes(s, op));
	if (op->opcode == IBV_WR_SEND_WITH_IMM || op->opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
		if (!(wc->wc_flags & IBV_WC_WITH_IMM) || wc->imm_data != htobe32(IMM))
			return wrong("immediate data %x, flags %x", wc->imm_data, wc->wc_flags);
	} else if (op->opcode == IBV_WR_SEND_WITH_INV) {
		if (!(wc->wc_flags & IBV_WC_WITH_INV) || wc->imm_data != s->told.window_rkey)
			return wrong("invalidated %x instead of %x", wc->imm_data,
				     s->told.window_rkey);
	}
	return is_send(op->opcode) ? compare_list(&wc->sgl, ops_bytes(s, op), ops_seed(op))
				   : compare_shared(s, op);
}

/* ---- all of them ---- */

/* The steps of most of them. */
#define STEPS ops_prepare, act, ops_check
#define SIG   IBV_SEND_SIGNALED

const struct op ops[] = {
	{"SEND", STEPS, OPS_ANY, IBV_WR_SEND, .sges = 1, .size = 500, .flags = SIG, .recv_sges = 1,
	 .recv_size = 512},
	{"SEND of nothing", STEPS, OPS_ANY, IBV_WR_SEND, .flags = SIG, .recv_sges = 1,
	 .recv_size = 512},
	{"SEND, as many SGEs as it takes", STEPS, OPS_ANY, IBV_WR_SEND, .sges = LIMIT, .size = 77,
	 .flags = SIG, .recv_sges = 1, .recv_size = 16384},
	{"SEND into as many SGEs as it takes", STEPS, OPS_ANY, IBV_WR_SEND, .sges = 1, .size = 640,
	 .flags = SIG, .recv_sges = LIMIT, .recv_size = 111},
	{"SEND of a list that is too long, linearised", STEPS, OPS_ANY, IBV_WR_SEND, .sges = OVER,
	 .size = 99, .flags = SIG | SGP_LINEARISE, .recv_sges = 1, .recv_size = 16384},
	{"SEND, small: inline by itself", STEPS, OPS_ANY, IBV_WR_SEND, .sges = 1, .size = 40,
	 .flags = SIG, .recv_sges = 1, .recv_size = 512},
	{"SEND inline, several SGEs", STEPS, OPS_ANY, IBV_WR_SEND, .sges = 3, .size = 21,
	 .flags = SIG | IBV_SEND_INLINE, .recv_sges = 1, .recv_size = 512},
	{"SEND inline of foreign memory", ops_prepare, act_foreign, ops_check, OPS_ANY, IBV_WR_SEND,
	 .sges = 1, .size = OPS_INLINE, .recv_sges = 1, .recv_size = 512},
	{"SEND with immediate", STEPS, OPS_IB, IBV_WR_SEND_WITH_IMM, .sges = 2, .size = 300,
	 .flags = SIG, .recv_sges = 2, .recv_size = 512},
	{"SEND with invalidate", prepare_window, act, check_invalidated, OPS_IB,
	 IBV_WR_SEND_WITH_INV, .sges = 1, .size = 300, .flags = SIG, .recv_sges = 1,
	 .recv_size = 512},

	{"WRITE", STEPS, OPS_ANY, IBV_WR_RDMA_WRITE, .sges = 1, .size = 10000, .flags = SIG},
	{"WRITE, as many SGEs as it takes", STEPS, OPS_ANY, IBV_WR_RDMA_WRITE, .sges = LIMIT,
	 .size = 333, .flags = SIG},
	{"WRITE of a list that is too long, split", STEPS, OPS_ANY, IBV_WR_RDMA_WRITE, .sges = OVER,
	 .size = 333, .flags = SIG},
	{"WRITE of 9 MiB", STEPS, OPS_ANY, IBV_WR_RDMA_WRITE, .sges = 1, .size = OPS_SHARED,
	 .flags = SIG},
	{"WRITE inline, several SGEs", STEPS, OPS_ANY, IBV_WR_RDMA_WRITE, .sges = 3, .size = 20,
	 .flags = SIG | IBV_SEND_INLINE},
	{"WRITE with immediate", STEPS, OPS_IB, IBV_WR_RDMA_WRITE_WITH_IMM, .sges = LIMIT,
	 .size = 120, .flags = SIG, .recv_sges = 1, .recv_size = 512},
	{"WRITE with handover", STEPS, OPS_ANY, IBV_WR_RDMA_WRITE, .sges = 3, .size = 512,
	 .flags = SGP_HANDOVER},
	{"WRITE, unsignalled, many, and sync", ops_prepare, act_unsignalled, check_unsignalled,
	 OPS_ANY, IBV_WR_RDMA_WRITE},

	{"READ", STEPS, OPS_ANY, IBV_WR_RDMA_READ, .sges = 1, .size = 10000},
	{"READ, as many SGEs as a WRITE takes", STEPS, OPS_ANY, IBV_WR_RDMA_READ, .sges = LIMIT,
	 .size = 222},
	{"READ into a list that is too long, split", STEPS, OPS_ANY, IBV_WR_RDMA_READ, .sges = OVER,
	 .size = 222},
	{"READ of 9 MiB", STEPS, OPS_ANY, IBV_WR_RDMA_READ, .sges = 1, .size = OPS_SHARED},

	{"fetch-and-add, compare-and-swap", prepare_atomic, act_atomic, check_atomic, OPS_IB,
	 IBV_WR_ATOMIC_FETCH_AND_ADD},
	{"what iWARP lacks is refused", NULL, act_lacking, NULL, OPS_IWARP},
	{"a batch of SENDs, one doorbell", prepare_batch, act_batch, check_batch, .size = 250},
	{"a chain of WRITE, READ and fenced SEND", ops_prepare, act_chain, ops_check, OPS_ANY,
	 IBV_WR_RDMA_WRITE, .sges = 4, .size = 512},
	{"a datagram", prepare_ud, act_ud, check_ud, OPS_IB, .size = 400},
	{"WRITE through a window", prepare_window, act_window, check_window, OPS_IB,
	 IBV_WR_RDMA_WRITE},

	{"READ of memory that is not open fails", prepare_refused, act_refused, check_refused,
	 OPS_IB, .size = 512, .last = 1},
	{"WRITE into memory that is not open fails", prepare_refused, act_refused_write,
	 check_refused, OPS_IWARP, .size = 512, .last = 1},
	{"READ through a window for WRITEs fails", prepare_window_only, act_read_window,
	 check_untouched, OPS_IB, .size = 512, .last = 2},
	{"WRITE through a window that was invalidated fails", prepare_after, act_after,
	 check_untouched, OPS_IB, .size = 512, .last = 3},
	{.name = NULL},
};
