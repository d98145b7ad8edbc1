/* SPDX-License-Identifier: BSD-2-Clause */
/* What a queue refuses, and what is not torn down: nothing has changed then, and it goes on. */
#include <check.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "../suite.h"
#include "rig.h"

static int context[8];

/* A post that must be refused with err, before the provider, and change nothing. */
static void refused_send(struct rig_side *side, struct sgp_sgl *sgl, int flags, int err)
{
	struct sgp_sgl before = *sgl;
	uint64_t posts = sv_calls("post_send");

	errno = 0;
	ck_assert_int_eq(sgp_post_sendv(side->ep, NULL, sgl, flags), -1);
	ck_assert_int_eq(errno, err);
	ck_assert_int_gt(strlen(sgp_errmsg()), 0);
	ck_assert_mem_eq(sgl, &before, sizeof before);
	ck_assert_uint_eq(sv_calls("post_send"), posts);
}

static void refused_recv(struct rig_side *side, struct sgp_sgl *sgl, int err)
{
	struct sgp_sgl before = *sgl;
	uint64_t posts = sv_calls("post_recv");

	errno = 0;
	ck_assert_int_eq(sgp_post_recvv(side->ep, NULL, sgl), -1);
	ck_assert_int_eq(errno, err);
	ck_assert_mem_eq(sgl, &before, sizeof before);
	ck_assert_uint_eq(sv_calls("post_recv"), posts);
}

START_TEST(refusals_come_before_the_provider)
{
	struct rig rig, other;
	struct rig_attr attr = {.max_sge = 2};
	struct rig_side *a = &rig.side[0];
	SGP_SGL(one, 1);
	SGP_SGL(three, 3);
	SGP_SGL(foreign, 1);
	SGP_SGL(empty, 1);
	static char nobodys[10];

	rig_prepare(&rig, &attr);
	ck_assert_int_eq(sgp_sgl_append(&one, rig_chunk(a, 1), 0, 10), 0);
	refused_send(a, &one, 0, ENOTCONN);
	rig_connect(&rig);

	refused_send(a, &one, IBV_SEND_IP_CSUM, EINVAL);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(sgp_sgl_append(&three, rig_chunk(a, 1), 0, 10), 0);
	refused_send(a, &three, 0, E2BIG); /* case 20 */
	refused_recv(a, &three, E2BIG);
	refused_recv(a, &empty, EINVAL);

	rig_open(&other, NULL);
	ck_assert_int_eq(sgp_sgl_append(&foreign, rig_chunk(&other.side[0], 1), 0, 10), 0);
	refused_send(a, &foreign, 0, EXDEV); /* case 17 */
	refused_recv(a, &foreign, EXDEV);
	sgp_sgl_clear(&foreign);
	rig_close(&other);
	ck_assert_int_eq(sgp_sgl_append_foreign(&foreign, nobodys, sizeof nobodys), 0);
	refused_send(a, &foreign, 0, EFAULT);

	ck_assert_int_eq(sgp_ep_close(a->ep, 0), 0);
	refused_send(a, &one, 0, ESHUTDOWN);
	refused_recv(a, &one, ESHUTDOWN);
	rig_check_live(a, 4);
	sgp_sgl_clear(&one);
	sgp_sgl_clear(&three);
	rig_close(&rig);
	rig_check_no_leak();
}
END_TEST

START_TEST(case_24_no_message_above_what_the_port_takes)
{
	struct rig rig;
	struct rig_side *a;
	struct rig_attr attr = {.chunk_size = 1 << 20, .chunks = 10, .max_sge = 10};
	struct sgp_ep_info info;
	SGP_SGL(sgl, 10);

	/* rxe's port takes 8 MiB. */
	ck_assert_int_eq(sv_device_add("small", "rxe", 1), 0);
	rig_open(&rig, &attr);
	a = &rig.side[0];
	ck_assert_int_eq(sgp_ep_query(a->ep, &info), 0);
	ck_assert_uint_eq(info.max_msg, 8 << 20);
	for (int i = 0; i < 8; i++)
		ck_assert_int_eq(sgp_sgl_append(&sgl, rig_chunk(a, 1), 0, 1 << 20), 0);
	ck_assert_int_eq(sgp_sgl_append(&sgl, rig_chunk(a, 1), 0, 1), 0);
	refused_send(a, &sgl, 0, EMSGSIZE);
	sgp_sgl_clear(&sgl);
	rig_close(&rig);
}
END_TEST

