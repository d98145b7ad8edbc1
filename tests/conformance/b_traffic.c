/* SPDX-License-Identifier: BSD-2-Clause */
/* SEND and RECV: what arrives, what the completions say, and how it fails. */
#include <unistd.h>

#include "behaviours.h"

void b_send_completions(void)
{
	struct pair p = {0};
	struct ibv_wc wc;

	pair_connect(&p);
	strcpy(p.a.buf, "text");
	post_recv(&p.b, 7, 0, 100);
	say_post("post", post_send(&p.a, 8, 0, 5, IBV_SEND_SIGNALED));
	cf_need(next_wc(p.b.rcq, &wc, 3000), "recv");
	say(" recv: id=%d %s op=%s len=%u flags=%#x qp=%d got=%s", (int)wc.wr_id,
	    cf_status(wc.status), cf_opcode(wc.opcode), wc.byte_len, wc.wc_flags,
	    wc.qp_num == p.b.qp->qp_num, p.b.buf);
	cf_need(next_wc(p.a.scq, &wc, 3000), "send");
	say(" send: id=%d %s op=%s qp=%d", (int)wc.wr_id, cf_status(wc.status),
	    cf_opcode(wc.opcode), wc.qp_num == p.a.qp->qp_num);
}

void b_send_both_ways(void)
{
	struct pair p = {0};

	pair_connect(&p);
	post_recv(&p.a, 1, 0, 64);
	post_recv(&p.b, 2, 0, 64);
	post_send(&p.a, 3, 0, 8, IBV_SEND_SIGNALED);
	say_all("b", p.b.rcq, 500);
	post_send(&p.b, 4, 0, 8, IBV_SEND_SIGNALED);
	say_all("a", p.a.rcq, 500);
	say_all("sends", p.a.scq, 100);
	say_all("sends", p.b.scq, 100);
}

void b_send_imm(void)
{
	struct pair p = {0};
	struct ibv_sge s;
	struct ibv_send_wr wr = {.sg_list = &s,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND_WITH_IMM,
				 .send_flags = IBV_SEND_SIGNALED,
				 .imm_data = 0x01020304};
	struct ibv_wc wc;

	pair_connect(&p);
	s = at(&p.a, 0, 8);
	post_recv(&p.b, 1, 0, 64);
	say_post("post", post_wr(&p.a, &wr));
	if (next_wc(p.b.rcq, &wc, 500))
		say(" %s op=%s flags=%#x imm=%#x", cf_status(wc.status), cf_opcode(wc.opcode),
		    wc.wc_flags, wc.imm_data);
}

void b_send_empty(void)
{
	struct pair p = {0};
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_sge s;
	struct ibv_wc wc;

	pair_connect(&p);
	post_recv(&p.b, 1, 0, 64);
	post_recv(&p.b, 2, 0, 64);
	say_post("no_sge", post_wr(&p.a, &wr));
	if (next_wc(p.b.rcq, &wc, 1000))
		say(" %s len=%u", cf_status(wc.status), wc.byte_len);
	s = at(&p.a, 0, 0);
	wr.sg_list = &s;
	wr.num_sge = 1;
	say_post("zero_sge", post_wr(&p.a, &wr));
	if (next_wc(p.b.rcq, &wc, 1000))
		say(" %s len=%u", cf_status(wc.status), wc.byte_len);
}

void b_send_gather(void)
{
	struct pair p = {0};

	pair_connect(&p);
	strcpy(p.a.buf, "0123456789");
	struct ibv_sge from[2] = {at(&p.a, 5, 3), at(&p.a, 1, 4)};
	struct ibv_sge to[2] = {at(&p.b, 0, 2), at(&p.b, 2, 50)};
	struct ibv_send_wr wr = {.sg_list = from, .num_sge = 2, .opcode = IBV_WR_SEND};
	struct ibv_recv_wr *bad, rwr = {.sg_list = to, .num_sge = 2};

	say_post("recv", ibv_post_recv(p.b.qp, &rwr, &bad));
	say_post("send", post_wr(&p.a, &wr));
	say_wc("wc", p.b.rcq, 1000);
	say(" got=%s", p.b.buf);
}

