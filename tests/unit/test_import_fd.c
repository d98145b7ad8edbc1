/* SPDX-License-Identifier: BSD-2-Clause */
/* Imports by descriptor, and imports that fail at each step. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "../suite.h"
#include "import_rig.h"
#include "pool/chunk.h"
#include "sgp_config.h"
#include "sgpool/sgl.h"

static int descriptors(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

START_TEST(test_file)
{
	int fd = memfd(8 * PAGE);
	char *seen = map(8 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
	struct sgp_import *imp = import_fd(fd, SGP_IMPORT_FILE, NULL, 2 * PAGE, 3 * PAGE + 5);

	ck_assert_msg(imp != NULL, "%s", sgp_errmsg());
	close(fd);
	memset(seen + 2 * PAGE, 0x5a, 4 * PAGE);
	for (int i = 0; i < 3 * PAGE + 5; i++)
		ck_assert_int_eq(((char *)sgp_import_addr(imp))[i], 0x5a);
	((char *)sgp_import_addr(imp))[3 * PAGE + 4] = 1;
	ck_assert_int_eq(seen[5 * PAGE + 4], 1);
	ck_assert_uint_eq(mr_of(imp)->ibv.length, 3 * PAGE + 5);
	ck_assert_int_eq(sgp_pool_unimport(pool, imp), 0);
	munmap(seen, 8 * PAGE);
}
END_TEST

/* Cases 18 and 19: the place inside the dma-buf, and its descriptors. */
START_TEST(test_dmabuf)
{
	struct rlimit few = {.rlim_cur = 64}, old;
	int fd = memfd(16 * PAGE), before;
	char *base = (char *)UINT64_C(0x700000000000); /* another device's pointer */
	struct sgp_import *imp;
	SGP_SGL(sgl, 2);

	imp = import_fd(fd, SGP_IMPORT_DMABUF, base + 0x3000, 0x3000, 2 * PAGE);
	ck_assert_msg(imp != NULL, "%s", sgp_errmsg());
	ck_assert_uint_eq(mr_of(imp)->iova, (uintptr_t)base + 0x3000);
	/* What the device sees there is the file's fourth page. */
	memset(mr_of(imp)->base, 0x77, 1);
	{
		char byte;

		ck_assert_int_eq(pread(fd, &byte, 1, 0x3000), 1);
		ck_assert_int_eq(byte, 0x77);
	}
	ck_assert_int_eq(sgp_sgl_append_addr(&sgl, pool, base + 0x3010, 16), 0);
	ck_assert_int_eq(sgp_sgl_append_region(&sgl, imp, 0x20, 16), 0);
	ck_assert_int_eq(sgl.num_sge, 1);
	ck_assert_uint_eq(sgl.sge[0].addr, (uintptr_t)base + 0x3010);
	/* The processor never looks at it. */
	{
		struct iovec iov[2];

		ck_assert_int_eq(sgp_sgl_iovec(&sgl, iov, 2), -1);
		ck_assert_int_eq(errno, EOPNOTSUPP);
	}
	ck_assert_int_eq(sgp_sgl_linearise(&sgl, pool), -1);
	ck_assert_int_eq(errno, EOPNOTSUPP);
	ck_assert_int_eq(sgl.num_chunk, 2);
	sgp_sgl_clear(&sgl);
	ck_assert_int_eq(sgp_pool_unimport(pool, imp), 0);
	/* Not congruent. */
	ck_assert_ptr_null(import_fd(fd, SGP_IMPORT_DMABUF, base + 1, 0x3000, PAGE));
	ck_assert_int_eq(errno, EINVAL);

	before = descriptors();
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &old), 0);
	few.rlim_max = old.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	for (int i = 0; i < 2000; i++) {
		imp = import_fd(fd, SGP_IMPORT_DMABUF, i % 2 ? base : NULL, 0, PAGE);
		ck_assert_msg(imp != NULL, "%d: %s", i, sgp_errmsg());
		ck_assert_int_eq(sgp_pool_unimport(pool, imp), 0);
		imp = import_fd(fd, SGP_IMPORT_FILE, NULL, 0, PAGE);
		ck_assert_msg(imp != NULL, "%d: %s", i, sgp_errmsg());
		ck_assert_int_eq(sgp_pool_unimport(pool, imp), 0);
		/* And one that fails. */
		sv_fail_nth("reg_dmabuf_mr", 0, ENOMEM);
		ck_assert_ptr_null(import_fd(fd, SGP_IMPORT_DMABUF, base, 0, PAGE));
		ck_assert_int_eq(errno, ENOMEM);
	}
	ck_assert_int_eq(descriptors(), before);
	close(fd);
}
END_TEST

