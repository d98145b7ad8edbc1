/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a pool registers with: its protection domains, the oldest first, and all of its regions.
 *
 * Locking: the pool's growth lock. The counters are read by statistics without.
 */
#ifndef SGP_REGISTRAR_H
#define SGP_REGISTRAR_H

#include "pool/region.h"

struct sgp_domain {
	struct ibv_pd *pd;
	int index;        /* see pd.h */
	uint32_t access;  /* IBV_ACCESS_* that the pool's flags mean on this device */
	size_t max_bytes; /* the longest region the device takes */
	bool leaving;     /* removed; but the device kept some of the registrations */
};

struct sgp_registrar {
	struct sgp_domain domain[SGP_MAX_PDS];
	unsigned int ndomains;
	uint32_t flags;   /* SGP_POOL_* */
	size_t max_bytes; /* the longest region that the first domain's device took */
	struct sgp_region *regions;
	int (*region_add)(void *arg, const struct sgp_region_info *info, void **cookie);
	void (*region_remove)(void *arg, const struct sgp_region_info *info, void *cookie);
	void *region_arg;
	_Atomic int first; /* index of the oldest domain that is not leaving; -1: none */
	_Atomic uint64_t registrations, deregistrations; /* calls that succeeded */
	_Atomic uint64_t bytes;                          /* of memory in regions */
	_Atomic uint64_t nregions;
};

/*
 * Set *reg up with pd as the first domain, or with none when it's NULL. Returns 0, to be ended by sgp_registrar_close() when it
 * has no regions; -1 with errno as sgp_registrar_add().
 */
int sgp_registrar_open(struct sgp_registrar *reg, struct ibv_pd *pd,
		       const struct sgp_pool_attr *attr);
void sgp_registrar_close(struct sgp_registrar *reg);

/*
 * Register all regions on one domain more. Returns 0; -1 and none is:
 *   EEXIST      it has been added before
 *   ENOSPC      as sgp_pd_join()
 *   EOPNOTSUPP  the device lacks windows, or takes no regions of least bytes or of those there are
 *   another     the errno of ibv_query_device(3) or ibv_reg_mr(3)
 * least: the longest chunk.
 */
int sgp_registrar_add(struct sgp_registrar *reg, struct ibv_pd *pd, size_t least);

/*
 * Deregister all regions from a domain. Returns 0; -1 with EINVAL (it isn't the pool's), EBUSY (a
 * queue is on it), or the errno of ibv_dereg_mr(3): no list goes there any more, but some of the
 * registrations stand, and the call may be made again.
 */
int sgp_registrar_remove(struct sgp_registrar *reg, struct ibv_pd *pd);

/* What the pool's flags let peers do on every device: IBV_ACCESS_REMOTE_* and MW_BIND. */
uint32_t sgp_registrar_remote(const struct sgp_registrar *reg);

/* The longest region that every domain's device takes. */
size_t sgp_registrar_most(const struct sgp_registrar *reg);

/* Why registering bytes failed, as errno err and a sentence. -1. */
int sgp_registrar_explain(const struct sgp_registrar *reg, const struct sgp_domain *domain,
			  const struct sgp_region *region, int err);

/*
 * One region on one domain. 0, or an errno and nothing changed. Posts go there only once it has been
 * allowed, and not any more after the deregistration.
 */
int sgp_domain_register(struct sgp_domain *domain, struct sgp_region *region,
			struct sgp_registrar *reg);
void sgp_domain_allow(const struct sgp_domain *domain, struct sgp_region *region);
int sgp_domain_deregister(const struct sgp_domain *domain, struct sgp_region *region,
			  struct sgp_registrar *reg);

#endif