START_TEST(case_28_29_a_full_queue_is_refused_before_the_provider)
{
	struct rig rig;
	struct rig_attr attr = {.depth = 4};
	struct rig_side *a = &rig.side[0], *b = &rig.side[1];
	struct sgp_ep_info info;
	SGP_SGL(sgl, 1);

	rig_open(&rig, &attr);
	for (int round = 0; round < 100; round++) {
		for (int i = 0; i < 4; i++)
			rig_post_recv(b, NULL);
		ck_assert_int_eq(sgp_sgl_append(&sgl, rig_chunk(b, 1), 0, 10), 0);
		refused_recv(b, &sgl, EAGAIN);
		sgp_sgl_clear(&sgl);
		for (int i = 0; i < 4; i++)
			rig_post_send(a, &context[i], i);
		/* The peer has them all, but our completions are not polled: still full. */
		rig_reap(b, 4);
		ck_assert_int_eq(sgp_ep_query(a->ep, &info), 0);
		ck_assert_int_eq(info.send_room, 0);
		ck_assert_int_eq(info.send_posted, 4);
		ck_assert_int_eq(sgp_sgl_append(&sgl, rig_chunk(a, 1), 0, 10), 0);
		refused_send(a, &sgl, 0, EAGAIN);
		sgp_sgl_clear(&sgl);
		rig_reap(a, 4);
		for (int i = 0; i < 4; i++)
			ck_assert_ptr_eq(a->wc[i].context, &context[i]);
	}
	rig_close(&rig);
}
END_TEST

START_TEST(a_refusal_of_the_device_changes_nothing)
{
	struct rig rig;
	struct rig_side *a = &rig.side[0], *b = &rig.side[1];
	bool struck;

	rig_open(&rig, NULL);
	for (uint64_t n = 0; n < 100; n++) {
		/* Fail at post n, n = 0, 1, 2 ... until none fails. */
		struck = false;
		ck_assert_int_eq(sv_fail_nth("post_send", n, ENOMEM), 0);
		ck_assert_int_eq(sv_fail_nth("post_recv", n, EIO), 0);
		for (int i = 0; i < 4; i++) {
			SGP_SGL(recv, 1);
			SGP_SGL(send, 2);
			struct sgp_sgl before;

			ck_assert_int_eq(sgp_sgl_append(&recv, rig_chunk(b, 0), 0, 64), 0);
			before = recv;
			if (sgp_post_recvv(b->ep, NULL, &recv)) {
				ck_assert_int_eq(errno, EIO);
				ck_assert_mem_eq(&recv, &before, sizeof before);
				rig_check_live(b, 1);
				struck = true;
				ck_assert_int_eq(sgp_post_recvv(b->ep, NULL, &recv), 0);
			}
			ck_assert_int_eq(sgp_sgl_append(&send, rig_chunk(a, i), 0, 10), 0);
			ck_assert_int_eq(sgp_sgl_append(&send, rig_chunk(a, i), 8, 10), 0);
			before = send;
			if (sgp_post_sendv(a->ep, NULL, &send, IBV_SEND_SIGNALED)) {
				ck_assert_int_eq(errno, ENOMEM);
				ck_assert_mem_eq(&send, &before, sizeof before);
				rig_check_live(a, 2);
				struck = true;
				ck_assert_int_eq(
					sgp_post_sendv(a->ep, NULL, &send, IBV_SEND_SIGNALED), 0);
			}
			rig_reap(a, 1);
			rig_reap(b, 1);
			rig_check_bytes(&b->wc[0].sgl, i);
			sgp_sgl_clear(&b->wc[0].sgl);
			rig_check_live(a, 0);
			rig_check_live(b, 0);
		}
		sv_faults_clear();
		if (!struck) {
			ck_assert_uint_ge(n, 4);
			break;
		}
	}
	ck_assert(!struck);
	rig_close(&rig);
	rig_check_no_leak();
}
END_TEST