/* Whether the program may read there, as proc(5) tells it. */
static bool may_read(const void *addr)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	uintptr_t first, end;
	char line[512], may = 0;

	ck_assert_ptr_nonnull(maps);
	while (!may && fgets(line, sizeof line, maps))
		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %c", &first, &end, &may) != 3 ||
		    (uintptr_t)addr < first || (uintptr_t)addr >= end)
			may = 0;
	fclose(maps);
	ck_assert_msg(may, "%p is nowhere", addr);
	return may == 'r';
}

/* Of a dma-buf without a pointer the addresses are chosen: nobody else's, and not to be read. */
START_TEST(test_dmabuf_without_address)
{
	int fd = memfd(4 * PAGE);
	struct sgp_import *a = import_fd(fd, SGP_IMPORT_DMABUF, NULL, 0x10, PAGE);
	struct sgp_import *b = import_fd(fd, SGP_IMPORT_DMABUF, NULL, PAGE, PAGE);

	ck_assert_msg(a && b, "%s", sgp_errmsg());
	ck_assert_uint_eq((uintptr_t)sgp_import_addr(a) % PAGE, 0x10);
	ck_assert_ptr_ne(sgp_import_addr(a), sgp_import_addr(b));
	ck_assert_uint_eq(mr_of(a)->iova, (uintptr_t)sgp_import_addr(a));
	ck_assert(!may_read(sgp_import_addr(a)));
	ck_assert(may_read(&fd));
	/* A second domain gets it from the kept descriptor. */
	close(fd);
	ck_assert_msg(!sgp_pool_add_pd(pool, second), "%s", sgp_errmsg());
	ck_assert_int_eq(sgp_pool_remove_pd(pool, second), 0);
	ck_assert_int_eq(sgp_pool_unimport(pool, a), 0);
	ck_assert_int_eq(sgp_pool_unimport(pool, b), 0);
}
END_TEST

/* More than one descriptor reaches: a slice over the edge, of memory that is mostly not there. */
START_TEST(test_over_1_gib)
{
	size_t gib = (size_t)1 << 30;
	int fd = memfd(3 * gib);
	struct sgp_import *imp = import_fd(fd, SGP_IMPORT_DMABUF, NULL, 0, 2 * gib + PAGE);
	char *addr;
	SGP_SGL(sgl, 3);

	ck_assert_msg(imp != NULL, "%s", sgp_errmsg());
	addr = sgp_import_addr(imp);
	ck_assert_int_eq(sgp_sgl_append_region(&sgl, imp, gib - 10, 20), 0);
	ck_assert_int_eq(sgl.num_sge, 1);
	ck_assert_int_eq(sgl.num_chunk, 2);
	ck_assert_uint_eq(sgl.sge[0].addr, (uintptr_t)addr + gib - 10);
	ck_assert_uint_eq(sgl.sge[0].length, 20);
	sgp_sgl_clear(&sgl);
	/* The longest SGE is below 2 GiB: two of them. */
	ck_assert_int_eq(sgp_sgl_append_addr(&sgl, pool, addr, 2 * gib + PAGE), 0);
	ck_assert_int_eq(sgl.num_chunk, 3);
	ck_assert_int_eq(sgl.num_sge, 2);
	ck_assert_uint_eq(sgl.length, 2 * gib + PAGE);
	ck_assert_int_eq(sgp_pool_unimport(pool, imp), -1);
	sgp_sgl_clear(&sgl);
	ck_assert_int_eq(sgp_pool_unimport(pool, imp), 0);
	close(fd);
}
END_TEST

START_TEST(test_max_mr_size)
{
	char *mem = anonymous(2 * PAGE);

	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
	ck_assert_int_eq(sv_set("soft0", "max_mr_size", PAGE), 0);
	pool = make_pool(0);
	ck_assert_ptr_null(import(mem, PAGE + 1, 0));
	ck_assert_int_eq(errno, EMSGSIZE);
	ck_assert_ptr_nonnull(strstr(sgp_errmsg(), "max_mr_size"));
	munmap(mem, 2 * PAGE);
}
END_TEST

