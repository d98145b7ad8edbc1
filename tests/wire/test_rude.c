/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A peer that says what a peer may say, at the worst of times: what its message is for has gone, or
 * is somebody else's. The other side of the sockets is played by the test.
 *
 *	test_rude
 *	test_rude --nobody ADDRESS	another machine, where nobody listens
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../plain.h"
#include "../suite.h"
#include "frames.h"

#define PORT 7000
#define MANY 300 /* more than are let in without a word */

static struct ibv_context *open_first(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;

	ck_assert_ptr_nonnull(ctx);
	ibv_free_device_list(list);
	return ctx;
}

static struct rdma_cm_id *bound(struct rdma_event_channel *ec)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(PORT)};
	struct rdma_cm_id *id;

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	ck_assert_int_eq(rdma_create_id(ec, &id, NULL, RDMA_PS_TCP), 0);
	ck_assert_int_eq(rdma_bind_addr(id, (struct sockaddr *)&a), 0);
	return id;
}

static struct rdma_cm_id *event(struct rdma_event_channel *ec, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *e;
	struct rdma_cm_id *id;

	ck_assert_int_eq(rdma_get_cm_event(ec, &e), 0);
	ck_assert_str_eq(rdma_event_str(e->event), rdma_event_str(type));
	id = e->id;
	rdma_ack_cm_event(e);
	return id;
}

static int connect_cm(void)
{
	char name[32];
	int fd;

	snprintf(name, sizeof name, "cm.%x.%u", (unsigned int)RDMA_PS_TCP, PORT);
	fd = fuzz_connect(name);
	ck_assert_int_ge(fd, 0);
	return fd;
}

static void say(int fd, enum sw_cm_kind kind)
{
	struct sw_cm_msg m = {
		.kind = (uint8_t)kind,
		.ps = RDMA_PS_TCP,
		.qpn = 5 * SW_QPN_BLOCK,
		.src = {.family = AF_INET, .port = htons(9999), .ip = {127, 0, 0, 1}},
		.dst = {.family = AF_INET, .port = htons(PORT), .ip = {127, 0, 0, 1}},
	};

	ck_assert_int_eq(send(fd, &m, sizeof m, MSG_NOSIGNAL), sizeof m);
}

static void hello(int fd, enum sw_kind kind, uint32_t src, uint32_t dst)
{
	struct sw_hello h = {SW_MAGIC, SW_VERSION, (uint8_t)kind, 0, src, dst, 0};

	ck_assert_int_eq(send(fd, &h, sizeof h, MSG_NOSIGNAL), sizeof h);
}

/* Closed by the other side, after whatever it has said. */
static void wait_closed(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLRDHUP};

	ck_assert_int_eq(poll(&p, 1, 60000), 1);
}

/* The queue pair of an id is destroyed by itself, and then the peer goes: with a word, or without. */
START_TEST(test_no_qp)
{
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RC, .cap = {2, 2, 1, 1, 0}};
	struct rdma_event_channel *ec = rdma_create_event_channel();
	struct rdma_cm_id *listener = bound(ec), *id;
	struct rdma_conn_param c = {0};
	int fd;

	ck_assert_int_eq(rdma_listen(listener, 4), 0);
	fd = connect_cm();
	hello(fd, SW_KIND_CM, 0, 0);
	say(fd, SW_CM_REQ);
	id = event(ec, RDMA_CM_EVENT_CONNECT_REQUEST);
	ck_assert_int_eq(rdma_create_qp(id, NULL, &a), 0);
	ck_assert_int_eq(rdma_accept(id, &c), 0);
	say(fd, SW_CM_RTU);
	event(ec, RDMA_CM_EVENT_ESTABLISHED);
	ck_assert_int_eq(ibv_destroy_qp(id->qp), 0);
	ck_assert_ptr_null(id->qp);
	if (_i)
		say(fd, SW_CM_DREQ);
	close(fd);
	event(ec, RDMA_CM_EVENT_DISCONNECTED);
	ck_assert_int_eq(ibv_destroy_cq(id->send_cq), 0);
	ck_assert_int_eq(ibv_destroy_cq(id->recv_cq), 0);
	ck_assert_int_eq(ibv_destroy_comp_channel(id->send_cq_channel), 0);
	ck_assert_int_eq(ibv_destroy_comp_channel(id->recv_cq_channel), 0);
	rdma_destroy_id(id);
	rdma_destroy_id(listener);
	rdma_destroy_event_channel(ec);
}
END_TEST

