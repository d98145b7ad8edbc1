/* SPDX-License-Identifier: BSD-2-Clause */
/* What the poller does to windows. Both run under the completion queue's lock. */
#ifndef SGP_WINDOW_H
#define SGP_WINDOW_H

#include "post/ep.h"
#include "sgpool/window.h"

/* A bind's or an invalidation's slot has ended. */
void sgp_window_ended_locked(const struct sgp_slot *slot);

/* The peer has invalidated a key of ep's. */
void sgp_window_invalidated_locked(struct sgp_ep *ep, uint32_t rkey);

#endif
