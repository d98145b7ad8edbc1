/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A thread's loop (see loop.h). Its turn: completions of the devices, completions of the ring, commands
 * whose memory has come, then one doorbell for each queue that has posted something and one system call
 * for all file operations. When a turn finds nothing, the completion queues are armed, looked at once
 * more, and the ring is slept on: it watches everything else.
 */
#include <stdio.h>
#include <time.h>

#include "cli/clock.h"
#include "ctrl.h"
#include "loop.h"
#include "queue.h"
#include "server.h"
#include "threads.h"

#define SECOND ((int64_t)1000000000)
#define TICK   (SECOND / 10)
#define STOP   (10 * SECOND) /* for what is in flight, once it is to end */

static void tick(struct target *t)
{
	static int64_t next_stats; /* thread 0's */

	if (t->now < t->next_tick)
		return;
	t->next_tick = t->now + TICK;
	stats_report(t);
	if (t->index)
		return;
	ctrl_tick(t);
	if (t->now >= next_stats) {
		next_stats = t->now + SECOND;
		stats_write(t, false);
	}
}

int64_t loop_clock(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return now.tv_sec * SECOND + now.tv_nsec;
}

int64_t target_stamp(struct target *t)
{
	if (!t->stamp)
		t->stamp = clock_ns();
	return t->stamp;
}

/* Returns how much there was to do; -1. */
static int turn(struct target *t)
{
	int n;

	t->now = loop_clock();
	t->stamp = 0;
	if (atomic_load_explicit(&t->mail, memory_order_relaxed))
		server_mail(t);
	n = server_poll(t);
	if (n < 0)
		return -1;
	uring_submit(&t->uring);
	t->stamp = 0; /* a fast disk is through already */
	n += uring_handle(&t->uring);
	n += budget_run(&t->budget);
	queue_submit(t);
	n += queue_reap(t);
	tick(t);
	return n;
}

static int sleep_on_ring(struct target *t)
{
	int n;

	uring_watch(&t->uring, &t->wake);
	if (t->index == 0)
		uring_watch(&t->uring, &t->signals);
	if (server_arm(t))
		return -1;
	n = turn(t); /* what came before they were armed wakes nobody */
	if (n)
		return n < 0 ? -1 : 0;
	uring_sleep(&t->uring, t->next_tick > t->now ? t->next_tick - t->now : 0);
	return 0;
}

static void end_queues(struct target *t)
{
	for (struct queue *q = t->queues; q; q = q->next)
		queue_end(q, NULL);
}

static void stop(struct target *t)
{
	if (!t->stopping) {
		t->stopping = true;
		t->stop_at = t->now + STOP;
		server_stop(t);
	}
	if (!t->in_flight)
		threads_drained(t);
}

/* Until all are to end, and what was in flight then, of any thread, has been answered. */
static int serve(struct target *t)
{
	struct common *c = t->common;

	while (!t->stopping || (atomic_load(&c->busy) && t->now < t->stop_at)) {
		int n = turn(t);

		if (n < 0 || (n == 0 && sleep_on_ring(t)))
			return -1;
		if (atomic_load_explicit(&c->stopping, memory_order_relaxed))
			stop(t);
	}
	while (t->queues) {
		end_queues(t);
		if (turn(t) < 0)
			return -1;
		uring_sleep(&t->uring, SECOND / 1000);
	}
	return 0;
}

void loop_serve(struct target *t)
{
	struct common *c = t->common;

	if (serve(t)) {
		atomic_store(&c->failed, true);
		threads_stop(c);
		threads_drained(t); /* as far as it could */
	}
	stats_report(t);
	pthread_barrier_wait(&c->ended);
	if (t->index == 0)
		stats_write(t, t->opt->stats != NULL);
	pthread_barrier_wait(&c->ended);
}
