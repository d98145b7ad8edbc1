/* SPDX-License-Identifier: BSD-2-Clause */
/* The device that misbehaves, and what stands on it. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/timerfd.h>

#include "../plain.h"
#include "post_model.h"

static const char *const personas[] = {"soft", "rxe", "mlx4", "mlx5", "hns"};

/* Each alone or some together, at these rates or not at all. */
static const char *const faults[] = {
	"completion drop chance 0.03",
	"completion delay 3 chance 0.2",
	"completion delay 40 chance 0.05",
	"completion duplicate chance 0.1",
	"completion echo 2 chance 0.1",
	"completion echo 60 chance 0.1",
	"completion swap chance 0.2",
	"completion status 5 chance 0.02",
	"completion status 12 chance 0.02",
	"post_send fail ENOMEM chance 0.1",
	"post_send midway chance 0.1",
	"post_send doorbell EIO chance 0.1",
	"post_recv fail ENOMEM chance 0.1",
	"post_recv doorbell EIO chance 0.1",
	"post_srq_recv fail ENOMEM chance 0.1",
	"post_srq_recv doorbell EIO chance 0.1",
	"message kill chance 0.02",
	"modify_qp fail EIO chance 0.2",
	"query_qp fail EIO chance 0.2",
	"create_qp fail ENOMEM chance 0.3",
	"destroy_qp fail EBUSY chance 0.3",
	"poll_cq fail EIO chance 0.05",
	"req_notify_cq fail EIO chance 0.2",
};

void new_faults(void)
{
	sv_faults_clear();
	w.faulty = !one_in(3);
	if (!w.faulty)
		return;
	for (int n = 1 + (int)pick(4); n; n--)
		CHECK(sv_faults(faults[pick(sizeof faults / sizeof *faults)], NULL) == 0);
}

/* ---- endpoints ---- */

void start_endpoint(struct model_ep *e)
{
	/* A failure is one more thing that may happen. */
	if (!plain_init(sgp_ep_qp(e->ep)) && e->ring)
		(void)sgp_ep_refill(e->ep);
}

void make_endpoint(struct model_ep *e)
{
	struct sgp_ep_attr attr = {.cq = w.cq,
				   .pd = w.pd,
				   .sq_sig_all = w.sig_all,
				   .max_chunk = w.max_sge,
				   .cap = {.max_send_wr = w.depth,
					   .max_recv_wr = w.depth,
					   .max_send_sge = (uint32_t)w.max_sge,
					   .max_recv_sge = (uint32_t)w.max_sge,
					   .max_inline_data = one_in(2) ? 64 : 0},
				   .recv_context = (void *)(uintptr_t)(e - w.ep + 1)};
	struct sgp_recv_part part = {
		.pool = w.pool, .size = CHUNK, .n = 1 + (int)pick((uint32_t)w.max_sge)};

	CHECK(!e->ep);
	e->shared = w.srq && one_in(3);
	e->ring = !e->shared && one_in(3);
	if (e->shared) {
		attr.srq = w.srq;
		if (one_in(2))
			attr.recv_context = NULL;
	}
	if (e->ring) {
		attr.recv = &part;
		attr.num_recv = 1;
	}
	e->ep = sgp_ep_create(NULL, &attr);
	if (!e->ep) {
		CHECK(w.faulty || w.removed || w.dead);
		return;
	}
	e->closed = false;
	start_endpoint(e);
}

/* Both of a pair from INIT to RTS; one alone (the last of an odd number) to itself. */
void connect_endpoints(int pair)
{
	struct model_ep *a = &w.ep[pair], *b = pair + 1 < w.eps ? a + 1 : a;
	uint8_t rnr = one_in(4) ? (uint8_t)pick(4) : 7;

	if (!a->ep || !b->ep || a->closed || b->closed)
		return;
	if (!plain_join(sgp_ep_qp(a->ep), sgp_ep_qp(b->ep)->qp_num, rnr, 12) && a != b)
		(void)plain_join(sgp_ep_qp(b->ep), sgp_ep_qp(a->ep)->qp_num, rnr, 12);
}

void take_events(void)
{
	struct pollfd pfd = {.fd = w.verbs->async_fd, .events = POLLIN};
	struct ibv_async_event event;

	while (poll(&pfd, 1, 0) == 1 && !ibv_get_async_event(w.verbs, &event)) {
		if (event.event_type == IBV_EVENT_CQ_ERR)
			w.dead = true;
		CHECK(sgp_cq_event(w.cq, &event) == 0);
		if (w.srq)
			CHECK(sgp_srq_event(w.srq, &event) == 0);
		ibv_ack_async_event(&event);
	}
}

/* ---- time ---- */

/* A timer of the library's runs by the model's clock. How long it has to; 0: it does not. */
static struct {
	int fd;
	uint64_t left;
} timer;

/* Visible, as the linker wants it where a shared library is instrumented too. */
#pragma GCC visibility push(default)
int __real_timerfd_settime(int, int, const struct itimerspec *, struct itimerspec *);
int __wrap_timerfd_settime(int, int, const struct itimerspec *, struct itimerspec *);
#pragma GCC visibility pop

int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *to, struct itimerspec *old)
{
	if (flags & TFD_TIMER_ABSTIME) /* the device's, by its own clock */
		return __real_timerfd_settime(fd, flags, to, old);
	timer.fd = fd;
	timer.left = (uint64_t)to->it_value.tv_sec * 1000000000 + (uint64_t)to->it_value.tv_nsec;
	return 0;
}

