/* SPDX-License-Identifier: BSD-2-Clause */
/* The fuzzer's posts, polls and transitions: most of them right, some of them not. */
#include "fuzz.h"

static struct ibv_sge any_sge(void)
{
	struct ibv_mr *m = PICK(mr);
	struct ibv_sge s = {(uintptr_t)arena + rnd(ARENA), rnd(300), rnd(100000)};

	if (m && rnd(20)) {
		s.lkey = m->lkey;
		s.addr = (uintptr_t)m->addr + rnd((uint32_t)m->length);
		if (rnd(10))
			s.length = rnd((uint32_t)((uintptr_t)m->addr + m->length - s.addr) + 1);
	}
	return s;
}

static struct ibv_mr *mr_of(const struct ibv_pd *p)
{
	for (int i = 0; i < 8; i++) {
		struct ibv_mr *m = PICK(mr);

		if (m && m->pd == p && m->length > 400)
			return m;
	}
	return NULL;
}

static struct ibv_sge good_sge(const struct ibv_mr *m, uint32_t len)
{
	return (struct ibv_sge){(uintptr_t)m->addr + rnd((uint32_t)m->length - len), len, m->lkey};
}

/* As a program that knows what it does; most posts are like this, or every QP would be in error. */
static void post_good_send(struct ibv_qp *q)
{
	static const enum ibv_wr_opcode op[] = {IBV_WR_SEND, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
						IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ};
	struct ibv_mr *m = mr_of(q->pd), *far = mr_of(pd[rnd(2)]);
	struct ibv_send_wr *bad, wr = {.num_sge = 1, .opcode = op[rnd(5)]};
	struct ibv_sge s;

	if (!m || !far || q->qp_type != IBV_QPT_RC)
		return;
	s = good_sge(m, rnd(200));
	wr.sg_list = &s;
	wr.send_flags = rnd(8) & ~(unsigned int)IBV_SEND_INLINE;
	wr.wr.rdma.rkey = far->rkey;
	wr.wr.rdma.remote_addr = (uintptr_t)far->addr + rnd(200);
	ibv_post_send(q, &wr, &bad);
}

static void post_good_recv(struct ibv_qp *q)
{
	struct ibv_mr *m = mr_of(q->pd);
	struct ibv_recv_wr *bad, wr = {.num_sge = 1};
	struct ibv_sge s;

	if (!m)
		return;
	s = good_sge(m, 250);
	wr.sg_list = &s;
	if (q->srq)
		ibv_post_srq_recv(q->srq, &wr, &bad);
	else
		ibv_post_recv(q, &wr, &bad);
}

static void post_send(struct ibv_qp *q)
{
	struct ibv_send_wr wr[3] = {0}, *bad;
	struct ibv_sge s[3][4];
	uint32_t n = 1 + rnd(3);
	static char inl[512];

	for (uint32_t i = 0; i < n; i++) {
		struct ibv_mr *m = PICK(mr);
		struct ibv_mw *w = PICK(mw);

		for (int k = 0; k < 4; k++)
			s[i][k] = any_sge();
		wr[i].next = i + 1 < n ? &wr[i + 1] : NULL;
		wr[i].sg_list = s[i];
		wr[i].num_sge = (int)rnd(5);
		wr[i].opcode = (enum ibv_wr_opcode)rnd(rnd(20) ? 11 : 30);
		wr[i].send_flags = rnd(16);
		if (wr[i].send_flags & IBV_SEND_INLINE) {
			s[i][0] = (struct ibv_sge){(uintptr_t)inl, rnd(100), 0};
			wr[i].num_sge = wr[i].num_sge > 1 ? 1 : wr[i].num_sge;
		}
		wr[i].imm_data = w ? w->rkey : rnd(1000);
		if (q->qp_type == IBV_QPT_UD) {
			struct ibv_qp *to = PICK(qp);

			wr[i].wr.ud.ah = PICK(ah);
			wr[i].wr.ud.remote_qpn = to ? to->qp_num : rnd(100);
			continue;
		}
		if (wr[i].opcode == IBV_WR_BIND_MW) {
			if (!w)
				return;
			wr[i].bind_mw.mw = w;
			wr[i].bind_mw.rkey = rnd(4) ? ibv_inc_rkey(w->rkey) : rnd(1 << 16);
			wr[i].bind_mw.bind_info = (struct ibv_mw_bind_info){
				m, m ? (uintptr_t)m->addr + rnd(64) : 0, rnd(200), rnd(16)};
			if (!rnd(4))
				w->rkey = wr[i].bind_mw.rkey;
			continue;
		}
		wr[i].wr.rdma.remote_addr = m ? (uintptr_t)m->addr + rnd((uint32_t)m->length) : 0;
		wr[i].wr.rdma.rkey = m && rnd(4) ? m->rkey : w ? w->rkey : rnd(100000);
		if (wr[i].opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
		    wr[i].opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
			wr[i].wr.atomic.remote_addr &= ~7ull;
			wr[i].wr.atomic.rkey = m ? m->rkey : 0;
		}
	}
	ibv_post_send(q, wr, &bad);
}

static void post_recv(void)
{
	struct ibv_sge s[4] = {any_sge(), any_sge(), any_sge(), any_sge()};
	struct ibv_recv_wr *bad, wr = {.sg_list = s, .num_sge = (int)rnd(5)};
	struct ibv_srq *r = PICK(srq);
	struct ibv_qp *q = PICK(qp);

	if (rnd(2) && r)
		ibv_post_srq_recv(r, &wr, &bad);
	else if (q)
		ibv_post_recv(q, &wr, &bad);
}

