/* SPDX-License-Identifier: BSD-2-Clause */
/* What Identify tells: the controller, the namespaces, their lists and descriptors. */
#include <nvme/types.h>
#include <stdio.h>
#include <string.h>

#include "ctrl.h"
#include <sgpool/version.h>
#include "wire.h"

enum {
	BAD_FIELD = NVME_SC_INVALID_FIELD | NVME_SC_DNR,
	BAD_NS = NVME_SC_INVALID_NS | NVME_SC_DNR,
	SGL_UNALIGNED = 1, /* SGLs of any alignment and granularity */
	FLUSH_ONE_NS = 2 << 1,
	SHARED = 1,  /* NMIC: several controllers reach the namespace */
	NVM_SET = 0, /* the NVM command set's identifier */
};

static uint8_t log2_of(uint32_t n)
{
	return (uint8_t)__builtin_ctz(n);
}

static void fill_ctrl(const struct ctrl *ctrl, struct nvme_id_ctrl *id)
{
	const struct options *opt = ctrl->target->opt;
	char serial[20];

	snprintf(serial, sizeof serial, "%016llx",
		 (unsigned long long)ns_digest(opt->nqn, "serial number"));
	wire_text(id->sn, sizeof id->sn, serial);
	wire_text(id->mn, sizeof id->mn, "sgpool NVMe over RDMA target");
	wire_text(id->fr, sizeof id->fr, SGP_VERSION);
	id->mdts = log2_of(REQUEST_MAX_DATA / 4096);
	id->cntlid = htole16(ctrl->cntlid);
	id->ver = htole32(CTRL_VERSION);
	id->acl = 3;
	id->aerl = CTRL_ASYNC_EVENTS - 1;
	id->lpa = NVME_CTRL_LPA_EXTENDED;
	id->kas = htole16(CTRL_KEEP_ALIVE_UNIT / 100);
	id->maxcmd = htole16(opt->depth);
	id->sgls = htole32(SGL_UNALIGNED | NVME_CTRL_SGLS_KEYED);
	id->ioccsz = htole32(sizeof(struct wire_command) / 16);
	id->iorcsz = htole32(sizeof(struct wire_response) / 16);
	id->msdbd = 1;
	id->sqes = 0x66; /* entries of 64 and of 16 bytes */
	id->cqes = 0x44;
	if (ctrl->discovery) {
		id->cntrltype = NVME_CTRL_CNTRLTYPE_DISCOVERY;
		strcpy(id->subnqn, DISCOVERY_NQN);
		return;
	}
	id->cntrltype = NVME_CTRL_CNTRLTYPE_IO;
	id->cmic = NVME_CTRL_CMIC_MULTI_CTRL;
	id->lpa |= NVME_CTRL_LPA_CMD_EFFECTS;
	id->nn = htole32(opt->nns);
	id->oncs =
		htole16(NVME_CTRL_ONCS_COMPARE | NVME_CTRL_ONCS_DSM | NVME_CTRL_ONCS_WRITE_ZEROES);
	id->vwc = NVME_CTRL_VWC_PRESENT | FLUSH_ONE_NS;
	id->sgls |= htole32(NVME_CTRL_SGLS_OFFSET);
	id->ioccsz = htole32((sizeof(struct wire_command) + BUDGET_INSIDE) / 16);
	/* Memory and files are not a device that wears out or gets hot: */
	id->wctemp = htole16(343);
	id->cctemp = htole16(353);
	snprintf(id->subnqn, sizeof id->subnqn, "%s", opt->nqn);
}

static void fill_ns(const struct target *t, uint32_t nsid, struct nvme_id_ns *id)
{
	const struct capsule_ns *limits = &t->limits[nsid - 1];
	const struct ns *ns = &t->ns[nsid - 1];

	id->nsze = id->ncap = id->nuse = htole64(limits->blocks);
	id->nmic = SHARED;
	id->nsattr = limits->read_only ? NVME_NS_NSATTR_WRITE_PROTECTED : 0;
	memcpy(id->nguid, ns->nguid, sizeof id->nguid);
	id->lbaf[0].ds = (uint8_t)limits->block_shift;
}

/* The namespaces above nsid, in order. */
static void fill_list(const struct target *t, uint32_t nsid, uint8_t *page)
{
	uint32_t entry, n = 0;

	for (uint32_t i = nsid; i < t->opt->nns; i++) {
		entry = htole32(i + 1);
		memcpy(page + n++ * sizeof entry, &entry, sizeof entry);
	}
}

static uint8_t *put_descriptor(uint8_t *at, uint8_t type, const void *id, uint8_t size)
{
	struct nvme_ns_id_desc *desc = (struct nvme_ns_id_desc *)(void *)at;

	desc->nidt = type;
	desc->nidl = size;
	memcpy(desc->nid, id, size);
	return at + sizeof *desc + size;
}

static void fill_descriptors(const struct ns *ns, uint8_t *page)
{
	const uint8_t csi = NVM_SET;

	page = put_descriptor(page, NVME_NIDT_UUID, ns->uuid, sizeof ns->uuid);
	page = put_descriptor(page, NVME_NIDT_NGUID, ns->nguid, sizeof ns->nguid);
	put_descriptor(page, NVME_NIDT_CSI, &csi, sizeof csi);
}

static int need_ns(const struct target *t, uint32_t nsid)
{
	return nsid == 0 || nsid > t->opt->nns ? BAD_NS : NVME_SC_SUCCESS;
}

int identify_fill(const struct ctrl *ctrl, const struct capsule *cmd, uint8_t *page)
{
	const struct target *t = ctrl->target;
	const uint8_t cns = cmd->cdw10 & 0xff, csi = (uint8_t)(cmd->cdw11 >> 24);
	int status;

	if (cns == NVME_IDENTIFY_CNS_CTRL) {
		fill_ctrl(ctrl, (void *)page);
		return NVME_SC_SUCCESS;
	}
	if (ctrl->discovery)
		return BAD_FIELD;
	switch (cns) {
	case NVME_IDENTIFY_CNS_NS:
		status = need_ns(t, cmd->nsid);
		if (cmd->nsid == WIRE_ALL_NAMESPACES) { /* what they have in common */
			((struct nvme_id_ns *)(void *)page)->nmic = SHARED;
			return NVME_SC_SUCCESS;
		}
		if (!status)
			fill_ns(t, cmd->nsid, (void *)page);
		return status;
	case NVME_IDENTIFY_CNS_CSI_NS_ACTIVE_LIST:
		if (csi != NVM_SET)
			return BAD_FIELD;
		__attribute__((fallthrough));
	case NVME_IDENTIFY_CNS_NS_ACTIVE_LIST:
		if (cmd->nsid >= WIRE_ALL_NAMESPACES - 1)
			return BAD_NS;
		fill_list(t, cmd->nsid, page);
		return NVME_SC_SUCCESS;
	case NVME_IDENTIFY_CNS_NS_DESC_LIST:
		status = need_ns(t, cmd->nsid);
		if (!status)
			fill_descriptors(&t->ns[cmd->nsid - 1], page);
		return status;
	case NVME_IDENTIFY_CNS_CSI_NS:
		/* No protection information, no limits of its own: all zero. */
		return csi == NVM_SET ? need_ns(t, cmd->nsid) : BAD_FIELD;
	case NVME_IDENTIFY_CNS_CSI_CTRL:
		return csi == NVM_SET ? NVME_SC_SUCCESS : BAD_FIELD;
	default:
		return BAD_FIELD;
	}
}
