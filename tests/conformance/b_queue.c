/* SPDX-License-Identifier: BSD-2-Clause */
/* Queue pairs: what can be made, the states, and what a post refuses. */
#include "behaviours.h"

static struct ibv_qp_init_attr init_attr(void)
{
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RC};

	a.send_cq = a.recv_cq = ibv_create_cq(cf.ctx, 64, NULL, NULL, 0);
	a.cap = (struct ibv_qp_cap){4, 4, 1, 1, 0};
	cf_need(a.send_cq != NULL, "create_cq");
	return a;
}

static struct ibv_qp *new_qp(void)
{
	struct ibv_qp_init_attr a = init_attr();
	struct ibv_qp *qp = ibv_create_qp(cf.pd, &a);

	cf_need(qp != NULL, "create_qp");
	return qp;
}

void b_qp_types(void)
{
	static const struct {
		const char *name;
		enum ibv_qp_type type;
	} t[] = {{"rc", IBV_QPT_RC},
		 {"uc", IBV_QPT_UC},
		 {"ud", IBV_QPT_UD},
		 {"raw", IBV_QPT_RAW_PACKET}};

	for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
		struct ibv_qp_init_attr a = init_attr();

		a.qp_type = t[i].type;
		say_ptr(t[i].name, ibv_create_qp(cf.pd, &a));
	}
}

void b_qp_caps(void)
{
	struct ibv_qp_init_attr a = init_attr();

	a.cap = (struct ibv_qp_cap){10, 20, 3, 2, 10};
	say_ptr("create", ibv_create_qp(cf.pd, &a));
	say(" wr=%u/%u sge=%u/%u inline=%u", a.cap.max_send_wr, a.cap.max_recv_wr,
	    a.cap.max_send_sge, a.cap.max_recv_sge, a.cap.max_inline_data);
}

void b_qp_caps_zero(void)
{
	struct ibv_qp_init_attr a = init_attr();

	a.cap = (struct ibv_qp_cap){1, 1, 0, 0, 0};
	say_ptr("no_sge", ibv_create_qp(cf.pd, &a));
	say(" sge=%u/%u inline=%u", a.cap.max_send_sge, a.cap.max_recv_sge, a.cap.max_inline_data);
	a = init_attr();
	a.cap.max_send_wr = 0;
	say_ptr("no_send_wr", ibv_create_qp(cf.pd, &a));
	a = init_attr();
	a.cap.max_recv_wr = 0;
	say_ptr("no_recv_wr", ibv_create_qp(cf.pd, &a));
}

void b_qp_limits(void)
{
	struct ibv_qp_init_attr a = init_attr();

	a.cap.max_send_sge = (uint32_t)cf.dev.max_sge + 1;
	say_ptr("send_sge", ibv_create_qp(cf.pd, &a));
	a = init_attr();
	a.cap.max_recv_sge = (uint32_t)cf.dev.max_sge + 1;
	say_ptr("recv_sge", ibv_create_qp(cf.pd, &a));
	a = init_attr();
	a.cap.max_send_wr = (uint32_t)cf.dev.max_qp_wr + 1;
	say_ptr("send_wr", ibv_create_qp(cf.pd, &a));
}

/* The largest inline size that a QP can be made with, and what it then says. */
void b_qp_inline(void)
{
	static const uint32_t sizes[] = {64, 80, 81, 400, 401, 512, 513, 1024};

	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		struct ibv_qp_init_attr a = init_attr();
		struct ibv_qp *qp;

		a.cap.max_inline_data = sizes[i];
		qp = ibv_create_qp(cf.pd, &a);
		if (qp)
			say(" %u=%u", sizes[i], a.cap.max_inline_data);
		else
			say(" %u=%s", sizes[i], cf_err(errno));
	}
}

void b_qp_fresh(void)
{
	struct ibv_qp *qp = new_qp(), *other = new_qp();

	say_state("state", qp);
	say(" member=%d distinct=%d", qp->state, qp->qp_num != other->qp_num);
	say_ret("pd", ibv_dealloc_pd(cf.pd));
	say_ret("cq", ibv_destroy_cq(qp->send_cq));
	say_ret("destroy", ibv_destroy_qp(qp));
}

