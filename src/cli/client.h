/* SPDX-License-Identifier: BSD-2-Clause */
/* The sending side of `sgpool send`. */
#ifndef SGP_CLI_CLIENT_H
#define SGP_CLI_CLIENT_H

#include <stdbool.h>
#include <stdio.h>

#include "cli/addr.h"

struct client_options {
	const char *name; /* of the command, for errors */
	const char *path; /* the file to send */
	struct addr addr; /* of the receiver */
	bool json;
	FILE *out; /* for results */
};

/* Send it. Returns the exit status; errors have been said. */
int client_run(const struct client_options *options);

#endif
