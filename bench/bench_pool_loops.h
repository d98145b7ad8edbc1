/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The work of each case, written once and compiled once for each contender, so that what a
 * contender offers inline is inlined.
 *
 * Before it is included the contender defines
 *
 *      struct pool;                                      its state
 *      static inline void *pool_get(struct pool *)
 *      static inline void pool_put(struct pool *, void *)
 *      static inline void *pool_memory(void *)           of what get returned
 *      static struct pool *pool_make(size_t size, bool strided)    NULL: can't
 *      static void pool_free(struct pool *)
 *
 * and, with POOL_HAS_BULK, if it takes several at once otherwise than one by one,
 *
 *      static inline void pool_get_bulk(struct pool *, void **, unsigned int)
 *      static inline void pool_put_bulk(struct pool *, void **, unsigned int)
 *
 * and, with POOL_HAS_THREADS, if a thread has to be made known to it,
 *
 *      static void pool_thread_begin(void), pool_thread_end(void)
 *
 * and gets loops_setup, loops_run and loops_teardown.
 */
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define HELD      1024
#define RING      1024 /* chunks on their way to the other thread */
#define RING_TURN 64   /* told of in one go, by either side */

struct loops {
	struct pool *pool;
	void (*work)(struct loops *, size_t);
	void *held[HELD];
	uint32_t random;
	/* The second thread: it does other(), each time that it is told to. */
	void (*other)(struct loops *, size_t);
	pthread_t thread;
	sem_t begin, done;
	size_t n; /* for it to do; 0: end */
	_Alignas(128) _Atomic size_t head;
	_Alignas(128) _Atomic size_t tail;
	_Alignas(128) void *ring[RING];
};

#ifndef POOL_HAS_BULK
static inline void pool_get_bulk(struct pool *p, void **chunks, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		chunks[i] = pool_get(p);
}

static inline void pool_put_bulk(struct pool *p, void **chunks, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		pool_put(p, chunks[i]);
}
#endif

#ifndef POOL_HAS_THREADS
static void pool_thread_begin(void)
{
}

static void pool_thread_end(void)
{
}
#endif

static void pair(struct loops *l, size_t n)
{
	for (; n; n--) {
		void *chunk = pool_get(l->pool);

		bench_use(chunk);
		pool_put(l->pool, chunk);
	}
}

static inline void burst(struct loops *l, size_t n, int length)
{
	for (; n; n--) {
		for (int i = 0; i < length; i++)
			l->held[i] = pool_get(l->pool);
		bench_use(l->held);
		for (int i = 0; i < length; i++)
			pool_put(l->pool, l->held[i]);
	}
}

static void burst_32(struct loops *l, size_t n)
{
	burst(l, n, 32);
}

static void burst_512(struct loops *l, size_t n)
{
	burst(l, n, 512);
}

static void bulk_32(struct loops *l, size_t n)
{
	for (; n; n--) {
		pool_get_bulk(l->pool, l->held, 32);
		bench_use(l->held);
		pool_put_bulk(l->pool, l->held, 32);
	}
}

static inline void replace(struct loops *l, size_t n, bool write)
{
	uint32_t x = l->random;

	for (; n; n--) {
		void **slot;

		x ^= x << 13;
		x ^= x >> 17;
		x ^= x << 5;
		slot = &l->held[x % HELD];
		pool_put(l->pool, *slot);
		*slot = pool_get(l->pool);
		if (write)
			*(volatile uint64_t *)pool_memory(*slot) = x;
		bench_use(*slot);
	}
	l->random = x;
}

static void held(struct loops *l, size_t n)
{
	replace(l, n, false);
}

static void held_written(struct loops *l, size_t n)
{
	replace(l, n, true);
}

/* ---- two threads ---- */

static void hand_over_send(struct loops *l, size_t n)
{
	size_t head = atomic_load_explicit(&l->head, memory_order_relaxed), i;
	size_t tail = atomic_load_explicit(&l->tail, memory_order_acquire);

	for (i = 0; i < n; i++) {
		while (head - tail == RING) {
			tail = atomic_load_explicit(&l->tail, memory_order_acquire);
			if (head - tail == RING)
				sched_yield();
		}
		l->ring[head++ % RING] = pool_get(l->pool);
		if (head % RING_TURN == 0 || i + 1 == n)
			atomic_store_explicit(&l->head, head, memory_order_release);
	}
}

static void hand_over_receive(struct loops *l, size_t n)
{
	size_t tail = atomic_load_explicit(&l->tail, memory_order_relaxed), head = tail, i;

	for (i = 0; i < n; i++) {
		while (head == tail) {
			head = atomic_load_explicit(&l->head, memory_order_acquire);
			if (head == tail)
				sched_yield();
		}
		pool_put(l->pool, l->ring[tail++ % RING]);
		if (tail % RING_TURN == 0 || i + 1 == n)
			atomic_store_explicit(&l->tail, tail, memory_order_release);
	}
}

static void *second_thread(void *arg)
{
	struct loops *l = arg;

	pool_thread_begin();
	while (sem_wait(&l->begin) == 0 && l->n) {
		l->other(l, l->n);
		sem_post(&l->done);
	}
	pool_thread_end();
	return NULL;
}

static void both(struct loops *l, size_t n, void (*mine)(struct loops *, size_t))
{
	l->n = n;
	sem_post(&l->begin);
	mine(l, n);
	sem_wait(&l->done);
}

static void two_threads(struct loops *l, size_t n)
{
	both(l, n, pair);
}

static void hand_over(struct loops *l, size_t n)
{
	both(l, n, hand_over_send);
}

/* ---- as the harness calls them ---- */

static const struct loop_case {
	const char *name;
	void (*work)(struct loops *, size_t);
	void (*other)(struct loops *, size_t);
	bool holds, aligned;
} loop_cases[] = {
	{"pair", pair, NULL, false, false},
	{"burst-32", burst_32, NULL, false, false},
	{"burst-512", burst_512, NULL, false, false},
	{"held", held, NULL, true, false},
	{"held-written", held_written, NULL, true, false},
	{"held-written-aligned", held_written, NULL, true, true},
	{"hand-over", hand_over, hand_over_receive, false, false},
	{"two-threads", two_threads, pair, false, false},
	{"bulk-32", bulk_32, NULL, false, false},
	{"checked", pair, NULL, false, false},
};

static void *loops_setup(const char *name, size_t size)
{
	const struct loop_case *c = loop_cases;
	struct loops *l = aligned_alloc(128, (sizeof *l + 127) & ~(size_t)127);

	while (strcmp(c->name, name))
		c++;
	memset(l, 0, sizeof *l);
	l->pool = pool_make(size, !c->aligned);
	if (!l->pool) {
		free(l);
		return NULL;
	}
	l->work = c->work;
	l->random = 2463534242u;
	for (int i = 0; i < HELD && c->holds; i++)
		l->held[i] = pool_get(l->pool);
	l->other = c->other;
	if (l->other) {
		sem_init(&l->begin, 0, 0);
		sem_init(&l->done, 0, 0);
		pthread_create(&l->thread, NULL, second_thread, l);
	} else {
		l->n = 0;
	}
	return l;
}

static void loops_run(void *state, size_t n)
{
	struct loops *l = state;

	l->work(l, n);
}

static void loops_teardown(void *state)
{
	struct loops *l = state;

	if (l->other) {
		l->n = 0;
		sem_post(&l->begin);
		pthread_join(l->thread, NULL);
	}
	if (l->work == held || l->work == held_written)
		for (int i = 0; i < HELD; i++)
			pool_put(l->pool, l->held[i]);
	pool_free(l->pool);
	free(l);
}
