/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A completion queue that tells when each completion was made, by the device's clock: an ibv_cq_ex,
 * whose iterator is read out into the shape of ibv_poll_cq(3).
 *
 * Only queues that ask for it are made so. The iterator takes a call for each completion and one for
 * each of its fields, where ibv_poll_cq(3) takes one for many, and the one provider in software is
 * wrong: rxe's loses a completion after an empty next_poll (law 6). It has no clock to tell, so that
 * it's never asked.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pool/errmsg.h"
#include "post/ep.h"

int sgp_cq_make_ex(struct sgp_cq *cq, struct ibv_context *verbs, const struct sgp_cq_attr *attr)
{
	struct ibv_cq_init_attr_ex init = {
		.cqe = (uint32_t)attr->cqe,
		.cq_context = cq,
		.channel = cq->channel,
		.comp_vector = (uint32_t)attr->comp_vector,
		.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
	};
	int err;

	cq->stamp = calloc(SGP_CQ_BATCH, sizeof *cq->stamp);
	if (!cq->stamp)
		return sgp_fail(ENOMEM, "no memory for a completion queue");
	errno = 0;
	cq->ex = ibv_create_cq_ex(verbs, &init);
	if (cq->ex) {
		cq->cq = ibv_cq_ex_to_cq(cq->ex);
		return 0;
	}
	err = errno > 0 ? errno : EIO;
	if (err == ENOSYS) /* what it's called without extended verbs (law 4) */
		err = EOPNOTSUPP;
	free(cq->stamp);
	cq->stamp = NULL;
	return sgp_fail(err, "no completion queue of %d entries with the device's time: %s",
			attr->cqe, strerror(err));
}

/* Of a failed one only these are good (law 2.11). */
static void read_failed(struct ibv_cq_ex *ex, struct ibv_wc *raw)
{
	*raw = (struct ibv_wc){.wr_id = ex->wr_id,
			       .status = ex->status,
			       .vendor_err = ibv_wc_read_vendor_err(ex),
			       .qp_num = ibv_wc_read_qp_num(ex)};
}

static void read_good(struct ibv_cq_ex *ex, struct ibv_wc *raw)
{
	*raw = (struct ibv_wc){.wr_id = ex->wr_id,
			       .opcode = ibv_wc_read_opcode(ex),
			       .qp_num = ibv_wc_read_qp_num(ex)};
	if (!(raw->opcode & IBV_WC_RECV))
		return;
	raw->byte_len = ibv_wc_read_byte_len(ex);
	raw->wc_flags = ibv_wc_read_wc_flags(ex);
	raw->imm_data = ibv_wc_read_imm_data(ex);
	raw->src_qp = ibv_wc_read_src_qp(ex);
	raw->slid = (uint16_t)ibv_wc_read_slid(ex);
	raw->sl = ibv_wc_read_sl(ex);
	raw->dlid_path_bits = ibv_wc_read_dlid_path_bits(ex);
}

int sgp_cq_poll_ex_locked(struct sgp_cq *cq, int n, struct ibv_wc *raw)
{
	struct ibv_poll_cq_attr attr = {.comp_mask = 0};
	struct ibv_cq_ex *ex = cq->ex;
	int got = 0, ret = ibv_start_poll(ex, &attr);

	if (ret)
		return ret == ENOENT ? 0 : -sgp_provider_errno(ret);
	do {
		if (ex->status == IBV_WC_SUCCESS)
			read_good(ex, &raw[got]);
		else
			read_failed(ex, &raw[got]);
		cq->stamp[got++] = ibv_wc_read_completion_ts(ex);
	} while (got < n && !ibv_next_poll(ex)); /* an error is there for the next call as well */
	ibv_end_poll(ex);
	return got;
}
