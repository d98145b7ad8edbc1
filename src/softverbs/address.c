/* SPDX-License-Identifier: BSD-2-Clause */
/* Which port answers to a GID, a LID or an IP address. */
#include <arpa/inet.h>
#include <ifaddrs.h>

#include "softverbs/sw.h"

struct sw_device *sw_port_by_gid(const union ibv_gid *gid, int *port)
{
	struct sw_list *l;

	sw_each (l, sw_devices()) {
		struct sw_device *dev = sw_outer(l, struct sw_device, link);

		for (int n = 1; n <= dev->nports; n++)
			for (int i = 0; i < dev->port[n].ngid; i++)
				if (!memcmp(&dev->port[n].gid[i], gid, sizeof *gid)) {
					*port = n;
					return dev;
				}
	}
	return NULL;
}

struct sw_device *sw_port_by_lid(uint16_t lid, int *port)
{
	struct sw_list *l;

	sw_each (l, sw_devices()) {
		struct sw_device *dev = sw_outer(l, struct sw_device, link);

		for (int n = 1; n <= dev->nports; n++)
			if (lid && dev->port[n].lid == lid) {
				*port = n;
				return dev;
			}
	}
	return NULL;
}

/* Is it an address of this host's own? */
static bool ours(const struct sockaddr *addr)
{
	const struct sockaddr_in *in4 = (const void *)addr;
	const struct sockaddr_in6 *in6 = (const void *)addr;
	struct ifaddrs *list, *i;
	bool found = false;

	if (addr->sa_family == AF_INET && (ntohl(in4->sin_addr.s_addr) >> 24) == 127)
		return true;
	if (addr->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr))
		return true;
	if (getifaddrs(&list))
		return false;
	for (i = list; i && !found; i = i->ifa_next) {
		const struct sockaddr *a = i->ifa_addr;

		if (!a || a->sa_family != addr->sa_family)
			continue;
		if (a->sa_family == AF_INET)
			found = ((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr ==
				in4->sin_addr.s_addr;
		else if (a->sa_family == AF_INET6)
			found = !memcmp(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr,
					&in6->sin6_addr, sizeof in6->sin6_addr);
	}
	freeifaddrs(list);
	return found;
}

struct sw_device *sw_port_by_addr(const struct sockaddr *addr, int *port)
{
	const struct sockaddr_in *in4 = (const void *)addr;
	struct sw_list *l;

	sw_default_device();
	sw_each (l, sw_devices()) {
		struct sw_device *dev = sw_outer(l, struct sw_device, link);

		for (int n = 1; addr->sa_family == AF_INET && n <= dev->nports; n++)
			if (dev->port[n].addr4 == in4->sin_addr.s_addr) {
				*port = n;
				return dev;
			}
	}
	if (sw_list_empty(sw_devices()) || !ours(addr))
		return NULL;
	*port = 1;
	return sw_outer(sw_devices()->next, struct sw_device, link);
}
