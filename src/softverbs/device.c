/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Devices: making, listing, addresses, and what can be asked of them. Device n answers on port p at
 * 127.0.n.p; its GIDs are made of that address; device 0 owns all other addresses of this host.
 */
#include <arpa/inet.h>
#include <stdio.h>

#include "softverbs/net.h"

#undef ibv_query_port
#undef ibv_get_device_list

static struct sw_list devices = {&devices, &devices};
static bool made; /* whether there ever was a device */

struct sw_list *sw_devices(void)
{
	return &devices;
}

static void init_port(struct sw_device *dev, int n)
{
	struct sw_port *port = &dev->port[n];
	uint8_t *g = port->gid[0].raw;

	port->state = IBV_PORT_ACTIVE;
	port->ngid = dev->p.ngid;
	port->addr4 = htonl(0x7f000000u | (uint32_t)dev->index << 8 | (uint32_t)n);
	if (!dev->index && n == 1 && sw_net_addr4())
		port->addr4 = sw_net_addr4();
	if (dev->p.link_layer == IBV_LINK_LAYER_INFINIBAND)
		port->lid = (uint16_t)(dev->index * 16 + n);
	g[0] = 0xfe; /* fe80::200:ff:fe00:n.p, as from a MAC address */
	g[1] = 0x80;
	g[8] = 0x02;
	g[11] = 0xff;
	g[12] = 0xfe;
	g[14] = (uint8_t)dev->index;
	g[15] = (uint8_t)n;
	if (port->ngid > 1) {
		g = port->gid[1].raw; /* ::ffff:127.0.n.p */
		g[10] = g[11] = 0xff;
		memcpy(g + 12, &port->addr4, 4);
	}
}

/* The lowest number that no device has; -1: all 256 are taken. */
static int free_index(void)
{
	bool taken[256] = {false};
	struct sw_list *l;

	sw_each (l, &devices)
		taken[sw_outer(l, struct sw_device, link)->index] = true;
	for (int i = 0; i < 256; i++)
		if (!taken[i])
			return i;
	return -1;
}

static int add(const char *name, const struct sw_persona *p, int ports)
{
	struct sw_device *dev;
	int index = free_index();

	if (index < 0)
		return ENOSPC;
	dev = calloc(1, sizeof *dev);
	if (!dev)
		return ENOMEM;
	dev->p = *p;
	dev->index = index;
	made = true;
	dev->nports = ports;
	dev->listed = true;
	dev->qp_next = 0;
	dev->qpn_base = SW_QPN_BASE;
	sw_list_init(&dev->contexts);
	sw_list_init(&dev->xrc_srqs);
	dev->ibv.node_type = p->node;
	dev->ibv.transport_type = p->transport;
	snprintf(dev->ibv.name, sizeof dev->ibv.name, "%s", name);
	snprintf(dev->ibv.dev_name, sizeof dev->ibv.dev_name, "uverbs%d", dev->index);
	snprintf(dev->ibv.dev_path, sizeof dev->ibv.dev_path, "/sys/class/infiniband_verbs/%s",
		 dev->ibv.dev_name);
	snprintf(dev->ibv.ibdev_path, sizeof dev->ibv.ibdev_path, "/sys/class/infiniband/%.60s",
		 name);
	for (int i = 1; i <= ports; i++)
		init_port(dev, i);
	sw_list_append(&devices, &dev->link);
	return 0;
}

static struct sw_device *find(const char *name)
{
	struct sw_list *l;

	sw_each (l, &devices) {
		struct sw_device *dev = sw_outer(l, struct sw_device, link);

		if (!strcmp(dev->ibv.name, name))
			return dev;
	}
	return NULL;
}

static int add_checked(const char *name, const char *persona, long ports)
{
	const struct sw_persona *p = sw_persona(persona);

	if (!p || !*name || strlen(name) >= IBV_SYSFS_NAME_MAX || ports < 1 || ports > SW_MAX_PORTS)
		return EINVAL;
	return find(name) ? EEXIST : add(name, p, (int)ports);
}

