/* SPDX-License-Identifier: BSD-2-Clause */
/* The sgpool command: a table of commands, each with a file of its own. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "sgpool/sgpool.h"

static const struct cli_command *const commands[] = {
	&cli_doctor, &cli_perf, &cli_recv, &cli_send, &cli_softverbs,
};

enum {
	COMMANDS = sizeof commands / sizeof *commands
};

static int print_help(void)
{
	printf("usage: sgpool COMMAND ...\n\n");
	for (int i = 0; i < COMMANDS; i++)
		printf("  %-9s %s\n", commands[i]->name, commands[i]->summary);
	printf("\nsgpool COMMAND --help tells more. Exit status: 0 it worked, 1 it did not, 2 "
	       "wrong "
	       "use.\n");
	return cli_finish("help", CLI_OK);
}

int main(int argc, char **argv)
{
	if (argc < 2)
		cli_usage(NULL, "a command is missing");
	if (!strcmp(argv[1], "--help"))
		return print_help();
	if (!strcmp(argv[1], "--version")) {
		printf("sgpool %s\n", sgp_version());
		return cli_finish("version", CLI_OK);
	}
	for (int i = 0; i < COMMANDS; i++)
		if (!strcmp(argv[1], commands[i]->name))
			return commands[i]->run(commands[i], argc - 1, argv + 1);
	cli_usage(NULL, "there is no command '%s'", argv[1]);
}
