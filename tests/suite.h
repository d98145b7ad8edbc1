/* SPDX-License-Identifier: BSD-2-Clause */
/* The end of every Check program: its suite is run as the environment says, and given back. */
#ifndef TESTS_SUITE_H
#define TESTS_SUITE_H

#include <check.h>

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
