/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two processes for one behaviour. All memory that the two use (their heaps, and the stack that the
 * behaviour runs on) is shared and at the same place in both, so that the behaviour can look at what
 * is its peer's; but a call about an object is made in the process that has it, where the object's
 * device, its locks and its sockets are. Whose an object is, its address says:
 *
 *	| heap of the process that runs the behaviour, its stack | heap of its peer |
 *
 * Descriptors of the peer's are numbers from CF_PEER_FD on. Included last, where the functions have
 * been declared, and empty unless CF_TWO is defined.
 */
#ifndef TESTS_CONFORMANCE_TWO_H
#define TESTS_CONFORMANCE_TWO_H

#include <stdbool.h>

typedef void cf_function(void);

#ifdef CF_TWO

#define CF_PEER_FD 300

/* Calls f where a's object is. */
long cf_call(cf_function *f, long a, long b, long c, long d, long e);
/* Calls it in the peer. */
long cf_peer_call(cf_function *f, long a, long b, long c, long d, long e);
/* Begins: makes the peer, and runs f on the shared stack. Doesn't return. */
void cf_two(void (*f)(void));
bool cf_readable_here(int fd, int ms);

#define CF_CALL(f, a, b, c, d, e)                                                                  \
	cf_call((cf_function *)(f), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e))
/* A statement, so that the result needn't be looked at. */
#define CF_DO(type, f, a, b, c, d, e)                                                              \
	__extension__({                                                                            \
		type cf_result = (type)CF_CALL(f, a, b, c, d, e);                                  \
		cf_result;                                                                         \
	})
#define CF_1(type, f, a)          CF_DO(type, f, a, 0, 0, 0, 0)
#define CF_2(type, f, a, b)       CF_DO(type, f, a, b, 0, 0, 0)
#define CF_3(type, f, a, b, c)    CF_DO(type, f, a, b, c, 0, 0)
#define CF_4(type, f, a, b, c, d) CF_DO(type, f, a, b, c, d, 0)

#undef ibv_reg_mr
static inline struct ibv_mr *cf_reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access)
{
	return ibv_reg_mr(pd, addr, len, access);
}

#define ibv_reg_mr(pd, addr, len, access) CF_4(struct ibv_mr *, cf_reg_mr, pd, addr, len, access)
#define ibv_dereg_mr(mr)                  CF_1(int, ibv_dereg_mr, mr)
#define ibv_alloc_pd(ctx)                 CF_1(struct ibv_pd *, ibv_alloc_pd, ctx)
#define ibv_dealloc_pd(pd)                CF_1(int, ibv_dealloc_pd, pd)
#define ibv_alloc_mw(pd, type)            CF_2(struct ibv_mw *, ibv_alloc_mw, pd, type)
#define ibv_dealloc_mw(mw)                CF_1(int, ibv_dealloc_mw, mw)
#define ibv_create_ah(pd, attr)           CF_2(struct ibv_ah *, ibv_create_ah, pd, attr)
#define ibv_create_comp_channel(ctx)      CF_1(struct ibv_comp_channel *, ibv_create_comp_channel, ctx)
#define ibv_create_cq(ctx, n, user, ch, v)                                                         \
	CF_DO(struct ibv_cq *, ibv_create_cq, ctx, n, user, ch, v)
#define ibv_destroy_cq(cq)           CF_1(int, ibv_destroy_cq, cq)
#define ibv_resize_cq(cq, n)         CF_2(int, ibv_resize_cq, cq, n)
#define ibv_poll_cq(cq, n, wc)       CF_3(int, ibv_poll_cq, cq, n, wc)
#define ibv_req_notify_cq(cq, s)     CF_2(int, ibv_req_notify_cq, cq, s)
#define ibv_get_cq_event(ch, cq, u)  CF_3(int, ibv_get_cq_event, ch, cq, u)
#define ibv_ack_cq_events(cq, n)     ((void)CF_CALL(ibv_ack_cq_events, cq, n, 0, 0, 0))
#define ibv_create_qp(pd, attr)      CF_2(struct ibv_qp *, ibv_create_qp, pd, attr)
#define ibv_modify_qp(qp, attr, m)   CF_3(int, ibv_modify_qp, qp, attr, m)
#define ibv_query_qp(qp, attr, m, i) CF_4(int, ibv_query_qp, qp, attr, m, i)
#define ibv_destroy_qp(qp)           CF_1(int, ibv_destroy_qp, qp)
#define ibv_post_send(qp, wr, bad)   CF_3(int, ibv_post_send, qp, wr, bad)
#define ibv_post_recv(qp, wr, bad)   CF_3(int, ibv_post_recv, qp, wr, bad)
#define ibv_create_srq(pd, attr)     CF_2(struct ibv_srq *, ibv_create_srq, pd, attr)
#define ibv_modify_srq(srq, a, m)    CF_3(int, ibv_modify_srq, srq, a, m)
#define ibv_query_srq(srq, a)        CF_2(int, ibv_query_srq, srq, a)
#define ibv_destroy_srq(srq)         CF_1(int, ibv_destroy_srq, srq)
#define ibv_post_srq_recv(s, wr, b)  CF_3(int, ibv_post_srq_recv, s, wr, b)
#define ibv_query_gid(ctx, p, i, g)  CF_4(int, ibv_query_gid, ctx, p, i, g)
#define ibv_get_async_event(ctx, ev) CF_2(int, ibv_get_async_event, ctx, ev)
#define rdma_create_id(ec, id, u, p) CF_4(int, rdma_create_id, ec, id, u, p)
#define rdma_destroy_id(id)          CF_1(int, rdma_destroy_id, id)
#define rdma_bind_addr(id, a)        CF_2(int, rdma_bind_addr, id, a)
#define rdma_listen(id, n)           CF_2(int, rdma_listen, id, n)
#define rdma_create_qp(id, pd, a)    CF_3(int, rdma_create_qp, id, pd, a)
#define rdma_destroy_qp(id)          ((void)CF_CALL(rdma_destroy_qp, id, 0, 0, 0, 0))
#define rdma_accept(id, p)           CF_2(int, rdma_accept, id, p)
#define rdma_connect(id, p)          CF_2(int, rdma_connect, id, p)
#define rdma_establish(id)           CF_1(int, rdma_establish, id)
#define rdma_reject(id, p, n)        CF_3(int, rdma_reject, id, p, n)
#define rdma_disconnect(id)          CF_1(int, rdma_disconnect, id)
#define rdma_get_cm_event(ec, e)     CF_2(int, rdma_get_cm_event, ec, e)
#define rdma_ack_cm_event(e)         CF_1(int, rdma_ack_cm_event, e)
#define rdma_migrate_id(id, ec)      CF_2(int, rdma_migrate_id, id, ec)

#endif

#endif
