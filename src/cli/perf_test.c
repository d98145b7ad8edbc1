/* SPDX-License-Identifier: BSD-2-Clause */
/* A test of sgpool perf at one end: its life, its threads. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "cli/clock.h"
#include "cli/perf_test.h"

enum {
	FENCE_BYTES = 64, /* a cache line */
	READS = 16,       /* on the way at once, if the device has so many */
};

bool perf_sends(const struct perf_test *t)
{
	return t->active || t->p.both;
}

bool perf_works(const struct perf_test *t)
{
	return perf_sends(t) || perf_hears(t);
}

bool perf_hears(const struct perf_test *t)
{
	return t->p.op == PERF_SEND || (t->p.latency && t->p.op == PERF_WRITE);
}

void perf_test_wake(const struct perf_test *t)
{
	const uint64_t one = 1;

	/* It can't block: nobody counts that far. */
	if (write(t->done_fd, &one, sizeof one) != (ssize_t)sizeof one)
		abort();
}

/* ---- threads ---- */

static int64_t thread_cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void run_once(struct perf_worker *w)
{
	struct perf_test *t = w->test;
	const int64_t cpu = thread_cpu_ns();

	w->began = w->ended = clock_ns();
	if (perf_work(w) && !atomic_load(&t->stop)) {
		atomic_store(&t->stop, true); /* one that failed ends it for all */
		perf_test_wake(t);
	}
	w->cpu_ns = (uint64_t)(thread_cpu_ns() - cpu);
	if (atomic_fetch_sub(&t->workers, 1) == 1)
		perf_test_wake(t);
}

static void *work(void *arg)
{
	struct perf_worker *w = arg;
	struct perf_test *t = w->test;

	for (uint64_t run = 0;;) {
		bool quit;

		pthread_mutex_lock(&t->mutex);
		while (t->run == run && !t->quit)
			pthread_cond_wait(&t->wake, &t->mutex);
		run = t->run;
		quit = t->quit;
		pthread_mutex_unlock(&t->mutex);
		if (quit)
			return NULL;
		run_once(w);
	}
}

void perf_test_run(struct perf_test *t, uint64_t n)
{
	struct sgp_pool_stats stats;
	uint64_t old;

	while (read(t->done_fd, &old, sizeof old) == (ssize_t)sizeof old)
		;
	atomic_store(&t->enough, false);
	atomic_store(&t->finish, false);
	if (t->pool && !sgp_pool_stats(t->pool, &stats))
		t->registrations = stats.registrations;
	for (uint32_t i = 0; i < t->p.threads; i++) {
		struct perf_worker *w = &t->worker[i];

		memset(&w->latency, 0, sizeof w->latency);
		atomic_store(&w->sent, 0);
		atomic_store(&w->received, 0);
		atomic_store(&w->registrations, 0);
		w->began = w->ended = 0;
		w->cpu_ns = 0;
	}
	if (!perf_works(t))
		return;
	atomic_store(&t->senders, perf_sends(t) ? t->p.threads : 0);
	atomic_store(&t->workers, t->p.threads);
	pthread_mutex_lock(&t->mutex);
	t->each = n;
	t->run++;
	pthread_cond_broadcast(&t->wake);
	pthread_mutex_unlock(&t->mutex);
}

void perf_test_enough(struct perf_test *t)
{
	atomic_store(&t->enough, true);
}

void perf_test_finish(struct perf_test *t, uint64_t expected)
{
	atomic_store(&t->expected, expected);
	atomic_store(&t->finish, true);
}

bool perf_test_sent(const struct perf_test *t)
{
	return atomic_load(&t->senders) == 0;
}

bool perf_test_done(const struct perf_test *t)
{
	return atomic_load(&t->workers) == 0;
}

void perf_test_stop(struct perf_test *t)
{
	atomic_store(&t->stop, true);
	pthread_mutex_lock(&t->mutex);
	t->quit = true;
	pthread_cond_broadcast(&t->wake);
	pthread_mutex_unlock(&t->mutex);
	for (uint32_t i = 0; i < t->p.threads; i++)
		if (t->worker[i].running) {
			pthread_join(t->worker[i].thread, NULL);
			t->worker[i].running = false;
		}
}

const char *perf_test_why(const struct perf_test *t)
{
	/* Set before the thread stops the others, which is what the caller has seen. */
	if (atomic_load(&t->stop))
		for (uint32_t i = 0; i < t->p.threads; i++)
			if (t->worker[i].why[0])
				return t->worker[i].why;
	return NULL;
}

uint64_t perf_test_sum(const struct perf_test *t, bool received)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < t->p.threads; i++)
		sum += atomic_load_explicit(received ? &t->worker[i].received : &t->worker[i].sent,
					    memory_order_relaxed);
	return sum;
}

struct perf_figures perf_test_figures(struct perf_test *t, struct histogram *latency)
{
	struct perf_figures f = {.sent = perf_test_sum(t, false),
				 .received = perf_test_sum(t, true)};
	int64_t began = INT64_MAX, ended = 0;
	struct sgp_pool_stats stats;

