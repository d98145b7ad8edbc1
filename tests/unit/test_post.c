/* SPDX-License-Identifier: BSD-2-Clause */
/* Posting and reaping: who owns each chunk, on success, on refusal, on error, and at the end. */
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "../suite.h"
#include "rig.h"

static int context[64];

/* One assertion for all: Check makes each a write to a file. */
static void check_bytes(const struct sgp_sgl *sgl, int byte)
{
	int wrong = 0;

	for (int i = 0; i < sgl->num_sge; i++) {
		const char *at = (const char *)(uintptr_t)sgl->sge[i].addr;

		for (uint32_t j = 0; j < sgl->sge[i].length; j++)
			wrong += at[j] != (char)byte;
	}
	ck_assert_int_eq(wrong, 0);
}

START_TEST(a_message_arrives_and_every_chunk_comes_home)
{
	struct rig rig;
	struct rig_side *a = &rig.side[0], *b = &rig.side[1];
	SGP_SGL(sgl, 4);
	struct sgp_chunk *chunk;

	rig_open(&rig, NULL);
	rig_post_recv(b, &context[1]);
	rig_check_live(b, 1);

	/* Two slices, 100 bytes of a receive of 4096. */
	chunk = rig_chunk(a, 'x');
	sgp_chunk_ref(chunk);
	ck_assert_int_eq(sgp_sgl_append(&sgl, chunk, 5, 40), 0);
	ck_assert_int_eq(sgp_sgl_append(&sgl, chunk, 1000, 60), 0);
	ck_assert_int_eq(sgp_post_sendv(a->ep, &context[0], &sgl, IBV_SEND_SIGNALED), 0);
	ck_assert_int_eq(sgl.num_sge + sgl.num_chunk, 0);
	ck_assert_uint_eq(sgl.length, 0);
	rig_check_live(a, 1);

	rig_reap(b, 1);
	ck_assert_ptr_eq(b->wc[0].context, &context[1]);
	ck_assert_ptr_eq(b->wc[0].ep, b->ep);
	ck_assert_int_eq(b->wc[0].opcode, IBV_WC_RECV);
	ck_assert_int_eq(b->wc[0].status, IBV_WC_SUCCESS);
	ck_assert_uint_eq(b->wc[0].byte_len, 100);
	ck_assert_uint_eq(b->wc[0].sgl.length, 100);
	ck_assert_int_eq(b->wc[0].sgl.num_chunk, 1);
	check_bytes(&b->wc[0].sgl, 'x');
	rig_check_live(b, 1);
	sgp_sgl_clear(&b->wc[0].sgl);
	rig_check_live(b, 0);

	rig_reap(a, 1);
	ck_assert_ptr_eq(a->wc[0].context, &context[0]);
	ck_assert_int_eq(a->wc[0].opcode, IBV_WC_SEND);
	ck_assert_int_eq(a->wc[0].status, IBV_WC_SUCCESS);
	ck_assert_int_eq(a->wc[0].sgl.num_chunk, 0);
	rig_check_live(a, 0);
	rig_close(&rig);
	rig_check_no_leak();
}
END_TEST

START_TEST(an_unsignalled_send_gives_no_completion_but_comes_home)
{
	struct rig rig;
	struct rig_side *a = &rig.side[0], *b = &rig.side[1];

	rig_open(&rig, NULL);
	for (int i = 0; i < 1000; i++) {
		SGP_SGL(sgl, 1);

		rig_post_recv(b, NULL);
		ck_assert_int_eq(sgp_sgl_append(&sgl, rig_chunk(a, i), 0, 10), 0);
		ck_assert_int_eq(sgp_post_sendv(a->ep, NULL, &sgl, 0), 0);
		rig_reap(b, 1);
		check_bytes(&b->wc[0].sgl, i);
		sgp_sgl_clear(&b->wc[0].sgl);
		ck_assert_int_eq(sgp_wait(a->cq, RIG_WC, a->wc, 0), 0);
	}
	rig_idle(a);
	rig_check_live(a, 0);
	rig_close(&rig);
}
END_TEST

static void many_holds(struct rig_side *side, struct sgp_ep_attr *ep)
{
	(void)side;
	ep->max_chunk = 300;
}

