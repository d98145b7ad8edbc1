/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Mistakes of the caller's that no device is asked about: each is told by its errno and a sentence, and
 * whatever was given stays as it was.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../suite.h"
#include "ab_rig.h"

#define MANY_PDS 64 /* more than a process's pools and endpoints can have */

static void setup(void)
{
	open_rig((struct rig_attr){0});
}

#define REFUSED(err, call)                                                                         \
	do {                                                                                       \
		errno = 0;                                                                         \
		ck_assert(call);                                                                   \
		ck_assert_int_eq(errno, err);                                                      \
		ck_assert_int_gt(strlen(sgp_errmsg()), 0);                                         \
	} while (0)

/* ---- endpoints ---- */

static struct sgp_ep_attr plain(void)
{
	return (struct sgp_ep_attr){
		.cq = a->cq, .pd = a->pd, .cap = {.max_send_wr = 1, .max_recv_wr = 1}};
}

START_TEST(no_endpoint_from_wrong_attributes)
{
	const uint64_t qps = sv_total(SV_QPS);
	struct sgp_ep_attr attr;
	struct rdma_cm_id *id;

#define REFUSED_WITH(err, id, ...)                                                                 \
	do {                                                                                       \
		attr = plain();                                                                    \
		__VA_ARGS__;                                                                       \
		REFUSED(err, !sgp_ep_create(id, &attr));                                           \
	} while (0)
	REFUSED(EINVAL, !sgp_ep_create(NULL, NULL));
	REFUSED_WITH(EINVAL, NULL, attr.comp_mask = 1);
	REFUSED_WITH(EINVAL, NULL, attr.flags = 1);
	REFUSED_WITH(EINVAL, NULL, attr.cq = NULL);
	REFUSED_WITH(EINVAL, NULL, attr.pd = NULL);
	REFUSED_WITH(EINVAL, NULL, attr.max_chunk = -1);
	REFUSED_WITH(EINVAL, NULL, attr.num_recv = 1);
	REFUSED_WITH(EINVAL, a->id, (void)0); /* it has a queue pair */
	ck_assert_int_eq(rdma_create_id(a->events, &id, NULL, RDMA_PS_TCP), 0);
	REFUSED_WITH(EINVAL, id, (void)0); /* it has no device */
	ck_assert_int_eq(rdma_destroy_id(id), 0);
	REFUSED_WITH(EINVAL, NULL, attr.cap.max_send_wr = 0);
	REFUSED_WITH(EINVAL, NULL, attr.cap.max_recv_wr = 0);
	REFUSED_WITH(E2BIG, NULL, attr.cap.max_send_wr = 0x8001);
	REFUSED_WITH(E2BIG, NULL, attr.cap.max_recv_wr = UINT32_MAX);
	REFUSED_WITH(E2BIG, NULL, attr.cap.max_send_sge = 100000);
	REFUSED_WITH(E2BIG, NULL, attr.cap.max_recv_sge = 100000);
	ck_assert_uint_eq(sv_total(SV_QPS), qps);
}
END_TEST

START_TEST(no_endpoint_of_two_devices)
{
	const struct sgp_cq_attr of_cq = {.cqe = 4};
	struct ibv_device **list;
	struct ibv_context *other = NULL;
	struct sgp_ep_attr attr = plain();

	ck_assert_int_eq(sv_device_add("other0", "soft", 1), 0);
	list = ibv_get_device_list(NULL);
	for (int i = 0; list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), "other0"))
			other = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	ck_assert_ptr_nonnull(other);
	attr.cq = sgp_cq_create(other, &of_cq);
	ck_assert_ptr_nonnull(attr.cq);
	REFUSED(EINVAL, !sgp_ep_create(NULL, &attr));
	ck_assert_int_eq(sgp_cq_destroy(attr.cq), 0);
	ck_assert_int_eq(ibv_close_device(other), 0);
}
END_TEST

/* Chunks have room for the keys of so many domains, over the process. */
START_TEST(no_endpoint_without_a_place_for_its_domain)
{
	struct ibv_context *verbs = a->pd->context;
	struct ibv_pd *pd[MANY_PDS];
	struct sgp_cq *cq[MANY_PDS];
	struct sgp_ep *ep[MANY_PDS];
	int n;

	for (n = 0; n < MANY_PDS; n++) {
		struct sgp_ep_attr attr = plain();
		struct sgp_cq_attr of_cq = {.cqe = 2};

		ck_assert_ptr_nonnull(pd[n] = ibv_alloc_pd(verbs));
		attr.pd = pd[n];
		attr.cq = cq[n] = sgp_cq_create(verbs, &of_cq);
		ck_assert_ptr_nonnull(cq[n]);
		ep[n] = sgp_ep_create(NULL, &attr);
		if (ep[n])
			continue;
		ck_assert_int_eq(errno, ENOSPC);
		ck_assert_int_gt(strlen(sgp_errmsg()), 0);
		ck_assert_int_eq(sgp_cq_destroy(cq[n]), 0);
		ck_assert_int_eq(ibv_dealloc_pd(pd[n]), 0);
		break;
	}
	ck_assert_int_gt(n, 8);
	ck_assert_int_lt(n, MANY_PDS);
	while (n--) {
		ck_assert_int_eq(sgp_ep_close(ep[n], 0), 0);
		ck_assert_int_eq(sgp_ep_destroy(ep[n]), 0);
		ck_assert_int_eq(sgp_cq_destroy(cq[n]), 0);
		ck_assert_int_eq(ibv_dealloc_pd(pd[n]), 0);
	}
}
END_TEST

