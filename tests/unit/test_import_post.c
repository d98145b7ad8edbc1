/* SPDX-License-Identifier: BSD-2-Clause */
/* Imported memory in the queues: sent from, received into, and what it is not good for. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../suite.h"
#include "pool/chunk.h"
#include "pool/pool.h"
#include "rig.h"
#include "sgp_config.h"

#define PAGE   4096
#define INLINE 64

static struct rig rig;
static struct rig_side *a, *b;
static int context;

static void setup(void)
{
	struct rig_attr attr = {.pool_flags = SGP_POOL_REMOTE_READ | SGP_POOL_REMOTE_WRITE,
				.max_inline = INLINE};

	sv_strict(1);
	rig_open(&rig, &attr);
	a = &rig.side[0];
	b = &rig.side[1];
}

static void teardown(void)
{
	rig_close(&rig);
	ck_assert_msg(sv_strict_count() == 0, "%s", sv_strict_sentence(0));
	rig_check_no_leak();
}

static char *anonymous(size_t bytes)
{
	char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(p, MAP_FAILED);
	return p;
}

static struct sgp_import *import(struct rig_side *side, void *addr, size_t length, uint32_t flags)
{
	struct sgp_import_attr attr = {.addr = addr, .length = length, .flags = flags};
	struct sgp_import *imp = sgp_pool_import(side->pool, &attr);

	ck_assert_msg(imp != NULL, "%s", sgp_errmsg());
	return imp;
}

static struct sgp_import *import_dmabuf(struct rig_side *side, int fd, size_t length)
{
	struct sgp_import_attr attr = {.fd = fd, .length = length, .flags = SGP_IMPORT_DMABUF};
	struct sgp_import *imp = sgp_pool_import(side->pool, &attr);

	ck_assert_msg(imp != NULL, "%s", sgp_errmsg());
	return imp;
}

static int memfd(size_t bytes)
{
	int fd = memfd_create("import", MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
	return fd;
}

static void expect_success(struct rig_side *side)
{
	rig_reap(side, 1);
	ck_assert_str_eq(ibv_wc_status_str(side->wc[0].status), "success");
}

/* From read-only memory at one end into imported memory at the other; held until it is reaped. */
START_TEST(test_send_and_receive)
{
	char *from = anonymous(2 * PAGE), *to = anonymous(2 * PAGE);
	struct sgp_import *out, *in;
	SGP_SGL(sgl, 4);

	for (int i = 0; i < 2 * PAGE; i++)
		from[i] = (char)(i * 7);
	ck_assert_int_eq(mprotect(from, 2 * PAGE, PROT_READ), 0);
	out = import(a, from, 2 * PAGE, SGP_IMPORT_READ_ONLY);
	in = import(b, to, 2 * PAGE, 0);
	ck_assert_int_eq(sgp_sgl_append_region(&sgl, in, 10, PAGE), 0);
	ck_assert_msg(!sgp_post_recvv(b->ep, &context, &sgl), "%s", sgp_errmsg());
	ck_assert_int_eq(sgp_pool_unimport(b->pool, in), -1);
	ck_assert_int_eq(errno, EBUSY);
	/* With a chunk of the pool's between. */
	ck_assert_int_eq(sgp_sgl_append_region(&sgl, out, 100, 1000), 0);
	ck_assert_int_eq(sgp_sgl_append(&sgl, rig_chunk(a, 0x55), 0, 96), 0);
	ck_assert_int_eq(sgp_sgl_append_addr(&sgl, a->pool, from + PAGE, 3000), 0);
	ck_assert_msg(!sgp_post_sendv(a->ep, &context, &sgl, IBV_SEND_SIGNALED), "%s",
		      sgp_errmsg());
	ck_assert_int_eq(sgp_pool_unimport(a->pool, out), -1);
	ck_assert_int_eq(errno, EBUSY);
	expect_success(a);
	ck_assert_int_eq(sgp_pool_unimport(a->pool, out), 0);
	expect_success(b);
	ck_assert_uint_eq(b->wc[0].sgl.length, 4096);
	ck_assert_int_eq(sgp_pool_unimport(b->pool, in), -1); /* the caller has it */
	for (int i = 0; i < 1000; i++)
		ck_assert_int_eq(to[10 + i], (char)((100 + i) * 7));
	for (int i = 0; i < 96; i++)
		ck_assert_int_eq(to[1010 + i], 0x55);
	for (int i = 0; i < 3000; i++)
		ck_assert_int_eq(to[1106 + i], (char)((PAGE + i) * 7));
	sgp_sgl_clear(&b->wc[0].sgl);
	ck_assert_int_eq(sgp_pool_unimport(b->pool, in), 0);
	munmap(from, 2 * PAGE);
	munmap(to, 2 * PAGE);
}
END_TEST

