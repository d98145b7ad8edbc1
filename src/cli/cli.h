/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the commands of sgpool have in common: the table's entry, the exit status, options that all
 * of them take, and errors.
 *
 * An error is one line on the standard error stream: `sgpool recv: what: why; what to do`.
 */
#ifndef SGP_CLI_H
#define SGP_CLI_H

#include <getopt.h>
#include <stdbool.h>

enum cli_exit {
	CLI_OK = 0,
	CLI_FAILED = 1, /* it was asked rightly and did not work */
	CLI_USAGE = 2,  /* it was asked wrongly; nothing was done */
};

struct cli_command {
	const char *name;
	const char *summary; /* one line, for `sgpool --help` */
	const char *usage;   /* what follows the name */
	const char *help;    /* the rest of `sgpool NAME --help`; ends with a newline */
	int (*run)(const struct cli_command *self, int argc, char **argv); /* argv[0]: the name */
};

/* One file (or few) each. The table is in main.c. */
extern const struct cli_command cli_doctor, cli_perf, cli_recv, cli_send, cli_softverbs;

/*
 * The next option, as getopt_long(3): its value, -1 after the last. --help and --version are done
 * with here, and end the process; so does wrong use, with one line and CLI_USAGE. --json sets
 * *json.
 *
 * longopts: the command's own, ended by a zero entry; at most CLI_OPTIONS of them. Values must be
 * below CLI_OPT_COMMON; shortopts names those with a one-letter form, without a leading sign.
 */
enum {
	CLI_OPTIONS = 32,
	CLI_OPT_COMMON = 0x1000,
};
int cli_option(const struct cli_command *self, int argc, char **argv, const char *shortopts,
	       const struct option *longopts, bool *json);

/* Print one line that says what was wrong, and end the process with CLI_USAGE. self may be NULL. */
_Noreturn void cli_usage(const struct cli_command *self, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Print an error of command name as one line; control characters in it are shown as '?'. */
void cli_error(const char *name, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* End a command that wrote to the standard output: status, or CLI_FAILED if not all was written. */
int cli_finish(const char *name, int status);

#endif