static void try(const char *what, struct ibv_qp *qp, struct ibv_qp_attr a, int mask)
{
	say_ret(what, ibv_modify_qp(qp, &a, mask));
}

#define TO_INIT (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define TO_RTR                                                                                     \
	(IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |            \
	 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define TO_RTS                                                                                     \
	(IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |     \
	 IBV_QP_MAX_QP_RD_ATOMIC)

void b_modify_from_reset(void)
{
	struct ibv_qp *qp = new_qp();
	struct ibv_qp_attr a = {.port_num = 1};

	a.qp_state = IBV_QPS_RTS;
	try("rts", qp, a, IBV_QP_STATE);
	a.qp_state = IBV_QPS_RTR;
	try("rtr", qp, a, IBV_QP_STATE);
	a.qp_state = IBV_QPS_INIT;
	try("init_bare", qp, a, IBV_QP_STATE);
	try("init_extra", qp, a, TO_INIT | IBV_QP_TIMEOUT);
	try("init", qp, a, TO_INIT);
	say_state("state", qp);
}

void b_modify_values(void)
{
	struct ibv_qp *qp = new_qp();
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 2};

	try("port2", qp, a, TO_INIT);
	a.port_num = 0;
	try("port0", qp, a, TO_INIT);
	a.port_num = 1;
	a.pkey_index = 70;
	try("pkey70", qp, a, TO_INIT);
	a.pkey_index = 0;
	a.cur_qp_state = IBV_QPS_RTS;
	try("wrong_cur", qp, a, TO_INIT | IBV_QP_CUR_STATE);
}

static struct ibv_qp_attr rtr_attr(const struct ibv_qp *qp)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
				.path_mtu = IBV_MTU_1024,
				.dest_qp_num = qp->qp_num,
				.min_rnr_timer = 12};

	a.ah_attr.is_global = 1;
	a.ah_attr.port_num = 1;
	ibv_query_gid(cf.ctx, 1, 0, &a.ah_attr.grh.dgid);
	return a;
}

static struct ibv_qp *init_qp(void)
{
	struct ibv_qp *qp = new_qp();
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1};

	ibv_modify_qp(qp, &a, TO_INIT);
	return qp;
}

/* One attempt each, on a fresh queue pair. */
static void rtr(const char *what, struct ibv_qp *qp, struct ibv_qp_attr a, int mask)
{
	try(what, qp, a, mask);
	ibv_destroy_qp(qp);
}

void b_modify_to_rtr(void)
{
	struct ibv_qp *qp = init_qp();
	struct ibv_qp_attr a = rtr_attr(qp);

	rtr("bare", init_qp(), a, IBV_QP_STATE);
	a.ah_attr.is_global = 0;
	rtr("no_grh", init_qp(), a, TO_RTR);
	a = rtr_attr(qp);
	a.path_mtu = 9;
	rtr("mtu9", init_qp(), a, TO_RTR);
	a = rtr_attr(qp);
	a.max_dest_rd_atomic = 255;
	rtr("rd255", init_qp(), a, TO_RTR);
	a = rtr_attr(qp);
	a.min_rnr_timer = 32;
	rtr("rnr_timer32", init_qp(), a, TO_RTR);
	a = rtr_attr(qp);
	try("full", qp, a, TO_RTR);
	say_state("state", qp);
}

static struct ibv_qp *rtr_qp(void)
{
	struct ibv_qp *qp = init_qp();
	struct ibv_qp_attr a = rtr_attr(qp);

	ibv_modify_qp(qp, &a, TO_RTR);
	return qp;
}

