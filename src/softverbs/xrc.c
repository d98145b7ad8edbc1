/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Extended reliable connections: an XRC_RECV queue pair has no receives of its own. Each request
 * names the shared receive queue that it is for, of the same domain, and is treated by that queue's
 * protection domain and completion queue. So the queue pair is, until its next request comes, as if
 * it had been made on that SRQ; the CQEs belong to the SRQ alone.
 *
 *	XRC_SEND --- request, SRQ number ---> XRC_RECV . . . > SRQ -> its CQ
 *	                                        |               |
 *	                                        +---- XRCD -----+
 */
#include "softverbs/sw.h"

static struct sw_xrcd *outer(struct ibv_xrcd *ibv)
{
	return sw_outer(ibv, struct sw_xrcd, ibv);
}

/* Domains are not shared by file: there is nobody else on this device who could open it. */
struct ibv_xrcd *sw_open_xrcd(struct ibv_context *c, struct ibv_xrcd_init_attr *a)
{
	struct sw_xrcd *x;
	int err = SW_FAULT(open_xrcd);

	if (!err && a->comp_mask != (IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS))
		err = EINVAL;
	if (!err && a->fd != -1)
		err = EOPNOTSUPP;
	x = err ? NULL : calloc(1, sizeof *x);
	if (!x)
		return sw_null(err ? err : ENOMEM);
	x->ibv.context = c;
	sw_lock();
	if (sw_dev(c)->removed)
		err = EIO;
	else
		sw_ctx(c)->objects++;
	sw_unlock();
	if (!err)
		return &x->ibv;
	free(x);
	return sw_null(err);
}

int sw_xrcd_free(struct ibv_xrcd *ibv)
{
	struct sw_xrcd *x = outer(ibv);

	if (x->refs) {
		sw_strict("ibv_close_xrcd: %u objects still use it", x->refs);
		return EBUSY;
	}
	sw_ctx(ibv->context)->objects--;
	free(x);
	return 0;
}

int sw_close_xrcd(struct ibv_xrcd *ibv)
{
	int err;

	sw_lock();
	err = sw_xrcd_free(ibv);
	sw_unlock();
	return err;
}

void sw_xrc_enter(struct sw_srq *srq, struct sw_xrcd *xrcd, struct sw_cq *cq)
{
	struct sw_device *dev = srq->dev;

	dev->srq_next = dev->srq_next % 0xffffff + 1;
	srq->num = dev->srq_next;
	srq->xrcd = xrcd;
	srq->cq = cq;
	xrcd->refs++;
	cq->refs++;
	sw_list_append(&dev->xrc_srqs, &srq->link);
}

void sw_xrc_leave(struct sw_srq *srq)
{
	struct sw_device *dev = srq->dev;

	for (uint32_t i = 0; i < dev->nqp; i++)
		if (dev->qp[i] && dev->qp[i]->xrcd && dev->qp[i]->srq == srq) {
			dev->qp[i]->srq = NULL;
			dev->qp[i]->pd = NULL;
			dev->qp[i]->rcq = NULL;
		}
	sw_cq_forget_srq(srq->cq, srq);
	sw_list_del(&srq->link);
	srq->cq->refs--;
	srq->xrcd->refs--;
}

bool sw_xrc_target(struct sw_qp *qp, uint32_t srqn)
{
	struct sw_list *l;

	if (qp->srq && qp->srq->num == srqn)
		return true;
	sw_each (l, &qp->dev->xrc_srqs) {
		struct sw_srq *srq = sw_outer(l, struct sw_srq, link);

		if (srq->num != srqn || srq->xrcd != qp->xrcd)
			continue;
		qp->srq = srq;
		qp->pd = srq->pd;
		qp->rcq = srq->cq;
		return true;
	}
	return false;
}
