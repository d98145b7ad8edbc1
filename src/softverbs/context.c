/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An open device. The verbs_context holds the functions that the inline calls of verbs.h jump to;
 * it ends our structure, as the header wants it.
 *
 *	struct sw_context { ..., struct verbs_context { ops..., sz, struct ibv_context } }
 *	                                                           ^ what the user holds
 */
#include "softverbs/sw.h"

struct ibv_context *sw_open(struct sw_device *dev, bool ours, int *err)
{
	struct sw_context *ctx;

	if (dev->removed) {
		*err = ENODEV;
		return NULL;
	}
	ctx = calloc(1, sizeof *ctx);
	if (!ctx || sw_pollq_init(&ctx->async_q)) {
		*err = ctx ? errno : ENOMEM;
		free(ctx);
		return NULL;
	}
	ctx->dev = dev;
	ctx->ours = ours;
	sw_list_init(&ctx->async);
	pthread_mutex_init(&ctx->v.context.mutex, NULL);
	ctx->v.sz = sizeof ctx->v;
	ctx->v.context.device = &dev->ibv;
	ctx->v.context.cmd_fd = -1;
	ctx->v.context.async_fd = ctx->async_q.ep;
	ctx->v.context.num_comp_vectors = 1;
	ctx->v.context.abi_compat = dev->p.no_extended ? NULL : __VERBS_ABI_IS_EXTENDED;
	sw_fill_ops(ctx);
	dev->refs++;
	sw_list_append(&dev->contexts, &ctx->link);
	if (!ours)
		sw_count(SV_CONTEXTS, 1);
	return &ctx->v.context;
}

int sw_close(struct sw_context *ctx)
{
	struct sw_list *l, *n;

	if (ctx->objects) {
		sw_strict("ibv_close_device: %u objects of it are left", ctx->objects);
		return EBUSY;
	}
	sw_each_safe (l, n, &ctx->async)
		free(sw_outer(l, struct sw_async, link));
	sw_pollq_fini(&ctx->async_q);
	pthread_mutex_destroy(&ctx->v.context.mutex);
	sw_list_del(&ctx->link);
	sw_device_put(ctx->dev);
	if (!ctx->ours)
		sw_count(SV_CONTEXTS, -1);
	free(ctx);
	return 0;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct ibv_context *c;
	int err = SW_FAULT(open_device);

	if (err)
		return sw_null(err);
	sw_lock();
	c = sw_open(sw_outer(device, struct sw_device, ibv), false, &err);
	sw_unlock();
	return c ? c : sw_null(err);
}

/* Closing succeeds whatever is left, as the kernel's does: connections end, the objects serve nobody
 * any more, and their memory stays. Strictly it is a mistake. */
static int abandon(struct sw_context *ctx)
{
	struct sw_device *dev = ctx->dev;

	for (uint32_t i = 0; i < dev->nqp; i++)
		if (dev->qp[i] && dev->qp[i]->ibv.qp_base.context == &ctx->v.context &&
		    dev->qp[i]->state != IBV_QPS_RESET)
			sw_qp_error(dev->qp[i]);
	sw_count(SV_CONTEXTS, -1);
	return 0;
}

int ibv_close_device(struct ibv_context *c)
{
	struct sw_context *ctx = sw_ctx(c);
	int err;

	sw_lock();
	err = ctx->objects && !sw_strict_on ? abandon(ctx) : sw_close(ctx);
	sw_unlock();
	return err ? sw_fail(err) : 0;
}

/* A file descriptor or a handle from another process: there is no other process. */
struct ibv_context *ibv_import_device(int cmd_fd)
{
	(void)cmd_fd;
	return sw_null(EOPNOTSUPP);
}

struct ibv_pd *ibv_import_pd(struct ibv_context *c, uint32_t handle)
{
	(void)c, (void)handle;
	return sw_null(EOPNOTSUPP);
}

struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle)
{
	(void)pd, (void)handle;
	return sw_null(EOPNOTSUPP);
}

struct ibv_dm *ibv_import_dm(struct ibv_context *c, uint32_t handle)
{
	(void)c, (void)handle;
	return sw_null(EOPNOTSUPP);
}

/* Nothing was imported, so nothing is given back. */
void ibv_unimport_pd(struct ibv_pd *pd)
{
	(void)pd;
}

void ibv_unimport_mr(struct ibv_mr *mr)
{
	(void)mr;
}

void ibv_unimport_dm(struct ibv_dm *dm)
{
	(void)dm;
}

static int query_device_ex(struct ibv_context *c, const struct ibv_query_device_ex_input *in,
			   struct ibv_device_attr_ex *a, size_t len)
{
	struct ibv_device_attr_ex attr = {.comp_mask = 0};
	int err;

	if (in && in->comp_mask)
		return EINVAL;
	err = ibv_query_device(c, &attr.orig_attr);
	if (err)
		return err;
	attr.device_cap_flags_ex = attr.orig_attr.device_cap_flags;
	attr.phys_port_cnt_ex = attr.orig_attr.phys_port_cnt;
	memset(a, 0, len);
	memcpy(a, &attr, len < sizeof attr ? len : sizeof attr);
	return 0;
}

void sw_fill_ops(struct sw_context *ctx)
{
	struct ibv_context_ops *o = &ctx->v.context.ops;
	const struct sw_persona *p = &ctx->dev->p;

	o->poll_cq = sw_poll_cq;
	o->req_notify_cq = sw_req_notify_cq;
	o->post_send = sw_post_send;
	o->post_recv = sw_post_recv;
	o->post_srq_recv = sw_post_srq_recv;
	if (p->attr.max_mw) {
		o->alloc_mw = sw_alloc_mw;
		o->bind_mw = sw_bind_mw;
		o->dealloc_mw = sw_dealloc_mw;
	}
	ctx->v.query_port = sw_query_port;
	ctx->v.query_device_ex = query_device_ex;
	ctx->v.create_srq_ex = sw_create_srq_ex;
	ctx->v.get_srq_num = sw_get_srq_num;
	ctx->v.open_xrcd = p->no_xrc ? NULL : sw_open_xrcd;
	ctx->v.close_xrcd = sw_close_xrcd;
	ctx->v.create_cq_ex = p->no_cq_ex ? NULL : sw_create_cq_ex;
	ctx->v.create_qp_ex = p->no_qp_ex && p->no_xrc ? NULL : sw_create_qp_ex;
	ctx->v.alloc_td = p->no_td ? NULL : sw_alloc_td;
	ctx->v.dealloc_td = p->no_td ? NULL : sw_dealloc_td;
	ctx->v.alloc_parent_domain = p->no_td ? NULL : sw_alloc_parent_domain;
}
