/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections of every persona, of datagrams, on other channels; and ends that nobody answers. */
#include "../suite.h"
#include "cm_rig.h"

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

/* From one device to another, with the same QP number on both (case 44b). */
START_TEST(test_across_devices)
{
	struct sockaddr_in here = at("127.0.0.1", 0), there = at("127.0.1.1", 7000);
	struct rdma_cm_id *l, *a, *b;
	char text[] = "across", got[8] = "";
	struct ibv_mr *ma, *mb;
	struct ibv_wc wc;

	ck_assert_int_eq(sv_device_add("one", "soft", 1), 0);
	ck_assert_int_eq(sv_device_add("two", "rxe", 1), 0);
	l = listener(7000, 0);
	ck_assert_int_eq(rdma_create_id(ch, &a, NULL, RDMA_PS_TCP), 0);
	ck_assert_int_eq(
		rdma_resolve_addr(a, (struct sockaddr *)&here, (struct sockaddr *)&there, 1000), 0);
	ack(RDMA_CM_EVENT_ADDR_RESOLVED, a, 0);
	ck_assert_int_eq(rdma_resolve_route(a, 1000), 0);
	ack(RDMA_CM_EVENT_ROUTE_RESOLVED, a, 0);
	ck_assert_str_eq(ibv_get_device_name(a->verbs->device), "one");
	join(l, a, &b);
	ck_assert_str_eq(ibv_get_device_name(b->verbs->device), "two");
	ck_assert_uint_eq(a->qp->qp_num, b->qp->qp_num);
	ma = rdma_reg_msgs(a, text, sizeof text);
	mb = rdma_reg_msgs(b, got, sizeof got);
	ck_assert_int_eq(rdma_post_recv(b, got, got, sizeof got, mb), 0);
	ck_assert_int_eq(rdma_post_send(a, text, text, sizeof text, ma, IBV_SEND_SIGNALED), 0);
	ck_assert_int_eq(rdma_get_recv_comp(b, &wc), 1);
	ck_assert_str_eq(got, text);
	ck_assert_int_eq(rdma_dereg_mr(ma) | rdma_dereg_mr(mb), 0);
	drop(a);
	ack(RDMA_CM_EVENT_DISCONNECTED, b, 0);
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

int main(void)
{
	Suite *s = suite_create("softverbs cm_ends");
	TCase *t = tcase_create("cm_ends");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, test_personas, 0, (int)(sizeof personas / sizeof *personas));
	tcase_add_test(t, test_across_devices);
	tcase_add_test(t, test_device_removal);
	tcase_add_test(t, test_datagrams);
	tcase_add_test(t, test_migrate);
	tcase_add_test(t, test_unanswered_goodbye);
	suite_add_tcase(s, t);
	return suite_run(s);
}
