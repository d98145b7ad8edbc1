/* SPDX-License-Identifier: BSD-2-Clause */
/* A device: protection domain, completion queue, receives, and its asynchronous events. */
#ifndef NVMF_DEVICE_H
#define NVMF_DEVICE_H

#include "target.h"

#define DEVICE_PARTS 2 /* of a receive: a command, and what came inside */

/* The device behind verbs: opened if it's the first time. NULL after a line on stderr. */
struct device *device_get(struct target *t, struct ibv_context *verbs);

/* What its receives are made of. */
void device_parts(const struct device *dev, struct sgp_recv_part part[DEVICE_PARTS]);

/* Give the first one of the thread's back; no queue is on it. Returns 0; -1 after a line on stderr. */
int device_close(struct device *dev);

#endif
