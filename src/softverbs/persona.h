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

struct sw_persona {
	const char *name;
	const char *prefix; /* of device names */
	enum ibv_node_type node;
	enum ibv_transport_type transport;
	int link_layer;
	struct ibv_device_attr attr;
	uint32_t max_msg;
	uint32_t max_inline;
	int ngid, npkey;
	/* What a refused post returns. */
	int err_full, err_sge, err_inline, err_state, err_opcode;
	/* Habits; false is what the specification says. */
	bool negative;         /* posts fail with a negative errno */
	bool early_slots;      /* a slot is free once the work is done, polled or not */
	bool keep_cqes;        /* destroy_qp leaves the QP's CQEs in the CQ */
	bool late_send_stuck;  /* a send posted in the error state is never flushed */
	bool late_recv_stuck;  /* likewise a receive */
	bool late_send_eio;    /* a send posted in the error state is refused with EIO */
	bool no_rnr;           /* no receive posted: the connection is terminated */
	bool no_imm;           /* no immediate data */
	bool any_state;        /* post_send takes work in any state */
	bool one_key;          /* lkey and rkey are the same number */
	bool no_extended;      /* abi_compat 0: no extended verbs at all */
	bool no_cq_ex;         /* no ibv_create_cq_ex */
	bool no_qp_ex;         /* no ibv_wr_* */
	bool no_td;            /* no thread domains */
	bool no_dmabuf;        /* no ibv_reg_dmabuf_mr */
	bool no_rereg;         /* no ibv_rereg_mr */
	bool no_atomic;        /* no atomic operations */
	bool no_cq_resize;     /* no ibv_resize_cq */
	bool no_srq_resize;    /* no IBV_SRQ_MAX_WR */
	bool no_ud;            /* RC alone */
	bool no_access_event;  /* a refused peer makes no QP_ACCESS_ERR or QP_REQ_ERR */
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
