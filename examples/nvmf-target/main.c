/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sgpool-nvmf-target: files and block devices for NVMe over RDMA hosts. This file has the beginning,
 * the loop, and the end.
 *
 * The loop's turn: completions of the devices, completions of the ring, commands whose memory has come,
 * then one doorbell for each queue that has posted something and one system call for all file
 * operations. When a turn finds nothing, the completion queues are armed, looked at once more, and the
 * ring is slept on: it watches everything else.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "cli/clock.h"
#include "ctrl.h"
#include "options.h"
#include "queue.h"
#include "server.h"
#include "target.h"

#define SECOND ((int64_t)1000000000)
#define TICK   (SECOND / 10)
#define STOP   (10 * SECOND) /* for what is in flight, once it is to end */

int fail_sgp(const char *what)
{
	fprintf(stderr, "sgpool-nvmf-target: %s: %s\n", what, sgp_errmsg());
	return -1;
}

int fail_sys(const char *what)
{
	fprintf(stderr, "sgpool-nvmf-target: %s: %s\n", what, strerror(errno));
	return -1;
}

/* ---- signals ---- */

static void signal_ready(struct uring_watch *watch)
{
	struct target *t = watch->owner;
	struct signalfd_siginfo info;

	while (read(watch->fd, &info, sizeof info) == sizeof info) {
		if (info.ssi_signo == SIGUSR1) {
			stats_write(t, true);
		} else if (!t->stopping) {
			t->stopping = true;
			t->stop_at = t->now + STOP;
			server_stop(t);
		}
	}
	uring_watch(&t->uring, watch);
}

static int watch_signals(struct target *t)
{
	sigset_t set;
	int fd;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGUSR1);
	if (sigprocmask(SIG_BLOCK, &set, NULL))
		return fail_sys("sigprocmask");
	fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	if (fd < 0)
		return fail_sys("signalfd");
	t->signals = (struct uring_watch){.fd = fd, .ready = signal_ready, .owner = t};
	uring_watch(&t->uring, &t->signals);
	return 0;
}

/* ---- the loop ---- */

static void tick(struct target *t)
{
	static int64_t next_stats;

	if (t->now < t->next_tick)
		return;
	t->next_tick = t->now + TICK;
	ctrl_tick(t);
	if (t->now >= next_stats) {
		next_stats = t->now + SECOND;
		stats_write(t, false);
	}
}

/* Never a system call. */
static int64_t coarse_clock(void)
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

	t->now = coarse_clock();
	t->stamp = 0;
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

/* Until a signal, and what was in flight then has been answered. */
static int serve(struct target *t)
{
	while (!t->stopping || (t->in_flight && t->now < t->stop_at)) {
		int n = turn(t);

		if (n < 0 || (n == 0 && sleep_on_ring(t)))
			return -1;
	}
	while (t->queues) {
		end_queues(t);
		if (turn(t) < 0)
			return -1;
		uring_sleep(&t->uring, SECOND / 1000);
	}
	return 0;
}

/* ---- the beginning and the end ---- */

static int open_namespaces(struct target *t)
{
	const uint32_t n = t->opt->nns;

	t->ns = calloc(n, sizeof *t->ns);
	t->limits = calloc(n, sizeof *t->limits);
	if (!t->ns || !t->limits)
		return fail_sys("memory");
	for (uint32_t i = 0; i < n; i++)
		t->ns[i].fd = -1;
	for (uint32_t i = 0; i < n; i++)
		if (ns_open(&t->opt->ns[i], t->opt->nqn, &t->ns[i], &t->limits[i]))
			return -1;
	return 0;
}

static void close_namespaces(struct target *t)
{
	for (uint32_t i = 0; t->ns && i < t->opt->nns; i++)
		ns_close(&t->ns[i]);
	free(t->ns);
	free(t->limits);
}

static int run(struct target *t)
{
	if (watch_signals(t) || server_open(t))
		return -1;
	printf("listening on %s port %u as %s\n", t->opt->listen.host, t->opt->listen.port,
	       t->opt->nqn);
	fflush(stdout);
	return serve(t);
}

int main(int argc, char **argv)
{
	static struct options opt;
	static struct target target;
	struct target *t = &target;
	int ret = options_parse(argc, argv, &opt);

	if (ret)
		return ret < 0 ? 0 : ret;
	t->opt = &opt;
	t->now = t->started = coarse_clock();
	budget_init(&t->budget, opt.memory);
	ret = open_namespaces(t);
	if (!ret && uring_open(&t->uring) == 0) {
		ret = run(t);
		stats_write(t, opt.stats != NULL);
		if (server_close(t) || budget_end(&t->budget))
			ret = -1;
		uring_close(&t->uring);
	} else {
		ret = -1;
	}
	close_namespaces(t);
	return ret ? 1 : 0;
}
