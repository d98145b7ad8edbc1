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
#include <sys/stat.h>

#include "softverbs/net.h"

static struct sw_xrcd *outer(struct ibv_xrcd *ibv)
{
	return sw_outer(ibv, struct sw_xrcd, ibv);
}

static bool same(const struct sw_xrcd *a, const struct sw_xrcd *b)
{
	return a == b ||
	       (a->file && b->file && a->file_dev == b->file_dev && a->file_ino == b->file_ino);
}

/* A file's name is good for this process alone: others have devices of their own. */
static int identify(struct sw_xrcd *x, int fd)
{
	struct stat st;

	if (fd == -1)
		return 0;
	if (fstat(fd, &st))
		return errno;
	x->file = true;
	x->file_dev = st.st_dev;
	x->file_ino = st.st_ino;
	return 0;
}

struct ibv_xrcd *sw_open_xrcd(struct ibv_context *c, struct ibv_xrcd_init_attr *a)
{
	struct sw_xrcd *x;
	int err = SW_FAULT(open_xrcd);

	if (!err && a->comp_mask != (IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS))
		err = EINVAL;
	x = err ? NULL : calloc(1, sizeof *x);
	if (!x)
		return sw_null(err ? err : ENOMEM);
	err = identify(x, a->fd);
	x->ibv.context = c;
	sw_lock();
	if (!err && sw_dev(c)->removed)
		err = EIO;
	if (!err)
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

	for (uint32_t i = 0; i < dev->nqp; i++) {
		struct sw_qp *qp = dev->qp[i];

		if (!qp || !qp->xrcd || qp->srq != srq)
			continue;
		sw_wire_srq_gone(qp);
		qp->srq = NULL;
		qp->pd = NULL;
		qp->rcq = NULL;
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

		if (srq->num != srqn || !same(srq->xrcd, qp->xrcd))
			continue;
		qp->srq = srq;
		qp->pd = srq->pd;
		qp->rcq = srq->cq;
		return true;
	}
	return false;
}
