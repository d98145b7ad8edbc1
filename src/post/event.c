/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the device and the connection manager tell beside completions. Nothing is posted any more to
 * what has gone; nothing is let go here: what was posted comes home by its completion, or when its
 * queue pair has been destroyed.
 */
#include <errno.h>

#include "pool/errmsg.h"
#include "pool/mode.h"
#include "post/ep.h"

int sgp_ep_event(struct sgp_ep *ep, const struct rdma_cm_event *event)
{
	if (sgp_check_fork())
		return -1;
	if (!ep || !event)
		return sgp_fail(EINVAL, "event: an endpoint and an event are needed");
	switch (event->event) {
	case RDMA_CM_EVENT_ESTABLISHED:
		atomic_fetch_or(&ep->life, SGP_EP_CONNECTED);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
	case RDMA_CM_EVENT_REJECTED:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		atomic_fetch_or(&ep->life, SGP_EP_STOPPED);
		break;
	default:
		break;
	}
	return 0;
}

/* The endpoint of that queue pair, or all of them, post no more. */
static void stop(struct sgp_cq *cq, const struct ibv_qp *qp)
{
	sgp_lock(&cq->places_lock);
	for (unsigned int i = 0; i < cq->nplaces; i++) {
		struct sgp_ep *ep = cq->place[i].ep;

		if (ep && (!qp || ep->qp == qp))
			atomic_fetch_or(&ep->life, SGP_EP_STOPPED);
	}
	sgp_unlock(&cq->places_lock);
}

int sgp_cq_event(struct sgp_cq *cq, const struct ibv_async_event *event)
{
	if (sgp_check_fork())
		return -1;
	if (!cq || !event)
		return sgp_fail(EINVAL, "event: a completion queue and an event are needed");
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		if (event->element.cq != cq->cq)
			break;
		atomic_store(&cq->failed, true);
		stop(cq, NULL);
		sgp_cq_wake(cq);
		break;
	case IBV_EVENT_DEVICE_FATAL:
		stop(cq, NULL);
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		stop(cq, event->element.qp);
		break;
	default:
		break;
	}
	return 0;
}
