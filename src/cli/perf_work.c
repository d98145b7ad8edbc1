/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a thread does in a run: stream messages, take the peer's, or play ping-pong with it. It never
 * waits for anything without looking whether the run is to stop.
 */
#include <sched.h>
#include <stdio.h>

#include "cli/clock.h"
#include "cli/perf_test.h"

enum {
	IDLE_POLLS = 64 /* before the processor is offered to others */
};

int perf_fail(struct perf_worker *w, const char *what, const char *why)
{
	if (!w->why[0])
		snprintf(w->why, sizeof w->why, "%s: %s", what, why);
	return -1;
}

static bool stopped(const struct perf_worker *w)
{
	return atomic_load_explicit(&w->test->stop, memory_order_relaxed);
}

/* Take completions. *idle counts the polls that found none. Returns 0; -1 when it's over. */
static int reap(struct perf_worker *w, unsigned int *idle)
{
	const int n = w->test->way->reap(w, *idle > 0);

	if (n < 0 || stopped(w))
		return -1;
	*idle = n > 0 ? 0 : *idle + 1;
	if (*idle % IDLE_POLLS == IDLE_POLLS - 1)
		sched_yield();
	return 0;
}

/* Tell the main thread how far this one is: it reads that now and then. */
static void publish(struct perf_worker *w)
{
	uint64_t sent = 0, received = 0;

	for (struct perf_link *l = perf_first(w); l; l = perf_next(l)) {
		sent += l->sent;
		received += l->received;
	}
	atomic_store_explicit(&w->sent, sent, memory_order_relaxed);
	atomic_store_explicit(&w->received, received, memory_order_relaxed);
}

/* The peer has sent all, and all of that is here, where that can be seen. */
static bool heard_all(const struct perf_worker *w)
{
	const struct perf_test *t = w->test;

	return atomic_load(&t->finish) &&
	       (!perf_hears(t) || perf_test_sum(t, true) >= atomic_load(&t->expected));
}

static bool finished(const struct perf_link *l)
{
	const struct perf_test *t = l->worker->test;

	return t->each ? l->to_send == 0 : atomic_load_explicit(&t->enough, memory_order_relaxed);
}

/* Send as much as goes, a batch at most, and the fence behind the last. Returns whether any went; -1. */
static int push(struct perf_link *l)
{
	const struct perf_way *way = l->worker->test->way;
	const uint64_t before = l->sent;
	int went = 1;

	for (int i = 0; i < PERF_BATCH && went > 0 && !finished(l); i++) {
		went = way->send(l);
		if (went > 0) {
			l->to_send--;
			l->sent++;
		}
	}
	if (went > 0 && !l->fencing && finished(l)) {
		went = way->fence(l);
		l->fencing = went > 0;
	}
	return went < 0 ? -1 : l->sent > before;
}

/* This thread sends no more. */
static void told_all(struct perf_worker *w)
{
	if (atomic_fetch_sub(&w->test->senders, 1) == 1)
		perf_test_wake(w->test);
}

/* One way or both: send what is to be sent, take what comes. */
static int stream(struct perf_worker *w)
{
	struct perf_test *t = w->test;
	const bool hears = !t->active || t->p.both;
	bool sending = perf_sends(t);
	unsigned int idle = 0;
	uint64_t heard = 0;

	for (;;) {
		bool fenced = true;

		for (struct perf_link *l = perf_first(w); l && sending; l = perf_next(l)) {
			const int went = l->fencing ? 0 : push(l);

			if (went < 0)
				return -1;
			if (went > 0)
				idle = 0;
			fenced &= l->fenced;
		}
		if (reap(w, &idle))
			return -1;
		publish(w);
		if (sending && fenced) {
			sending = false;
			w->ended = clock_ns();
			told_all(w);
		} else if (!sending && w->received != heard) {
			w->ended = clock_ns();
		}
		heard = w->received;
		if (!sending && (!hears || heard_all(w)))
			return 0;
	}
}

/* ---- to and fro ---- */

/*
 * The peer's WRITE shows by its last byte, which devices place last (but for relaxed ordering, which
 * the targets' pool does not have). To ThreadSanitizer a device in software is a thread that races.
 */
__attribute__((no_sanitize_thread)) static uint8_t last_byte(const struct perf_link *l)
{
	const uint8_t *target = sgp_chunk_addr(l->target);

	return __atomic_load_n(target + l->worker->test->p.size - 1, __ATOMIC_ACQUIRE);
}

/* Has the peer's message come that answers (or is) number n, from 1? */
static bool arrived(const struct perf_link *l, uint64_t n)
{
	switch (l->worker->test->p.op) {
	case PERF_SEND:
		return l->received >= n;
	case PERF_WRITE:
		return last_byte(l) == l->stamp;
	default:
		return l->done >= n;
	}
}

static int send_now(struct perf_link *l)
{
	struct perf_worker *w = l->worker;
	unsigned int idle = 0;
	int went;

	while ((went = w->test->way->send(l)) == 0)
		if (reap(w, &idle))
			return -1;
	if (went > 0)
		l->sent++;
	return went < 0 ? -1 : 0;
}

/* The active end: one message after the other, timed. */
static int ping(struct perf_worker *w, struct perf_link *l)
{
	struct perf_test *t = w->test;
	const bool one_way = t->p.op != PERF_READ;
	int64_t before = clock_ns(), now;
	unsigned int idle;

	for (; !finished(l); l->to_send--) {
		l->stamp++;
		if (send_now(l))
			return -1;
		publish(w); /* while it is on its way */
		for (idle = 0; !arrived(l, l->sent);)
			if (reap(w, &idle))
				return -1;
		now = clock_ns();
		histogram_add(&w->latency, (uint64_t)(now - before) / (one_way ? 2 : 1));
		before = now;
		if (t->p.op == PERF_WRITE)
			l->received++;
	}
	w->ended = before;
	publish(w);
	told_all(w);
	return 0;
}

/* The passive end: give each back. */
static int pong(struct perf_worker *w, struct perf_link *l)
{
	unsigned int idle = 0;

	for (;;) {
		const uint8_t before = l->stamp;

		l->stamp++;
		while (!arrived(l, l->sent + 1)) {
			publish(w);
			if (heard_all(w)) {
				l->stamp = before;
				return 0;
			}
			if (reap(w, &idle))
				return -1;
		}
		if (w->test->p.op == PERF_WRITE)
			l->received++;
		if (send_now(l))
			return -1;
	}
}

int perf_work(struct perf_worker *w)
{
	struct perf_test *t = w->test;

	for (struct perf_link *l = perf_first(w); l; l = perf_next(l)) {
		l->to_send = t->each;
		l->sent = l->received = l->done = 0;
		l->fencing = l->fenced = false;
	}
	publish(w);
	if (!t->p.latency)
		return stream(w);
	return t->active ? ping(w, perf_first(w)) : pong(w, perf_first(w));
}
