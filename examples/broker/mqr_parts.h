/* SPDX-License-Identifier: BSD-2-Clause */
/* What mqr.c and mqr_cm.c have of each other. */
#ifndef BROKER_MQR_PARTS_H
#define BROKER_MQR_PARTS_H

#include "mqr.h"

enum {
	MQR_BATCH = 32, /* completions a poll */
	MQR_SGES =
		MQR_PARTS, /* of a message that is sent, if the device takes so many; holds, too */
};

/* Have it looked after: by the run that is under way, or the next one. */
void mqr_touch(struct mqr_conn *c);

void mqr_is_up(struct mqr_conn *c);
void mqr_look_after_all(struct mqr_loop *loop);

/* The completion queue has failed: so have all its connections. */
void mqr_device_failed(struct mqr_loop *loop, struct mqr_device *device, const char *why);

/* Free what has ended and has no completions left. */
void mqr_bury(struct mqr_loop *loop);

#endif
