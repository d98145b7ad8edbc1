/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A namespace: a file or a block device, opened and looked at once. Who it is (UUID, NGUID) follows
 * from the subsystem's name and its own path, so that a host finds the same one again after a restart.
 */
#ifndef NVMF_NS_H
#define NVMF_NS_H

#include <stdbool.h>
#include <stdint.h>

#include "capsule.h"
#include "options.h"

/* How zeroes get into it: the first that it can do. */
enum ns_zero {
	NS_ZERO_RANGE,
	NS_ZERO_PUNCH,
	NS_ZERO_WRITE,
};

struct ns {
	int fd;
	bool direct; /* O_DIRECT */
	bool block_device;
	_Atomic enum ns_zero zero; /* threads find it out */
	uint8_t uuid[16], nguid[16];
	char path[4096];
};

/* Open what opt says. Fills in *ns and *limits. Returns 0; -1 after a line on stderr. */
int ns_open(const struct ns_option *opt, const char *nqn, struct ns *ns, struct capsule_ns *limits);

void ns_close(struct ns *ns);

/* A number that is always the same for the same two texts: for identifiers and serial numbers. */
unsigned __int128 ns_digest(const char *a, const char *b);

#endif
