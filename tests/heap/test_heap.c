/* SPDX-License-Identifier: BSD-2-Clause */
/* The heap's calls with the C library's rules, memory that comes and goes, threads and processes. */
#include <check.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../suite.h"
#include "heap_rig.h"

/* ---- the C library's rules ---- */

START_TEST(test_sizes_and_contents)
{
	static const size_t sizes[] = {0,    1,    7,     8,      9,       64,      100,
				       4000, 4096, 14336, 100000, 1 * MIB, 5 * MIB, 16 * MIB};
	void *obj[sizeof sizes / sizeof sizes[0]];
	struct sgp_pool_stats stats;
	size_t sum = 0;

	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		obj[i] = object(sizes[i], (int)i);
		ck_assert_uint_ge(sgp_usable_size(obj[i]), sizes[i] ? sizes[i] : 1);
		ck_assert_uint_eq((uintptr_t)obj[i] % (sizes[i] >= 16 ? 16 : 8), 0);
		sum += sgp_usable_size(obj[i]);
	}
	ck_assert_uint_ge(stats_of().allocated, sum);
	sgp_pool_stats(pool, &stats);
	ck_assert_uint_eq(stats.bytes_registered, stats_of().registered);
	ck_assert_uint_eq(stats.regions, stats_of().regions);
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		ck_assert(all(obj[i], (int)i, sgp_usable_size(obj[i])));
		sgp_free(obj[i]);
	}
}
END_TEST

START_TEST(test_calloc)
{
	for (size_t size = 8; size <= 4 * MIB; size *= 2) {
		void *obj = object(size, 0xff);

		sgp_free(obj);
		obj = sgp_calloc(heap, size / 8, 8);
		ck_assert(all(obj, 0, size));
		sgp_free(obj);
	}
	ck_assert_ptr_null(sgp_calloc(heap, SIZE_MAX / 2, 3));
	ck_assert_int_eq(errno, ENOMEM);
	sgp_free(sgp_calloc(heap, 0, 8));
}
END_TEST

START_TEST(test_aligned)
{
	for (size_t align = 1; align <= 8 * MIB; align *= 2) {
		void *obj = sgp_aligned_alloc(heap, align, 100);

		ck_assert_msg(obj != NULL, "%zu: %s", align, sgp_errmsg());
		ck_assert_uint_eq((uintptr_t)obj % align, 0);
		sgp_free(obj);
	}
	ck_assert_ptr_null(sgp_aligned_alloc(heap, 0, 8));
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_ptr_null(sgp_aligned_alloc(heap, 24, 8));
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_ptr_null(sgp_aligned_alloc(heap, 32 * MIB, 8));
	ck_assert_int_eq(errno, EMSGSIZE);
}
END_TEST

START_TEST(test_realloc)
{
	unsigned char *obj = sgp_realloc(heap, NULL, 10);
	size_t size = 10;

	memset(obj, 1, 10);
	while (size < 8 * MIB) {
		size_t more = size * 3 + 1;

		obj = sgp_realloc(heap, obj, more);
		ck_assert_msg(obj != NULL, "%s", sgp_errmsg());
		ck_assert(all(obj, 1, size));
		memset(obj, 1, more);
		size = more;
	}
	while (size > 10) {
		size /= 2;
		obj = sgp_realloc(heap, obj, size);
		ck_assert(all(obj, 1, size));
	}
	ck_assert_ptr_null(sgp_realloc(heap, obj, SIZE_MAX));
	ck_assert_int_eq(errno, EMSGSIZE);
	ck_assert(all(obj, 1, size));
	errno = 0;
	ck_assert_ptr_null(sgp_realloc(heap, obj, 0));
	ck_assert_int_eq(errno, 0);
}
END_TEST

