/* SPDX-License-Identifier: BSD-2-Clause */
/* The programs in this example, and what they can be asked for. */
#ifndef RPING_H
#define RPING_H

#include <stdbool.h>
#include <stdint.h>

struct options {
	bool server;
	const char *addr, *port;
	uint32_t size;       /* bytes of a ping */
	unsigned long count; /* of pings; 0: for ever */
	bool validate, verbose;
};

/* Each runs one connection and returns 0; -1 after a line on stderr. */
int ping_run(const struct options *opt);  /* the stock rping's peer */
int hello_run(const struct options *opt); /* the stock rdma_client's and rdma_server's */

#define PING_MIN 32
#define PING_MAX 65535 /* what the stock rping can have */

#endif
