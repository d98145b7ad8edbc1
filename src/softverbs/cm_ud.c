/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Datagram ids: "connecting" asks for the other side's QP number and Q_Key (a service ID
 * resolution), and multicast groups are joined by address.
 */
#include "softverbs/cm.h"

/* A group that an id has joined, by its address. */
struct joined {
	struct sw_list link;
	struct sw_id *id;
	struct sockaddr_storage addr;
	union ibv_gid gid;
	bool attached;
};
static struct sw_list groups = {&groups, &groups};

void sw_cm_event_ud(struct sw_event *e, const struct sw_id *to, const union ibv_gid *gid,
		    uint32_t qpn)
{
	struct rdma_ud_param *u = &e->ev.param.ud;

	u->ah_attr.is_global = 1;
	u->ah_attr.port_num = to->id.port_num;
	u->ah_attr.grh.dgid = *gid;
	u->ah_attr.grh.hop_limit = 64;
	u->ah_attr.grh.traffic_class = to->tos;
	u->ah_attr.grh.sgid_index = (uint8_t)(to->dev->dev->port[to->id.port_num].ngid - 1);
	u->qp_num = qpn;
	u->qkey = RDMA_UDP_QKEY;
}

/* The group's GID as IP over InfiniBand and RoCE make it: the IP address in its last bytes. */
static int mgid(const struct sockaddr *addr, union ibv_gid *gid)
{
	const struct sockaddr_in *in4 = (const void *)addr;
	const struct sockaddr_in6 *in6 = (const void *)addr;

	memset(gid, 0, sizeof *gid);
	if (addr->sa_family == AF_INET6) {
		memcpy(gid, &in6->sin6_addr, sizeof *gid);
	} else {
		gid->raw[0] = 0xff;
		gid->raw[1] = 0x0e;
		gid->raw[10] = gid->raw[11] = 0xff;
		memcpy(gid->raw + 12, &in4->sin_addr, 4);
	}
	return addr->sa_family == AF_INET ? !IN_MULTICAST(ntohl(in4->sin_addr.s_addr))
					  : gid->raw[0] != 0xff;
}

static struct joined *find(const struct sw_id *id, const struct sockaddr *addr)
{
	struct sw_list *l;

	sw_each (l, &groups) {
		struct joined *j = sw_outer(l, struct joined, link);

		if (j->id == id && !memcmp(&j->addr, addr, sw_addrlen(addr)))
			return j;
	}
	return NULL;
}

static int join(struct rdma_cm_id *rid, struct sockaddr *addr, bool attach, void *context)
{
	struct sw_id *id = sw_id(rid);
	struct joined *j;
	struct sw_event *e;
	int err = SW_FAULT(join_multicast);

	if (!err && (!sw_addrlen(addr) || !rid->verbs))
		err = EINVAL;
	j = err ? NULL : calloc(1, sizeof *j);
	if (!err && !j)
		err = ENOMEM;
	if (!err && mgid(addr, &j->gid))
		err = EINVAL;
	if (!err && attach && rid->qp) {
		err = ibv_attach_mcast(rid->qp, &j->gid, 0);
		j->attached = !err;
	}
	if (err) {
		free(j);
		return sw_fail(err);
	}
	memcpy(&j->addr, addr, sw_addrlen(addr));
	j->id = id;
	sw_lock();
	sw_list_append(&groups, &j->link);
	e = sw_cm_event(id, RDMA_CM_EVENT_MULTICAST_JOIN, 0);
	if (e) {
		sw_cm_event_ud(e, id, &j->gid, 0xffffff);
		e->ev.param.ud.private_data = context;
	}
	sw_unlock();
	return sw_cm_complete(rid);
}

int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *addr, void *context)
{
	return join(id, addr, true, context);
}

int rdma_join_multicast_ex(struct rdma_cm_id *id, struct rdma_cm_join_mc_attr_ex *a, void *context)
{
	if (a->comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED)
		return sw_fail(ENOTSUP);
	if (!(a->comp_mask & RDMA_CM_JOIN_MC_ATTR_ADDRESS) ||
	    !(a->comp_mask & RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS) ||
	    a->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED)
		return sw_fail(EINVAL);
	return join(id, a->addr, a->join_flags != RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER, context);
}

int rdma_leave_multicast(struct rdma_cm_id *id, struct sockaddr *addr)
{
	struct joined *j;

	if (!sw_addrlen(addr))
		return sw_fail(EINVAL);
	sw_lock();
	j = find(sw_id(id), addr);
	if (j)
		sw_list_del(&j->link);
	sw_unlock();
	if (!j)
		return sw_fail(EADDRNOTAVAIL);
	if (j->attached && id->qp)
		ibv_detach_mcast(id->qp, &j->gid, 0);
	free(j);
	return 0;
}

void sw_cm_leave_all(struct sw_id *id)
{
	struct sw_list *l, *n;

	sw_each_safe (l, n, &groups) {
		struct joined *j = sw_outer(l, struct joined, link);

		if (j->id == id) {
			sw_list_del(l);
			free(j);
		}
	}
}
