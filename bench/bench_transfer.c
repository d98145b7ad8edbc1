/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What it costs to move messages between two processes: sgpool against verbs with one static buffer,
 * against registering each message, rsockets and TCP, over the same link. See transfer.h.
 *
 * It runs on whatever libibverbs finds; the address of the far end is SGP_BENCH_ADDR (127.0.0.1). In
 * the machine:
 *
 *	scripts/vm --wire -- env SGP_BENCH_ADDR=10.0.0.2 build/release/bench/bench_transfer
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "transfer.h"

enum {
	SIZE_LEAST = 64,
	DEPTH_MOST = 64,
	DEPTH_LEAST = 8,
	BYTES_ON_THE_WAY = 4 << 20, /* about, for large messages */
};

static const struct transfer_way *const ways[] = {
	&transfer_sgpool, &transfer_raw, &transfer_ring, &transfer_register, &transfer_rsocket,
	&transfer_tcp,    NULL};
static const char *const kinds[] = {[TRANSFER_STREAM] = "stream",
				    [TRANSFER_SLEEPS] = "sleeps",
				    [TRANSFER_PINGPONG] = "pingpong"};

void transfer_die(const char *what)
{
	fprintf(stderr, "bench_transfer: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t cpu_ns(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return ((uint64_t)u.ru_utime.tv_sec + (uint64_t)u.ru_stime.tv_sec) * 1000000000 +
	       ((uint64_t)u.ru_utime.tv_usec + (uint64_t)u.ru_stime.tv_usec) * 1000;
}

static struct transfer make_transfer(const char *kind, size_t size)
{
	const char *addr = getenv("SGP_BENCH_ADDR");
	size_t depth = BYTES_ON_THE_WAY / size;
	struct transfer t = {.size = size, .addr = addr ? addr : "127.0.0.1"};

	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (!strcmp(kind, kinds[i]))
			t.kind = (enum transfer_case)i;
	depth = depth < DEPTH_LEAST ? DEPTH_LEAST : depth > DEPTH_MOST ? DEPTH_MOST : depth;
	t.depth = (uint32_t)depth;
	return t;
}

static void work(const struct transfer_way *way, const struct transfer *t, void *end, size_t n)
{
	if (t->kind == TRANSFER_PINGPONG)
		way->pingpong(end, n);
	else
		way->stream(end, n);
}

/* ---- the peer ---- */

void transfer_tell_port(const struct transfer *t, uint16_t port)
{
	if (write(t->control, &port, sizeof port) != sizeof port)
		transfer_die("control socket");
}

/* --peer WAY CASE SIZE FD: the passive end, until the control socket ends. */
static int peer_main(char **argv)
{
	struct transfer t = make_transfer(argv[1], strtoul(argv[2], NULL, 10));
	const struct transfer_way *way = NULL;
	uint64_t n, before, took;
	void *end;

	t.passive = true;
	t.control = atoi(argv[3]);
	for (int i = 0; ways[i]; i++)
		if (!strcmp(ways[i]->name, argv[0]))
			way = ways[i];
	end = way ? way->open(&t) : NULL;
	if (!end)
		return 1;
	while (read(t.control, &n, sizeof n) == sizeof n) {
		before = cpu_ns();
		work(way, &t, end, n);
		took = cpu_ns() - before;
		if (write(t.control, &took, sizeof took) != sizeof took)
			break;
	}
	way->close(end);
	return 0;
}

/* ---- a contender ---- */

struct state {
	const struct transfer_way *way;
	struct transfer t;
	void *end;
	pid_t pid; /* the peer */
	int control;
	uint64_t cpu; /* ns that all runs took, at both ends */
};

static void start_peer(struct state *s, const char *kind)
{
	char size[32], fd[16];
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		transfer_die("socketpair");
	s->control = pair[0];
	s->pid = fork();
	if (s->pid < 0)
		transfer_die("fork");
	if (s->pid == 0) {
		snprintf(size, sizeof size, "%zu", s->t.size);
		snprintf(fd, sizeof fd, "%d", pair[1]);
		fcntl(pair[1], F_SETFD, 0);
		execl("/proc/self/exe", "bench_transfer", "--peer", s->way->name, kind, size, fd,
		      (char *)NULL);
		_exit(127);
	}
	close(pair[1]);
}

static void teardown(void *arg)
{
	struct state *s = arg;

	close(s->control); /* the peer ends at that */
	if (s->end)
		s->way->close(s->end);
	else
		kill(s->pid, SIGKILL); /* it waits for us to connect */
	waitpid(s->pid, NULL, 0);
	free(s);
}

static void *setup(const struct transfer_way *way, const char *kind, size_t size)
{
	struct state *s = calloc(1, sizeof *s);
	char why[128];

	if (!s || size < SIZE_LEAST) {
		bench_missing(way->name, "a message has 64 bytes at least");
		free(s);
		return NULL;
	}
	*s = (struct state){.way = way, .t = make_transfer(kind, size)};
	start_peer(s, kind);
	if (read(s->control, &s->t.port, sizeof s->t.port) != sizeof s->t.port) {
		bench_missing(way->name, "its far end can't listen here");
	} else {
		s->end = way->open(&s->t);
		snprintf(why, sizeof why, "can't connect: %s", strerror(errno));
		if (s->end)
			return s;
		bench_missing(way->name, why);
	}
	teardown(s);
	return NULL;
}

static void run(void *arg, size_t n)
{
	struct state *s = arg;
	const uint64_t count = n, before = cpu_ns();
	uint64_t theirs;

	if (write(s->control, &count, sizeof count) != sizeof count)
		transfer_die("control socket");
	work(s->way, &s->t, s->end, n);
	if (read(s->control, &theirs, sizeof theirs) != sizeof theirs)
		transfer_die("the far end is gone");
	s->cpu += cpu_ns() - before + theirs;
}

static double cpu(void *arg)
{
	return (double)((struct state *)arg)->cpu;
}

#define SETUP(way)                                                                                 \
	static void *setup_##way(const char *kind, size_t size)                                    \
	{                                                                                          \
		return setup(&transfer_##way, kind, size);                                         \
	}
SETUP(sgpool)
SETUP(raw)
SETUP(ring)
SETUP(register)
SETUP(rsocket)
SETUP(tcp)

#define CONTENDER(way, title, is_ours)                                                             \
	{                                                                                          \
		.name = title, .ours = is_ours, .setup = setup_##way, .run = run,                  \
		.teardown = teardown, .cpu = cpu                                                   \
	}

static const struct bench_contender contenders[] = {CONTENDER(sgpool, "sgpool", true),
						    CONTENDER(raw, "raw", false),
						    CONTENDER(ring, "ring", false),
						    CONTENDER(register, "register", false),
						    CONTENDER(rsocket, "rsockets", false),
						    CONTENDER(tcp, "tcp", false),
						    {0}};

static const struct bench_case cases[] = {
	{.name = "stream", .moves = true, .contenders = contenders},
	{.name = "sleeps", .moves = true, .contenders = contenders},
	{.name = "pingpong", .contenders = contenders},
	{0}};
static const size_t sizes[] = {64, 1024, 4096, 16384, 65536, 262144, 1048576, 0};

int main(int argc, char **argv)
{
	static const struct bench bench = {
		.name = "bench_transfer",
		.about =
			"Messages between two processes, one way (stream; sleeps: who has nothing\n"
			"to do sleeps) or to and fro (pingpong: a round trip). raw: verbs with "
			"one\n"
			"static buffer; ring: with one for each message on its way; register: "
			"each\n"
			"message registered. SGP_BENCH_ADDR is the far end's address "
			"(127.0.0.1).\n",
		.cases = cases,
		.sizes = sizes,
		.slice_ms = 100,
	};

	signal(SIGPIPE, SIG_IGN);
	if (argc == 6 && !strcmp(argv[1], "--peer"))
		return peer_main(argv + 2);
	return bench_main(&bench, argc, argv);
}