void b_send_large(void)
{
	struct pair p = {0};
	struct ibv_wc wc;

	pair_connect(&p);
	memset(p.a.buf, 'x', CF_BUF);
	post_recv(&p.b, 1, 0, CF_BUF);
	say_post("post", post_send(&p.a, 2, 0, CF_BUF, IBV_SEND_SIGNALED));
	if (next_wc(p.b.rcq, &wc, 5000))
		say(" %s len=%u same=%d", cf_status(wc.status), wc.byte_len,
		    !memcmp(p.a.buf, p.b.buf, CF_BUF));
	say_wc("sent", p.a.scq, 3000);
}

void b_send_order(void)
{
	struct pair p = {0};

	pair_connect(&p);
	for (int i = 0; i < 8; i++)
		post_recv(&p.b, 10 + i, 0, 64);
	for (int i = 0; i < 8; i++)
		post_send(&p.a, i, 0, 8, i % 3 == 2 ? IBV_SEND_SIGNALED : 0);
	say_all("recvs", p.b.rcq, 500);
	say_all("sends", p.a.scq, 200);
}

void b_send_sig_all(void)
{
	struct pair p = {.sig_all = true};

	pair_connect(&p);
	post_recv(&p.b, 1, 0, 64);
	post_send(&p.a, 2, 0, 8, 0);
	say_all("sends", p.a.scq, 500);
}

/* ---- local mistakes ---- */

void b_send_bad_lkey(void)
{
	struct pair p = {0};
	struct ibv_sge s;
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND};

	pair_connect(&p);
	post_recv(&p.b, 2, 0, 64);
	s = at(&p.a, 0, 8);
	s.lkey ^= 0x00ffff00;
	say_post("post", post_wr(&p.a, &wr));
	say_all("unsignaled", p.a.scq, 500);
	say_state("a", p.a.qp);
	say_state("b", p.b.qp);
}

void b_send_out_of_bounds(void)
{
	struct pair p = {0};

	pair_connect(&p);
	post_recv(&p.b, 2, 0, 64);
	say_post("post", post_send(&p.a, 1, CF_BUF - 4, 8, IBV_SEND_SIGNALED));
	say_all("send", p.a.scq, 500);
	say_state("a", p.a.qp);
}

void b_send_foreign_pd(void)
{
	struct pair p = {0};
	struct ibv_sge s;
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND};

	pair_connect(&p);
	post_recv(&p.b, 2, 0, 64);
	s = at(&p.b, 0, 8);
	say_post("post", post_wr(&p.a, &wr));
	say_all("send", p.a.scq, 500);
}

void b_recv_bad_lkey(void)
{
	struct pair p = {0};
	struct ibv_sge s;
	struct ibv_recv_wr *bad, wr = {.wr_id = 5, .sg_list = &s, .num_sge = 1};

	pair_connect(&p);
	s = at(&p.b, 0, 64);
	s.lkey ^= 0x00ffff00;
	say_post("post", ibv_post_recv(p.b.qp, &wr, &bad));
	post_recv(&p.b, 6, 0, 64);
	post_send(&p.a, 1, 0, 8, IBV_SEND_SIGNALED);
	say_all("recv", p.b.rcq, 700);
	say_all("send", p.a.scq, 700);
	say_state("a", p.a.qp);
	say_state("b", p.b.qp);
}

void b_recv_no_local_write(void)
{
	struct pair p = {.access = IBV_ACCESS_REMOTE_READ};

	pair_connect(&p);
	post_recv(&p.b, 5, 0, 64);
	post_send(&p.a, 1, 0, 8, IBV_SEND_SIGNALED);
	say_all("recv", p.b.rcq, 700);
	say_all("send", p.a.scq, 700);
}

