/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared receive queues, and datagrams. */
#include <unistd.h>

#include "behaviours.h"

static struct ibv_srq *make(uint32_t wr, uint32_t sge, struct ibv_srq_init_attr *a)
{
	*a = (struct ibv_srq_init_attr){.attr = {.max_wr = wr, .max_sge = sge}};
	return ibv_create_srq(cf.pd, a);
}

void b_srq_sizes(void)
{
	struct ibv_srq_init_attr a;
	struct ibv_srq_attr q;
	struct ibv_srq *srq = make(10, 1, &a);

	say_ptr("ten", srq);
	say(" wr=%u sge=%u limit=%u", a.attr.max_wr, a.attr.max_sge, a.attr.srq_limit);
	if (srq) {
		int ret = ibv_query_srq(srq, &q);

		say_ret("query", ret);
		if (!ret)
			say(" wr=%u sge=%u limit=%u", q.max_wr, q.max_sge, q.srq_limit);
	}
	say_ptr("no_wr", make(0, 1, &a));
	say_ptr("too_many_wr", make((uint32_t)cf.dev.max_srq_wr + 1, 1, &a));
	say_ptr("too_many_sge", make(4, (uint32_t)cf.dev.max_srq_sge + 1, &a));
}

void b_srq_modify(void)
{
	struct ibv_srq_init_attr a;
	struct ibv_srq *srq = make(16, 1, &a);
	struct ibv_srq_attr m = {.max_wr = 64, .srq_limit = 3};

	cf_need(srq != NULL, "create_srq");
	say_ret("resize", ibv_modify_srq(srq, &m, IBV_SRQ_MAX_WR));
	say_ret("limit", ibv_modify_srq(srq, &m, IBV_SRQ_LIMIT));
	if (!ibv_query_srq(srq, &m))
		say(" limit=%u", m.srq_limit);
	m.srq_limit = 100000;
	say_ret("limit_too_high", ibv_modify_srq(srq, &m, IBV_SRQ_LIMIT));
}

void b_srq_post(void)
{
	struct ibv_srq_init_attr a;
	struct ibv_srq *srq = make(4, 1, &a);
	char *buf = aligned_alloc(4096, 4096);
	struct ibv_mr *mr = ibv_reg_mr(cf.pd, buf, 4096, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge s[2] = {{(uintptr_t)buf, 8, mr ? mr->lkey : 0}};
	struct ibv_recv_wr *bad, wr = {.sg_list = s, .num_sge = 1};
	uint32_t n = 0;
	int ret = 0;

	cf_need(srq && mr, "create_srq");
	s[1] = s[0];
	wr.num_sge = (int)a.attr.max_sge + 1;
	say_post("sges", ibv_post_srq_recv(srq, &wr, &bad));
	wr.num_sge = 1;
	while (n < 1000 && !(ret = ibv_post_srq_recv(srq, &wr, &bad)))
		n++;
	say(" takes=max_wr%+d then=%s", (int)(n - a.attr.max_wr), cf_err(ret));
	say_ret("destroy", ibv_destroy_srq(srq));
}

void b_srq_recv(void)
{
	struct pair p = {.srq_wr = 16};
	struct ibv_wc wc;

	pair_connect(&p);
	say_post("post", post_recv(&p.b, 1, 0, 64));
	post_recv(&p.b, 2, 0, 64);
	post_send(&p.a, 3, 0, 8, IBV_SEND_SIGNALED);
	if (next_wc(p.b.rcq, &wc, 1000))
		say(" id=%d %s qp=%d", (int)wc.wr_id, cf_status(wc.status),
		    wc.qp_num == p.b.qp->qp_num);
	say_ret("destroy_in_use", ibv_destroy_srq(p.b.srq));
}

void b_srq_empty(void)
{
	struct pair p = {.srq_wr = 16, .rnr_retry = -1};

	pair_connect(&p);
	post_send(&p.a, 3, 0, 8, IBV_SEND_SIGNALED);
	say_all("send", p.a.scq, 2500);
	say_state("b", p.b.qp);
}

void b_srq_limit(void)
{
	struct pair p = {.srq_wr = 16};
	struct ibv_srq_attr m = {.srq_limit = 2};

	pair_connect(&p);
	for (int i = 0; i < 4; i++)
		post_recv(&p.b, i, 0, 64);
	say_ret("arm", ibv_modify_srq(p.b.srq, &m, IBV_SRQ_LIMIT));
	for (int i = 0; i < 3; i++) {
		post_send(&p.a, i, 0, 8, 0);
		cf_sleep(50);
		say_async("after", p.b.id->verbs, 100);
	}
	if (!ibv_query_srq(p.b.srq, &m))
		say(" limit=%u", m.srq_limit);
}

void b_srq_last_wqe(void)
{
	struct pair p = {.srq_wr = 16};
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};

	pair_connect(&p);
	for (int i = 0; i < 4; i++)
		post_recv(&p.b, i, 0, 64);
	say_ret("err", ibv_modify_qp(p.b.qp, &a, IBV_QP_STATE));
	say_async("async", p.b.id->verbs, 300);
	say_all("recvs", p.b.rcq, 200);
	say_ret("destroy_qp", ibv_destroy_qp(p.b.qp));
	say_ret("destroy_srq", ibv_destroy_srq(p.b.srq));
}

