/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory windows: who holds the chunk from the bind to the invalidation, on success and failure. */
#include <check.h>
#include <errno.h>
#include <string.h>

#include "../suite.h"
#include "ab_rig.h"
#include "sgp_config.h"

static void setup(void)
{
	open_rig((struct rig_attr){.pool_flags = SGP_POOL_WINDOWS, .chunk_size = 4096});
}

/* Side b writes one byte at an address of side a's under a key; the completion's status. */
static enum ibv_wc_status write_to(uint64_t addr, uint32_t rkey, int byte)
{
	SGP_SGL(sgl, 1);

	ck_assert_int_eq(sgp_sgl_append(&sgl, rig_chunk(b, byte), 0, 1), 0);
	ck_assert_msg(!sgp_post_writev(b->ep, NULL, &sgl, IBV_SEND_SIGNALED, addr, rkey), "%s",
		      sgp_errmsg());
	rig_reap(b, 1);
	return b->wc[0].status;
}

static struct sgp_window *bound_window(struct sgp_chunk **chunk)
{
	struct sgp_window *w = sgp_window_create(a->ep);

	ck_assert_msg(w != NULL, "%s", sgp_errmsg());
	*chunk = rig_chunk(a, 'a');
	ck_assert_msg(!sgp_post_bind(a->ep, &context[0], w, *chunk, 100, 50,
				     IBV_ACCESS_REMOTE_WRITE, IBV_SEND_SIGNALED),
		      "%s", sgp_errmsg());
	rig_reap(a, 1);
	ck_assert_ptr_eq(a->wc[0].context, &context[0]);
	ck_assert_int_eq(a->wc[0].opcode, IBV_WC_BIND_MW);
	ck_assert_int_eq(a->wc[0].status, IBV_WC_SUCCESS);
	return w;
}

START_TEST(a_window_opens_its_slice_until_it_is_invalidated)
{
	struct sgp_chunk *chunk;
	struct sgp_window *w = bound_window(&chunk);
	uint64_t addr = (uintptr_t)sgp_chunk_addr(chunk);
	char before;

	ck_assert_int_eq(write_to(addr + 100, sgp_window_rkey(w), '!'), IBV_WC_SUCCESS);
	ck_assert_int_eq(write_to(addr + 149, sgp_window_rkey(w), '!'), IBV_WC_SUCCESS);
	ck_assert_int_eq(((char *)addr)[100], '!');
	/* The window holds the chunk: it stays live though nobody else knows it. */
	rig_check_live(a, 1);
	ck_assert_int_eq(sgp_window_is_bound(w), 1);
	ck_assert_int_eq(sgp_post_bind(a->ep, NULL, w, chunk, 0, 1, 0, 0), -1);
	ck_assert_int_eq(errno, EBUSY);

	ck_assert_int_eq(sgp_post_invalidate(a->ep, &context[1], w, IBV_SEND_SIGNALED), 0);
	rig_reap(a, 1);
	ck_assert_int_eq(a->wc[0].opcode, IBV_WC_LOCAL_INV);
	ck_assert_int_eq(a->wc[0].status, IBV_WC_SUCCESS);
	ck_assert_int_eq(sgp_window_is_bound(w), 0);
	rig_check_live(a, 0);
	before = ((char *)addr)[100]; /* it's nobody's now: a checked pool has filled it */
	ck_assert_int_eq(write_to(addr + 100, sgp_window_rkey(w), '?'), IBV_WC_REM_ACCESS_ERR);
	ck_assert_int_eq(((char *)addr)[100], before);
	ck_assert_int_eq(sgp_window_destroy(w), 0);
}
END_TEST

START_TEST(beside_its_slice_a_window_opens_nothing)
{
	struct sgp_chunk *chunk;
	struct sgp_window *w = bound_window(&chunk);
	uint64_t addr = (uintptr_t)sgp_chunk_addr(chunk);

	ck_assert_int_eq(write_to(addr + 150, sgp_window_rkey(w), '!'), IBV_WC_REM_ACCESS_ERR);
	ck_assert_int_eq(((char *)addr)[150], 'a');
	ck_assert_int_eq(sgp_window_destroy(w), 0);
	rig_check_live(a, 0);
}
END_TEST

