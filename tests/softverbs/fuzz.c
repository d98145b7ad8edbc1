/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Random sequences of verbs calls on live objects: nothing may crash, hang or leak, whatever the
 *order, the states and the arguments, as long as the objects exist. After each sequence everything
 *is destroyed, and nothing may be alive.
 *
 *	fuzz [--seed S] [--steps N]
 *
 * The sequence follows from the seed. Each round of a thousand steps takes another persona.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sgpool/softverbs.h>

#define MAX   12
#define ARENA 65536
#define ROUND 1000

static const char *const personas[] = {"soft", "rxe", "siw", "mlx4", "mlx5", "efa", "hns", "irdma"};

static uint64_t state;
static char arena[ARENA];
static char device[32];

static struct ibv_context *ctx;
static struct ibv_pd *pd[MAX];
static struct ibv_mr *mr[MAX];
static struct ibv_mw *mw[MAX];
static struct ibv_ah *ah[MAX];
static struct ibv_comp_channel *ch[MAX];
static struct ibv_cq *cq[MAX];
static struct ibv_srq *srq[MAX];
static struct ibv_qp *qp[MAX];
static struct rdma_event_channel *ec;
static struct rdma_cm_id *id[MAX];

static uint32_t rnd(uint32_t n)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 33) % n;
}

#define PICK(table) table[rnd(MAX)]
/* A free place in the table, or NULL; a taken one, or NULL. */
#define FREE(table)  free_place((void **)(table))
#define TAKEN(table) taken_place((void **)(table))

static void **free_place(void **table)
{
	uint32_t i = rnd(MAX);

	return table[i] ? NULL : &table[i];
}

static void **taken_place(void **table)
{
	uint32_t i = rnd(MAX);

	return table[i] ? &table[i] : NULL;
}

static void fail(const char *what)
{
	fprintf(stderr, "fuzz: %s\n", what);
	exit(1);
}

/* ---- objects ---- */

static void make(void)
{
	void **at;

	switch (rnd(8)) {
	case 0:
		if ((at = FREE(pd)))
			*at = ibv_alloc_pd(ctx);
		break;
	case 1:
		if ((at = FREE(mr)) && TAKEN(pd)) {
			struct ibv_pd *p = PICK(pd);
			uint32_t off = rnd(ARENA - 1);

			*at = p ? ibv_reg_mr(p, arena + off, 1 + rnd(ARENA - off - 1), (int)rnd(32))
				: NULL;
		}
		break;
	case 2:
		if ((at = FREE(ch)))
			*at = ibv_create_comp_channel(ctx);
		break;
	case 3:
		if ((at = FREE(cq)))
			*at = ibv_create_cq(ctx, (int)rnd(40) - 1, NULL, PICK(ch), 0);
		break;
	case 4:
		if ((at = FREE(srq))) {
			struct ibv_srq_init_attr a = {.attr = {rnd(20), rnd(4), rnd(8)}};
			struct ibv_pd *p = PICK(pd);

			*at = p ? ibv_create_srq(p, &a) : NULL;
		}
		break;
	case 5:
		if ((at = FREE(mw))) {
			struct ibv_pd *p = PICK(pd);

			*at = p ? ibv_alloc_mw(p, rnd(2) ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2) : NULL;
		}
		break;
	case 6:
		if ((at = FREE(ah))) {
			struct ibv_ah_attr a = {.is_global = rnd(8) != 0, .port_num = 1};
			struct ibv_pd *p = PICK(pd);

			ibv_query_gid(ctx, 1, 0, &a.grh.dgid);
			if (!rnd(4))
				a.grh.dgid.raw[0] = 0xff;
			*at = p ? ibv_create_ah(p, &a) : NULL;
		}
		break;
	default:
		if ((at = FREE(qp))) {
			struct ibv_qp_init_attr a = {
				.qp_type = rnd(4) ? IBV_QPT_RC : IBV_QPT_UD,
				.send_cq = PICK(cq),
				.recv_cq = PICK(cq),
				.srq = rnd(3) ? NULL : PICK(srq),
				.cap = {rnd(20), rnd(20), rnd(4), rnd(4), rnd(64)},
				.sq_sig_all = (int)rnd(2),
			};
			struct ibv_pd *p = PICK(pd);

			*at = p && a.send_cq && a.recv_cq ? ibv_create_qp(p, &a) : NULL;
		}
	}
}

#define DESTROY(table, call)                                                                       \
	do {                                                                                       \
		void **at = TAKEN(table);                                                          \
		if (at && !call(*at))                                                              \
			*at = NULL;                                                                \
	} while (0)

