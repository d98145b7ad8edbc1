/* SPDX-License-Identifier: BSD-2-Clause */
/* sgpool-broker: the program. Everything begins here, and ends in the opposite order. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cli/signals.h"
#include "listen.h"
#include "listen_rdma.h"
#include "options.h"
#include "stats.h"

struct program {
	struct options options;
	struct broker broker;
	struct listener tcp, stats;
	struct rdma_door rdma;
	struct loop_fd signals;
};

static void close_listeners(struct program *p)
{
	listener_close(&p->tcp);
	listener_close(&p->stats);
	rdma_door_close(&p->rdma);
}

static void signalled(struct loop_fd *fd, uint32_t events)
{
	struct program *p = (struct program *)((char *)fd - offsetof(struct program, signals));

	(void)events;
	if (!signals_next(fd->fd))
		return;
	close_listeners(p);
	broker_stop(&p->broker);
}

static int open_listeners(struct program *p)
{
	const struct options *o = &p->options;

	if (o->tcp && listener_open(&p->tcp, &p->broker, &o->tcp_addr, "MQTT", listener_client))
		return -1;
	if (o->rdma && rdma_door_open(&p->rdma, &p->broker, &o->rdma_addr))
		return -1;
	if (o->stats &&
	    listener_open(&p->stats, &p->broker, &o->stats_addr, "statistics", stats_client))
		return -1;
	return 0;
}

/* A descriptor for each client. */
static void raise_limit(void)
{
	struct rlimit limit;

	if (!getrlimit(RLIMIT_NOFILE, &limit)) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit); /* or as many as there may be */
	}
}

static int run(struct program *p)
{
	struct loop *loop = p->broker.shards[0].loop;

	p->signals = (struct loop_fd){.ready = signalled, .fd = signals_open()};
	if (p->signals.fd < 0 || loop_add(loop, &p->signals, EPOLLIN)) {
		fprintf(stderr, "sgpool-broker: signals: %s\n", strerror(errno));
		return -1;
	}
	if (open_listeners(p))
		return -1;
	if (broker_start(&p->broker)) {
		fprintf(stderr, "sgpool-broker: no threads: %s\n", strerror(errno));
		broker_stop(&p->broker); /* those that there are */
		return -1;
	}
	if (!loop_run(loop))
		return 0;
	fprintf(stderr, "sgpool-broker: %s\n", strerror(errno));
	_exit(1);
}

int main(int argc, char **argv)
{
	static struct program p;
	int status;

	options_read(&p.options, argc, argv);
	raise_limit();
	if (broker_open(&p.broker, &p.options.settings)) {
		fprintf(stderr, "sgpool-broker: no memory: %s\n", sgp_errmsg());
		return 1;
	}
	status = run(&p) ? 1 : 0;
	close_listeners(&p);
	if (p.signals.fd > 0)
		close(p.signals.fd);
	if (broker_close(&p.broker)) {
		fprintf(stderr, "sgpool-broker: messages were lost: %s\n", sgp_errmsg());
		status = 1;
	}
	return status;
}
