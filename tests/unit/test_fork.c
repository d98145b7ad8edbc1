/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What fork(2) may and may not do: cases 47 and 48. The child may exec or exit; whatever else it
 * calls is EPERM and makes no verbs call, and the parent never notices.
 *
 * The linker puts ibv_fork_init(3) and what belongs to it before the device's, so that a kernel can
 * be played that does not copy pinned pages.
 */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../suite.h"
#include "mapped.h"
#include "rig.h"
#include "sgp_config.h"
#include "sgpool/srq.h"
#include "sgpool/window.h"

static enum ibv_fork_status fork_status = IBV_FORK_UNNEEDED;
static unsigned int fork_inits;
static uint64_t registered_before;

#pragma GCC visibility push(default)
enum ibv_fork_status __wrap_ibv_is_fork_initialized(void);
int __wrap_ibv_fork_init(void);
int __real_ibv_dereg_mr(struct ibv_mr *);
int __wrap_ibv_dereg_mr(struct ibv_mr *);
#pragma GCC visibility pop

enum ibv_fork_status __wrap_ibv_is_fork_initialized(void)
{
	return fork_status;
}

int __wrap_ibv_fork_init(void)
{
	fork_inits++;
	registered_before = sv_total(SV_MRS);
	fork_status = IBV_FORK_ENABLED;
	return 0;
}

/* As rdma-core does it once ibv_fork_init(3) has been called. */
int __wrap_ibv_dereg_mr(struct ibv_mr *mr)
{
	void *addr = mr->addr;
	size_t length = mr->length;
	int ret = __real_ibv_dereg_mr(mr);

	if (!ret && fork_status == IBV_FORK_ENABLED)
		ck_assert_int_eq(madvise(addr, length, MADV_DOFORK), 0);
	return ret;
}

/* Runs f in a child, which must end by itself and with status 0 in time. */
static void in_child(int (*f)(void *), void *arg)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		alarm(120);
		_exit(f(arg));
	}
	ck_assert_int_gt(pid, 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status), "the child was killed by signal %d", WTERMSIG(status));
	ck_assert_int_eq(WEXITSTATUS(status), 0);
}

/* ---- the child's calls ---- */

struct inherited {
	struct rig *rig;
	struct sgp_chunk *held, *shared;
	struct sgp_window *window;
	struct sgp_srq *srq;
	uint64_t calls; /* of verbs, in the parent */
};

#define REFUSED(call)                                                                              \
	do {                                                                                       \
		errno = 0;                                                                         \
		if (!(call) || errno != EPERM)                                                     \
			return __LINE__ & 0xff ? __LINE__ & 0xff : 1;                              \
	} while (0)

static int pool_calls(struct inherited *in)
{
	struct sgp_pool *pool = in->rig->side[0].pool;
	struct sgp_class_attr cls = {.size = 64, .chunks = 1};
	struct sgp_pool_attr attr = {.classes = &cls, .nclasses = 1};
	struct sgp_pool_stats stats;
	struct sgp_class_stats of_class;
	struct sgp_chunk *chunk;
	struct ibv_sge sge;
	char text[16];
	struct sgp_import_attr import = {.addr = text, .length = sizeof text};
	SGP_SGL(sgl, 1);

	REFUSED(!sgp_pool_get(pool, 1, 0));
	REFUSED(!sgp_pool_get(pool, 1, SGP_MAY_GROW));
	REFUSED(sgp_pool_get_bulk(pool, 1, 0, &chunk, 1) == -1);
	REFUSED(sgp_pool_get_sge(pool, 1, 0, &chunk, &sge, 1) == -1);
	REFUSED(sgp_pool_get_wait(pool, 1, 0, &chunk, 1, -1) == -1);
	REFUSED(sgp_pool_grow(pool, 1, 1) == -1);
	REFUSED(sgp_pool_trim(pool, 0, 0) == -1);
	REFUSED(sgp_pool_set_limits(pool, 1, 1, 0) == -1);
	REFUSED(sgp_pool_stats(pool, &stats) == -1);
	REFUSED(sgp_pool_class_stats(pool, 0, &of_class) == -1);
	REFUSED(sgp_pool_stats_print(pool, NULL, SGP_STATS_TEXT, text, sizeof text) == -1);
	REFUSED(sgp_pool_add_pd(pool, in->rig->side[1].pd) == -1);
	REFUSED(sgp_pool_remove_pd(pool, in->rig->side[0].pd) == -1);
	REFUSED(!sgp_pool_import(pool, &import));
	REFUSED(sgp_pool_unimport(pool, (struct sgp_import *)text) == -1);
	REFUSED(sgp_sgl_append_addr(&sgl, pool, text, 1) == -1);
	REFUSED(sgp_pool_destroy(pool) == -1);
	REFUSED(!sgp_pool_create(in->rig->side[0].pd, &attr));
	sgp_chunk_ref(in->held);
	REFUSED(sgp_chunk_put(in->held) == -1);
	REFUSED(sgp_chunk_put(in->shared) == -1);
	sgp_chunk_put_bulk(&in->held, 1);
	return 0;
}

