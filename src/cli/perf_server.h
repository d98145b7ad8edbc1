/* SPDX-License-Identifier: BSD-2-Clause */
/* The server of `sgpool perf`. */
#ifndef SGP_CLI_PERF_SERVER_H
#define SGP_CLI_PERF_SERVER_H

#include <stdbool.h>
#include <stdio.h>

#include "cli/addr.h"

struct perf_server_options {
	const char *name; /* of the command, for errors */
	struct addr addr; /* to listen on; port 0: any */
	bool once;        /* end after one client */
	int timeout_ms;   /* for so long a client may bring nothing on */
	bool json;
	FILE *out; /* for results */
};

/* Serve until it is over. Returns the exit status; errors have been said. */
int perf_server_run(const struct perf_server_options *options);

#endif
