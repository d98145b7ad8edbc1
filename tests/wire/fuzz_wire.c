/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A hostile process at the other end of every socket. The world here is alive: a listening id, queue
 * pairs of both kinds with receives posted, regions that may and may not be written; the fuzzer
 * connects to it, and is connected to, and says what a peer would say, changed here and there.
 * Nothing may crash, hang, or touch memory that was not granted; and in the end all can be
 * destroyed.
 *
 *	fuzz_wire [--seconds N] [--seed N]
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "frames.h"

#define GUARD  4096u
#define GRANT  65536u
#define CANARY 0xa5
#define DEPTH  16
#define QKEY   0x11111111

static struct {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	uint8_t *mem; /* guard, granted, guard, read-only, guard */
	struct ibv_mr *mr, *readonly, *local;
	uint8_t *in; /* where messages go */
	struct ibv_qp *rc, *ud;
	struct rdma_event_channel *ec;
	struct rdma_cm_id *listener, *datagrams;
	struct fuzz_target t;
	unsigned int port; /* of the fake listener */
	int fake_cm, fake_qpn;
	uint32_t posted;
	unsigned long arrived, sent, failed, asked; /* so that one sees that it gets in */
} w;

static void need(bool ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

/* ---- the world ---- */

static void post_recv(struct ibv_qp *qp, uint64_t id)
{
	struct ibv_sge s[2] = {{(uintptr_t)w.in, 1000, w.local->lkey},
			       {(uintptr_t)w.in + 2000, 60000, w.local->lkey}};
	struct ibv_recv_wr *bad, wr = {.wr_id = id, .sg_list = s, .num_sge = 2};

	ibv_post_recv(qp, &wr, &bad);
}

static struct ibv_qp *make_qp(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr a = {.qp_type = type,
				     .send_cq = w.cq,
				     .recv_cq = w.cq,
				     .sq_sig_all = 1,
				     .cap = {DEPTH, DEPTH, 2, 2, 0}};
	struct ibv_qp_attr q = {.qp_state = IBV_QPS_INIT,
				.port_num = 1,
				.qkey = QKEY,
				.qp_access_flags = IBV_ACCESS_REMOTE_READ |
						   IBV_ACCESS_REMOTE_WRITE |
						   IBV_ACCESS_REMOTE_ATOMIC};
	struct ibv_qp *qp = ibv_create_qp(w.pd, &a);
	bool ud = type == IBV_QPT_UD;

	need(qp && !ibv_modify_qp(qp, &q,
				  IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX |
					  (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)),
	     "INIT");
	return qp;
}

static void to_rts(struct ibv_qp *qp)
{
	bool ud = qp->qp_type == IBV_QPT_UD;
	struct ibv_qp_attr q = {.qp_state = IBV_QPS_RTR,
				.path_mtu = IBV_MTU_1024,
				.dest_qp_num = w.t.fake_qpn,
				.max_dest_rd_atomic = 4,
				.min_rnr_timer = 1,
				.timeout = 8,
				.retry_cnt = 1,
				.rnr_retry = (uint8_t)fuzz_below(8),
				.max_rd_atomic = 4};

	q.ah_attr.is_global = q.ah_attr.port_num = 1;
	need(!ibv_query_gid(w.ctx, 1, 1, &q.ah_attr.grh.dgid), "gid");
	need(!ibv_modify_qp(qp, &q,
			    ud ? IBV_QP_STATE
			       : IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					    IBV_QP_MIN_RNR_TIMER),
	     "RTR");
	q.qp_state = IBV_QPS_RTS;
	need(!ibv_modify_qp(qp, &q,
			    ud ? IBV_QP_STATE | IBV_QP_SQ_PSN
			       : IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					    IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC),
	     "RTS");
}

static void new_rc(void)
{
	if (w.rc)
		need(!ibv_destroy_qp(w.rc), "destroy_qp");
	w.rc = make_qp(IBV_QPT_RC);
	w.t.qpn = w.rc->qp_num;
	w.t.fake_qpn = (w.t.qpn / SW_QPN_BLOCK % 1023 + 1) * SW_QPN_BLOCK + 5;
	w.posted = 0;
	for (uint32_t i = fuzz_below(4) ? 0 : DEPTH; i < DEPTH; i++)
		post_recv(w.rc, i);
}

static struct rdma_cm_id *listen_on(enum rdma_port_space ps, uint16_t port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
	struct rdma_cm_id *id;

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	need(!rdma_create_id(w.ec, &id, NULL, ps) && !rdma_bind_addr(id, (struct sockaddr *)&a) &&
		     !rdma_listen(id, 4),
	     "listen");
	return id;
}

static void make_world(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	uint8_t *m;
	char name[32];

	w.ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;
	need(w.ctx != NULL, "open_device");
	ibv_free_device_list(list);
	w.pd = ibv_alloc_pd(w.ctx);
	w.cq = ibv_create_cq(w.ctx, 256, NULL, NULL, 0);
	m = w.mem = aligned_alloc(4096, 3 * GUARD + 2 * GRANT);
	w.in = calloc(1, 65536);
	need(w.mem && w.in, "memory");
	memset(m, CANARY, 3 * GUARD + 2 * GRANT);
	w.mr = ibv_reg_mr(w.pd, m + GUARD, GRANT,
			  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	w.readonly = ibv_reg_mr(w.pd, m + 2 * GUARD + GRANT, GRANT, IBV_ACCESS_REMOTE_READ);
	w.local = ibv_reg_mr(w.pd, w.in, 65536, IBV_ACCESS_LOCAL_WRITE);
	need(w.mr && w.readonly && w.local, "reg_mr");
	w.t.addr = (uintptr_t)m + GUARD;
	w.t.len = GRANT;
	w.t.rkey = w.mr->rkey;
	w.t.readonly_rkey = w.readonly->rkey;
	w.ud = make_qp(IBV_QPT_UD);
	to_rts(w.ud);
	w.t.ud_qpn = w.ud->qp_num;
	for (uint64_t i = 0; i < DEPTH; i++)
		post_recv(w.ud, 1000 + i);
	new_rc();
	w.ec = rdma_create_event_channel();
	need(w.ec && !fcntl(w.ec->fd, F_SETFL, O_NONBLOCK), "channel");
	w.t.port = 7000;
	w.listener = listen_on(RDMA_PS_TCP, w.t.port);
	w.datagrams = listen_on(RDMA_PS_UDP, w.t.port);
	w.port = 7001;
	snprintf(name, sizeof name, "cm.%x.%u", (unsigned int)RDMA_PS_TCP, w.port);
	w.fake_cm = fuzz_listen(name);
	snprintf(name, sizeof name, "qpn.%u", w.t.fake_qpn / SW_QPN_BLOCK);
	w.fake_qpn = fuzz_listen(name);
	need(w.fake_cm >= 0 && w.fake_qpn >= 0, "fake listeners");
}

static void check_memory(void)
{
	static const size_t from[] = {0, GUARD + GRANT};
	static const size_t to[] = {GUARD, 3 * GUARD + 2 * GRANT};

	for (int k = 0; k < 2; k++)
		for (size_t i = from[k]; i < to[k]; i++)
			if (w.mem[i] != CANARY) {
				fprintf(stderr, "byte %zu was written\n", i);
				abort();
			}
}

/* ---- what the program does meanwhile ---- */

static struct rdma_cm_id *asked[8];

static void answer(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr a = {
		.qp_type = id->qp_type, .send_cq = w.cq, .recv_cq = w.cq, .cap = {2, 2, 1, 1, 0}};
	struct rdma_conn_param c = {.responder_resources = 1, .initiator_depth = 1};
	int i;

	for (i = 0; i < 8 && asked[i]; i++)
		;
	if (i == 8 || fuzz_chance(20)) {
		if (fuzz_chance(50))
			rdma_reject(id, "no", 2);
		rdma_destroy_id(id);
		return;
	}
	asked[i] = id;
	a.send_cq = a.recv_cq = NULL;
	if (fuzz_chance(80) && !rdma_create_qp(id, NULL, &a))
		rdma_accept(id, &c);
}

static void leave(int i)
{
	if (!asked[i])
		return;
	if (fuzz_chance(50))
		rdma_disconnect(asked[i]);
	if (asked[i]->qp)
		rdma_destroy_qp(asked[i]);
	rdma_destroy_id(asked[i]);
	asked[i] = NULL;
}

static void live(void)
{
	struct rdma_cm_event *e;
	struct ibv_wc wc[8];
	int n;

	while ((n = ibv_poll_cq(w.cq, 8, wc)) > 0)
		for (int i = 0; i < n; i++) {
			if (wc[i].status != IBV_WC_SUCCESS)
				w.failed += wc[i].status != IBV_WC_WR_FLUSH_ERR;
			else if (wc[i].wr_id == 2000)
				w.sent++;
			else
				w.arrived++;
			if (wc[i].status == IBV_WC_SUCCESS && wc[i].wr_id < 2000)
				post_recv(wc[i].wr_id < 1000 ? w.rc : w.ud, wc[i].wr_id);
		}
	while (!rdma_get_cm_event(w.ec, &e)) {
		struct rdma_cm_id *id = e->event == RDMA_CM_EVENT_CONNECT_REQUEST ? e->id : NULL;

		rdma_ack_cm_event(e);
		w.asked += id != NULL;
		if (id)
			answer(id);
	}
	if (fuzz_chance(10))
		leave((int)fuzz_below(8));
}

/* ---- attacks ---- */

static void noise(void)
{
	char name[32];
	uint8_t b[600];
	int fd;

	if (fuzz_chance(50))
		snprintf(name, sizeof name, "cm.%x.%u", (unsigned int)RDMA_PS_TCP, w.t.port);
	else
		snprintf(name, sizeof name, "qpn.%u", w.t.qpn / SW_QPN_BLOCK);
	fd = fuzz_connect(name);
	need(fd >= 0, "connect");
	for (size_t i = 0; i < sizeof b; i++)
		b[i] = (uint8_t)fuzz();
	fuzz_write(fd, b, fuzz_below(sizeof b));
	live();
	close(fd);
}

static void ask_cm(void)
{
	bool ud = fuzz_chance(20);
	struct sw_hello h;
	char name[32];
	int fd;

	snprintf(name, sizeof name, "cm.%x.%u", (unsigned int)(ud ? RDMA_PS_UDP : RDMA_PS_TCP),
		 w.t.port);
	fd = fuzz_connect(name);
	need(fd >= 0, "connect");
	fuzz_hello(&h, SW_KIND_CM, &w.t);
	fuzz_write(fd, &h, sizeof h);
	fuzz_cm(fd, fuzz_chance(95) ? SW_CM_REQ : SW_CM_RTU, &w.t, ud);
	live();
	for (uint32_t i = fuzz_below(4); i; i--) {
		fuzz_cm(fd, (enum sw_cm_kind)(fuzz_below(SW_CM_KINDS - 1) + 1), &w.t, ud);
		live();
	}
	close(fd);
	live();
}

/* The live side connects to the fuzzer. */
static void answer_cm(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)w.port)};
	struct ibv_qp_init_attr q = {.qp_type = IBV_QPT_RC, .cap = {2, 2, 1, 1, 0}};
	struct rdma_conn_param c = {.retry_count = 1};
	struct rdma_cm_id *id;
	int fd, i;

	for (i = 0; i < 8 && asked[i]; i++)
		;
	if (i == 8) {
		leave(0);
		return;
	}
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	need(!rdma_create_id(w.ec, &id, NULL, RDMA_PS_TCP) &&
		     !rdma_resolve_addr(id, NULL, (struct sockaddr *)&a, 100) &&
		     !rdma_resolve_route(id, 100) && !rdma_create_qp(id, NULL, &q),
	     "id");
	asked[i] = id;
	need(!rdma_connect(id, &c), "connect");
	fd = accept4(w.fake_cm, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	need(fd >= 0, "accept");
	for (uint32_t k = fuzz_below(5); k; k--) {
		fuzz_cm(fd,
			fuzz_chance(60) ? SW_CM_REP
					: (enum sw_cm_kind)(fuzz_below(SW_CM_KINDS - 1) + 1),
			&w.t, false);
		live();
		fuzz_drain(fd);
	}
	close(fd);
	live();
	if (asked[i] == id)
		leave(i);
}

