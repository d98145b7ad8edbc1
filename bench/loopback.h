/* SPDX-License-Identifier: BSD-2-Clause */
/* A queue pair whose peer it is itself: what it sends stays in the device. */
#ifndef BENCH_LOOPBACK_H
#define BENCH_LOOPBACK_H

#include <infiniband/verbs.h>

/* A plain RC queue pair through INIT, with these rights for its peer, and RTR to RTS. 0 or -1. */
int loopback_to_rts(struct ibv_qp *qp, unsigned int access);

#endif