void b_recv_too_small(void)
{
	struct pair p = {0};

	pair_connect(&p);
	post_recv(&p.a, 3, 0, 64);
	post_recv(&p.b, 5, 0, 7);
	post_recv(&p.b, 6, 0, 64);
	post_send(&p.a, 1, 0, 8, IBV_SEND_SIGNALED);
	say_all("recv", p.b.rcq, 700);
	say_all("send", p.a.scq, 700);
	say_all("a_recv", p.a.rcq, 200);
	say_state("a", p.a.qp);
	say_state("b", p.b.qp);
	say_async("async", p.b.id->verbs, 100);
}

/* ---- no receive ---- */

void b_rnr_once(void)
{
	struct pair p = {.rnr_retry = -1};

	pair_connect(&p);
	post_send(&p.a, 1, 0, 8, IBV_SEND_SIGNALED);
	say_all("send", p.a.scq, 2500);
	say_state("a", p.a.qp);
	say_state("b", p.b.qp);
}

void b_rnr_then_posted(void)
{
	struct pair p = {0};

	pair_connect(&p);
	post_send(&p.a, 1, 0, 8, IBV_SEND_SIGNALED);
	cf_sleep(50);
	say_post("recv", post_recv(&p.b, 2, 0, 64));
	say_all("send", p.a.scq, 2500);
	say_all("recv", p.b.rcq, 500);
}

/* ---- the error state ---- */

static void to_err(struct end *e)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};

	say_ret("err", ibv_modify_qp(e->qp, &a, IBV_QP_STATE));
}

void b_flush(void)
{
	struct pair p = {0};

	pair_connect(&p);
	for (int i = 0; i < 3; i++)
		post_recv(&p.a, i, 0, 64);
	to_err(&p.a);
	say_all("recvs", p.a.rcq, 500);
}

void b_flush_sends(void)
{
	struct pair p = {0};

	pair_connect(&p);
	if (!cf.iwarp)
		for (int i = 0; i < 3; i++)
			post_send(&p.a, i, 0, 8, 0);
	to_err(&p.a);
	say_all("sends", p.a.scq, 500);
}

void b_post_after_err(void)
{
	struct pair p = {0};

	pair_connect(&p);
	to_err(&p.a);
	say_post("send", post_send(&p.a, 1, 0, 8, IBV_SEND_SIGNALED));
	say_post("recv", post_recv(&p.a, 2, 0, 64));
	say_all("sends", p.a.scq, 500);
	say_all("recvs", p.a.rcq, 300);
}

void b_flush_opcode(void)
{
	struct pair p = {0};
	struct ibv_wc wc;

	pair_connect(&p);
	post_recv(&p.a, 1, 0, 64);
	to_err(&p.a);
	if (next_wc(p.a.rcq, &wc, 500))
		say(" %s is_recv=%d qp=%d", cf_status(wc.status), (wc.opcode & IBV_WC_RECV) != 0,
		    wc.qp_num == p.a.qp->qp_num);
}

void b_peer_in_err(void)
{
	struct pair p = {0};

	pair_connect(&p);
	post_recv(&p.b, 2, 0, 64);
	to_err(&p.b);
	cf_sleep(200); /* on iWARP the connection ends with it */
	post_send(&p.a, 1, 0, 8, IBV_SEND_SIGNALED);
	say_all("send", p.a.scq, 6000);
	say_state("a", p.a.qp);
}

void b_reset(void)
{
	struct pair p = {0};
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RESET};

	pair_connect(&p);
	post_recv(&p.a, 1, 0, 64);
	say_ret("reset", ibv_modify_qp(p.a.qp, &a, IBV_QP_STATE));
	say_all("recvs", p.a.rcq, 300);
	say_state("state", p.a.qp);
}