static void ask_rc(void)
{
	uint32_t seq = fuzz_below(100);
	struct sw_hello h;
	char name[32];
	int fd;

	new_rc();
	to_rts(w.rc);
	snprintf(name, sizeof name, "qpn.%u", w.t.qpn / SW_QPN_BLOCK);
	fd = fuzz_connect(name);
	need(fd >= 0, "connect");
	fuzz_hello(&h, SW_KIND_RC, &w.t);
	fuzz_write(fd, &h, sizeof h);
	for (uint32_t i = fuzz_below(30); i; i--) {
		fuzz_request(fd, &w.t, &seq);
		if (fuzz_chance(50))
			live();
		if (fuzz_chance(70) && !fuzz_drain(fd))
			break;
	}
	live();
	if (fuzz_chance(30))
		new_rc();
	close(fd);
	live();
}

static void post_send(uint32_t len)
{
	static const enum ibv_wr_opcode ops[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
						 IBV_WR_SEND_WITH_IMM, IBV_WR_ATOMIC_FETCH_AND_ADD};
	enum ibv_wr_opcode op = ops[fuzz_below(5)];
	struct ibv_sge s = {(uintptr_t)w.in, op == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : len,
			    w.local->lkey};
	struct ibv_send_wr *bad, wr = {.wr_id = 2000, .sg_list = &s, .num_sge = 1, .opcode = op};

	if (!ibv_post_send(w.rc, &wr, &bad))
		w.posted++;
}

