/* SPDX-License-Identifier: BSD-2-Clause */
/* Linked into programs whose lines are counted: what a child that ends by _exit(2) has run counts too. */
void __gcov_dump(void);
void __real__exit(int status) __attribute__((noreturn));
void __wrap__exit(int status) __attribute__((noreturn));

void __wrap__exit(int status)
{
	__gcov_dump();
	__real__exit(status);
}