START_TEST(case_39_nothing_in_use_is_torn_down)
{
	struct rig rig;
	struct rig_side *b = &rig.side[1];

	rig_open(&rig, NULL);
	rig_post_recv(b, &context[0]);
	ck_assert_int_eq(sgp_pool_destroy(b->pool), -1);
	ck_assert_int_eq(errno, EBUSY);
	ck_assert_int_eq(sgp_cq_destroy(b->cq), -1);
	ck_assert_int_eq(errno, EBUSY);
	ck_assert_int_eq(sgp_ep_destroy(b->ep), -1);
	ck_assert_int_eq(errno, EBUSY);
	/* All of it still works. */
	rig_post_send(&rig.side[0], NULL, 'k');
	rig_reap(b, 1);
	rig_check_bytes(&b->wc[0].sgl, 'k');
	rig_post_recv(b, &context[1]);
	ck_assert_int_eq(sgp_ep_close(b->ep, 100), 0);
	ck_assert_int_eq(sgp_ep_close(b->ep, 100), 0);
	ck_assert_int_eq(sgp_ep_destroy(b->ep), -1); /* its flush is not polled yet */
	ck_assert_int_eq(errno, EBUSY);
	rig_reap(b, 1);
	ck_assert_ptr_eq(b->wc[0].context, &context[1]);
	ck_assert_int_eq(b->wc[0].status, IBV_WC_WR_FLUSH_ERR);
	ck_assert_int_eq(b->wc[0].opcode, IBV_WC_RECV);
	ck_assert_uint_eq(b->wc[0].sgl.length, 4096);
	sgp_sgl_clear(&b->wc[0].sgl);
	rig_close(&rig);
	rig_check_no_leak();
}
END_TEST

START_TEST(a_disconnect_flushes_the_other_side)
{
	struct rig rig;
	struct rig_side *a = &rig.side[0], *b = &rig.side[1];
	SGP_SGL(sgl, 1);

	rig_open(&rig, NULL);
	rig_post_recv(b, &context[0]);
	rig_post_recv(b, &context[1]);
	ck_assert_int_eq(rdma_disconnect(a->id), 0);
	rig_expect_event(rig.listen_events, RDMA_CM_EVENT_DISCONNECTED, NULL, b->ep);
	ck_assert_int_eq(sgp_sgl_append(&sgl, rig_chunk(b, 1), 0, 10), 0);
	refused_send(b, &sgl, 0, ESHUTDOWN);
	sgp_sgl_clear(&sgl);
	ck_assert_int_eq(rdma_disconnect(b->id), 0);
	rig_reap(b, 2);
	for (int i = 0; i < 2; i++) {
		ck_assert_ptr_eq(b->wc[i].context, &context[i]);
		ck_assert_int_eq(b->wc[i].status, IBV_WC_WR_FLUSH_ERR);
		sgp_sgl_clear(&b->wc[i].sgl);
	}
	rig_close(&rig);
	rig_check_no_leak();
}
END_TEST

