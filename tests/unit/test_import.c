/* SPDX-License-Identifier: BSD-2-Clause */
/* Imported memory: what it is registered as, how it is found, what it leaves behind. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../suite.h"
#include "import_rig.h"
#include "pool/chunk.h"
#include "sgp_config.h"
#include "sgpool/sgl.h"

START_TEST(test_mapping)
{
	char *mem = anonymous(3 * PAGE);
	struct sgp_import *imp = import(mem + 100, 2 * PAGE, 0);
	struct sgp_pool_stats stats;
	uint32_t lkey, rkey;
	SGP_SGL(sgl, 4);

	ck_assert_msg(imp != NULL, "%s", sgp_errmsg());
	ck_assert_ptr_eq(sgp_import_addr(imp), mem + 100);
	ck_assert_uint_eq(sgp_import_size(imp), 2 * PAGE);
	ck_assert_int_eq(sgp_import_keys(imp, rig_pd, &lkey, &rkey), 0);
	ck_assert_uint_eq(lkey, mr_of(imp)->ibv.lkey);
	ck_assert_uint_eq(rkey, mr_of(imp)->ibv.rkey);
	ck_assert_uint_eq(mr_of(imp)->access, IBV_ACCESS_LOCAL_WRITE);
	ck_assert_int_eq(sgp_pool_stats(pool, &stats), 0);
	ck_assert_uint_eq(stats.imports, 1);
	ck_assert_uint_eq(stats.bytes_imported, 2 * PAGE);
	ck_assert_uint_eq(stats.regions, 3);
	/* By handle and by address, which are neighbours. */
	ck_assert_int_eq(sgp_sgl_append_region(&sgl, imp, 0, PAGE), 0);
	ck_assert_int_eq(sgp_sgl_append_addr(&sgl, pool, mem + 100 + PAGE, PAGE), 0);
	ck_assert_int_eq(sgl.num_sge, 1);
	ck_assert_uint_eq(sgl.sge[0].addr, (uintptr_t)mem + 100);
	ck_assert_uint_eq(sgl.sge[0].length, 2 * PAGE);
	ck_assert_uint_eq(sgl.sge[0].lkey, lkey);
	ck_assert_ptr_eq(sgp_chunk_pool(sgl.chunk[0]), pool);
	/* Behind its ends there is nothing. */
	ck_assert_int_eq(sgp_sgl_append_region(&sgl, imp, PAGE, PAGE + 1), -1);
	ck_assert_int_eq(errno, EFAULT);
	ck_assert_int_eq(sgp_sgl_append_region(&sgl, imp, SIZE_MAX, 2), -1);
	ck_assert_int_eq(errno, EFAULT);
	ck_assert_int_eq(sgp_sgl_append_addr(&sgl, pool, mem + 99, 1), -1);
	ck_assert_int_eq(errno, EFAULT);
	ck_assert_int_eq(sgp_sgl_append_addr(&sgl, pool, mem + 100 + PAGE, PAGE + 1), -1);
	ck_assert_int_eq(errno, EFAULT);
	ck_assert_int_eq(sgl.num_sge, 1);
	ck_assert_int_eq(sgl.num_chunk, 2);
	/* Held twice. */
	ck_assert_int_eq(sgp_pool_unimport(pool, imp), -1);
	ck_assert_int_eq(errno, EBUSY);
	sgp_chunk_put(sgl.chunk[--sgl.num_chunk]);
	ck_assert_int_eq(sgp_pool_unimport(pool, imp), -1);
	ck_assert_int_eq(errno, EBUSY);
	ck_assert_int_eq(sgp_pool_destroy(pool), -1);
	ck_assert_int_eq(errno, EBUSY);
	sgp_sgl_clear(&sgl);
	ck_assert_int_eq(sgp_pool_destroy(pool), -1);
	ck_assert_int_eq(errno, EBUSY);
	rig_check(pool, 0);
	ck_assert_msg(!sgp_pool_unimport(pool, imp), "%s", sgp_errmsg());
	ck_assert_int_eq(sgp_pool_unimport(pool, imp), -1);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(sgp_sgl_append_addr(&sgl, pool, mem + 100, 1), -1);
	ck_assert_int_eq(errno, EFAULT);
	munmap(mem, 3 * PAGE);
}
END_TEST