/* An import that fails at registration k, at the mapping, for want of memory: nothing is left. */
START_TEST(test_import_fails_at_each_step)
{
	char *mem = anonymous(PAGE);
	int fd = memfd(PAGE), k;
	struct sgp_import *imp;
	int64_t mapped;

	ck_assert_int_eq(sgp_pool_add_pd(pool, second), 0);
	mapped = rig_mapped;
	for (int kind = 0; kind < (SGP_HAVE_DMABUF ? 3 : 2); kind++) {
		const char *call = kind == 2 ? "reg_dmabuf_mr" : "reg_mr";

		for (k = 0;; k++) {
			sv_fail_nth(call, (uint64_t)k, ENOMEM);
			imp = kind == 0 ? import(mem, PAGE, 0)
					: import_fd(fd,
						    kind == 1 ? SGP_IMPORT_FILE : SGP_IMPORT_DMABUF,
						    NULL, 0, PAGE);
			if (!sv_failed(call))
				break;
			ck_assert_ptr_null(imp);
			ck_assert_int_eq(errno, ENOMEM);
			ck_assert_int_eq(sv_live(SV_MRS), 4);
			ck_assert_int_eq(rig_mapped, mapped);
			rig_check(pool, 0);
		}
		ck_assert_int_eq(k, 2);
		sv_fail_nth(call, 0, 0);
		ck_assert_ptr_nonnull(imp);
		ck_assert_int_eq(sgp_pool_unimport(pool, imp), 0);
		ck_assert_int_eq(rig_mapped, mapped);
	}
	rig_fail(RIG_MMAP, 0, ENOMEM);
	ck_assert_ptr_null(import_fd(fd, SGP_IMPORT_FILE, NULL, 0, PAGE));
	ck_assert(rig_failed());
	ck_assert_int_eq(errno, ENOMEM);
	rig_fail(RIG_MMAP, 0, ENOMEM);
	ck_assert_ptr_null(import_fd(fd, SGP_IMPORT_DMABUF, NULL, 0, PAGE));
	ck_assert(rig_failed() == SGP_HAVE_DMABUF);
	ck_assert_int_eq(errno, SGP_HAVE_DMABUF ? ENOMEM : EOPNOTSUPP);
	ck_assert_int_eq(sv_live(SV_MRS), 4);
	close(fd);
	munmap(mem, PAGE);
}
END_TEST

START_TEST(test_no_memory_for_import)
{
	char *mem = anonymous(PAGE);
	struct sgp_import *imp;
	int k;

	for (k = 0;; k++) {
		rig_fail(RIG_ALLOC, k, ENOMEM);
		imp = import(mem, PAGE, 0);
		if (!rig_failed())
			break;
		ck_assert_ptr_null(imp);
		ck_assert_int_eq(errno, ENOMEM);
		rig_check(pool, 0);
	}
	ck_assert_int_ge(k, 2);
	ck_assert_ptr_nonnull(imp);
	ck_assert_int_eq(sgp_pool_unimport(pool, imp), 0);
	munmap(mem, PAGE);
}
END_TEST

/* An unimport that fails at domain k: it stands, on all domains. */
START_TEST(test_unimport_fails_at_each_domain)
{
	char *mem = anonymous(PAGE);
	struct sgp_import *imp = import(mem, PAGE, 0);
	uint32_t lkey;

	ck_assert_int_eq(sgp_pool_add_pd(pool, second), 0);
	for (int k = 0; k < 2; k++) {
		SGP_SGL(sgl, 1);

		sv_fail_nth("dereg_mr", (uint64_t)k, EBUSY);
		ck_assert_int_eq(sgp_pool_unimport(pool, imp), -1);
		ck_assert_int_eq(errno, EBUSY);
		ck_assert_int_eq(sv_live(SV_MRS), 6);
		rig_check(pool, 0);
		ck_assert_int_eq(sgp_import_keys(imp, rig_pd, &lkey, NULL), 0);
		ck_assert_uint_eq(lkey, mr_of(imp)->ibv.lkey);
		ck_assert_int_eq(sgp_import_keys(imp, second, NULL, NULL), 0);
		ck_assert_int_eq(sgp_sgl_append_addr(&sgl, pool, mem, PAGE), 0);
		sgp_sgl_clear(&sgl);
	}
	ck_assert_int_eq(sgp_pool_unimport(pool, imp), 0);
	munmap(mem, PAGE);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("import by descriptor");
	TCase *tc = tcase_create("import by descriptor");

	tcase_add_checked_fixture(tc, import_setup, import_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_file);
	if (SGP_HAVE_DMABUF) {
		tcase_add_test(tc, test_dmabuf);
		tcase_add_test(tc, test_dmabuf_without_address);
		tcase_add_test(tc, test_over_1_gib);
	}
	tcase_add_test(tc, test_max_mr_size);
	tcase_add_test(tc, test_import_fails_at_each_step);
	tcase_add_test(tc, test_no_memory_for_import);
	tcase_add_test(tc, test_unimport_fails_at_each_domain);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