int sv_device_add(const char *name, const char *persona, int ports)
{
	int err;

	sw_lock();
	err = add_checked(name, persona, ports);
	sw_unlock();
	return err ? sw_fail(err) : 0;
}

/* One "NAME=PERSONA" or "NAME=PERSONA:PORTS" of len bytes; the lock is held. */
static int add_described(const char *text, size_t len)
{
	char name[IBV_SYSFS_NAME_MAX + 32], *persona, *ports, *end = NULL;
	long n = 1;

	if (len >= sizeof name)
		return EINVAL;
	memcpy(name, text, len);
	name[len] = '\0';
	persona = strchr(name, '=');
	if (!persona)
		return EINVAL;
	*persona++ = '\0';
	ports = strchr(persona, ':');
	if (ports) {
		*ports++ = '\0';
		n = strtol(ports, &end, 10);
	}
	return ports && (end == ports || *end) ? EINVAL : add_checked(name, persona, n);
}

/* All that text describes, until one is wrong: then *wrong is where. */
static int add_all(const char *text, const char **wrong)
{
	static const char between[] = ", \n";
	size_t len;
	int err;

	for (text += strspn(text, between); *text; text += len + strspn(text + len, between)) {
		len = strcspn(text, between);
		err = add_described(text, len);
		if (err) {
			*wrong = text;
			return err;
		}
	}
	return 0;
}

int sv_devices(const char *text, const char **wrong)
{
	const char *at;
	int err;

	sw_lock();
	err = add_all(text, &at);
	sw_unlock();
	if (err && wrong)
		*wrong = at;
	return err ? sw_fail(err) : 0;
}

/* The devices that are there when nobody asked for any. A wrong environment is no reason to go on
 * with something else than what was meant. */
void sw_default_device(void)
{
	const char *env = getenv("SGP_SOFTVERBS_DEVICES"), *wrong;

	if (made)
		return;
	if (!env) {
		add("soft0", sw_persona("soft"), 1);
	} else if (add_all(env, &wrong)) {
		fprintf(stderr, "softverbs: SGP_SOFTVERBS_DEVICES: what is \"%s\"?\n", wrong);
		exit(2);
	}
}

int sv_set(const char *device, const char *what, uint64_t value)
{
	struct sw_device *dev;
	bool ok;

	sw_lock();
	sw_default_device();
	dev = find(device);
	ok = dev && sw_persona_set(&dev->p, what, value);
	sw_unlock();
	return ok ? 0 : sw_fail(EINVAL);
}

/* Every queue pair on it ends, and nothing can be made on it any more. */
static void removed(struct sw_device *dev)
{
	struct sw_list *l;

	dev->removed = true;
	dev->listed = false;
	sw_net_release_qpns(dev);
	sw_list_del(&dev->link);
	sw_each (l, &dev->contexts) {
		struct sw_context *ctx = sw_outer(l, struct sw_context, link);

		sw_async_device(ctx, IBV_EVENT_DEVICE_FATAL);
	}
	for (uint32_t i = 0; i < dev->nqp; i++)
		if (dev->qp[i] && dev->qp[i]->state != IBV_QPS_RESET)
			sw_qp_error(dev->qp[i]);
	sw_cm_device_removed(dev);
	dev->refs++;
	sw_device_put(dev);
}