/* The live side asks the fuzzer. */
static void answer_rc(void)
{
	static const struct sw_rsp ready = {.kind = SW_RSP_READY};
	uint32_t len = fuzz_chance(80) ? fuzz_below(300) : fuzz_below(60000);
	int fd, old;

	new_rc();
	/* Connections of earlier queue pairs that nobody took. */
	while ((old = accept4(w.fake_qpn, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0)
		close(old);
	to_rts(w.rc);
	fd = accept4(w.fake_qpn, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	need(fd >= 0, "accept");
	if (fuzz_chance(95))
		fuzz_write(fd, &ready, sizeof ready);
	live();
	for (uint32_t i = fuzz_below(12); i; i--)
		post_send(len);
	for (uint32_t i = fuzz_below(20); i; i--) {
		fuzz_answer(fd, fuzz_below(w.posted + 1), w.posted, len);
		live();
		if (!fuzz_drain(fd))
			break;
		if (fuzz_chance(30))
			post_send(len);
	}
	if (fuzz_chance(30))
		new_rc();
	close(fd);
	live();
}

static void send_ud(void)
{
	struct sw_hello h;
	char name[32];
	int fd;

	snprintf(name, sizeof name, "qpn.%u", w.t.qpn / SW_QPN_BLOCK);
	fd = fuzz_connect(name);
	need(fd >= 0, "connect");
	fuzz_hello(&h, SW_KIND_UD, &w.t);
	fuzz_write(fd, &h, sizeof h);
	for (uint32_t i = fuzz_below(20); i; i--) {
		fuzz_dgram(fd, &w.t);
		if (fuzz_chance(50))
			live();
	}
	close(fd);
	live();
}

static int destroy(void)
{
	int left = 0;

	for (int i = 0; i < 8; i++)
		leave(i);
	rdma_destroy_id(w.listener);
	rdma_destroy_id(w.datagrams);
	rdma_destroy_event_channel(w.ec);
	ibv_destroy_qp(w.rc);
	ibv_destroy_qp(w.ud);
	ibv_destroy_cq(w.cq);
	ibv_dereg_mr(w.mr);
	ibv_dereg_mr(w.readonly);
	ibv_dereg_mr(w.local);
	ibv_dealloc_pd(w.pd);
	ibv_close_device(w.ctx);
	free(w.mem);
	free(w.in);
	for (int i = 0; i < SV_NCOUNTERS; i++)
		left += sv_live((enum sv_counter)i);
	return left;
}

int main(int argc, char **argv)
{
	static void (*const attacks[])(void) = {noise,     ask_cm, answer_cm, ask_rc,
						answer_rc, ask_rc, answer_rc, send_ud};
	unsigned long rounds = 0;
	uint64_t seed = 1;
	int seconds = 5;
	char world[64];
	time_t end;

	for (int i = 1; i + 1 < argc; i += 2)
		if (!strcmp(argv[i], "--seconds"))
			seconds = atoi(argv[i + 1]);
		else if (!strcmp(argv[i], "--seed"))
			seed = strtoull(argv[i + 1], NULL, 10);
	snprintf(world, sizeof world, "fuzz%d", getpid());
	setenv("SGP_SOFTVERBS_WORLD", world, 1);
	fuzz_seed(seed);
	make_world();
	/* A fuzzer that the first check keeps out finds nothing: some of each must come about. */
	for (end = time(NULL) + seconds;
	     time(NULL) < end || !w.arrived || !w.sent || !w.asked || !w.failed; rounds++) {
		alarm(120); /* a round that hangs */
		attacks[fuzz_below(sizeof attacks / sizeof *attacks)]();
		if (rounds % 64 == 0)
			check_memory();
		if (rounds == 20000)
			need(w.arrived && w.sent && w.asked && w.failed, "some of everything");
	}
	check_memory();
	printf("%lu rounds, seed %llu: %lu messages arrived, %lu sent, %lu requests to connect, "
	       "%lu "
	       "operations failed\n",
	       rounds, (unsigned long long)seed, w.arrived, w.sent, w.asked, w.failed);
	return destroy() != 0;
}
