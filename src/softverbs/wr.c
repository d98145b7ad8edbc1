/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ibv_wr_*: requests built by calls between ibv_wr_start and ibv_wr_complete. They become an
 * ordinary chain in memory of the queue pair's own and are posted together: all of them or, after a
 * mistake, none. A mutex is held from start to complete or abort, as the man page says.
 */
#include "softverbs/sw.h"

struct sw_builder {
	pthread_mutex_t lock;
	struct ibv_send_wr *wr; /* one per slot of the send queue */
	struct ibv_sge *sge;    /* max_sge per slot, at least one */
	uint8_t *data;          /* max_inline per slot */
	uint32_t n, max, max_sge, max_inline;
	int err;
};

static struct sw_builder *outer(struct ibv_qp_ex *q)
{
	return sw_outer(q, struct sw_qp, ibv)->builder;
}

static void wr_start(struct ibv_qp_ex *q)
{
	struct sw_builder *b = outer(q);

	pthread_mutex_lock(&b->lock);
	b->n = 0;
	b->err = 0;
}

/* The next request; a spare one after a mistake, so that callers need not look. */
static struct ibv_send_wr *add(struct ibv_qp_ex *q, enum ibv_wr_opcode op)
{
	struct sw_builder *b = outer(q);
	struct ibv_send_wr *wr;

	if (b->n == b->max)
		b->err = ENOMEM;
	else
		b->n++;
	wr = &b->wr[b->n - 1];
	memset(wr, 0, sizeof *wr);
	wr->wr_id = q->wr_id;
	wr->send_flags = q->wr_flags;
	wr->opcode = op;
	wr->sg_list = b->sge + (size_t)(b->n - 1) * b->max_sge;
	return wr;
}

static struct ibv_send_wr *rdma(struct ibv_qp_ex *q, enum ibv_wr_opcode op, uint32_t rkey,
				uint64_t addr)
{
	struct ibv_send_wr *wr = add(q, op);

	wr->wr.rdma.rkey = rkey;
	wr->wr.rdma.remote_addr = addr;
	return wr;
}