START_TEST(what_is_no_endpoint_and_no_completion_queue)
{
	struct sgp_ep_stats stats;
	struct sgp_ep_info info;
	struct rdma_cm_event event = {.event = RDMA_CM_EVENT_DISCONNECTED};

	REFUSED(EINVAL, sgp_ep_query(NULL, &info) == -1);
	REFUSED(EINVAL, sgp_ep_query(a->ep, NULL) == -1);
	REFUSED(EINVAL, sgp_ep_stats(NULL, &stats) == -1);
	REFUSED(EINVAL, sgp_ep_stats(a->ep, NULL) == -1);
	REFUSED(EINVAL, sgp_ep_refill(NULL) == -1);
	REFUSED(EINVAL, sgp_ep_event(a->ep, NULL) == -1);
	REFUSED(EINVAL, sgp_ep_event(NULL, &event) == -1);
	REFUSED(EINVAL, sgp_ep_close(NULL, 0) == -1);
	REFUSED(EINVAL, sgp_ep_destroy(NULL) == -1);
	REFUSED(EINVAL, sgp_ep_submit(NULL) == -1);
	REFUSED(EINVAL, sgp_ep_sync(NULL) == -1);
	REFUSED(EINVAL, !sgp_wc_alloc(NULL, 1));
	REFUSED(EINVAL, !sgp_wc_alloc(a->cq, 0));
	sgp_wc_free(NULL);
	/* Nothing of it has stopped anything. */
	rig_post_recv(b, NULL);
	rig_post_send(a, NULL, 'x');
	rig_reap(b, 1);
	ck_assert_int_eq(b->wc[0].status, IBV_WC_SUCCESS);
	sgp_sgl_clear(&b->wc[0].sgl);
}
END_TEST

/* ---- lists ---- */

/* A list of two slices that do not join. */
static void two_slices(struct sgp_sgl *sgl)
{
	struct sgp_chunk *chunk = rig_chunk(a, 'c');

	sgp_chunk_ref(chunk);
	ck_assert_int_eq(sgp_sgl_append(sgl, chunk, 0, 100), 0);
	ck_assert_int_eq(sgp_sgl_append(sgl, chunk, 200, 100), 0);
	ck_assert_int_eq(sgl->num_sge, 2);
}

static void check_two_slices(const struct sgp_sgl *sgl)
{
	ck_assert_int_eq(sgl->num_sge, 2);
	ck_assert_uint_eq(sgl->length, 200);
	ck_assert_uint_eq(sgl->sge[0].length, 100);
	ck_assert_uint_eq(sgl->sge[1].length, 100);
	ck_assert_uint_eq(sgl->sge[1].addr - sgl->sge[0].addr, 200);
}

START_TEST(no_list_no_pool_no_array)
{
	char outside[16];
	struct iovec iov = {.iov_base = outside, .iov_len = 1};
	struct ibv_sge sge = {.addr = (uintptr_t)outside, .length = 1};
	SGP_SGL(sgl, 4);

	two_slices(&sgl);
	REFUSED(EINVAL, sgp_sgl_append_iov(NULL, a->pool, &iov, 1) == -1);
	REFUSED(EINVAL, sgp_sgl_append_iov(&sgl, NULL, &iov, 1) == -1);
	REFUSED(EINVAL, sgp_sgl_append_iov(&sgl, a->pool, NULL, 1) == -1);
	REFUSED(EINVAL, sgp_sgl_append_iov(&sgl, a->pool, &iov, -1) == -1);
	REFUSED(EFAULT, sgp_sgl_append_iov(&sgl, a->pool, &iov, 1) == -1);
	REFUSED(EINVAL, sgp_sgl_append_sge(NULL, a->pool, &sge, 1) == -1);
	REFUSED(EINVAL, sgp_sgl_append_sge(&sgl, a->pool, NULL, 1) == -1);
	REFUSED(EFAULT, sgp_sgl_append_sge(&sgl, a->pool, &sge, 1) == -1);
	REFUSED(EINVAL, sgp_sgl_append_region(&sgl, NULL, 0, 1) == -1);
	REFUSED(EINVAL, sgp_sgl_append_foreign(NULL, outside, 1) == -1);
	REFUSED(EINVAL, sgp_sgl_append_foreign(&sgl, NULL, 1) == -1);
	REFUSED(EINVAL, sgp_sgl_append_foreign(&sgl, outside, (size_t)1 << 32) == -1);
	REFUSED(EINVAL, sgp_sgl_get(NULL, a->pool, 1, 1, 0) == -1);
	REFUSED(EINVAL, sgp_sgl_get(&sgl, NULL, 1, 1, 0) == -1);
	REFUSED(EINVAL, sgp_sgl_get(&sgl, a->pool, 1, -1, 0) == -1);
	REFUSED(EINVAL, sgp_sgl_linearise(NULL, a->pool) == -1);
	REFUSED(EINVAL, sgp_sgl_linearise(&sgl, NULL) == -1);
	check_two_slices(&sgl);
	ck_assert_int_eq(sgp_sgl_append_foreign(&sgl, outside, 0), 0);
	check_two_slices(&sgl);
	sgp_sgl_clear(&sgl);
	/* Nothing is in one piece already. */
	ck_assert_int_eq(sgp_sgl_linearise(&sgl, a->pool), 0);
	ck_assert_int_eq(sgl.num_sge, 0);
	rig_check_live(a, 0);
}
END_TEST

