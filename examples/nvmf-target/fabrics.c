/* SPDX-License-Identifier: BSD-2-Clause */
/* Fabrics commands: Connect, which makes a controller or joins one, and properties. */
#include <nvme/types.h>
#include <string.h>

#include "ctrl.h"
#include "wire.h"

enum {
	CAP_TIMEOUT = 15, /* in units of 500 ms: for CC.EN to take effect */
	INVALID_PARAM = NVME_SCT_CMD_SPECIFIC << NVME_SCT_SHIFT | NVME_SC_CONNECT_INVALID_PARAM |
			NVME_SC_DNR,
	BUSY = NVME_SCT_CMD_SPECIFIC << NVME_SCT_SHIFT | NVME_SC_CONNECT_CTRL_BUSY | NVME_SC_DNR,
	BAD_FORMAT = NVME_SCT_CMD_SPECIFIC << NVME_SCT_SHIFT | NVME_SC_CONNECT_FORMAT | NVME_SC_DNR,
	BAD_FIELD = NVME_SC_INVALID_FIELD | NVME_SC_DNR,
};

static void refuse(struct request *r, uint32_t where)
{
	r->result = where;
	queue_respond(r, INVALID_PARAM);
}

static bool is_text(const char *field, size_t size)
{
	return memchr(field, 0, size) != NULL;
}

/* What the Connect of either kind of queue gives the queue. */
static void joined(struct request *r)
{
	struct queue *q = r->queue;

	q->sq_flow = !(r->cmd.cdw11 >> 16 & WIRE_CATTR_NO_SQFLOW);
	q->limits.queue = q->qid               ? CAPSULE_IO
			  : q->ctrl->discovery ? CAPSULE_DISCOVERY
					       : CAPSULE_ADMIN;
	r->result = q->ctrl->cntlid;
	queue_respond(r, NVME_SC_SUCCESS);
}

static void connect_admin(struct request *r, const struct nvmf_connect_data *data)
{
	struct target *t = r->queue->target;
	const bool discovery = !strcmp(data->subsysnqn, DISCOVERY_NQN);
	struct ctrl *ctrl;

	if (!discovery && strcmp(data->subsysnqn, t->opt->nqn) != 0) {
		refuse(r, CTRL_AT_SUBNQN);
		return;
	}
	if (le16toh(data->cntlid) != WIRE_CNTLID_ANY) {
		refuse(r, CTRL_AT_CNTLID);
		return;
	}
	ctrl = ctrl_create(r->queue, discovery, data);
	if (!ctrl) {
		queue_respond(r, BUSY);
		return;
	}
	ctrl->keep_alive_ms = r->cmd.cdw12;
	if (discovery && !ctrl->keep_alive_ms)
		ctrl->keep_alive_ms = CTRL_DISCOVERY_MS;
	joined(r);
}

static void connect_io(struct request *r, const struct nvmf_connect_data *data)
{
	uint32_t where;
	int status;

	if (strcmp(data->subsysnqn, r->queue->target->opt->nqn) != 0) {
		refuse(r, CTRL_AT_SUBNQN);
		return;
	}
	status = ctrl_join(r->queue, data, &where);
	if (where)
		refuse(r, where);
	else if (status)
		queue_respond(r, status);
	else
		joined(r);
}

/* The data of a Connect is there: some 1024 bytes. */
static void connect_data(struct request *r)
{
	const struct nvmf_connect_data *data;
	struct queue *q = r->queue;

	_Static_assert(sizeof *data == WIRE_CONNECT_DATA, "Connect's data");
	data = (const void *)(uintptr_t)r->data.sge[0].addr;
	if (q->ctrl) /* another one was faster, whose data was on its way at the same time */
		queue_respond(r, NVME_SC_CMD_SEQ_ERROR | NVME_SC_DNR);
	else if (!is_text(data->subsysnqn, NVMF_NQN_SIZE + 1))
		refuse(r, CTRL_AT_SUBNQN);
	else if (!is_text(data->hostnqn, NVMF_NQN_SIZE + 1))
		refuse(r, CTRL_AT_HOSTNQN);
	else if (q->qid)
		connect_io(r, data);
	else
		connect_admin(r, data);
}