static void set_port(struct sw_device *dev, int n, bool up)
{
	enum ibv_port_state to = up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;

	if (dev->port[n].state == to)
		return;
	dev->port[n].state = to;
	sw_async_port(dev, n, up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
	for (uint32_t i = 0; i < dev->nqp; i++)
		if (dev->qp[i])
			sw_wire_state(dev->qp[i]);
	/* What waited for the link goes on. */
	for (uint32_t i = 0; up && i < dev->nqp; i++)
		if (dev->qp[i]) {
			sw_run(dev->qp[i]);
			sw_kick(dev->qp[i]);
		}
}

void sw_device_happens(const char *name, enum sw_action what, bool locked)
{
	struct sw_device *dev;

	if (!locked)
		sw_lock();
	dev = find(name);
	if (dev && what == SW_REMOVE)
		removed(dev);
	else if (dev)
		for (int i = 1; i <= dev->nports; i++)
			set_port(dev, i, what == SW_UP);
	if (!locked)
		sw_unlock();
}

int sv_device_remove(const char *name)
{
	bool there;

	sw_lock();
	there = find(name) != NULL;
	sw_device_happens(name, SW_REMOVE, true);
	sw_unlock();
	return there ? 0 : sw_fail(EINVAL);
}

int sv_port_set(const char *name, int port, int up)
{
	struct sw_device *dev;

	sw_lock();
	dev = find(name);
	if (dev && port >= 1 && port <= dev->nports)
		set_port(dev, port, up != 0);
	else
		dev = NULL;
	sw_unlock();
	return dev ? 0 : sw_fail(EINVAL);
}

/* A device goes when it is out of the world, no list has it and no context is open. */
void sw_device_put(struct sw_device *dev)
{
	if (--dev->refs || dev->listed)
		return;
	free(dev->key);
	free(dev->qp);
	free(dev);
}

struct ibv_device **ibv_get_device_list(int *num)
{
	struct ibv_device **list;
	struct sw_list *l;
	int err = SW_FAULT(get_device_list), n = 0;

	if (err)
		return sw_null(err);
	sw_lock();
	sw_default_device();
	sw_each (l, &devices)
		n++;
	list = calloc((size_t)n + 1, sizeof *list);
	if (!list) {
		sw_unlock();
		return sw_null(ENOMEM);
	}
	n = 0;
	sw_each (l, &devices) {
		struct sw_device *dev = sw_outer(l, struct sw_device, link);

		dev->refs++;
		list[n++] = &dev->ibv;
	}
	sw_unlock();
	if (num)
		*num = n;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	sw_lock();
	for (int i = 0; list[i]; i++)
		sw_device_put(sw_outer(list[i], struct sw_device, ibv));
	sw_unlock();
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

int ibv_get_device_index(struct ibv_device *device)
{
	return sw_outer(device, struct sw_device, ibv)->index;
}

static __be64 guid(const struct sw_device *dev)
{
	return htobe64(0x0200000000ff0000ull | 0xfe000000ull | (uint64_t)dev->index << 8);
}

__be64 ibv_get_device_guid(struct ibv_device *device)
{
	return guid(sw_outer(device, struct sw_device, ibv));
}

int ibv_query_device(struct ibv_context *c, struct ibv_device_attr *a)
{
	struct sw_device *dev = sw_dev(c);
	int err = SW_FAULT(query_device);

	if (err)
		return err;
	sw_lock();
	*a = dev->p.attr;
	if (!dev->p.no_xrc && !dev->p.no_extended)
		a->device_cap_flags |= IBV_DEVICE_XRC;
	a->node_guid = a->sys_image_guid = guid(dev);
	a->phys_port_cnt = (uint8_t)dev->nports;
	sw_unlock();
	return 0;
}

int sw_query_port(struct ibv_context *c, uint8_t n, struct ibv_port_attr *a, size_t len)
{
	struct sw_device *dev = sw_dev(c);
	struct ibv_port_attr attr = {0};
	int err = SW_FAULT(query_port);

	if (err)
		return err;
	if (n < 1 || n > dev->nports)
		return EINVAL;
	sw_lock();
	attr.state = dev->port[n].state;
	attr.max_mtu = IBV_MTU_4096;
	attr.active_mtu = IBV_MTU_4096;
	attr.gid_tbl_len = SW_MAX_GIDS;
	attr.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
	attr.max_msg_sz = dev->p.max_msg;
	attr.pkey_tbl_len = (uint16_t)dev->p.npkey;
	attr.lid = dev->port[n].lid;
	attr.max_vl_num = 1;
	attr.active_width = 2;
	attr.active_speed = 1;
	attr.phys_state = attr.state == IBV_PORT_ACTIVE ? 5 : 2;
	attr.link_layer = (uint8_t)dev->p.link_layer;
	sw_unlock();
	memset(a, 0, len);
	memcpy(a, &attr, len < sizeof attr ? len : sizeof attr);
	return 0;
}

/* What programs without extended verbs see: the structure ends before link_layer's neighbours. */
int ibv_query_port(struct ibv_context *c, uint8_t n, struct _compat_ibv_port_attr *a)
{
	return sw_query_port(c, n, (struct ibv_port_attr *)a,
			     offsetof(struct ibv_port_attr, port_cap_flags2));
}

int ibv_query_gid(struct ibv_context *c, uint8_t n, int index, union ibv_gid *gid)
{
	struct sw_device *dev = sw_dev(c);
	int err = SW_FAULT(query_gid);

	if (err)
		return sw_fail(err);
	if (n < 1 || n > dev->nports || index < 0 || index >= SW_MAX_GIDS)
		return sw_fail(EINVAL);
	*gid = dev->port[n].gid[index];
	return 0;
}

static void fill_gid(struct sw_device *dev, uint32_t n, uint32_t index, struct ibv_gid_entry *e)
{
	e->gid = dev->port[n].gid[index];
	e->gid_index = index;
	e->port_num = n;
	e->gid_type =
		dev->p.link_layer == IBV_LINK_LAYER_ETHERNET && dev->p.transport == IBV_TRANSPORT_IB
			? IBV_GID_TYPE_ROCE_V2
			: IBV_GID_TYPE_IB;
	e->ndev_ifindex = 0;
}

int _ibv_query_gid_ex(struct ibv_context *c, uint32_t n, uint32_t index,
		      struct ibv_gid_entry *entry, uint32_t flags, size_t size)
{
	struct sw_device *dev = sw_dev(c);
	struct ibv_gid_entry e;

	if (flags || n < 1 || n > (uint32_t)dev->nports || index >= SW_MAX_GIDS)
		return EINVAL;
	if (index >= (uint32_t)dev->port[n].ngid)
		return ENODATA;
	fill_gid(dev, n, index, &e);
	memcpy(entry, &e, size < sizeof e ? size : sizeof e);
	return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *c, struct ibv_gid_entry *entries, size_t max,
			     uint32_t flags, size_t size)
{
	struct sw_device *dev = sw_dev(c);
	struct ibv_gid_entry e;
	size_t k = 0;

	if (flags || size > sizeof e)
		return -EINVAL;
	for (uint32_t n = 1; n <= (uint32_t)dev->nports; n++)
		for (uint32_t i = 0; i < (uint32_t)dev->port[n].ngid; i++, k++) {
			if (k >= max)
				return -EINVAL;
			fill_gid(dev, n, i, &e);
			memcpy((char *)entries + k * size, &e, size);
		}
	return (ssize_t)k;
}

int ibv_query_pkey(struct ibv_context *c, uint8_t n, int index, __be16 *pkey)
{
	struct sw_device *dev = sw_dev(c);
	int err = SW_FAULT(query_pkey);

	if (err)
		return sw_fail(err);
	if (n < 1 || n > dev->nports || index < 0 || index >= dev->p.npkey)
		return sw_fail(ENOENT); /* no such file, where it is read from */
	*pkey = 0xffff;
	return 0;
}

int ibv_get_pkey_index(struct ibv_context *c, uint8_t n, __be16 pkey)
{
	struct sw_device *dev = sw_dev(c);

	if (n < 1 || n > dev->nports || !dev->p.npkey || pkey != 0xffff)
		return sw_fail(EINVAL);
	return 0;
}