/* Case 11: the device may not write it, and is not asked to. */
START_TEST(test_read_only_is_no_sink)
{
	char *mem = anonymous(PAGE);
	struct sgp_import *imp = import(a, mem, PAGE, SGP_IMPORT_READ_ONLY);
	uint64_t recvs = sv_calls("post_recv"), sends = sv_calls("post_send");
	SGP_SGL(sgl, 2);

	ck_assert_int_eq(sgp_sgl_append(&sgl, rig_chunk(a, 0), 0, PAGE), 0);
	ck_assert_int_eq(sgp_sgl_append_region(&sgl, imp, 0, 8), 0);
	ck_assert_int_eq(sgp_post_recvv(a->ep, &context, &sgl), -1);
	ck_assert_int_eq(errno, EACCES);
	ck_assert_int_eq(sgp_post_readv(a->ep, &context, &sgl, 0, 0, 0), -1);
	ck_assert_int_eq(errno, EACCES);
	ck_assert_int_eq(sgl.num_chunk, 2);
	ck_assert_uint_eq(sv_calls("post_recv"), recvs);
	ck_assert_uint_eq(sv_calls("post_send"), sends);
	sgp_sgl_clear(&sgl);
	ck_assert_int_eq(sgp_pool_unimport(a->pool, imp), 0);
	munmap(mem, PAGE);
}
END_TEST

/*
 * A dma-buf: what the processor can't reach goes as it is, however short; in the softverbs device it
 * is a memfd. Had anybody looked at its addresses, that would have been a SIGSEGV.
 */
START_TEST(test_dmabuf_is_not_looked_at)
{
	int fd = memfd(4 * PAGE);
	struct sgp_import *imp = import_dmabuf(a, fd, 4 * PAGE);
	struct sgp_ep_stats stats;
	SGP_SGL(sgl, 8);

	ck_assert_int_eq(pwrite(fd, "sesame", 6, PAGE), 6);
	rig_post_recv(b, &context);
	ck_assert_int_eq(sgp_sgl_append_region(&sgl, imp, PAGE, 6), 0);
	/* Asked for, it is refused. */
	ck_assert_int_eq(sgp_post_sendv(a->ep, &context, &sgl, IBV_SEND_INLINE), -1);
	ck_assert_int_eq(errno, EOPNOTSUPP);
	ck_assert_int_eq(sgl.num_chunk, 1);
	ck_assert_msg(!sgp_post_sendv(a->ep, &context, &sgl, IBV_SEND_SIGNALED), "%s",
		      sgp_errmsg());
	expect_success(a);
	expect_success(b);
	ck_assert_uint_eq(b->wc[0].byte_len, 6);
	ck_assert_int_eq(memcmp((void *)(uintptr_t)b->wc[0].sgl.sge[0].addr, "sesame", 6), 0);
	ck_assert_int_eq(sgp_ep_stats(a->ep, &stats), 0);
	ck_assert_uint_eq(stats.inlined, 0);
	/* One that would have to be copied together. */
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(sgp_sgl_append_region(&sgl, imp, 2 * (size_t)i * 100, 100), 0);
	ck_assert_int_eq(sgp_post_sendv(a->ep, &context, &sgl, SGP_LINEARISE), -1);
	ck_assert_int_eq(errno, EOPNOTSUPP);
	ck_assert_int_eq(sgl.num_chunk, 5);
	sgp_sgl_clear(&sgl);
	ck_assert_int_eq(sgp_pool_unimport(a->pool, imp), 0);
	close(fd);
}
END_TEST

