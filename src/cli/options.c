/* SPDX-License-Identifier: BSD-2-Clause */
/* Options that every command takes, and errors as one line. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "sgpool/sgpool.h"

enum {
	OPT_JSON = CLI_OPT_COMMON,
	OPT_HELP,
	OPT_VERSION,
};

static const struct option common[] = {
	{"json", no_argument, NULL, OPT_JSON},
	{"help", no_argument, NULL, OPT_HELP},
	{"version", no_argument, NULL, OPT_VERSION},
	{NULL, 0, NULL, 0},
};

enum {
	COMMON = sizeof common / sizeof *common
};

/* An argument may hold anything: what could move the cursor is not printed. */
__attribute__((format(printf, 1, 0))) static void print_line(const char *fmt, va_list ap)
{
	char line[1024];

	vsnprintf(line, sizeof line, fmt, ap);
	for (char *c = line; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = '?';
	fputs(line, stderr);
}

void cli_error(const char *name, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "sgpool %s: ", name);
	va_start(ap, fmt);
	print_line(fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

void cli_usage(const struct cli_command *self, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "sgpool%s%s: ", self ? " " : "", self ? self->name : "");
	va_start(ap, fmt);
	print_line(fmt, ap);
	va_end(ap);
	fprintf(stderr, "; see 'sgpool%s%s --help'\n", self ? " " : "", self ? self->name : "");
	exit(CLI_USAGE);
}

int cli_finish(const char *name, int status)
{
	if (!fflush(stdout) && !ferror(stdout))
		return status;
	cli_error(name, "standard output: %s; not all of the result was written",
		  errno ? strerror(errno) : "write error");
	return CLI_FAILED;
}

static void print_help(const struct cli_command *self)
{
	printf("usage: sgpool %s %s\n\n%s\n"
	       "  --json     the result as JSON on the standard output\n"
	       "  --help     this text\n"
	       "  --version  the version\n",
	       self->name, self->usage, self->help);
}

int cli_option(const struct cli_command *self, int argc, char **argv, const char *shortopts,
	       const struct option *longopts, bool *json)
{
	struct option all[CLI_OPTIONS + COMMON];
	char letters[2 * CLI_OPTIONS + 2];
	size_t n = 0;

	while (longopts[n].name && n < CLI_OPTIONS)
		n++;
	memcpy(all, longopts, n * sizeof *all);
	memcpy(all + n, common, sizeof common);
	snprintf(letters, sizeof letters, ":%s", shortopts);
	opterr = 0;
	for (;;) {
		const int opt = getopt_long(argc, argv, letters, all, NULL);

		switch (opt) {
		case OPT_JSON:
			*json = true;
			continue;
		case OPT_HELP:
			print_help(self);
			exit(cli_finish(self->name, CLI_OK));
		case OPT_VERSION:
			printf("sgpool %s\n", sgp_version());
			exit(cli_finish(self->name, CLI_OK));
		case ':':
			cli_usage(self, "option %s needs a value", argv[optind - 1]);
		case '?':
			if (optopt && optopt < CLI_OPT_COMMON && !strchr(letters + 1, optopt))
				cli_usage(self, "there is no option -%c", optopt);
			cli_usage(self, "option %s is unknown or used wrongly", argv[optind - 1]);
		default:
			return opt;
		}
	}
}
