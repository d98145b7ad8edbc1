/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A peer is killed at a random moment, many times: while it connects, while it sends, while it only
 * waits; or it is told to end and does so without destroying anything; or it leaves a forked child
 * behind, which has all its descriptors. The survivor must learn of it, while that child lives, by a
 * completion or by an event, whether it polls or sleeps; and must be able to destroy all it has. Built with
 * AddressSanitizer, it leaks nothing.
 *
 *	test_kill [--rounds N] [--seed N]
 *	test_kill --victim listens|asks SEED PORT
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "peer.h"

#define LIMIT 60.0 /* a dead peer that is unnoticed for so long stays so */

extern char **environ;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static volatile sig_atomic_t told;

static void on_term(int sig)
{
	(void)sig;
	told = 1;
}

/* It sees its parent's sockets no more, or the peer would wait for it. It lives until the round is over. */
static void leave_child(void)
{
	char end;

	if (fork())
		return;
	_exit(read(STDIN_FILENO, &end, 1) != 0);
}

static int victim(bool listens, uint64_t seed, uint16_t port)
{
	struct peer p = {.seed = seed};
	bool sleeps = seed & 1, forks = seed % 16 < 4;

	signal(SIGTERM, on_term);

	if (listens ? peer_listen(&p, port) : peer_ask(&p, port))
		return 1;
	/* The survivor waits for this, so that what is killed is a peer and no loader. */
	if (write(STDOUT_FILENO, "!", 1) != 1)
		return 1;
	while (!told) {
		peer_events(&p);
		peer_traffic(&p);
		if (p.connected && forks) {
			leave_child();
			forks = false;
		}
		if (sleeps)
			peer_sleep(&p, 100);
	}
	return 0;
}

/* until: its standard input, which ends when the round does. */
static pid_t spawn(const char *self, bool listens, uint64_t seed, uint16_t port, int until)
{
	char a[32], b[32], ready;
	char *argv[] = {(char *)(uintptr_t)self,
			(char *)(uintptr_t) "--victim",
			(char *)(uintptr_t)(listens ? "listens" : "asks"),
			a,
			b,
			NULL};
	posix_spawn_file_actions_t f;
	int fd[2];
	pid_t pid;

	snprintf(a, sizeof a, "%llu", (unsigned long long)seed);
	snprintf(b, sizeof b, "%u", port);
	if (pipe2(fd, O_CLOEXEC))
		return -1;
	posix_spawn_file_actions_init(&f);
	posix_spawn_file_actions_adddup2(&f, fd[1], STDOUT_FILENO);
	posix_spawn_file_actions_adddup2(&f, until, STDIN_FILENO);
	if (posix_spawn(&pid, self, &f, NULL, argv, environ))
		pid = -1;
	posix_spawn_file_actions_destroy(&f);
	close(fd[1]);
	if (pid > 0 && read(fd[0], &ready, 1) != 1) {
		kill(pid, SIGKILL);
		pid = -1;
	}
	close(fd[0]);
	return pid;
}

struct tally {
	unsigned int connected, unconnected;
	uint64_t done;
	double worst;
};

/* 0, or 1 and a sentence. until: an end of a pipe that those who outlive the victim wait for. */
static int play(const char *self, unsigned int n, uint64_t seed, int until, struct tally *t)
{
	struct peer p = {.seed = seed | 1};
	bool listens = n % 2, sleeps = n / 2 % 2, waits;
	uint16_t port = (uint16_t)(20000 + n);
	double killed_at = 0, at;
	bool killed = false;
	pid_t pid = -1;
	int left;

	peer_random(&p);
	if (listens && peer_listen(&p, port))
		return 1;
	pid = spawn(self, !listens, peer_random(&p) | (n / 4 % 2), port, until);
	at = now() + (double)(peer_random(&p) % 20000) / 1e6;
	/* Two of three are killed when there is traffic, the others while they connect, perhaps. */
	waits = n % 3 != 0;
	if (pid < 0 || (!listens && peer_ask(&p, port)))
		return 1;
	while (!p.ended && (!killed || now() - killed_at < LIMIT)) {
		peer_events(&p);
		peer_traffic(&p);
		if (sleeps)
			peer_sleep(&p, killed ? 100 : 1);
		if (waits && p.connected) {
			at = now() + (double)(peer_random(&p) % 20000) / 1e6;
			waits = false;
		}
		if (!killed && !waits && now() >= at) {
			kill(pid, n % 4 == 3 ? SIGTERM : SIGKILL);
			killed = true;
			killed_at = now();
		}
		/* A request that never came can't end. */
		if (killed && listens && !p.id && now() - killed_at > 0.2)
			break;
	}
	if (killed && p.ended && now() - killed_at > t->worst)
		t->worst = now() - killed_at;
	if (!killed)
		kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	if (p.connected)
		t->connected++;
	else
		t->unconnected++;
	t->done += p.done;
	if (killed && !p.ended && p.id)
		return fprintf(stderr, "round %u: nothing was said of the peer's death\n", n), 1;
	if (!killed && p.connected)
		return fprintf(stderr, "round %u: it ended before the peer was killed\n", n), 1;
	left = peer_close(&p);
	if (left)
		return fprintf(stderr, "round %u: %d objects are left\n", n, left), 1;
	return 0;
}

static int one_round(const char *self, unsigned int n, uint64_t seed, struct tally *t)
{
	int until[2], bad;

	if (pipe2(until, O_CLOEXEC))
		return 1;
	bad = play(self, n, seed, until[0], t);
	close(until[0]);
	close(until[1]);
	return bad;
}

int main(int argc, char **argv)
{
	unsigned int rounds = 200, bad = 0;
	uint64_t seed = 20261129;
	struct tally t = {0};
	char world[64];

	if (argc == 5 && !strcmp(argv[1], "--victim"))
		return victim(!strcmp(argv[2], "listens"), strtoull(argv[3], NULL, 10),
			      (uint16_t)atoi(argv[4]));
	for (int i = 1; i + 1 < argc; i += 2)
		if (!strcmp(argv[i], "--rounds"))
			rounds = (unsigned int)atoi(argv[i + 1]);
		else if (!strcmp(argv[i], "--seed"))
			seed = strtoull(argv[i + 1], NULL, 10);
	snprintf(world, sizeof world, "kill%d", getpid());
	setenv("SGP_SOFTVERBS_WORLD", world, 1);
	for (unsigned int n = 0; n < rounds && bad < 5; n++)
		bad += (unsigned int)one_round("/proc/self/exe", n, seed * 2654435761u + n * 7919u,
					       &t);
	printf("%u rounds: %u connected, %u not yet; %llu operations; noticed within %.3f s\n",
	       rounds, t.connected, t.unconnected, (unsigned long long)t.done, t.worst);
	return bad || !t.connected || !t.done;
}
