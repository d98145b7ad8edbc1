/* SPDX-License-Identifier: BSD-2-Clause */
/* Making memory present, in parallel where there is much of it. */
#ifndef SGP_POPULATE_H
#define SGP_POPULATE_H

#include "pool/memory.h"

/*
 * Make every page of addr[0 .. bytes - 1] present, so that a lack of memory is an errno here and
 * not a SIGBUS at the first touch. page: the size of its pages. Threads and progress as backing
 * says; a thread that can't be had is done without.
 *
 * Returns 0 or a positive errno.
 */
int sgp_populate(char *addr, size_t bytes, size_t page, const struct sgp_backing *backing);

#endif
