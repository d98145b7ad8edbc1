/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sgpool softverbs: runs a program on softverbs, the RDMA device in software.
 *
 * The program gets the library by LD_PRELOAD and what it shall be by SGP_SOFTVERBS_*. What is asked
 * for is tried on the library itself first (softlib.c), so that a wrong word is wrong use here and
 * not something that the program dies of.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/out.h"
#include "cli/softlib.h"

/* As env(1) and the shell say it. */
enum {
	EXIT_NOT_RUN = 126,
	EXIT_NOT_FOUND = 127,
};

/* The environment's part that is ours. */
enum {
	PRELOAD,
	DEVICES,
	FAULTS,
	STRICT,
	NET,
	WORLD,
	VARIABLES
};
static const char *const variable[VARIABLES] = {
	"LD_PRELOAD",           "SGP_SOFTVERBS_DEVICES", "SGP_SOFTVERBS_FAULTS",
	"SGP_SOFTVERBS_STRICT", "SGP_SOFTVERBS_NET",     "SGP_SOFTVERBS_WORLD",
};

/* value[i] becomes before, by, text one after the other, or text alone if nothing is before it. */
static void join(const struct cli_command *self, const char *value[VARIABLES], int i,
		 const char *before, const char *by, const char *text)
{
	static char *made[VARIABLES];
	char *all;

	before = before && *before ? before : NULL;
	if (asprintf(&all, "%s%s%s", before ? before : "", before ? by : "", text) < 0) {
		cli_error(self->name, "%s", strerror(ENOMEM));
		exit(CLI_FAILED);
	}
	free(made[i]);
	made[i] = all;
	value[i] = all;
}

/* A name is part of a socket's, which has room for 107 characters. */
#define WORLD_MAX 48

/* What is wrong with it; NULL: nothing. */
static const char *wrong_net(const char *net)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	const char *why = NULL;
	int fd;

	if (!*net || !strcmp(net, "local") || !strcmp(net, "none"))
		return NULL;
	if (inet_pton(AF_INET, net, &at.sin_addr) != 1)
		return "is neither local, none nor an IPv4 address";
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at))
		why = errno == EADDRNOTAVAIL ? "is no address of this machine" : strerror(errno);
	if (fd >= 0)
		close(fd);
	return why;
}

/* What was asked for must be what the library understands; on return value[PRELOAD] is set. */
static void check(const struct cli_command *self, const char *value[VARIABLES])
{
	static struct softlib lib; /* of some size */
	const char *wrong, *others = getenv(variable[PRELOAD]);

	/* The library is asked about our words, not about what it finds in the environment. */
	for (int i = DEVICES; i < VARIABLES; i++)
		if (unsetenv(variable[i]))
			exit(CLI_FAILED);
	if (softlib_open(&lib)) {
		cli_error(self->name, "%s", lib.why);
		exit(CLI_FAILED);
	}
	if (value[DEVICES] && lib.devices(value[DEVICES], &wrong))
		cli_usage(self,
			  "'%.*s' is no device that there can be: NAME=PERSONALITY or "
			  "NAME=PERSONALITY:PORTS, with a personality that --help lists",
			  (int)strcspn(wrong, ", \n"), wrong);
	wrong = value[NET] ? wrong_net(value[NET]) : NULL;
	if (wrong)
		cli_usage(self, "--net '%s' %s", value[NET], wrong);
	if (value[WORLD] && strlen(value[WORLD]) > WORLD_MAX)
		cli_usage(self, "the world's name has more than %d characters", WORLD_MAX);
	if (value[FAULTS] && lib.faults(value[FAULTS], &wrong))
		cli_usage(self, "fault '%s' is not understood %s%.*s%s", value[FAULTS],
			  *wrong ? "at '" : "at its end", (int)strcspn(wrong, " \t;\n"), wrong,
			  *wrong ? "'" : "");
	/* First, so that nobody else's calls of the same names come before it. */
	value[PRELOAD] = lib.path;
	if (others && *others)
		join(self, value, PRELOAD, lib.path, " ", others);
}

/* A word that the shell takes for value. */
static void print_quoted(const char *value)
{
	putchar('\'');
	for (; *value; value++)
		if (*value == '\'')
			fputs("'\\''", stdout);
		else
			putchar(*value);
	putchar('\'');
}

