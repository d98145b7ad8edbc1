/* SPDX-License-Identifier: BSD-2-Clause */
/* The providers that softverbs can be taken for: tables of limits and habits, nothing else. Where a
 * habit acts, the file that acts cites the law. */
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "softverbs/persona.h"

/* The strict device: what the specification says, and nothing is forgiven. */
#define SOFT_ATTR                                                                                  \
	.fw_ver = "1.0", .max_mr_size = 1ull << 40, .page_size_cap = 0xfffff000, .max_qp = 65536,  \
	.max_qp_wr = 32768,                                                                        \
	.device_cap_flags = IBV_DEVICE_RESIZE_MAX_WR | IBV_DEVICE_CURR_QP_STATE_MOD |              \
			    IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_RC_RNR_NAK_GEN |             \
			    IBV_DEVICE_SRQ_RESIZE | IBV_DEVICE_MEM_MGT_EXTENSIONS |                \
			    IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B,                 \
	.max_sge = 32, .max_sge_rd = 32, .max_cq = 65536, .max_cqe = 1 << 20, .max_mr = 1 << 20,   \
	.max_pd = 65536, .max_qp_rd_atom = 128, .max_res_rd_atom = 1 << 20,                        \
	.max_qp_init_rd_atom = 128, .atomic_cap = IBV_ATOMIC_HCA, .max_mw = 65536,                 \
	.max_mcast_grp = 8192, .max_mcast_qp_attach = 56, .max_total_mcast_qp_attach = 458752,     \
	.max_ah = 32767, .max_srq = 65536, .max_srq_wr = 32768, .max_srq_sge = 27,                 \
	.max_pkeys = 64, .local_ca_ack_delay = 15

static const struct sw_persona personas[] = {
	{
		.name = "soft",
		.prefix = "soft",
		.node = IBV_NODE_CA,
		.transport = IBV_TRANSPORT_IB,
		.link_layer = IBV_LINK_LAYER_ETHERNET,
		.attr = {SOFT_ATTR},
		.max_msg = 1u << 31,
		.max_inline = 1024,
		.ngid = 2,
		.npkey = 1,
		.err_full = ENOMEM,
		.err_sge = EINVAL,
		.err_inline = EINVAL,
		.err_state = EINVAL,
		.err_opcode = EINVAL,
	},
	{
		/* Soft-RoCE. The kernel frees its slots, not the poll; a destroyed QP's CQEs stay
		 * (law 2.8); receives posted after an error stay where they are (law 2.6). */
		.name = "rxe",
		.prefix = "rxe",
		.node = IBV_NODE_CA,
		.transport = IBV_TRANSPORT_IB,
		.link_layer = IBV_LINK_LAYER_ETHERNET,
		.attr = {SOFT_ATTR},
		.max_msg = 8u << 20,
		.max_inline = 512,
		.ngid = 2,
		.npkey = 1,
		.err_full = ENOMEM,
		.err_sge = EINVAL,
		.err_inline = EINVAL,
		.err_state = EINVAL,
		.err_opcode = EINVAL,
		.early_slots = true,
		.keep_cqes = true,
		.late_recv_stuck = true,
		.one_key = true,
	},
};

const struct sw_persona *sw_persona(const char *name)
{
	for (size_t i = 0; i < sizeof personas / sizeof *personas; i++)
		if (!strcmp(personas[i].name, name))
			return &personas[i];
	return NULL;
}

enum kind {
	INT,
	U32,
	U64,
	BOOL
};

#define FIELD(name, member, kind)                                                                  \
	{                                                                                          \
		name, offsetof(struct sw_persona, member), kind                                    \
	}
static const struct {
	const char *name;
	size_t at;
	enum kind kind;
} fields[] = {
	FIELD("max_mr_size", attr.max_mr_size, U64),
	FIELD("max_mr", attr.max_mr, INT),
	FIELD("max_pd", attr.max_pd, INT),
	FIELD("max_qp", attr.max_qp, INT),
	FIELD("max_qp_wr", attr.max_qp_wr, INT),
	FIELD("max_sge", attr.max_sge, INT),
	FIELD("max_sge_rd", attr.max_sge_rd, INT),
	FIELD("max_cq", attr.max_cq, INT),
	FIELD("max_cqe", attr.max_cqe, INT),
	FIELD("max_srq", attr.max_srq, INT),
	FIELD("max_srq_wr", attr.max_srq_wr, INT),
	FIELD("max_srq_sge", attr.max_srq_sge, INT),
	FIELD("max_mw", attr.max_mw, INT),
	FIELD("max_qp_rd_atom", attr.max_qp_rd_atom, INT),
	FIELD("max_qp_init_rd_atom", attr.max_qp_init_rd_atom, INT),
	FIELD("max_msg", max_msg, U32),
	FIELD("max_inline", max_inline, U32),
	FIELD("err_full", err_full, INT),
	FIELD("err_sge", err_sge, INT),
	FIELD("err_inline", err_inline, INT),
	FIELD("err_state", err_state, INT),
	FIELD("err_opcode", err_opcode, INT),
	FIELD("negative", negative, BOOL),
	FIELD("early_slots", early_slots, BOOL),
	FIELD("keep_cqes", keep_cqes, BOOL),
	FIELD("late_send_stuck", late_send_stuck, BOOL),
	FIELD("late_recv_stuck", late_recv_stuck, BOOL),
	FIELD("late_send_eio", late_send_eio, BOOL),
	FIELD("no_rnr", no_rnr, BOOL),
	FIELD("no_imm", no_imm, BOOL),
	FIELD("any_state", any_state, BOOL),
	FIELD("one_key", one_key, BOOL),
	FIELD("no_extended", no_extended, BOOL),
	FIELD("no_cq_ex", no_cq_ex, BOOL),
	FIELD("no_qp_ex", no_qp_ex, BOOL),
	FIELD("no_td", no_td, BOOL),
	FIELD("no_dmabuf", no_dmabuf, BOOL),
	FIELD("no_rereg", no_rereg, BOOL),
	FIELD("no_atomic", no_atomic, BOOL),
	FIELD("no_cq_resize", no_cq_resize, BOOL),
	FIELD("no_srq_resize", no_srq_resize, BOOL),
	FIELD("no_ud", no_ud, BOOL),
	FIELD("no_access_event", no_access_event, BOOL),
	FIELD("cq_ex_overshoots", cq_ex_overshoots, BOOL),
	FIELD("no_last_wqe", no_last_wqe, BOOL),
	FIELD("garbage_opcode", garbage_opcode, BOOL),
	FIELD("inline_first", inline_first, BOOL),
	FIELD("read_first", read_first, BOOL),
	FIELD("reuse_qpn", reuse_qpn, BOOL),
	FIELD("null", null, BOOL),
};

bool sw_persona_set(struct sw_persona *p, const char *what, uint64_t value)
{
	for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
		void *at = (char *)p + fields[i].at;

		if (strcmp(fields[i].name, what))
			continue;
		if (fields[i].kind == INT && value <= INT_MAX)
			*(int *)at = (int)value;
		else if (fields[i].kind == U32 && value <= UINT32_MAX)
			*(uint32_t *)at = (uint32_t)value;
		else if (fields[i].kind == U64)
			*(uint64_t *)at = value;
		else if (fields[i].kind == BOOL)
			*(bool *)at = value != 0;
		else
			return false;
		return true;
	}
	return false;
}