/* Whoever asked is the one to say that it is ready, not whoever was asked. */
START_TEST(test_rtu_to_asker)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(PORT)};
	struct rdma_event_channel *ec = rdma_create_event_channel();
	struct rdma_conn_param c = {0};
	struct rdma_cm_id *id;
	char name[32];
	int at, fd;

	snprintf(name, sizeof name, "cm.%x.%u", (unsigned int)RDMA_PS_TCP, PORT);
	at = fuzz_listen(name);
	ck_assert_int_ge(at, 0);
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	ck_assert_int_eq(rdma_create_id(ec, &id, NULL, RDMA_PS_TCP), 0);
	ck_assert_int_eq(rdma_resolve_addr(id, NULL, (struct sockaddr *)&a, 100), 0);
	event(ec, RDMA_CM_EVENT_ADDR_RESOLVED);
	ck_assert_int_eq(rdma_resolve_route(id, 100), 0);
	event(ec, RDMA_CM_EVENT_ROUTE_RESOLVED);
	ck_assert_int_eq(rdma_connect(id, &c), 0);
	fd = accept(at, NULL, NULL);
	ck_assert_int_ge(fd, 0);
	say(fd, SW_CM_REP);
	say(fd, SW_CM_RTU);
	event(ec, RDMA_CM_EVENT_CONNECT_RESPONSE);
	event(ec, RDMA_CM_EVENT_DISCONNECTED); /* it is not talked to any more */
	close(fd);
	close(at);
	rdma_destroy_id(id);
	rdma_destroy_event_channel(ec);
}
END_TEST

/* Those who say nothing don't keep out who does. */
START_TEST(test_silent)
{
	struct rdma_event_channel *ec = rdma_create_event_channel();
	struct rdma_cm_id *listener = bound(ec), *id;
	int fd[MANY], last;

	ck_assert_int_eq(rdma_listen(listener, 4), 0);
	for (int i = 0; i < MANY; i++)
		fd[i] = connect_cm();
	last = connect_cm();
	hello(last, SW_KIND_CM, 0, 0);
	say(last, SW_CM_REQ);
	id = event(ec, RDMA_CM_EVENT_CONNECT_REQUEST);
	wait_closed(fd[0]); /* the longest silent has gone for it */
	for (int i = 0; i < MANY; i++)
		close(fd[i]);
	close(last);
	rdma_destroy_id(id);
	rdma_destroy_id(listener);
	rdma_destroy_event_channel(ec);
}
END_TEST

static void *destroy(void *id)
{
	rdma_destroy_id(id);
	return NULL;
}

/* While a listener that goes waits for an event to be acknowledged, nothing more comes about it. */
START_TEST(test_request_to_leaver)
{
	struct rdma_event_channel *ec = rdma_create_event_channel();
	struct rdma_cm_id *listener = bound(ec), *id;
	struct rdma_cm_event *e, *late;
	int fd[16];
	pthread_t t;

	ck_assert_int_eq(rdma_listen(listener, 16), 0);
	fd[0] = connect_cm();
	hello(fd[0], SW_KIND_CM, 0, 0);
	say(fd[0], SW_CM_REQ);
	ck_assert_int_eq(rdma_get_cm_event(ec, &e), 0);
	id = e->id;
	ck_assert_int_eq(pthread_create(&t, NULL, destroy, listener), 0);
	for (int i = 1; i < 16; i++) { /* the more of them, the surer some come while it waits */
		fd[i] = connect_cm();
		hello(fd[i], SW_KIND_CM, 0, 0);
		say(fd[i], SW_CM_REQ);
		usleep(5000);
	}
	rdma_ack_cm_event(e);
	pthread_join(t, NULL);
	ck_assert_int_eq(fcntl(ec->fd, F_SETFL, O_NONBLOCK), 0);
	ck_assert_int_eq(rdma_get_cm_event(ec, &late), -1);
	ck_assert_int_eq(errno, EAGAIN);
	for (int i = 0; i < 16; i++)
		close(fd[i]);
	rdma_destroy_id(id);
	rdma_destroy_event_channel(ec);
}
END_TEST

