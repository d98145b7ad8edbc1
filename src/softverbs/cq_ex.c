/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ibv_cq_ex: polling by iterator. Between start_poll and end_poll the completion that is being
 * looked at is a copy, so the ring may go on meanwhile.
 */
#include "softverbs/sw.h"

static struct sw_cq *outer(struct ibv_cq_ex *c)
{
	return sw_outer(c, struct sw_cq, ibv);
}

static int advance(struct ibv_cq_ex *c)
{
	struct sw_cq *cq = outer(c);
	int n = sw_poll_one(cq, &cq->cur);

	if (n < 0)
		return EIO;
	if (!n)
		return ENOENT;
	c->wr_id = cq->cur.wr_id;
	c->status = cq->cur.status;
	return 0;
}

static int start_poll(struct ibv_cq_ex *c, struct ibv_poll_cq_attr *attr)
{
	return attr->comp_mask ? EINVAL : advance(c);
}

static int next_poll(struct ibv_cq_ex *c)
{
	int ret = advance(c);

	/* Law 6: after rxe's next_poll has found nothing, its end_poll goes one too far. */
	if (ret == ENOENT)
		outer(c)->overshoot = sw_dev(c->context)->p.cq_ex_overshoots;
	return ret;
}

static void end_poll(struct ibv_cq_ex *c)
{
	struct sw_cq *cq = outer(c);

	if (!cq->overshoot)
		return;
	cq->overshoot = false;
	sw_lock();
	cq->skip++;
	sw_unlock();
}

/* Each field of the completion that is being looked at is read by a function of its own. */
#define READER(type, field)                                                                        \
	static type read_##field(struct ibv_cq_ex *c)                                              \
	{                                                                                          \
		return outer(c)->cur.field;                                                        \
	}
READER(enum ibv_wc_opcode, opcode)
READER(uint32_t, vendor_err)
READER(uint32_t, byte_len)
READER(__be32, imm_data)
READER(uint32_t, qp_num)
READER(uint32_t, src_qp)
READER(unsigned int, wc_flags)
READER(uint32_t, slid)
READER(uint8_t, sl)
READER(uint8_t, dlid_path_bits)

static uint64_t read_completion_ts(struct ibv_cq_ex *c)
{
	return outer(c)->at;
}

struct ibv_cq_ex *sw_create_cq_ex(struct ibv_context *c, struct ibv_cq_init_attr_ex *a)
{
	uint64_t fields = IBV_WC_STANDARD_FLAGS;
	struct ibv_cq_ex *ex;
	struct ibv_cq *cq;

	/* rxe does not tell the time. */
	if (!sw_dev(c)->p.cq_ex_overshoots)
		fields |= IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
	if (a->comp_mask & ~(uint32_t)(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD) ||
	    a->wc_flags & ~fields ||
	    (a->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS &&
	     a->flags & ~(uint32_t)IBV_CREATE_CQ_ATTR_SINGLE_THREADED))
		return sw_null(EOPNOTSUPP);
	cq = ibv_create_cq(c, (int)a->cqe, a->cq_context, a->channel, (int)a->comp_vector);
	if (!cq)
		return NULL;
	ex = &sw_cq(cq)->ibv;
	sw_cq(cq)->keeps_time = (a->wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) != 0;
	ex->read_completion_ts = read_completion_ts;
	ex->start_poll = start_poll;
	ex->next_poll = next_poll;
	ex->end_poll = end_poll;
	ex->read_opcode = read_opcode;
	ex->read_vendor_err = read_vendor_err;
	ex->read_byte_len = read_byte_len;
	ex->read_imm_data = read_imm_data;
	ex->read_qp_num = read_qp_num;
	ex->read_src_qp = read_src_qp;
	ex->read_wc_flags = read_wc_flags;
	ex->read_slid = read_slid;
	ex->read_sl = read_sl;
	ex->read_dlid_path_bits = read_dlid_path_bits;
	return ex;
}
