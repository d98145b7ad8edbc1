/* SPDX-License-Identifier: BSD-2-Clause */
#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "null_device.h"

#define NQPS 64 /* queue pairs are found by their number, as a device's driver does */

/* A work queue: elements of 64 bytes, several of them for a long request. */
struct wq {
	uint8_t *buf;
	uint64_t *wr_id;       /* [ring], by element */
	uint32_t *end;         /* [ring], by element: requests up to this one */
	uint32_t ring, head;   /* elements */
	uint32_t posted, done; /* requests; done up to the last polled completion */
	uint32_t depth, max_sge, max_inline;
};

struct null_qp {
	struct ibv_qp *qp;
	struct wq sq, rq;
};

struct cqe {
	uint32_t qp_num;
	uint32_t element;
	uint32_t byte_len;
	uint8_t opcode;
	uint8_t is_recv;
};

struct ctrl_seg {
	uint32_t opmod_idx_opcode, qpn_ds, flags, imm;
};

struct data_seg {
	uint32_t byte_count, lkey;
	uint64_t addr;
};

static struct null_qp *qps[NQPS];
static struct {
	struct cqe *ring;
	uint32_t head, tail, mask;
} cq;

static struct null_qp *find(uint32_t qp_num)
{
	struct null_qp *q = qps[qp_num % NQPS];

	return q && q->qp->qp_num == qp_num ? q : NULL;
}

static void complete(struct ibv_qp *qp, uint32_t element, uint32_t bytes, enum ibv_wc_opcode op,
		     bool is_recv)
{
	cq.ring[cq.head++ & cq.mask] = (struct cqe){.qp_num = qp->qp_num,
						    .element = element,
						    .byte_len = bytes,
						    .opcode = (uint8_t)op,
						    .is_recv = is_recv};
}

static bool is_full(const struct wq *wq)
{
	return wq->posted - wq->done >= wq->depth;
}

/* The gather entries behind the control segment; returns the 16-byte units used. */
static uint32_t write_sges(struct wq *wq, uint32_t element, uint32_t at, const struct ibv_sge *sge,
			   int n, uint32_t *bytes)
{
	uint32_t mask = wq->ring * 4 - 1;

	for (int i = 0; i < n; i++) {
		struct data_seg *seg;

		if (!sge[i].length)
			continue;
		seg = (struct data_seg *)(wq->buf + (size_t)((element * 4 + at) & mask) * 16);
		seg->byte_count = htobe32(sge[i].length);
		seg->lkey = htobe32(sge[i].lkey);
		seg->addr = htobe64(sge[i].addr);
		*bytes += sge[i].length;
		at++;
	}
	return at;
}

static int write_inline(struct wq *wq, uint32_t element, uint32_t *at, const struct ibv_sge *sge,
			int n, uint32_t *bytes)
{
	uint32_t used = *at * 16 + 4;

	for (int i = 0; i < n; i++) {
		const uint8_t *from = (const uint8_t *)(uintptr_t)sge[i].addr;
		uint32_t left = sge[i].length;

		*bytes += left;
		if (*bytes > wq->max_inline)
			return ENOMEM;
		while (left) {
			uint32_t offset = (element * 64 + used) & (wq->ring * 64 - 1);
			uint32_t room = wq->ring * 64 - offset;
			uint32_t piece = left < room ? left : room;

			memcpy(wq->buf + offset, from, piece);
			from += piece;
			left -= piece;
			used += piece;
		}
	}
	*at = (used + 15) / 16;
	return 0;
}

static int send_one(struct null_qp *q, const struct ibv_send_wr *wr)
{
	struct wq *wq = &q->sq;
	uint32_t element = wq->head, at = 1, bytes = 0, slot = element & (wq->ring - 1);
	struct ctrl_seg *ctrl = (struct ctrl_seg *)(wq->buf + (size_t)slot * 64);
	uint32_t imm = 0;

	if (wr->opcode > IBV_WR_SEND_WITH_INV)
		return EINVAL;
	if (is_full(wq) || wr->num_sge > (int)wq->max_sge)
		return ENOMEM;
	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_SEND_WITH_IMM:
		imm = wr->imm_data;
		break;
	case IBV_WR_SEND:
		break;
	case IBV_WR_RDMA_READ:
	case IBV_WR_RDMA_WRITE: {
		struct data_seg *remote = (struct data_seg *)(ctrl + 1);

		remote->addr = htobe64(wr->wr.rdma.remote_addr);
		remote->lkey = htobe32(wr->wr.rdma.rkey);
		at++;
		break;
	}
	default:
		return EINVAL;
	}
	if (wr->send_flags & IBV_SEND_INLINE) {
		if (write_inline(wq, element, &at, wr->sg_list, wr->num_sge, &bytes))
			return ENOMEM;
	} else {
		at = write_sges(wq, element, at, wr->sg_list, wr->num_sge, &bytes);
	}
	ctrl->opmod_idx_opcode = htobe32(((element & 0xffff) << 8) | wr->opcode);
	ctrl->qpn_ds = htobe32(q->qp->qp_num << 8 | at);
	ctrl->flags = (wr->send_flags & IBV_SEND_SIGNALED ? 8u : 0) |
		      (wr->send_flags & IBV_SEND_SOLICITED ? 2u : 0) |
		      (wr->send_flags & IBV_SEND_FENCE ? 0x80u : 0);
	ctrl->imm = imm;
	wq->wr_id[slot] = wr->wr_id;
	wq->head += (at + 3) / 4;
	wq->end[slot] = ++wq->posted;
	if (wr->send_flags & IBV_SEND_SIGNALED)
		complete(q->qp, element, bytes, IBV_WC_SEND, false);
	return 0;
}

