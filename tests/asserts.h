/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Check's assertions at the price of a comparison. Check tells its parent of each one that holds, so
 * that a test which crashes can be said to have come that far: a message through a file each time, which
 * is most of what a test with a loop takes. Here only the first time that a place is reached is told.
 */
#ifndef TESTS_ASSERTS_H
#define TESTS_ASSERTS_H

#include <check.h>
#include <stdbool.h>

static inline void assert_holds(bool *told, const char *file, int line)
{
	if (__atomic_load_n(told, __ATOMIC_RELAXED))
		return;
	__atomic_store_n(told, true, __ATOMIC_RELAXED);
	_mark_point(file, line);
}

/* All of Check's ck_assert_* are this one. */
#undef ck_assert_msg
#define ck_assert_msg(expr, ...)                                                                   \
	do {                                                                                       \
		static bool ck_told;                                                               \
                                                                                                   \
		if (!(expr))                                                                       \
			_ck_assert_failed(__FILE__, __LINE__, "Assertion '" #expr "' failed",      \
					  ##__VA_ARGS__);                                          \
		else                                                                               \
			assert_holds(&ck_told, __FILE__, __LINE__);                                \
	} while (0)

#endif
