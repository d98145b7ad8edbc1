/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections within one process: the asynchronous flow in one thread, the synchronous one in two.
 */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_verbs.h>
#include <stdlib.h>
#include <string.h>
#include <sgpool/softverbs.h>

static struct rdma_event_channel *ch;

static struct sockaddr_in at(const char *ip, uint16_t port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};

	ck_assert_int_eq(inet_pton(AF_INET, ip, &a.sin_addr), 1);
	return a;
}

static struct rdma_cm_event *event(enum rdma_cm_event_type type, struct rdma_cm_id *id)
{
	struct pollfd p = {.fd = ch->fd, .events = POLLIN};
	struct rdma_cm_event *e;

	ck_assert_msg(poll(&p, 1, 5000) == 1, "no %s", rdma_event_str(type));
	ck_assert_int_eq(rdma_get_cm_event(ch, &e), 0);
	ck_assert_msg(e->event == type, "%s, not %s", rdma_event_str(e->event),
		      rdma_event_str(type));
	if (id)
		ck_assert_ptr_eq(e->id, id);
	return e;
}

static void ack(enum rdma_cm_event_type type, struct rdma_cm_id *id, int status)
{
	struct rdma_cm_event *e = event(type, id);

	ck_assert_int_eq(e->status, status);
	ck_assert_int_eq(rdma_ack_cm_event(e), 0);
}

static void no_event(void)
{
	struct pollfd p = {.fd = ch->fd, .events = POLLIN};

	ck_assert_int_eq(poll(&p, 1, 0), 0);
}

static struct rdma_cm_id *listener(uint16_t port, int backlog)
{
	struct sockaddr_in a = at("0.0.0.0", port);
	struct rdma_cm_id *id;

	ck_assert_int_eq(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP), 0);
	ck_assert_int_eq(rdma_bind_addr(id, (struct sockaddr *)&a), 0);
	ck_assert_int_eq(rdma_listen(id, backlog), 0);
	return id;
}

static struct rdma_cm_id *routed(const char *ip, uint16_t port)
{
	struct sockaddr_in a = at(ip, port);
	struct rdma_cm_id *id;

	ck_assert_int_eq(rdma_create_id(ch, &id, (void *)&ch, RDMA_PS_TCP), 0);
	ck_assert_int_eq(rdma_resolve_addr(id, NULL, (struct sockaddr *)&a, 1000), 0);
	ack(RDMA_CM_EVENT_ADDR_RESOLVED, id, 0);
	ck_assert_ptr_nonnull(id->verbs);
	ck_assert_ptr_nonnull(id->pd);
	ck_assert_int_eq(rdma_resolve_route(id, 1000), 0);
	ack(RDMA_CM_EVENT_ROUTE_RESOLVED, id, 0);
	return id;
}

static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RC, .cap = {8, 8, 2, 2, 64}};

	ck_assert_int_eq(rdma_create_qp(id, NULL, &a), 0);
}

/* A connection with "hi" one way and "there" the other way. */
static void join(struct rdma_cm_id *l, struct rdma_cm_id *a, struct rdma_cm_id **b)
{
	struct rdma_conn_param p = {.private_data = "hi",
				    .private_data_len = 3,
				    .responder_resources = 2,
				    .initiator_depth = 1,
				    .retry_count = 5,
				    .rnr_retry_count = 7};
	struct rdma_cm_event *e;

	make_qp(a);
	ck_assert_int_eq(rdma_connect(a, &p), 0);
	e = event(RDMA_CM_EVENT_CONNECT_REQUEST, NULL);
	ck_assert_ptr_eq(e->listen_id, l);
	ck_assert_str_eq(e->param.conn.private_data, "hi");
	ck_assert_uint_eq(e->param.conn.initiator_depth, 2);
	ck_assert_uint_eq(e->param.conn.responder_resources, 1);
	*b = e->id;
	ck_assert_int_eq(rdma_ack_cm_event(e), 0);
	ck_assert_ptr_eq((*b)->channel, ch);
	make_qp(*b);
	p.private_data = "there";
	p.private_data_len = 6;
	p.initiator_depth = 2;
	p.responder_resources = 1;
	ck_assert_int_eq(rdma_accept(*b, &p), 0);
	e = event(RDMA_CM_EVENT_ESTABLISHED, a);
	ck_assert_str_eq(e->param.conn.private_data, "there");
	ck_assert_int_eq(rdma_ack_cm_event(e), 0);
	ack(RDMA_CM_EVENT_ESTABLISHED, *b, 0);
	no_event();
}

