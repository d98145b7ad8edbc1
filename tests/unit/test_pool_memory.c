/* SPDX-License-Identifier: BSD-2-Clause */
/* A pool's memory: what backs it, holes in the range, what the process has of it; each call fails. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../suite.h"
#include "mapped.h"
#include "pool_rig.h"

#define MIB ((size_t)1 << 20)

/* case 6 */
START_TEST(test_hugepage_regions_are_whole_hugepages)
{
	struct sgp_class_attr cls = {
		.size = 100 * 1024, .chunks = 51, .max_chunks = 60, .align = 64};
	struct sgp_pool_attr attr = {.classes = &cls, .nclasses = 1};
	struct sgp_pool_stats stats;
	struct sgp_pool *pool;
	struct ibv_mr *mr;

	rig_huge = RIG_HUGE_PLENTY;
	pool = sgp_pool_create(rig_pd, &attr);
	ck_assert_msg(pool != NULL, "%s", sgp_errmsg());
	sgp_pool_stats(pool, &stats);
	ck_assert_uint_eq(stats.regions, 1);
	ck_assert_uint_eq(stats.page_size, 2 * MIB);
	mr = pool->classes[0].slabs->owner.region.mr[pool->reg.first];
	ck_assert_uint_eq(mr->length, 6 * MIB);
	ck_assert_uint_eq((uintptr_t)mr->addr % (2 * MIB), 0);
	/* What rounding left is used before anything is registered. */
	ck_assert_int_eq(sgp_pool_grow(pool, 1, 5), 0);
	ck_assert_int_eq(sv_live(SV_MRS), 1);
	rig_check(pool, 0);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
}
END_TEST

/* case 7 */
START_TEST(test_no_hugepages)
{
	struct sgp_pool_stats stats;
	struct sgp_pool *pool;

	ck_assert_ptr_null(rig_try_pool(4 * MIB, 1, 0, SGP_PAGES_REQUIRE_2M));
	ck_assert_int_eq(errno, ENOMEM);
	ck_assert_ptr_nonnull(strstr(sgp_errmsg(), "nr_hugepages"));
	ck_assert_ptr_null(rig_try_pool(4 * MIB, 1, 0, SGP_PAGES_REQUIRE_1G));
	ck_assert_int_eq(errno, ENOMEM);
	for (enum sgp_pages pages = SGP_PAGES_PREFER_2M; pages <= SGP_PAGES_PREFER_1G; pages++) {
		pool = rig_try_pool(4 * MIB, 1, 0, pages);
		ck_assert_msg(pool != NULL, "%s", sgp_errmsg());
		sgp_pool_stats(pool, &stats);
		ck_assert_uint_eq(stats.page_size, 4096);
		ck_assert_int_eq(sgp_pool_destroy(pool), 0);
	}
}
END_TEST

/* The move of the hugepages fails and leaves a hole in the range: it is plugged. */
START_TEST(test_hole_in_the_range)
{
	struct sgp_pool *pool;

	rig_huge = RIG_HUGE_PLENTY;
	pool = rig_try_pool(MIB, 8, 16, SGP_PAGES_REQUIRE_2M);
	ck_assert_msg(pool != NULL, "%s", sgp_errmsg());
	rig_fail(RIG_MREMAP, 0, EINVAL);
	ck_assert_int_eq(sgp_pool_grow(pool, 1, 8), -1);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert(rig_failed());
	for (char *p = pool->mem.base; p < pool->mem.base + pool->mem.bytes; p += 4096)
		ck_assert(is_mapped(p));
	ck_assert_int_eq(sgp_pool_grow(pool, 1, 8), 0);
	rig_check(pool, 0);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
}
END_TEST

