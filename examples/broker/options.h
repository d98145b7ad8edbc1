/* SPDX-License-Identifier: BSD-2-Clause */
/* What sgpool-broker is asked for. */
#ifndef BROKER_OPTIONS_H
#define BROKER_OPTIONS_H

#include "broker.h"
#include "cli/addr.h"

struct options {
	struct settings settings;
	bool tcp, rdma, stats; /* which of these were asked for */
	struct addr tcp_addr, rdma_addr, stats_addr;
};

/* Fill in *options; exits with status 2 after wrong use, and 0 after --help and --version. */
void options_read(struct options *options, int argc, char **argv);

#endif