START_TEST(test_wrong_attributes)
{
	char *mem = anonymous(PAGE);
	int fd = memfd(PAGE);
	static const struct {
		uint32_t flags;
		bool addr, fd;
		size_t length;
		uint64_t offset;
	} wrong[] = {
		{0, true, false, 0, 0},
		{0, false, false, 1, 0},
		{1u << 31, true, false, 1, 0},
		{0, true, false, SIZE_MAX, 0},
		{SGP_IMPORT_FILE | SGP_IMPORT_DMABUF, false, true, 1, 0},
		{SGP_IMPORT_FILE, true, true, 1, 0},
		{SGP_IMPORT_FILE, false, false, 1, 0},
		{SGP_IMPORT_FILE, false, true, PAGE + 1, 0},
		{SGP_IMPORT_FILE, false, true, 1, PAGE},
		{SGP_IMPORT_FILE, false, true, 1, UINT64_MAX},
		{SGP_IMPORT_DMABUF, false, false, 1, 0},
		{SGP_IMPORT_DMABUF | SGP_IMPORT_MAPPED, false, true, 1, 0},
		{SGP_IMPORT_MAPPED, true, false, 1, 0},
		{SGP_IMPORT_DMABUF, false, true, PAGE + 1, 0},
	};

	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		ck_assert_ptr_null(import_fd(wrong[i].fd ? fd : -1, wrong[i].flags,
					     wrong[i].addr ? mem : NULL, wrong[i].offset,
					     wrong[i].length));
		/* Where no dma-buf can be imported at all, what is wrong with one is not looked at. */
		ck_assert_msg(errno == EINVAL || (!SGP_HAVE_DMABUF && errno == EOPNOTSUPP &&
						  wrong[i].flags == SGP_IMPORT_DMABUF),
			      "number %zu: %s", i, strerror(errno));
	}
	ck_assert_ptr_null(sgp_pool_import(pool, NULL));
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_ptr_null(import_fd(1000, SGP_IMPORT_FILE, NULL, 0, 1));
	ck_assert_int_eq(errno, EBADF);
	ck_assert_ptr_null(import_fd(1000, SGP_IMPORT_DMABUF, NULL, 0, 1));
	ck_assert_int_eq(errno, SGP_HAVE_DMABUF ? EBADF : EOPNOTSUPP);
	ck_assert_int_eq(sgp_pool_unimport(pool, NULL), -1);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(sv_live(SV_MRS), 2);
	close(fd);
	munmap(mem, PAGE);
}
END_TEST