static void drop(struct rdma_cm_id *id)
{
	if (id->qp)
		rdma_destroy_qp(id);
	ck_assert_int_eq(rdma_destroy_id(id), 0);
}

static void setup(void)
{
	ch = rdma_create_event_channel();
	ck_assert_ptr_nonnull(ch);
}

static void teardown(void)
{
	rdma_destroy_event_channel(ch);
	for (int i = 0; i < SV_NCOUNTERS; i++)
		ck_assert_msg(sv_live((enum sv_counter)i) == 0, "counter %d: %d alive", i,
			      sv_live((enum sv_counter)i));
}

START_TEST(test_connect)
{
	struct rdma_cm_id *l = listener(7000, 0), *a = routed("127.0.0.1", 7000), *b;
	char text[] = "text", got[8] = "";
	struct ibv_mr *ma, *mb;
	struct ibv_wc wc;

	join(l, a, &b);
	ck_assert_uint_eq(ntohs(rdma_get_dst_port(a)), 7000);
	ck_assert_uint_eq(rdma_get_src_port(a), rdma_get_dst_port(b));
	ma = rdma_reg_msgs(a, text, sizeof text);
	mb = rdma_reg_msgs(b, got, sizeof got);
	ck_assert_int_eq(rdma_post_recv(b, got, got, sizeof got, mb), 0);
	ck_assert_int_eq(rdma_post_send(a, text, text, sizeof text, ma, IBV_SEND_SIGNALED), 0);
	ck_assert_int_eq(rdma_get_recv_comp(b, &wc), 1);
	ck_assert_uint_eq(wc.byte_len, sizeof text);
	ck_assert_str_eq(got, text);
	ck_assert_int_eq(rdma_get_send_comp(a, &wc), 1);
	ck_assert_int_eq(rdma_dereg_mr(ma), 0);
	/* a's end is told at once; a itself when b has answered. */
	ck_assert_int_eq(rdma_post_recv(b, NULL, got, sizeof got, mb), 0);
	ck_assert_int_eq(rdma_disconnect(a), 0);
	ack(RDMA_CM_EVENT_DISCONNECTED, b, 0);
	no_event();
	ck_assert_int_eq(rdma_disconnect(b), 0);
	ack(RDMA_CM_EVENT_DISCONNECTED, a, 0);
	ck_assert_int_eq(rdma_get_recv_comp(b, &wc), 1);
	ck_assert_int_eq(wc.status, IBV_WC_WR_FLUSH_ERR);
	ck_assert_int_eq(rdma_dereg_mr(mb), 0);
	drop(a);
	drop(b);
	drop(l);
}
END_TEST

/* Whoever is still there learns that the other has gone. */
START_TEST(test_destroy_tells)
{
	struct rdma_cm_id *l = listener(7000, 0), *a = routed("127.0.0.1", 7000), *b;

	join(l, a, &b);
	drop(a);
	ack(RDMA_CM_EVENT_DISCONNECTED, b, 0);
	ck_assert_int_eq(rdma_disconnect(b), 0);
	no_event();
	drop(b);
	drop(l);
}
END_TEST

START_TEST(test_reject)
{
	struct rdma_cm_id *l = listener(7000, 0), *a = routed("127.0.0.1", 7000);
	struct rdma_conn_param p = {.retry_count = 7};
	struct rdma_cm_event *e;

	make_qp(a);
	ck_assert_int_eq(rdma_connect(a, &p), 0);
	e = event(RDMA_CM_EVENT_CONNECT_REQUEST, NULL);
	ck_assert_int_eq(rdma_reject(e->id, "no", 3), 0);
	drop(e->id);
	ck_assert_int_eq(rdma_ack_cm_event(e), 0);
	e = event(RDMA_CM_EVENT_REJECTED, a);
	ck_assert_int_eq(e->status, 28);
	ck_assert_str_eq(e->param.conn.private_data, "no");
	ck_assert_int_eq(rdma_ack_cm_event(e), 0);
	drop(a);
	drop(l);
}
END_TEST