static int null_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct null_qp *q = find(qp->qp_num);
	int err = 0;

	for (; wr; wr = wr->next) {
		err = send_one(q, wr);
		if (err) {
			*bad = wr;
			break;
		}
	}
	/* Where a device's doorbell record would be written. */
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	return err;
}

static int null_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct null_qp *q = find(qp->qp_num);
	struct wq *wq = &q->rq;

	for (; wr; wr = wr->next) {
		uint32_t slot = wq->head & (wq->ring - 1), bytes = 0;

		if (is_full(wq) || wr->num_sge > (int)wq->max_sge) {
			*bad = wr;
			return ENOMEM;
		}
		write_sges(wq, wq->head, 0, wr->sg_list, wr->num_sge, &bytes);
		wq->wr_id[slot] = wr->wr_id;
		wq->end[slot] = ++wq->posted;
		complete(qp, wq->head, bytes, IBV_WC_RECV, true);
		wq->head += (wq->max_sge + 3) / 4;
	}
	return 0;
}

static int null_poll_cq(struct ibv_cq *ibv, int n, struct ibv_wc *wc)
{
	int got = 0;

	(void)ibv;
	for (; got < n && cq.tail != cq.head; got++) {
		const struct cqe *e = &cq.ring[cq.tail++ & cq.mask];
		struct null_qp *q = find(e->qp_num);
		struct wq *wq = e->is_recv ? &q->rq : &q->sq;
		uint32_t slot = e->element & (wq->ring - 1);

		wc[got].wr_id = wq->wr_id[slot];
		wc[got].status = IBV_WC_SUCCESS;
		wc[got].vendor_err = 0;
		wc[got].qp_num = e->qp_num;
		wc[got].wc_flags = 0;
		wc[got].opcode = (enum ibv_wc_opcode)e->opcode;
		wc[got].byte_len = e->byte_len;
		wq->done = wq->end[slot];
	}
	return got;
}

static int null_req_notify(struct ibv_cq *ibv, int solicited_only)
{
	(void)ibv;
	(void)solicited_only;
	return 0;
}

void null_device_install(struct ibv_context *verbs)
{
	if (!cq.ring) {
		cq.mask = (1 << 16) - 1;
		cq.ring = calloc(cq.mask + 1, sizeof *cq.ring);
	}
	verbs->ops.post_send = null_post_send;
	verbs->ops.post_recv = null_post_recv;
	verbs->ops.poll_cq = null_poll_cq;
	verbs->ops.req_notify_cq = null_req_notify;
}

static int wq_init(struct wq *wq, uint32_t depth, uint32_t max_sge, uint32_t max_inline)
{
	uint32_t largest = 1 + 1 + (max_sge > max_inline / 16 + 1 ? max_sge : max_inline / 16 + 1);

	*wq = (struct wq){.depth = depth, .max_sge = max_sge, .max_inline = max_inline, .ring = 1};
	while (wq->ring < depth * ((largest + 3) / 4))
		wq->ring *= 2;
	wq->buf = aligned_alloc(4096, ((size_t)wq->ring * 64 + 4095) & ~(size_t)4095);
	wq->wr_id = calloc(wq->ring, sizeof *wq->wr_id);
	wq->end = calloc(wq->ring, sizeof *wq->end);
	if (!wq->buf || !wq->wr_id || !wq->end)
		return -1;
	memset(wq->buf, 0, (size_t)wq->ring * 64);
	return 0;
}

static void wq_fini(struct wq *wq)
{
	free(wq->buf);
	free(wq->wr_id);
	free(wq->end);
}

int null_device_adopt(struct ibv_qp *qp, uint32_t depth, uint32_t max_sge, uint32_t max_inline)
{
	struct null_qp *q = calloc(1, sizeof *q);

	if (!q || qps[qp->qp_num % NQPS])
		return -1;
	q->qp = qp;
	if (wq_init(&q->sq, depth, max_sge, max_inline) || wq_init(&q->rq, depth, max_sge, 0))
		return -1;
	qps[qp->qp_num % NQPS] = q;
	return 0;
}

void null_device_drop(struct ibv_qp *qp)
{
	struct null_qp *q = find(qp->qp_num);

	qps[qp->qp_num % NQPS] = NULL;
	wq_fini(&q->sq);
	wq_fini(&q->rq);
	free(q);
}
