/* SPDX-License-Identifier: BSD-2-Clause */
/* broker-load: what is asked of it, and what the broker's process has used. */
#ifndef LOAD_H
#define LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mqr.h"

#define LOAD_SEQ 8 /* bytes of a message's number, with which it begins */

struct load_options {
	const char *host, *port;
	bool rdma, json;
	uint32_t subscribers, stalled; /* of the subscribers, so many stop reading */
	uint32_t size;                 /* bytes of a message */
	uint8_t qos;
	uint64_t messages, warmup;
	uint64_t window; /* messages that the slowest may be behind */
	long pid;        /* the broker's; 0: not to be measured */
	struct mqr_attr attr;
	size_t mib; /* for messages */
	uint64_t seconds;
};

/* Fill in what the command line asks for; wrong use ends the program (2), --help does (0). */
void load_parse(struct load_options *want, int argc, char **argv);

/* Seconds on a processor of all threads of a process; 0 for process 0. */
double load_cpu(long pid);

/* The same in user mode only; in ticks. */
double load_user(long pid);

#endif
