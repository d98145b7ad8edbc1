/* SPDX-License-Identifier: BSD-2-Clause */
/* A pool's protection domains, see registrar.h. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "pool/errmsg.h"
#include "pool/advice.h"
#include "pool/registrar.h"
#include "sgp_config.h"

/* Rights that need the right to write locally: ibv_reg_mr(3). */
#define WRITES (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

uint32_t sgp_registrar_remote(const struct sgp_registrar *reg)
{
	const uint32_t flags = reg->flags;
	uint32_t access = 0;

	if (flags & SGP_POOL_REMOTE_READ)
		access |= IBV_ACCESS_REMOTE_READ;
	if (flags & SGP_POOL_REMOTE_WRITE)
		access |= IBV_ACCESS_REMOTE_WRITE;
	if (flags & SGP_POOL_REMOTE_ATOMIC)
		access |= IBV_ACCESS_REMOTE_ATOMIC;
	if (flags & SGP_POOL_WINDOWS)
		access |= IBV_ACCESS_MW_BIND;
	return access;
}

/* IBV_ACCESS_* for SGP_POOL_*: what was asked for and no more. */
static uint32_t access_for(const struct ibv_pd *pd, const struct sgp_registrar *reg)
{
	bool iwarp = pd->context->device->transport_type == IBV_TRANSPORT_IWARP;
	uint32_t access = IBV_ACCESS_LOCAL_WRITE | sgp_registrar_remote(reg);

	if (reg->flags & SGP_POOL_READ_SINK && iwarp)
		access |= IBV_ACCESS_REMOTE_WRITE;
#if SGP_HAVE_RELAXED_ORDERING
	if (reg->flags & SGP_POOL_RELAXED_ORDERING)
		access |= IBV_ACCESS_RELAXED_ORDERING;
#endif
	return access;
}

static bool has_windows(const struct ibv_device_attr *device)
{
	return SGP_HAVE_WINDOWS && device->max_mw > 0 &&
	       device->device_cap_flags &
		       (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B);
}

/* The domain behind the others, which does not count yet. */
static int join(struct sgp_registrar *reg, struct ibv_pd *pd)
{
	struct sgp_domain *domain = &reg->domain[reg->ndomains];
	struct ibv_device_attr device = {0};
	int ret = ibv_query_device(pd->context, &device), index;

	if (ret) {
		ret = sgp_provider_errno(ret);
		return sgp_fail(ret, "ibv_query_device failed: %s", strerror(ret));
	}
	if (reg->flags & SGP_POOL_WINDOWS && !has_windows(&device))
		return sgp_fail(EOPNOTSUPP, "the device has no type 2 memory windows");
	index = sgp_pd_join(pd);
	if (index < 0)
		return -1;
	*domain = (struct sgp_domain){.pd = pd,
				      .index = index,
				      .access = access_for(pd, reg),
				      .max_bytes = SIZE_MAX};
	/* 0 is what a device says that has no limit. */
	if (device.max_mr_size && device.max_mr_size < SIZE_MAX)
		domain->max_bytes = (size_t)device.max_mr_size;
	return 0;
}

static void set_first(struct sgp_registrar *reg)
{
	int first = -1;

	for (unsigned int i = reg->ndomains; i-- > 0;)
		if (!reg->domain[i].leaving)
			first = reg->domain[i].index;
	atomic_store_explicit(&reg->first, first, memory_order_release);
}

int sgp_registrar_open(struct sgp_registrar *reg, struct ibv_pd *pd,
		       const struct sgp_pool_attr *attr)
{
	reg->flags = attr->flags;
	reg->region_add = attr->region_add;
	reg->region_remove = attr->region_remove;
	reg->region_arg = attr->region_arg;
	reg->max_bytes = SIZE_MAX;
	if (pd) {
		if (join(reg, pd))
			return -1;
		reg->ndomains = 1;
		reg->max_bytes = reg->domain[0].max_bytes;
	}
	set_first(reg);
	return 0;
}