START_TEST(test_nobody_listens)
{
	struct rdma_cm_id *a = routed("127.0.0.1", 7001);
	struct rdma_conn_param p = {.retry_count = 7};

	make_qp(a);
	ck_assert_int_eq(rdma_connect(a, &p), 0);
	ack(RDMA_CM_EVENT_REJECTED, a, 8);
	drop(a);
}
END_TEST

/* The listener, or the passive id, goes before it answers. */
START_TEST(test_unanswered)
{
	struct rdma_cm_id *l = listener(7000, 0), *a = routed("127.0.0.1", 7000),
			  *c = routed("127.0.0.1", 7000);
	struct rdma_conn_param p = {.retry_count = 7};
	struct rdma_cm_event *e;

	make_qp(a);
	make_qp(c);
	ck_assert_int_eq(rdma_connect(a, &p), 0);
	ck_assert_int_eq(rdma_connect(c, &p), 0);
	e = event(RDMA_CM_EVENT_CONNECT_REQUEST, NULL);
	drop(e->id);
	ck_assert_int_eq(rdma_ack_cm_event(e), 0);
	drop(l);
	ack(RDMA_CM_EVENT_REJECTED, a, 28);
	ack(RDMA_CM_EVENT_REJECTED, c, 28);
	drop(a);
	drop(c);
}
END_TEST

START_TEST(test_backlog)
{
	struct rdma_cm_id *l = listener(7000, 1), *a = routed("127.0.0.1", 7000),
			  *c = routed("127.0.0.1", 7000);
	struct rdma_conn_param p = {.retry_count = 7};
	struct rdma_cm_event *e;

	make_qp(a);
	make_qp(c);
	ck_assert_int_eq(rdma_connect(a, &p), 0);
	ck_assert_int_eq(rdma_connect(c, &p), 0);
	e = event(RDMA_CM_EVENT_CONNECT_REQUEST, NULL);
	no_event(); /* the other request was dropped, and nobody is told till it has been retried */
	drop(e->id);
	ck_assert_int_eq(rdma_ack_cm_event(e), 0);
	ack(RDMA_CM_EVENT_REJECTED, a, 28);
	sv_clock_advance(120000000000u);
	ack(RDMA_CM_EVENT_UNREACHABLE, c, -ETIMEDOUT);
	drop(a);
	drop(c);
	drop(l);
}
END_TEST

START_TEST(test_addresses)
{
	struct sockaddr_in any = at("0.0.0.0", 7000), far = at("192.0.2.1", 7000);
	struct rdma_cm_id *l = listener(7000, 0), *id;

	ck_assert_int_eq(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP), 0);
	ck_assert_int_eq(rdma_bind_addr(id, (struct sockaddr *)&any), -1);
	ck_assert_int_eq(errno,
			 EADDRNOTAVAIL); /* as the kernel has it, when either is any address */
	ck_assert_int_eq(rdma_bind_addr(id, (struct sockaddr *)&far), -1);
	ck_assert_int_eq(errno, EADDRNOTAVAIL);
	ck_assert_int_eq(rdma_resolve_route(id, 1), -1);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(rdma_resolve_addr(id, NULL, (struct sockaddr *)&far, 1), 0);
	ack(RDMA_CM_EVENT_ADDR_ERROR, id, -EHOSTUNREACH);
	drop(id);
	drop(l);
}
END_TEST

/* Device n is at 127.0.n.1. */
START_TEST(test_two_devices)
{
	struct rdma_cm_id *l, *a, *b;

	ck_assert_int_eq(sv_device_add("one", "soft", 1), 0);
	ck_assert_int_eq(sv_device_add("two", "soft", 2), 0);
	l = listener(7000, 0);
	a = routed("127.0.1.2", 7000);
	ck_assert_str_eq(ibv_get_device_name(a->verbs->device), "two");
	ck_assert_uint_eq(a->port_num, 2);
	join(l, a, &b);
	ck_assert_str_eq(ibv_get_device_name(b->verbs->device), "two");
	drop(a);
	ack(RDMA_CM_EVENT_DISCONNECTED, b, 0);
	drop(b);
	drop(l);
}
END_TEST

/* Whoever the device is taken for, connecting, sending and parting work. */
static const char *const personas[] = {"rxe", "siw", "mlx4", "mlx5", "efa", "hns", "irdma"};