START_TEST(test_refusals)
{
	struct sgp_heap_attr wrong[] = {
		{.comp_mask = 1}, {.flags = 1}, {.bytes = 4096, .max_bytes = 4095}};
	struct sgp_pool_attr small = {
		.max_bytes = 8 * MIB, .region_bytes = MIB, .pages = SGP_PAGES_BASE};
	struct sgp_pool *tiny = sgp_pool_create(a->pd, &small);
	SGP_SGL(sgl, 1);
	int local;

	ck_assert_ptr_null(sgp_malloc(heap, 17 * MIB));
	ck_assert_int_eq(errno, EMSGSIZE);
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		ck_assert_ptr_null(sgp_heap_create(pool, &wrong[i]));
		ck_assert_int_eq(errno, EINVAL);
	}
	ck_assert_ptr_null(sgp_heap_create(NULL, NULL));
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_ptr_null(sgp_heap_create(tiny, NULL));
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(sgp_pool_destroy(tiny), 0);
	ck_assert_int_eq(sgp_heap_destroy(NULL), -1);
	ck_assert_int_eq(errno, EINVAL);
	/* What is no heap's is nobody's business. */
	errno = 0;
	sgp_free(NULL);
	sgp_free(&local);
	ck_assert_int_eq(errno, 0);
	ck_assert_uint_eq(sgp_usable_size(NULL), 0);
	ck_assert_uint_eq(sgp_usable_size(&local), 0);
	ck_assert_ptr_null(sgp_realloc(heap, &local, 10));
	ck_assert_int_eq(errno, EFAULT);
	ck_assert_int_eq(sgp_sgl_append_ptr(&sgl, &local, 0, 1), -1);
	ck_assert_int_eq(errno, EFAULT);
}
END_TEST

/* ---- memory ---- */

START_TEST(test_max_bytes)
{
	void *obj[64];
	int n = 0;

	end_heap();
	make_heap(64 * MIB, &(struct sgp_heap_attr){.bytes = 4 * MIB, .max_bytes = 20 * MIB});
	ck_assert_uint_eq(stats_of().registered, 4 * MIB);
	while ((obj[n] = sgp_malloc(heap, MIB)))
		n++;
	ck_assert_int_eq(errno, ENOBUFS);
	ck_assert_int_eq(n, 20);
	ck_assert_uint_eq(stats_of().registered, 20 * MIB);
	ck_assert_uint_eq(stats_of().resident, 20 * MIB);
	ck_assert_int_eq(sgp_heap_destroy(heap), -1);
	ck_assert_int_eq(errno, EBUSY);
	/* Nothing was torn down. */
	sgp_free(obj[0]);
	obj[0] = object(MIB, 5);
	while (n)
		sgp_free(obj[--n]);
	ck_assert_int_eq(sgp_heap_trim(heap), 0);
	ck_assert_uint_eq(stats_of().registered, 4 * MIB);
	ck_assert_uint_eq(stats_of().resident, 0);
	/* The pool's own end. */
	end_heap();
	make_heap(8 * MIB, NULL);
	while ((obj[n] = sgp_malloc(heap, MIB)))
		n++;
	ck_assert_int_eq(errno, ENOBUFS);
	ck_assert_int_ge(n, 6);
	ck_assert_int_eq(sgp_pool_destroy(pool), -1);
	ck_assert_int_eq(errno, EBUSY);
	while (n)
		sgp_free(obj[--n]);
}
END_TEST

START_TEST(test_memory_comes_and_goes)
{
	enum {
		N = 2000
	};
	static void *obj[N];

	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < N; i++)
			obj[i] = object((size_t)i * 37 % 60000 + 1, i);
		ck_assert_uint_gt(stats_of().registered, 40 * MIB);
		for (int i = 0; i < N; i++) {
			ck_assert(all(obj[i], i, sgp_usable_size(obj[i])));
			sgp_free(obj[i]);
		}
		ck_assert_int_eq(sgp_heap_trim(heap), 0);
		ck_assert_uint_eq(stats_of().registered, 0);
		ck_assert_uint_eq(stats_of().allocated, 0);
	}
}
END_TEST

