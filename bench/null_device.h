/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A null provider: it does a hardware provider's work on the host's side (checks the request,
 * writes a work queue element in the device's format, remembers the wr_id) and completes it at
 * once, with no doorbell, no lock and no data moved. So what is measured is what a program does
 * around its posts.
 *
 * It takes the place of the fast-path functions of an open softverbs device; all else stays
 * softverbs'.
 */
#ifndef BENCH_NULL_DEVICE_H
#define BENCH_NULL_DEVICE_H

#include <infiniband/verbs.h>

/* Take over the device. Only queue pairs of one completion queue are served. */
void null_device_install(struct ibv_context *verbs);

/* Take a queue pair in, with the depths and inline bytes that it was made with. Returns 0 or -1. */
int null_device_adopt(struct ibv_qp *qp, uint32_t depth, uint32_t max_sge, uint32_t max_inline);

/* Forget it. */
void null_device_drop(struct ibv_qp *qp);

#endif