/* A READ into a dma-buf, whose list comes back and goes out again. */
START_TEST(test_read_into_dmabuf)
{
	int fd = memfd(PAGE);
	struct sgp_import *imp = import_dmabuf(a, fd, PAGE);
	struct sgp_chunk *source = rig_chunk(b, 0x42);
	char byte = 0;
	SGP_SGL(sgl, 1);

	ck_assert_int_eq(sgp_sgl_append_region(&sgl, imp, 16, 8), 0);
	ck_assert_msg(!sgp_post_readv(a->ep, &context, &sgl, 0, (uintptr_t)sgp_chunk_addr(source),
				      sgp_chunk_rkey(source)),
		      "%s", sgp_errmsg());
	expect_success(a);
	ck_assert_int_eq(pread(fd, &byte, 1, 23), 1);
	ck_assert_int_eq(byte, 0x42);
	ck_assert_int_eq(sgp_post_sendv(a->ep, &context, &a->wc[0].sgl, IBV_SEND_INLINE), -1);
	ck_assert_int_eq(errno, EOPNOTSUPP);
	rig_post_recv(b, &context);
	ck_assert_msg(!sgp_post_sendv(a->ep, &context, &a->wc[0].sgl, IBV_SEND_SIGNALED), "%s",
		      sgp_errmsg());
	expect_success(a);
	expect_success(b);
	ck_assert_int_eq(*(char *)(uintptr_t)b->wc[0].sgl.sge[0].addr, 0x42);
	sgp_chunk_put(source);
	ck_assert_int_eq(sgp_pool_unimport(a->pool, imp), 0);
	close(fd);
}
END_TEST

/* A dma-buf that the processor can reach is as any memory. */
START_TEST(test_mapped_dmabuf)
{
	int fd = memfd(PAGE);
	char *mem = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	struct sgp_import_attr attr = {.fd = fd,
				       .addr = mem,
				       .length = PAGE,
				       .flags = SGP_IMPORT_DMABUF | SGP_IMPORT_MAPPED};
	struct sgp_import *imp = sgp_pool_import(a->pool, &attr);
	struct sgp_ep_stats stats;
	SGP_SGL(sgl, 1);

	ck_assert_msg(imp != NULL, "%s", sgp_errmsg());
	memcpy(mem, "sesame", 6);
	rig_post_recv(b, &context);
	ck_assert_int_eq(sgp_sgl_append_region(&sgl, imp, 0, 6), 0);
	ck_assert_int_eq(sgp_post_sendv(a->ep, &context, &sgl, IBV_SEND_SIGNALED), 0);
	ck_assert_int_eq(sgp_pool_unimport(a->pool, imp), 0); /* it went inline: no hold */
	expect_success(a);
	expect_success(b);
	ck_assert_int_eq(memcmp((void *)(uintptr_t)b->wc[0].sgl.sge[0].addr, "sesame", 6), 0);
	ck_assert_int_eq(sgp_ep_stats(a->ep, &stats), 0);
	ck_assert_uint_eq(stats.inlined, 1);
	munmap(mem, PAGE);
	close(fd);
}
END_TEST

