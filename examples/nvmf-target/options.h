/* SPDX-License-Identifier: BSD-2-Clause */
/* The command line. */
#ifndef NVMF_OPTIONS_H
#define NVMF_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/addr.h"

#define MAX_NAMESPACES 32

struct ns_option {
	char path[4096];
	uint32_t block_size; /* 0: chosen */
	bool read_only;
};

struct options {
	struct addr listen;
	struct ns_option ns[MAX_NAMESPACES];
	uint32_t nns;
	const char *nqn;
	uint16_t depth;  /* commands of an I/O queue */
	uint64_t memory; /* bytes, of all pools together */
	uint32_t threads;
	const char *stats; /* a path, "-", or NULL */
};

/* Returns 0; an exit status otherwise, after a line on stderr; -1 after --help. */
int options_parse(int argc, char **argv, struct options *opt);

#endif