/* More than a poll gives back at a time, of one message and of several together. */
START_TEST(many_holds_come_home_in_one_poll)
{
	static const int holds[] = {100, 1, 100, 300, 3, 192, 193, 7};
	const int n = sizeof holds / sizeof holds[0];
	struct rig rig;
	struct rig_side *a = &rig.side[0], *b = &rig.side[1];

	rig_open(&rig,
		 &(struct rig_attr){
			 .chunk_size = 64, .chunks = 1024, .cq_sge = 300, .tune = many_holds});
	for (int round = 0; round < 3; round++) {
		SGP_SGL(sgl, 301);
		int live = 0, signalled = 0;

		/* One more than a slot holds. */
		ck_assert_int_eq(sgp_sgl_append(&sgl, rig_chunk(a, 1), 0, 10), 0);
		for (int j = 0; j < 300; j++)
			ck_assert_int_eq(sgp_sgl_append(&sgl, rig_chunk(a, 1), 0, 0), 0);
		ck_assert_int_eq(sgp_post_sendv(a->ep, NULL, &sgl, 0), -1);
		ck_assert_int_eq(errno, E2BIG);
		ck_assert_int_eq(sgl.num_chunk, 301);
		sgp_sgl_clear(&sgl);

		for (int i = 0; i < n; i++) {
			/* The last one, whose completion is last, and every third of the others. */
			int flags = i == n - 1 || i % 3 == round ? IBV_SEND_SIGNALED : 0;

			rig_post_recv(b, NULL);
			ck_assert_int_eq(sgp_sgl_append(&sgl, rig_chunk(a, i), 0, 10), 0);
			for (int j = 1; j < holds[i]; j++)
				ck_assert_int_eq(sgp_sgl_append(&sgl, rig_chunk(a, i), 0, 0), 0);
			ck_assert_msg(!sgp_post_sendv(a->ep, &context[i], &sgl, flags), "%s",
				      sgp_errmsg());
			live += holds[i];
			signalled += flags != 0;
		}
		rig_check_live(a, (uint64_t)live);
		rig_reap(b, n);
		rig_reap(a, signalled);
		rig_check_live(a, 0);
	}
	rig_close(&rig);
}
END_TEST

START_TEST(an_empty_send_arrives_as_an_empty_list)
{
	struct rig rig;
	SGP_SGL(sgl, 1);

	rig_open(&rig, NULL);
	rig_post_recv(&rig.side[1], NULL);
	ck_assert_int_eq(sgp_post_sendv(rig.side[0].ep, NULL, &sgl, IBV_SEND_SIGNALED), 0);
	rig_reap(&rig.side[1], 1);
	ck_assert_int_eq(rig.side[1].wc[0].status, IBV_WC_SUCCESS);
	ck_assert_uint_eq(rig.side[1].wc[0].byte_len, 0);
	ck_assert_int_eq(rig.side[1].wc[0].sgl.num_sge, 0);
	rig_check_live(&rig.side[1], 0);
	rig_close(&rig);
}
END_TEST

START_TEST(what_a_completion_holds_is_dropped_when_it_is_used_again)
{
	struct rig rig;
	struct rig_side *b = &rig.side[1];

	rig_open(&rig, NULL);
	for (int i = 0; i < 2; i++) {
		rig_post_recv(b, NULL);
		rig_post_send(&rig.side[0], NULL, 'a' + i);
		rig_reap(b, 1);
		rig_check_live(b, 1);
		check_bytes(&b->wc[0].sgl, 'a' + i);
	}
	sgp_wc_free(b->wc);
	rig_check_live(b, 0);
	b->wc = sgp_wc_alloc(b->cq, RIG_WC);
	ck_assert_ptr_nonnull(b->wc);
	rig_close(&rig);
}
END_TEST

START_TEST(case_52b_a_chunk_in_flight_is_not_handed_out)
{
	struct rig rig;
	struct rig_attr attr = {.chunks = 1};
	struct rig_side *a = &rig.side[0];

	rig_open(&rig, &attr);
	rig_post_send(a, NULL, 'o'); /* no receive yet: it waits at the peer's door */
	ck_assert_ptr_null(sgp_pool_get(a->pool, 1, 0));
	ck_assert_int_eq(errno, ENOBUFS);
	rig_post_recv(&rig.side[1], NULL);
	rig_reap(a, 1);
	rig_reap(&rig.side[1], 1);
	check_bytes(&rig.side[1].wc[0].sgl, 'o');
	sgp_chunk_put(rig_chunk(a, 'n'));
	rig_close(&rig);
}
END_TEST

