/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory windows, and what an rkey opens.
 *
 * A window has an index of its own in the key table. Type 1: bound by ibv_bind_mw, which gives it a
 * new rkey, usable through every QP of its PD. Type 2 (of these 2B): bound by a posted request to
 * an rkey of the caller's choice (the same index, another tag), usable through that one QP, until
 * it is invalidated.
 */
#include "softverbs/ops.h"

#define SW_NO_KEY UINT32_MAX

static void unbind(struct sw_mw *mw)
{
	struct sw_device *dev = sw_dev(mw->ibv.context);

	if (!mw->mr)
		return;
	mw->mr->windows--;
	mw->mr = NULL;
	mw->qp = NULL;
	dev->key[mw->index].rkey = SW_NO_KEY;
}

struct ibv_mw *sw_alloc_mw(struct ibv_pd *ibv, enum ibv_mw_type type)
{
	struct sw_pd *pd = sw_outer(ibv, struct sw_pd, ibv);
	struct sw_device *dev = sw_dev(ibv->context);
	struct sw_mw *mw;
	int err = SW_FAULT(alloc_mw);
	unsigned int need =
		type == IBV_MW_TYPE_1 ? IBV_DEVICE_MEM_WINDOW : IBV_DEVICE_MEM_WINDOW_TYPE_2B;

	if (!err && type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2)
		err = EINVAL;
	if (!err && !(dev->p.attr.device_cap_flags & need))
		err = EOPNOTSUPP;
	mw = err ? NULL : calloc(1, sizeof *mw);
	if (!err && !mw)
		err = ENOMEM;
	if (err)
		return sw_null(err);
	sw_lock();
	if (dev->removed)
		err = EIO;
	else if (dev->count[SV_MWS] >= dev->p.attr.max_mw || !(mw->index = sw_key_alloc(dev)))
		err = ENOMEM;
	if (err) {
		sw_unlock();
		free(mw);
		return sw_null(err);
	}
	mw->pd = pd;
	mw->ibv.context = ibv->context;
	mw->ibv.pd = ibv;
	mw->ibv.type = type;
	mw->ibv.handle = mw->index;
	mw->ibv.rkey = mw->index << 8 | dev->key[mw->index].tag;
	dev->key[mw->index].mw = mw;
	pd->refs++;
	dev->count[SV_MWS]++;
	sw_ctx(ibv->context)->objects++;
	sw_count(SV_MWS, 1);
	sw_unlock();
	return &mw->ibv;
}

int sw_dealloc_mw(struct ibv_mw *ibv)
{
	struct sw_mw *mw = sw_outer(ibv, struct sw_mw, ibv);
	struct sw_device *dev = sw_dev(ibv->context);
	int err = SW_FAULT(dealloc_mw);

	if (err)
		return err;
	sw_lock();
	unbind(mw);
	sw_key_free(dev, mw->index);
	mw->pd->refs--;
	dev->count[SV_MWS]--;
	sw_ctx(ibv->context)->objects--;
	sw_count(SV_MWS, -1);
	sw_unlock();
	free(mw);
	return 0;
}

/* Type 1: a posted request that the library makes; the new rkey is valid at once. */
int sw_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	uint32_t rkey = ibv_inc_rkey(mw->rkey);
	struct ibv_send_wr *bad,
		wr = {
			.wr_id = bind->wr_id,
			.opcode = IBV_WR_BIND_MW,
			.send_flags = bind->send_flags,
			.bind_mw = {.mw = mw, .rkey = rkey, .bind_info = bind->bind_info},
		};
	int err = SW_FAULT(bind_mw);

	if (!err)
		err = sw_post_send(qp, &wr, &bad);
	if (!err)
		mw->rkey = rkey;
	return err;
}

static bool may_bind(const struct sw_qp *qp, const struct sw_mw *mw, const struct sw_mr *mr,
		     const struct ibv_mw_bind_info *info)
{
	if (!mr || mr->pd->root != qp->pd->root || mw->pd->root != qp->pd->root)
		return false;
	if (!(mr->access & IBV_ACCESS_MW_BIND))
		return false;
	if (info->mw_access_flags & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) &&
	    !(mr->access & IBV_ACCESS_LOCAL_WRITE))
		return false;
	return info->addr >= mr->iova && info->addr - mr->iova <= mr->ibv.length &&
	       info->length <= mr->ibv.length - (info->addr - mr->iova);
}