static int queue_calls(struct inherited *in)
{
	struct rig_side *side = &in->rig->side[0];
	struct sgp_cq_attr cq = {.cqe = 4};
	struct sgp_ep_attr ep = {.cq = side->cq, .pd = side->pd};
	struct sgp_srq_attr srq = {.pd = side->pd, .depth = 1};
	struct rdma_cm_event told = {.event = RDMA_CM_EVENT_DISCONNECTED};
	struct ibv_async_event event = {.event_type = IBV_EVENT_DEVICE_FATAL};
	struct sgp_ep_info info;
	struct sgp_ep_stats stats;
	SGP_SGL(sgl, 1);

	if (sgp_sgl_append(&sgl, in->held, 0, 64))
		return 1;
	REFUSED(sgp_post_sendv(side->ep, NULL, &sgl, 0) == -1);
	REFUSED(sgp_post_writev(side->ep, NULL, &sgl, 0, 0, 0) == -1);
	REFUSED(sgp_post_readv(side->ep, NULL, &sgl, 0, 0, 0) == -1);
	REFUSED(sgp_post_recvv(side->ep, NULL, &sgl) == -1);
	REFUSED(sgp_post_send(side->ep, NULL, in->held, 0, 64, 0) == -1);
	REFUSED(sgp_post_recv(side->ep, NULL, in->held, 0, 64) == -1);
	REFUSED(sgp_poll(side->cq, 1, side->wc) == -1);
	REFUSED(sgp_wait(side->cq, 1, side->wc, -1) == -1);
	REFUSED(sgp_cq_arm(side->cq) == -1);
	REFUSED(sgp_ep_submit(side->ep) == -1);
	REFUSED(sgp_ep_sync(side->ep) == -1);
	REFUSED(sgp_ep_query(side->ep, &info) == -1);
	REFUSED(sgp_cancel(side->ep, NULL) == -1);
	REFUSED(sgp_ep_reset(side->ep) == -1);
	REFUSED(sgp_ep_event(side->ep, &told) == -1);
	REFUSED(sgp_cq_event(side->cq, &event) == -1);
	REFUSED(sgp_ep_refill(side->ep) == -1);
	REFUSED(!sgp_srq_create(&srq));
	REFUSED(sgp_ep_stats(side->ep, &stats) == -1);
	REFUSED(sgp_ep_close(side->ep, -1) == -1);
	REFUSED(sgp_ep_destroy(side->ep) == -1);
	REFUSED(sgp_cq_destroy(side->cq) == -1);
	REFUSED(!sgp_cq_create(side->id->verbs, &cq));
	REFUSED(!sgp_ep_create(NULL, &ep));
	REFUSED(sgp_post_bind(side->ep, NULL, in->window, in->held, 0, 64, 0, 0) == -1);
	REFUSED(sgp_post_invalidate(side->ep, NULL, in->window, 0) == -1);
	REFUSED(!sgp_window_create(side->ep));
	REFUSED(sgp_window_destroy(in->window) == -1);
	REFUSED(sgp_ep_refill(side->ep) == -1);
	REFUSED(!sgp_create_ah_from_wc(side->pd, side->wc, 1));
	sgp_sgl_clear(&sgl);
	return 0;
}

static int shared_queue_calls(struct inherited *in)
{
	struct sgp_srq_attr attr = {.pd = in->rig->side[0].pd, .depth = 1};
	struct ibv_async_event event = {.event_type = IBV_EVENT_SRQ_ERR};
	struct sgp_srq_stats stats;
	SGP_SGL(sgl, 1);

	REFUSED(!sgp_srq_create(&attr));
	REFUSED(sgp_srq_post_recvv(in->srq, NULL, &sgl) == -1);
	REFUSED(sgp_srq_refill(in->srq) == -1);
	REFUSED(sgp_srq_event(in->srq, &event) == -1);
	REFUSED(sgp_srq_stats(in->srq, &stats) == -1);
	REFUSED(sgp_srq_destroy(in->srq) == -1);
	return 0;
}

