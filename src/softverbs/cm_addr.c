/* SPDX-License-Identifier: BSD-2-Clause */
/* Addresses and ports of ids: binding, resolving, names. */
#include <arpa/inet.h>
#include <netdb.h>
#include <unistd.h>

#include "softverbs/net.h"

#define FIRST_PORT 32768
#define LAST_PORT  60999

socklen_t sw_addrlen(const struct sockaddr *addr)
{
	if (!addr)
		return 0;
	if (addr->sa_family == AF_INET)
		return sizeof(struct sockaddr_in);
	if (addr->sa_family == AF_INET6)
		return sizeof(struct sockaddr_in6);
	return 0;
}

uint16_t sw_get_port(const struct sockaddr *addr)
{
	uint16_t port;

	/* sin_port and sin6_port are in the same place. */
	memcpy(&port, (const char *)addr + offsetof(struct sockaddr_in, sin_port), sizeof port);
	return ntohs(port);
}

void sw_set_port(struct sockaddr *addr, uint16_t port)
{
	((struct sockaddr_in *)(void *)addr)->sin_port = htons(port);
}

bool sw_is_any(const struct sockaddr *addr)
{
	const struct sockaddr_in *in4 = (const void *)addr;
	const struct sockaddr_in6 *in6 = (const void *)addr;

	return addr->sa_family == AF_INET ? in4->sin_addr.s_addr == htonl(INADDR_ANY)
					  : IN6_IS_ADDR_UNSPECIFIED(&in6->sin6_addr);
}

/* The address that is none, for who binds to no particular one. */
static const struct sockaddr *any_of(sa_family_t family)
{
	static const struct sockaddr_in any4 = {.sin_family = AF_INET};
	static const struct sockaddr_in6 any6 = {.sin6_family = AF_INET6};

	return family == AF_INET ? (const void *)&any4 : (const void *)&any6;
}

static bool is_group(const struct sockaddr *addr)
{
	const struct sockaddr_in *in4 = (const void *)addr;
	const struct sockaddr_in6 *in6 = (const void *)addr;

	return addr->sa_family == AF_INET ? IN_MULTICAST(ntohl(in4->sin_addr.s_addr))
					  : IN6_IS_ADDR_MULTICAST(&in6->sin6_addr);
}