/* A forked child keeps none of its parent's ports. */
START_TEST(test_port_after_fork)
{
	struct rdma_event_channel *ec = rdma_create_event_channel();
	struct rdma_cm_id *id = bound(ec);
	char there = 0;
	pid_t child;
	int fd[2];

	ck_assert_int_eq(pipe(fd), 0);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (!child) {
		if (write(fd[1], &there, 1) == 1)
			pause();
		_exit(0);
	}
	ck_assert_int_eq(read(fd[0], &there, 1), 1);
	close(fd[0]);
	close(fd[1]);
	rdma_destroy_id(id);
	id = bound(ec); /* the child lives */
	rdma_destroy_id(id);
	rdma_destroy_event_channel(ec);
	kill(child, SIGKILL);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
}
END_TEST

/* Makes the queue pair wait for one that the test plays, and connects to it. */
static int ask_rc(struct ibv_qp *qp)
{
	uint32_t asker = (qp->qp_num / SW_QPN_BLOCK % 1023 + 1) * SW_QPN_BLOCK + 5;
	struct sw_rsp ready;
	char name[32];
	int fd;

	ck_assert_int_eq(plain_init(qp), 0);
	ck_assert_int_eq(plain_join(qp, asker, 7, 12), 0);
	snprintf(name, sizeof name, "qpn.%u", qp->qp_num / SW_QPN_BLOCK);
	fd = fuzz_connect(name);
	ck_assert_int_ge(fd, 0);
	fcntl(fd, F_SETFL, 0);
	hello(fd, SW_KIND_RC, asker, qp->qp_num);
	ck_assert_int_eq(recv(fd, &ready, sizeof ready, MSG_WAITALL), sizeof ready);
	ck_assert_int_eq(ready.kind, SW_RSP_READY);
	return fd;
}

/*
 * A request and half of its payload, and it has come: seen as programs see a WRITE, in memory that
 * another thread writes to, the device's.
 */
__attribute__((no_sanitize_thread)) static void half(int fd, const struct sw_req *r,
						     const volatile char *to)
{
	char b[2048];

	ck_assert_uint_eq(r->len, 2 * sizeof b);
	memset(b, 1, sizeof b);
	ck_assert_int_eq(send(fd, r, sizeof *r, 0), sizeof *r);
	ck_assert_int_eq(send(fd, b, sizeof b, 0), sizeof b);
	while (!to[sizeof b - 1])
		sched_yield();
}