static const struct inherited *exiting;

/* The program's last function in a child: what exit(3) ran before it made no verbs call. */
static __attribute__((destructor(101))) void look_at_exit(void)
{
	if (exiting)
		_exit(sv_calls("any") == exiting->calls ? 0 : 99);
}

static int call_everything(void *arg)
{
	struct inherited *in = arg;
	int ret = pool_calls(in);

	if (!ret)
		ret = queue_calls(in);
	if (!ret)
		ret = shared_queue_calls(in);
	if (ret)
		return ret;
	exiting = in;
	exit(98);
}

/* case 47 */
START_TEST(test_child_may_do_nothing)
{
	struct inherited in;
	struct rig rig;

	rig_open(&rig, &(struct rig_attr){.pool_flags = SGP_HAVE_WINDOWS ? SGP_POOL_WINDOWS : 0});
	in.rig = &rig;
	in.held = rig_chunk(&rig.side[0], 1);
	in.shared = rig_chunk(&rig.side[0], 2);
	sgp_chunk_ref(in.shared);
	in.window = sgp_window_create(rig.side[0].ep);
	ck_assert(SGP_HAVE_WINDOWS == (in.window != NULL));
	in.srq = sgp_srq_create(&(struct sgp_srq_attr){.pd = rig.side[0].pd, .depth = 1});
	ck_assert_ptr_nonnull(in.srq);
	rig_post_recv(&rig.side[1], NULL);
	rig_post_send(&rig.side[0], NULL, 3); /* still on its way as far as we know */
	in.calls = sv_calls("any");
	in_child(call_everything, &in);

	/* The parent has all that it had. */
	rig_check_live(&rig.side[0], 3);
	rig_reap(&rig.side[0], 1);
	rig_reap(&rig.side[1], 1);
	ck_assert_int_eq(rig.side[1].wc[0].status, IBV_WC_SUCCESS);
	ck_assert_int_eq(*(char *)(uintptr_t)rig.side[1].wc[0].sgl.sge[0].addr, 3);
	ck_assert_int_eq(*(char *)sgp_chunk_addr(in.held), 1);
	ck_assert_int_eq(sgp_window_destroy(in.window), SGP_HAVE_WINDOWS ? 0 : -1);
	ck_assert_int_eq(sgp_srq_destroy(in.srq), 0);
	ck_assert_int_eq(sgp_chunk_put(in.held), 0);
	ck_assert_int_eq(sgp_chunk_put(in.shared), 0);
	ck_assert_int_eq(sgp_chunk_put(in.shared), 0);
	rig_check_live(&rig.side[0], 0);
	rig_close(&rig);
	rig_check_no_leak();
}
END_TEST

/* ---- a fork at any moment: the child inherits locks that nobody there will open ---- */

struct busy {
	struct rig rig;
	atomic_bool stop;
};

static void *get_and_put(void *arg)
{
	struct busy *busy = arg;
	struct sgp_chunk *chunk[16];

	while (!busy->stop)
		if (sgp_pool_get_bulk(busy->rig.side[0].pool, 1, 0, chunk, 16) == 0)
			sgp_chunk_put_bulk(chunk, 16);
	return NULL;
}

static void *send_and_poll(void *arg)
{
	struct busy *busy = arg;

	while (!busy->stop) {
		rig_post_recv(&busy->rig.side[1], NULL);
		rig_post_send(&busy->rig.side[0], NULL, 5);
		rig_reap(&busy->rig.side[0], 1);
		rig_reap(&busy->rig.side[1], 1);
	}
	return NULL;
}

/* Thread-specific data is destroyed too: a thread ends, and with it the process. */
static int end_as_a_thread(void *arg)
{
	static struct inherited ending;
	struct rig *rig = arg;
	struct sgp_chunk *chunk;

	REFUSED(!sgp_pool_get(rig->side[0].pool, 1, 0));
	REFUSED(sgp_pool_get_bulk(rig->side[0].pool, 1, 0, &chunk, 1) == -1);
	REFUSED(sgp_poll(rig->side[0].cq, 1, rig->side[0].wc) == -1);
	REFUSED(sgp_ep_sync(rig->side[0].ep) == -1);
	REFUSED(sgp_pool_destroy(rig->side[0].pool) == -1);
	if (SGP_ASAN)
		return 0; /* its allocator has locks as well, and would wait for them there */
	ending.calls = sv_calls("any");
	exiting = &ending;
	pthread_exit(NULL);
}