static void modify(struct ibv_qp *q)
{
	struct ibv_qp *to = rnd(4) ? PICK(qp) : q;
	struct ibv_qp_attr a = {.qp_state = (enum ibv_qp_state)rnd(7),
				.cur_qp_state = (enum ibv_qp_state)rnd(7),
				.path_mtu = IBV_MTU_1024,
				.port_num = (uint8_t)rnd(10) ? 1 : 2,
				.qp_access_flags = rnd(16),
				.dest_qp_num = to ? to->qp_num : rnd(100),
				.max_dest_rd_atomic = (uint8_t)rnd(4),
				.max_rd_atomic = (uint8_t)rnd(4),
				.min_rnr_timer = (uint8_t)rnd(33),
				.rnr_retry = (uint8_t)rnd(9),
				.retry_cnt = (uint8_t)rnd(9),
				.timeout = (uint8_t)rnd(20)};

	a.ah_attr.is_global = rnd(20) != 0;
	ibv_query_gid(ctx, 1, 0, &a.ah_attr.grh.dgid);
	ibv_modify_qp(q, &a, rnd(10) ? IBV_QP_STATE : (int)rnd(1 << 21));
}

/* The proper way up, so that there is traffic. */
void bring_up(struct ibv_qp *q, const struct ibv_qp *to)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RESET,
				.path_mtu = IBV_MTU_1024,
				.port_num = 1,
				.qp_access_flags = 15,
				.dest_qp_num = to->qp_num,
				.max_dest_rd_atomic = 2,
				.max_rd_atomic = 2,
				.rnr_retry = (uint8_t)rnd(8),
				.timeout = (uint8_t)rnd(10)};
	bool ud = q->qp_type == IBV_QPT_UD;

	a.ah_attr.is_global = a.ah_attr.port_num = 1;
	ibv_query_gid(ctx, 1, 0, &a.ah_attr.grh.dgid);
	ibv_modify_qp(q, &a, IBV_QP_STATE);
	a.qp_state = IBV_QPS_INIT;
	ibv_modify_qp(q, &a,
		      IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX |
			      (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
	a.qp_state = IBV_QPS_RTR;
	ibv_modify_qp(q, &a,
		      ud ? IBV_QP_STATE
			 : IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				      IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				      IBV_QP_MIN_RNR_TIMER);
	a.qp_state = IBV_QPS_RTS;
	ibv_modify_qp(q, &a,
		      ud ? IBV_QP_STATE | IBV_QP_SQ_PSN
			 : IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				      IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

/* What came of it all: a fuzzer that only ever fails proves nothing. */
static unsigned long seen[IBV_WC_TM_RNDV_INCOMPLETE + 1], ops[256];

static void tally(const struct ibv_wc *wc, int n)
{
	for (int i = 0; i < n; i++) {
		if (wc[i].status <= IBV_WC_TM_RNDV_INCOMPLETE)
			seen[wc[i].status]++;
		if (wc[i].status == IBV_WC_SUCCESS)
			ops[wc[i].opcode & 255]++;
	}
}

void queue_step(void)
{
	uint32_t n = rnd(MAX);
	/* Mostly the same partner, or no connection would last. */
	struct ibv_qp *q = qp[n], *to = rnd(20) ? qp[n ^ 1] : PICK(qp);
	struct ibv_cq *c = PICK(cq);
	struct ibv_srq *r = PICK(srq);
	struct ibv_wc wc[16];

	switch (rnd(14)) {
	case 0:
	case 1:
	case 2:
		if (q && rnd(20))
			post_good_send(q);
		else if (q)
			post_send(q);
		break;
	case 3:
	case 4:
	case 5:
		if (q && rnd(20))
			post_good_recv(q);
		else
			post_recv();
		break;
	case 6:
	case 7:
	case 8:
		if (c)
			tally(wc, ibv_poll_cq(c, (int)rnd(17), wc));
		break;
	case 9:
		if (q && !rnd(8))
			modify(q);
		break;
	case 10:
		if (q && to && (q->state == IBV_QPS_ERR || !rnd(20))) {
			bring_up(q, to);
			bring_up(to, q);
		}
		break;
	case 11:
		if (c)
			ibv_req_notify_cq(c, (int)rnd(2));
		break;
	case 12:
		if (c)
			ibv_resize_cq(c, (int)rnd(60));
		break;
	default:
		if (r) {
			struct ibv_srq_attr a = {rnd(30), 0, rnd(10)};

			ibv_modify_srq(r, &a, (int)rnd(4));
		}
	}
}

void say_tally(void)
{
	for (int i = 0; i <= IBV_WC_TM_RNDV_INCOMPLETE; i++)
		if (seen[i])
			printf("%8lu %s\n", seen[i], ibv_wc_status_str((enum ibv_wc_status)i));
	for (int i = 0; i < 256; i++)
		if (ops[i])
			printf("%8lu of opcode %d\n", ops[i], i);
	if (!seen[IBV_WC_SUCCESS] || !ops[IBV_WC_RECV] || !ops[IBV_WC_RDMA_READ])
		fail("nothing ever succeeded");
}