/* ---- datagrams ---- */

struct ud {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char *buf;
	struct ibv_ah *ah;
};

static void open_ud(struct ud *u, struct ibv_context *ctx, uint32_t qkey)
{
	struct ibv_pd *pd = ctx == cf.ctx ? cf.pd : ibv_alloc_pd(ctx);
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_UD};
	struct ibv_qp_attr q = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = qkey};
	struct ibv_ah_attr ah = {.is_global = 1, .port_num = 1};

	u->cq = ibv_create_cq(ctx, 64, NULL, NULL, 0);
	a.send_cq = a.recv_cq = u->cq;
	a.cap = (struct ibv_qp_cap){8, 8, 1, 1, 0};
	cf_need(pd && u->cq, "create_cq");
	u->qp = ibv_create_qp(pd, &a);
	cf_need(u->qp != NULL, "create_qp");
	u->buf = aligned_alloc(4096, 16384);
	memset(u->buf, 0, 16384);
	u->mr = ibv_reg_mr(pd, u->buf, 16384, IBV_ACCESS_LOCAL_WRITE);
	cf_need(!ibv_modify_qp(u->qp, &q,
			       IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_QKEY),
		"init");
	q.qp_state = IBV_QPS_RTR;
	cf_need(!ibv_modify_qp(u->qp, &q, IBV_QP_STATE), "rtr");
	q.qp_state = IBV_QPS_RTS;
	cf_need(!ibv_modify_qp(u->qp, &q, IBV_QP_STATE | IBV_QP_SQ_PSN), "rts");
	/* The GID that is made of the IPv4 address. */
	ah.grh.sgid_index = 1;
	ah.grh.hop_limit = 4;
	ibv_query_gid(ctx, 1, 1, &ah.grh.dgid);
	u->ah = ibv_create_ah(pd, &ah);
	cf_need(u->mr && u->ah, "create_ah");
}

static int ud_recv(struct ud *u, uint64_t id, uint32_t len)
{
	struct ibv_sge s = {(uintptr_t)u->buf, len, u->mr->lkey};
	struct ibv_recv_wr *bad, wr = {.wr_id = id, .sg_list = &s, .num_sge = 1};

	return ibv_post_recv(u->qp, &wr, &bad);
}

static int ud_send(struct ud *u, const struct ud *to, uint32_t qkey, uint32_t len)
{
	struct ibv_sge s = {(uintptr_t)u->buf + 8192, len, u->mr->lkey};
	struct ibv_send_wr *bad, wr = {.wr_id = 1,
				       .sg_list = &s,
				       .num_sge = 1,
				       .opcode = IBV_WR_SEND,
				       .send_flags = IBV_SEND_SIGNALED};

	wr.wr.ud.ah = u->ah;
	wr.wr.ud.remote_qpn = to->qp->qp_num;
	wr.wr.ud.remote_qkey = qkey;
	return ibv_post_send(u->qp, &wr, &bad);
}