/* Case 11: what can't be written, for sending and for receiving. */
START_TEST(test_read_only)
{
	char name[] = "/tmp/sgpool-import-XXXXXX";
	int rw = mkstemp(name), ro = open(name, O_RDONLY);
	char *anon, *private, *shared;
	struct sgp_import *imp;

	ck_assert_int_ge(rw, 0);
	ck_assert_int_ge(ro, 0);
	unlink(name);
	ck_assert_int_eq(ftruncate(rw, PAGE), 0);
	anon = map(PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	private = map(PAGE, PROT_READ, MAP_PRIVATE, ro);
	shared = map(PAGE, PROT_READ, MAP_SHARED, ro);
	for (int i = 0; i < 2; i++) {
		char *mem = i ? private : anon;

		imp = import(mem, PAGE, SGP_IMPORT_READ_ONLY);
		ck_assert_msg(imp != NULL, "%s", sgp_errmsg());
		ck_assert_uint_eq(mr_of(imp)->access, 0);
		ck_assert_int_eq(sgp_pool_unimport(pool, imp), 0);
		ck_assert_ptr_null(import(mem, PAGE, 0));
		ck_assert_int_eq(errno, EFAULT);
		ck_assert_ptr_nonnull(strstr(sgp_errmsg(), "SGP_IMPORT_READ_ONLY"));
	}
	ck_assert_ptr_null(import(shared, PAGE, SGP_IMPORT_READ_ONLY));
	ck_assert_int_eq(errno, EFAULT);
	ck_assert_ptr_nonnull(strstr(sgp_errmsg(), "MAP_PRIVATE"));
	ck_assert_ptr_null(import_fd(ro, SGP_IMPORT_FILE | SGP_IMPORT_READ_ONLY, NULL, 0, PAGE));
	ck_assert_int_eq(errno, EFAULT);
	ck_assert_ptr_null(import_fd(ro, SGP_IMPORT_FILE, NULL, 0, PAGE));
	ck_assert_int_eq(errno, EACCES);
	/* Where the descriptor allows it, the mapping is one that can be pinned. */
	imp = import_fd(rw, SGP_IMPORT_FILE | SGP_IMPORT_READ_ONLY, NULL, 0, PAGE);
	ck_assert_msg(imp != NULL, "%s", sgp_errmsg());
	ck_assert_uint_eq(mr_of(imp)->access, 0);
	ck_assert_int_eq(sgp_pool_unimport(pool, imp), 0);
	munmap(anon, PAGE);
	munmap(private, PAGE);
	munmap(shared, PAGE);
	close(rw);
	close(ro);
}
END_TEST

/* Of the pool's rights a read-only import has those that don't write. */
START_TEST(test_rights)
{
	struct sgp_pool *open =
		make_pool(SGP_POOL_REMOTE_READ | SGP_POOL_REMOTE_WRITE | SGP_POOL_REMOTE_ATOMIC |
			  (SGP_HAVE_WINDOWS ? SGP_POOL_WINDOWS : 0));
	char *mem = anonymous(2 * PAGE);
	struct sgp_import_attr attr = {.addr = mem, .length = PAGE};
	const unsigned int bind = SGP_HAVE_WINDOWS ? IBV_ACCESS_MW_BIND : 0;
	struct sgp_import *full, *half;

	ck_assert_msg(open != NULL, "%s", sgp_errmsg());
	full = sgp_pool_import(open, &attr);
	attr.addr = mem + PAGE;
	attr.flags = SGP_IMPORT_READ_ONLY;
	half = sgp_pool_import(open, &attr);
	ck_assert_msg(full && half, "%s", sgp_errmsg());
	ck_assert_uint_eq(mr_of(full)->access, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
						       IBV_ACCESS_REMOTE_WRITE |
						       IBV_ACCESS_REMOTE_ATOMIC | bind);
	ck_assert_uint_eq(mr_of(half)->access, IBV_ACCESS_REMOTE_READ | bind);
	ck_assert_int_eq(sgp_pool_unimport(pool, full), -1);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(sgp_pool_unimport(open, full), 0);
	ck_assert_int_eq(sgp_pool_unimport(open, half), 0);
	ck_assert_int_eq(sgp_pool_destroy(open), 0);
	munmap(mem, 2 * PAGE);
}
END_TEST

/* Case 14: a range over the edge of two registrations is two SGEs, under two keys. */
START_TEST(test_straddles_an_edge)
{
	char *mem = anonymous(4 * PAGE);
	struct sgp_import *low = import(mem, 2 * PAGE, 0);
	struct sgp_import *high = import(mem + 2 * PAGE, 2 * PAGE, 0);
	SGP_SGL(sgl, 2);
	SGP_SGL(one, 1);

	ck_assert(low && high);
	ck_assert_int_eq(sgp_sgl_append_addr(&sgl, pool, mem + PAGE, 2 * PAGE), 0);
	ck_assert_int_eq(sgl.num_sge, 2);
	ck_assert_uint_eq(sgl.sge[0].lkey, mr_of(low)->ibv.lkey);
	ck_assert_uint_eq(sgl.sge[1].lkey, mr_of(high)->ibv.lkey);
	ck_assert_uint_eq(sgl.sge[0].length, PAGE);
	ck_assert_uint_eq(sgl.sge[1].length, PAGE);
	ck_assert_int_eq(sgp_sgl_append_addr(&one, pool, mem + PAGE, 2 * PAGE), -1);
	ck_assert_int_eq(errno, E2BIG);
	ck_assert_int_eq(one.num_sge, 0);
	ck_assert_int_eq(sgp_pool_unimport(pool, low), -1);
	ck_assert_int_eq(errno, EBUSY);
	sgp_sgl_clear(&sgl);
	ck_assert_int_eq(sgp_pool_unimport(pool, low), 0);
	ck_assert_int_eq(sgp_pool_unimport(pool, high), 0);
	munmap(mem, 4 * PAGE);
}
END_TEST

/* Case 15: two small buffers on one page. */
START_TEST(test_two_on_one_page)
{
	char *mem = anonymous(PAGE);
	struct sgp_import *first = import(mem, 100, 0), *other = import(mem + 2048, 100, 0);
	SGP_SGL(sgl, 2);

	ck_assert_msg(first && other, "%s", sgp_errmsg());
	ck_assert_int_eq(sgp_sgl_append_addr(&sgl, pool, mem + 2048, 100), 0);
	ck_assert_uint_eq(sgl.sge[0].lkey, mr_of(other)->ibv.lkey);
	ck_assert_ptr_eq(mr_of(other)->ibv.addr, mem + 2048);
	ck_assert_uint_eq(mr_of(other)->ibv.length, 100);
	ck_assert_uint_ne(mr_of(first)->ibv.lkey, mr_of(other)->ibv.lkey);
	/* What overlaps is refused, at either end and around. */
	ck_assert_ptr_null(import(mem + 99, 10, 0));
	ck_assert_int_eq(errno, EEXIST);
	ck_assert_ptr_null(import(mem + 2000, 49, 0));
	ck_assert_int_eq(errno, EEXIST);
	ck_assert_ptr_null(import(mem, PAGE, 0));
	ck_assert_int_eq(errno, EEXIST);
	ck_assert_ptr_null(import(mem + 2050, 1, 0));
	ck_assert_int_eq(errno, EEXIST);
	sgp_sgl_clear(&sgl);
	ck_assert_int_eq(sgp_pool_unimport(pool, first), 0);
	ck_assert_int_eq(sgp_pool_unimport(pool, other), 0);
	munmap(mem, PAGE);
}
END_TEST

/* Case 16: other pages at the same address. */
START_TEST(test_same_address_again)
{
	char *mem = anonymous(PAGE);
	uint64_t before = sv_total(SV_MRS);
	uint32_t lkey = 0;

	for (int i = 0; i < 3; i++) {
		struct sgp_import *imp = import(mem, PAGE, 0);
		SGP_SGL(sgl, 1);

		ck_assert_ptr_nonnull(imp);
		ck_assert_uint_eq(sv_total(SV_MRS), before + 1 + (uint64_t)i);
		ck_assert_uint_ne(mr_of(imp)->ibv.lkey, lkey);
		lkey = mr_of(imp)->ibv.lkey;
		ck_assert_int_eq(sgp_sgl_append_addr(&sgl, pool, mem, PAGE), 0);
		ck_assert_uint_eq(sgl.sge[0].lkey, lkey);
		sgp_sgl_clear(&sgl);
		ck_assert_int_eq(sgp_pool_unimport(pool, imp), 0);
		ck_assert_int_eq(munmap(mem, PAGE), 0);
		ck_assert_ptr_eq(mmap(mem, PAGE, PROT_READ | PROT_WRITE,
				      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
				 mem);
	}
	munmap(mem, PAGE);
}
END_TEST

/* Many, in a table that grows, found by all their addresses. */
START_TEST(test_many)
{
	enum {
		N = 300
	};
	char *mem = anonymous(N * PAGE);
	struct sgp_import *imp[N];

	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
	pool = rig_pool(PAGE, 1, 0);
	for (int i = 0; i < N; i++) { /* in a scattered order: 7 has no divisor of 300 */
		imp[i * 7 % N] = import(mem + i * 7 % N * PAGE, PAGE / 2, 0);
		ck_assert_ptr_nonnull(imp[i * 7 % N]);
	}
	rig_check(pool, 0);
	for (int i = 0; i < N; i += 2)
		ck_assert_int_eq(sgp_pool_unimport(pool, imp[i]), 0);
	rig_check(pool, 0);
	for (int i = 0; i < N; i++) {
		SGP_SGL(sgl, 1);
		int ret = sgp_sgl_append_addr(&sgl, pool, mem + i * PAGE + PAGE / 2 - 1, 1);

		ck_assert_int_eq(ret, i % 2 ? 0 : -1);
		if (!ret)
			ck_assert_uint_eq(sgl.sge[0].lkey, mr_of(imp[i])->ibv.lkey);
		sgp_sgl_clear(&sgl);
		ck_assert_int_eq(sgp_sgl_append_addr(&sgl, pool, mem + i * PAGE + PAGE / 2, 1), -1);
	}
	for (int i = 1; i < N; i += 2)
		ck_assert_int_eq(sgp_pool_unimport(pool, imp[i]), 0);
	munmap(mem, N * PAGE);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("import");
	TCase *tc = tcase_create("import");

	tcase_add_checked_fixture(tc, import_setup, import_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_mapping);
	tcase_add_test(tc, test_wrong_attributes);
	tcase_add_test(tc, test_read_only);
	tcase_add_test(tc, test_rights);
	tcase_add_test(tc, test_straddles_an_edge);
	tcase_add_test(tc, test_two_on_one_page);
	tcase_add_test(tc, test_same_address_again);
	tcase_add_test(tc, test_many);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
