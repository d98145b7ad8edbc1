/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Random operations on a pool, against a pool so simple that it cannot be wrong: a few numbers.
 *
 *      test_pool_model [OPERATIONS [SEED]]
 *
 * First one thread. The model tells of every get whether it succeeds and with what errno, and after
 * every operation the pool is compared with its own invariants and with the model's count. Then
 * four threads, of which each dies now and then and is born again; the chunks travel between them.
 * There the chunks' memory tells whether one was handed out twice, and the end must be exact.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool/pool.h"
#include "pool_edges.h"
#include "rnd.h"
#include "rnd.h"
#include "sgpool/sgpool.h"
#include "sgpool/softverbs.h"

enum {
	CLASSES = 3,
	HELD = 64,
	THREADS = 4,
	MAILBOX = 32,
	LIFE = 5000
};
static const struct sgp_class_attr classes[CLASSES] = {
	{.size = 64, .chunks = 3, .max_chunks = 12},
	{.size = 200, .chunks = 40, .max_chunks = 64, .reserve = 4},
	{.size = 4096, .max_chunks = 33},
};

static unsigned long operations = 100000, seed = 1, step;

void fail(int line, const char *what)
{
	fprintf(stderr, "line %d, seed %lu, step %lu: %s is not so (errno %d: %s)\n", line, seed,
		step, what, errno, sgp_errmsg());
	abort();
}

static struct sgp_pool *make_pool(struct ibv_pd *pd)
{
	struct sgp_pool_attr attr = {
		.classes = classes, .nclasses = CLASSES, .pages = SGP_PAGES_BASE};
	struct sgp_pool *pool = sgp_pool_create(pd, &attr);

	CHECK(pool != NULL);
	return pool;
}

/* ---- one thread ---- */

struct model_class {
	size_t made, held, reserved_held, cap, reserve;
};

struct held {
	struct sgp_chunk *chunk;
	unsigned int refs, class;
	bool reserved;
	uint64_t stamp; /* what its memory says */
};

static struct model_class model[CLASSES];
static struct held held[HELD];
static unsigned int nheld;
static uint64_t state1, stamps;

/* How many chunks may be had: the whole of the pool's policy. */
static size_t available(const struct model_class *m, int flags)
{
	size_t n = m->made - m->held, left = m->cap > m->held ? m->cap - m->held : 0;
	size_t kept = m->reserve > m->reserved_held ? m->reserve - m->reserved_held : 0;

	if (n > left)
		n = left;
	if (!(flags & SGP_GET_RESERVED))
		n = n > kept ? n - kept : 0;
	return n;
}

static void hold(struct sgp_chunk *chunk, unsigned int class, int flags)
{
	struct held *h = &held[nheld++];

	*h = (struct held){.chunk = chunk,
			   .refs = 1,
			   .class = class,
			   .stamp = ++stamps,
			   .reserved = flags & SGP_GET_RESERVED && model[class].reserve};
	memcpy(sgp_chunk_addr(chunk), &h->stamp, sizeof h->stamp);
	model[class].held++;
	model[class].reserved_held += h->reserved;
}

static void drop(unsigned int i)
{
	struct held *h = &held[i];

	CHECK(memcmp(sgp_chunk_addr(h->chunk), &h->stamp, sizeof h->stamp) == 0);
	if (--h->refs)
		return;
	model[h->class].held--;
	model[h->class].reserved_held -= h->reserved;
	*h = held[--nheld];
}

static size_t some_size(unsigned int class)
{
	size_t least = class ? classes[class - 1].size + 1 : 1;

	return least + rnd(&state1) % (classes[class].size - least + 1);
}

/* Get n chunks in one of the ways, and expect what the model says. */
static void op_get(struct sgp_pool *pool, size_t n)
{
	unsigned int class = rnd(&state1) % CLASSES, way = rnd(&state1) % 4;
	int flags = rnd(&state1) % 4 ? 0 : SGP_GET_RESERVED, ret;
	size_t size = some_size(class), avail = available(&model[class], flags);
	struct sgp_chunk *chunk[HELD];
	struct ibv_sge sge[HELD];

	if (nheld + n > HELD)
		return;
	if (way == 0 || n != 1)
		way = 1 + way % 3;
	if (way == 0)
		ret = (chunk[0] = sgp_pool_get(pool, size, flags)) ? 0 : -1;
	else if (way == 1)
		ret = sgp_pool_get_bulk(pool, size, flags, chunk, n);
	else if (way == 2)
		ret = sgp_pool_get_sge(pool, size, flags, chunk, sge, n);
	else
		ret = sgp_pool_get_wait(pool, size, flags, chunk, n, 0);
	CHECK(ret == (n <= avail ? 0 : -1));
	if (ret) {
		if (way == 3)
			CHECK(errno == (n > classes[class].max_chunks ? EINVAL : ETIMEDOUT));
		else
			CHECK(errno == ENOBUFS);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		CHECK(sgp_chunk_size(chunk[i]) == classes[class].size);
		CHECK(sgp_pool_chunk_at(pool, sgp_chunk_addr(chunk[i])) == chunk[i]);
		hold(chunk[i], class, flags);
	}
}

