/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs every behaviour, prints one line for each, and compares them with what the real provider
 * said.
 *
 *	conformance [--addr IP] [--device NAME] [--patience PERCENT] [--jobs N]
 *	            [--expect FILE [--differences FILE]] [NAME...]
 *
 * N behaviours at once (1), which mostly wait for what is not to come.
 *
 * FILE holds lines as printed here. With --expect the exit status is 1 if a line differs that the
 * differences file doesn't name, or if that file names one that doesn't differ.
 */
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cf.h"

#define LINE    2048
#define SECONDS 90 /* a behaviour that takes so long hangs */

static void open_device(void)
{
	cf.ctx = cf_open();
	cf_need(cf.ctx && !ibv_query_device(cf.ctx, &cf.dev) &&
			!ibv_query_port(cf.ctx, 1, &cf.port),
		"open_device");
	cf.pd = ibv_alloc_pd(cf.ctx);
	cf_need(cf.pd != NULL, "alloc_pd");
	cf.iwarp = cf.ctx->device->transport_type == IBV_TRANSPORT_IWARP;
}

static const struct behaviour *running;

static void run(void)
{
	open_device();
	running->run();
}

static void child(const struct behaviour *b, int fd)
{
	dup2(fd, STDOUT_FILENO);
	alarm(SECONDS);
	running = b;
	cf.ports = (uint16_t)(7500 + (b - behaviours));
#ifdef CF_TWO
	cf_two(run);
#endif
	run();
	fflush(stdout);
	_exit(0);
}

/* A behaviour under way: a process whose line comes through a pipe, which has room for all of it. */
struct observer {
	pid_t pid;
	int fd;
};

static struct observer begin(const struct behaviour *b)
{
	struct observer o;
	int fd[2];

	fflush(stdout);
	if (pipe(fd) || (o.pid = fork()) < 0) {
		perror("conformance");
		exit(2);
	}
	if (!o.pid) {
		close(fd[0]);
		child(b, fd[1]);
	}
	close(fd[1]);
	o.fd = fd[0];
	return o;
}

/* Its line, without its name. */
static void end(struct observer o, char *line)
{
	size_t n = 0;
	ssize_t got;
	int status;

	while (n < LINE - 64 && (got = read(o.fd, line + n, LINE - 64 - n)) > 0)
		n += (size_t)got;
	close(o.fd);
	waitpid(o.pid, &status, 0);
	line[n] = '\0';
	if (WIFSIGNALED(status))
		strcat(line, WTERMSIG(status) == SIGALRM ? " HANGS" : " CRASHES");
	else if (WEXITSTATUS(status))
		strcat(line, " EXITS");
}

/* The line that begins with "name:" in the file's text, copied without it; false: none. */
static bool lookup(const char *text, const char *name, char *line)
{
	size_t len = strlen(name);

	for (const char *p = text; p && *p; p = strchr(p, '\n'), p = p ? p + 1 : NULL)
		if (!strncmp(p, name, len) && p[len] == ':') {
			size_t n = strcspn(p + len + 1, "\n");

			memcpy(line, p + len + 1, n < LINE - 1 ? n : LINE - 1);
			line[n < LINE - 1 ? n : LINE - 1] = '\0';
			return true;
		}
	return false;
}

static char *slurp(const char *path)
{
	FILE *f = fopen(path, "r");
	char *text = calloc(1, 1 << 20);

	if (!f || !text) {
		perror(path);
		exit(2);
	}
	text[fread(text, 1, (1 << 20) - 1, f)] = '\0';
	fclose(f);
	return text;
}

static bool wanted(const char *name, char **names)
{
	if (!*names)
		return true;
	for (; *names; names++)
		if (!strcmp(name, *names))
			return true;
	return false;
}

/* 1 if this line is not as it should be. */
static int judge(const char *name, const char *line, const char *expected, const char *differences)
{
	char want[LINE], reason[LINE];
	bool listed = differences && lookup(differences, name, reason);

	if (!lookup(expected, name, want)) {
		printf("  NOT EXPECTED: no such line\n");
		return 1;
	}
	if (strcmp(line, want) && !listed)
		printf("  EXPECTED:%s\n", want);
	else if (!strcmp(line, want) && listed)
		printf("  LISTED AS A DIFFERENCE, BUT THERE IS NONE:%s\n", reason);
	else
		return 0;
	return 1;
}

static int usage(void)
{
	fprintf(stderr, "usage: conformance [--addr IP] [--device NAME] [--patience PERCENT] "
			"[--jobs N] [--expect FILE [--differences FILE]] [NAME...]\n");
	return 2;
}

int main(int argc, char **argv)
{
	char *expected = NULL, *differences = NULL, line[LINE];
	const char *addr = "127.0.0.1";
	int i, wrong = 0, ran = 0, begun = 0, jobs = 1;
	struct observer *observers;

	for (i = 1; i < argc && !strncmp(argv[i], "--", 2); i += 2) {
		if (i + 1 == argc)
			return usage();
		if (!strcmp(argv[i], "--addr"))
			addr = argv[i + 1];
		else if (!strcmp(argv[i], "--device"))
			setenv("CF_DEVICE", argv[i + 1], 1);
		else if (!strcmp(argv[i], "--patience"))
			cf_patience = atoi(argv[i + 1]);
		else if (!strcmp(argv[i], "--jobs"))
			jobs = atoi(argv[i + 1]);
		else if (!strcmp(argv[i], "--expect"))
			expected = slurp(argv[i + 1]);
		else if (!strcmp(argv[i], "--differences"))
			differences = slurp(argv[i + 1]);
		else
			return usage();
	}
	cf.addr.sin_family = AF_INET;
	if (inet_pton(AF_INET, addr, &cf.addr.sin_addr) != 1 || jobs < 1)
		return usage();
	observers = calloc((size_t)num_behaviours, sizeof *observers);
	if (!observers)
		return 2;
	for (int k = 0; k < num_behaviours; k++) {
		if (!wanted(behaviours[k].name, argv + i))
			continue;
		for (; begun < num_behaviours && begun < k + jobs; begun++)
			if (wanted(behaviours[begun].name, argv + i))
				observers[begun] = begin(&behaviours[begun]);
		end(observers[k], line);
		printf("%s:%s\n", behaviours[k].name, line);
		if (expected)
			wrong += judge(behaviours[k].name, line, expected, differences);
		ran++;
	}
	if (expected)
		printf("%d behaviours, %d not as expected\n", ran, wrong);
	free(observers);
	free(expected);
	free(differences);
	return !ran || wrong;
}
