/* SPDX-License-Identifier: BSD-2-Clause */
/* The client of `sgpool perf`. */
#ifndef SGP_CLI_PERF_CLIENT_H
#define SGP_CLI_PERF_CLIENT_H

#include <stdbool.h>
#include <stdio.h>

#include "cli/addr.h"
#include "cli/perf_wire.h"

enum {
	PERF_SIZES_MAX = 64
};

struct perf_client_options {
	const char *name;          /* of the command, for errors */
	struct addr addr;          /* of the server */
	struct perf_params params; /* but size; a depth of 0 is chosen by size */
	uint32_t sizes[PERF_SIZES_MAX];
	uint32_t nsizes;
	bool compare;         /* all modes, in turn; params.mode means nothing */
	uint64_t iterations;  /* of each connection, in a round; 0: for so long: */
	uint64_t duration_ns; /* a size takes (compare: all rounds of all modes) */
	uint32_t rounds;      /* of compare */
	int timeout_ms;       /* for so long the server may bring nothing on */
	const char *plot;     /* file for an SVG; NULL: none */
	bool json;
	FILE *out; /* for results */
};

/* Measure. Returns the exit status; errors have been said. */
int perf_client_run(const struct perf_client_options *options);

#endif