/* Completions that nobody has polled when their QP is destroyed. */
void b_destroy_unpolled(void)
{
	struct pair p = {0};

	pair_connect(&p);
	post_recv(&p.b, 1, 0, 64);
	post_send(&p.a, 2, 0, 8, IBV_SEND_SIGNALED);
	cf_sleep(200);
	say_ret("destroy", ibv_destroy_qp(p.b.qp));
	say_all("recv", p.b.rcq, 200);
}

void b_reset_unpolled(void)
{
	struct pair p = {0};
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RESET};

	pair_connect(&p);
	post_recv(&p.b, 1, 0, 64);
	post_send(&p.a, 2, 0, 8, IBV_SEND_SIGNALED);
	cf_sleep(200);
	say_ret("reset", ibv_modify_qp(p.b.qp, &a, IBV_QP_STATE));
	say_all("recv", p.b.rcq, 200);
}

/* ---- events ---- */

void b_event_armed(void)
{
	struct pair p = {0};
	struct ibv_cq *cq;
	void *ctx;

	pair_connect(&p);
	for (int i = 0; i < 4; i++)
		post_recv(&p.b, i, 0, 64);
	post_send(&p.a, 1, 0, 8, 0);
	say(" unarmed=%d", readable(p.b.ch->fd, 200));
	/* What is already there makes no event. */
	ibv_req_notify_cq(p.b.rcq, 0);
	say(" late=%d", readable(p.b.ch->fd, 200));
	post_send(&p.a, 2, 0, 8, 0);
	say(" armed=%d", readable(p.b.ch->fd, 1000));
	post_send(&p.a, 3, 0, 8, 0);
	cf_sleep(100);
	say_ret("get", ibv_get_cq_event(p.b.ch, &cq, &ctx));
	say(" cq=%d again=%d", cq == p.b.rcq, readable(p.b.ch->fd, 100));
	ibv_ack_cq_events(cq, 1);
}

void b_event_solicited(void)
{
	struct pair p = {0};

	pair_connect(&p);
	for (int i = 0; i < 4; i++)
		post_recv(&p.b, i, 0, 64);
	ibv_req_notify_cq(p.b.rcq, 1);
	post_send(&p.a, 1, 0, 8, 0);
	say(" plain=%d", readable(p.b.ch->fd, 300));
	post_send(&p.a, 2, 0, 8, IBV_SEND_SOLICITED);
	say(" solicited=%d", readable(p.b.ch->fd, 1000));
}

void b_event_error_solicited(void)
{
	struct pair p = {0};

	pair_connect(&p);
	post_recv(&p.b, 1, 0, 64);
	ibv_req_notify_cq(p.b.rcq, 1);
	to_err(&p.b);
	say(" flush=%d", readable(p.b.ch->fd, 500));
}

void b_cq_overrun(void)
{
	struct pair p = {.cqe = 2, .depth = 64};
	int room, got = 0;
	struct ibv_wc wc;

	pair_connect(&p);
	room = p.b.rcq->cqe;
	if (room > 40) {
		say(" room=%d", room);
		return;
	}
	for (int i = 0; i < room + 3; i++)
		post_recv(&p.b, i, 0, 64);
	for (int i = 0; i < room + 3; i++)
		post_send(&p.a, i, 0, 8, 0);
	cf_sleep(300);
	say_async("async", p.b.id->verbs, 100);
	while (next_wc(p.b.rcq, &wc, 100))
		got++;
	say(" got-room=%d", got - room);
}

void b_cq_resize_small(void)
{
	struct pair p = {.depth = 16};

	pair_connect(&p);
	for (int i = 0; i < 8; i++)
		post_recv(&p.b, i, 0, 64);
	for (int i = 0; i < 8; i++)
		post_send(&p.a, i, 0, 8, 0);
	cf_sleep(200);
	say_ret("to4", ibv_resize_cq(p.b.rcq, 4));
	say_ret("to8", ibv_resize_cq(p.b.rcq, 8));
	say_all("recvs", p.b.rcq, 200);
}