	for (uint32_t i = 0; i < t->p.threads; i++) {
		const struct perf_worker *w = &t->worker[i];

		f.cpu_ns += w->cpu_ns;
		f.registrations += atomic_load(&w->registrations);
		began = w->began < began ? w->began : began;
		ended = w->ended > ended ? w->ended : ended;
		if (latency)
			histogram_merge(latency, &w->latency);
	}
	f.ns = ended > began ? (uint64_t)(ended - began) : 0;
	if (t->pool && !sgp_pool_stats(t->pool, &stats))
		f.registrations = stats.registrations - t->registrations;
	return f;
}

/* Clocks of two machines, and of two kinds, agree so far. */
static bool longer(uint64_t ns, uint64_t than)
{
	return ns > than + than / 8 + 100000000;
}

const char *perf_test_doubt(const struct perf_test *t, uint64_t n, const struct perf_figures *ours,
			    const struct perf_figures *theirs, uint64_t took_ns)
{
	const bool hears = perf_hears(t), answers = hears && t->p.latency;

	if (theirs->received != (hears ? ours->sent : 0))
		return "the other end did not get as many messages as were sent";
	if (!t->p.both && theirs->sent != (answers ? ours->sent : 0))
		return "the other end says that it sent what it was not asked to";
	if (t->p.both && n && theirs->sent != n * t->p.conns)
		return "the other end did not send as many messages as it was asked to";
	if (hears && theirs->sent != ours->received)
		return "the other end says that it sent another number of messages than came";
	if (longer(theirs->ns, took_ns) || longer(theirs->cpu_ns, took_ns * t->p.threads))
		return "the other end says that it took longer than there was time";
	if (t->p.mode != PERF_POOL && theirs->registrations > theirs->sent)
		return "the other end says that it registered more messages than it sent";
	return NULL;
}

/* ---- connections ---- */

struct perf_link *perf_test_find(struct perf_test *t, const struct rdma_cm_id *id)
{
	for (uint32_t i = 0; t && i < t->p.conns; i++)
		if (t->link[i].id == id)
			return &t->link[i];
	return NULL;
}

bool perf_test_ready(const struct perf_test *t)
{
	for (uint32_t i = 0; i < t->p.conns; i++)
		if (!t->link[i].greeted)
			return false;
	return true;
}

int perf_link_open(struct perf_test *t, uint32_t index, struct rdma_cm_id *id)
{
	struct perf_link *l = &t->link[index];
	const size_t size = t->p.op == PERF_SEND ? FENCE_BYTES : t->p.size;

	l->target = sgp_pool_get(t->targets, size, 0);
	l->fence = sgp_pool_get(t->targets, FENCE_BYTES, 0);
	if (!l->target || !l->fence)
		return -1;
	memset(sgp_chunk_addr(l->target), 0, size);
	l->id = id;
	return t->way->open_link(l);
}

void perf_link_param(const struct perf_link *l, uint8_t bytes[PERF_DATA_HELLO],
		     struct rdma_conn_param *param)
{
	const struct perf_test *t = l->worker->test;
	const struct perf_hello hello = {.id = t->id,
					 .index = (uint32_t)(l - t->link),
					 .token = t->token,
					 .addr = (uintptr_t)sgp_chunk_addr(l->target),
					 .rkey = sgp_chunk_rkey(l->target),
					 .bytes = t->p.op == PERF_SEND ? FENCE_BYTES : t->p.size};
	struct ibv_device_attr attr = {0};
	int reads = READS;

	if (!ibv_query_device(t->verbs, &attr)) {
		reads = attr.max_qp_rd_atom < reads ? attr.max_qp_rd_atom : reads;
		reads = attr.max_qp_init_rd_atom < reads ? attr.max_qp_init_rd_atom : reads;
	}
	reads = reads < 1 ? 1 : reads;
	perf_put_hello(bytes, &hello);
	if (t->pool && t->p.op == PERF_SEND)
		sgp_flow_hello(&l->flow, bytes + PERF_HELLO_FLOW);
	/* Credits make a receiver that is not ready impossible: a retry would only hide a fault. */
	*param = (struct rdma_conn_param){.private_data = bytes,
					  .private_data_len = PERF_DATA_HELLO,
					  .responder_resources = (uint8_t)reads,
					  .initiator_depth = (uint8_t)reads,
					  .retry_count = 7,
					  .rnr_retry_count = 0};
}