/* The same, and the hole cannot be plugged: it is never used, and not unmapped at the end. */
START_TEST(test_hole_that_is_lost)
{
	struct sgp_memory mem;
	struct sgp_backing backing = {
		.pages = SGP_PAGES_REQUIRE_2M, .node = -1, .max_bytes = SIZE_MAX};
	struct sgp_piece piece[2];
	char *hole, *other;

	rig_huge = RIG_HUGE_PLENTY;
	ck_assert_int_eq(sgp_memory_reserve(&mem, 8 * MIB, 21, 2 * MIB), 0);
	ck_assert_int_eq(sgp_memory_commit(&mem, 2 * MIB, &backing, &piece[0]), 0);
	hole = piece[0].addr;
	rig_fail(RIG_MMAP, 0, ENOMEM);
	sgp_memory_decommit(&mem, &piece[0]);
	ck_assert(rig_failed());
	other = mmap(hole, 2 * MIB, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	ck_assert_ptr_eq(other, hole);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(sgp_memory_commit(&mem, 2 * MIB, &backing, &piece[i]), 0);
		ck_assert_ptr_ne(piece[i].addr, hole);
	}
	sgp_memory_release(&mem);
	memset(other, 1, 2 * MIB);
	ck_assert_int_eq(munmap(other, 2 * MIB), 0);
}
END_TEST

static int count_lines(const char *path)
{
	FILE *f = fopen(path, "re");
	int n = 0, c;

	ck_assert_ptr_nonnull(f);
	while ((c = fgetc(f)) != EOF)
		n += c == '\n';
	fclose(f);
	return n;
}

/* case 8 */
START_TEST(test_no_sysv_segments)
{
	int before = count_lines("/proc/sysvipc/shm");
	struct sgp_pool *pool[64];

	rig_huge = RIG_HUGE_PLENTY;
	for (int i = 0; i < 64; i++)
		pool[i] = rig_try_pool(MIB, 2, 0, SGP_PAGES_PREFER_2M);
	ck_assert_int_eq(count_lines("/proc/sysvipc/shm"), before);
	for (int i = 0; i < 64; i++)
		ck_assert_int_eq(sgp_pool_destroy(pool[i]), 0);
}
END_TEST

static void use_all(struct sgp_pool *pool, int rounds)
{
	for (int i = 0; i < rounds; i++) {
		struct sgp_chunk *chunk = sgp_pool_get(pool, 4096, 0);

		memset(sgp_chunk_addr(chunk), i, 4096);
		sgp_chunk_put(chunk);
	}
}

/* case 48; the rest of it is test_fork.c's. */
START_TEST(test_mappings_do_not_grow)
{
	struct sgp_pool *pool = rig_try_pool(4096, 64, 0, SGP_PAGES_BASE);
	int before;

	use_all(pool, 64); /* what a sanitizer maps for the memory itself */
	before = count_lines("/proc/self/maps");
	use_all(pool, 20000);
	ck_assert_int_le(count_lines("/proc/self/maps"), before + 2);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
}
END_TEST