void b_modify_to_rts(void)
{
	struct ibv_qp *qp = rtr_qp();
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTS, .timeout = 14, .rnr_retry = 7};

	rtr("bare", rtr_qp(), a, IBV_QP_STATE);
	a.rnr_retry = 8;
	rtr("rnr8", rtr_qp(), a, TO_RTS);
	a.rnr_retry = 7;
	a.retry_cnt = 8;
	rtr("retry8", rtr_qp(), a, TO_RTS);
	a.retry_cnt = 7;
	a.timeout = 32;
	rtr("timeout32", rtr_qp(), a, TO_RTS);
	a.timeout = 14;
	a.max_rd_atomic = 255;
	rtr("rd255", rtr_qp(), a, TO_RTS);
	a.max_rd_atomic = 1;
	try("full", qp, a, TO_RTS);
	a.qp_state = IBV_QPS_INIT;
	try("back_to_init", qp, a, TO_INIT);
	a.qp_state = IBV_QPS_SQD;
	try("sqd", qp, a, IBV_QP_STATE);
	say_state("state", qp);
}

void b_modify_err(void)
{
	struct ibv_qp *qp = init_qp();
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR, .port_num = 1};

	try("err", qp, a, IBV_QP_STATE);
	a.qp_state = IBV_QPS_INIT;
	try("init", qp, a, TO_INIT);
	a.qp_state = IBV_QPS_RESET;
	try("reset", qp, a, IBV_QP_STATE);
	a.qp_state = IBV_QPS_INIT;
	try("init_again", qp, a, TO_INIT);
	say_state("state", qp);
}

static int send1(struct ibv_qp *qp)
{
	struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_SEND};

	return ibv_post_send(qp, &wr, &bad);
}

static int recv1(struct ibv_qp *qp)
{
	struct ibv_sge s = {0};
	struct ibv_recv_wr *bad, wr = {.sg_list = &s, .num_sge = 1};

	return ibv_post_recv(qp, &wr, &bad);
}

void b_post_in_reset(void)
{
	struct ibv_qp *qp = new_qp();

	say_post("send", send1(qp));
	say_post("recv", recv1(qp));
}

void b_post_in_init(void)
{
	struct ibv_qp *qp = init_qp();

	say_state("state", qp);
	say_post("send", send1(qp));
	say_post("recv", recv1(qp));
}

void b_post_sges(void)
{
	struct pair p = {0};

	pair_connect(&p);
	struct ibv_sge s[3] = {at(&p.a, 0, 4), at(&p.a, 4, 4), at(&p.a, 8, 4)};
	struct ibv_send_wr wr = {.sg_list = s, .num_sge = 3, .opcode = IBV_WR_SEND};
	struct ibv_recv_wr *bad, rwr = {.sg_list = s, .num_sge = 3};

	say_post("send3of2", post_wr(&p.a, &wr));
	say_post("recv3of2", ibv_post_recv(p.a.qp, &rwr, &bad));
	say(" bad_wr=%d", bad == &rwr);
	wr.num_sge = -1;
	say_post("send_negative", post_wr(&p.a, &wr));
	rwr.num_sge = 0;
	say_post("recv0", ibv_post_recv(p.a.qp, &rwr, &bad));
}

void b_post_opcode(void)
{
	struct pair p = {0};
	struct ibv_send_wr wr = {.opcode = (enum ibv_wr_opcode)77};

	pair_connect(&p);
	say_post("opcode77", post_wr(&p.a, &wr));
	say_all("wc", p.a.scq, 300);
	wr.opcode = IBV_WR_TSO;
	say_post("tso", post_wr(&p.a, &wr));
}

void b_post_inline(void)
{
	struct pair p = {.inl = 64};
	char text[200] = "in line";
	struct ibv_sge s = {(uintptr_t)text, 8, 12345};
	struct ibv_send_wr wr = {.sg_list = &s,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED};

	pair_connect(&p);
	post_recv(&p.b, 1, 0, 256);
	say_post("fits", post_wr(&p.a, &wr));
	strcpy(text, "changed");
	say_wc("recv", p.b.rcq, 2000);
	say(" got=%s", p.b.buf);
	s.length = 200;
	say_post("too_long", post_wr(&p.a, &wr));
}

