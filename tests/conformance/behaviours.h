/* SPDX-License-Identifier: BSD-2-Clause */
/* The table of behaviours, in the order in which they run. */
#ifndef TESTS_CONFORMANCE_BEHAVIOURS_H
#define TESTS_CONFORMANCE_BEHAVIOURS_H

#include "cf.h"

#define BEHAVIOURS(X)                                                                              \
	/* b_device.c */                                                                           \
	X(dev_identity)                                                                            \
	X(dev_limits)                                                                              \
	X(dev_counts)                                                                              \
	X(dev_caps)                                                                                \
	X(dev_port) X(dev_port_range) X(dev_gids) X(dev_pkeys) X(dev_extended) X(dev_close_in_use) \
		X(mr_sizes) X(mr_keys) X(mr_access) X(mr_optional_access) X(mr_memory)             \
			X(mr_half_mapped) X(mr_readonly_file) X(mr_rereg) X(mr_dmabuf)             \
				X(pd_in_use) X(cq_sizes) X(cq_given) X(cq_vector) X(cq_resize)     \
					X(cq_empty) X(channel_in_use) X(cq_ex) X(thread_domain)    \
						X(ah) X(mw_alloc) /* b_queue.c */                  \
		X(qp_types) X(qp_caps) X(qp_caps_zero) X(qp_limits) X(qp_inline) X(qp_fresh)       \
			X(qp_ex) X(modify_from_reset) X(modify_values) X(modify_to_rtr) X(         \
				modify_to_rts) X(modify_err) X(post_in_reset) X(post_in_init)      \
				X(post_sges) X(post_opcode) X(post_inline) X(post_inline_sges)     \
					X(post_depth) X(post_unsignaled_slots)                     \
						X(post_unpolled_slots)                             \
							X(post_chain) /* b_traffic.c */            \
		X(send_completions) X(send_both_ways) X(send_imm) X(send_empty) X(send_gather) X(  \
			send_large) X(send_order) X(send_sig_all) X(send_bad_lkey)                 \
			X(send_out_of_bounds) X(send_foreign_pd) X(recv_bad_lkey) X(               \
				recv_no_local_write) X(recv_too_small) X(rnr_once)                 \
				X(rnr_then_posted) X(flush) X(flush_sends) X(post_after_err) X(    \
					flush_opcode) X(peer_in_err) X(reset) X(destroy_unpolled)  \
					X(reset_unpolled) X(event_armed) X(event_solicited)        \
						X(event_error_solicited) X(cq_overrun)             \
							X(cq_resize_small) /* b_remote.c */        \
		X(write) X(write_imm) X(read) X(read_sges) X(remote_bad_rkey)                      \
			X(remote_out_of_bounds) X(write_refused) X(read_refused) X(read_sink) X(   \
				read_sink_readonly) X(remote_zero_length) X(read_no_resources)     \
				X(many_reads) X(read_then_send) X(atomics) X(atomic_unaligned) X(  \
					atomic_refused) X(window_write) X(window_invalidated)      \
					X(window_send_inv) X(window_bound_twice) X(window_dereg)   \
						X(window_no_right) X(window_bad_rkey)              \
							X(local_inv_of_region) /* b_srq.c */       \
		X(srq_sizes) X(srq_modify) X(srq_post) X(srq_recv) X(srq_empty) X(srq_limit)       \
			X(srq_last_wqe) X(ud_send) X(ud_qkey) X(ud_qkey_own) X(ud_no_receive)      \
				X(ud_too_small) X(ud_mtu) X(ud_opcode) /* b_cm.c */                \
		X(cm_bind) X(cm_bind_foreign) X(cm_bind_family) X(cm_port_in_use) X(cm_reuse) X(   \
			cm_listen_unbound) X(cm_resolve) X(cm_too_early) X(cm_nobody_listens)      \
			X(cm_private_data) X(cm_request) X(cm_request_long) X(cm_request_depths)   \
				X(cm_reject) X(cm_passive_gone) X(cm_active_gone)                  \
					X(cm_accept_too_late) X(cm_accept_twice) X(cm_states) X(   \
						cm_qp_attr) X(cm_disconnect) X(cm_disconnect_who)  \
						X(cm_destroy_connected) X(cm_peer_qp_gone)         \
							X(cm_qp_twice) X(cm_own_cqs)               \
								X(cm_getaddrinfo) X(cm_migrate)    \
									X(cm_event_strings)        \
										X(cm_backlog)

#define BEHAVIOUR_DECLARE(name) void b_##name(void);
BEHAVIOURS(BEHAVIOUR_DECLARE)

#endif