const char *perf_link_greet(struct perf_link *l, const void *data, size_t n)
{
	const struct perf_test *t = l->worker->test;
	struct perf_hello hello;
	const char *wrong = perf_get_hello(data, n, &hello);

	if (wrong)
		return wrong;
	if (hello.id != t->id || hello.index != (uint32_t)(l - t->link) || hello.token != t->token)
		return "it is no connection of this test";
	if (hello.bytes < (t->p.op == PERF_SEND ? FENCE_BYTES : t->p.size))
		return "its memory is too short for the test";
	if (t->pool && t->p.op == PERF_SEND) {
		if (sgp_flow_greet(&l->flow, (const char *)data + PERF_HELLO_FLOW,
				   n - PERF_HELLO_FLOW))
			return sgp_errmsg();
		if (l->flow.peer_bytes < t->p.size)
			return "its receives are too short for the test";
	}
	l->peer_addr = hello.addr;
	l->peer_rkey = hello.rkey;
	l->greeted = true;
	return NULL;
}

bool perf_link_event(struct perf_link *l, const struct cm_event *event)
{
	const struct rdma_cm_event told = {.id = event->id, .event = event->type};

	if (l->worker->test->pool)
		sgp_ep_event(l->ep, &told);
	return event->type == RDMA_CM_EVENT_ESTABLISHED;
}

static void close_link(struct perf_test *t, struct perf_link *l)
{
	if (l->id)
		rdma_disconnect(l->id);
	if (l->worker)
		t->way->close_link(l);
	if (l->id)
		rdma_destroy_id(l->id);
	if (l->target)
		sgp_chunk_put(l->target);
	if (l->fence)
		sgp_chunk_put(l->fence);
}

/* ---- beginning and end ---- */

/* Peers READ and WRITE targets; our own READs go to the fences. */
static int make_targets(struct perf_test *t)
{
	const struct sgp_class_attr classes[] = {
		{.size = FENCE_BYTES, .chunks = 2 * (size_t)t->p.conns},
		{.size = t->p.size, .chunks = t->p.conns}};
	const bool both = t->p.op != PERF_SEND && t->p.size > FENCE_BYTES;
	const struct sgp_pool_attr attr = {.classes = classes,
					   .nclasses = both ? 2 : 1,
					   .flags = SGP_POOL_REMOTE_READ | SGP_POOL_REMOTE_WRITE |
						    SGP_POOL_READ_SINK};

	t->targets = sgp_pool_create(t->pd, &attr);
	return t->targets ? 0 : -1;
}

static int make_workers(struct perf_test *t)
{
	for (uint32_t i = 0; i < t->p.threads; i++)
		if (t->way->open_worker(&t->worker[i]))
			return -1;
	for (uint32_t i = 0; i < t->p.threads && perf_works(t); i++) {
		struct perf_worker *w = &t->worker[i];
		const int err = pthread_create(&w->thread, NULL, work, w);

		if (err) {
			errno = err;
			return -1;
		}
		w->running = true;
	}
	return 0;
}

static int make(struct perf_test *t)
{
	t->link = calloc(t->p.conns, sizeof *t->link);
	t->worker = calloc(t->p.threads, sizeof *t->worker);
	t->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (!t->link || !t->worker || t->done_fd < 0)
		return -1;
	for (uint32_t i = 0; i < t->p.conns; i++)
		t->link[i].worker = &t->worker[i % t->p.threads];
	for (uint32_t i = 0; i < t->p.threads; i++) {
		t->worker[i].test = t;
		t->worker[i].index = i;
	}
	return make_targets(t) || t->way->open(t) || make_workers(t) ? -1 : 0;
}

struct perf_test *perf_test_open(const struct perf_params *p, uint32_t id, bool active,
				 struct ibv_pd *pd, char *why, size_t size)
{
	struct perf_test *t = calloc(1, sizeof *t);
	int err;

	if (!t) {
		snprintf(why, size, "%s", strerror(errno));
		return NULL;
	}
	t->p = *p;
	t->id = id;
	t->active = active;
	t->pd = pd;
	t->verbs = pd->context;
	t->iwarp = pd->context->device->transport_type == IBV_TRANSPORT_IWARP;
	t->way = p->mode == PERF_POOL ? &perf_pool : &perf_verbs;
	t->done_fd = -1;
	pthread_mutex_init(&t->mutex, NULL);
	pthread_cond_init(&t->wake, NULL);
	if (make(t) == 0)
		return t;
	err = errno;
	snprintf(why, size, "%s",
		 p->mode == PERF_POOL || !t->targets ? sgp_errmsg() : strerror(err));
	perf_test_close(t);
	errno = err;
	return NULL;
}

void perf_test_close(struct perf_test *t)
{
	if (!t)
		return;
	if (t->worker)
		perf_test_stop(t);
	for (uint32_t i = 0; t->link && i < t->p.conns; i++)
		close_link(t, &t->link[i]);
	for (uint32_t i = 0; t->worker && i < t->p.threads; i++)
		if (t->worker[i].test)
			t->way->close_worker(&t->worker[i]);
	t->way->close(t);
	if (t->targets)
		sgp_pool_destroy(t->targets);
	if (t->done_fd >= 0)
		close(t->done_fd);
	pthread_cond_destroy(&t->wake);
	pthread_mutex_destroy(&t->mutex);
	free(t->link);
	free(t->worker);
	free(t);
}