START_TEST(test_fork_among_threads)
{
	struct busy busy = {.stop = false};
	pthread_t thread[2];

	rig_open(&busy.rig, &(struct rig_attr){.chunks = 64});
	ck_assert_int_eq(pthread_create(&thread[0], NULL, get_and_put, &busy), 0);
	ck_assert_int_eq(pthread_create(&thread[1], NULL, send_and_poll, &busy), 0);
	/* So that the parent's own thread has a magazine to leave behind. */
	sgp_chunk_put(rig_chunk(&busy.rig.side[0], 0));
	for (int i = 0; i < 15; i++)
		in_child(end_as_a_thread, &busy.rig);
	busy.stop = true;
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_join(thread[i], NULL), 0);
	rig_check_live(&busy.rig.side[0], 0);
	rig_close(&busy.rig);
	rig_check_no_leak();
}
END_TEST

/* ---- preparing the process: case 48 ---- */

static struct ibv_pd *open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *verbs = ibv_open_device(list[0]);
	struct ibv_pd *pd = ibv_alloc_pd(verbs);

	ck_assert_ptr_nonnull(pd);
	ibv_free_device_list(list);
	return pd;
}

static void close_device(struct ibv_pd *pd)
{
	struct ibv_context *verbs = pd->context;

	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
	ck_assert_int_eq(ibv_close_device(verbs), 0);
}

static struct sgp_pool *make_pool(struct ibv_pd *pd)
{
	struct sgp_class_attr cls = {.size = 4096, .chunks = 4, .max_chunks = 4096};
	struct sgp_pool_attr attr = {.classes = &cls, .nclasses = 1, .pages = SGP_PAGES_BASE};
	struct sgp_pool *pool = sgp_pool_create(pd, &attr);

	ck_assert_msg(pool != NULL, "%s", sgp_errmsg());
	return pool;
}

START_TEST(test_fork_init_where_it_is_needed)
{
	static const struct {
		enum ibv_fork_status status;
		unsigned int calls;
	} kernel[] = {{IBV_FORK_UNNEEDED, 0}, {IBV_FORK_ENABLED, 0}, {IBV_FORK_DISABLED, 1}};
	/* Where the system can't tell, it's called. */
	const unsigned int calls = SGP_HAVE_FORK_STATUS ? kernel[_i].calls : 1;
	struct ibv_pd *pd = open_device();
	struct sgp_pool *pool;

	fork_status = kernel[_i].status;
	registered_before = 0;
	pool = make_pool(pd);
	ck_assert_uint_eq(fork_inits, calls);
	ck_assert_uint_eq(registered_before, 0); /* it comes too late after the first one */
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
	pool = make_pool(pd);
	ck_assert_uint_eq(fork_inits, calls);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
	close_device(pd);
}
END_TEST

/* A deregistration gives the addresses to children; those that are used again are taken back. */
START_TEST(test_memory_that_is_used_again)
{
	struct ibv_pd *pd = open_device();
	struct sgp_chunk *chunk[2048];
	struct sgp_pool *pool;
	int again = 0;
	void *first = NULL;

	fork_status = IBV_FORK_DISABLED;
	pool = make_pool(pd);
	for (int turn = 0; turn < 2; turn++) {
		ck_assert_int_eq(sgp_pool_get_bulk(pool, 1, SGP_MAY_GROW, chunk, 2048), 0);
		for (int i = 0; i < 2048; i += 16)
			in_child(is_mapped, sgp_chunk_addr(chunk[i]));
		for (int i = 0; turn && i < 2048; i++)
			again += sgp_chunk_addr(chunk[i]) == first;
		first = sgp_chunk_addr(chunk[2047]);
		sgp_chunk_put_bulk(chunk, 2048);
		ck_assert_int_eq(sgp_pool_trim(pool, 0, 0), 0);
	}
	ck_assert_int_eq(again, 1);
	ck_assert_int_eq(sgp_pool_destroy(pool), 0);
	close_device(pd);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fork");
	TCase *tc = tcase_create("fork");

	tcase_set_timeout(tc, 180);
	tcase_add_test(tc, test_child_may_do_nothing);
	tcase_add_test(tc, test_fork_among_threads);
	tcase_add_loop_test(tc, test_fork_init_where_it_is_needed, 0, 3);
	tcase_add_test(tc, test_memory_that_is_used_again);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