static void op_put(void)
{
	unsigned int i;
	struct sgp_chunk *chunk;

	if (!nheld)
		return;
	i = rnd(&state1) % nheld;
	chunk = held[i].chunk;
	drop(i);
	sgp_chunk_put(chunk);
}

static void op_put_bulk(void)
{
	struct sgp_chunk *chunk[HELD];
	size_t n = 0;

	for (unsigned int k = rnd(&state1) % 20; k && nheld; k--) {
		unsigned int i = rnd(&state1) % nheld;

		chunk[n++] = held[i].chunk;
		drop(i);
	}
	sgp_chunk_put_bulk(chunk, n);
}

static void op_ref(void)
{
	struct held *h = &held[nheld ? rnd(&state1) % nheld : 0];

	if (!nheld || h->refs > 5)
		return;
	sgp_chunk_ref(h->chunk);
	h->refs++;
}

static uint64_t chunks_made(struct sgp_pool *pool, unsigned int class)
{
	struct sgp_class_stats stats;

	CHECK(sgp_pool_class_stats(pool, class, &stats) == 0);
	return stats.chunks;
}

static void op_grow(struct sgp_pool *pool)
{
	unsigned int class = rnd(&state1) % CLASSES;
	size_t n = 1 + rnd(&state1) % 8, made = model[class].made;
	bool fits = made + n <= classes[class].max_chunks;
	int ret = sgp_pool_grow(pool, classes[class].size, n);

	CHECK(ret == (fits ? 0 : -1));
	if (!fits)
		CHECK(errno == ENOBUFS);
	model[class].made = chunks_made(pool, class);
	CHECK(model[class].made >= made + (fits ? n : 0));
	CHECK(model[class].made <= classes[class].max_chunks);
}

static void op_trim(struct sgp_pool *pool)
{
	unsigned int class = rnd(&state1) % CLASSES;
	size_t keep = rnd(&state1) % 40, made = model[class].made;

	CHECK(sgp_pool_trim(pool, classes[class].size, keep) == 0);
	model[class].made = chunks_made(pool, class);
	CHECK(model[class].made <= made && model[class].made >= model[class].held);
	CHECK(model[class].made >= (keep < made ? keep : made));
}

static void op_limits(struct sgp_pool *pool)
{
	unsigned int class = rnd(&state1) % CLASSES;
	size_t cap = 1 + rnd(&state1) % classes[class].max_chunks;
	size_t reserve = rnd(&state1) % 3 ? 0 : rnd(&state1) % (cap + 1);

	CHECK(sgp_pool_set_limits(pool, classes[class].size, cap, reserve) == 0);
	model[class].cap = cap;
	model[class].reserve = reserve;
}

static void compare(struct sgp_pool *pool)
{
	const char *wrong = sgp_pool_check(pool);

	if (wrong)
		fail(__LINE__, wrong);
	for (unsigned int class = 0; class < CLASSES; class ++) {
		struct sgp_class_stats stats;

		CHECK(sgp_pool_class_stats(pool, class, &stats) == 0);
		CHECK(stats.live == model[class].held);
		CHECK(stats.chunks == model[class].made);
		CHECK(stats.free + stats.cached + stats.live == stats.chunks);
	}
}

static void one_thread(struct ibv_pd *pd)
{
	struct sgp_pool *pool = make_pool(pd);

	edges_begin(pd->context, pd);
	state1 = seed * 0x9E3779B97F4A7C15ull + 1;
	for (unsigned int class = 0; class < CLASSES; class ++)
		model[class] = (struct model_class){.made = classes[class].chunks,
						    .cap = classes[class].max_chunks,
						    .reserve = classes[class].reserve};
	for (step = 0; step < operations; step++) {
		uint32_t what = rnd(&state1) % 100;

		if (what < 40)
			op_get(pool, 1);
		else if (what < 50)
			op_get(pool, rnd(&state1) % 20);
		else if (what < 80)
			op_put();
		else if (what < 86)
			op_put_bulk();
		else if (what < 92)
			op_ref();
		else if (what < 94)
			op_grow(pool);
		else if (what < 96)
			op_trim(pool);
		else if (what < 97)
			op_limits(pool);
		else
			edges_op(pool, &state1);
		compare(pool);
		edges_compare(pool, nheld ? held[step % nheld].chunk : NULL);
	}
	while (nheld)
		op_put();
	compare(pool);
	edges_end(pool);
	CHECK(sgp_pool_destroy(pool) == 0);
}

/* ---- four threads ---- */

static struct sgp_pool *shared;
static struct ibv_context *verbs;
static _Atomic(struct sgp_chunk *) mailbox[MAILBOX];
static _Atomic uint64_t got;

static void own(struct sgp_chunk *chunk)
{
	CHECK(atomic_exchange((_Atomic uint32_t *)sgp_chunk_addr(chunk), 1) != 1);
	got++;
}

