/* SPDX-License-Identifier: BSD-2-Clause */
/* Addresses as people write them: HOST, HOST:PORT, [V6], [V6]:PORT, or a bare V6 address. */
#ifndef SGP_CLI_ADDR_H
#define SGP_CLI_ADDR_H

#include <netdb.h>
#include <stdint.h>
#include <sys/socket.h>

struct addr {
	char host[256];
	uint16_t port;
};

/* Take text apart; port is what it has without one. Returns 0; -1 with EINVAL, *addr as it was. */
int addr_parse(const char *text, uint16_t port, struct addr *addr);

/*
 * The socket addresses of *addr in *list, for freeaddrinfo(3). flags: AI_PASSIVE, AI_NUMERICHOST.
 * Returns NULL, or what is wrong.
 */
const char *addr_resolve(const struct addr *addr, int flags, struct addrinfo **list);

/* "10.0.0.1 port 18520" */
struct addr_text {
	char text[80];
};
struct addr_text addr_text(const struct sockaddr *sa);

/* The address alone, without the port. */
struct addr_text addr_host_text(const struct sockaddr *sa);

#endif