/* jemalloc's own data are not in memory that is registered. */
START_TEST(test_nothing_is_written_to_regions)
{
	struct sgp_heap_region *region;
	void *obj[1000];

	for (int i = 0; i < 1000; i++)
		obj[i] = sgp_malloc(heap, (size_t)i * 16 + 1);
	for (int i = 0; i < 1000; i += 2)
		sgp_free(obj[i]);
	for (region = heap->first; region; region = region->next)
		ck_assert(all(region->extent.owner.region.piece.addr, 0,
			      region->extent.owner.region.piece.bytes));
	for (int i = 1; i < 1000; i += 2)
		sgp_free(obj[i]);
	sgp_heap_trim(heap);
}
END_TEST

/* Registration fails at call N, for N = 0, 1, 2 ... until nothing fails any more. */
START_TEST(test_registration_fails)
{
	for (int i = 0; i < 20; i++) {
		void *obj[16] = {0};
		int failed = 0, n;

		sv_fail_nth("reg_mr", (uint64_t)i, EAGAIN);
		for (n = 0; n < 16; n++) {
			obj[n] = sgp_malloc(heap, 3 * MIB);
			if (obj[n])
				continue;
			ck_assert_int_eq(errno, EAGAIN);
			ck_assert_ptr_nonnull(strstr(sgp_errmsg(), "registering"));
			failed++;
		}
		ck_assert_int_le(failed, 1);
		for (n = 0; n < 16; n++)
			sgp_free(obj[n]);
		ck_assert_int_eq(sgp_heap_trim(heap), 0);
		ck_assert_uint_eq(stats_of().registered, 0);
		if (!sv_failed("reg_mr")) {
			sv_fail_nth("reg_mr", 0, 0);
			return;
		}
	}
	ck_abort_msg("it fails for ever");
}
END_TEST

START_TEST(test_deregistration_fails)
{
	void *obj = object(MIB, 1);

	sgp_free(obj);
	sv_fail_nth("dereg_mr", 0, EBUSY);
	ck_assert_int_eq(sgp_heap_trim(heap), -1);
	ck_assert_int_eq(errno, EBUSY);
	obj = object(MIB, 2);
	sgp_free(obj);
	sv_fail_nth("dereg_mr", 0, EBUSY);
	ck_assert_int_eq(sgp_heap_destroy(heap), -1);
	ck_assert_int_eq(errno, EBUSY);
}
END_TEST

/* A region that is on one domain only is used no more, and ended later. */
START_TEST(test_half_deregistered)
{
	struct ibv_pd *pd = ibv_alloc_pd(a->id->verbs);
	void *obj;

	ck_assert_int_eq(sgp_pool_add_pd(pool, pd), 0);
	sgp_free(object(MIB, 1));
	sv_fail_nth("dereg_mr", 1, EBUSY);
	sv_fail_nth("reg_mr", 0, ENOMEM);
	ck_assert_int_eq(sgp_heap_trim(heap), -1);
	ck_assert_int_eq(errno, EBUSY);
	ck_assert(sv_failed("reg_mr"));
	ck_assert_uint_eq(stats_of().registered, 0);
	obj = object(MIB, 2);
	ck_assert_uint_eq(stats_of().regions, 1);
	sv_fail_nth("dereg_mr", 0, EBUSY);
	ck_assert_int_eq(sgp_heap_trim(heap), -1);
	ck_assert_int_eq(sgp_heap_trim(heap), 0);
	sgp_free(obj);
	end_heap();
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
	make_heap(16 * MIB, NULL);
}
END_TEST

/* ---- threads, processes ---- */

static void *use_and_end(void *arg)
{
	(void)arg;
	for (int i = 0; i < 20; i++)
		sgp_free(object((size_t)i * 100 + 1, i));
	return NULL;
}

START_TEST(test_threads_give_their_caches_back)
{
	/* More in all than jemalloc has caches. */
	for (int i = 0; i < 4200; i++) {
		pthread_t thread;

		ck_assert_int_eq(pthread_create(&thread, NULL, use_and_end, NULL), 0);
		pthread_join(thread, NULL);
	}
	sgp_heap_trim(heap);
	ck_assert_uint_eq(stats_of().allocated, 0);
	ck_assert_uint_eq(stats_of().registered, 0);
}
END_TEST