START_TEST(the_peer_may_invalidate_it)
{
	struct sgp_chunk *chunk;
	struct sgp_window *w = bound_window(&chunk);
	SGP_SGL(sgl, 1);
	struct sgp_wr wr = {.sgl = &sgl,
			    .opcode = IBV_WR_SEND_WITH_INV,
			    .invalidate_rkey = sgp_window_rkey(w),
			    .flags = IBV_SEND_SIGNALED};

	rig_post_recv(a, NULL);
	ck_assert_int_eq(sgp_post(b->ep, &wr, NULL), 0);
	rig_reap(b, 1);
	ck_assert_int_eq(b->wc[0].status, IBV_WC_SUCCESS);
	rig_reap(a, 1);
	ck_assert(a->wc[0].wc_flags & IBV_WC_WITH_INV);
	ck_assert_int_eq(sgp_window_is_bound(w), 0);
	sgp_sgl_clear(&a->wc[0].sgl);
	rig_check_live(a, 0);
	/* And it can be bound again, with another key. */
	chunk = rig_chunk(a, 1);
	ck_assert_int_eq(sgp_post_bind(a->ep, NULL, w, chunk, 0, 8, IBV_ACCESS_REMOTE_WRITE, 0), 0);
	ck_assert_int_eq(sgp_wait(a->cq, 1, a->wc, 10), 0);
	ck_assert_uint_ne(sgp_window_rkey(w), wr.invalidate_rkey);
	ck_assert_int_eq(sgp_window_destroy(w), 0);
	rig_check_live(a, 0);
}
END_TEST

START_TEST(refusals_change_nothing)
{
	struct sgp_window *w = sgp_window_create(a->ep);
	struct sgp_chunk *chunk = rig_chunk(a, 0);
	uint32_t rkey = sgp_window_rkey(w);
	struct rig other;
	struct sgp_chunk *foreign;

	ck_assert_int_eq(sgp_post_bind(a->ep, NULL, w, chunk, 4096, 1, 0, 0), -1);
	ck_assert_int_eq(errno, EFAULT);
	ck_assert_int_eq(sgp_post_bind(a->ep, NULL, w, chunk, 0, 0, 0, 0), -1);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(sgp_post_bind(b->ep, NULL, w, chunk, 0, 1, 0, 0), -1);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(sgp_post_invalidate(a->ep, NULL, w, 0), -1);
	ck_assert_int_eq(errno, EINVAL);
	rig_open(&other, NULL);
	foreign = rig_chunk(&other.side[0], 0);
	ck_assert_int_eq(sgp_post_bind(a->ep, NULL, w, foreign, 0, 1, 0, 0), -1);
	ck_assert_int_eq(errno, EXDEV);
	sgp_chunk_put(foreign);
	rig_close(&other);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(sv_fail_nth("post_send", 0, ENOMEM), 0);
		ck_assert_int_eq(sgp_post_bind(a->ep, NULL, w, chunk, 0, 1, 0, 0), -1);
		ck_assert_int_eq(errno, ENOMEM);
		ck_assert_int_eq(sgp_window_is_bound(w), 0);
	}
	ck_assert_uint_eq(sgp_window_rkey(w), rkey);
	sgp_chunk_put(chunk);
	rig_check_live(a, 0);
	ck_assert_int_eq(sgp_window_destroy(w), 0);
}
END_TEST

START_TEST(a_full_queue_is_rung_and_refusals_are_counted)
{
	struct sgp_chunk *chunk = rig_chunk(a, 0), *foreign = rig_chunk(a, 0);
	struct sgp_window *w = sgp_window_create(a->ep);
	struct sgp_ep_stats stats;
	struct sgp_ep_info info;

	/* The queue is full of what is only gathered: nothing of it would ever leave by itself. */
	ck_assert_int_eq(sgp_ep_query(a->ep, &info), 0);
	for (int i = 0; i < info.send_room; i++) {
		rig_post_recv(b, NULL);
		ck_assert_int_eq(sgp_post_send(a->ep, NULL, rig_chunk(a, 0), 0, 100,
					       SGP_BATCH | IBV_SEND_SIGNALED),
				 0);
	}
	ck_assert_int_eq(sgp_post_bind(a->ep, NULL, w, chunk, 0, 8, IBV_ACCESS_REMOTE_WRITE, 0),
			 -1);
	ck_assert_int_eq(errno, EAGAIN);
	ck_assert_int_eq(sgp_poll(a->cq, RIG_WC, a->wc), info.send_room);
	ck_assert_int_eq(sgp_post_bind(a->ep, NULL, w, chunk, 0, 8, IBV_ACCESS_REMOTE_WRITE, 0), 0);

	ck_assert_int_eq(sgp_post_bind(a->ep, NULL, w, foreign, 0, 1, 0, 0), -1);
	ck_assert_int_eq(errno, EBUSY);
	ck_assert_int_eq(sgp_post_bind(a->ep, NULL, w, foreign, 4096, 1, 0, 0), -1);
	ck_assert_int_eq(errno, EFAULT);
	ck_assert_int_eq(sv_fail_nth("post_send", 0, ENOMEM), 0);
	ck_assert_int_eq(sgp_post_invalidate(a->ep, NULL, w, 0), -1);
	ck_assert_int_eq(errno, ENOMEM);
	ck_assert_int_eq(sgp_ep_stats(a->ep, &stats), 0);
	ck_assert_uint_eq(stats.queue_full, 1);
	ck_assert_uint_eq(stats.invalid, 1);
	ck_assert_uint_eq(stats.wrong_memory, 1);
	ck_assert_uint_eq(stats.refused, 1);
	sgp_chunk_put(foreign);
	ck_assert_int_eq(sgp_poll(a->cq, RIG_WC, a->wc), 0);
	ck_assert_int_eq(sgp_window_destroy(w), 0);
	rig_check_live(a, 0);
	for (int n; (n = sgp_poll(b->cq, RIG_WC, b->wc)) > 0;)
		for (int i = 0; i < n; i++)
			sgp_sgl_clear(&b->wc[i].sgl);
}
END_TEST