/* The chunks are not the child's: a fork copies none of the pinned pages. */
START_TEST(test_memory_stays_out_of_a_child)
{
	struct sgp_pool *pool = rig_try_pool(4096, 4, 0, SGP_PAGES_BASE);
	struct sgp_chunk *chunk = sgp_pool_get(pool, 1, 0);
	void *addr = sgp_chunk_addr(chunk);
	int status;
	pid_t pid;

	pid = fork();
	if (pid == 0)
		_exit(is_mapped(addr));
	ck_assert_int_gt(pid, 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	sgp_chunk_put(chunk);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
}
END_TEST

static struct sgp_pool *with_helper(enum sgp_pages pages)
{
	struct sgp_class_attr cls = {.size = 512 * 1024, .chunks = 3, .max_chunks = 12};
	struct sgp_pool_attr attr = {
		.classes = &cls, .nclasses = 1, .pages = pages, .idle_ms = 1000000};

	return sgp_pool_create(rig_pd, &attr);
}

/* One call fails, then the next, until none does: the errno comes out, nothing is left, a retry
 * works. */
static int sweep(enum rig_call call, const char *verb, int err, enum sgp_pages pages)
{
	bool failed = true;
	int struck = 0;

	for (int n = 0; failed; n++) {
		struct sgp_pool *pool;
		int grown = 0;

		if (verb)
			sv_fail_nth(verb, (uint64_t)n, err);
		else
			rig_fail(call, n, err);
		pool = with_helper(pages);
		if (pool) {
			grown = sgp_pool_grow(pool, 1, 5);
			if (grown)
				ck_assert_int_eq(errno, err);
		} else {
			ck_assert_int_eq(errno, err);
			ck_assert_int_eq(rig_mapped, 0);
			ck_assert_int_eq(sv_live(SV_MRS), 0);
		}
		failed = verb ? sv_failed(verb) : rig_failed();
		sv_faults_clear();
		if (!failed)
			ck_assert(pool && !grown);
		if (!pool)
			pool = with_helper(pages);
		ck_assert_msg(pool != NULL, "after %d: %s", n, sgp_errmsg());
		rig_check(pool, 0);
		if (grown)
			ck_assert_int_eq(sgp_pool_grow(pool, 1, 5), 0);
		rig_check(pool, 0);
		ck_assert_int_eq(sgp_pool_destroy(pool), 0);
		ck_assert_int_eq(rig_mapped, 0);
		ck_assert_int_eq(sv_live(SV_MRS), 0);
		ck_assert_int_lt(n, 200);
		struck += failed;
	}
	return struck;
}

/* It would be made present, until the kernel ends a process without a word. */
START_TEST(test_more_than_the_machine_has)
{
	const size_t have = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);

	ck_assert_ptr_null(rig_try_pool(MIB, have / MIB + 1, 0, SGP_PAGES_BASE));
	ck_assert_int_eq(errno, ENOMEM);
	ck_assert_ptr_nonnull(strstr(sgp_errmsg(), "the machine has"));
	ck_assert_int_eq(rig_mapped, 0);
	/* What growth may make one day is addresses only. */
	struct sgp_pool *pool = rig_try_pool(MIB, 1, have / MIB + 1, SGP_PAGES_BASE);

	ck_assert_ptr_nonnull(pool);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
}
END_TEST

START_TEST(test_fail_at_call_n)
{
	static const enum sgp_pages pages[] = {SGP_PAGES_BASE, SGP_PAGES_REQUIRE_2M,
					       SGP_PAGES_PREFER_2M};

	rig_huge = RIG_HUGE_PLENTY;
	for (int i = 0; i < 3; i++) {
		for (enum rig_call call = 0; call < RIG_CALLS; call++) {
			int struck = sweep(call, NULL, ENOMEM, pages[i]);

			/* Only hugepages are moved, only base pages are made accessible. */
			if ((call != RIG_MREMAP || pages[i] != SGP_PAGES_BASE) &&
			    (call != RIG_MPROTECT || pages[i] != SGP_PAGES_REQUIRE_2M))
				ck_assert_int_gt(struck, 0);
		}
		ck_assert_int_gt(sweep(0, "reg_mr", EIO, pages[i]), 1);
		ck_assert_int_gt(sweep(0, "query_device", EIO, pages[i]), 0);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pool memory");
	TCase *tc = tcase_create("memory");

	tcase_add_checked_fixture(tc, rig_setup, rig_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_hugepage_regions_are_whole_hugepages);
	tcase_add_test(tc, test_no_hugepages);
	tcase_add_test(tc, test_hole_in_the_range);
	tcase_add_test(tc, test_hole_that_is_lost);
	tcase_add_test(tc, test_no_sysv_segments);
	tcase_add_test(tc, test_mappings_do_not_grow);
	tcase_add_test(tc, test_memory_stays_out_of_a_child);
	tcase_add_test(tc, test_more_than_the_machine_has);
	tcase_add_test(tc, test_fail_at_call_n);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
