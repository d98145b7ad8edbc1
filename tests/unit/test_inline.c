/* SPDX-License-Identifier: BSD-2-Clause */
/* What goes inline, what is linearised, what is too large for either: by the limits of the device. */
#include <check.h>
#include <errno.h>
#include <string.h>

#include "../suite.h"
#include "ab_rig.h"

START_TEST(case_25_26_inline_goes_by_size_and_whole)
{
	struct sgp_ep_stats stats;
	struct sgp_ep_info info;
	char foreign[16] = "from the stack!";
	SGP_SGL(sgl, 4);
	struct sgp_sgl before;

	/* A device that sends the first SGE of an inline request only. */
	ck_assert_int_eq(sv_device_add("inl", "soft", 1), 0);
	ck_assert_int_eq(sv_set("inl", "inline_first", 1), 0);
	open_remote((struct rig_attr){.max_inline = 64});
	ck_assert_int_eq(sgp_ep_query(a->ep, &info), 0);
	ck_assert_uint_ge(info.max_inline, 64);
	rig_post_recv(b, NULL);
	build(a, &sgl, 2, 16, 'x');
	ck_assert_int_eq(sgp_post_sendv(a->ep, NULL, &sgl, IBV_SEND_SIGNALED), 0);
	rig_check_live(a, 0); /* copied: nothing is in flight */
	rig_reap(b, 1);
	ck_assert_uint_eq(b->wc[0].byte_len, 32);
	check_run((char *)(uintptr_t)b->wc[0].sgl.sge[0].addr, 2, 16, 'x');
	reaped(a, NULL, IBV_WC_SEND);

	/* Memory that is not registered, and gathered: the caller's array may go at once. */
	rig_post_recv(b, NULL);
	ck_assert_int_eq(sgp_sgl_append_foreign(&sgl, foreign, 15), 0);
	before = sgl;
	ck_assert_int_eq(sgp_post_sendv(a->ep, NULL, &sgl, IBV_SEND_SIGNALED), -1);
	ck_assert_int_eq(errno, EFAULT);
	ck_assert_mem_eq(&sgl, &before, sizeof sgl);
	ck_assert_int_eq(
		sgp_post_sendv(a->ep, NULL, &sgl, IBV_SEND_SIGNALED | IBV_SEND_INLINE | SGP_BATCH),
		0);
	memset(foreign, 0, sizeof foreign);
	ck_assert_int_eq(sgp_ep_submit(a->ep), 0);
	rig_reap(b, 1);
	ck_assert_mem_eq((char *)(uintptr_t)b->wc[0].sgl.sge[0].addr, "from the stack!", 15);
	reaped(a, NULL, IBV_WC_SEND);

	/* Over the size: by the chunks; asked for inline all the same: refused. */
	rig_post_recv(b, NULL);
	build(a, &sgl, 1, info.max_inline + 1, 'y');
	before = sgl;
	ck_assert_int_eq(sgp_post_sendv(a->ep, NULL, &sgl, IBV_SEND_INLINE), -1);
	ck_assert_int_eq(errno, EMSGSIZE);
	ck_assert_mem_eq(&sgl, &before, sizeof sgl);
	ck_assert_int_eq(sgp_post_readv(a->ep, NULL, &sgl, IBV_SEND_INLINE, 0, 0), -1);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(sgp_post_sendv(a->ep, NULL, &sgl, IBV_SEND_SIGNALED), 0);
	rig_reap(b, 1);
	ck_assert_uint_eq(b->wc[0].byte_len, info.max_inline + 1);
	reaped(a, NULL, IBV_WC_SEND);
	ck_assert_int_eq(sgp_ep_stats(a->ep, &stats), 0);
	ck_assert_uint_eq(stats.inlined, 2);
	close_rig();
}
END_TEST

START_TEST(case_26_no_inline_room_no_post)
{
	char foreign[16] = "x";
	uint64_t posts;
	SGP_SGL(sgl, 1);

	open_remote((struct rig_attr){0});
	ck_assert_int_eq(sgp_sgl_append_foreign(&sgl, foreign, 16), 0);
	posts = sv_calls("post_send");
	ck_assert_int_eq(sgp_post_sendv(a->ep, NULL, &sgl, IBV_SEND_INLINE), -1);
	ck_assert_int_eq(errno, EMSGSIZE);
	ck_assert_uint_eq(sv_calls("post_send"), posts);
	close_rig();
}
END_TEST