START_TEST(a_window_outlives_its_queue_pair_and_still_holds)
{
	struct sgp_chunk *chunk;
	struct sgp_window *w = bound_window(&chunk);

	ck_assert_int_eq(sgp_ep_close(a->ep, 0), 0);
	rig_check_live(a, 1);
	ck_assert_int_eq(sgp_ep_destroy(a->ep), -1);
	ck_assert_int_eq(errno, EBUSY);
	ck_assert_int_eq(sgp_window_destroy(w), 0);
	rig_check_live(a, 0);
}
END_TEST

START_TEST(what_the_device_does_not_give)
{
	static const int told[][2] = {
		{ENOSYS, EOPNOTSUPP}, {EOPNOTSUPP, EOPNOTSUPP}, {ENOMEM, ENOMEM}};
	struct sgp_chunk *chunk;
	struct sgp_window *w;

	for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
		ck_assert_int_eq(sv_fail_nth("alloc_mw", 0, told[i][0]), 0);
		ck_assert_ptr_null(sgp_window_create(a->ep));
		ck_assert_int_eq(errno, told[i][1]);
	}
	ck_assert_ptr_null(sgp_window_create(NULL));
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(sgp_window_destroy(NULL), -1);
	ck_assert_int_eq(errno, EINVAL);
	/* Nor takes back: the window stands, and holds. */
	w = bound_window(&chunk);
	ck_assert_int_eq(sv_fail_nth("dealloc_mw", 0, EBUSY), 0);
	ck_assert_int_eq(sgp_window_destroy(w), -1);
	ck_assert_int_eq(errno, EBUSY);
	rig_check_live(a, 1);
	ck_assert_int_eq(sgp_window_is_bound(w), 1);
	ck_assert_int_eq(sgp_window_destroy(w), 0);
	rig_check_live(a, 0);
}
END_TEST

START_TEST(a_window_whose_bind_is_posted_stays)
{
	struct sgp_window *w = sgp_window_create(a->ep);
	struct sgp_chunk *chunk = rig_chunk(a, 0);

	ck_assert_int_eq(sgp_post_bind(a->ep, NULL, w, chunk, 0, 8, IBV_ACCESS_REMOTE_WRITE,
				       IBV_SEND_SIGNALED),
			 0);
	ck_assert_int_eq(sgp_window_destroy(w), -1);
	ck_assert_int_eq(errno, EBUSY);
	rig_reap(a, 1);
	ck_assert_int_eq(a->wc[0].status, IBV_WC_SUCCESS);
	ck_assert_int_eq(sgp_window_destroy(w), 0);
	rig_check_live(a, 0);
}
END_TEST