/* The peer goes in the middle of a message: its receive, taken out of a shared queue, is flushed. */
START_TEST(test_half_a_message)
{
	struct ibv_context *ctx = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 8, NULL, NULL, 0);
	struct ibv_srq_init_attr sa = {.attr = {4, 1, 0}};
	struct ibv_srq *srq = ibv_create_srq(pd, &sa);
	struct ibv_qp_init_attr qa = {.qp_type = IBV_QPT_RC,
				      .send_cq = cq,
				      .recv_cq = cq,
				      .srq = srq,
				      .cap = {1, 0, 1, 0, 0}};
	struct ibv_qp *qp = ibv_create_qp(pd, &qa);
	static volatile char mem[4096];
	struct ibv_mr *mr =
		ibv_reg_mr(pd, (void *)(uintptr_t)mem, sizeof mem, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge sge = {(uintptr_t)mem, sizeof mem, 0};
	struct ibv_recv_wr *bad, wr = {.wr_id = 42, .sg_list = &sge, .num_sge = 1};
	struct sw_req r = {.op = SW_REQ_SEND, .len = sizeof mem};
	struct ibv_wc wc;
	int fd;

	ck_assert(srq && qp && mr);
	sge.lkey = mr->lkey;
	ck_assert_int_eq(ibv_post_srq_recv(srq, &wr, &bad), 0);
	fd = ask_rc(qp);
	half(fd, &r, mem);
	close(fd);
	while (!ibv_poll_cq(cq, 1, &wc))
		sched_yield();
	ck_assert_uint_eq(wc.wr_id, 42);
	ck_assert_int_eq(wc.status, IBV_WC_WR_FLUSH_ERR);
	ck_assert_int_eq(ibv_poll_cq(cq, 1, &wc), 0);
	ck_assert_int_eq(ibv_destroy_qp(qp), 0);
	ck_assert_int_eq(ibv_destroy_srq(srq), 0);
	ck_assert_int_eq(ibv_dereg_mr(mr), 0);
	ck_assert_int_eq(ibv_destroy_cq(cq), 0);
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
	ck_assert_int_eq(ibv_close_device(ctx), 0);
}
END_TEST

/* The SRQ that an extended queue pair writes for goes in the middle of the message. */
START_TEST(test_no_srq)
{
	struct ibv_context *ctx = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 8, NULL, NULL, 0);
	struct ibv_xrcd_init_attr xa = {IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, -1,
					O_CREAT};
	struct ibv_xrcd *xrcd = ibv_open_xrcd(ctx, &xa);
	struct ibv_srq_init_attr_ex sa = {.attr = {4, 1, 0},
					  .comp_mask =
						  IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
						  IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
					  .srq_type = IBV_SRQT_XRC,
					  .xrcd = xrcd,
					  .cq = cq,
					  .pd = pd};
	struct ibv_qp_init_attr_ex qa = {
		.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = xrcd};
	struct ibv_srq *srq = ibv_create_srq_ex(ctx, &sa);
	struct ibv_qp *qp = ibv_create_qp_ex(ctx, &qa);
	static volatile char mem[4096];
	struct ibv_mr *mr = ibv_reg_mr(pd, (void *)(uintptr_t)mem, sizeof mem,
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct sw_req r = {.op = SW_REQ_WRITE, .len = sizeof mem, .raddr = (uintptr_t)mem};
	struct sw_rsp answer[2];
	char rest[sizeof mem / 2];
	int fd;

	ck_assert(srq && qp && mr);
	fd = ask_rc(qp);
	ck_assert_int_eq(ibv_get_srq_num(srq, &r.srqn), 0);
	r.rkey = mr->rkey;
	half(fd, &r, mem);
	memset(rest, 1, sizeof rest);
	ck_assert_int_eq(ibv_destroy_srq(srq), 0);
	ck_assert_int_eq(send(fd, rest, sizeof rest, 0), sizeof rest);
	ck_assert_int_eq(recv(fd, answer, sizeof answer, MSG_WAITALL), sizeof answer);
	ck_assert_int_eq(answer[0].kind, SW_RSP_NAK);
	ck_assert_int_eq(answer[0].status, IBV_WC_REM_ACCESS_ERR);
	ck_assert_int_eq(answer[1].kind, SW_RSP_GONE);
	ck_assert_int_eq(mem[sizeof rest], 0);
	close(fd);
	ck_assert_int_eq(ibv_destroy_qp(qp), 0);
	ck_assert_int_eq(ibv_dereg_mr(mr), 0);
	ck_assert_int_eq(ibv_destroy_cq(cq), 0);
	ck_assert_int_eq(ibv_close_xrcd(xrcd), 0);
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
	ck_assert_int_eq(ibv_close_device(ctx), 0);
}
END_TEST