static void disown_and_put(struct sgp_chunk *chunk)
{
	CHECK(atomic_exchange((_Atomic uint32_t *)sgp_chunk_addr(chunk), 0) == 1);
	sgp_chunk_put(chunk);
}

struct life {
	uint64_t state;
	unsigned long steps;
	struct sgp_chunk *mine[16];
	unsigned int n;
	struct edges_thread edges;
};

static void life_get(struct life *life, size_t n)
{
	size_t size = classes[rnd(&life->state) % CLASSES].size;
	int flags = (int)(rnd(&life->state) % 4); /* all combinations of the two flags */
	bool wait = rnd(&life->state) % 64 == 0;
	struct sgp_chunk *chunk[4];

	if (life->n + n > 16)
		return;
	if (wait ? sgp_pool_get_wait(shared, size, flags, chunk, n, 1)
		 : sgp_pool_get_bulk(shared, size, flags, chunk, n)) {
		CHECK(errno == (wait ? ETIMEDOUT : ENOBUFS));
		return;
	}
	for (size_t i = 0; i < n; i++) {
		own(chunk[i]);
		life->mine[life->n++] = chunk[i];
	}
}

/* To whoever finds it: another thread puts it. */
static void life_mail(struct life *life)
{
	struct sgp_chunk *chunk = life->n ? life->mine[--life->n] : NULL;

	chunk = atomic_exchange(&mailbox[rnd(&life->state) % MAILBOX], chunk);
	if (chunk)
		disown_and_put(chunk);
}

/* A second reference, dropped by whoever is later: this thread or one that finds it. */
static void life_share(struct life *life)
{
	if (!life->n)
		return;
	sgp_chunk_ref(life->mine[life->n - 1]);
	sgp_chunk_put(life->mine[life->n - 1]);
}

static void life_step(struct life *life)
{
	uint32_t what = rnd(&life->state) % 1000;
	size_t size = classes[what % CLASSES].size;

	if (what < 400) {
		life_get(life, 1);
	} else if (what < 500) {
		life_get(life, 1 + what % 4);
	} else if (what < 800) {
		if (life->n)
			disown_and_put(life->mine[--life->n]);
	} else if (what < 950) {
		life_mail(life);
	} else if (what < 990) {
		life_share(life);
	} else if (what < 992) {
		edges_thread_op(&life->edges, shared, rnd(&life->state));
	} else if (what < 996) {
		CHECK(sgp_pool_trim(shared, size, what % 16) == 0);
	} else {
		size_t most = classes[what % CLASSES].max_chunks;

		CHECK(sgp_pool_set_limits(shared, size, most - what % 4, what % 8) == 0);
	}
}

static void *live(void *arg)
{
	struct life *life = arg;

	edges_thread_begin(&life->edges, verbs);
	for (unsigned long i = 0; i < life->steps; i++)
		life_step(life);
	while (life->n)
		disown_and_put(life->mine[--life->n]);
	edges_thread_end(&life->edges, shared);
	return NULL;
}

/* A thread that starts a life after the other, so that caches come and go. */
static void *lives(void *arg)
{
	struct life life = {.state = (uintptr_t)arg * 0x9E3779B97F4A7C15ull + seed};
	unsigned long left = operations / THREADS;

	while (left) {
		pthread_t thread;

		life.steps = left < LIFE ? left : LIFE;
		left -= life.steps;
		CHECK(pthread_create(&thread, NULL, live, &life) == 0);
		CHECK(pthread_join(thread, NULL) == 0);
	}
	return NULL;
}

static void four_threads(struct ibv_pd *pd)
{
	pthread_t thread[THREADS];
	struct sgp_pool_stats stats;
	const char *wrong;

	shared = make_pool(pd);
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK(pthread_create(&thread[i], NULL, lives, (void *)(i + 1)) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(thread[i], NULL) == 0);
	for (int i = 0; i < MAILBOX; i++)
		if (mailbox[i])
			disown_and_put(mailbox[i]);
	wrong = sgp_pool_check(shared);
	if (wrong)
		fail(__LINE__, wrong);
	CHECK(sgp_pool_stats(shared, &stats) == 0);
	CHECK(stats.live == 0 && stats.free == stats.chunks);
	CHECK(got > operations / 100);
	CHECK(sgp_pool_trim(shared, 0, 0) == 0);
	CHECK(sv_live(SV_MRS) == 0);
	CHECK(sgp_pool_destroy(shared) == 0);
}

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_pd *pd;

	if (argc > 1)
		operations = strtoul(argv[1], NULL, 10);
	if (argc > 2)
		seed = strtoul(argv[2], NULL, 10);
	verbs = ibv_open_device(list[0]);
	CHECK(verbs != NULL);
	pd = ibv_alloc_pd(verbs);
	CHECK(pd != NULL);
	ibv_free_device_list(list);
	one_thread(pd);
	four_threads(pd);
	CHECK(sv_live(SV_MRS) == 0);
	CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(verbs) == 0);
	printf("%lu operations by one thread, %lu by %d: as the model says\n", operations,
	       operations, THREADS);
	return 0;
}