static void connect_memory(struct request *r)
{
	r->step = connect_data;
	queue_fetch(r);
}

static void connect_start(struct request *r)
{
	struct queue *q = r->queue;
	const uint32_t recfmt = r->cmd.cdw10 & 0xffff, qid = r->cmd.cdw10 >> 16;
	const uint32_t entries = (r->cmd.cdw11 & 0xffff) + 1;

	if (recfmt) {
		queue_respond(r, BAD_FORMAT);
	} else if (qid != q->qid) {
		refuse(r, CTRL_AT_QID);
	} else if (entries < 2 || entries > q->depth) {
		refuse(r, CTRL_AT_SQSIZE);
	} else {
		q->sq_size = (uint16_t)entries;
		q->sq_head = 1;
		if (r->cmd.data == CAPSULE_INSIDE) {
			connect_data(r);
		} else {
			r->step = connect_memory;
			budget_take_control(&q->target->budget, r, r->cmd.length);
		}
	}
}

/* ---- properties ---- */

static void property_get(struct request *r)
{
	const struct ctrl *ctrl = r->queue->ctrl;
	const bool eight = r->cmd.cdw10 & 1;

	switch (r->cmd.cdw11) {
	case NVME_REG_CAP:
		if (!eight)
			break;
		r->result = (uint64_t)(ctrl->target->opt->depth - 1) << NVME_CAP_MQES_SHIFT |
			    1ull << NVME_CAP_CQR_SHIFT |
			    (uint64_t)CAP_TIMEOUT << NVME_CAP_TO_SHIFT | 1ull << NVME_CAP_CSS_SHIFT;
		queue_respond(r, NVME_SC_SUCCESS);
		return;
	case NVME_REG_VS:
		if (eight)
			break;
		r->result = CTRL_VERSION;
		queue_respond(r, NVME_SC_SUCCESS);
		return;
	case NVME_REG_CC:
		if (eight)
			break;
		r->result = ctrl->cc;
		queue_respond(r, NVME_SC_SUCCESS);
		return;
	case NVME_REG_CSTS:
		if (eight)
			break;
		r->result = ctrl->csts;
		queue_respond(r, NVME_SC_SUCCESS);
		return;
	default:
		break;
	}
	queue_respond(r, BAD_FIELD);
}

/* Queue entry sizes, page size, command set: as our host must have it. */
static bool cc_is_valid(uint32_t cc)
{
	return NVME_GET(cc, CC_IOSQES) == 6 && NVME_GET(cc, CC_IOCQES) == 4 &&
	       NVME_GET(cc, CC_MPS) == 0 && NVME_GET(cc, CC_AMS) == 0 && NVME_GET(cc, CC_CSS) == 0;
}

static void set_cc(struct ctrl *ctrl, uint32_t cc)
{
	const bool was = NVME_GET(ctrl->cc, CC_EN), is = NVME_GET(cc, CC_EN);

	ctrl->cc = cc;
	if (is && !was) {
		ctrl->csts = ctrl->discovery || cc_is_valid(cc) ? CTRL_READY : CTRL_FAILED;
		ctrl_set_enabled(ctrl, ctrl->csts & CTRL_READY);
	} else if (!is && was) {
		ctrl->csts = 0;
		ctrl_set_enabled(ctrl, false);
	}
	/* Nothing of ours outlives a shutdown in a cache: what was flushed is in the files. */
	if (NVME_GET(cc, CC_SHN))
		ctrl->csts |= CTRL_SHUT_DOWN;
	else
		ctrl->csts &= ~(uint32_t)CTRL_SHUT_DOWN;
}

static void property_set(struct request *r)
{
	if (r->cmd.cdw10 & 1 || r->cmd.cdw11 != NVME_REG_CC) {
		queue_respond(r, BAD_FIELD);
		return;
	}
	set_cc(r->queue->ctrl, r->cmd.cdw12);
	queue_respond(r, NVME_SC_SUCCESS);
}

void fabrics_start(struct request *r)
{
	if (r->cmd.kind == CAPSULE_CONNECT)
		connect_start(r);
	else if (r->cmd.kind == CAPSULE_PROPERTY_GET)
		property_get(r);
	else
		property_set(r);
}