/* On a domain that comes later, with a slice over the edge of two imports. */
START_TEST(test_second_domain)
{
	char *mem = anonymous(2 * PAGE);
	struct sgp_import *low = import(a, mem, PAGE, 0), *high = import(a, mem + PAGE, PAGE, 0);
	SGP_SGL(sgl, 2);

	for (int i = 0; i < 2 * PAGE; i++)
		mem[i] = (char)(i / 16);
	/* The peer's pool becomes known on our domain, and ours on the peer's. */
	ck_assert_int_eq(sgp_pool_add_pd(a->pool, b->pd), 0);
	rig_post_recv(a, &context);
	ck_assert_int_eq(sgp_sgl_append_addr(&sgl, a->pool, mem + PAGE - 1000, 2000), 0);
	ck_assert_msg(!sgp_post_sendv(b->ep, &context, &sgl, IBV_SEND_SIGNALED), "%s",
		      sgp_errmsg());
	expect_success(b);
	expect_success(a);
	ck_assert_uint_eq(a->wc[0].byte_len, 2000);
	ck_assert_int_eq(
		memcmp((void *)(uintptr_t)a->wc[0].sgl.sge[0].addr, mem + PAGE - 1000, 2000), 0);
	ck_assert_int_eq(sgp_pool_unimport(a->pool, low), 0);
	ck_assert_int_eq(sgp_pool_unimport(a->pool, high), 0);
	munmap(mem, 2 * PAGE);
}
END_TEST

/* Lookups by address while the table changes all the time around them. */
static struct {
	char *mem;
	struct sgp_import *stands;
	atomic_bool stop;
	_Atomic uint64_t found, gone;
} race;

static void *look_up(void *arg)
{
	uintptr_t which = (uintptr_t)arg;

	for (uint64_t i = 0; !race.stop || i < 1000; i++) {
		size_t page = which ? i % 16 : 8;
		SGP_SGL(sgl, 1);

		if (sgp_sgl_append_addr(&sgl, a->pool, race.mem + page * PAGE + i % PAGE, 1)) {
			ck_assert_int_eq(errno, EFAULT);
			ck_assert_uint_ne(page, 8);
			race.gone++;
			continue;
		}
		ck_assert_uint_eq(sgl.sge[0].addr, (uintptr_t)race.mem + page * PAGE + i % PAGE);
		race.found++;
		sgp_sgl_clear(&sgl);
	}
	return NULL;
}

START_TEST(test_lookups_while_it_changes)
{
	struct sgp_import *imp[16] = {0};
	pthread_t thread[2];

	race.mem = anonymous(16 * PAGE);
	race.stop = false;
	race.stands = import(a, race.mem + 8 * PAGE, PAGE, 0);
	for (uintptr_t i = 0; i < 2; i++)
		pthread_create(&thread[i], NULL, look_up, (void *)i);
	for (unsigned int i = 0; i < 3000; i++) {
		unsigned int page = i * 2654435761u >> 28;

		if (page == 8)
			continue;
		if (!imp[page]) {
			imp[page] = import(a, race.mem + page * PAGE, PAGE, 0);
		} else if (!sgp_pool_unimport(a->pool, imp[page])) {
			imp[page] = NULL;
		} else {
			ck_assert_int_eq(errno, EBUSY); /* it is just looked up */
		}
	}
	race.stop = true;
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	ck_assert_uint_gt(race.found, 0);
	for (int i = 0; i < 16; i++)
		if (imp[i])
			ck_assert_int_eq(sgp_pool_unimport(a->pool, imp[i]), 0);
	ck_assert_int_eq(sgp_pool_unimport(a->pool, race.stands), 0);
	ck_assert_ptr_null(sgp_pool_check(a->pool));
	munmap(race.mem, 16 * PAGE);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("imports in the queues");
	TCase *tc = tcase_create("post");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_send_and_receive);
	tcase_add_test(tc, test_read_only_is_no_sink);
	if (SGP_HAVE_DMABUF) {
		tcase_add_test(tc, test_dmabuf_is_not_looked_at);
		tcase_add_test(tc, test_read_into_dmabuf);
		tcase_add_test(tc, test_mapped_dmabuf);
	}
	tcase_add_test(tc, test_second_domain);
	tcase_add_test(tc, test_lookups_while_it_changes);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