/* Over TCP a silent machine is asked whether it is still there. Whose end of a connection has a timer,
 * and which (02: to ask), is in the kernel's table:
 *	sl local rem st queues timer:when
 *	0: 0100007F:1B58 0100007F:ABCD 01 00000000:00000000 02:000003E8 */
START_TEST(test_tcp_keepalive)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(PORT)};
	struct rdma_event_channel *ec;
	struct rdma_cm_id *listener, *id;
	unsigned int port, st, timer;
	bool asks = false;
	char line[256];
	FILE *f;
	int fd;

	ck_assert_int_eq(setenv("SGP_SOFTVERBS_NET", "127.0.0.1", 1), 0);
	ec = rdma_create_event_channel();
	listener = bound(ec);
	ck_assert_int_eq(rdma_listen(listener, 4), 0);
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
	hello(fd, SW_KIND_CM, 0, 0);
	say(fd, SW_CM_REQ);
	id = event(ec, RDMA_CM_EVENT_CONNECT_REQUEST);
	f = fopen("/proc/self/net/tcp", "re");
	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof line, f))
		if (sscanf(line, " %*d: %*x:%x %*x:%*x %x %*x:%*x %x", &port, &st, &timer) == 3)
			asks = asks || (port == PORT && st == 1 && timer == 2);
	fclose(f);
	ck_assert(asks);
	close(fd);
	rdma_destroy_id(id);
	rdma_destroy_id(listener);
	rdma_destroy_event_channel(ec);
}
END_TEST

/* The next event's type and status; outside of Check. */
static enum rdma_cm_event_type next(struct rdma_event_channel *ec, int *status)
{
	struct rdma_cm_event *e;
	enum rdma_cm_event_type type;

	if (rdma_get_cm_event(ec, &e))
		exit(1);
	type = e->event;
	*status = e->status;
	rdma_ack_cm_event(e);
	return type;
}

/* The other machine's TCP refuses, which means what a refusal of the connection manager means. */
static int nobody(const char *address)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(PORT)};
	struct rdma_event_channel *ec = rdma_create_event_channel();
	struct rdma_conn_param c = {0};
	enum rdma_cm_event_type type;
	struct rdma_cm_id *id;
	int status;

	if (!ec || inet_pton(AF_INET, address, &a.sin_addr) != 1 ||
	    rdma_create_id(ec, &id, NULL, RDMA_PS_TCP) ||
	    rdma_resolve_addr(id, NULL, (struct sockaddr *)&a, 100) ||
	    next(ec, &status) != RDMA_CM_EVENT_ADDR_RESOLVED || rdma_resolve_route(id, 100) ||
	    next(ec, &status) != RDMA_CM_EVENT_ROUTE_RESOLVED || rdma_connect(id, &c))
		return 1;
	type = next(ec, &status);
	printf("nobody listens: %s, %d\n", rdma_event_str(type), status);
	rdma_destroy_id(id);
	rdma_destroy_event_channel(ec);
	return type != RDMA_CM_EVENT_REJECTED || status != SW_REJ_INVALID_SID;
}

int main(int argc, char **argv)
{
	char world[64];
	TCase *t;
	Suite *s;

	if (argc == 3 && !strcmp(argv[1], "--nobody"))
		return nobody(argv[2]);
	snprintf(world, sizeof world, "rude%d", getpid());
	setenv("SGP_SOFTVERBS_WORLD", world, 1);
	s = suite_create("a rude peer");
	t = tcase_create("rude");
	tcase_add_loop_test(t, test_no_qp, 0, 2);
	tcase_add_test(t, test_rtu_to_asker);
	tcase_add_test(t, test_silent);
	tcase_add_test(t, test_request_to_leaver);
	tcase_add_test(t, test_port_after_fork);
	tcase_add_test(t, test_half_a_message);
	tcase_add_test(t, test_no_srq);
	tcase_add_test(t, test_tcp_keepalive);
	suite_add_tcase(s, t);
	return suite_run(s);
}
