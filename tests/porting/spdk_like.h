/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a storage target's environment gives it, as far as the example in sgpool-porting(7) uses it: a
 * pool of buffers, the table that finds an address's registration, and a disk.
 */
#ifndef SPDK_LIKE_H
#define SPDK_LIKE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct pool;
struct mem_map;
struct disk;

/* What the table has about an address: its key, and how far that is good from there. */
struct translation {
	uint32_t lkey;
	size_t length;
};

void *pool_get(struct pool *pool); /* NULL: none is free */
void pool_put(struct pool *pool, void *buffer);
int mem_map_find(struct mem_map *map, const void *addr, size_t length, struct translation *found);
int disk_writev(struct disk *disk, const struct iovec *iov, int n);

#endif
