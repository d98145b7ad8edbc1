/* SPDX-License-Identifier: BSD-2-Clause */
/* What a thread does all the time. */
#ifndef NVMF_LOOP_H
#define NVMF_LOOP_H

#include "target.h"

/*
 * Serve the thread's queues until all threads are to end; then what it did is in its report, none of its
 * queues is left, and none of any other thread's.
 */
void loop_serve(struct target *t);

/* The time to some milliseconds, in ns, which is never a system call. */
int64_t loop_clock(void);

#endif
