/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Faults. A rule names what it strikes (a call, any call, a completion, a message), what it does
 * and when; fault.c asks the rules, fault_parse.c reads them, the files they strike ask fault.c.
 */
#ifndef SOFTVERBS_FAULT_H
#define SOFTVERBS_FAULT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Every call that can be made to fail, by the name the rules use. */
/* clang-format off */
#define SW_CALLS(X) \
	X(get_device_list) X(open_device) X(query_device) X(query_port) X(query_gid) \
	X(query_pkey) X(alloc_pd) X(dealloc_pd) X(reg_mr) X(rereg_mr) X(dereg_mr) \
	X(reg_dmabuf_mr) X(create_comp_channel) X(destroy_comp_channel) X(create_cq) \
	X(resize_cq) X(destroy_cq) X(poll_cq) X(req_notify_cq) X(get_cq_event) \
	X(create_qp) X(modify_qp) X(query_qp) X(destroy_qp) X(post_send) X(post_recv) \
	X(create_srq) X(modify_srq) X(query_srq) X(destroy_srq) X(post_srq_recv) X(open_xrcd) \
	X(create_ah) X(destroy_ah) X(alloc_mw) X(bind_mw) X(dealloc_mw) X(alloc_td) \
	X(attach_mcast) X(get_async_event) X(create_event_channel) X(create_id) \
	X(destroy_id) X(bind_addr) X(resolve_addr) X(resolve_route) X(listen) \
	X(connect) X(accept) X(reject) X(disconnect) X(establish) X(get_cm_event) \
	X(getaddrinfo) X(set_option) X(migrate_id) X(join_multicast)
/* clang-format on */
#define SW_CALL_ENUM(name) SW_CALL_##name,
enum sw_target {
	SW_CALLS(SW_CALL_ENUM) SW_NCALLS,
	SW_ANY = SW_NCALLS,
	SW_COMPLETION,
	SW_MESSAGE,
	SW_NTARGETS
};

enum sw_action {
	SW_PASS,
	SW_FAIL,      /* the call returns err */
	SW_MIDWAY,    /* a chain stops after its first request, and the post returns 0 */
	SW_DOORBELL,  /* everything is queued, yet the post returns err and leaves bad_wr alone */
	SW_DROP,      /* a completion is lost */
	SW_DELAY,     /* ... comes `arg` polls later */
	SW_DUPLICATE, /* ... comes twice */
	SW_ECHO,      /* ... comes, and again `arg` polls later */
	SW_SWAP,      /* ... comes after the next one */
	SW_STATUS,    /* ... comes with status `arg` */
	SW_OPCODE,    /* ... comes with opcode `arg` */
	SW_KILL,      /* a message never arrives, and the sender's retries are over */
	SW_LATE,      /* a WRITE's last bytes come `arg` ms after its completion */
	SW_REMOVE,    /* the device `name` goes away */
	SW_DOWN,      /* all its ports go down */
	SW_UP,
};

struct sw_rule {
	enum sw_target target;
	enum sw_action action;
	int err;
	uint64_t arg;
	char name[64];
	/* When: all that are set must hold. */
	uint64_t at;    /* only this one, from 0; UINT64_MAX: any */
	uint64_t every; /* each so many; 0: any */
	uint64_t above; /* only for more bytes than this */
	uint64_t times; /* no more than so often; UINT64_MAX: always */
	double chance;  /* 1: always */
	uint64_t seen;
};

struct sw_strike {
	enum sw_action action;
	int err;
	uint64_t arg;
};

extern atomic_uint sw_fault_rules; /* how many there are */

/* For what happens too often to be counted for nothing: completions and messages. */
#define SW_STRIKE(target)                                                                          \
	(atomic_load_explicit(&sw_fault_rules, memory_order_relaxed)                               \
		 ? sw_strike(target, 0)                                                            \
		 : (struct sw_strike){.action = SW_PASS})

/* Counts the call, and says what is to happen to it. Takes no lock but its own. */
struct sw_strike sw_strike(enum sw_target target, uint64_t bytes);
/* The same for calls that can only fail: the errno, or 0. */
int sw_fault(enum sw_target call);
#define SW_FAULT(name) sw_fault(SW_CALL_##name)

/* The target of that name, or -1. */
int sw_target(const char *name, size_t len);
/* Reads rules; adds them to what there is. 0, or EINVAL with *wrong where it stopped, or ENOMEM. */
int sw_fault_parse(const char *text, const char **wrong);
int sw_fault_add(const struct sw_rule *rule);
void sw_fault_seed(uint64_t seed);
/* An errno by its name or number; 0: unknown. */
int sw_errno_named(const char *name, size_t len);

#endif
