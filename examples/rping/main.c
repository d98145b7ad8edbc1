/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rping on sgpool: a server and a client that the stock programs of the package rdmacm-utils talk
 * to. This file reads the options.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rping.h"

static const char usage[] = "Usage: rping -s [-a ADDR] [-p PORT] [-v]\n"
			    "       rping -c -a ADDR [-p PORT] [-C COUNT] [-S SIZE] [-Vv]\n"
			    "       rping rdma-server [-a ADDR] [-p PORT] [-v]\n"
			    "       rping rdma-client -a ADDR [-p PORT] [-v]\n"
			    "\n"
			    "The first two are for the stock rping, the others for the stock "
			    "rdma_client and rdma_server.\n"
			    "\n"
			    "  -s        serve one client\n"
			    "  -c        be the client\n"
			    "  -a ADDR   the server's address (server: 0.0.0.0)\n"
			    "  -p PORT   its port (7174; rdma-server and rdma-client: 7471)\n"
			    "  -C COUNT  so many pings (for ever)\n"
			    "  -S SIZE   bytes of a ping, 32 to 65535 (64)\n"
			    "  -V        check what comes back\n"
			    "  -v        print it\n"
			    "\n"
			    "Exit status: 0 if all went well, 1 if not, 2 for wrong use.\n";

static int wrong_use(void)
{
	fputs(usage, stderr);
	return 2;
}

static bool number(const char *text, unsigned long min, unsigned long max, unsigned long *n)
{
	char *end;

	errno = 0;
	*n = strtoul(text, &end, 10);
	return text[0] >= '0' && text[0] <= '9' && !*end && !errno && *n >= min && *n <= max;
}

/* Returns 0; -1 when they make no sense. Sets *role to 's', 'c' or 0. */
static int parse(int argc, char **argv, struct options *opt, int *role)
{
	unsigned long size = 64;
	int c;

	*role = 0;
	while ((c = getopt(argc, argv, "sca:p:C:S:Vv")) != -1) {
		switch (c) {
		case 's':
		case 'c':
			*role = c;
			break;
		case 'a':
			opt->addr = optarg;
			break;
		case 'p':
			opt->port = optarg;
			break;
		case 'C':
			if (!number(optarg, 0, UINT32_MAX, &opt->count))
				return -1;
			break;
		case 'S':
			if (!number(optarg, PING_MIN, PING_MAX, &size))
				return -1;
			break;
		case 'V':
			opt->validate = true;
			break;
		case 'v':
			opt->verbose = true;
			break;
		default:
			return -1;
		}
	}
	opt->size = (uint32_t)size;
	return optind == argc ? 0 : -1;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	bool hello = !strcmp(mode, "rdma-server") || !strcmp(mode, "rdma-client");
	struct options opt = {.port = hello ? "7471" : "7174"};
	int role;

	if (!strcmp(mode, "--help")) {
		fputs(usage, stdout);
		return 0;
	}
	if (parse(argc - hello, argv + hello, &opt, &role) || hello == !!role)
		return wrong_use();
	opt.server = hello ? !strcmp(mode, "rdma-server") : role == 's';
	if (!opt.addr) {
		if (!opt.server)
			return wrong_use();
		opt.addr = "0.0.0.0";
	}
	return (hello ? hello_run(&opt) : ping_run(&opt)) ? 1 : 0;
}