START_TEST(test_personas)
{
	char text[] = "text", got[8] = "";
	struct rdma_cm_id *l, *a, *b = NULL;
	struct rdma_conn_param p = {.rnr_retry_count = 7, .responder_resources = 1};
	struct rdma_cm_event *e;
	struct ibv_mr *ma, *mb;
	struct ibv_wc wc;
	int ended = 0;

	ck_assert_int_eq(sv_device_add(personas[_i], personas[_i], 1), 0);
	l = listener(7000, 0);
	a = routed("127.0.0.1", 7000);
	ck_assert_str_eq(ibv_get_device_name(a->verbs->device), personas[_i]);
	{
		struct ibv_qp_init_attr at = {.qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 16}};

		ck_assert_int_eq(rdma_create_qp(a, NULL, &at), 0);
		ck_assert_int_eq(rdma_connect(a, &p), 0);
		e = event(RDMA_CM_EVENT_CONNECT_REQUEST, NULL);
		b = e->id;
		ck_assert_int_eq(rdma_ack_cm_event(e), 0);
		at.send_cq = at.recv_cq = NULL;
		at.cap = (struct ibv_qp_cap){4, 4, 1, 1, 16};
		ck_assert_int_eq(rdma_create_qp(b, NULL, &at), 0);
	}
	mb = rdma_reg_msgs(b, got, sizeof got);
	ck_assert_int_eq(rdma_post_recv(b, got, got, sizeof got, mb), 0);
	ck_assert_int_eq(rdma_accept(b, &p), 0);
	ack(RDMA_CM_EVENT_ESTABLISHED, NULL, 0);
	ack(RDMA_CM_EVENT_ESTABLISHED, NULL, 0);
	ma = rdma_reg_msgs(a, text, sizeof text);
	ck_assert_int_eq(rdma_post_send(a, text, text, sizeof text, ma, IBV_SEND_SIGNALED), 0);
	ck_assert_int_eq(rdma_get_recv_comp(b, &wc), 1);
	ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
	ck_assert_str_eq(got, text);
	ck_assert_int_eq(rdma_get_send_comp(a, &wc), 1);
	ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
	ck_assert_int_eq(rdma_disconnect(a), 0);
	ck_assert_int_eq(rdma_disconnect(b), 0);
	for (; ended < 2; ended++)
		ack(RDMA_CM_EVENT_DISCONNECTED, NULL, 0);
	ck_assert_int_eq(rdma_dereg_mr(ma) | rdma_dereg_mr(mb), 0);
	drop(a);
	drop(b);
	drop(l);
}
END_TEST

START_TEST(test_device_removal)
{
	struct rdma_cm_id *l = listener(7000, 0), *a = routed("127.0.0.1", 7000), *b;
	struct ibv_recv_wr *bad, wr = {0};
	struct ibv_wc wc;

	join(l, a, &b);
	ck_assert_int_eq(ibv_post_recv(b->qp, &wr, &bad), 0);
	ck_assert_int_eq(sv_device_remove("soft0"), 0);
	for (int i = 0; i < 2; i++) {
		struct rdma_cm_event *e;

		/* The first one to be told takes the other's connection with it. */
		ck_assert_int_eq(rdma_get_cm_event(ch, &e), 0);
		if (e->event == RDMA_CM_EVENT_DISCONNECTED)
			i--;
		else
			ck_assert_int_eq(e->event, RDMA_CM_EVENT_DEVICE_REMOVAL);
		ck_assert_int_eq(rdma_ack_cm_event(e), 0);
	}
	ck_assert_int_eq(rdma_get_recv_comp(b, &wc), 1);
	ck_assert_int_eq(wc.status, IBV_WC_WR_FLUSH_ERR);
	drop(a);
	drop(b);
	drop(l);
}
END_TEST

