/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The end of every Check program: its suite is run as the environment says, and given back. And its
 * beginning: a time limit is there for what hangs. What a test takes says nothing, as the machine may be
 * busy with others', so that limits are wide, also for cases that set none (Check's own is 4 s).
 */
#ifndef TESTS_SUITE_H
#define TESTS_SUITE_H

#include "asserts.h"
#include <stdlib.h>

/* Before main() makes a case, which is when Check reads it. What the environment says goes first. */
__attribute__((constructor)) static void suite_limits(void)
{
	setenv("CK_DEFAULT_TIMEOUT", "60", 0);
	setenv("CK_TIMEOUT_MULTIPLIER", "5", 0);
}

/* For main to return: 0 if no test failed. */
static inline int suite_run(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	int failed;

	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}

#endif
