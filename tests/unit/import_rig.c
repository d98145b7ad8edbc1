/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "import_rig.h"

struct sgp_pool *pool;
struct ibv_pd *second;
struct told told;

static int region_add(void *arg, const struct sgp_region_info *region, void **cookie)
{
	int i = 0;

	ck_assert_ptr_eq(arg, &told);
	if (told.added == told.refuse) {
		told.refuse = -1;
		errno = EDQUOT;
		return -1;
	}
	while (i < TOLD && told.info[i].addr)
		i++;
	ck_assert_int_lt(i, TOLD);
	told.added++;
	told.mrs[i] = sv_live(SV_MRS);
	told.info[i] = *region;
	*cookie = &told.info[i];
	return 0;
}

static void region_remove(void *arg, const struct sgp_region_info *region, void *cookie)
{
	struct sgp_region_info *info = cookie;

	ck_assert_ptr_eq(arg, &told);
	ck_assert_ptr_eq(info->addr, region->addr);
	ck_assert_uint_eq(info->bytes, region->bytes);
	/* It is all still there. */
	if (region->mapped)
		ck_assert_int_ge(*(volatile unsigned char *)region->addr, 0);
	told.mrs[info - told.info] = sv_live(SV_MRS);
	info->addr = NULL;
	told.removed++;
}

struct sgp_pool *make_pool(uint32_t flags)
{
	struct sgp_class_attr cls = {.size = PAGE, .chunks = 2, .max_chunks = 8};
	struct sgp_pool_attr attr = {.classes = &cls,
				     .nclasses = 1,
				     .pages = SGP_PAGES_BASE,
				     .region_bytes = PAGE,
				     .flags = flags,
				     .region_add = region_add,
				     .region_remove = region_remove,
				     .region_arg = &told};

	return sgp_pool_create(rig_pd, &attr);
}

void import_setup(void)
{
	rig_setup();
	memset(&told, 0, sizeof told);
	told.refuse = -1;
	second = ibv_alloc_pd(rig_pd->context);
	pool = make_pool(0);
	ck_assert_msg(pool != NULL, "%s", sgp_errmsg());
}

void import_teardown(void)
{
	rig_check(pool, 0);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
	ck_assert_int_eq(told.added, told.removed);
	ck_assert_int_eq(ibv_dealloc_pd(second), 0);
	rig_teardown();
}

char *map(size_t bytes, int prot, int flags, int fd)
{
	char *p = mmap(NULL, bytes, prot, flags, fd, 0);

	ck_assert_ptr_ne(p, MAP_FAILED);
	return p;
}

char *anonymous(size_t bytes)
{
	return map(bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

struct sgp_import *import(void *addr, size_t length, uint32_t flags)
{
	struct sgp_import_attr attr = {.addr = addr, .length = length, .flags = flags};

	return sgp_pool_import(pool, &attr);
}

struct sgp_import *import_fd(int fd, uint32_t flags, void *addr, uint64_t offset, size_t length)
{
	struct sgp_import_attr attr = {
		.addr = addr, .length = length, .flags = flags, .fd = fd, .offset = offset};

	return sgp_pool_import(pool, &attr);
}

/* The device's registration of an import. */
struct sw_mr *mr_of(const struct sgp_import *imp)
{
	return sw_outer(imp->owner.region.mr[pool->reg.first], struct sw_mr, ibv);
}

int memfd(size_t bytes)
{
	int fd = memfd_create("import", MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
	return fd;
}