static int print_environment(const struct cli_command *self, const char *value[VARIABLES],
			     bool json)
{
	struct out out;

	if (json)
		out_open(&out, stdout, true);
	for (int i = 0; i < VARIABLES; i++) {
		if (!value[i])
			continue;
		if (json) {
			out_str(&out, variable[i], NULL, value[i]);
			continue;
		}
		printf("export %s=", variable[i]);
		print_quoted(value[i]);
		putchar('\n');
	}
	if (json)
		out_close(&out);
	return cli_finish(self->name, CLI_OK);
}

static int become(const struct cli_command *self, const char *value[VARIABLES], char **command)
{
	int err;

	for (int i = 0; i < VARIABLES; i++)
		if (value[i] && setenv(variable[i], value[i], 1)) {
			cli_error(self->name, "%s", strerror(errno));
			return CLI_FAILED;
		}
	execvp(*command, command);
	err = errno;
	cli_error(self->name, "%s: can't be run: %s", *command, strerror(err));
	return err == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_RUN;
}

static int run(const struct cli_command *self, int argc, char **argv)
{
	enum {
		LIKE = 1,
		FAULT,
		STRICTLY,
		DEVICE,
		REACH,
		NAME
	};
	static const struct option options[] = {
		{"like", required_argument, NULL, LIKE},
		{"fault", required_argument, NULL, FAULT},
		{"strict", no_argument, NULL, STRICTLY},
		{"devices", required_argument, NULL, DEVICE},
		{"net", required_argument, NULL, REACH},
		{"world", required_argument, NULL, NAME},
		{NULL, 0, NULL, 0},
	};
	const char *value[VARIABLES];
	bool json = false;
	int own = 1, opt; /* own: where our arguments end and the command's begin */

	for (int i = 0; i < VARIABLES; i++)
		value[i] = getenv(variable[i]);
	while (own < argc && strcmp(argv[own], "--") != 0)
		own++;
	while ((opt = cli_option(self, own, argv, "", options, &json)) != -1) {
		if (opt == LIKE)
			join(self, value, DEVICES, "soft0", "=", optarg);
		else if (opt == DEVICE)
			value[DEVICES] = optarg;
		else if (opt == FAULT)
			join(self, value, FAULTS, value[FAULTS], "; ", optarg);
		else if (opt == STRICTLY)
			value[STRICT] = "1";
		else if (opt == REACH)
			value[NET] = optarg;
		else if (opt == NAME)
			value[WORLD] = optarg;
	}
	if (optind < own)
		cli_usage(self, "'%s' is too much: the command comes after --", argv[optind]);
	if (own == argc - 1)
		cli_usage(self, "there is no command after --");
	if (own < argc && json)
		cli_usage(self, "--json is for the environment, without a command");
	check(self, value);
	if (own == argc)
		return print_environment(self, value, json);
	return become(self, value, argv + own + 1);
}

const struct cli_command cli_softverbs = {
	.name = "softverbs",
	.summary = "run a program on an RDMA device in software",
	.usage = "[--like P | --devices LIST] [--fault F]... [--strict]\n"
		 "                        [--net N] [--world W] -- COMMAND ...",
	.help = "Runs COMMAND with an RDMA device that needs no hardware, no kernel module and no\n"
		"rights: libibverbs and librdmacm are replaced by softverbs(7) for it and for all\n"
		"that it starts. The exit status is that of COMMAND; 126 and 127 as of env(1).\n"
		"Without \"-- COMMAND\" it prints the environment that does this, for a shell, or\n"
		"with --json as an object.\n\n"
		"  --like P        the device soft0 behaves like this provider: soft (the strict\n"
		"                  one, the default), rxe, siw, mlx4, mlx5, efa, hns, irdma\n"
		"  --devices LIST  these devices instead: NAME=P or NAME=P:PORTS, with commas\n"
		"  --fault F       make something fail, for example \"reg_mr fail ENOMEM at 3\" "
		"or\n"
		"                  \"completion delay 3 every 10\"; softverbs(7) has the language\n"
		"  --strict        end the program, with a sentence, when it breaks a rule that "
		"no\n"
		"                  device can see; status 66 if it leaves objects behind\n"
		"  --net N         whom it reaches: local (this user's programs on this machine, "
		"the\n"
		"                  default), none (itself), or this machine's IPv4 address, where "
		"it\n"
		"                  listens then for other machines\n"
		"  --world W       a name: it sees only programs with the same\n",
	.run = run,
};
