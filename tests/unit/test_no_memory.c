/* SPDX-License-Identifier: BSD-2-Clause */
/* Queues whose making fails for want of memory, at each step: none is made, nothing is left (case 38). */
#include <check.h>
#include <errno.h>

#include "../suite.h"
#include "ab_rig.h"

/* Arrays of so many work requests can't be had; 0: all can. */
static size_t no_memory_for;

/* So many callocs of this thread from now on there is no memory; 0: there is. */
static _Thread_local int without_memory_in;

void *__real_calloc(size_t n, size_t size);
/* Visible, as the linker wants it where a shared library is instrumented too. */
__attribute__((visibility("default"))) void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
	if (n && n == no_memory_for && size == sizeof(struct ibv_send_wr))
		return NULL;
	if (without_memory_in && !--without_memory_in)
		return NULL;
	return __real_calloc(n, size);
}

START_TEST(without_memory_for_its_requests_nothing_is_made)
{
	struct sgp_ep_attr attr = {.cap = {.max_send_wr = 13, .max_recv_wr = 1}};
	struct sgp_cq_attr cq = {.cqe = 14};

	open_rig((struct rig_attr){0});
	attr.pd = a->pd;
	attr.cq = sgp_cq_create(a->id->verbs, &cq);
	ck_assert_ptr_nonnull(attr.cq);
	no_memory_for = 13;
	errno = 0;
	ck_assert_ptr_null(sgp_ep_create(NULL, &attr));
	no_memory_for = 0;
	ck_assert_int_eq(errno, ENOMEM);
	ck_assert_int_eq(sgp_cq_destroy(attr.cq), 0);
	close_rig();
}
END_TEST

START_TEST(no_memory_for_a_shared_receive_queue)
{
	struct sgp_recv_part part = {.size = 100};
	struct sgp_srq_attr attr = {.depth = 4, .recv = &part, .num_recv = 1};
	struct sgp_srq *srq = NULL;
	int steps = 0;

	open_rig((struct rig_attr){0});
	attr.pd = a->pd;
	part.pool = a->pool;
	while (!srq) {
		without_memory_in = ++steps;
		srq = sgp_srq_create(&attr);
		ck_assert(srq || errno == ENOMEM);
		rig_check_live(a, srq ? 4 : 0);
	}
	without_memory_in = 0;
	ck_assert_int_gt(steps, 6);
	ck_assert_int_eq(sgp_srq_destroy(srq), 0);
	close_rig();
}
END_TEST

static void without_memory(struct rig_side *side, struct sgp_ep_attr *attr)
{
	struct sgp_recv_part part = {.pool = side->pool, .size = 100};
	struct sgp_ep *ep = NULL;
	struct rdma_cm_id *id;
	struct sgp_ep_attr kept = *attr;
	int steps = 0;

	kept.recv = &part;
	kept.num_recv = 1;
	for (id = side->id; !ep;) {
		without_memory_in = ++steps;
		ep = sgp_ep_create(id, &kept);
		ck_assert(ep || errno == ENOMEM);
		if (!ep)
			rig_check_live(side, 0);
	}
	without_memory_in = 0;
	ck_assert_int_gt(steps, 6);
	ck_assert_int_eq(sgp_ep_close(ep, 5000), 0);
	rig_reap(side, (int)attr->cap.max_recv_wr);
	for (uint32_t i = 0; i < attr->cap.max_recv_wr; i++)
		sgp_sgl_clear(&side->wc[i].sgl);
	ck_assert_int_eq(sgp_ep_destroy(ep), 0);
	while (sgp_poll(side->cq, 1, side->wc)) /* its room is free then */
		;
}

START_TEST(no_memory_for_an_endpoint)
{
	open_rig((struct rig_attr){.tune = without_memory});
	close_rig();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("no memory");
	TCase *tc = tcase_create("making");

	suite_add_tcase(suite, tc);
	tcase_set_timeout(tc, 20);
	tcase_add_test(tc, without_memory_for_its_requests_nothing_is_made);
	tcase_add_test(tc, no_memory_for_a_shared_receive_queue);
	tcase_add_test(tc, no_memory_for_an_endpoint);
	return suite_run(suite);
}
