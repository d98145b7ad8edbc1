/* SPDX-License-Identifier: BSD-2-Clause */
/* sgpool recv: its options. */
#include <string.h>

#include "cli/cli.h"
#include "cli/format.h"
#include "cli/server.h"
#include "cli/transfer.h"

static int run(const struct cli_command *self, int argc, char **argv)
{
	enum {
		BIND = 1,
		PORT,
		ONCE
	};
	static const struct option options[] = {
		{"bind", required_argument, NULL, BIND},
		{"port", required_argument, NULL, PORT},
		{"once", no_argument, NULL, ONCE},
		{"output", required_argument, NULL, 'o'},
		{NULL, 0, NULL, 0},
	};
	struct server_options o = {.name = self->name, .addr = {.host = "0.0.0.0"}, .out = stdout};
	uint64_t port = TRANSFER_PORT;
	int opt;

	while ((opt = cli_option(self, argc, argv, "o:", options, &o.json)) != -1) {
		if (opt == 'o')
			o.path = optarg;
		else if (opt == ONCE)
			o.once = true;
		else if (opt == PORT && parse_number(optarg, 0, UINT16_MAX, &port))
			cli_usage(self, "'%s' is no port", optarg);
		else if (opt == BIND &&
			 (strchr(optarg, ' ') || !*optarg || strlen(optarg) >= sizeof o.addr.host))
			cli_usage(self, "'%s' is no address", optarg);
		else if (opt == BIND)
			snprintf(o.addr.host, sizeof o.addr.host, "%s", optarg);
	}
	if (optind < argc)
		cli_usage(self, "'%s' is too much: the file is given by -o", argv[optind]);
	if (!o.path || !*o.path)
		cli_usage(self, "it needs -o FILE");
	o.addr.port = (uint16_t)port;
	return cli_finish(self->name, server_run(&o));
}

const struct cli_command cli_recv = {
	.name = "recv",
	.summary = "receive a file from `sgpool send`",
	.usage = "[--bind ADDR] [--port P] [--once] [--json] -o FILE",
	.help = "Listens for `sgpool send` and writes what it sends to FILE, which appears (or is\n"
		"replaced) only when all of it is on disk with the sender's SHA-256. Takes one\n"
		"sender after the other until SIGINT or SIGTERM; one that comes meanwhile is\n"
		"refused as busy. Says on the standard error stream (with --json: as an event)\n"
		"when it listens.\n\n"
		"  -o, --output FILE  where the data goes\n"
		"  --bind ADDR        listen on this address (default 0.0.0.0; :: for IPv6)\n"
		"  --port P           listen on this port (default 18520; 0: any that is free)\n"
		"  --once             end after one transfer, with its status\n\n"
		"With --json there is one object a line: its \"event\" is listening, received\n"
		"or failed.\n",
	.run = run,
};
