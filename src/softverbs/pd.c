/* SPDX-License-Identifier: BSD-2-Clause */
/* Protection domains, plain ones and those made of a PD and a thread domain. */
#include "softverbs/sw.h"

/* The cm's own PDs are not the user's to count. */
static void count_pd(struct ibv_context *c, int by)
{
	sw_dev(c)->count[SV_PDS] += by;
	if (!sw_ctx(c)->ours)
		sw_count(SV_PDS, by);
}

struct ibv_pd *sw_pd_new(struct ibv_context *c, int *err)
{
	struct sw_device *dev = sw_dev(c);
	struct sw_pd *pd;

	if (dev->removed) {
		*err = EIO;
		return NULL;
	}
	if (dev->count[SV_PDS] >= dev->p.attr.max_pd || !(pd = calloc(1, sizeof *pd))) {
		*err = ENOMEM;
		return NULL;
	}
	pd->ibv.context = c;
	pd->ibv.handle = (uint32_t)dev->count[SV_PDS];
	pd->root = pd;
	sw_ctx(c)->objects++;
	count_pd(c, 1);
	return &pd->ibv;
}

int sw_pd_free(struct ibv_pd *ibv)
{
	struct sw_pd *pd = sw_outer(ibv, struct sw_pd, ibv);

	if (pd->refs) {
		sw_strict("ibv_dealloc_pd: %u objects still use it", pd->refs);
		return EBUSY;
	}
	if (pd->root != pd)
		pd->root->refs--;
	sw_ctx(ibv->context)->objects--;
	count_pd(ibv->context, -1);
	free(pd);
	return 0;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *c)
{
	struct ibv_pd *pd;
	int err = SW_FAULT(alloc_pd);

	if (err)
		return sw_null(err);
	sw_lock();
	pd = sw_pd_new(c, &err);
	sw_unlock();
	return pd ? pd : sw_null(err);
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	int err = SW_FAULT(dealloc_pd);

	if (err)
		return err;
	sw_lock();
	err = sw_pd_free(pd);
	sw_unlock();
	return err;
}

/* ---- thread and parent domains: promises about threads, which one lock makes needless ---- */

struct ibv_td *sw_alloc_td(struct ibv_context *c, struct ibv_td_init_attr *a)
{
	struct ibv_td *td = NULL;
	int err = SW_FAULT(alloc_td);

	if (!err && a->comp_mask)
		err = EINVAL;
	if (!err && !(td = calloc(1, sizeof *td)))
		err = ENOMEM;
	if (err)
		return sw_null(err);
	td->context = c;
	sw_lock();
	sw_ctx(c)->objects++;
	sw_unlock();
	return td;
}

int sw_dealloc_td(struct ibv_td *td)
{
	sw_lock();
	sw_ctx(td->context)->objects--;
	sw_unlock();
	free(td);
	return 0;
}

struct ibv_pd *sw_alloc_parent_domain(struct ibv_context *c, struct ibv_parent_domain_init_attr *a)
{
	struct ibv_pd *pd;
	int err = 0;

	if (!a->pd || a->comp_mask & ~(uint32_t)(IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
						 IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT))
		return sw_null(EINVAL);
	sw_lock();
	pd = sw_pd_new(c, &err);
	if (pd) {
		sw_outer(pd, struct sw_pd, ibv)->root = sw_outer(a->pd, struct sw_pd, ibv)->root;
		sw_outer(pd, struct sw_pd, ibv)->root->refs++;
	}
	sw_unlock();
	return pd ? pd : sw_null(err);
}
