/* SPDX-License-Identifier: BSD-2-Clause */
/* Log pages: discovery, and the few that hosts ask an NVM controller for. */
#include <nvme/types.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <string.h>

#include "ctrl.h"
#include <sgpool/version.h>
#include "wire.h"

enum {
	BAD_LOG = NVME_SCT_CMD_SPECIFIC << NVME_SCT_SHIFT | NVME_SC_INVALID_LOG_PAGE | NVME_SC_DNR,
	UNIT = 512 * 1000, /* of data read and written */
	KELVIN_20C = 293,
	FULL = 100, /* percent of spare blocks */
};

/* A number of 16 bytes. */
static void put128(uint8_t *field, uint64_t n)
{
	const uint64_t low = htole64(n);

	memcpy(field, &low, sizeof low);
}

static void fill_smart(const struct traffic *moved, struct nvme_smart_log *log)
{
	log->temperature[0] = KELVIN_20C & 0xff;
	log->temperature[1] = KELVIN_20C >> 8;
	log->avail_spare = FULL;
	put128(log->data_units_read, (moved->read_bytes + UNIT - 1) / UNIT);
	put128(log->data_units_written, (moved->write_bytes + UNIT - 1) / UNIT);
	put128(log->host_reads, moved->reads);
	put128(log->host_writes, moved->writes);
}

static void fill_effects(struct nvme_cmd_effects_log *log)
{
	static const uint8_t admin[] = {nvme_admin_get_log_page, nvme_admin_identify,
					nvme_admin_abort_cmd,    nvme_admin_set_features,
					nvme_admin_get_features, nvme_admin_async_event,
					nvme_admin_keep_alive};
	static const uint8_t io[] = {nvme_cmd_read, nvme_cmd_compare, nvme_cmd_flush};
	static const uint8_t changes[] = {nvme_cmd_write, nvme_cmd_write_zeroes, nvme_cmd_dsm};

	for (size_t i = 0; i < sizeof admin; i++)
		log->acs[admin[i]] = htole32(NVME_CMD_EFFECTS_CSUPP);
	for (size_t i = 0; i < sizeof io; i++)
		log->iocs[io[i]] = htole32(NVME_CMD_EFFECTS_CSUPP);
	for (size_t i = 0; i < sizeof changes; i++)
		log->iocs[changes[i]] = htole32(NVME_CMD_EFFECTS_CSUPP | NVME_CMD_EFFECTS_LBCC);
}

static void fill_firmware(struct nvme_firmware_slot *log)
{
	log->afi = 1;
	wire_text(log->frs[0], sizeof log->frs[0], SGP_VERSION);
}

static uint8_t provider_of(const struct device *dev)
{
	struct ibv_port_attr port;

	if (dev->strict)
		return NVMF_RDMA_PRTYPE_IWARP;
	if (ibv_query_port(dev->verbs, 1, &port))
		return NVMF_RDMA_PRTYPE_NOT_SPECIFIED;
	return port.link_layer == IBV_LINK_LAYER_ETHERNET ? NVMF_RDMA_PRTYPE_ROCEV2
							  : NVMF_RDMA_PRTYPE_IB;
}

/* One subsystem, at the address that the host has reached us by. */
static uint32_t fill_discovery(const struct queue *q, struct nvmf_discovery_log *log)
{
	const struct sockaddr *addr = rdma_get_local_addr(q->id);
	const struct addr_text host = addr_host_text(addr);
	struct nvmf_disc_log_entry *entry = &log->entries[0];
	char port[8];

	log->genctr = htole64(1);
	log->numrec = htole64(1);
	entry->trtype = NVMF_TRTYPE_RDMA;
	entry->adrfam = addr->sa_family == AF_INET6 ? NVMF_ADDR_FAMILY_IP6 : NVMF_ADDR_FAMILY_IP4;
	entry->subtype = NVME_NQN_NVME;
	entry->treq = NVMF_TREQ_NOT_REQUIRED | NVMF_TREQ_DISABLE_SQFLOW;
	entry->cntlid = htole16(WIRE_CNTLID_ANY);
	entry->asqsz = htole16(CTRL_ADMIN_DEPTH);
	snprintf(port, sizeof port, "%u", q->target->opt->listen.port);
	wire_text(entry->trsvcid, sizeof entry->trsvcid, port);
	wire_text(entry->traddr, sizeof entry->traddr, host.text);
	snprintf(entry->subnqn, sizeof entry->subnqn, "%s", q->target->opt->nqn);
	entry->tsas.rdma.qptype = NVMF_RDMA_QPTYPE_CONNECTED;
	entry->tsas.rdma.prtype = provider_of(q->device);
	entry->tsas.rdma.cms = NVMF_RDMA_CMS_RDMA_CM;
	return sizeof *log + sizeof *entry;
}

int log_fill(const struct queue *q, uint8_t lid, uint8_t *page, uint32_t *length)
{
	struct ctrl *ctrl = q->ctrl;
	struct traffic moved;

	if (ctrl->discovery) {
		if (lid != NVME_LOG_LID_DISCOVER)
			return BAD_LOG;
		*length = fill_discovery(q, (void *)page);
		return NVME_SC_SUCCESS;
	}
	switch (lid) {
	case NVME_LOG_LID_ERROR: /* none so far: an entry of zeroes */
		*length = sizeof(struct nvme_error_log_page);
		return NVME_SC_SUCCESS;
	case NVME_LOG_LID_SMART:
		moved = ctrl_traffic(ctrl);
		fill_smart(&moved, (void *)page);
		*length = sizeof(struct nvme_smart_log);
		return NVME_SC_SUCCESS;
	case NVME_LOG_LID_FW_SLOT:
		fill_firmware((void *)page);
		*length = sizeof(struct nvme_firmware_slot);
		return NVME_SC_SUCCESS;
	case NVME_LOG_LID_CMD_EFFECTS:
		fill_effects((void *)page);
		*length = sizeof(struct nvme_cmd_effects_log);
		return NVME_SC_SUCCESS;
	default:
		return BAD_LOG;
	}
}