static void wr_send(struct ibv_qp_ex *q)
{
	add(q, IBV_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *q, __be32 imm)
{
	add(q, IBV_WR_SEND_WITH_IMM)->imm_data = imm;
}

static void wr_send_inv(struct ibv_qp_ex *q, uint32_t rkey)
{
	add(q, IBV_WR_SEND_WITH_INV)->invalidate_rkey = rkey;
}

static void wr_rdma_write(struct ibv_qp_ex *q, uint32_t rkey, uint64_t addr)
{
	rdma(q, IBV_WR_RDMA_WRITE, rkey, addr);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *q, uint32_t rkey, uint64_t addr, __be32 imm)
{
	rdma(q, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, addr)->imm_data = imm;
}

static void wr_rdma_read(struct ibv_qp_ex *q, uint32_t rkey, uint64_t addr)
{
	rdma(q, IBV_WR_RDMA_READ, rkey, addr);
}

static struct ibv_send_wr *atomic(struct ibv_qp_ex *q, enum ibv_wr_opcode op, uint32_t rkey,
				  uint64_t addr, uint64_t compare_add)
{
	struct ibv_send_wr *wr = add(q, op);

	wr->wr.atomic.rkey = rkey;
	wr->wr.atomic.remote_addr = addr;
	wr->wr.atomic.compare_add = compare_add;
	return wr;
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *q, uint32_t rkey, uint64_t addr, uint64_t compare,
			      uint64_t swap)
{
	atomic(q, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, addr, compare)->wr.atomic.swap = swap;
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *q, uint32_t rkey, uint64_t addr, uint64_t n)
{
	atomic(q, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, addr, n);
}

static void wr_local_inv(struct ibv_qp_ex *q, uint32_t rkey)
{
	add(q, IBV_WR_LOCAL_INV)->invalidate_rkey = rkey;
}

static void wr_bind_mw(struct ibv_qp_ex *q, struct ibv_mw *mw, uint32_t rkey,
		       const struct ibv_mw_bind_info *info)
{
	struct ibv_send_wr *wr = add(q, IBV_WR_BIND_MW);

	wr->bind_mw.mw = mw;
	wr->bind_mw.rkey = rkey;
	wr->bind_mw.bind_info = *info;
}

static struct ibv_send_wr *last(struct ibv_qp_ex *q)
{
	struct sw_builder *b = outer(q);

	if (!b->n)
		b->err = EINVAL; /* a setter before any request */
	return b->n && !b->err ? &b->wr[b->n - 1] : NULL;
}

static void wr_set_sge_list(struct ibv_qp_ex *q, size_t n, const struct ibv_sge *sge)
{
	struct ibv_send_wr *wr = last(q);

	if (!wr)
		return;
	if (n > outer(q)->max_sge) {
		outer(q)->err = sw_dev(q->qp_base.context)->p.err_sge;
		return;
	}
	if (n)
		memcpy(wr->sg_list, sge, n * sizeof *sge);
	wr->num_sge = (int)n;
}

static void wr_set_sge(struct ibv_qp_ex *q, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct ibv_sge s = {addr, length, lkey};

	wr_set_sge_list(q, 1, &s);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *q, size_t n, const struct ibv_data_buf *buf)
{
	struct ibv_send_wr *wr = last(q);
	struct sw_builder *b = outer(q);
	size_t sum = 0;
	uint8_t *to;

	if (!wr)
		return;
	to = b->data + (size_t)(b->n - 1) * b->max_inline;
	for (size_t i = 0; i < n; i++) {
		if (buf[i].length > b->max_inline - sum) {
			b->err = sw_dev(q->qp_base.context)->p.err_inline;
			return;
		}
		if (buf[i].length)
			memcpy(to + sum, buf[i].addr, buf[i].length);
		sum += buf[i].length;
	}
	wr->sg_list[0] = (struct ibv_sge){(uintptr_t)to, (uint32_t)sum, 0};
	wr->num_sge = sum != 0;
	wr->send_flags |= IBV_SEND_INLINE;
}

static void wr_set_inline_data(struct ibv_qp_ex *q, void *addr, size_t len)
{
	struct ibv_data_buf b = {addr, len};

	wr_set_inline_data_list(q, 1, &b);
}

static void wr_set_ud_addr(struct ibv_qp_ex *q, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	struct ibv_send_wr *wr = last(q);

	if (!wr)
		return;
	wr->wr.ud.ah = ah;
	wr->wr.ud.remote_qpn = qpn;
	wr->wr.ud.remote_qkey = qkey;
}

static void wr_set_xrc_srqn(struct ibv_qp_ex *q, uint32_t srqn)
{
	struct ibv_send_wr *wr = last(q);

	if (wr)
		wr->qp_type.xrc.remote_srqn = srqn;
}

static int wr_complete(struct ibv_qp_ex *q)
{
	struct sw_builder *b = outer(q);
	int err = b->err;

	for (uint32_t i = 0; i + 1 < b->n; i++)
		b->wr[i].next = &b->wr[i + 1];
	if (!err && b->n)
		err = sw_post_all(sw_outer(q, struct sw_qp, ibv), b->wr);
	pthread_mutex_unlock(&b->lock);
	return err;
}

static void wr_abort(struct ibv_qp_ex *q)
{
	pthread_mutex_unlock(&outer(q)->lock);
}

void sw_builder_free(struct sw_builder *b)
{
	if (!b)
		return;
	pthread_mutex_destroy(&b->lock);
	free(b->wr);
	free(b->sge);
	free(b->data);
	free(b);
}

int sw_builder_new(struct sw_qp *qp)
{
	struct sw_builder *b = calloc(1, sizeof *b);
	struct ibv_qp_ex *q = &qp->ibv;

	if (!b)
		return ENOMEM;
	pthread_mutex_init(&b->lock, NULL);
	b->max = qp->cap.max_send_wr ? qp->cap.max_send_wr : 1;
	b->max_sge = qp->cap.max_send_sge ? qp->cap.max_send_sge : 1;
	b->max_inline = qp->cap.max_inline_data;
	b->wr = calloc(b->max, sizeof *b->wr);
	b->sge = calloc((size_t)b->max * b->max_sge, sizeof *b->sge);
	b->data = malloc((size_t)b->max * b->max_inline + 1);
	if (!b->wr || !b->sge || !b->data) {
		sw_builder_free(b);
		return ENOMEM;
	}
	qp->builder = b;
	q->wr_start = wr_start;
	q->wr_complete = wr_complete;
	q->wr_abort = wr_abort;
	q->wr_send = wr_send;
	q->wr_send_imm = wr_send_imm;
	q->wr_send_inv = wr_send_inv;
	q->wr_rdma_write = wr_rdma_write;
	q->wr_rdma_write_imm = wr_rdma_write_imm;
	q->wr_rdma_read = wr_rdma_read;
	q->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	q->wr_atomic_fetch_add = wr_atomic_fetch_add;
	q->wr_local_inv = wr_local_inv;
	q->wr_bind_mw = wr_bind_mw;
	q->wr_set_sge = wr_set_sge;
	q->wr_set_sge_list = wr_set_sge_list;
	q->wr_set_inline_data = wr_set_inline_data;
	q->wr_set_inline_data_list = wr_set_inline_data_list;
	q->wr_set_ud_addr = wr_set_ud_addr;
	q->wr_set_xrc_srqn = wr_set_xrc_srqn;
	return 0;
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	return sw_qp(qp)->builder ? &sw_qp(qp)->ibv : NULL;
}