void sgp_registrar_close(struct sgp_registrar *reg)
{
	while (reg->ndomains)
		sgp_pd_leave(reg->domain[--reg->ndomains].index);
}

size_t sgp_registrar_most(const struct sgp_registrar *reg)
{
	size_t most = SIZE_MAX;

	for (unsigned int i = 0; i < reg->ndomains; i++)
		if (!reg->domain[i].leaving && reg->domain[i].max_bytes < most)
			most = reg->domain[i].max_bytes;
	return most;
}

int sgp_registrar_explain(const struct sgp_registrar *reg, const struct sgp_domain *domain,
			  const struct sgp_region *region, int err)
{
	struct sgp_unregistered failed = {.verbs = domain->pd->context,
					  .bytes = region->piece.bytes,
					  .held = reg->bytes,
					  .regions = reg->nregions,
					  .imported = region->import != NULL,
					  .read_only = region->read_only,
					  .err = err};
	struct sgp_advice advice;

	sgp_advise_registration(&advice, &failed);
	return sgp_fail(err, "%s. %s.", advice.what, advice.mend);
}

static struct ibv_mr *reg_mr(const struct sgp_domain *domain, const struct sgp_region *region,
			     uint32_t access)
{
	const struct sgp_piece *piece = &region->piece;

	errno = 0;
#if SGP_HAVE_DMABUF
	if (region->dmabuf_fd >= 0)
		return ibv_reg_dmabuf_mr(domain->pd, region->dmabuf_offset, piece->bytes,
					 (uintptr_t)piece->addr, region->dmabuf_fd, (int)access);
#endif
	return ibv_reg_mr(domain->pd, piece->addr, piece->bytes, (int)access);
}

int sgp_domain_register(struct sgp_domain *domain, struct sgp_region *region,
			struct sgp_registrar *reg)
{
	uint32_t access = domain->access;
	int index = domain->index, err;
	struct ibv_mr *mr;

	if (region->read_only)
		access &= ~(uint32_t)WRITES;
	mr = reg_mr(domain, region, access);
	err = mr ? 0 : sgp_provider_errno(-1);
#if SGP_HAVE_RELAXED_ORDERING
	if ((err == EINVAL || err == EOPNOTSUPP) && access & IBV_ACCESS_RELAXED_ORDERING) {
		/* Some kernels refuse what they should ignore (law 5). */
		access &= ~(uint32_t)IBV_ACCESS_RELAXED_ORDERING;
		mr = reg_mr(domain, region, access);
		err = mr ? 0 : sgp_provider_errno(-1);
		if (mr)
			domain->access &= ~(uint32_t)IBV_ACCESS_RELAXED_ORDERING;
	}
#endif
	if (!mr)
		return err;
	reg->registrations++;
	region->mr[index] = mr;
	atomic_store_explicit(&region->keys[index].lkey, mr->lkey, memory_order_relaxed);
	atomic_store_explicit(&region->keys[index].rkey, mr->rkey, memory_order_relaxed);
	/*
	 * All have the same rights but for what READ_SINK means: where it means one, the lists that
	 * need it are posted.
	 */
	atomic_fetch_or_explicit(&region->access, access, memory_order_relaxed);
	return 0;
}

void sgp_domain_allow(const struct sgp_domain *domain, struct sgp_region *region)
{
	atomic_fetch_or_explicit(&region->pds, UINT64_C(1) << domain->index, memory_order_release);
}

/* No list goes there from here on. */
static void forbid(const struct sgp_domain *domain, struct sgp_region *region)
{
	uint64_t bit = UINT64_C(1) << domain->index;

	atomic_fetch_and_explicit(&region->pds, ~bit, memory_order_release);
	atomic_fetch_and_explicit(&region->home, ~bit, memory_order_release);
}

int sgp_domain_deregister(const struct sgp_domain *domain, struct sgp_region *region,
			  struct sgp_registrar *reg)
{
	uint64_t bit = UINT64_C(1) << domain->index;
	uint64_t pds = atomic_fetch_and_explicit(&region->pds, ~bit, memory_order_relaxed);
	int err;

