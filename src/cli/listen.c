/* SPDX-License-Identifier: BSD-2-Clause */
/* The passive side of connections. */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/listen.h"
#include "cli/out.h"

enum {
	BACKLOG = 16
};

struct rdma_cm_id *listen_open(const char *command, struct rdma_event_channel *channel,
			       const struct addr *addr)
{
	struct rdma_cm_id *listener = NULL;
	struct addrinfo *list;
	const char *why = addr_resolve(addr, AI_PASSIVE, &list);
	int err;

	if (why) {
		cli_error(command, "%s: %s; --bind takes an address of this machine", addr->host,
			  why);
		return NULL;
	}
	err = rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) ? errno : 0;
	if (err)
		listener = NULL;
	if (!err && rdma_bind_addr(listener, list->ai_addr))
		err = errno;
	if (!err && rdma_listen(listener, BACKLOG))
		err = errno;
	freeaddrinfo(list);
	if (!err)
		return listener;
	cli_error(command, "%s port %u: can't listen: %s%s", addr->host, addr->port, strerror(err),
		  err == EADDRINUSE ? "; choose another --port"
		  : err == ENODEV || err == EADDRNOTAVAIL
			  ? "; no RDMA device has this address, see 'sgpool doctor'"
			  : "");
	if (listener)
		rdma_destroy_id(listener);
	return NULL;
}

void listen_say(const char *command, struct rdma_cm_id *listener, FILE *file, bool json)
{
	const struct addr_text host = addr_host_text(rdma_get_local_addr(listener));
	const uint16_t port = ntohs(rdma_get_src_port(listener));
	struct out out;

	if (!json) {
		fprintf(stderr, "sgpool %s: listening on %s port %u\n", command, host.text, port);
		return;
	}
	out_open(&out, file, true);
	out_str(&out, "event", NULL, "listening");
	out_str(&out, "address", NULL, host.text);
	out_u64(&out, "port", NULL, port);
	out_close(&out);
}

struct ibv_context *listen_device(const struct rdma_cm_id *listener)
{
	struct ibv_context *only = listener->verbs; /* set if bound to a device's address */
	struct ibv_context **list;
	int n = 0;

	if (!only) {
		list = rdma_get_devices(&n);
		if (list && n == 1)
			only = list[0];
		rdma_free_devices(list);
	}
	return only;
}
