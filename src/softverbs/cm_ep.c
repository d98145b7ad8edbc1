/* SPDX-License-Identifier: BSD-2-Clause */
/* Endpoints: an id, its address and its QP in one call; and requests taken one by one. */
#include "softverbs/cm.h"

static int passive(struct rdma_cm_id *id, const struct rdma_addrinfo *res, struct ibv_pd *pd,
		   const struct ibv_qp_init_attr *attr)
{
	struct sw_id *s = sw_id(id);

	if (rdma_bind_addr(id, res->ai_src_addr))
		return -1;
	if (!attr)
		return 0;
	s->ep_attr = malloc(sizeof *attr);
	if (!s->ep_attr)
		return sw_fail(ENOMEM);
	*s->ep_attr = *attr;
	s->ep_attr->qp_type = (enum ibv_qp_type)res->ai_qp_type;
	s->ep_pd = pd;
	if (pd)
		id->pd = pd;
	return 0;
}

static int active(struct rdma_cm_id *id, const struct rdma_addrinfo *res, struct ibv_pd *pd,
		  struct ibv_qp_init_attr *attr)
{
	if (rdma_resolve_addr(id, res->ai_src_addr, res->ai_dst_addr, 2000) ||
	    rdma_resolve_route(id, 2000))
		return -1;
	if (!attr)
		return 0;
	attr->qp_type = (enum ibv_qp_type)res->ai_qp_type;
	return rdma_create_qp(id, pd, attr);
}

int rdma_create_ep(struct rdma_cm_id **out, struct rdma_addrinfo *res, struct ibv_pd *pd,
		   struct ibv_qp_init_attr *attr)
{
	struct rdma_cm_id *id;
	int ret, err;

	if (sw_cm_create_id(&id, (enum rdma_port_space)res->ai_port_space,
			    (enum ibv_qp_type)res->ai_qp_type))
		return -1;
	ret = res->ai_flags & RAI_PASSIVE ? passive(id, res, pd, attr) : active(id, res, pd, attr);
	if (ret) {
		err = errno;
		rdma_destroy_ep(id);
		return sw_fail(err);
	}
	*out = id;
	return 0;
}

void rdma_destroy_ep(struct rdma_cm_id *id)
{
	if (id->qp)
		rdma_destroy_qp(id);
	if (id->srq)
		rdma_destroy_srq(id);
	rdma_destroy_id(id);
}

int rdma_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **id)
{
	struct rdma_cm_event *event;
	struct sw_id *l = sw_id(listen);
	int err = 0;

	if (!l->sync)
		return sw_fail(EINVAL);
	if (listen->event) {
		rdma_ack_cm_event(listen->event);
		listen->event = NULL;
	}
	if (rdma_get_cm_event(listen->channel, &event))
		return -1;
	if (event->status)
		err = event->event == RDMA_CM_EVENT_REJECTED ? ECONNREFUSED : -event->status;
	else if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST)
		err = EINVAL;
	if (!err && l->ep_attr) {
		struct ibv_qp_init_attr attr = *l->ep_attr;

		if (rdma_create_qp(event->id, l->ep_pd ? l->ep_pd : listen->pd, &attr))
			err = errno;
	}
	if (err) {
		listen->event = event;
		return sw_fail(err);
	}
	*id = event->id;
	(*id)->event = event;
	return 0;
}