void b_ud_send(void)
{
	struct ud a, b;
	struct ibv_wc wc;
	struct ibv_ah_attr attr;

	open_ud(&a, cf.ctx, 7);
	open_ud(&b, cf_peer_context(), 7);
	strcpy(a.buf + 8192, "datagram");
	ud_recv(&b, 5, 200);
	say_post("post", ud_send(&a, &b, 7, 9));
	say_wc("send", a.cq, 1000);
	cf_need(next_wc(b.cq, &wc, 1000), "recv");
	say(" recv: %s op=%s len=%u flags=%#x src=%d got=%s", cf_status(wc.status),
	    cf_opcode(wc.opcode), wc.byte_len, wc.wc_flags, wc.src_qp == a.qp->qp_num, b.buf + 40);
	say(" ah=%s", ibv_init_ah_from_wc(cf.ctx, 1, &wc, (struct ibv_grh *)b.buf, &attr)
			      ? cf_err(errno)
			      : "0");
	say(" ip_version=%#x", (unsigned char)b.buf[20]);
}

void b_ud_qkey(void)
{
	struct ud a, b;

	open_ud(&a, cf.ctx, 7);
	open_ud(&b, cf_peer_context(), 8);
	ud_recv(&b, 5, 200);
	say_post("wrong", ud_send(&a, &b, 7, 9));
	say_wc("send", a.cq, 500);
	say_wc("recv", b.cq, 300);
	say_post("right", ud_send(&a, &b, 8, 9));
	say_wc("recv", b.cq, 500);
}

/* The top bit of the Q_Key means: take the QP's own. */
void b_ud_qkey_own(void)
{
	struct ud a, b;

	open_ud(&a, cf.ctx, 8);
	open_ud(&b, cf_peer_context(), 8);
	ud_recv(&b, 5, 200);
	say_post("post", ud_send(&a, &b, 0x80000000u, 9));
	say_wc("recv", b.cq, 500);
}

void b_ud_no_receive(void)
{
	struct ud a, b;

	open_ud(&a, cf.ctx, 7);
	open_ud(&b, cf_peer_context(), 7);
	say_post("post", ud_send(&a, &b, 7, 9));
	say_wc("send", a.cq, 500);
	cf_sleep(200); /* it has arrived, and was lost */
	ud_recv(&b, 5, 200);
	say_wc("late", b.cq, 300);
}

void b_ud_too_small(void)
{
	struct ud a, b;

	open_ud(&a, cf.ctx, 7);
	open_ud(&b, cf_peer_context(), 7);
	ud_recv(&b, 5, 48); /* one byte short */
	ud_recv(&b, 6, 200);
	ud_send(&a, &b, 7, 9);
	say_wc("send", a.cq, 500);
	say_all("recv", b.cq, 300);
	ud_send(&a, &b, 7, 8);
	say_all("next", b.cq, 300);
	say_state("b", b.qp);
}

void b_ud_mtu(void)
{
	struct ud a, b;

	open_ud(&a, cf.ctx, 7);
	open_ud(&b, cf_peer_context(), 7);
	ud_recv(&b, 5, 8192);
	say_post("mtu", ud_send(&a, &b, 7, 128u << cf.port.active_mtu));
	say_wc("recv", b.cq, 500);
	say(" mtu+1=%s", cf_err(ud_send(&a, &b, 7, (128u << cf.port.active_mtu) + 1)));
	say_all("sends", a.cq, 300);
	say(" max+1=%s", cf_err(ud_send(&a, &b, 7, 4097)));
	say_all("sends", a.cq, 300);
	say_state("a", a.qp);
}

void b_ud_opcode(void)
{
	struct ud a;
	struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_RDMA_WRITE};

	open_ud(&a, cf.ctx, 7);
	wr.wr.ud.ah = a.ah;
	say_post("write", ibv_post_send(a.qp, &wr, &bad));
}
