/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A heap that gets no memory or no registration: it says so, nothing is left over, and the next call
 * finds it as it was. The linker puts calloc(3) and aligned_alloc(3) before the C library's.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../suite.h"
#include "heap_rig.h"

/* So many allocations of this thread from now on there is no memory; 0: there is. */
static _Thread_local int without_memory_in;

static bool strikes(void)
{
	if (!without_memory_in || --without_memory_in)
		return false;
	errno = ENOMEM;
	return true;
}

/* Visible, as the linker wants it where a shared library is instrumented too. */
#pragma GCC visibility push(default)
void *__real_calloc(size_t, size_t);
void *__wrap_calloc(size_t, size_t);
void *__real_aligned_alloc(size_t, size_t);
void *__wrap_aligned_alloc(size_t, size_t);
#pragma GCC visibility pop

void *__wrap_calloc(size_t n, size_t size)
{
	return strikes() ? NULL : __real_calloc(n, size);
}

void *__wrap_aligned_alloc(size_t align, size_t size)
{
	return strikes() ? NULL : __real_aligned_alloc(align, size);
}

/* Each step of a heap's making that needs memory fails once. */
START_TEST(no_memory_for_a_heap)
{
	const struct sgp_heap_attr attr = {.bytes = 4 * MIB};
	const int64_t registered = sv_live(SV_MRS);
	struct sgp_heap *made = NULL;
	int steps = 0;

	while (!made) {
		without_memory_in = ++steps;
		made = sgp_heap_create(pool, &attr);
		if (!made) {
			ck_assert_msg(errno == ENOMEM, "step %d: %s: %s", steps, strerror(errno),
				      sgp_errmsg());
			ck_assert_int_eq(sv_live(SV_MRS), registered);
		}
	}
	without_memory_in = 0;
	ck_assert_int_gt(steps, 4);
	ck_assert_int_eq(sgp_heap_destroy(made), 0);
	ck_assert_int_eq(sv_live(SV_MRS), registered);
}
END_TEST

/* A heap that is to begin with three regions, of which each can't be registered once. */
START_TEST(no_registration_for_a_heap)
{
	const struct sgp_heap_attr attr = {.bytes = 48 * MIB};
	const int64_t registered = sv_live(SV_MRS);
	struct sgp_heap *made = NULL;
	uint64_t at;

	for (at = 0; !made; at++) {
		ck_assert_int_eq(sv_fail_nth("reg_mr", at, EPERM), 0);
		made = sgp_heap_create(pool, &attr);
		if (!made) {
			ck_assert_int_eq(errno, EPERM);
			ck_assert_int_eq(sv_live(SV_MRS), registered);
		}
	}
	ck_assert_int_eq(sv_fail_nth("reg_mr", 0, 0), 0);
	ck_assert_uint_eq(at, 4);
	ck_assert_int_eq(sv_live(SV_MRS), registered + 3);
	ck_assert_int_eq(sgp_heap_destroy(made), 0);
}
END_TEST

/*
 * In turn: the thread's cache, without which it can do, the region, and its place in the table of
 * addresses, which stays once it is made: each in a process of its own.
 */
START_TEST(no_memory_for_an_object)
{
	void *obj;

	without_memory_in = _i;
	obj = sgp_malloc(heap, 100 * KIB);
	if (_i == 1)
		ck_assert_int_eq(without_memory_in, 0);
	without_memory_in = 0;
	if (!obj) {
		ck_assert_int_eq(errno, ENOMEM);
		ck_assert_int_gt(strlen(sgp_errmsg()), 0);
		ck_assert_uint_eq(stats_of().registered, 0);
		obj = object(100 * KIB, 1); /* and then there is memory again */
	}
	ck_assert_uint_ge(sgp_usable_size(obj), 100 * KIB);
	sgp_free(obj);
}
END_TEST

START_TEST(no_memory_for_a_hold)
{
	void *obj = object(1000, 1);
	SGP_SGL(sgl, 2);

	without_memory_in = 1;
	ck_assert_int_eq(sgp_sgl_append_ptr(&sgl, obj, 0, 10), -1);
	ck_assert_int_eq(errno, ENOMEM);
	ck_assert_int_eq(without_memory_in, 0);
	ck_assert_int_eq(sgl.num_sge, 0);
	ck_assert_uint_eq(stats_of().held, 0);
	ck_assert_int_eq(sgp_sgl_append_ptr(&sgl, obj, 0, 10), 0);
	ck_assert_uint_eq(stats_of().held, 1);
	sgp_sgl_clear(&sgl);
	ck_assert_uint_eq(stats_of().held, 0);
	sgp_free(obj);
}
END_TEST

START_TEST(what_is_wrong_is_refused)
{
	void *obj = object(1000, 1);
	SGP_SGL(sgl, 1);
	int status;
	pid_t pid;

	ck_assert_int_eq(sgp_heap_trim(NULL), -1);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(sgp_sgl_append_ptr(NULL, obj, 0, 1), -1);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(sgp_sgl_append_ptr(&sgl, obj, sgp_usable_size(obj), 1), -1);
	ck_assert_int_eq(errno, EFAULT);
	ck_assert_int_eq(sgp_sgl_append_ptr(&sgl, obj, 1, SIZE_MAX), -1);
	ck_assert_int_eq(errno, EFAULT);
	/* It would fit into a region, but nowhere in one at such an address. */
	ck_assert_ptr_null(sgp_aligned_alloc(heap, 16 * MIB, 12 * MIB));
	ck_assert_int_eq(errno, EMSGSIZE);
	pid = fork();
	if (pid == 0)
		_exit(sgp_sgl_append_ptr(&sgl, obj, 0, 1) != -1 || errno != EPERM);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(sgl.num_sge, 0);
	sgp_free(obj);
}
END_TEST

/* The larger the heap the larger its regions: but never more than it may have, to the byte. */
START_TEST(the_last_region_is_what_is_left)
{
	enum {
		MOST = 202,
		OBJECTS = 512
	};
	static void *obj[OBJECTS];
	int n = 0;

	end_heap();
	make_heap(256 * MIB, &(struct sgp_heap_attr){.max_bytes = MOST * MIB});
	while (n < OBJECTS && (obj[n] = sgp_malloc(heap, MIB)))
		n++;
	ck_assert_int_eq(errno, ENOBUFS);
	ck_assert_uint_eq(stats_of().registered, MOST * MIB);
	ck_assert_int_eq(n, MOST);
	while (n)
		sgp_free(obj[--n]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("heap_faults");
	TCase *tc = tcase_create("heap without");

	suite_add_tcase(suite, tc);
	tcase_set_timeout(tc, 120);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, no_memory_for_a_heap);
	tcase_add_test(tc, no_registration_for_a_heap);
	tcase_add_loop_test(tc, no_memory_for_an_object, 1, 5);
	tcase_add_test(tc, no_memory_for_a_hold);
	tcase_add_test(tc, what_is_wrong_is_refused);
	tcase_add_test(tc, the_last_region_is_what_is_left);
	return suite_run(suite);
}
