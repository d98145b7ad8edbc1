/* SPDX-License-Identifier: BSD-2-Clause */
/* What is said when something can't be had: the cause, only where it is one, and what mends it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "../suite.h"
#include "pool/advice.h"
#include "pool_rig.h"

#define MIB (UINT64_C(1) << 20)

static struct sgp_advice advice;

static void says(const char *text, const char *words)
{
	ck_assert_msg(strstr(text, words) != NULL, "'%s' in: %s", words, text);
}

static void says_not(const char *text, const char *words)
{
	ck_assert_msg(strstr(text, words) == NULL, "'%s' in: %s", words, text);
}

/* Set the soft limit, and the hard one too or not at all: it can't be raised. Returns the latter. */
static rlim_t limit(rlim_t soft, bool hard)
{
	struct rlimit rlimit;

	ck_assert_int_eq(getrlimit(RLIMIT_MEMLOCK, &rlimit), 0);
	rlimit.rlim_cur = soft;
	if (hard)
		rlimit.rlim_max = soft;
	ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &rlimit), 0);
	return rlimit.rlim_max;
}

START_TEST(test_memlock_and_the_capability)
{
	struct sgp_memlock lock = {.limit = 65536, .cap_counts = true};

	char command[64] = "ulimit -l unlimited (this shell)";
	rlim_t hard = limit(4096, false);

	sgp_advise_memlock(&advice, &lock, MIB);
	says(advice.what, "1048576 bytes more");
	says(advice.what,
	     "RLIMIT_MEMLOCK is 65536 bytes, CAP_IPC_LOCK is not in the effective set");
	if (hard != RLIM_INFINITY) /* in KiB */
		snprintf(command, sizeof command, "ulimit -l %llu (this shell)",
			 (unsigned long long)hard >> 10);
	says(advice.mend, command);
	says(advice.mend, "limits.conf");
	says(advice.mend, "LimitMEMLOCK=");
	says(advice.mend, "container's memlock ulimit");
	says(advice.mend, "CAP_IPC_LOCK in its effective set");
	lock.cap = true;
	lock.cap_counts = false;
	sgp_advise_memlock(&advice, &lock, MIB);
	says(advice.what, "counts in the initial user namespace only");
	says(advice.mend, "does not help here");
	says_not(advice.mend, "give the process");
	lock.cap_counts = lock.cap_unheeded = true;
	sgp_advise_memlock(&advice, &lock, MIB);
	says(advice.what, "soft-iWARP does not look at it");
	says_not(advice.mend, "CAP_IPC_LOCK");
	limit(4096, true);
	sgp_advise_memlock(&advice, &lock, MIB);
	says(advice.mend, "sudo prlimit --memlock=unlimited --pid $$");
}
END_TEST

static bool registration(int err, uint64_t bytes, uint64_t regions)
{
	const struct sgp_unregistered failed = {
		.verbs = rig_pd->context, .bytes = bytes, .regions = regions, .err = err};

	return sgp_advise_registration(&advice, &failed);
}

START_TEST(test_registration)
{
	ck_assert_int_eq(sv_set("soft0", "max_mr", 4), 0);
	ck_assert_int_eq(sv_set("soft0", "max_mr_size", 8192), 0);
	ck_assert(!registration(ENOMEM, 4096, 4)); /* little enough for any limit */
	says(advice.what, "registering 4096 bytes failed: Cannot allocate memory");
	says(advice.mend, "4 registrations (max_mr)");
	ck_assert(!registration(ENOMEM, 9000, 1));
	says(advice.mend, "at most 8192 bytes at once (max_mr_size)");
	ck_assert(!registration(ENOMEM, 4096, 1));
	says(advice.mend, "not the cause (RLIMIT_MEMLOCK is ");
	ck_assert(!registration(ENODEV, 4096, 1));
	says(advice.mend, "device may be gone");
}
END_TEST

START_TEST(test_memory_that_cannot_be_pinned)
{
	struct sgp_unregistered failed = {
		.verbs = rig_pd->context, .bytes = 4096, .imported = true, .err = EFAULT};

	sgp_advise_registration(&advice, &failed);
	says(advice.mend, "SGP_IMPORT_READ_ONLY");
	failed.read_only = true;
	sgp_advise_registration(&advice, &failed);
	says(advice.what, "for sending");
	says(advice.mend, "MAP_PRIVATE");
}
END_TEST

START_TEST(test_hugepages)
{
	const struct sgp_hugepages pages = sgp_hugepages_read(2 * MIB);
	char number[64];

	sgp_advise_hugepages(&advice, 2 * MIB, 3 * MIB + (pages.free << 21), ENOMEM);
	says(advice.what, "no 2 MiB hugepages for");
	snprintf(number, sizeof number, "%llu of %llu are free, %llu are needed",
		 (unsigned long long)pages.free, (unsigned long long)pages.total,
		 (unsigned long long)pages.free + 2);
	says(advice.what, number);
	snprintf(number, sizeof number, "sysctl vm.nr_hugepages=%llu",
		 (unsigned long long)pages.total + 2);
	says(advice.mend, pages.supported ? number : "none of that size");
	sgp_advise_hugepages(&advice, 4096 * MIB, 1, ENOMEM); /* nobody has such */
	says(advice.mend, "none of that size");
	ck_assert(!sgp_hugepages_read(4096 * MIB).supported);
}
END_TEST

START_TEST(test_fork)
{
	sgp_advise_fork(&advice);
	says(advice.what, "does not copy pinned pages");
	says(advice.mend, "RDMAV_FORK_SAFE=1");
}
END_TEST

/* The sentences come out whole where programs see them. */
START_TEST(test_errmsg)
{
	struct sgp_class_attr cls = {.size = 4096, .chunks = 1, .max_chunks = 8};
	struct sgp_pool_attr attr = {.classes = &cls, .nclasses = 1, .pages = SGP_PAGES_BASE};
	struct sgp_pool *pool;

	ck_assert_int_eq(sv_set("soft0", "max_mr", 1), 0);
	pool = sgp_pool_create(rig_pd, &attr);
	ck_assert_ptr_nonnull(pool);
	ck_assert_int_eq(sgp_pool_grow(pool, 1, 1), -1);
	ck_assert_int_eq(errno, ENOMEM);
	says(sgp_errmsg(), "1 registrations (max_mr)");
	says(sgp_errmsg(), "from the beginning.");
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
	attr.pages = SGP_PAGES_REQUIRE_2M;
	cls.size = 4 * MIB;
	cls.max_chunks = 1;
	ck_assert_ptr_null(sgp_pool_create(rig_pd, &attr));
	ck_assert_int_eq(errno, ENOMEM);
	says(sgp_errmsg(), "no 2 MiB hugepages for 4194304 bytes");
	says(sgp_errmsg(), "prefer hugepages instead of requiring them.");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("advice");
	TCase *tc = tcase_create("advice");

	tcase_add_checked_fixture(tc, rig_setup, rig_teardown);
	tcase_add_test(tc, test_memlock_and_the_capability);
	tcase_add_test(tc, test_registration);
	tcase_add_test(tc, test_memory_that_cannot_be_pinned);
	tcase_add_test(tc, test_hugepages);
	tcase_add_test(tc, test_fork);
	tcase_add_test(tc, test_errmsg);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
