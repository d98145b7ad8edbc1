/* SPDX-License-Identifier: BSD-2-Clause */
/* The providers that softverbs can be taken for: tables of limits and habits, nothing else. Where a
 * habit acts, the file that acts cites the law. */
#include <errno.h>
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

/* The codes and statuses that the specification and the man pages name. */
#define PLAIN_ERRORS                                                                               \
	.err_full = ENOMEM, .err_sge = EINVAL, .err_inline = EINVAL, .err_state = EINVAL,          \
	.err_opcode = EINVAL, .err_mw_bound = EBUSY, .wc_key = IBV_WC_LOC_PROT_ERR,                \
	.wc_bounds = IBV_WC_LOC_PROT_ERR, .wc_recv = IBV_WC_LOC_PROT_ERR,                          \
	.wc_recv_len = IBV_WC_LOC_LEN_ERR, .wc_rem_op = IBV_WC_REM_OP_ERR,                         \
	.wc_rem_len = IBV_WC_REM_INV_REQ_ERR, .wc_inv = IBV_WC_MW_BIND_ERR,                        \
	.inv_flag = IBV_WC_WITH_INV
#define ROCE                                                                                       \
	.node = IBV_NODE_CA, .transport = IBV_TRANSPORT_IB, .link_layer = IBV_LINK_LAYER_ETHERNET, \
	.ngid = 2, .npkey = 1
#define IWARP                                                                                      \
	.node = IBV_NODE_RNIC, .transport = IBV_TRANSPORT_IWARP,                                   \
	.link_layer = IBV_LINK_LAYER_ETHERNET, .ngid = 1, .npkey = 0

/* What an adapter's limits look like; each one is asked for by query_device, so no program may
 * count on more than the smallest of them. */
#define ADAPTER_ATTR                                                                               \
	.fw_ver = "1.0", .max_mr_size = UINT64_MAX, .page_size_cap = 0xfffffffffffff000,           \
	.max_qp = 131072, .max_qp_wr = 32768,                                                      \
	.device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SRQ_RESIZE |                    \
			    IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_MEM_WINDOW |                 \
			    IBV_DEVICE_MEM_WINDOW_TYPE_2B,                                         \
	.max_cq = 65536, .max_cqe = 4194303, .max_mr = 1 << 24, .max_pd = 32768,                   \
	.max_qp_rd_atom = 16, .max_res_rd_atom = 2097152, .max_qp_init_rd_atom = 16,               \
	.atomic_cap = IBV_ATOMIC_HCA, .max_mw = 1 << 24, .max_mcast_grp = 8192,                    \
	.max_mcast_qp_attach = 240, .max_total_mcast_qp_attach = 1966080, .max_ah = 1 << 30,       \
	.max_srq = 65536, .max_srq_wr = 32767, .max_srq_sge = 31, .max_pkeys = 128,                \
	.local_ca_ack_delay = 16

/* A table entry may begin with a common part and then say otherwise. */
#pragma GCC diagnostic ignored "-Woverride-init"

