/* SPDX-License-Identifier: BSD-2-Clause */
/* Whether this process has a page at an address. */
#ifndef TESTS_UNIT_MAPPED_H
#define TESTS_UNIT_MAPPED_H

#include <sys/mman.h>

static inline int is_mapped(void *page)
{
	unsigned char present;

	return mincore(page, 4096, &present) == 0;
}

#endif
