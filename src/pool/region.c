/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory and its registration, see region.h. */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "pool/chunk.h"
#include "pool/errmsg.h"
#include "pool/limits.h"
#include "pool/region.h"

/* IBV_ACCESS_* for SGP_POOL_*: what was asked for and no more. */
static uint32_t access_for(const struct ibv_pd *pd, uint32_t flags)
{
	bool iwarp = pd->context->device->transport_type == IBV_TRANSPORT_IWARP;
	uint32_t access = IBV_ACCESS_LOCAL_WRITE;

	if (flags & SGP_POOL_REMOTE_READ)
		access |= IBV_ACCESS_REMOTE_READ;
	if (flags & SGP_POOL_REMOTE_WRITE || (flags & SGP_POOL_READ_SINK && iwarp))
		access |= IBV_ACCESS_REMOTE_WRITE;
	if (flags & SGP_POOL_REMOTE_ATOMIC)
		access |= IBV_ACCESS_REMOTE_ATOMIC;
	if (flags & SGP_POOL_WINDOWS)
		access |= IBV_ACCESS_MW_BIND;
	return access;
}

static bool has_windows(const struct ibv_device_attr *device)
{
	return device->max_mw > 0 && device->device_cap_flags & (IBV_DEVICE_MEM_WINDOW_TYPE_2A |
								 IBV_DEVICE_MEM_WINDOW_TYPE_2B);
}

int sgp_registrar_open(struct sgp_registrar *reg, struct ibv_pd *pd, uint32_t flags)
{
	struct ibv_device_attr device = {0};
	int ret = ibv_query_device(pd->context, &device), index;

	if (ret) {
		ret = sgp_provider_errno(ret);
		return sgp_fail(ret, "ibv_query_device failed: %s", strerror(ret));
	}
	if (flags & SGP_POOL_WINDOWS && !has_windows(&device))
		return sgp_fail(EOPNOTSUPP, "the device has no type 2 memory windows");
	index = sgp_pd_acquire(pd);
	if (index < 0)
		return -1;
	*reg = (struct sgp_registrar){.pd = pd,
				      .pd_index = index,
				      .access = access_for(pd, flags),
				      .max_bytes = SIZE_MAX};
	/* 0 is what a device says that has no limit. */
	if (device.max_mr_size && device.max_mr_size < SIZE_MAX)
		reg->max_bytes = (size_t)device.max_mr_size;
	return 0;
}

void sgp_registrar_close(struct sgp_registrar *reg)
{
	sgp_pd_release(reg->pd_index);
}

/*
 * Why did ibv_reg_mr() fail? The kernel says ENOMEM over the limit, and EPERM to who may lock
 * nothing at all; but a device says ENOMEM too when it runs out of regions of its own.
 */
static int explain(const struct sgp_registrar *reg, size_t bytes, int err)
{
	uint64_t held = reg->bytes, count = reg->registrations - reg->deregistrations;
	struct sgp_memlock lock;
	char state[160];

	sgp_memlock_read(&lock);
	lock.cap_unheeded = reg->pd->context->device->transport_type == IBV_TRANSPORT_IWARP;
	sgp_memlock_describe(&lock, state, sizeof state);
	if ((err == ENOMEM || err == EPERM) && sgp_memlock_forbids(&lock, bytes, held))
		return sgp_fail(err,
				"registering %zu bytes failed: %s. The pool holds %" PRIu64
				" bytes, %s. %s",
				bytes, strerror(err), held, state, sgp_memlock_advice);
	return sgp_fail(err,
			"registering %zu bytes failed: %s. The pool holds %" PRIu64
			" bytes in %" PRIu64 " regions; the limit on locked memory is not the "
			"cause (%s)",
			bytes, strerror(err), held, count, state);
}

int sgp_region_back(struct sgp_region *region, struct sgp_memory *mem, size_t bytes,
		    const struct sgp_backing *backing)
{
	*region = (struct sgp_region){0};
	return sgp_memory_commit(mem, bytes, backing, &region->piece);
}

int sgp_region_register(struct sgp_region *region, struct sgp_registrar *reg)
{
	size_t bytes = region->piece.bytes;
	struct ibv_mr *mr = ibv_reg_mr(reg->pd, region->piece.addr, bytes, (int)reg->access);

	if (!mr)
		return explain(reg, bytes, sgp_provider_errno(-1));
	region->mr = mr;
	region->pds = 1ull << reg->pd_index;
	region->access = reg->access;
	reg->registrations++;
	reg->bytes += bytes;
	return 0;
}

int sgp_region_end(struct sgp_region *region, struct sgp_memory *mem, struct sgp_registrar *reg)
{
	int ret = ibv_dereg_mr(region->mr);

	if (ret) {
		ret = sgp_provider_errno(ret);
		return sgp_fail(ret, "deregistering %zu bytes failed: %s", region->piece.bytes,
				strerror(ret));
	}
	reg->deregistrations++;
	reg->bytes -= region->piece.bytes;
	sgp_memory_decommit(mem, &region->piece);
	return 0;
}