/* Whether the peer has its key is not known: only the window's end lets the chunk go. */
START_TEST(what_failed_holds_until_the_windows_end)
{
	struct sgp_window *w;
	struct sgp_chunk *chunk;

	if (_i) {
		w = bound_window(&chunk);
		ck_assert_int_eq(sv_faults("completion status 5 at 0", NULL), 0);
		ck_assert_int_eq(sgp_post_invalidate(a->ep, NULL, w, IBV_SEND_SIGNALED), 0);
	} else {
		w = sgp_window_create(a->ep);
		chunk = rig_chunk(a, 0);
		ck_assert_int_eq(sv_faults("completion status 5 at 0", NULL), 0);
		ck_assert_int_eq(sgp_post_bind(a->ep, NULL, w, chunk, 0, 8, IBV_ACCESS_REMOTE_WRITE,
					       IBV_SEND_SIGNALED),
				 0);
	}
	rig_reap(a, 1);
	ck_assert_int_eq(a->wc[0].status, IBV_WC_WR_FLUSH_ERR);
	sv_faults_clear();
	rig_check_live(a, 1);
	ck_assert_int_eq(sgp_window_is_bound(w), 1);
	ck_assert_int_eq(sgp_post_invalidate(a->ep, NULL, w, 0), -1);
	ck_assert_int_eq(sgp_window_destroy(w), 0);
	rig_check_live(a, 0);
}
END_TEST

START_TEST(a_closed_endpoint_binds_nothing)
{
	struct sgp_window *w = sgp_window_create(a->ep);
	struct sgp_chunk *chunk = rig_chunk(a, 0);

	ck_assert_int_eq(sgp_ep_close(a->ep, 0), 0);
	ck_assert_int_eq(sgp_post_bind(a->ep, NULL, w, chunk, 0, 8, 0, 0), -1);
	ck_assert_int_eq(errno, ESHUTDOWN);
	ck_assert_int_eq(sgp_window_is_bound(w), 0);
	ck_assert_ptr_null(sgp_window_create(a->ep));
	ck_assert_int_eq(errno, EINVAL);
	sgp_chunk_put(chunk);
	rig_check_live(a, 0);
	ck_assert_int_eq(sgp_window_destroy(w), 0);
}
END_TEST

/* A pool that does not allow them. */
START_TEST(memory_without_windows)
{
	struct rig other;
	struct rig_side *side = &other.side[0];
	struct sgp_window *w;
	struct sgp_chunk *chunk;

	rig_open(&other, NULL);
	w = sgp_window_create(side->ep);
	ck_assert_ptr_nonnull(w);
	chunk = rig_chunk(side, 0);
	ck_assert_int_eq(sgp_post_bind(side->ep, NULL, w, chunk, 0, 8, IBV_ACCESS_REMOTE_READ, 0),
			 -1);
	ck_assert_int_eq(errno, EACCES);
	sgp_chunk_put(chunk);
	ck_assert_int_eq(sgp_window_destroy(w), 0);
	rig_close(&other);
}
END_TEST

/* Where the system's verbs have no windows. */
START_TEST(there_are_none)
{
	struct sgp_chunk *chunk;
	struct sgp_window *w;

	rig_open(&rig, &(struct rig_attr){.chunk_size = 4096});
	a = &rig.side[0];
	w = sgp_window_create(a->ep);
	ck_assert_ptr_null(w);
	ck_assert_int_eq(errno, EOPNOTSUPP);
	chunk = rig_chunk(a, 1);
	ck_assert_int_eq(sgp_post_bind(a->ep, &context[0], w, chunk, 0, 1, 0, 0), -1);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(sgp_post_invalidate(a->ep, &context[0], w, 0), -1);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(sgp_window_is_bound(w), 0);
	ck_assert_uint_eq(sgp_window_rkey(w), 0);
	ck_assert_int_eq(sgp_window_destroy(w), -1);
	ck_assert_int_eq(errno, EINVAL);
	sgp_chunk_put(chunk);
	close_rig();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("window");
	TCase *tc = tcase_create("windows");

	suite_add_tcase(suite, tc);
	if (!SGP_HAVE_WINDOWS) {
		tcase_add_test(tc, there_are_none);
		return suite_run(suite);
	}
	tcase_add_checked_fixture(tc, setup, close_rig);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, a_window_opens_its_slice_until_it_is_invalidated);
	tcase_add_test(tc, beside_its_slice_a_window_opens_nothing);
	tcase_add_test(tc, the_peer_may_invalidate_it);
	tcase_add_test(tc, refusals_change_nothing);
	tcase_add_test(tc, a_full_queue_is_rung_and_refusals_are_counted);
	tcase_add_test(tc, a_window_outlives_its_queue_pair_and_still_holds);
	tcase_add_test(tc, what_the_device_does_not_give);
	tcase_add_test(tc, a_window_whose_bind_is_posted_stays);
	tcase_add_loop_test(tc, what_failed_holds_until_the_windows_end, 0, 2);
	tcase_add_test(tc, a_closed_endpoint_binds_nothing);
	tcase_add_test(tc, memory_without_windows);
	return suite_run(suite);
}
