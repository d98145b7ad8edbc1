/* SPDX-License-Identifier: BSD-2-Clause */
/* A pool's registrations: the system's and the device's limits, what is said of them, how many. */
#include <errno.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../suite.h"
#include "pool/limits.h"
#include "pool/chunk.h"
#include "pool_rig.h"

#define MIB ((size_t)1 << 20)

static void drop_ipc_lock(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	ck_assert_int_eq(syscall(SYS_capget, &head, data), 0);
	data[0].effective &= ~(1u << CAP_IPC_LOCK);
	ck_assert_int_eq(syscall(SYS_capset, &head, data), 0);
}

static void set_memlock(rlim_t bytes)
{
	struct rlimit limit;

	ck_assert_int_eq(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
	limit.rlim_cur = bytes;
	ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
}

/* case 1 */
START_TEST(test_over_the_memlock_limit)
{
	set_memlock(64 * 1024);
	drop_ipc_lock();
	sv_fail_nth("reg_mr", 0, ENOMEM); /* what the kernel says above the limit */
	ck_assert_ptr_null(rig_try_pool(MIB, 1, 0, SGP_PAGES_BASE));
	ck_assert_int_eq(errno, ENOMEM);
	ck_assert_ptr_nonnull(strstr(sgp_errmsg(), "1048576 bytes"));
	ck_assert_ptr_nonnull(strstr(sgp_errmsg(), "RLIMIT_MEMLOCK is 65536 bytes"));
	ck_assert_ptr_nonnull(strstr(sgp_errmsg(), "The pool holds 0 bytes"));
	ck_assert_ptr_nonnull(strstr(sgp_errmsg(), "CAP_IPC_LOCK is not in the effective set"));
	ck_assert_ptr_nonnull(strstr(sgp_errmsg(), "ulimit -l"));
	ck_assert_ptr_nonnull(strstr(sgp_errmsg(), "effective set."));
	ck_assert_int_eq(rig_mapped, 0);
}
END_TEST

/* case 2: the capability is permitted, but not effective. */
START_TEST(test_memlock_counts_what_is_effective)
{
	struct sgp_memlock lock;

	set_memlock(8 * MIB);
	sgp_memlock_read(&lock);
	if (lock.cap && lock.cap_counts)
		ck_assert(!sgp_memlock_forbids(&lock, 16 * MIB, 0));
	ck_assert_int_eq(setresuid(1000, 1000, 0), 0); /* clears the effective set */
	sgp_memlock_read(&lock);
	ck_assert_uint_eq(lock.limit, 8 * MIB);
	ck_assert(!lock.cap);
	ck_assert(sgp_memlock_forbids(&lock, 16 * MIB, 0));
	ck_assert(!sgp_memlock_forbids(&lock, 4 * MIB, 0));
	ck_assert(sgp_memlock_forbids(&lock, 4 * MIB, 6 * MIB));
	sv_fail_nth("reg_mr", 0, ENOMEM);
	ck_assert_ptr_null(rig_try_pool(16 * MIB, 1, 0, SGP_PAGES_BASE));
	ck_assert_int_eq(errno, ENOMEM);
	ck_assert_ptr_nonnull(strstr(sgp_errmsg(), "RLIMIT_MEMLOCK is 8388608 bytes"));
	ck_assert_ptr_nonnull(strstr(sgp_errmsg(), "not in the effective set"));
	/* A sanitizer's last look at the process needs what it had. */
	ck_assert_int_eq(setresuid(0, 0, 0), 0);
	ck_assert_int_eq(prctl(PR_SET_DUMPABLE, 1), 0);
}
END_TEST

START_TEST(test_other_causes_are_not_blamed_on_the_limit)
{
	set_memlock(64 * 1024);
	drop_ipc_lock();
	sv_fail_nth("reg_mr", 0, EFAULT);
	ck_assert_ptr_null(rig_try_pool(MIB, 1, 0, SGP_PAGES_BASE));
	ck_assert_int_eq(errno, EFAULT);
	ck_assert_ptr_null(strstr(sgp_errmsg(), "ulimit"));
	set_memlock(8 * MIB);
	sv_fail_nth("reg_mr", 0, ENOMEM);
	ck_assert_ptr_null(rig_try_pool(MIB, 1, 0, SGP_PAGES_BASE));
	ck_assert_int_eq(errno, ENOMEM);
	ck_assert_ptr_null(strstr(sgp_errmsg(), "ulimit"));
	ck_assert_ptr_nonnull(strstr(sgp_errmsg(), "not the cause"));
}
END_TEST

/* A queue pair that takes receives; nobody is at its other end. */
struct receiver {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

static void receiver_open(struct receiver *r)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};

	r->cq = ibv_create_cq(rig_pd->context, 8, NULL, NULL, 0);
	ck_assert_ptr_nonnull(r->cq);
	init.send_cq = init.recv_cq = r->cq;
	r->qp = ibv_create_qp(rig_pd, &init);
	ck_assert_ptr_nonnull(r->qp);
	ck_assert_int_eq(
		ibv_modify_qp(r->qp, &attr,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		0);
}

static void receiver_post(struct receiver *r, struct sgp_chunk *chunk)
{
	struct ibv_sge sge = {.addr = (uintptr_t)sgp_chunk_addr(chunk),
			      .length = (uint32_t)sgp_chunk_size(chunk),
			      .lkey = sgp_chunk_lkey(chunk)};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad = NULL;

	ck_assert_int_eq(ibv_post_recv(r->qp, &wr, &bad), 0);
}

static void receiver_close(struct receiver *r)
{
	ck_assert_int_eq(ibv_destroy_qp(r->qp), 0);
	ck_assert_int_eq(ibv_destroy_cq(r->cq), 0);
}

/* case 3 */
START_TEST(test_max_mr_size_splits)
{
	struct sgp_chunk *chunk[56];
	struct sgp_pool_stats stats;
	struct sgp_pool *pool;

	ck_assert_int_eq(sv_set("soft0", "max_mr_size", MIB), 0);
	ck_assert_ptr_null(rig_try_pool(2 * MIB, 1, 0, SGP_PAGES_BASE));
	ck_assert_int_eq(errno, EINVAL);
	pool = rig_try_pool(65536, 56, 0, SGP_PAGES_PREFER_2M); /* 3.5 MiB */
	ck_assert_msg(pool != NULL, "%s", sgp_errmsg());
	sgp_pool_stats(pool, &stats);
	ck_assert_uint_eq(stats.regions, 4);
	ck_assert_uint_eq(stats.bytes_registered, 56 * 65536);
	ck_assert_int_eq(sgp_pool_get_bulk(pool, 65536, 0, chunk, 56), 0);
	for (int i = 0; i < 56; i++) {
		struct ibv_mr *mr = sgp_chunk_mr_on(chunk[i], pool->reg.first);
		char *addr = sgp_chunk_addr(chunk[i]);

		ck_assert_uint_le(mr->length, MIB);
		ck_assert_uint_eq(sgp_chunk_lkey(chunk[i]), mr->lkey);
		ck_assert(addr >= (char *)mr->addr);
		ck_assert(addr + 65536 <= (char *)mr->addr + mr->length);
	}
	sgp_chunk_put_bulk(chunk, 56);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
}
END_TEST

/* case 4 */
START_TEST(test_max_mr)
{
	struct receiver receiver;
	struct sgp_pool *pool;
	struct sgp_chunk *chunk;
	uint64_t before;

	ck_assert_int_eq(sv_set("soft0", "max_mr", 4), 0);
	pool = rig_try_pool(4096, 1, 10, SGP_PAGES_BASE);
	before = sv_total(SV_MRS);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(sgp_pool_grow(pool, 1, 1), 0);
	ck_assert_int_eq(sgp_pool_grow(pool, 1, 1), -1);
	ck_assert_int_eq(errno, ENOMEM);
	rig_check(pool, 0);
	for (int i = 0; i < 10000; i++) {
		chunk = sgp_pool_get(pool, 1, 0);
		ck_assert_ptr_nonnull(chunk);
		sgp_chunk_put(chunk);
	}
	ck_assert_uint_eq(sv_total(SV_MRS), before + 3);
	/* What there is goes on to work. */
	chunk = sgp_pool_get(pool, 1, 0);
	receiver_open(&receiver);
	receiver_post(&receiver, chunk);
	receiver_close(&receiver);
	sgp_chunk_put(chunk);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
}
END_TEST

/* case 9: a registration a region, however many queue pairs use it, and none at a post. */
START_TEST(test_registrations_are_per_region)
{
	struct sgp_pool *pool = rig_try_pool(4096, 8, 16, SGP_PAGES_BASE);
	struct receiver receiver[8];
	struct sgp_chunk *chunk[8];
	uint64_t before;

	ck_assert_int_eq(sgp_pool_grow(pool, 1, 8), 0);
	before = sv_calls("reg_mr");
	ck_assert_int_eq(sv_live(SV_MRS), 2);
	for (int i = 0; i < 8; i++) {
		receiver_open(&receiver[i]);
		chunk[i] = sgp_pool_get(pool, 4096, 0);
		receiver_post(&receiver[i], chunk[i]);
	}
	ck_assert_uint_eq(sv_calls("reg_mr"), before);
	for (int i = 0; i < 8; i++) {
		receiver_close(&receiver[i]);
		sgp_chunk_put(chunk[i]);
	}
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
}
END_TEST

/* case 10: a failed beginning leaves nothing that the next one stumbles over. */
START_TEST(test_create_again_after_a_failure)
{
	struct sgp_pool *pool;

	sv_fail_nth("query_device", 0, ENODEV);
	ck_assert_ptr_null(rig_try_pool(4096, 4, 0, SGP_PAGES_BASE));
	ck_assert_int_eq(errno, ENODEV);
	sv_fail_nth("reg_mr", 0, ENODEV);
	ck_assert_ptr_null(rig_try_pool(4096, 4, 0, SGP_PAGES_BASE));
	ck_assert_int_eq(errno, ENODEV);
	pool = rig_try_pool(4096, 4, 0, SGP_PAGES_BASE);
	ck_assert_ptr_nonnull(pool);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pool registrations");
	TCase *tc = tcase_create("registrations");

	tcase_add_checked_fixture(tc, rig_setup, rig_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_over_the_memlock_limit);
	tcase_add_test(tc, test_memlock_counts_what_is_effective);
	tcase_add_test(tc, test_other_causes_are_not_blamed_on_the_limit);
	tcase_add_test(tc, test_max_mr_size_splits);
	tcase_add_test(tc, test_max_mr);
	tcase_add_test(tc, test_registrations_are_per_region);
	tcase_add_test(tc, test_create_again_after_a_failure);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
