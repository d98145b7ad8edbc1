/* SPDX-License-Identifier: BSD-2-Clause */
/* What the tests share: a device opened, and two queue pairs connected to each other. */
#ifndef TESTS_SOFTVERBS_PAIR_H
#define TESTS_SOFTVERBS_PAIR_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sgpool/softverbs.h>

#include "../asserts.h"
#include "../plain.h"

#define PAIR_BUF 65536

struct end {
	struct ibv_pd *pd;
	struct ibv_comp_channel *ch;
	struct ibv_cq *scq, *rcq;
	struct ibv_qp *qp;
	struct ibv_srq *srq;
	struct ibv_mr *mr;
	char *buf;
};

struct pair {
	struct ibv_context *ctx;
	struct end a, b;
	/* Set before pair_open; 0 means the default in brackets. */
	uint32_t depth;               /* of both queues [16] */
	uint32_t max_inline;          /* [64] */
	uint32_t cqe;                 /* [2 * depth] */
	uint8_t rnr_retry, rnr_timer; /* [0, 12] */
	int sig_all;
	int access;            /* of the MRs [all] */
	enum ibv_qp_type type; /* [RC] */
};

static inline struct ibv_context *open_first(void)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);
	struct ibv_context *ctx;

	ck_assert_ptr_nonnull(list);
	ck_assert_int_ge(n, 1);
	ctx = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	ck_assert_ptr_nonnull(ctx);
	return ctx;
}

static inline void end_open(struct pair *p, struct end *e)
{
	struct ibv_qp_init_attr a = {.qp_type = p->type ? p->type : IBV_QPT_RC,
				     .sq_sig_all = p->sig_all};

	e->pd = ibv_alloc_pd(p->ctx);
	ck_assert_ptr_nonnull(e->pd);
	e->ch = ibv_create_comp_channel(p->ctx);
	ck_assert_ptr_nonnull(e->ch);
	e->scq = ibv_create_cq(p->ctx, (int)p->cqe, e, e->ch, 0);
	e->rcq = ibv_create_cq(p->ctx, (int)p->cqe, e, e->ch, 0);
	ck_assert_ptr_nonnull(e->scq);
	ck_assert_ptr_nonnull(e->rcq);
	a.send_cq = e->scq;
	a.recv_cq = e->rcq;
	a.srq = e->srq;
	a.cap = (struct ibv_qp_cap){p->depth, p->depth, 4, 4, p->max_inline};
	e->qp = ibv_create_qp(e->pd, &a);
	ck_assert_ptr_nonnull(e->qp);
	e->buf = calloc(1, PAIR_BUF);
	e->mr = ibv_reg_mr(e->pd, e->buf, PAIR_BUF, p->access);
	ck_assert_ptr_nonnull(e->mr);
	ck_assert_int_eq(plain_init(e->qp), 0);
}

static inline void end_join(struct pair *p, struct end *e, struct end *to)
{
	ck_assert_int_eq(plain_join(e->qp, to->qp->qp_num, p->rnr_retry, p->rnr_timer), 0);
}

/* Both ends in INIT. */
static inline void pair_init(struct pair *p)
{
	p->depth = p->depth ? p->depth : 16;
	p->max_inline = p->max_inline ? p->max_inline : 64;
	p->cqe = p->cqe ? p->cqe : 2 * p->depth;
	p->rnr_timer = p->rnr_timer ? p->rnr_timer : 12;
	if (!p->access)
		p->access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
			    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
	p->ctx = open_first();
	end_open(p, &p->a);
	end_open(p, &p->b);
}

static inline void pair_open(struct pair *p)
{
	pair_init(p);
	end_join(p, &p->a, &p->b);
	end_join(p, &p->b, &p->a);
}

static inline void end_close(struct end *e)
{
	if (e->qp)
		ck_assert_int_eq(ibv_destroy_qp(e->qp), 0);
	if (e->srq)
		ck_assert_int_eq(ibv_destroy_srq(e->srq), 0);
	ck_assert_int_eq(ibv_destroy_cq(e->scq), 0);
	ck_assert_int_eq(ibv_destroy_cq(e->rcq), 0);
	ck_assert_int_eq(ibv_destroy_comp_channel(e->ch), 0);
	ck_assert_int_eq(ibv_dereg_mr(e->mr), 0);
	ck_assert_int_eq(ibv_dealloc_pd(e->pd), 0);
	free(e->buf);
}

static inline void pair_close(struct pair *p)
{
	end_close(&p->a);
	end_close(&p->b);
	ck_assert_int_eq(ibv_close_device(p->ctx), 0);
	for (int i = 0; i < SV_NCOUNTERS; i++)
		ck_assert_msg(sv_live((enum sv_counter)i) == 0, "counter %d: %d alive", i,
			      sv_live((enum sv_counter)i));
}

static inline struct ibv_sge sge_of(const struct end *e, size_t off, uint32_t len)
{
	return (struct ibv_sge){(uintptr_t)(e->buf + off), len, e->mr->lkey};
}

static inline int send_op(struct end *e, uint64_t id, size_t off, uint32_t len, unsigned int flags)
{
	struct ibv_sge s = sge_of(e, off, len);
	struct ibv_send_wr *bad = NULL, wr = {.wr_id = id,
					      .sg_list = &s,
					      .num_sge = 1,
					      .opcode = IBV_WR_SEND,
					      .send_flags = flags};

	return ibv_post_send(e->qp, &wr, &bad);
}

static inline int recv_op(struct end *e, uint64_t id, size_t off, uint32_t len)
{
	struct ibv_sge s = sge_of(e, off, len);
	struct ibv_recv_wr *bad = NULL, wr = {.wr_id = id, .sg_list = &s, .num_sge = 1};

	return e->srq ? ibv_post_srq_recv(e->srq, &wr, &bad) : ibv_post_recv(e->qp, &wr, &bad);
}

/* Exactly one completion, with this id and status. */
static inline struct ibv_wc expect(struct ibv_cq *cq, uint64_t id, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	ck_assert_int_eq(ibv_poll_cq(cq, 1, &wc), 1);
	ck_assert_uint_eq(wc.wr_id, id);
	ck_assert_msg(wc.status == status, "%s, not %s", ibv_wc_status_str(wc.status),
		      ibv_wc_status_str(status));
	return wc;
}

static inline void expect_none(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	ck_assert_int_eq(ibv_poll_cq(cq, 1, &wc), 0);
}

static inline bool readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

#endif
