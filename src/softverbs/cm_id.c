/* SPDX-License-Identifier: BSD-2-Clause */
/* Ids: making and destroying, the device they are on, their options. */
#include "softverbs/net.h"

static struct sw_list ids = {&ids, &ids};
static struct sw_list devs = {&devs, &devs};

struct sw_list *sw_cm_ids(void)
{
	return &ids;
}

bool sw_cm_iwarp(const struct sw_id *id)
{
	return id->dev && id->dev->dev->p.transport == IBV_TRANSPORT_IWARP;
}

bool sw_cm_ud(const struct sw_id *id)
{
	return id->id.qp_type == IBV_QPT_UD;
}

/* ---- the device of an id ---- */

static struct sw_cm_dev *find_dev(struct sw_device *dev)
{
	struct sw_list *l;

	sw_each (l, &devs) {
		struct sw_cm_dev *d = sw_outer(l, struct sw_cm_dev, link);

		if (d->dev == dev)
			return d;
	}
	return NULL;
}

static struct sw_cm_dev *get_dev(struct sw_device *dev, int *err)
{
	struct sw_cm_dev *d = find_dev(dev);

	if (!d) {
		d = calloc(1, sizeof *d);
		if (!d) {
			*err = ENOMEM;
			return NULL;
		}
		d->dev = dev;
		d->verbs = sw_open(dev, true, err);
		if (!d->verbs) {
			free(d);
			return NULL;
		}
		sw_list_append(&devs, &d->link);
	}
	if (!d->refs++) {
		d->pd = sw_pd_new(d->verbs, err);
		if (!d->pd) {
			d->refs--;
			return NULL;
		}
	}
	return d;
}

/* Law 1: the default PD goes with the last id on the device; the context stays. */
static void put_dev(struct sw_cm_dev *d)
{
	if (--d->refs)
		return;
	if (d->xrcd && !sw_xrcd_free(d->xrcd))
		d->xrcd = NULL;
	if (!sw_pd_free(d->pd))
		d->pd = NULL;
	if (d->dev->removed && !sw_close(sw_ctx(d->verbs))) {
		sw_list_del(&d->link);
		free(d);
	}
}

int sw_cm_attach(struct sw_id *id, struct sw_device *dev, int port)
{
	struct sw_cm_dev *d;
	int err = 0;

	if (id->dev)
		return id->dev->dev == dev ? 0 : EINVAL;
	d = get_dev(dev, &err);
	if (!d)
		return err;
	id->dev = d;
	id->id.verbs = d->verbs;
	id->id.pd = d->pd;
	id->id.port_num = (uint8_t)port;
	if (!sw_cm_iwarp(id)) {
		id->id.route.addr.addr.ibaddr.sgid = dev->port[port].gid[dev->port[port].ngid - 1];
		id->id.route.addr.addr.ibaddr.pkey = 0xffff;
	}
	return 0;
}

void sw_cm_device_removed(struct sw_device *dev)
{
	struct sw_list *l;

	sw_each (l, &ids) {
		struct sw_id *id = sw_outer(l, struct sw_id, link);

		if (!id->dev || id->dev->dev != dev || id->state == SW_CM_REMOVED)
			continue;
		sw_cm_hangup(id);
		id->state = SW_CM_REMOVED;
		sw_cm_event(id, RDMA_CM_EVENT_DEVICE_REMOVAL, 0);
	}
}

/* ---- ids ---- */

struct sw_id *sw_cm_id_new(void *context, enum rdma_port_space ps, enum ibv_qp_type type)
{
	struct sw_id *id = calloc(1, sizeof *id);

	if (!id)
		return NULL;
	id->id.context = context;
	id->id.ps = ps;
	id->id.qp_type = type;
	id->initiator_depth = RDMA_MAX_INIT_DEPTH;
	id->responder_resources = RDMA_MAX_RESP_RES;
	sw_list_append(&ids, &id->link);
	return id;
}

void sw_cm_id_free(struct sw_id *id)
{
	sw_cm_await(id, SW_CM_NOTHING);
	sw_cm_leave_all(id);
	sw_net_release_port(id);
	sw_list_del(&id->link);
	if (id->dev)
		put_dev(id->dev);
	free(id->id.route.path_rec);
	free(id->ep_attr);
	free(id->asked);
	free(id);
}

static int new_id(struct rdma_event_channel *channel, struct rdma_cm_id **out, void *context,
		  enum rdma_port_space ps, enum ibv_qp_type type)
{
	struct sw_cm_chan *own = NULL;
	struct sw_id *id;
	int err = SW_FAULT(create_id);

	if (!err && !channel)
		own = sw_cm_chan_new(&err);
	if (err)
		return sw_fail(err);
	sw_lock();
	id = sw_cm_id_new(context, ps, type);
	if (!id) {
		sw_unlock();
		if (own)
			sw_cm_chan_free(own);
		return sw_fail(ENOMEM);
	}
	id->sync = own != NULL;
	id->id.channel = own ? &own->ibv : channel;
	sw_count(SV_CM_IDS, 1);
	sw_unlock();
	*out = &id->id;
	return 0;
}