START_TEST(case_52d_the_list_may_be_wiped_after_the_post)
{
	struct rig rig;
	struct rig_side *a = &rig.side[0], *b = &rig.side[1];

	rig_open(&rig, NULL);
	rig_post_recv(b, &context[2]);
	{
		SGP_SGL(sgl, 3);

		for (int i = 0; i < 3; i++)
			ck_assert_int_eq(sgp_sgl_append(&sgl, rig_chunk(a, 'w'), 0, 100), 0);
		ck_assert_int_eq(sgp_post_sendv(a->ep, &context[3], &sgl, IBV_SEND_SIGNALED), 0);
		memset(sgl_sge, 0xee, sizeof sgl_sge);
		memset(sgl_chunk, 0xee, sizeof sgl_chunk);
		memset(&sgl, 0xee, sizeof sgl);
	}
	rig_reap(b, 1);
	ck_assert_uint_eq(b->wc[0].byte_len, 300);
	check_bytes(&b->wc[0].sgl, 'w');
	rig_reap(a, 1);
	ck_assert_ptr_eq(a->wc[0].context, &context[3]);
	rig_check_live(a, 0);
	rig_close(&rig);
}
END_TEST

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
			check_bytes(&b->wc[0].sgl, i);
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
	check_bytes(&b->wc[0].sgl, 'k');
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