int sw_op_bind(struct sw_qp *qp, struct sw_swqe *w)
{
	struct ibv_mw_bind_info *info = &w->bind.info;
	struct sw_mw *mw = w->bind.mw;
	struct sw_device *dev = qp->dev;
	struct sw_mr *mr = info->mr ? sw_outer(info->mr, struct sw_mr, ibv) : NULL;

	/* The same index, and of type 2 only an unbound one. */
	if (w->bind.rkey >> 8 != mw->index || (mw->ibv.type == IBV_MW_TYPE_2 && mw->mr))
		return IBV_WC_MW_BIND_ERR;
	if (mw->ibv.type == IBV_MW_TYPE_1 && !info->length) {
		unbind(mw);
		return IBV_WC_SUCCESS;
	}
	if (!info->length || !may_bind(qp, mw, mr, info))
		return IBV_WC_MW_BIND_ERR;
	unbind(mw);
	mw->mr = mr;
	mr->windows++;
	mw->qp = mw->ibv.type == IBV_MW_TYPE_2 ? qp : NULL;
	mw->addr = info->addr;
	mw->len = info->length;
	mw->access = info->mw_access_flags;
	dev->key[mw->index].rkey = w->bind.rkey;
	return IBV_WC_SUCCESS;
}

bool sw_mw_invalidate(struct sw_qp *qp, uint32_t rkey)
{
	uint32_t i = rkey >> 8;
	struct sw_key *k = i < qp->dev->nkey ? &qp->dev->key[i] : NULL;

	if (!k || k->rkey != rkey || !k->mw || k->mw->ibv.type != IBV_MW_TYPE_2 || k->mw->qp != qp)
		return false;
	unbind(k->mw);
	return true;
}

int sw_op_inv(struct sw_qp *qp, uint32_t rkey)
{
	return (int)(sw_mw_invalidate(qp, rkey) ? IBV_WC_SUCCESS : qp->dev->p.wc_inv);
}

void sw_mw_forget_qp(struct sw_qp *qp)
{
	if (!qp->dev->count[SV_MWS])
		return;
	for (uint32_t i = 0; i < qp->dev->nkey; i++)
		if (qp->dev->key[i].mw && qp->dev->key[i].mw->qp == qp)
			unbind(qp->dev->key[i].mw);
}

static uint8_t *in_window(const struct sw_qp *qp, const struct sw_mw *mw, uint64_t addr,
			  uint64_t len, unsigned int access)
{
	uint64_t off = mw->access & IBV_ACCESS_ZERO_BASED ? addr : addr - mw->addr;

	if (!mw->mr || (mw->access & access) != access || mw->pd->root != qp->pd->root ||
	    (mw->qp && mw->qp != qp))
		return NULL;
	if ((!(mw->access & IBV_ACCESS_ZERO_BASED) && addr < mw->addr) || off > mw->len ||
	    len > mw->len - off)
		return NULL;
	return mw->mr->base + (mw->addr - mw->mr->iova) + off;
}

static uint8_t *in_region(const struct sw_qp *qp, const struct sw_mr *mr, uint64_t addr,
			  uint64_t len, unsigned int access)
{
	if ((mr->access & access) != access || mr->pd->root != qp->pd->root)
		return NULL;
	if (addr < mr->iova || addr - mr->iova > mr->ibv.length ||
	    len > mr->ibv.length - (addr - mr->iova))
		return NULL;
	return mr->base + (addr - mr->iova);
}

bool sw_rkey_known(const struct sw_device *dev, uint32_t rkey)
{
	return rkey >> 8 < dev->nkey && dev->key[rkey >> 8].rkey == rkey;
}

bool sw_remote(struct sw_qp *qp, uint32_t rkey, uint64_t addr, uint64_t len, unsigned int access,
	       uint8_t **at)
{
	uint32_t i = rkey >> 8;
	struct sw_key *k = i < qp->dev->nkey ? &qp->dev->key[i] : NULL;

	/* XRC: the SRQ whose request it is may have gone, and with it the domain. Else: what the QP
	 * was given when it was taken to INIT. */
	if (!qp->pd || (qp->attr.qp_access_flags & access) != access)
		return false;
	if (!len)
		return true; /* nothing is touched, no key is looked at */
	if (!k || k->rkey != rkey)
		return false;
	*at = k->mw   ? in_window(qp, k->mw, addr, len, access)
	      : k->mr ? in_region(qp, k->mr, addr, len, access)
		      : NULL;
	return *at != NULL;
}