int sw_cm_create_id(struct rdma_cm_id **id, enum rdma_port_space ps, enum ibv_qp_type type)
{
	return new_id(NULL, id, NULL, ps, type);
}

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
		   enum rdma_port_space ps)
{
	bool ud = ps == RDMA_PS_UDP || ps == RDMA_PS_IPOIB;

	return new_id(channel, id, context, ps, ud ? IBV_QPT_UD : IBV_QPT_RC);
}

int rdma_destroy_id(struct rdma_cm_id *rid)
{
	struct sw_id *id = sw_id(rid);
	struct sw_cm_chan *own = NULL;
	int err = SW_FAULT(destroy_id);

	if (err)
		return sw_fail(err);
	if (rid->event) {
		rdma_ack_cm_event(rid->event);
		rid->event = NULL;
	}
	sw_lock();
	sw_cm_hangup(id);
	/* rdma_destroy_id(3): the caller has acknowledged, or will, each event it fetched. */
	sw_cm_forget(id);
	if (id->sync)
		own = sw_cm_chan(rid->channel);
	sw_count(SV_CM_IDS, -1);
	sw_cm_id_free(id);
	sw_unlock();
	if (own)
		sw_cm_chan_free(own);
	return 0;
}

int rdma_migrate_id(struct rdma_cm_id *rid, struct rdma_event_channel *channel)
{
	struct sw_id *id = sw_id(rid);
	struct sw_cm_chan *own = NULL, *old = NULL;
	int err = SW_FAULT(migrate_id);

	if (!err && id->sync && !channel)
		err = EINVAL;
	if (!err && !channel)
		own = sw_cm_chan_new(&err);
	if (err)
		return sw_fail(err);
	if (id->sync && rid->event) {
		rdma_ack_cm_event(rid->event);
		rid->event = NULL;
	}
	sw_lock();
	if (id->sync)
		old = sw_cm_chan(rid->channel);
	sw_cm_migrate(id, own ? own : sw_cm_chan(channel));
	id->sync = own != NULL;
	/* Its events belong to the new channel only when no fetched one is left: the man page. */
	while (id->events != id->acked)
		sw_sleep();
	sw_unlock();
	if (old)
		sw_cm_chan_free(old);
	return 0;
}

int rdma_set_option(struct rdma_cm_id *rid, int level, int option, void *val, size_t len)
{
	struct sw_id *id = sw_id(rid);
	int err = SW_FAULT(set_option);

	if (err)
		return sw_fail(err);
	if (level != RDMA_OPTION_ID)
		return sw_fail(ENOSYS);
	sw_lock();
	if (option == RDMA_OPTION_ID_TOS && len == sizeof(uint8_t))
		id->tos = *(uint8_t *)val;
	else if (option == RDMA_OPTION_ID_ACK_TIMEOUT && len == sizeof(uint8_t))
		id->ack_timeout = *(uint8_t *)val;
	else if (option == RDMA_OPTION_ID_REUSEADDR && len == sizeof(int))
		id->reuse = *(int *)val != 0;
	else if (option == RDMA_OPTION_ID_AFONLY && len == sizeof(int))
		id->afonly = *(int *)val != 0;
	else if (option > RDMA_OPTION_ID_ACK_TIMEOUT)
		err = ENOSYS;
	else
		err = EINVAL;
	sw_unlock();
	return err ? sw_fail(err) : 0;
}

int rdma_set_local_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
	if (!id || id->qp || !ece || !ece->vendor_id || ece->comp_mask)
		return sw_fail(EINVAL);
	sw_id(id)->local_ece = *ece;
	return 0;
}

int rdma_get_remote_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
	if (!id || id->qp || !ece)
		return sw_fail(EINVAL);
	*ece = sw_id(id)->remote_ece;
	return 0;
}

/* ---- devices ---- */

struct ibv_context **rdma_get_devices(int *num)
{
	struct ibv_context **list;
	struct sw_list *l;
	int n = 0, err = 0;

	sw_lock();
	sw_each (l, sw_devices())
		n++;
	list = calloc((size_t)n + 1, sizeof *list);
	n = 0;
	sw_each (l, sw_devices()) {
		struct sw_cm_dev *d =
			list ? get_dev(sw_outer(l, struct sw_device, link), &err) : NULL;

		if (d)
			list[n++] = d->verbs;
	}
	sw_unlock();
	if (num)
		*num = list ? n : 0;
	return list ? list : sw_null(ENOMEM);
}

void rdma_free_devices(struct ibv_context **list)
{
	sw_lock();
	for (int i = 0; list[i]; i++)
		put_dev(find_dev(sw_dev(list[i])));
	sw_unlock();
	free(list);
}
