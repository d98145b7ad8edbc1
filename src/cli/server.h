/* SPDX-License-Identifier: BSD-2-Clause */
/* The receiving side of `sgpool recv`. */
#ifndef SGP_CLI_SERVER_H
#define SGP_CLI_SERVER_H

#include <stdbool.h>
#include <stdio.h>

#include "cli/addr.h"

struct server_options {
	const char *name; /* of the command, for errors */
	const char *path; /* where the file goes */
	struct addr addr; /* to listen on; port 0: any */
	bool once;        /* end after one transfer */
	bool json;
	FILE *out; /* for results */
};

/* Serve until it is over. Returns the exit status; errors have been said. */
int server_run(const struct server_options *options);

#endif