START_TEST(case_20_a_long_message_is_linearised_when_asked)
{
	SGP_SGL(sgl, 8);
	struct sgp_sgl before;
	struct sgp_chunk *spare[27];

	open_remote((struct rig_attr){.max_sge = 3});
	rig_post_recv(b, NULL);
	build(a, &sgl, 5, 10, 'l');
	before = sgl;
	ck_assert_int_eq(sgp_post_sendv(a->ep, NULL, &sgl, IBV_SEND_SIGNALED), -1);
	ck_assert_int_eq(errno, E2BIG);
	ck_assert_mem_eq(&sgl, &before, sizeof sgl);

	/* The provider refuses: the copy goes back. The pool is empty: no copy. */
	ck_assert_int_eq(sv_fail_nth("post_send", 0, ENOMEM), 0);
	ck_assert_int_eq(sgp_post_sendv(a->ep, NULL, &sgl, IBV_SEND_SIGNALED | SGP_LINEARISE), -1);
	ck_assert_int_eq(errno, ENOMEM);
	ck_assert_mem_eq(&sgl, &before, sizeof sgl);
	rig_check_live(a, 5);
	for (int i = 0; i < 27; i++)
		spare[i] = rig_chunk(a, 0);
	ck_assert_int_eq(sgp_post_sendv(a->ep, NULL, &sgl, IBV_SEND_SIGNALED | SGP_LINEARISE), -1);
	ck_assert_int_eq(errno, ENOBUFS);
	ck_assert_mem_eq(&sgl, &before, sizeof sgl);
	sgp_chunk_put_bulk(spare, 27);

	ck_assert_int_eq(sgp_post_sendv(a->ep, NULL, &sgl, IBV_SEND_SIGNALED | SGP_LINEARISE), 0);
	ck_assert_int_eq(sgl.num_chunk, 0);
	rig_reap(b, 1);
	ck_assert_uint_eq(b->wc[0].byte_len, 50);
	check_run((char *)(uintptr_t)b->wc[0].sgl.sge[0].addr, 5, 10, 'l');
	reaped(a, NULL, IBV_WC_SEND);
	rig_check_live(a, 0);
	close_rig();
}
END_TEST

START_TEST(case_32_no_enomem_for_what_is_not_a_full_queue)
{
	struct sgp_ep_info info;
	uint64_t posts;
	SGP_SGL(sgl, 8);

	/* mlx5 says ENOMEM to a full queue, too many SGEs and an oversized inline alike. */
	ck_assert_int_eq(sv_device_add("m5", "mlx5", 1), 0);
	open_remote((struct rig_attr){.depth = 2, .max_sge = 2, .max_inline = 32});
	ck_assert_int_eq(sgp_ep_query(a->ep, &info), 0);
	posts = sv_calls("post_send");
	build(a, &sgl, 3, 100, 1);
	ck_assert_int_eq(sgp_post_sendv(a->ep, NULL, &sgl, 0), -1);
	ck_assert_int_eq(errno, E2BIG);
	sgp_sgl_clear(&sgl);
	build(a, &sgl, 1, info.max_inline + 1, 1);
	ck_assert_int_eq(sgp_post_sendv(a->ep, NULL, &sgl, IBV_SEND_INLINE), -1);
	ck_assert_int_eq(errno, EMSGSIZE);
	ck_assert_uint_eq(sv_calls("post_send"), posts);
	sgp_sgl_clear(&sgl);
	for (int i = 0; i < 3; i++) {
		build(a, &sgl, 1, 2000, 1);
		ck_assert_int_eq(sgp_post_sendv(a->ep, NULL, &sgl, IBV_SEND_SIGNALED),
				 i < 2 ? 0 : -1);
	}
	ck_assert_int_eq(errno, EAGAIN);
	ck_assert_uint_eq(sv_calls("post_send"), posts + 2);
	sgp_sgl_clear(&sgl);
	close_rig();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("inline");
	TCase *tc = tcase_create("between two");

	suite_add_tcase(suite, tc);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, case_25_26_inline_goes_by_size_and_whole);
	tcase_add_test(tc, case_26_no_inline_room_no_post);
	tcase_add_test(tc, case_20_a_long_message_is_linearised_when_asked);
	tcase_add_test(tc, case_32_no_enomem_for_what_is_not_a_full_queue);
	return suite_run(suite);
}