static bool same_addr(const struct sockaddr *a, const struct sockaddr *b)
{
	if (a->sa_family != b->sa_family)
		return false;
	if (a->sa_family == AF_INET)
		return ((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr ==
		       ((const struct sockaddr_in *)(const void *)b)->sin_addr.s_addr;
	return !memcmp(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr,
		       &((const struct sockaddr_in6 *)(const void *)b)->sin6_addr,
		       sizeof(struct in6_addr));
}

/* 0, or why this port can't be had: the same address, or one of the two is any address. */
static int taken(const struct sw_id *id, const struct sockaddr *addr, uint16_t port, bool reuse)
{
	struct sw_list *l;

	sw_each (l, sw_cm_ids()) {
		const struct sw_id *o = sw_outer(l, struct sw_id, link);
		const struct sockaddr *at = &o->id.route.addr.src_addr;

		if (o == id || o->port != port || o->id.ps != id->id.ps)
			continue;
		if (reuse && o->reuse && o->state != SW_CM_LISTEN)
			continue;
		if (sw_is_any(addr) || sw_is_any(at))
			return EADDRNOTAVAIL;
		if (same_addr(addr, at))
			return EADDRINUSE;
	}
	return 0;
}

bool sw_cm_port_shared(const struct sw_id *id)
{
	return taken(id, &id->id.route.addr.src_addr, id->port, false) != 0;
}

/* The port is free in this process: is it among the others too? */
static int claim(struct sw_id *id, uint16_t port, bool want)
{
	int err;

	id->port = port;
	/* Whoever lets others have it too competes for it when he listens. */
	err = want && !id->reuse && sw_net_wanted() ? sw_net_claim_port(id) : 0;
	if (err)
		id->port = 0;
	return err;
}

static int pick_port(struct sw_id *id, const struct sockaddr *addr, bool want)
{
	static uint16_t last;

	if (!last) /* processes begin in different places, so that they seldom meet */
		last = sw_net_wanted() ? (uint16_t)(FIRST_PORT + ((unsigned int)getpid() & 16383u))
				       : FIRST_PORT - 1;
	for (int i = FIRST_PORT; i <= LAST_PORT; i++) {
		int err;

		last = last >= LAST_PORT ? FIRST_PORT : (uint16_t)(last + 1);
		err = taken(id, addr, last, id->reuse);
		if (!err)
			err = claim(id, last, want);
		if (err != EADDRINUSE && err != EADDRNOTAVAIL)
			return err;
	}
	return EADDRNOTAVAIL;
}

static int bind_id(struct sw_id *id, const struct sockaddr *addr, bool want)
{
	struct rdma_addr *a = &id->id.route.addr;
	struct sw_device *dev = NULL;
	uint16_t port = sw_get_port(addr);
	int n = 0, err = 0;

	if (id->state != SW_CM_IDLE)
		return EINVAL;
	if (!sw_is_any(addr)) {
		dev = sw_port_by_addr(addr, &n);
		if (!dev)
			return EADDRNOTAVAIL;
	}
	if (port)
		err = taken(id, addr, port, id->reuse);
	if (!err && dev)
		err = sw_cm_attach(id, dev, n);
	if (!err)
		err = port ? claim(id, port, want) : pick_port(id, addr, want);
	if (err)
		return err;
	memcpy(&a->src_storage, addr, sw_addrlen(addr));
	sw_set_port(&a->src_addr, id->port);
	id->state = SW_CM_BOUND;
	return 0;
}

int sw_cm_bind(struct sw_id *id, const struct sockaddr *addr)
{
	return bind_id(id, addr, true);
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	int err = SW_FAULT(bind_addr);

	if (!err && !sw_addrlen(addr))
		err = EINVAL;
	if (err)
		return sw_fail(err);
	sw_lock();
	err = sw_cm_bind(sw_id(id), addr);
	sw_unlock();
	return err ? sw_fail(err) : 0;
}

/* The GID a port is addressed by: the one made of its IP address, if it has one. */
static union ibv_gid port_gid(const struct sw_device *dev, int port)
{
	return dev->port[port].gid[dev->port[port].ngid - 1];
}

static union ibv_gid mapped(struct in_addr addr)
{
	union ibv_gid g = {.raw = {[10] = 0xff, [11] = 0xff}};

	memcpy(g.raw + 12, &addr, sizeof addr);
	return g;
}

/* Binds if need be, finds the device to leave from and the one to reach. */
static int resolve(struct sw_id *id, const struct sockaddr *src, const struct sockaddr *dst,
		   int *status)
{
	struct rdma_addr *a = &id->id.route.addr;
	const struct sockaddr_in *dst4 = (const void *)dst;
	struct sockaddr_in own = {.sin_family = AF_INET};
	const struct sockaddr *from = dst;
	struct sw_device *to;
	int port = 0, err = 0;
	bool far;

	if (id->state == SW_CM_IDLE)
		err = bind_id(id, src ? src : any_of(dst->sa_family), false);
	else if (id->state != SW_CM_BOUND)
		err = EINVAL;
	if (!err && dst->sa_family != a->src_addr.sa_family)
		err = EINVAL;
	if (err)
		return err;
	memcpy(&a->dst_storage, dst, sw_addrlen(dst));
	to = sw_port_by_addr(dst, &port);
	far = !to && sw_net_reaches(dst);
	if (far) {
		/* The way to another machine begins at the address that this one is reached by. */
		own.sin_addr.s_addr = sw_net_addr4();
		from = (const struct sockaddr *)&own;
		to = sw_port_by_addr(from, &port);
	}
	if (!to) {
		*status = -EHOSTUNREACH;
		return 0;
	}
	if (!id->dev) {
		/* The way to a local address is the device that has it, from that address. */
		err = sw_cm_attach(id, to, port);
		if (err) {
			*status = -err;
			return 0;
		}
		memcpy(&a->src_storage, from, sw_addrlen(from));
		sw_set_port(&a->src_addr, id->port);
	}
	if (!sw_cm_iwarp(id)) {
		a->addr.ibaddr.dgid = far ? mapped(dst4->sin_addr) : port_gid(to, port);
		a->addr.ibaddr.pkey = 0xffff;
	}
	id->state = SW_CM_ADDR;
	return 0;
}

/* Every device has a way to a group: that of the source's address, or the first. */
static int resolve_group(struct sw_id *id, const struct sockaddr *src, const struct sockaddr *dst)
{
	int err = 0;

	if (id->state == SW_CM_IDLE)
		err = bind_id(id, src ? src : any_of(dst->sa_family), false);
	else if (id->state != SW_CM_BOUND)
		err = EINVAL;
	sw_default_device();
	if (!err && !id->dev && sw_list_empty(sw_devices()))
		err = ENODEV;
	if (!err && !id->dev)
		err = sw_cm_attach(id, sw_outer(sw_devices()->next, struct sw_device, link), 1);
	if (err)
		return err;
	memcpy(&id->id.route.addr.dst_storage, dst, sw_addrlen(dst));
	id->state = SW_CM_ADDR;
	return 0;
}

int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src, struct sockaddr *dst,
		      int timeout_ms)
{
	int err = SW_FAULT(resolve_addr), status = 0;

	(void)timeout_ms; /* nothing takes time here */
	if (!err && (!sw_addrlen(dst) || (src && !sw_addrlen(src))))
		err = EINVAL;
	if (err)
		return sw_fail(err);
	sw_lock();
	err = is_group(dst) ? resolve_group(sw_id(id), src, dst)
			    : resolve(sw_id(id), src, dst, &status);
	if (!err &&
	    !sw_cm_event(sw_id(id), status ? RDMA_CM_EVENT_ADDR_ERROR : RDMA_CM_EVENT_ADDR_RESOLVED,
			 status))
		err = ENOMEM;
	sw_unlock();
	return err ? sw_fail(err) : sw_cm_complete(id);
}

static int route(struct sw_id *id)
{
	struct rdma_route *r = &id->id.route;
	struct ibv_sa_path_rec *p;

	if (id->state != SW_CM_ADDR)
		return EINVAL;
	if (!sw_cm_iwarp(id)) {
		p = calloc(1, sizeof *p);
		if (!p)
			return ENOMEM;
		p->dgid = r->addr.addr.ibaddr.dgid;
		p->sgid = r->addr.addr.ibaddr.sgid;
		p->reversible = 1;
		p->numb_path = 1;
		p->pkey = 0xffff;
		p->mtu_selector = p->rate_selector = p->packet_life_time_selector = 2;
		p->mtu = IBV_MTU_1024;
		p->rate = IBV_RATE_10_GBPS;
		p->packet_life_time = 18;
		p->hop_limit = 64;
		r->path_rec = p;
		r->num_paths = 1;
	}
	if (!sw_cm_event(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0))
		return ENOMEM;
	id->state = SW_CM_ROUTE;
	return 0;
}

int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	int err = SW_FAULT(resolve_route);

	(void)timeout_ms;
	if (err)
		return sw_fail(err);
	sw_lock();
	err = route(sw_id(id));
	sw_unlock();
	return err ? sw_fail(err) : sw_cm_complete(id);
}