void pass_time(uint64_t ns)
{
	const struct itimerspec now = {.it_value.tv_nsec = 1};
	struct pollfd pfd = {.fd = timer.fd, .events = POLLIN};

	sv_clock_advance(ns);
	if (timer.left > ns) {
		timer.left -= ns;
	} else if (timer.left) {
		timer.left = 0;
		CHECK(__real_timerfd_settime(timer.fd, 0, &now, NULL) == 0);
		CHECK(poll(&pfd, 1, -1) == 1);
	}
}

/* ---- eras ---- */

static void add_device(void)
{
	static const char *const habits[] = {"keep_cqes",       "garbage_opcode",  "reuse_qpn",
					     "late_send_stuck", "late_recv_stuck", "negative",
					     "inline_first",    "early_slots"};

	snprintf(w.device, sizeof w.device, "m%lu", w.count.eras);
	CHECK(sv_device_add(w.device, personas[pick(sizeof personas / sizeof *personas)], 1) == 0);
	for (size_t i = 0; i < sizeof habits / sizeof *habits; i++)
		if (one_in(4))
			CHECK(sv_set(w.device, habits[i], pick(2)) == 0);
}

static void open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	CHECK(list != NULL);
	for (int i = 0; list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), w.device))
			w.verbs = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	CHECK(w.verbs != NULL);
}

/* In every other era: a shared receive queue. */
static void make_shared(void)
{
	struct sgp_recv_part part = {.pool = w.pool, .size = CHUNK, .n = 1 + (int)pick(2)};
	struct sgp_srq_attr attr = {
		.flags = w.flags & SGP_CQ_SINGLE_THREADED ? SGP_SRQ_SINGLE_THREADED : 0,
		.pd = w.pd,
		.recv = &part,
		.num_recv = 1,
		.context = SHARED,
		.depth = 1 + pick(16)};

	w.srq = NULL;
	if (one_in(2))
		CHECK((w.srq = sgp_srq_create(&attr)) != NULL);
}

void era_begin(void)
{
	struct sgp_class_attr class = {.size = CHUNK, .chunks = CHUNKS};
	struct sgp_pool_attr pool = {.classes = &class,
				     .nclasses = 1,
				     .pages = SGP_PAGES_BASE,
				     .flags = SGP_POOL_REMOTE_READ | SGP_POOL_REMOTE_WRITE |
					      SGP_POOL_REMOTE_ATOMIC};
	struct sgp_cq_attr cq = {.max_sge = LIST};

	w.faulty = w.removed = w.dead = false;
	timer.left = 0;
	w.eps = 1 + (int)pick(EPS);
	w.depth = 1 + pick(16);
	w.max_sge = 1 + (int)pick(4);
	w.sig_all = one_in(4);
	w.flags = (one_in(2) ? SGP_CQ_SINGLE_THREADED : 0) | (one_in(2) ? SGP_CQ_TIMESTAMPS : 0);
	add_device();
	open_device();
	CHECK((w.pd = ibv_alloc_pd(w.verbs)) != NULL);
	CHECK((w.pool = sgp_pool_create(w.pd, &pool)) != NULL);
	/* Now and then without the room that duplicates need: the queue overruns, and fails. */
	w.small_cq = one_in(6);
	cq.cqe = w.small_cq ? (int)w.depth : 4096;
	cq.flags = (uint32_t)w.flags;
	w.cq = sgp_cq_create(w.verbs, &cq);
	if (!w.cq) { /* a device that does not tell the time */
		CHECK(errno == EOPNOTSUPP && w.flags & SGP_CQ_TIMESTAMPS);
		w.flags = (int)(cq.flags &= ~(uint32_t)SGP_CQ_TIMESTAMPS);
		CHECK((w.cq = sgp_cq_create(w.verbs, &cq)) != NULL);
	}
	CHECK((w.wc = sgp_wc_alloc(w.cq, WCS)) != NULL);
	CHECK((w.source = sgp_pool_get(w.pool, CHUNK, 0)) != NULL);
	CHECK((w.target = sgp_pool_get(w.pool, CHUNK, 0)) != NULL);
	memset(sgp_chunk_addr(w.source), 's', CHUNK);
	make_shared();
	memset(w.ep, 0, sizeof w.ep);
	for (int i = 0; i < w.eps; i++) {
		make_endpoint(&w.ep[i]);
		CHECK(w.ep[i].ep != NULL);
	}
	for (int i = 0; i < w.eps; i += 2)
		connect_endpoints(i);
	w.count.eras++;
}

/* Everything ends, and everything has come home. */
void era_end(void)
{
	sv_faults_clear();
	w.faulty = false;
	take_events();
	for (int i = 0; i < w.eps; i++)
		if (w.ep[i].ep)
			CHECK(sgp_ep_close(w.ep[i].ep, 0) == 0);
	poll_all();
	check_world();
	for (int i = 0; i < OPS; i++)
		CHECK(!w.op[i].out);
	for (int i = 0; i < w.eps; i++)
		if (w.ep[i].ep)
			CHECK(sgp_ep_destroy(w.ep[i].ep) == 0);
	if (w.srq)
		CHECK(sgp_srq_destroy(w.srq) == 0);
	w.count.stale += w.cq->stale;
	while (w.nheld)
		drop_held(0);
	sgp_chunk_put(w.source);
	sgp_chunk_put(w.target);
	sgp_wc_free(w.wc);
	CHECK(sgp_cq_destroy(w.cq) == 0);
	CHECK(sgp_pool_destroy(w.pool) == 0);
	CHECK(ibv_dealloc_pd(w.pd) == 0);
	CHECK(ibv_close_device(w.verbs) == 0);
	if (!w.removed)
		CHECK(sv_device_remove(w.device) == 0);
	w.count.dead += w.dead;
	w.count.removals += w.removed;
	for (int what = 0; what < SV_NCOUNTERS; what++)
		CHECK(sv_live((enum sv_counter)what) == 0);
}
