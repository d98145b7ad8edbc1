/* SPDX-License-Identifier: BSD-2-Clause */
/* sgpool send: its options. */
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/transfer.h"

static int run(const struct cli_command *self, int argc, char **argv)
{
	static const struct option none[] = {{NULL, 0, NULL, 0}};
	struct client_options o = {.name = self->name, .out = stdout};

	while (cli_option(self, argc, argv, "", none, &o.json) != -1)
		;
	if (argc - optind != 2)
		cli_usage(self, "it takes an address and a file");
	if (addr_parse(argv[optind], TRANSFER_PORT, &o.addr))
		cli_usage(self, "'%s' is no ADDR or ADDR:PORT", argv[optind]);
	o.path = argv[optind + 1];
	return cli_finish(self->name, client_run(&o));
}

const struct cli_command cli_send = {
	.name = "send",
	.summary = "send a file to `sgpool recv`",
	.usage = "[--json] ADDR[:PORT] FILE",
	.help = "Sends FILE, which may be a pipe, to the `sgpool recv` that listens at ADDR: a\n"
		"name or an address, with PORT or else 18520; IPv6 with a port as [ADDR]:PORT.\n"
		"Ends well when the other end has all of it on disk with the same SHA-256.\n",
	.run = run,
};