static void destroy(void)
{
	switch (rnd(9)) {
	case 0:
		DESTROY(pd, ibv_dealloc_pd);
		break;
	case 1:
		DESTROY(mr, ibv_dereg_mr);
		break;
	case 2:
		DESTROY(ch, ibv_destroy_comp_channel);
		break;
	case 3:
		DESTROY(cq, ibv_destroy_cq);
		break;
	case 4:
		DESTROY(srq, ibv_destroy_srq);
		break;
	case 5:
		DESTROY(mw, ibv_dealloc_mw);
		break;
	case 6:
		DESTROY(ah, ibv_destroy_ah);
		break;
	default:
		DESTROY(qp, ibv_destroy_qp);
	}
}

/* ---- queues ---- */

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
static void bring_up(struct ibv_qp *q, const struct ibv_qp *to)
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

static void queue_step(void)
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

/* ---- events: fetched only if there are some, and acknowledged at once ---- */

static bool readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

static void events(void)
{
	struct ibv_comp_channel *c = PICK(ch);
	struct ibv_async_event ev;
	struct rdma_cm_event *e;
	struct ibv_cq *from;
	void *arg;

	if (c && readable(c->fd) && !ibv_get_cq_event(c, &from, &arg))
		ibv_ack_cq_events(from, 1);
	if (readable(ctx->async_fd) && !ibv_get_async_event(ctx, &ev))
		ibv_ack_async_event(&ev);
	if (!readable(ec->fd) || rdma_get_cm_event(ec, &e))
		return;
	if (e->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
		void **at = FREE(id);

		if (at) {
			*at = e->id;
		} else {
			struct rdma_cm_id *extra = e->id;

			rdma_ack_cm_event(e);
			rdma_destroy_id(extra);
			return;
		}
	}
	rdma_ack_cm_event(e);
}

static void cm_step(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_port = htons((uint16_t)(7000 + rnd(4)))};
	struct rdma_conn_param p = {.initiator_depth = 1, .responder_resources = 1};
	struct ibv_qp_init_attr qa = {.qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};
	struct rdma_cm_id *i = PICK(id);
	void **at;

	inet_pton(AF_INET, rnd(3) ? "127.0.0.1" : "0.0.0.0", &a.sin_addr);
	switch (rnd(11)) {
	case 0:
		if ((at = FREE(id)))
			rdma_create_id(ec, (struct rdma_cm_id **)at, NULL,
				       rnd(5) ? RDMA_PS_TCP : RDMA_PS_UDP);
		break;
	case 1:
		if (i)
			rdma_bind_addr(i, (struct sockaddr *)&a);
		break;
	case 2:
		if (i)
			rdma_listen(i, (int)rnd(3));
		break;
	case 3:
		if (i)
			rdma_resolve_addr(i, NULL, (struct sockaddr *)&a, 1);
		break;
	case 4:
		if (i && i->verbs)
			rdma_resolve_route(i, 1);
		break;
	case 5:
		if (i && i->verbs && !i->qp) {
			qa.qp_type = i->qp_type;
			rdma_create_qp(i, NULL, &qa);
		}
		break;
	case 6:
		if (i && i->verbs)
			rdma_connect(i, &p);
		break;
	case 7:
		if (i && i->verbs)
			rdma_accept(i, &p);
		break;
	case 8:
		if (i)
			rdma_reject(i, "no", 3);
		break;
	case 9:
		if (i && i->verbs)
			rdma_disconnect(i);
		break;
	default:
		if ((at = TAKEN(id))) {
			struct rdma_cm_id *gone = *at;

			if (gone->qp)
				rdma_destroy_qp(gone);
			if (!rdma_destroy_id(gone))
				*at = NULL;
		}
	}
}

/* ---- rounds ---- */

static void step(void)
{
	switch (rnd(30)) {
	case 0:
	case 1:
	case 6:
		make();
		break;
	case 2:
		destroy();
		break;
	case 3:
		events();
		break;
	case 4:
		cm_step();
		break;
	case 5:
		sv_clock_advance(rnd(100000000));
		break;
	default:
		queue_step();
	}
}

