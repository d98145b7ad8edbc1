/* SPDX-License-Identifier: BSD-2-Clause */
/* Command capsules, checked (see capsule.h). All numbers of the host's are compared in 64 bits. */
#include <nvme/types.h>
#include <string.h>

#include "capsule.h"
#include "wire.h"

enum {
	OK = NVME_SC_SUCCESS,
	NO_RETRY = NVME_SC_DNR,
	BAD_OPCODE = NVME_SC_INVALID_OPCODE | NO_RETRY,
	BAD_FIELD = NVME_SC_INVALID_FIELD | NO_RETRY,
	BAD_NS = NVME_SC_INVALID_NS | NO_RETRY,
	BAD_LENGTH = NVME_SC_SGL_INVALID_DATA | NO_RETRY,
	BAD_TYPE = NVME_SC_SGL_INVALID_TYPE | NO_RETRY,
	BAD_OFFSET = NVME_SC_SGL_INVALID_OFFSET | NO_RETRY,
	BAD_SEQUENCE = NVME_SC_CMD_SEQ_ERROR | NO_RETRY,
	BAD_RANGE = NVME_SC_LBA_RANGE | NO_RETRY,
	PROTECTED = NVME_SC_NS_WRITE_PROTECTED | NO_RETRY,
};

/* Direct I/O wants its memory so aligned: what came in the capsule begins on a page. */
#define INSIDE_ALIGN 512

const char *capsule_name(enum capsule_kind kind)
{
	static const char *const names[CAPSULE_KINDS] = {
		[CAPSULE_READ] = "read",
		[CAPSULE_WRITE] = "write",
		[CAPSULE_COMPARE] = "compare",
		[CAPSULE_FLUSH] = "flush",
		[CAPSULE_ZEROES] = "write_zeroes",
		[CAPSULE_DSM] = "dataset_management",
		[CAPSULE_CONNECT] = "connect",
		[CAPSULE_PROPERTY_SET] = "property_set",
		[CAPSULE_PROPERTY_GET] = "property_get",
		[CAPSULE_IDENTIFY] = "identify",
		[CAPSULE_GET_LOG] = "get_log_page",
		[CAPSULE_GET_FEATURES] = "get_features",
		[CAPSULE_SET_FEATURES] = "set_features",
		[CAPSULE_ABORT] = "abort",
		[CAPSULE_ASYNC_EVENT] = "async_event",
		[CAPSULE_KEEP_ALIVE] = "keep_alive",
	};

	return names[kind];
}

/*
 * What stands in the command's descriptor: where its data is, of which the host offers *offered
 * bytes. from_host: which way the data is to go.
 */
static int check_sgl(const struct wire_command *cmd, size_t size, bool from_host,
		     struct capsule *out, uint32_t *offered)
{
	const struct wire_sgl *sgl = &cmd->sgl;
	uint64_t addr = le64toh(sgl->addr), inside = size - sizeof *cmd;

	switch (sgl->type) {
	case WIRE_SGL_KEYED:
	case WIRE_SGL_KEYED_INVALIDATE:
		*offered = wire_keyed_length(sgl);
		if (addr + *offered < addr)
			return BAD_FIELD;
		out->data = from_host ? CAPSULE_FETCH : CAPSULE_STORE;
		out->addr = addr;
		return OK;
	case WIRE_SGL_OFFSET:
		*offered = wire_length(sgl);
		if (!from_host)
			return BAD_TYPE;
		if (addr > inside || *offered > inside - addr || addr % INSIDE_ALIGN)
			return BAD_OFFSET;
		out->data = CAPSULE_INSIDE;
		out->offset = (uint32_t)addr;
		return OK;
	default:
		return BAD_TYPE;
	}
}

/* The data is length bytes, and the host must offer exactly these, or with at_least so many. */
static int check_data(const struct wire_command *cmd, size_t size, bool from_host, uint64_t length,
		      bool at_least, uint32_t max, struct capsule *out)
{
	uint32_t offered;
	int status;

	if (length > max)
		return BAD_FIELD;
	status = check_sgl(cmd, size, from_host, out, &offered);
	if (status)
		return status;
	if (offered < length || (offered > length && !at_least))
		return BAD_LENGTH;
	out->length = (uint32_t)length;
	return OK;
}

/* ---- the commands of the NVM command set ---- */

