/* SPDX-License-Identifier: BSD-2-Clause */
/* Posts: chains of every operation, on lists of every kind, and what each may answer. */
#include <errno.h>

#include "post_model.h"

/* Errors that a post may give without a fault of the device's. */
static void check_refusal(const struct model_ep *e, int err, bool send)
{
	struct sgp_ep_info info;

	w.count.refused++;
	CHECK(sgp_ep_query(e->ep, &info) == 0);
	switch (err) {
	case EAGAIN: /* or it needs more requests than there is room for */
		CHECK(send || info.recv_room == 0);
		break;
	case ESHUTDOWN:
		CHECK(sgp_ep_is_stopped(e->ep));
		break;
	case E2BIG:
	case ENOTCONN:
	case ENOBUFS:  /* for a copy: no chunk, */
	case EMSGSIZE: /* or none as large */
		CHECK(send);
		break;
	default: /* the provider's; a receive in RESET is refused */
		CHECK(w.faulty || w.removed || !send);
		break;
	}
}

void do_recv(void)
{
	struct model_ep *e = some_ep();
	struct op *op = e && !e->ring && !e->shared ? new_op(e) : NULL;
	SGP_SGL(sgl, LIST);

	if (!op || !make_list(&sgl, 1 + (int)pick((uint32_t)w.max_sge), true))
		return;
	fill(&sgl, 0);
	op->recv = op->wanted = op->handover = true;
	op->opcode = IBV_WC_RECV;
	remember(op, &sgl);
	if (sgp_post_recvv(e->ep, op_context(op), &sgl)) {
		check_refusal(e, errno, false);
		CHECK(is_as_remembered(op, &sgl));
		sgp_sgl_clear(&sgl);
		return;
	}
	CHECK(!sgl.num_chunk && !sgl.num_sge);
	op->out = true;
	w.count.posts++;
}

struct post {
	struct sgp_sgl *sgl;
	struct sgp_wr wr;
	struct op *op;
};

static void choose_operation(struct post *p)
{
	static const struct {
		enum ibv_wr_opcode wr;
		enum ibv_wc_opcode wc;
	} ops[] = {
		{IBV_WR_SEND, IBV_WC_SEND},
		{IBV_WR_SEND, IBV_WC_SEND},
		{IBV_WR_SEND_WITH_IMM, IBV_WC_SEND},
		{IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE},
		{IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RDMA_WRITE},
		{IBV_WR_RDMA_READ, IBV_WC_RDMA_READ},
	};
	uint32_t i = pick(sizeof ops / sizeof *ops);
	bool read = ops[i].wr == IBV_WR_RDMA_READ;
	const struct sgp_chunk *remote = read ? w.source : w.target;

	p->wr.opcode = ops[i].wr;
	p->op->opcode = (uint8_t)ops[i].wc;
	p->wr.remote_addr = (uintptr_t)sgp_chunk_addr(remote);
	p->wr.rkey = sgp_chunk_rkey(remote);
	if (one_in(40))
		p->wr.rkey ^= 0x55; /* the peer refuses it */
	if (one_in(2))
		p->wr.flags |= IBV_SEND_SIGNALED;
	if (one_in(3))
		p->wr.flags |= SGP_BATCH;
	if (!read && one_in(5))
		p->wr.flags |= SGP_HANDOVER;
	if (!read && one_in(3))
		p->wr.flags |= SGP_LINEARISE;
	p->op->may_copy = p->wr.flags & SGP_LINEARISE;
	p->op->handover = read || p->wr.flags & SGP_HANDOVER;
	p->op->wanted = w.sig_all || p->op->handover || p->wr.flags & IBV_SEND_SIGNALED;
}

/* The list: new chunks, or (not for a sink) a clone of what the caller holds besides. */
static bool choose_list(struct post *p, const struct sgp_sgl *before)
{
	bool read = p->wr.opcode == IBV_WR_RDMA_READ;
	bool remote = read || p->wr.opcode == IBV_WR_RDMA_WRITE ||
		      p->wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	uint32_t most = one_in(8) ? LIST : (uint32_t)w.max_sge;
	int n = (int)pick(most + 1);

	if (read)
		n = n ? n : 1;
	if (!make_list(p->sgl, n, false))
		return false;
	/* What is READ or written lies in one chunk at the peer. */
	if (remote && p->sgl->length > CHUNK)
		CHECK(sgp_sgl_trim(p->sgl, CHUNK) == 0);
	fill(p->sgl, p->op->serial);
	if (!read && before && one_in(3)) { /* one message to two */
		sgp_sgl_clear(p->sgl);
		CHECK(sgp_sgl_clone(p->sgl, before) == 0);
	}
	if (one_in(6) && p->sgl->num_chunk && !read) {
		sgp_chunk_ref(p->sgl->chunk[0]);
		keep_held(p->sgl->chunk[0]);
	}
	remember(p->op, p->sgl);
	return true;
}

static void settle(struct post *p, int n, const struct sgp_wr *refused)
{
	bool taken = true;

	for (int i = 0; i < n; i++) {
		taken = taken && &p[i].wr != refused;
		if (taken) {
			CHECK(!p[i].sgl->num_chunk && !p[i].sgl->num_sge);
			p[i].op->out = true;
			w.count.posts++;
		} else {
			CHECK(is_as_remembered(p[i].op, p[i].sgl));
			sgp_sgl_clear(p[i].sgl);
		}
	}
}

void do_send(void)
{
	struct model_ep *e = some_ep();
	SGP_SGL(s0, LIST);
	SGP_SGL(s1, LIST);
	SGP_SGL(s2, LIST);
	SGP_SGL(s3, LIST);
	struct post p[CHAIN] = {{.sgl = &s0}, {.sgl = &s1}, {.sgl = &s2}, {.sgl = &s3}};
	struct sgp_wr *refused = NULL;
	int n = one_in(3) ? 1 + (int)pick(CHAIN) : 1, ret, err;

	if (!e)
		return;
	for (int i = 0; i < n; i++) {
		p[i].op = new_op(e);
		if (!p[i].op)
			n = i;
		else
			p[i].op->out = true; /* so that the next one takes another */
	}
	for (int i = 0; i < n; i++) {
		p[i].op->out = false;
		choose_operation(&p[i]);
		if (!choose_list(&p[i], i && p[i - 1].wr.opcode != IBV_WR_RDMA_READ &&
							p[i - 1].sgl->length <= CHUNK
						? p[i - 1].sgl
						: NULL))
			n = i;
		p[i].wr.context = op_context(p[i].op);
		p[i].wr.sgl = p[i].sgl;
		p[i].wr.next = NULL;
		if (i && i < n)
			p[i - 1].wr.next = &p[i].wr;
	}
	if (!n)
		return;
	ret = sgp_post(e->ep, &p[0].wr, &refused);
	err = errno;
	CHECK((ret != 0) == (refused != NULL));
	settle(p, n, refused);
	if (ret)
		check_refusal(e, err, true);
}