	errno = 0;
	err = sgp_provider_errno(ibv_dereg_mr(region->mr[domain->index]));
	if (err) {
		atomic_fetch_or_explicit(&region->pds, pds & bit, memory_order_release);
		return err;
	}
	region->mr[domain->index] = NULL;
	reg->deregistrations++;
	return 0;
}

/* Deregister all regions from reg->domain[i], and if that succeeds for all, forget it. */
static int drop_domain(struct sgp_registrar *reg, unsigned int i)
{
	struct sgp_domain *domain = &reg->domain[i];
	int err = 0, one;

	domain->leaving = true;
	set_first(reg);
	for (struct sgp_region *region = reg->regions; region; region = region->next)
		forbid(domain, region);
	for (struct sgp_region *region = reg->regions; region; region = region->next) {
		if (!region->mr[domain->index])
			continue;
		one = sgp_domain_deregister(domain, region, reg);
		if (!err)
			err = one;
	}
	if (err)
		return err;
	sgp_pd_leave(domain->index);
	memmove(domain, domain + 1, (--reg->ndomains - i) * sizeof *domain);
	return 0;
}

static int find(const struct sgp_registrar *reg, const struct ibv_pd *pd)
{
	for (unsigned int i = 0; i < reg->ndomains; i++)
		if (reg->domain[i].pd == pd)
			return (int)i;
	return -1;
}

/* Does the device take the regions that there are, and one for the longest chunk? */
static int check_limits(const struct sgp_registrar *reg, const struct sgp_domain *domain,
			size_t least)
{
	for (const struct sgp_region *region = reg->regions; region; region = region->next)
		if (region->piece.bytes > least)
			least = region->piece.bytes;
	if (domain->max_bytes < least)
		return sgp_fail(EOPNOTSUPP,
				"the device's max_mr_size is %zu, and the pool has regions of "
				"%zu bytes: make it with a smaller region_bytes",
				domain->max_bytes, least);
	return 0;
}

int sgp_registrar_add(struct sgp_registrar *reg, struct ibv_pd *pd, size_t least)
{
	struct sgp_domain *domain;
	struct sgp_region *region;
	int err;

	if (find(reg, pd) >= 0) {
		if (!reg->domain[find(reg, pd)].leaving)
			return sgp_fail(EEXIST, "the pool is on that protection domain already");
		if (sgp_registrar_remove(reg, pd))
			return -1;
	}
	if (reg->ndomains == SGP_MAX_PDS)
		return sgp_fail(ENOSPC, "the pool is on %d protection domains", SGP_MAX_PDS);
	domain = &reg->domain[reg->ndomains];
	if (join(reg, pd))
		return -1;
	if (check_limits(reg, domain, least)) {
		sgp_pd_leave(domain->index);
		return -1;
	}
	for (region = reg->regions; region; region = region->next) {
		err = sgp_domain_register(domain, region, reg);
		if (!err)
			continue;
		sgp_registrar_explain(reg, domain, region, err);
		reg->ndomains++;
		(void)drop_domain(reg, reg->ndomains - 1);
		errno = err;
		return -1;
	}
	/* Endpoints may be on it already: only now that nothing can fail any more may they post. */
	for (region = reg->regions; region; region = region->next)
		sgp_domain_allow(domain, region);
	reg->ndomains++;
	set_first(reg);
	return 0;
}

int sgp_registrar_remove(struct sgp_registrar *reg, struct ibv_pd *pd)
{
	int i = find(reg, pd), err;

	if (i < 0)
		return sgp_fail(EINVAL, "the pool is not on that protection domain");
	if (!reg->domain[i].leaving && sgp_pd_retire(reg->domain[i].index))
		return -1;
	err = drop_domain(reg, (unsigned int)i);
	if (err)
		return sgp_fail(err,
				"the device kept some of the registrations (%s): remove the "
				"protection domain again, before it is deallocated",
				strerror(err));
	return 0;
}