START_TEST(test_datagrams)
{
	struct sockaddr_in any = at("0.0.0.0", 7000), to = at("127.0.0.1", 7000);
	struct ibv_qp_init_attr qa = {.qp_type = IBV_QPT_UD, .cap = {2, 2, 1, 1, 0}};
	struct rdma_conn_param p = {.private_data = "who", .private_data_len = 4};
	char text[] = "datagram", got[64] = "";
	struct rdma_cm_id *l, *a, *b;
	struct rdma_cm_event *e;
	struct ibv_mr *ma, *mb;
	struct ibv_ah *ah;
	struct ibv_wc wc;
	uint32_t qpn;

	ck_assert_int_eq(rdma_create_id(ch, &l, NULL, RDMA_PS_UDP), 0);
	ck_assert_int_eq(rdma_bind_addr(l, (struct sockaddr *)&any), 0);
	ck_assert_int_eq(rdma_listen(l, 1), 0);
	ck_assert_int_eq(rdma_create_id(ch, &a, NULL, RDMA_PS_UDP), 0);
	ck_assert_int_eq(rdma_resolve_addr(a, NULL, (struct sockaddr *)&to, 1000), 0);
	ack(RDMA_CM_EVENT_ADDR_RESOLVED, a, 0);
	ck_assert_int_eq(rdma_resolve_route(a, 1000), 0);
	ack(RDMA_CM_EVENT_ROUTE_RESOLVED, a, 0);
	ck_assert_int_eq(rdma_create_qp(a, NULL, &qa), 0);
	ck_assert_int_eq(rdma_connect(a, &p), 0);
	e = event(RDMA_CM_EVENT_CONNECT_REQUEST, NULL);
	ck_assert_str_eq(e->param.ud.private_data, "who");
	b = e->id;
	ck_assert_int_eq(rdma_ack_cm_event(e), 0);
	qa.send_cq = qa.recv_cq = NULL;
	ck_assert_int_eq(rdma_create_qp(b, NULL, &qa), 0);
	mb = rdma_reg_msgs(b, got, sizeof got);
	ck_assert_int_eq(rdma_post_recv(b, NULL, got, sizeof got, mb), 0);
	ck_assert_int_eq(rdma_accept(b, &p), 0);
	e = event(RDMA_CM_EVENT_ESTABLISHED, a);
	ck_assert_uint_eq(e->param.ud.qp_num, b->qp->qp_num);
	ck_assert_uint_eq(e->param.ud.qkey, RDMA_UDP_QKEY);
	ah = ibv_create_ah(a->pd, &e->param.ud.ah_attr);
	ck_assert_ptr_nonnull(ah);
	qpn = e->param.ud.qp_num;
	ck_assert_int_eq(rdma_ack_cm_event(e), 0);
	ma = rdma_reg_msgs(a, text, sizeof text);
	ck_assert_int_eq(rdma_post_ud_send(a, NULL, text, sizeof text, ma, 0, ah, qpn), 0);
	ck_assert_int_eq(rdma_get_recv_comp(b, &wc), 1);
	ck_assert_str_eq(got + 40, text);
	ck_assert_int_eq(rdma_dereg_mr(ma) | rdma_dereg_mr(mb) | ibv_destroy_ah(ah), 0);
	drop(a);
	drop(b);
	drop(l);
}
END_TEST

/* Events follow an id to another channel. */
START_TEST(test_migrate)
{
	struct rdma_cm_id *l = listener(7000, 0), *a = routed("127.0.0.1", 7000), *b;
	struct rdma_event_channel *first = ch;

	join(l, a, &b);
	ck_assert_int_eq(rdma_disconnect(b), 0);
	ch = rdma_create_event_channel();
	ck_assert_int_eq(rdma_migrate_id(a, ch), 0);
	ack(RDMA_CM_EVENT_DISCONNECTED, a, 0);
	ck_assert_int_eq(rdma_migrate_id(a, first), 0);
	rdma_destroy_event_channel(ch);
	ch = first;
	drop(a);
	ack(RDMA_CM_EVENT_DISCONNECTED, b, 0);
	drop(b);
	drop(l);
}
END_TEST

/* A goodbye that nobody answers ends by itself; so does the time after it. */
START_TEST(test_unanswered_goodbye)
{
	struct rdma_cm_id *l = listener(7000, 0), *a = routed("127.0.0.1", 7000), *b;

	sv_clock_advance(1);
	join(l, a, &b);
	ck_assert_int_eq(rdma_disconnect(a), 0);
	ack(RDMA_CM_EVENT_DISCONNECTED, b, 0);
	sv_clock_advance(10000000000u);
	no_event();
	sv_clock_advance(100000000000u);
	ack(RDMA_CM_EVENT_DISCONNECTED, a, 0);
	sv_clock_advance(10000000000u);
	ack(RDMA_CM_EVENT_TIMEWAIT_EXIT, a, 0);
	drop(a);
	drop(b);
	drop(l);
}
END_TEST

