/* SPDX-License-Identifier: BSD-2-Clause */
/* Controllers (see ctrl.h). */
#include <nvme/types.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctrl.h"
#include "threads.h"

static struct common *lock(struct target *t)
{
	pthread_mutex_lock(&t->common->lock);
	return t->common;
}

static void unlock(struct common *c)
{
	pthread_mutex_unlock(&c->lock);
}

static void join_locked(struct ctrl *ctrl, struct queue *q)
{
	q->ctrl = ctrl;
	ctrl->queue[q->qid] = q;
	ctrl->members++;
}

struct ctrl *ctrl_create(struct queue *q, bool discovery, const struct nvmf_connect_data *data)
{
	struct ctrl *ctrl = calloc(1, sizeof *ctrl);
	struct common *c;
	uint16_t i = 0;

	if (!ctrl)
		return NULL;
	ctrl->target = q->target;
	ctrl->discovery = discovery;
	ctrl->io_queues = CTRL_IO_QUEUES;
	memcpy(ctrl->hostid, data->hostid, sizeof ctrl->hostid);
	_Static_assert(sizeof ctrl->hostnqn == NVMF_NQN_SIZE + 1, "where the text ends");
	memcpy(ctrl->hostnqn, data->hostnqn, sizeof ctrl->hostnqn);
	c = lock(q->target);
	while (i < MAX_CTRLS && c->ctrl[i])
		i++;
	if (i < MAX_CTRLS) {
		ctrl->cntlid = (uint16_t)(i + 1);
		c->ctrl[i] = ctrl;
		join_locked(ctrl, q);
	}
	unlock(c);
	if (i < MAX_CTRLS)
		return ctrl;
	free(ctrl);
	return NULL;
}

static int join_io_locked(const struct common *c, struct queue *q,
			  const struct nvmf_connect_data *data, uint32_t *where)
{
	const uint16_t cntlid = le16toh(data->cntlid);
	struct ctrl *ctrl = cntlid >= 1 && cntlid <= MAX_CTRLS ? c->ctrl[cntlid - 1] : NULL;

	*where = 0;
	if (!ctrl || ctrl->discovery)
		*where = CTRL_AT_CNTLID;
	else if (strcmp(data->hostnqn, ctrl->hostnqn) != 0 ||
		 memcmp(data->hostid, ctrl->hostid, sizeof ctrl->hostid) != 0)
		*where = CTRL_AT_HOSTNQN;
	else if (!atomic_load(&ctrl->enabled))
		return NVME_SC_CMD_SEQ_ERROR | NVME_SC_DNR;
	else if (q->qid > ctrl->io_queues || ctrl->queue[q->qid])
		*where = CTRL_AT_QID;
	else
		join_locked(ctrl, q);
	return NVME_SC_SUCCESS;
}

int ctrl_join(struct queue *q, const struct nvmf_connect_data *data, uint32_t *where)
{
	struct common *c = lock(q->target);
	int status = join_io_locked(c, q, data, where);

	unlock(c);
	return status;
}

int ctrl_grant(struct ctrl *ctrl, uint16_t io_queues)
{
	struct common *c = lock(ctrl->target);
	int status = NVME_SC_SUCCESS;

	for (int i = 1; i <= CTRL_IO_QUEUES; i++)
		if (ctrl->queue[i]) /* not once there are some */
			status = NVME_SC_CMD_SEQ_ERROR | NVME_SC_DNR;
	if (!status)
		ctrl->io_queues = io_queues;
	unlock(c);
	return status;
}

static void add_traffic(struct traffic *sum, const struct queue *q)
{
	sum->reads += atomic_load_explicit(&q->moved.reads, memory_order_relaxed);
	sum->writes += atomic_load_explicit(&q->moved.writes, memory_order_relaxed);
	sum->read_bytes += atomic_load_explicit(&q->moved.read_bytes, memory_order_relaxed);
	sum->write_bytes += atomic_load_explicit(&q->moved.write_bytes, memory_order_relaxed);
}

struct traffic ctrl_traffic(struct ctrl *ctrl)
{
	struct common *c = lock(ctrl->target);
	struct traffic sum = ctrl->left;

	for (int i = 1; i <= CTRL_IO_QUEUES; i++)
		if (ctrl->queue[i])
			add_traffic(&sum, ctrl->queue[i]);
	unlock(c);
	return sum;
}

/* The admin queue has gone: nobody finds the controller any more, and each I/O queue is to be ended by
 * its own thread. */
static void retire_locked(struct common *c, struct ctrl *ctrl)
{
	c->ctrl[ctrl->cntlid - 1] = NULL;
	for (int i = 1; i <= CTRL_IO_QUEUES; i++) {
		if (!ctrl->queue[i])
			continue;
		atomic_store(&ctrl->queue[i]->doomed, true);
		threads_wake(ctrl->queue[i]->target);
	}
}

void ctrl_queue_gone(struct queue *q)
{
	struct ctrl *ctrl = q->ctrl;
	struct common *c;
	bool last;

	q->ctrl = NULL;
	while (q->qid == 0 && ctrl->events)
		queue_drop(ctrl->event[--ctrl->events]);
	c = lock(q->target);
	ctrl->queue[q->qid] = NULL;
	last = --ctrl->members == 0;
	if (q->qid == 0)
		retire_locked(c, ctrl);
	else
		add_traffic(&ctrl->left, q);
	unlock(c);
	if (last)
		free(ctrl);
}

void ctrl_keep_alive(struct ctrl *ctrl)
{
	ctrl->alive_until = ctrl->target->now + (int64_t)ctrl->keep_alive_ms * 1000000;
}

void ctrl_set_enabled(struct ctrl *ctrl, bool enabled)
{
	atomic_store(&ctrl->enabled, enabled);
	if (enabled)
		ctrl_keep_alive(ctrl);
}

void ctrl_tick(struct target *t)
{
	for (int i = 0; i < MAX_CTRLS; i++) {
		struct ctrl *ctrl = t->common->ctrl[i]; /* only this thread changes it */

		if (!ctrl || !ctrl->keep_alive_ms || !(ctrl->csts & CTRL_READY) ||
		    t->now < ctrl->alive_until)
			continue;
		t->stats.keep_alive_expired++;
		queue_end(ctrl->queue[0], "its host has not been heard of for the keep-alive time");
	}
}
