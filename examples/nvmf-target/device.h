/* SPDX-License-Identifier: BSD-2-Clause */
/* A device: protection domain, completion queue, shared receive queue, and its asynchronous events. */
#ifndef NVMF_DEVICE_H
#define NVMF_DEVICE_H

#include "target.h"

/* The device behind verbs: opened if it's the first time. NULL after a line on stderr. */
struct device *device_get(struct target *t, struct ibv_context *verbs);

/* Give the first one of the thread's back; no queue is on it. Returns 0; -1 after a line on stderr. */
int device_close(struct device *dev);

#endif
