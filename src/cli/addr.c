/* SPDX-License-Identifier: BSD-2-Clause */
/* Addresses as people write them, and back. */
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "cli/addr.h"
#include "cli/format.h"

static int invalid(void)
{
	errno = EINVAL;
	return -1;
}

int addr_parse(const char *text, uint16_t port, struct addr *addr)
{
	const char *host = text, *end = NULL, *colon;
	uint64_t number = port;

	if (*text == '[') {
		host++;
		end = strchr(host, ']');
		if (!end || (end[1] && end[1] != ':'))
			return invalid();
		colon = end[1] ? end + 1 : NULL;
	} else {
		colon = strchr(text, ':');
		if (colon && strchr(colon + 1, ':')) /* a bare IPv6 address */
			colon = NULL;
		end = colon ? colon : text + strlen(text);
	}
	if (end == host || (size_t)(end - host) >= sizeof addr->host)
		return invalid();
	if (colon && parse_number(colon + 1, 1, UINT16_MAX, &number))
		return -1;
	memcpy(addr->host, host, (size_t)(end - host));
	addr->host[end - host] = 0;
	addr->port = (uint16_t)number;
	return 0;
}

const char *addr_resolve(const struct addr *addr, int flags, struct addrinfo **list)
{
	const struct addrinfo hints = {.ai_flags = flags | AI_NUMERICSERV,
				       .ai_socktype = SOCK_STREAM};
	char service[8];
	int err;

	snprintf(service, sizeof service, "%u", addr->port);
	err = getaddrinfo(addr->host, service, &hints, list);
	if (err == EAI_SYSTEM)
		return strerror(errno);
	return err ? gai_strerror(err) : NULL;
}

struct addr_text addr_host_text(const struct sockaddr *sa)
{
	struct addr_text t = {"unknown"};
	char scope[IF_NAMESIZE + 1];

	if (sa->sa_family == AF_INET) {
		inet_ntop(AF_INET, &((const struct sockaddr_in *)sa)->sin_addr, t.text,
			  sizeof t.text);
	} else if (sa->sa_family == AF_INET6) {
		const struct sockaddr_in6 *sin6 = (const struct sockaddr_in6 *)sa;

		inet_ntop(AF_INET6, &sin6->sin6_addr, t.text, sizeof t.text);
		if (sin6->sin6_scope_id && if_indextoname(sin6->sin6_scope_id, scope + 1)) {
			scope[0] = '%';
			strncat(t.text, scope, sizeof t.text - strlen(t.text) - 1);
		}
	}
	return t;
}

struct addr_text addr_text(const struct sockaddr *sa)
{
	struct addr_text t = addr_host_text(sa);
	const size_t used = strlen(t.text);
	uint16_t port = 0;

	if (sa->sa_family == AF_INET)
		port = ntohs(((const struct sockaddr_in *)sa)->sin_port);
	else if (sa->sa_family == AF_INET6)
		port = ntohs(((const struct sockaddr_in6 *)sa)->sin6_port);
	snprintf(t.text + used, sizeof t.text - used, " port %u", port);
	return t;
}
