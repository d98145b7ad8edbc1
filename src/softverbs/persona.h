/* SPDX-License-Identifier: BSD-2-Clause */
/* What distinguishes one provider from another: limits, error codes, habits. */
#ifndef SOFTVERBS_PERSONA_H
#define SOFTVERBS_PERSONA_H

#include <stdbool.h>
#include <infiniband/verbs.h>

struct sw_device;
struct sw_qp;
struct sw_cq;
struct sw_srq;
struct sw_mw;
struct sw_ah;
struct sw_builder;

/* How sizes of rings are rounded up. */
enum sw_rounding {
	SW_EXACT,
	SW_POW2,
	SW_POW2_LESS_1
};

struct sw_persona {
	const char *name;
	enum ibv_node_type node;
	enum ibv_transport_type transport;
	int link_layer;
	struct ibv_device_attr attr;
	uint32_t max_msg;
	uint32_t max_inline;
	int ngid, npkey;
	/* What a refused post returns. */
	int err_full, err_sge, err_inline, err_state, err_opcode;
	int err_mw_bound; /* deregistering a region with windows */
	/* What a local mistake's completion says: a send's key, its bounds; a receive's memory, its
	 * length; and what the sender is told then. */
	enum ibv_wc_status wc_key, wc_bounds, wc_recv, wc_recv_len, wc_rem_op, wc_rem_len;
	enum ibv_wc_status wc_inv; /* invalidating what can't be */
	enum sw_rounding cq_round, srq_round;
	unsigned int inv_flag; /* wc_flags of a receive that invalidated */
	/* Habits; false is what the specification says. */
	bool negative;        /* posts fail with a negative errno */
	bool early_slots;     /* a slot is free once the work is done, polled or not */
	bool keep_cqes;       /* destroy_qp leaves the QP's CQEs in the CQ */
	bool late_send_stuck; /* a send posted in the error state is never flushed */
	bool late_recv_stuck; /* likewise a receive */
	bool late_send_eio;   /* a send posted in the error state is refused with EIO */
	bool no_rnr;          /* no receive posted: the connection is terminated */
	bool no_imm;          /* no immediate data */
	bool bare_inv;        /* SEND_WITH_INV without windows, and never inline */
	bool one_key;         /* lkey and rkey are the same number */
	bool no_extended;     /* abi_compat 0: no extended verbs at all */
	bool no_cq_ex;        /* no ibv_create_cq_ex */
	bool no_qp_ex;        /* no ibv_wr_* */
	bool no_td;           /* no thread domains */
	bool no_dmabuf;       /* no ibv_reg_dmabuf_mr */
	bool no_rereg;        /* no ibv_rereg_mr */
	bool no_atomic;       /* no atomic operations */
	bool no_cq_resize;    /* no ibv_resize_cq */
	bool no_srq_resize;   /* no IBV_SRQ_MAX_WR */
	bool no_ud;           /* RC alone */
	bool no_xrc;          /* no extended reliable connections */
	bool no_access_event; /* a refused peer makes no QP_ACCESS_ERR or QP_REQ_ERR */
	bool no_rkey;         /* a region without remote access has rkey 0 */
	bool lax_modify;     /* modify_qp checks no P_Key index, RNR count or responder resources */
	bool any_opcode;     /* post_send takes any opcode; the engine complains */
	bool checks_atomic;  /* post_send refuses an atomic that isn't aligned */
	bool recv_grh;       /* IBV_WC_GRH in every receive's completion */
	bool inline_rounded; /* the inline room is at least that of the SGEs, asked for or not */
	bool reads_wait;     /* a READ without resources waits for ever */
	bool flush_as_send;  /* a flushed receive says opcode 0: law 2.11 */
	bool overrun_lives;  /* a full CQ loses completions, with an event each, and lives on */
	bool no_solicited;   /* a solicited send makes no event for those who wait for one */
	bool no_query_state; /* query_qp says nothing of the state */
	bool device_sges;    /* a post's SGEs are limited by the device, not by the queue */
	bool sink_remote;    /* the sink of a READ needs REMOTE_WRITE: law 5 */
	bool no_qkey_own;    /* the top bit of a Q_Key means nothing */
	bool ud_any_length;  /* a datagram above the MTU is taken, and lost */
	bool no_depth_0;     /* a queue of depth 0 is refused */
	bool no_srq_query;   /* no ibv_query_srq */
	bool doorbell_errno; /* a refused state is -1 and errno: law 1 */
	bool no_empty_recv;  /* a receive without SGEs is refused: law 3 */
	bool siw_events;     /* QP_FATAL for too small a receive, QP_ACCESS_ERR for a wrong sink */
	bool cq_ex_overshoots; /* end_poll after an empty next_poll loses a completion */
	bool no_last_wqe;      /* no QP_LAST_WQE_REACHED event */
	bool garbage_opcode;   /* opcode is left unwritten in error CQEs */
	bool inline_first;     /* an inline send carries only its first SGE */
	bool read_first;       /* a READ fills only its first SGE */
	bool reuse_qpn;        /* the lowest free QP number is taken */
	bool null;             /* posts complete at once, no data moves */
};

/* The persona of that name, or NULL. */
const struct sw_persona *sw_persona(const char *name);
/* Sets one field by its name; false if there is none. */
bool sw_persona_set(struct sw_persona *p, const char *what, uint64_t value);

#endif