static const struct sw_persona personas[] = {
	{
		.name = "soft",
		ROCE,
		PLAIN_ERRORS,
		.attr = {SOFT_ATTR},
		.max_msg = 1u << 31,
		.max_inline = 1024,
	},
	{
		/* Soft-RoCE, Linux 6.1 with rdma-core 44; each line was seen in the machine. The
		 * kernel frees the slots, not the poll; a destroyed QP's CQEs stay (law 2.8);
		 * receives posted after an error stay where they are (law 2.6); limits are those of
		 * law 5. */
		.name = "rxe",
		ROCE,
		.attr = {.fw_ver = "",
			 .max_mr_size = UINT64_MAX,
			 .page_size_cap = 0xfffff000,
			 .vendor_id = 0xffffff,
			 .max_qp = 1048560,
			 .max_qp_wr = 1048576,
			 .device_cap_flags = 0x01223c76,
			 .max_sge = 32,
			 .max_sge_rd = 32,
			 .max_cq = 1048576,
			 .max_cqe = 32767,
			 .max_mr = 524287,
			 .max_pd = 1048576,
			 .max_qp_rd_atom = 128,
			 .max_res_rd_atom = 258048,
			 .max_qp_init_rd_atom = 128,
			 .atomic_cap = IBV_ATOMIC_HCA,
			 .max_mw = 524287,
			 .max_mcast_grp = 8192,
			 .max_mcast_qp_attach = 56,
			 .max_total_mcast_qp_attach = 458752,
			 .max_ah = 32767,
			 .max_srq = 917503,
			 .max_srq_wr = 1048576,
			 .max_srq_sge = 27,
			 .max_pkeys = 64,
			 .local_ca_ack_delay = 15},
		.max_msg = 8u << 20,
		.max_inline = 512,
		.err_full = ENOMEM,
		.err_sge = EINVAL,
		.err_inline = EINVAL,
		.err_state = EINVAL,
		.err_opcode = EINVAL,
		.err_mw_bound = EINVAL,
		.wc_key = IBV_WC_LOC_QP_OP_ERR,
		.wc_bounds = IBV_WC_LOC_PROT_ERR,
		.wc_recv = IBV_WC_LOC_QP_OP_ERR,
		.wc_recv_len = IBV_WC_LOC_QP_OP_ERR,
		.wc_rem_op = IBV_WC_REM_OP_ERR,
		.wc_rem_len = IBV_WC_REM_OP_ERR,
		.wc_inv = IBV_WC_LOC_QP_OP_ERR,
		.cq_round = SW_POW2_LESS_1,
		.srq_round = SW_POW2_LESS_1,
		.inv_flag = 1 << 2, /* the kernel's number, handed on as it is */
		.early_slots = true,
		.keep_cqes = true,
		.late_recv_stuck = true,
		.one_key = true,
		.no_rkey = true,
		.no_last_wqe = true,
		.no_xrc = true,
		.no_td = true,
		.no_dmabuf = true,
		.no_rereg = true,
		.no_access_event = true,
		.cq_ex_overshoots = true,
		.lax_modify = true,
		.any_opcode = true,
		.checks_atomic = true,
		.recv_grh = true,
		.inline_rounded = true,
		.reads_wait = true,
		.flush_as_send = true,
		.overrun_lives = true,
		.no_qkey_own = true,
		.ud_any_length = true,
	},
	{
		/* Soft-iWARP, Linux 6.1; seen in the machine. A send has succeeded when TCP has it,
		 * so what the peer refuses shows only as the connection's end (law 2.3); no
		 * immediate data, no RNR (law 3); errors are negative (law 1); nothing posted after
		 * an error is flushed (law 2.6); a READ fills its first SGE only (law 3). */
		.name = "siw",
		IWARP,
		.attr = {.fw_ver = "",
			 .max_mr_size = UINT64_MAX,
			 .page_size_cap = 0x1000,
			 .vendor_id = 0x626d74,
			 .vendor_part_id = 1,
			 .max_qp = 102400,
			 .max_qp_wr = 32768,
			 .device_cap_flags = IBV_DEVICE_MEM_MGT_EXTENSIONS,
			 .max_sge = 6,
			 .max_sge_rd = 1,
			 .max_cq = 102400,
			 .max_cqe = 3276800,
			 .max_mr = 1024000,
			 .max_pd = 102400,
			 .max_qp_rd_atom = 128,
			 .max_res_rd_atom = 13107200,
			 .max_qp_init_rd_atom = 128,
			 .atomic_cap = IBV_ATOMIC_NONE,
			 .max_srq = 102400,
			 .max_srq_wr = 327680,
			 .max_srq_sge = 6},
		.max_msg = UINT32_MAX,
		.max_inline = 80,
		.err_full = ENOMEM,
		.err_sge = EINVAL,
		.err_inline = EINVAL,
		.err_state = ENOTCONN,
		.err_opcode = EINVAL,
		.wc_key = IBV_WC_LOC_QP_OP_ERR,
		.wc_bounds = IBV_WC_LOC_QP_OP_ERR,
		.wc_recv = IBV_WC_GENERAL_ERR,
		.wc_recv_len = IBV_WC_LOC_LEN_ERR,
		.cq_round = SW_POW2,
		.negative = true,
		.early_slots = true,
		.keep_cqes = true,
		.late_send_stuck = true,
		.late_recv_stuck = true,
		.no_rnr = true,
		.no_imm = true,
		.bare_inv = true,
		.one_key = true,
		.no_last_wqe = true,
		.no_cq_ex = true,
		.no_qp_ex = true,
		.no_xrc = true,
		.no_td = true,
		.no_dmabuf = true,
		.no_rereg = true,
		.no_atomic = true,
		.no_cq_resize = true,
		.no_srq_resize = true,
		.no_ud = true,
		.read_first = true,
		.overrun_lives = true,
		.no_solicited = true,
		.no_query_state = true,
		.device_sges = true,
		.no_depth_0 = true,
		.no_srq_query = true,
		.doorbell_errno = true,
		.no_empty_recv = true,
		.siw_events = true,
		.lax_modify = true,
	},
	{
		/* mlx4: what a send's slot has room for can be inline, asked for or not; a zero-length SGE would mean 2 GiB (law 3), poll_cq fails with -2 (law 1),
		 * no ibv_wr_*, thread domains or dma-buf (law 6). Adapters from here on were not at
		 * hand: these lines are the laws' alone. */
		.name = "mlx4",
		ROCE,
		PLAIN_ERRORS,
		.attr = {ADAPTER_ATTR, .max_sge = 32, .max_sge_rd = 30},
		.max_msg = 1u << 30,
		.max_inline = 912,
		.inline_rounded = true,
		.cq_round = SW_POW2_LESS_1,
		.no_qp_ex = true,
		.no_td = true,
		.no_dmabuf = true,
	},
	{
		/* mlx5: ENOMEM for a full queue, too many SGEs, too much inline data and a send
		 * before RTS alike (law 1); the opcode of an error isn't written (law 2.11). */
		.name = "mlx5",
		ROCE,
		PLAIN_ERRORS,
		.attr = {ADAPTER_ATTR, .max_sge = 30, .max_sge_rd = 30},
		.max_msg = 1u << 30,
		.max_inline = 1020,
		.cq_round = SW_POW2_LESS_1,
		.err_sge = ENOMEM,
		.err_inline = ENOMEM,
		.err_state = ENOMEM,
		.garbage_opcode = true,
	},
	{
		/* efa: no SRQ, no windows, no thread domains (law 6), 2 SGEs, and an inline send
		 * carries only its first SGE (case 25). Its own SRD queues are not here: RC stands
		 * for them. */
		.name = "efa",
		ROCE,
		PLAIN_ERRORS,
		.attr = {ADAPTER_ATTR, .max_sge = 2, .max_sge_rd = 1, .max_mw = 0, .max_srq = 0},
		.max_msg = 1u << 30,
		.max_inline = 32,
		.cq_round = SW_POW2,
		.inline_first = true,
		.no_xrc = true,
		.no_td = true,
		.no_atomic = true,
		.no_rereg = true,
		.no_cq_resize = true,
	},
	{
		/* hns: CQEs of a destroyed QP go (law 2.8), no thread domains or dma-buf (law 6).
		 */
		.name = "hns",
		ROCE,
		PLAIN_ERRORS,
		.attr = {ADAPTER_ATTR, .max_sge = 64, .max_sge_rd = 64},
		.max_msg = 1u << 31,
		.max_inline = 1024,
		.cq_round = SW_POW2_LESS_1,
		.no_td = true,
		.no_dmabuf = true,
	},
	{
		/* irdma over iWARP: a READ's sink needs REMOTE_WRITE (law 5), no RNR (law 3). */
		.name = "irdma",
		IWARP,
		PLAIN_ERRORS,
		.attr = {ADAPTER_ATTR, .max_sge = 13, .max_sge_rd = 13, .max_srq = 0},
		.max_msg = 1u << 31,
		.max_inline = 101,
		.cq_round = SW_POW2_LESS_1,
		.no_rnr = true,
		.no_imm = true,
		.no_ud = true,
		.no_atomic = true,
		.no_qp_ex = true,
		.no_xrc = true,
		.no_td = true,
		.no_dmabuf = true,
		.sink_remote = true,
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
	FIELD("bare_inv", bare_inv, BOOL),
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
	FIELD("no_xrc", no_xrc, BOOL),
	FIELD("no_access_event", no_access_event, BOOL),
	FIELD("no_rkey", no_rkey, BOOL),
	FIELD("lax_modify", lax_modify, BOOL),
	FIELD("any_opcode", any_opcode, BOOL),
	FIELD("checks_atomic", checks_atomic, BOOL),
	FIELD("recv_grh", recv_grh, BOOL),
	FIELD("inline_rounded", inline_rounded, BOOL),
	FIELD("reads_wait", reads_wait, BOOL),
	FIELD("flush_as_send", flush_as_send, BOOL),
	FIELD("overrun_lives", overrun_lives, BOOL),
	FIELD("no_solicited", no_solicited, BOOL),
	FIELD("no_query_state", no_query_state, BOOL),
	FIELD("device_sges", device_sges, BOOL),
	FIELD("sink_remote", sink_remote, BOOL),
	FIELD("no_qkey_own", no_qkey_own, BOOL),
	FIELD("ud_any_length", ud_any_length, BOOL),
	FIELD("no_depth_0", no_depth_0, BOOL),
	FIELD("no_srq_query", no_srq_query, BOOL),
	FIELD("doorbell_errno", doorbell_errno, BOOL),
	FIELD("no_empty_recv", no_empty_recv, BOOL),
	FIELD("siw_events", siw_events, BOOL),
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

		if (strcmp(fields[i].name, what) != 0)
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
