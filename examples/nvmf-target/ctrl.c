/* SPDX-License-Identifier: BSD-2-Clause */
/* Controllers (see ctrl.h). */
#include <nvme/types.h>
#include <stdio.h>
#include <stdlib.h>

#include "ctrl.h"

struct ctrl *ctrl_create(struct target *t, bool discovery)
{
	struct ctrl *ctrl;
	uint16_t i = 0;

	while (i < MAX_CTRLS && t->ctrl[i])
		i++;
	ctrl = i < MAX_CTRLS ? calloc(1, sizeof *ctrl) : NULL;
	if (!ctrl)
		return NULL;
	ctrl->target = t;
	ctrl->cntlid = (uint16_t)(i + 1);
	ctrl->discovery = discovery;
	ctrl->io_queues = CTRL_IO_QUEUES;
	t->ctrl[i] = ctrl;
	return ctrl;
}

static void free_ctrl(struct ctrl *ctrl)
{
	while (ctrl->events)
		queue_drop(ctrl->event[--ctrl->events]);
	ctrl->queue[0] = NULL;
	for (int i = 1; i <= CTRL_IO_QUEUES; i++)
		if (ctrl->queue[i])
			queue_end(ctrl->queue[i], NULL);
	ctrl->target->ctrl[ctrl->cntlid - 1] = NULL;
	free(ctrl);
}

void ctrl_queue_gone(struct queue *q)
{
	struct ctrl *ctrl = q->ctrl;

	q->ctrl = NULL;
	if (ctrl->queue[0] == q)
		free_ctrl(ctrl);
	else
		ctrl->queue[q->qid] = NULL;
}

void ctrl_keep_alive(struct ctrl *ctrl)
{
	ctrl->alive_until = ctrl->target->now + (int64_t)ctrl->keep_alive_ms * 1000000;
}

void ctrl_set_enabled(struct ctrl *ctrl, bool enabled)
{
	for (int i = 0; i <= CTRL_IO_QUEUES; i++)
		if (ctrl->queue[i])
			ctrl->queue[i]->limits.enabled = enabled;
	if (enabled)
		ctrl_keep_alive(ctrl);
}

void ctrl_tick(struct target *t)
{
	for (int i = 0; i < MAX_CTRLS; i++) {
		struct ctrl *ctrl = t->ctrl[i];

		if (!ctrl || !ctrl->keep_alive_ms || !(ctrl->csts & CTRL_READY) ||
		    t->now < ctrl->alive_until)
			continue;
		t->stats.keep_alive_expired++;
		queue_end(ctrl->queue[0], "its host has not been heard of for the keep-alive time");
	}
}
