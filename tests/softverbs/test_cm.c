/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections within one process: the asynchronous flow in one thread, the synchronous one in two.
 */
#include "../suite.h"
#include "cm_rig.h"

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

static void check_retries(struct rdma_cm_id *id, int retries, int rnr_retries)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	ck_assert_int_eq(ibv_query_qp(id->qp, &attr, IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY, &init),
			 0);
	ck_assert_int_eq(attr.retry_cnt, retries);
	ck_assert_int_eq(attr.rnr_retry, rnr_retries);
}

/* rdma_accept(3): what it says of retries is ignored, and each end says what the other one's RNR ones are. */
START_TEST(test_retries)
{
	struct rdma_cm_id *l = listener(7000, 0), *a = routed("127.0.0.1", 7000), *b;
	struct rdma_conn_param p = {.retry_count = 5, .rnr_retry_count = 3};
	struct rdma_cm_event *e;

	make_qp(a);
	ck_assert_int_eq(rdma_connect(a, &p), 0);
	e = event(RDMA_CM_EVENT_CONNECT_REQUEST, NULL);
	b = e->id;
	ck_assert_int_eq(rdma_ack_cm_event(e), 0);
	make_qp(b);
	p = (struct rdma_conn_param){.retry_count = 1, .rnr_retry_count = 6};
	ck_assert_int_eq(rdma_accept(b, &p), 0);
	ack(RDMA_CM_EVENT_ESTABLISHED, a, 0);
	ack(RDMA_CM_EVENT_ESTABLISHED, b, 0);
	check_retries(a, 5, 6);
	check_retries(b, 5, 3);
	drop(a);
	ack(RDMA_CM_EVENT_DISCONNECTED, b, 0);
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

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, test_connect);
	tcase_add_test(t, test_retries);
	tcase_add_test(t, test_destroy_tells);
	tcase_add_test(t, test_reject);
	tcase_add_test(t, test_nobody_listens);
	tcase_add_test(t, test_unanswered);
	tcase_add_test(t, test_backlog);
	tcase_add_test(t, test_addresses);
	tcase_add_test(t, test_two_devices);
	tcase_add_test(t, test_nonblocking);
	tcase_add_test(t, test_sync);
	suite_add_tcase(s, t);
	return suite_run(s);
}