static pthread_barrier_t barrier;

static void *outlive(void *arg)
{
	void *obj = object(100, 1);

	(void)arg;
	sgp_free(obj);
	pthread_barrier_wait(&barrier); /* the heap goes, another one comes */
	pthread_barrier_wait(&barrier);
	obj = object(100, 1);
	sgp_free(obj);
	return NULL;
}

START_TEST(test_heap_goes_before_thread)
{
	pthread_t thread;

	pthread_barrier_init(&barrier, NULL, 2);
	ck_assert_int_eq(pthread_create(&thread, NULL, outlive, NULL), 0);
	pthread_barrier_wait(&barrier);
	end_heap();
	make_heap(64 * MIB, NULL);
	pthread_barrier_wait(&barrier);
	pthread_join(thread, NULL);
	sgp_heap_trim(heap);
	ck_assert_uint_eq(stats_of().allocated, 0);
}
END_TEST

/* A destructor of the program's own, which may run before or after ours. */
static void late(void *obj)
{
	sgp_free(obj);
	sgp_free(object(50, 1));
}

static void *end_late(void *arg)
{
	pthread_key_t *keys = arg;

	for (int i = 0; i < 4; i++)
		pthread_setspecific(keys[i], object(64, i));
	return NULL;
}

START_TEST(test_destructors_in_any_order)
{
	pthread_key_t keys[4];
	pthread_t thread;

	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_key_create(&keys[i], late), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, end_late, keys), 0);
	pthread_join(thread, NULL);
	for (int i = 0; i < 4; i++)
		pthread_key_delete(keys[i]);
	sgp_heap_trim(heap);
	ck_assert_uint_eq(stats_of().allocated, 0);
}
END_TEST

START_TEST(test_forked_child)
{
	void *obj = object(100, 1);
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		bool ok = !sgp_malloc(heap, 10) && errno == EPERM && !sgp_calloc(heap, 1, 1) &&
			  errno == EPERM && !sgp_realloc(heap, obj, 5000) && errno == EPERM &&
			  sgp_heap_trim(heap) == -1 && errno == EPERM &&
			  sgp_heap_destroy(heap) == -1 && errno == EPERM &&
			  !sgp_heap_create(pool, NULL) && errno == EPERM &&
			  sgp_usable_size(obj) == 0;

		sgp_free(obj);
		_exit(!ok);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	sgp_free(obj);
}
END_TEST

/* The program's malloc is the one it was: another one than the heap's. */
START_TEST(test_the_programs_malloc)
{
	void *mine = malloc(100);

	ck_assert_uint_ge(malloc_usable_size(mine), 100);
	ck_assert_uint_eq(sgp_usable_size(mine), 0);
	ck_assert_ptr_null(sgp_heap_region_at(mine));
	free(mine);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("heap");
	TCase *tc = tcase_create("heap");

	suite_add_tcase(suite, tc);
	tcase_set_timeout(tc, 120);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_sizes_and_contents);
	tcase_add_test(tc, test_calloc);
	tcase_add_test(tc, test_aligned);
	tcase_add_test(tc, test_realloc);
	tcase_add_test(tc, test_refusals);
	tcase_add_test(tc, test_max_bytes);
	tcase_add_test(tc, test_memory_comes_and_goes);
	tcase_add_test(tc, test_nothing_is_written_to_regions);
	tcase_add_test(tc, test_registration_fails);
	tcase_add_test(tc, test_deregistration_fails);
	tcase_add_test(tc, test_half_deregistered);
	tcase_add_test(tc, test_threads_give_their_caches_back);
	tcase_add_test(tc, test_heap_goes_before_thread);
	tcase_add_test(tc, test_destructors_in_any_order);
	tcase_add_test(tc, test_forked_child);
	tcase_add_test(tc, test_the_programs_malloc);
	return suite_run(suite);
}