static int check_ns(const struct capsule_limits *limits, uint32_t nsid,
		    const struct capsule_ns **ns)
{
	if (nsid == 0 || nsid > limits->nns)
		return BAD_NS;
	*ns = &limits->ns[nsid - 1];
	return OK;
}

static int check_lbas(const struct capsule_ns *ns, uint64_t first, uint64_t count)
{
	return first >= ns->blocks || count > ns->blocks - first ? BAD_RANGE : OK;
}

static int check_blocks(const struct capsule_limits *limits, const struct wire_command *cmd,
			size_t size, struct capsule *out)
{
	const uint64_t first = (uint64_t)out->cdw11 << 32 | out->cdw10;
	const uint64_t count = (out->cdw12 & 0xffff) + 1;
	const struct capsule_ns *ns;
	int status = check_ns(limits, out->nsid, &ns);

	if (!status)
		status = check_lbas(ns, first, count);
	if (status)
		return status;
	out->at = first << ns->block_shift;
	out->bytes = count << ns->block_shift;
	out->fua = out->cdw12 & WIRE_RW_FUA;
	if (ns->read_only && (out->kind == CAPSULE_WRITE || out->kind == CAPSULE_ZEROES))
		return PROTECTED;
	if (out->kind == CAPSULE_ZEROES) {
		out->deallocate = out->cdw12 & WIRE_ZEROES_DEALLOCATE;
		return OK;
	}
	return check_data(cmd, size, out->kind != CAPSULE_READ, out->bytes, false, limits->max_data,
			  out);
}

static int check_dsm(const struct capsule_limits *limits, const struct wire_command *cmd,
		     size_t size, struct capsule *out)
{
	const struct capsule_ns *ns;
	int status = check_ns(limits, out->nsid, &ns);

	if (status)
		return status;
	out->ranges = (out->cdw10 & 0xff) + 1;
	out->deallocate = out->cdw11 & WIRE_DSM_DEALLOCATE;
	if (out->deallocate && ns->read_only)
		return PROTECTED;
	return check_data(cmd, size, true, (uint64_t)out->ranges * WIRE_DSM_RANGE, true,
			  limits->max_data, out);
}

static int check_io(const struct capsule_limits *limits, const struct wire_command *cmd,
		    size_t size, struct capsule *out)
{
	const struct capsule_ns *ns;

	switch (out->opcode) {
	case nvme_cmd_read:
		out->kind = CAPSULE_READ;
		return check_blocks(limits, cmd, size, out);
	case nvme_cmd_write:
		out->kind = CAPSULE_WRITE;
		return check_blocks(limits, cmd, size, out);
	case nvme_cmd_compare:
		out->kind = CAPSULE_COMPARE;
		return check_blocks(limits, cmd, size, out);
	case nvme_cmd_write_zeroes:
		out->kind = CAPSULE_ZEROES;
		return check_blocks(limits, cmd, size, out);
	case nvme_cmd_flush:
		out->kind = CAPSULE_FLUSH;
		return check_ns(limits, out->nsid, &ns);
	case nvme_cmd_dsm:
		out->kind = CAPSULE_DSM;
		return check_dsm(limits, cmd, size, out);
	case nvme_admin_fabrics: /* a second Connect, or properties on the wrong queue */
		return BAD_SEQUENCE;
	default:
		return BAD_OPCODE;
	}
}

static void get_range(const void *bytes, uint32_t index, struct nvme_dsm_range *range)
{
	memcpy(range, (const char *)bytes + (size_t)index * WIRE_DSM_RANGE, sizeof *range);
}

int capsule_check_ranges(const struct capsule_ns *ns, const void *bytes, uint32_t ranges)
{
	struct nvme_dsm_range range;

	for (uint32_t i = 0; i < ranges; i++) {
		get_range(bytes, i, &range);
		if (le32toh(range.nlb) && check_lbas(ns, le64toh(range.slba), le32toh(range.nlb)))
			return BAD_RANGE;
	}
	return OK;
}

void capsule_range(const struct capsule_ns *ns, const void *bytes, uint32_t index, uint64_t *at,
		   uint64_t *length)
{
	struct nvme_dsm_range range;

	get_range(bytes, index, &range);
	*at = le64toh(range.slba) << ns->block_shift;
	*length = (uint64_t)le32toh(range.nlb) << ns->block_shift;
}

/* ---- fabrics and admin commands ---- */

