/* SPDX-License-Identifier: BSD-2-Clause */
/* Admin commands: identify and log pages (what they say is in identify.c and log.c), features, aborts,
 * asynchronous events, keep alive. */
#include <nvme/types.h>
#include <string.h>

#include "ctrl.h"
#include "wire.h"

enum {
	BAD_FIELD = NVME_SC_INVALID_FIELD | NVME_SC_DNR,
	NOT_ABORTED = 1,
	EXTENDED_HOST_ID = 1, /* of 16 bytes */
	TOO_MANY_EVENTS =
		NVME_SCT_CMD_SPECIFIC << NVME_SCT_SHIFT | NVME_SC_ASYNC_LIMIT | NVME_SC_DNR,
};

static void *page_of(const struct request *r)
{
	return (void *)(uintptr_t)r->data.sge[0].addr;
}

static void clear(const struct sgp_sgl *list)
{
	for (int i = 0; i < list->num_sge; i++)
		memset((void *)(uintptr_t)list->sge[i].addr, 0, list->sge[i].length);
}

static void identify(struct request *r)
{
	clear(&r->data);
	queue_respond(r, identify_fill(r->queue->ctrl, &r->cmd, page_of(r)));
}

/* The part of a log page that is asked for; behind its end, zeroes. */
static void get_log(struct request *r)
{
	static uint8_t page[WIRE_IDENTIFY];
	const uint64_t from = (uint64_t)r->cmd.cdw13 << 32 | r->cmd.cdw12;
	uint32_t length = 0, n = r->data.sge[0].length;
	int status;

	memset(page, 0, sizeof page);
	status = from % 4 ? BAD_FIELD : log_fill(r->queue, r->cmd.cdw10 & 0xff, page, &length);
	if (!status && from > length)
		status = BAD_FIELD;
	if (!status) {
		if (n > length - from)
			n = (uint32_t)(length - from);
		clear(&r->data);
		memcpy(page_of(r), page + from, n);
	}
	queue_respond(r, status);
}

/* ---- features ---- */

static void host_id(struct request *r)
{
	memcpy(page_of(r), r->queue->ctrl->hostid, sizeof r->queue->ctrl->hostid);
	queue_respond(r, NVME_SC_SUCCESS);
}

static uint32_t queues_result(const struct ctrl *ctrl)
{
	return (uint32_t)(ctrl->io_queues - 1) * 0x10001;
}

static void get_features(struct request *r)
{
	const struct ctrl *ctrl = r->queue->ctrl;

	switch (r->cmd.cdw10 & 0xff) {
	case NVME_FEAT_FID_NUM_QUEUES:
		r->result = queues_result(ctrl);
		break;
	case NVME_FEAT_FID_KATO:
		r->result = ctrl->keep_alive_ms;
		break;
	case NVME_FEAT_FID_ASYNC_EVENT:
		r->result = ctrl->event_config;
		break;
	case NVME_FEAT_FID_VOLATILE_WC:
		r->result = 1;
		break;
	case NVME_FEAT_FID_HOST_ID:
		if (!(r->cmd.cdw11 & EXTENDED_HOST_ID))
			break;
		r->step = host_id;
		budget_take_control(&ctrl->target->budget, r, r->cmd.length);
		return;
	default:
		queue_respond(r, BAD_FIELD);
		return;
	}
	queue_respond(r, r->cmd.data == CAPSULE_STORE ? BAD_FIELD : NVME_SC_SUCCESS);
}

/* As many of both as the lesser of what is asked for and what there is: they are the same here. */
static int set_queues(struct request *r, struct ctrl *ctrl)
{
	const uint32_t submission = r->cmd.cdw11 & 0xffff, completion = r->cmd.cdw11 >> 16;
	const uint32_t wanted = (submission < completion ? submission : completion) + 1;
	int status;

	if (submission == 0xffff || completion == 0xffff)
		return BAD_FIELD;
	status = ctrl_grant(ctrl, wanted < CTRL_IO_QUEUES ? (uint16_t)wanted : CTRL_IO_QUEUES);
	if (!status)
		r->result = queues_result(ctrl);
	return status;
}

static int set_feature(struct request *r, struct ctrl *ctrl)
{
	switch (r->cmd.cdw10 & 0xff) {
	case NVME_FEAT_FID_NUM_QUEUES:
		return ctrl->discovery ? BAD_FIELD : set_queues(r, ctrl);
	case NVME_FEAT_FID_KATO:
		ctrl->keep_alive_ms = r->cmd.cdw11;
		ctrl_keep_alive(ctrl);
		return NVME_SC_SUCCESS;
	case NVME_FEAT_FID_ASYNC_EVENT:
		ctrl->event_config = r->cmd.cdw11;
		return NVME_SC_SUCCESS;
	case NVME_FEAT_FID_HOST_ID: /* Connect has set it */
		return NVME_SC_CMD_SEQ_ERROR | NVME_SC_DNR;
	default:
		return BAD_FIELD;
	}
}

/* ---- the rest ---- */

/* Kept until there is an event to tell of, or the controller ends. */
static void async_event(struct request *r)
{
	struct ctrl *ctrl = r->queue->ctrl;

	if (ctrl->events == CTRL_ASYNC_EVENTS)
		queue_respond(r, TOO_MANY_EVENTS);
	else
		ctrl->event[ctrl->events++] = r;
}

void admin_start(struct request *r)
{
	struct target *t = r->queue->target;
	struct ctrl *ctrl = r->queue->ctrl;

	switch (r->cmd.kind) {
	case CAPSULE_IDENTIFY:
		r->step = identify;
		budget_take_control(&t->budget, r, r->cmd.length);
		return;
	case CAPSULE_GET_LOG:
		r->step = get_log;
		if (r->cmd.length <= BUDGET_INSIDE)
			budget_take_control(&t->budget, r, r->cmd.length);
		else
			budget_take(&t->budget, r, r->cmd.length, BUDGET_DATA);
		return;
	case CAPSULE_GET_FEATURES:
		get_features(r);
		return;
	case CAPSULE_SET_FEATURES:
		queue_respond(r, set_feature(r, ctrl));
		return;
	case CAPSULE_ABORT: /* a command here ends by itself, and not sooner for being aborted */
		r->result = NOT_ABORTED;
		queue_respond(r, NVME_SC_SUCCESS);
		return;
	case CAPSULE_KEEP_ALIVE:
		ctrl_keep_alive(ctrl);
		queue_respond(r, NVME_SC_SUCCESS);
		return;
	default: /* CAPSULE_ASYNC_EVENT */
		async_event(r);
	}
}