__be16 rdma_get_src_port(struct rdma_cm_id *id)
{
	return id->route.addr.src_sin.sin_port;
}

__be16 rdma_get_dst_port(struct rdma_cm_id *id)
{
	return id->route.addr.dst_sin.sin_port;
}

/* ---- names ---- */

static int dup_addr(struct sockaddr **to, socklen_t *len, const struct sockaddr *from, socklen_t n)
{
	*to = malloc(n);
	if (!*to)
		return ENOMEM;
	memcpy(*to, from, n);
	*len = n;
	return 0;
}

static int fill(struct rdma_addrinfo *r, const struct addrinfo *ai,
		const struct rdma_addrinfo *hints)
{
	int err;

	r->ai_family = ai->ai_family;
	r->ai_port_space = hints && hints->ai_port_space              ? hints->ai_port_space
			   : hints && hints->ai_qp_type == IBV_QPT_UD ? RDMA_PS_UDP
								      : RDMA_PS_TCP;
	r->ai_qp_type = hints && hints->ai_qp_type        ? hints->ai_qp_type
			: r->ai_port_space == RDMA_PS_UDP ? IBV_QPT_UD
							  : IBV_QPT_RC;
	if (hints && hints->ai_flags & RAI_PASSIVE) {
		r->ai_flags = RAI_PASSIVE;
		return dup_addr(&r->ai_src_addr, &r->ai_src_len, ai->ai_addr, ai->ai_addrlen);
	}
	err = dup_addr(&r->ai_dst_addr, &r->ai_dst_len, ai->ai_addr, ai->ai_addrlen);
	if (!err && hints && hints->ai_src_len)
		err = dup_addr(&r->ai_src_addr, &r->ai_src_len, hints->ai_src_addr,
			       hints->ai_src_len);
	return err;
}

int rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints,
		     struct rdma_addrinfo **res)
{
	struct addrinfo hint = {.ai_socktype = SOCK_STREAM}, *ai;
	struct rdma_addrinfo *r;
	int err = SW_FAULT(getaddrinfo);

	if (!err && !node && !service && !hints)
		err = EINVAL;
	if (err)
		return sw_fail(err);
	if (hints) {
		hint.ai_flags = hints->ai_flags & RAI_PASSIVE ? AI_PASSIVE : 0;
		hint.ai_flags |= hints->ai_flags & RAI_NUMERICHOST ? AI_NUMERICHOST : 0;
		hint.ai_family = hints->ai_flags & RAI_FAMILY ? hints->ai_family : 0;
	}
	err = getaddrinfo(node, service, &hint, &ai);
	if (err) {
		/* librdmacm hands on the EAI_ code, or -1 with errno. */
		return err == EAI_SYSTEM ? -1 : err;
	}
	r = calloc(1, sizeof *r);
	err = r ? fill(r, ai, hints) : ENOMEM;
	freeaddrinfo(ai);
	if (err) {
		rdma_freeaddrinfo(r);
		return sw_fail(err);
	}
	*res = r;
	return 0;
}

void rdma_freeaddrinfo(struct rdma_addrinfo *r)
{
	while (r) {
		struct rdma_addrinfo *next = r->ai_next;

		free(r->ai_src_addr);
		free(r->ai_dst_addr);
		free(r);
		r = next;
	}
}