START_TEST(test_nonblocking)
{
	struct rdma_cm_event *e;

	ck_assert_int_eq(fcntl(ch->fd, F_SETFL, fcntl(ch->fd, F_GETFL) | O_NONBLOCK), 0);
	ck_assert_int_eq(rdma_get_cm_event(ch, &e), -1);
	ck_assert_int_eq(errno, EAGAIN);
}
END_TEST

/* ---- synchronous, as rdma_server(1) and rdma_client(1) do it ---- */

static void *server(void *arg)
{
	struct rdma_cm_id *l = arg, *id;
	char msg[16] = "";
	struct ibv_mr *mr;
	struct ibv_wc wc;

	ck_assert_int_eq(rdma_get_request(l, &id), 0);
	mr = rdma_reg_msgs(id, msg, sizeof msg);
	ck_assert_int_eq(rdma_post_recv(id, NULL, msg, sizeof msg, mr), 0);
	ck_assert_int_eq(rdma_accept(id, NULL), 0);
	ck_assert_int_eq(rdma_get_recv_comp(id, &wc), 1);
	ck_assert_int_eq(rdma_post_send(id, NULL, msg, sizeof msg, NULL, IBV_SEND_INLINE), 0);
	ck_assert_int_eq(rdma_get_send_comp(id, &wc), 1);
	ck_assert_int_eq(rdma_disconnect(id), 0);
	rdma_dereg_mr(mr);
	rdma_destroy_ep(id);
	return NULL;
}

static void sync_round(struct rdma_cm_id *l, const char *port)
{
	struct ibv_qp_init_attr attr = {.cap = {1, 1, 1, 1, 16}, .sq_sig_all = 1};
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *res;
	char msg[16] = "ping", got[16] = "";
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	struct ibv_wc wc;
	pthread_t t;

	ck_assert_int_eq(pthread_create(&t, NULL, server, l), 0);
	ck_assert_int_eq(rdma_getaddrinfo("127.0.0.1", port, &hints, &res), 0);
	ck_assert_int_eq(rdma_create_ep(&id, res, NULL, &attr), 0);
	rdma_freeaddrinfo(res);
	mr = rdma_reg_msgs(id, got, sizeof got);
	ck_assert_int_eq(rdma_post_recv(id, NULL, got, sizeof got, mr), 0);
	ck_assert_int_eq(rdma_connect(id, NULL), 0);
	ck_assert_int_eq(rdma_post_send(id, NULL, msg, sizeof msg, NULL, IBV_SEND_INLINE), 0);
	ck_assert_int_eq(rdma_get_send_comp(id, &wc), 1);
	ck_assert_int_eq(rdma_get_recv_comp(id, &wc), 1);
	ck_assert_str_eq(got, "ping");
	ck_assert_int_eq(rdma_disconnect(id), 0);
	ck_assert_int_eq(pthread_join(t, NULL), 0);
	rdma_dereg_mr(mr);
	rdma_destroy_ep(id);
}

START_TEST(test_sync)
{
	struct ibv_qp_init_attr attr = {.cap = {1, 1, 1, 1, 16}, .sq_sig_all = 1};
	struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP}, *res;
	struct rdma_cm_id *l;

	ck_assert_int_eq(rdma_getaddrinfo(NULL, "7471", &hints, &res), 0);
	ck_assert_int_eq(rdma_create_ep(&l, res, NULL, &attr), 0);
	rdma_freeaddrinfo(res);
	ck_assert_int_eq(rdma_listen(l, 0), 0);
	for (int i = 0; i < 50; i++)
		sync_round(l, "7471");
	rdma_destroy_ep(l);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("softverbs cm");
	TCase *t = tcase_create("cm");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, test_connect);
	tcase_add_test(t, test_destroy_tells);
	tcase_add_test(t, test_reject);
	tcase_add_test(t, test_nobody_listens);
	tcase_add_test(t, test_unanswered);
	tcase_add_test(t, test_backlog);
	tcase_add_test(t, test_addresses);
	tcase_add_test(t, test_two_devices);
	tcase_add_loop_test(t, test_personas, 0, (int)(sizeof personas / sizeof *personas));
	tcase_add_test(t, test_device_removal);
	tcase_add_test(t, test_datagrams);
	tcase_add_test(t, test_migrate);
	tcase_add_test(t, test_unanswered_goodbye);
	tcase_add_test(t, test_nonblocking);
	tcase_add_test(t, test_sync);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