static int check_fabrics(const struct capsule_limits *limits, const struct wire_command *cmd,
			 size_t size, struct capsule *out)
{
	const uint8_t type = out->nsid & 0xff;

	if (type == WIRE_FABRICS_CONNECT) {
		out->kind = CAPSULE_CONNECT;
		if (limits->queue != CAPSULE_NEW)
			return BAD_SEQUENCE;
		return check_data(cmd, size, true, WIRE_CONNECT_DATA, false, WIRE_CONNECT_DATA,
				  out);
	}
	if (limits->queue == CAPSULE_NEW)
		return BAD_SEQUENCE;
	switch (type) {
	case WIRE_FABRICS_PROPERTY_SET:
		out->kind = CAPSULE_PROPERTY_SET;
		return OK;
	case WIRE_FABRICS_PROPERTY_GET:
		out->kind = CAPSULE_PROPERTY_GET;
		return OK;
	default:
		return BAD_OPCODE;
	}
}

/* A host identifier of 16 bytes is the only feature here that has data. */
static int check_features(const struct wire_command *cmd, size_t size, struct capsule *out)
{
	if (out->kind != CAPSULE_GET_FEATURES || (out->cdw10 & 0xff) != NVME_FEAT_FID_HOST_ID)
		return OK;
	return check_data(cmd, size, false, 16, true, 16, out);
}

static int check_admin(const struct capsule_limits *limits, const struct wire_command *cmd,
		       size_t size, struct capsule *out)
{
	uint64_t dwords;

	if (!limits->enabled)
		return BAD_SEQUENCE;
	switch (out->opcode) {
	case nvme_admin_identify:
		out->kind = CAPSULE_IDENTIFY;
		return check_data(cmd, size, false, WIRE_IDENTIFY, false, WIRE_IDENTIFY, out);
	case nvme_admin_get_log_page:
		out->kind = CAPSULE_GET_LOG;
		dwords = ((uint64_t)(out->cdw11 & 0xffff) << 16 | out->cdw10 >> 16) + 1;
		return check_data(cmd, size, false, dwords * 4, true, limits->max_data, out);
	case nvme_admin_get_features:
		out->kind = CAPSULE_GET_FEATURES;
		return check_features(cmd, size, out);
	case nvme_admin_set_features:
		out->kind = CAPSULE_SET_FEATURES;
		return OK;
	case nvme_admin_async_event:
		out->kind = CAPSULE_ASYNC_EVENT;
		return OK;
	case nvme_admin_keep_alive:
		out->kind = CAPSULE_KEEP_ALIVE;
		return OK;
	case nvme_admin_abort_cmd:
		out->kind = CAPSULE_ABORT;
		return limits->queue == CAPSULE_ADMIN ? OK : BAD_OPCODE;
	default:
		return BAD_OPCODE;
	}
}

int capsule_check(const struct capsule_limits *limits, const void *bytes, size_t size,
		  struct capsule *out)
{
	struct wire_command cmd;

	*out = (struct capsule){0};
	if (size < sizeof cmd)
		return -1;
	memcpy(&cmd, bytes, sizeof cmd);
	out->cid = le16toh(cmd.cid);
	out->opcode = cmd.opcode;
	out->nsid = le32toh(cmd.nsid);
	out->cdw10 = le32toh(cmd.cdw10);
	out->cdw11 = le32toh(cmd.cdw11);
	out->cdw12 = le32toh(cmd.cdw12);
	out->cdw13 = le32toh(cmd.cdw13);
	out->cdw14 = le32toh(cmd.cdw14);
	if (cmd.sgl.type == WIRE_SGL_KEYED_INVALIDATE) {
		out->invalidate = true;
		out->key = wire_key(&cmd.sgl);
	} else if (cmd.sgl.type == WIRE_SGL_KEYED) {
		out->key = wire_key(&cmd.sgl);
	}
	if ((cmd.flags & WIRE_FLAGS_PSDT) != WIRE_FLAGS_SGL || cmd.flags & WIRE_FLAGS_FUSED)
		return BAD_FIELD;
	if (limits->queue == CAPSULE_NEW && cmd.opcode != nvme_admin_fabrics)
		return BAD_SEQUENCE;
	if (limits->queue == CAPSULE_IO)
		return check_io(limits, &cmd, size, out);
	return cmd.opcode == nvme_admin_fabrics ? check_fabrics(limits, &cmd, size, out)
						: check_admin(limits, &cmd, size, out);
}