void b_post_inline_sges(void)
{
	struct pair p = {.inl = 64};
	char one[] = "abc", two[] = "def";
	struct ibv_sge s[2] = {{(uintptr_t)one, 3, 0}, {(uintptr_t)two, 4, 0}};
	struct ibv_send_wr wr = {.sg_list = s,
				 .num_sge = 2,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED};

	pair_connect(&p);
	post_recv(&p.b, 1, 0, 256);
	say_post("post", post_wr(&p.a, &wr));
	say_wc("recv", p.b.rcq, 2000);
	say(" got=%s", p.b.buf);
}

/* How many sends and receives a queue of depth 4 takes while none can complete. */
void b_post_depth(void)
{
	struct pair p = {.depth = 4};
	int sends = 0, recvs = 0, err = 0, rerr = 0;

	pair_connect(&p);
	if (!cf.iwarp) /* there, a send without a receive ends the connection */
		while (sends < 100 && !(err = post_send(&p.a, 0, 0, 8, 0)))
			sends++;
	while (recvs < 100 && !(rerr = post_recv(&p.a, 0, 0, 8)))
		recvs++;
	say(" sends>=4=%d err=%s recvs>=4=%d err=%s", sends >= 4, cf_err(err), recvs >= 4,
	    cf_err(rerr));
}

/* Whether a queue four deep takes many sends one after the other, each of which has arrived before the
 * next; its acknowledgement may be a little later. */
static void say_wedges(unsigned int flags)
{
	struct pair p = {.depth = 4};
	int ok = 0;

	pair_connect(&p);
	for (int i = 0; i < 24; i++) {
		struct ibv_wc wc;
		int tries = 20, err = post_recv(&p.b, 1, 0, 64);

		while (!err && post_send(&p.a, 0, 0, 8, flags) && --tries)
			cf_sleep(10);
		if (err || !tries)
			break;
		ok += next_wc(p.b.rcq, &wc, 1000);
	}
	say(" wedges=%d", ok < 24);
}

/* Does the slot of an unsignaled send come back without a completion being polled? */
void b_post_unsignaled_slots(void)
{
	say_wedges(0);
}

/* Does the slot of a signaled send come back before its completion is polled? */
void b_post_unpolled_slots(void)
{
	say_wedges(IBV_SEND_SIGNALED);
}

void b_post_chain(void)
{
	struct pair p = {0};
	struct ibv_send_wr wr[3] = {0}, *bad = NULL;
	struct ibv_sge s[64];
	int ret;

	pair_connect(&p);
	for (int i = 0; i < 64; i++)
		s[i] = at(&p.a, 0, 4);
	for (int i = 0; i < 3; i++) {
		post_recv(&p.b, i, 0, 64);
		wr[i] = (struct ibv_send_wr){.wr_id = i,
					     .next = i < 2 ? &wr[i + 1] : NULL,
					     .sg_list = s,
					     .num_sge = i == 1 ? cf.dev.max_sge + 1 : 1,
					     .opcode = IBV_WR_SEND,
					     .send_flags = IBV_SEND_SIGNALED};
	}
	ret = ibv_post_send(p.a.qp, wr, &bad);
	say_post("ret", ret);
	say(" bad=%d", bad ? (int)(bad - wr) : -1);
	say_all("sent", p.a.scq, 300);
}

void b_qp_ex(void)
{
	struct ibv_qp_init_attr plain = init_attr();
	struct ibv_qp_init_attr_ex a = {.send_cq = plain.send_cq,
					.recv_cq = plain.recv_cq,
					.cap = plain.cap,
					.qp_type = IBV_QPT_RC,
					.comp_mask = IBV_QP_INIT_ATTR_PD |
						     IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
					.pd = cf.pd,
					.send_ops_flags = IBV_QP_EX_WITH_SEND};
	struct ibv_qp *qp = ibv_create_qp_ex(cf.ctx, &a);

	say_ptr("send_ops", qp);
	if (qp)
		say(" to_ex=%d", ibv_qp_to_qp_ex(qp) != NULL);
	a.send_ops_flags = IBV_QP_EX_WITH_TSO;
	say_ptr("tso_ops", ibv_create_qp_ex(cf.ctx, &a));
}