#define DESTROY_ALL(table, call)                                                                   \
	for (int i = 0; i < MAX; i++)                                                              \
		if (table[i]) {                                                                    \
			if (call(table[i]))                                                        \
				fail(#call " failed at the end");                                  \
			table[i] = NULL;                                                           \
		}

static void open_all(uint64_t round)
{
	struct ibv_device **list;

	snprintf(device, sizeof device, "dev%llu", (unsigned long long)round);
	if (sv_device_add(device, personas[rnd(sizeof personas / sizeof *personas)], 1))
		fail("device_add");
	list = ibv_get_device_list(NULL);
	ctx = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	ec = rdma_create_event_channel();
	if (!ctx || !ec)
		fail("open");
	if (rnd(2))
		sv_faults("any fail ENOMEM chance 0.01; completion drop chance 0.01;"
			  "completion delay 3 chance 0.02; completion swap chance 0.02;"
			  "completion duplicate chance 0.01; message kill chance 0.002;"
			  "post_send midway chance 0.01; post_send doorbell EIO chance 0.01",
			  NULL);
	sv_strict((int)rnd(2));
	if (!rnd(8))
		sv_set(device, "no_extended", 1);
}

/* Something of each kind to begin with. */
static void furnish(void)
{
	for (int i = 0; i < 8; i++) {
		pd[i] = ibv_alloc_pd(ctx);
		ch[i] = ibv_create_comp_channel(ctx);
		cq[i] = ibv_create_cq(ctx, 64, NULL, ch[i], 0);
		mr[i] = pd[i & 1] ? ibv_reg_mr(pd[i & 1], arena, ARENA, i ? 31 : 1) : NULL;
	}
	for (int i = 0; i < 10; i++) {
		struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RC,
					     .send_cq = cq[i & 3],
					     .recv_cq = cq[rnd(4)],
					     .cap = {16, 16, 4, 4, 64}};

		if (a.send_cq && a.recv_cq && pd[i & 1])
			qp[i] = ibv_create_qp(pd[i & 1], &a);
	}
	for (int i = 0; i < 10; i += 2)
		if (qp[i] && qp[i + 1]) {
			bring_up(qp[i], qp[i + 1]);
			bring_up(qp[i + 1], qp[i]);
		}
}

static void close_all(void)
{
	sv_faults_clear();
	if (!rnd(4))
		sv_device_remove(device);
	for (int i = 0; i < MAX; i++)
		if (id[i]) {
			if (id[i]->qp)
				rdma_destroy_qp(id[i]);
			if (rdma_destroy_id(id[i]))
				fail("rdma_destroy_id");
			id[i] = NULL;
		}
	rdma_destroy_event_channel(ec);
	DESTROY_ALL(qp, ibv_destroy_qp)
	DESTROY_ALL(srq, ibv_destroy_srq)
	DESTROY_ALL(cq, ibv_destroy_cq)
	DESTROY_ALL(ch, ibv_destroy_comp_channel)
	DESTROY_ALL(mw, ibv_dealloc_mw)
	DESTROY_ALL(mr, ibv_dereg_mr)
	DESTROY_ALL(ah, ibv_destroy_ah)
	DESTROY_ALL(pd, ibv_dealloc_pd)
	if (ibv_close_device(ctx))
		fail("ibv_close_device");
	for (int i = 0; i < SV_NCOUNTERS; i++)
		if (sv_live((enum sv_counter)i)) {
			fprintf(stderr, "counter %d: %d\n", i, sv_live((enum sv_counter)i));
			fail("something is left");
		}
	sv_device_remove(device);
}

int main(int argc, char **argv)
{
	uint64_t seed = 1, steps = 20000;

	for (int i = 1; i + 1 < argc; i += 2) {
		if (!strcmp(argv[i], "--seed"))
			seed = strtoull(argv[i + 1], NULL, 0);
		else if (!strcmp(argv[i], "--steps"))
			steps = strtoull(argv[i + 1], NULL, 0);
		else
			return fprintf(stderr, "usage: fuzz [--seed S] [--steps N]\n"), 2;
	}
	sv_clock_advance(1);
	for (uint64_t round = 0; round * ROUND < steps; round++) {
		state = (seed + round) * 0x9e3779b97f4a7c15u | 1;
		open_all(round);
		furnish();
		for (int i = 0; i < ROUND; i++)
			step();
		close_all();
	}
	printf("%llu steps from seed %llu, %llu sends, %llu completions' polls\n",
	       (unsigned long long)steps, (unsigned long long)seed,
	       (unsigned long long)sv_calls("post_send"), (unsigned long long)sv_calls("poll_cq"));
	for (int i = 0; i <= IBV_WC_TM_RNDV_INCOMPLETE; i++)
		if (seen[i])
			printf("%8lu %s\n", seen[i], ibv_wc_status_str((enum ibv_wc_status)i));
	for (int i = 0; i < 256; i++)
		if (ops[i])
			printf("%8lu of opcode %d\n", ops[i], i);
	if (!seen[IBV_WC_SUCCESS] || !ops[IBV_WC_RECV] || !ops[IBV_WC_RDMA_READ])
		fail("nothing ever succeeded");
	return 0;
}