START_TEST(case_34_the_queue_has_room_for_all_or_is_resized_first)
{
	struct rig rig;
	struct rig_attr attr = {.depth = 4, .cqe = 8};
	struct rig_side *b = &rig.side[1];
	struct rdma_cm_id *id;
	struct sgp_ep_attr ep = {.cap = {.max_send_wr = 4, .max_recv_wr = 4}};
	struct sgp_ep *second;
	struct sockaddr_storage addr;
	uint64_t resizes;

	rig_open(&rig, &attr);
	memcpy(&addr, rdma_get_local_addr(rig.side[0].id), sizeof(struct sockaddr_in));
	ck_assert_int_eq(rdma_create_id(rig.listen_events, &id, NULL, RDMA_PS_TCP), 0);
	((struct sockaddr_in *)&addr)->sin_port = 0;
	ck_assert_int_eq(rdma_bind_addr(id, (struct sockaddr *)&addr), 0);
	ck_assert_ptr_nonnull(id->verbs);
	ep.cq = b->cq;
	ep.pd = b->pd;

	resizes = sv_calls("resize_cq");
	ck_assert_int_eq(sv_fail_nth("resize_cq", 0, EOPNOTSUPP), 0);
	ck_assert_ptr_null(sgp_ep_create(id, &ep));
	ck_assert_int_eq(errno, EOPNOTSUPP);
	ck_assert_uint_eq(sv_calls("resize_cq"), resizes + 1);
	sv_faults_clear();
	rig_post_recv(b, &context[0]);
	rig_post_send(&rig.side[0], NULL, 1);
	rig_reap(b, 1);
	ck_assert_ptr_eq(b->wc[0].context, &context[0]);

	second = sgp_ep_create(id, &ep);
	ck_assert_msg(second != NULL, "%s", sgp_errmsg());
	ck_assert_uint_eq(sv_calls("resize_cq"), resizes + 2);
	ck_assert_int_eq(sgp_ep_close(second, 0), 0);
	ck_assert_int_eq(sgp_ep_destroy(second), 0);
	ck_assert_int_eq(rdma_destroy_id(id), 0);
	rig_close(&rig);
}
END_TEST

START_TEST(a_failed_creation_leaves_nothing)
{
	static const char *const calls[] = {"create_cq", "create_comp_channel", "query_device",
					    "query_port", "create_qp"};

	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
		struct rig rig;
		struct rig_side *b = &rig.side[1];
		struct sgp_cq_attr cq_attr = {.cqe = 8};
		struct sgp_ep_attr ep_attr = {.cap = {.max_send_wr = 4, .max_recv_wr = 4}};
		struct sgp_cq *cq;
		struct sgp_ep *ep = NULL;

		/* case 38: fail step k, then try again. */
		rig_prepare(&rig, NULL);
		ck_assert_int_eq(sgp_ep_close(b->ep, 0), 0);
		ck_assert_int_eq(sgp_ep_destroy(b->ep), 0);
		ck_assert_int_eq(sv_fail_nth(calls[i], 0, EACCES), 0);
		for (int try = 0; try < 2; try++) {
			cq = sgp_cq_create(b->id->verbs, &cq_attr);
			if (cq) {
				ep_attr.cq = cq;
				ep_attr.pd = b->pd;
				ep = sgp_ep_create(b->id, &ep_attr);
			}
			if (!try) {
				ck_assert_int_eq(errno, EACCES);
				ck_assert_ptr_null(ep);
				ck_assert_int_eq(sv_failed(calls[i]), 1);
				if (cq)
					ck_assert_int_eq(sgp_cq_destroy(cq), 0);
			}
		}
		ck_assert_msg(ep != NULL, "%s", sgp_errmsg());
		ck_assert_int_eq(sgp_ep_close(ep, 0), 0);
		ck_assert_int_eq(sgp_ep_destroy(ep), 0);
		ck_assert_int_eq(sgp_cq_destroy(cq), 0);
		ck_assert_int_eq(rdma_destroy_id(b->id), 0);
		b->ep = NULL;
		b->id = NULL;
		sv_faults_clear();
		rig_close(&rig);
		rig_check_no_leak();
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("refused posts");
	TCase *tc = tcase_create("queues");

	suite_add_tcase(suite, tc);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, refusals_come_before_the_provider);
	tcase_add_test(tc, case_24_no_message_above_what_the_port_takes);
	tcase_add_test(tc, case_28_29_a_full_queue_is_refused_before_the_provider);
	tcase_add_test(tc, a_refusal_of_the_device_changes_nothing);
	tcase_add_test(tc, case_39_nothing_in_use_is_torn_down);
	tcase_add_test(tc, a_disconnect_flushes_the_other_side);
	tcase_add_test(tc, case_34_the_queue_has_room_for_all_or_is_resized_first);
	tcase_add_test(tc, a_failed_creation_leaves_nothing);
	return suite_run(suite);
}