START_TEST(a_list_without_room)
{
	char outside[16];
	SGP_SGL(sgl, 2);
	SGP_SGL(one, 1);
	SGP_SGL(small, 1);
	struct sgp_chunk *other;

	two_slices(&sgl);
	REFUSED(E2BIG, sgp_sgl_append_foreign(&sgl, outside, 1) == -1);
	/* More SGEs, or more holds, go over than the other list takes. */
	REFUSED(E2BIG, sgp_sgl_split(&sgl, 50, &one) == -1);
	ck_assert_int_eq(one.num_sge, 0);
	check_two_slices(&sgl);
	sgp_sgl_clear(&sgl);
	other = rig_chunk(a, 'd');
	ck_assert_int_eq(sgp_sgl_append(&sgl, rig_chunk(a, 'c'), 0, 100), 0);
	ck_assert_int_eq(sgp_sgl_append(&sgl, other, 0, 100), 0);
	small.max_chunk = 0;
	REFUSED(E2BIG, sgp_sgl_split(&sgl, 100, &small) == -1);
	REFUSED(E2BIG, sgp_sgl_split(&sgl, 150, &small) == -1);
	ck_assert_int_eq(small.num_chunk, 0);
	ck_assert_int_eq(sgl.num_chunk, 2);
	ck_assert_uint_eq(sgl.length, 200);
	sgp_sgl_clear(&sgl);
	rig_check_live(a, 0);
}
END_TEST

/* ---- posts ---- */

START_TEST(no_such_operation)
{
	SGP_SGL(sgl, 4);
	struct sgp_wr wr = {.sgl = &sgl, .opcode = IBV_WR_SEND};
	char outside[8] = "outside";
	struct sgp_ep_stats before, after;

	two_slices(&sgl);
	ck_assert_int_eq(sgp_ep_stats(a->ep, &before), 0);
	REFUSED(EINVAL, sgp_post(NULL, &wr, NULL) == -1);
	REFUSED(EINVAL, sgp_post(a->ep, NULL, NULL) == -1);
	wr.opcode = IBV_WR_BIND_MW; /* of no list */
	REFUSED(EINVAL, sgp_post(a->ep, &wr, NULL) == -1);
	wr.opcode = IBV_WR_SEND;
	wr.flags = IBV_SEND_INLINE | SGP_HANDOVER;
	REFUSED(EINVAL, sgp_post(a->ep, &wr, NULL) == -1);
	wr.opcode = IBV_WR_RDMA_READ;
	wr.flags = IBV_SEND_INLINE;
	REFUSED(EINVAL, sgp_post(a->ep, &wr, NULL) == -1);
	wr.flags = SGP_LINEARISE;
	REFUSED(EINVAL, sgp_post(a->ep, &wr, NULL) == -1);
	wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	wr.flags = 0;
	REFUSED(EINVAL, sgp_post(a->ep, &wr, NULL) == -1);
	check_two_slices(&sgl);
	sgp_sgl_clear(&sgl);
	ck_assert_int_eq(sgp_sgl_append_foreign(&sgl, outside, sizeof outside), 0);
	wr.opcode = IBV_WR_RDMA_READ;
	REFUSED(EFAULT, sgp_post(a->ep, &wr, NULL) == -1);
	ck_assert_int_eq(sgl.num_sge, 1);
	ck_assert_int_eq(sgp_ep_stats(a->ep, &after), 0);
	ck_assert_uint_eq(after.posts, before.posts);
	sgp_sgl_clear(&sgl);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("refusals");
	TCase *tc = tcase_create("mistakes");

	suite_add_tcase(suite, tc);
	tcase_add_checked_fixture(tc, setup, close_rig);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, no_endpoint_from_wrong_attributes);
	tcase_add_test(tc, no_endpoint_of_two_devices);
	tcase_add_test(tc, no_endpoint_without_a_place_for_its_domain);
	tcase_add_test(tc, what_is_no_endpoint_and_no_completion_queue);
	tcase_add_test(tc, no_list_no_pool_no_array);
	tcase_add_test(tc, a_list_without_room);
	tcase_add_test(tc, no_such_operation);
	return suite_run(suite);
}