START_TEST(case_44_each_context_is_flushed_once_at_close)
{
	struct rig_attr attr = {.chunks = 8, .depth = 4, .rnr_retry = 7};

	for (int round = 0; round < 300; round++) {
		struct rig rig;
		struct rig_side *a = &rig.side[0];
		int seen[8] = {0}, n, got = 0;

		rig_open(&rig, &attr);
		/* The peer posts no receive: the sends stay in the queue. */
		for (int i = 0; i < 4; i++) {
			rig_post_recv(a, &context[i]);
			rig_post_send(a, &context[4 + i], i);
		}
		rig_check_live(a, 8);
		/* With time for the flushes to come, and with none. */
		ck_assert_int_eq(sgp_ep_close(a->ep, round % 2 ? 0 : 1000), 0);
		while ((n = sgp_poll(a->cq, 3, a->wc)) > 0) {
			for (int i = 0; i < n; i++) {
				seen[(int *)a->wc[i].context - context]++;
				ck_assert_int_ne(a->wc[i].status, IBV_WC_SUCCESS);
				sgp_sgl_clear(&a->wc[i].sgl);
			}
			got += n;
		}
		ck_assert_int_eq(got, 8);
		for (int i = 0; i < 8; i++)
			ck_assert_int_eq(seen[i], 1);
		rig_check_live(a, 0);
		rig_close(&rig);
	}
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

START_TEST(a_thousand_rounds_leave_nothing)
{
	for (int round = 0; round < 1000; round++) {
		struct rig rig;

		rig_open(&rig, NULL);
		rig_post_recv(&rig.side[1], NULL);
		rig_post_send(&rig.side[0], NULL, round);
		rig_reap(&rig.side[0], 1);
		rig_reap(&rig.side[1], 1);
		check_bytes(&rig.side[1].wc[0].sgl, round);
		sgp_sgl_clear(&rig.side[1].wc[0].sgl);
		ck_assert_int_eq(rdma_disconnect(rig.side[0].id), 0);
		rig_close(&rig);
		rig_check_no_leak();
	}
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

START_TEST(case_36_a_closed_endpoints_completions_touch_no_other)
{
	/* Providers like rxe keep a destroyed queue pair's completions in the queue (law 2.8). */
	ck_assert_int_eq(sv_device_add("rxe", "rxe", 1), 0);
	for (int round = 0; round < 50; round++) {
		struct rig rig;
		struct rig_attr attr = {.depth = 4, .cqe = 64};
		struct rig_side *a = &rig.side[0];

		rig_open(&rig, &attr);
		for (int i = 0; i < 4; i++)
			rig_post_recv(a, &context[i]);
		ck_assert_int_eq(sgp_ep_close(a->ep, 0), 0);
		rig_reap(a, 4);
		for (int i = 0; i < 4; i++) {
			ck_assert_ptr_eq(a->wc[i].context, &context[i]);
			sgp_sgl_clear(&a->wc[i].sgl);
		}
		rig_check_live(a, 0);
		ck_assert_int_eq(sgp_poll(a->cq, RIG_WC, a->wc), 0);
		rig_close(&rig);
	}
	rig_check_no_leak();
}
END_TEST

START_TEST(waiting_ends_with_the_time_or_a_completion)
{
	struct rig rig;
	struct rig_side *a = &rig.side[0], *b = &rig.side[1];
	struct pollfd pfd;

	rig_open(&rig, NULL);
	ck_assert_int_eq(sgp_wait(b->cq, 1, b->wc, 0), 0);
	ck_assert_int_eq(sgp_wait(b->cq, 1, b->wc, 20), 0);

	/* The descriptor: not readable when armed, readable once something came. */
	rig_post_recv(b, NULL);
	ck_assert_int_eq(sgp_cq_arm(b->cq), 0);
	ck_assert_int_eq(sgp_poll(b->cq, 1, b->wc), 0);
	pfd = (struct pollfd){.fd = sgp_cq_fd(b->cq), .events = POLLIN};
	ck_assert_int_eq(poll(&pfd, 1, 0), 0);
	rig_post_send(a, NULL, 1);
	ck_assert_int_eq(poll(&pfd, 1, 5000), 1);
	ck_assert_int_eq(sgp_poll(b->cq, 1, b->wc), 1);
	sgp_sgl_clear(&b->wc[0].sgl);
	ck_assert_int_eq(sgp_cq_arm(b->cq), 0);
	ck_assert_int_eq(poll(&pfd, 1, 0), 0);

	/* A close's leftovers wake it too, though no device announces them. */
	rig_post_recv(b, NULL);
	ck_assert_int_eq(sgp_ep_close(b->ep, 0), 0);
	ck_assert_int_eq(poll(&pfd, 1, 5000), 1);
	rig_reap(b, 1);
	sgp_sgl_clear(&b->wc[0].sgl);
	rig_close(&rig);
}
END_TEST

static void *wait_for_one(void *arg)
{
	struct rig_side *side = arg;

	return (void *)(intptr_t)sgp_wait(side->cq, 1, side->wc, 10000);
}

START_TEST(a_sleeping_waiter_is_woken_by_another_thread)
{
	struct rig rig;
	struct rig_side *b = &rig.side[1];

	rig_open(&rig, NULL);
	for (int i = 0; i < 50; i++) {
		pthread_t thread;
		void *got;

		rig_post_recv(b, &context[i]);
		ck_assert_int_eq(pthread_create(&thread, NULL, wait_for_one, b), 0);
		rig_post_send(&rig.side[0], NULL, i);
		ck_assert_int_eq(pthread_join(thread, &got), 0);
		ck_assert_int_eq((intptr_t)got, 1);
		ck_assert_ptr_eq(b->wc[0].context, &context[i]);
		check_bytes(&b->wc[0].sgl, i);
		rig_reap(&rig.side[0], 1);
	}
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
	Suite *suite = suite_create("post");
	TCase *tc = tcase_create("queues");

	suite_add_tcase(suite, tc);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, a_message_arrives_and_every_chunk_comes_home);
	tcase_add_test(tc, an_unsignalled_send_gives_no_completion_but_comes_home);
	tcase_add_test(tc, many_holds_come_home_in_one_poll);
	tcase_add_test(tc, an_empty_send_arrives_as_an_empty_list);
	tcase_add_test(tc, what_a_completion_holds_is_dropped_when_it_is_used_again);
	tcase_add_test(tc, case_52b_a_chunk_in_flight_is_not_handed_out);
	tcase_add_test(tc, case_52d_the_list_may_be_wiped_after_the_post);
	tcase_add_test(tc, refusals_come_before_the_provider);
	tcase_add_test(tc, case_24_no_message_above_what_the_port_takes);
	tcase_add_test(tc, case_28_29_a_full_queue_is_refused_before_the_provider);
	tcase_add_test(tc, a_refusal_of_the_device_changes_nothing);
	tcase_add_test(tc, case_39_nothing_in_use_is_torn_down);
	tcase_add_test(tc, case_44_each_context_is_flushed_once_at_close);
	tcase_add_test(tc, a_disconnect_flushes_the_other_side);
	tcase_add_test(tc, a_thousand_rounds_leave_nothing);
	tcase_add_test(tc, case_34_the_queue_has_room_for_all_or_is_resized_first);
	tcase_add_test(tc, case_36_a_closed_endpoints_completions_touch_no_other);
	tcase_add_test(tc, waiting_ends_with_the_time_or_a_completion);
	tcase_add_test(tc, a_sleeping_waiter_is_woken_by_another_thread);
	tcase_add_test(tc, a_failed_creation_leaves_nothing);
	return suite_run(suite);
}
