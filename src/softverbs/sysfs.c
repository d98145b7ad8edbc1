/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What libibverbs reads from sysfs for ibv_devinfo(1), by functions that have no header. Our devices
 * are in no sysfs: they answer themselves, and nothing is read there in their name.
 */
#include <stdio.h>

#include "softverbs/sw.h"

#pragma GCC visibility push(default)
/* libibverbs' own numbers: on RoCE version 1 and InfiniBand are one. */
enum sysfs_gid_type {
	GID_IB_OR_ROCE_V1,
	GID_ROCE_V2,
};
int ibv_query_gid_type(struct ibv_context *c, uint8_t port, unsigned int index,
		       enum sysfs_gid_type *type);
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);
#pragma GCC visibility pop

int ibv_query_gid_type(struct ibv_context *c, uint8_t port, unsigned int index,
		       enum sysfs_gid_type *type)
{
	struct sw_device *dev = sw_dev(c);

	if (port < 1 || port > dev->nports || index >= SW_MAX_GIDS)
		return sw_fail(EINVAL);
	*type = dev->p.link_layer == IBV_LINK_LAYER_ETHERNET && dev->p.transport == IBV_TRANSPORT_IB
			? GID_ROCE_V2
			: GID_IB_OR_ROCE_V1;
	return 0;
}

/* Gives the length without the newline, or -1. */
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size)
{
	struct sw_list *l;
	int n = -1;

	sw_lock();
	sw_each (l, sw_devices()) {
		const struct sw_device *dev = sw_outer(l, struct sw_device, link);

		if (strcmp(dir, dev->ibv.ibdev_path) != 0 || strcmp(file, "board_id") != 0 || !size)
			continue;
		n = snprintf(buf, size, "softverbs-%s", dev->p.name);
		n = n < (int)size ? n : (int)size - 1;
	}
	sw_unlock();
	return n < 0 ? sw_fail(ENOENT) : n;
}
