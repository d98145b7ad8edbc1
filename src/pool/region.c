/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory and its registrations, see region.h. All or nothing: what fails at one domain is undone at
 * those before it.
 */
#include <errno.h>
#include <string.h>

#include "pool/errmsg.h"
#include "pool/registrar.h"

void sgp_region_init(struct sgp_region *region)
{
	atomic_init(&region->pds, 0);
	atomic_init(&region->home, 0);
	atomic_init(&region->access, 0);
	region->whole = region->announced = region->read_only = region->unmapped = false;
	region->dmabuf_fd = -1;
	region->dmabuf_offset = 0;
	region->piece = (struct sgp_piece){0};
	region->next = NULL;
	region->import = region->cookie = NULL;
	memset(region->mr, 0, sizeof region->mr);
}

int sgp_region_back(struct sgp_region *region, struct sgp_memory *mem, size_t bytes,
		    const struct sgp_backing *backing)
{
	sgp_region_init(region);
	return sgp_memory_commit(mem, bytes, backing, &region->piece);
}

static struct sgp_region_info info_of(const struct sgp_region *region)
{
	return (struct sgp_region_info){
		.addr = region->piece.addr,
		.bytes = region->piece.bytes,
		.page_size = region->piece.page_size,
		.import = region->import,
		.mapped = !region->unmapped,
	};
}

static int announce(struct sgp_region *region, const struct sgp_registrar *reg)
{
	struct sgp_region_info info = info_of(region);

	if (region->announced)
		return 0;
	errno = 0;
	if (reg->region_add && reg->region_add(reg->region_arg, &info, &region->cookie))
		return errno > 0 ? errno : ECANCELED;
	region->announced = true;
	return 0;
}

static void renounce(struct sgp_region *region, const struct sgp_registrar *reg)
{
	struct sgp_region_info info = info_of(region);

	if (region->announced && reg->region_remove)
		reg->region_remove(reg->region_arg, &info, region->cookie);
	region->announced = false;
}

/*
 * Register it where it isn't; returns the domains where that was done now, and *err. If the
 * descriptors had the key of one of these, they have none that is good now.
 */
static uint64_t fill_in(struct sgp_region *region, struct sgp_registrar *reg, int *err,
			const struct sgp_domain **failed)
{
	uint64_t done = 0;

	*err = 0;
	for (unsigned int i = 0; i < reg->ndomains; i++) {
		struct sgp_domain *domain = &reg->domain[i];

		if (region->mr[domain->index] || domain->leaving)
			continue;
		*err = sgp_domain_register(domain, region, reg);
		if (*err) {
			*failed = domain;
			break;
		}
		done |= UINT64_C(1) << domain->index;
	}
	atomic_fetch_and_explicit(&region->home, ~done, memory_order_release);
	return done;
}

static void allow(struct sgp_region *region, const struct sgp_registrar *reg)
{
	for (unsigned int i = 0; i < reg->ndomains; i++)
		if (region->mr[reg->domain[i].index] && !reg->domain[i].leaving)
			sgp_domain_allow(&reg->domain[i], region);
}

/* The other way; stops at the first that fails. 0 or an errno. */
static int take_off(struct sgp_region *region, struct sgp_registrar *reg, uint64_t pds)
{
	int err = 0;

	for (unsigned int i = reg->ndomains; i-- > 0 && !err;) {
		const struct sgp_domain *domain = &reg->domain[i];

		if (region->mr[domain->index] && pds >> domain->index & 1)
			err = sgp_domain_deregister(domain, region, reg);
	}
	return err;
}

int sgp_region_register(struct sgp_region *region, struct sgp_registrar *reg)
{
	const struct sgp_domain *failed = NULL;
	uint64_t done;
	int err;

	/* What peers will reach is known before there is a domain for them to come through: hide.h. */
	atomic_store_explicit(&region->access,
			      (region->unmapped ? 0 : SGP_ACCESS_CPU) |
				      (region->read_only ? 0 : sgp_registrar_remote(reg)),
			      memory_order_relaxed);
	done = fill_in(region, reg, &err, &failed);
	if (!err && !(err = announce(region, reg))) {
		int first = atomic_load_explicit(&reg->first, memory_order_relaxed);

		allow(region, reg);
		atomic_store_explicit(&region->home, first < 0 ? 0 : UINT64_C(1) << first,
				      memory_order_release);
		region->whole = true;
		region->next = reg->regions;
		reg->regions = region;
		reg->nregions++;
		reg->bytes += region->piece.bytes;
		return 0;
	}
	/* What a device does not let go of now stays its own: nobody was told the key. */
	(void)take_off(region, reg, done);
	if (failed)
		return sgp_registrar_explain(reg, failed, region, err);
	return sgp_fail(err, "the region of %zu bytes was refused by who was told of it: %s",
			region->piece.bytes, strerror(err));
}

static void unlink_region(struct sgp_registrar *reg, const struct sgp_region *region)
{
	struct sgp_region **at = &reg->regions;

	while (*at != region)
		at = &(*at)->next;
	*at = region->next;
	reg->nregions--;
	reg->bytes -= region->piece.bytes;
}

int sgp_region_end(struct sgp_region *region, struct sgp_memory *mem, struct sgp_registrar *reg)
{
	const struct sgp_domain *failed;
	int err, again;

	renounce(region, reg);
	err = take_off(region, reg, UINT64_MAX);
	if (err) {
		fill_in(region, reg, &again, &failed);
		allow(region, reg);
		region->whole = !again && !announce(region, reg);
		return sgp_fail(err, "deregistering %zu bytes failed: %s", region->piece.bytes,
				strerror(err));
	}
	unlink_region(reg, region);
	if (mem)
		sgp_memory_decommit(mem, &region->piece);
	return 0;
}
