/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the tests of imports share: a pool of two regions, told of which somebody is; memory to import.
 */
#ifndef IMPORT_RIG_H
#define IMPORT_RIG_H

#include "pool_rig.h"
#include "softverbs/sw.h"

#define PAGE 4096
#define TOLD 64

extern struct sgp_pool *pool;
extern struct ibv_pd *second; /* another domain, which is not the pool's */

/* Who is told of the regions of all pools made here. */
struct told {
	struct sgp_region_info info[TOLD]; /* addr NULL: gone, or never used */
	int mrs[TOLD]; /* registrations that were alive when it was told of the region last */
	int added, removed;
	int refuse; /* the add with this number, from 0; -1: none */
};
extern struct told told;

struct sgp_pool *make_pool(uint32_t flags);
void import_setup(void);
void import_teardown(void);

char *map(size_t bytes, int prot, int flags, int fd);
char *anonymous(size_t bytes);
int memfd(size_t bytes);

struct sgp_import *import(void *addr, size_t length, uint32_t flags);
struct sgp_import *import_fd(int fd, uint32_t flags, void *addr, uint64_t offset, size_t length);

/* The device's registration of an import. */
struct sw_mr *mr_of(const struct sgp_import *imp);

#endif
