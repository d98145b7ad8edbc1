/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sgpool-nvmf-target: files and block devices for NVMe over RDMA hosts. This file has the beginning and
 * the end.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "loop.h"
#include "options.h"
#include "server.h"
#include "threads.h"

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
			stats_report(t);
			stats_write(t, true);
		} else {
			threads_stop(t->common);
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

/* ---- the beginning and the end ---- */

static int open_namespaces(struct common *c)
{
	const uint32_t n = c->opt->nns;

	c->ns = calloc(n, sizeof *c->ns);
	c->limits = calloc(n, sizeof *c->limits);
	if (!c->ns || !c->limits)
		return fail_sys("memory");
	for (uint32_t i = 0; i < n; i++)
		c->ns[i].fd = -1;
	for (uint32_t i = 0; i < n; i++)
		if (ns_open(&c->opt->ns[i], c->opt->nqn, &c->ns[i], &c->limits[i]))
			return -1;
	return 0;
}

static void close_namespaces(struct common *c)
{
	for (uint32_t i = 0; c->ns && i < c->opt->nns; i++)
		ns_close(&c->ns[i]);
	free(c->ns);
	free(c->limits);
}

static int run(struct target *t)
{
	if (watch_signals(t) || server_open(t) || threads_start(t->common))
		return -1;
	printf("listening on %s port %u as %s\n", t->opt->listen.host, t->opt->listen.port,
	       t->opt->nqn);
	fflush(stdout);
	loop_serve(t);
	return 0;
}

static int run_threads(struct common *c)
{
	int ret;

	if (threads_init(c))
		return -1;
	ret = uring_open(&c->thread->uring);
	if (!ret) {
		ret = run(c->thread);
		if (threads_close(c->thread))
			ret = -1;
	}
	return threads_end(c) ? -1 : ret;
}

int main(int argc, char **argv)
{
	static struct options opt;
	static struct common common;
	int ret = options_parse(argc, argv, &opt);

	if (ret)
		return ret < 0 ? 0 : ret;
	common.opt = &opt;
	ret = open_namespaces(&common) || run_threads(&common);
	close_namespaces(&common);
	return ret ? 1 : 0;
}
