/* SPDX-License-Identifier: BSD-2-Clause */
/* The active side of a connection. */
#include <errno.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/dial.h"

/* Wait for the event that means success. Returns 0; -1, and *why says why. */
static int await(struct dial *d, enum rdma_cm_event_type wanted, struct cm_event *event,
		 const char **why)
{
	const int got = cm_wait(d->channel, d->signal_fd, d->timeout_ms, event);

	if (got > 0 && event->type == wanted)
		return 0;
	if (got < 0)
		*why = errno == EINTR ? "interrupted" : strerror(errno);
	else if (got == 0 || event->type == RDMA_CM_EVENT_UNREACHABLE)
		*why = "it does not answer";
	else if (event->type == RDMA_CM_EVENT_ADDR_ERROR ||
		 event->type == RDMA_CM_EVENT_ROUTE_ERROR)
		*why = "no RDMA device leads there; see 'sgpool doctor' and 'ip route get'";
	else if (event->type == RDMA_CM_EVENT_REJECTED)
		*why = d->nobody;
	else
		*why = rdma_event_str(event->type);
	return -1;
}

const char *dial_resolve(struct dial *d, struct sockaddr *sa, struct rdma_cm_id **id)
{
	const char *why = NULL;
	struct cm_event event = {0};

	d->peer = addr_text(sa);
	if (rdma_create_id(d->channel, id, NULL, RDMA_PS_TCP)) {
		*id = NULL;
		return strerror(errno);
	}
	if (rdma_resolve_addr(*id, NULL, sa, d->timeout_ms))
		why = errno == ENODEV ? "no RDMA device leads there; see 'sgpool doctor'"
				      : strerror(errno);
	else if (await(d, RDMA_CM_EVENT_ADDR_RESOLVED, &event, &why) == 0 &&
		 rdma_resolve_route(*id, d->timeout_ms))
		why = strerror(errno);
	if (!why && await(d, RDMA_CM_EVENT_ROUTE_RESOLVED, &event, &why) == 0)
		return NULL;
	rdma_destroy_id(*id);
	*id = NULL;
	return why;
}

struct rdma_cm_id *dial_find(struct dial *d, const struct addr *addr)
{
	struct rdma_cm_id *id = NULL;
	struct addrinfo *list;
	const char *why = addr_resolve(addr, 0, &list);

	if (why) {
		cli_error(d->command, "%s: %s; give an address or a name that resolves", addr->host,
			  why);
		return NULL;
	}
	why = "it has no address";
	for (const struct addrinfo *ai = list; ai && !id; ai = ai->ai_next)
		why = dial_resolve(d, ai->ai_addr, &id);
	freeaddrinfo(list);
	if (!id)
		cli_error(d->command, "%s: %s", d->peer.text, why);
	return id;
}

const char *dial_connect(struct dial *d, struct rdma_cm_id *id, struct rdma_conn_param *param,
			 struct cm_event *event)
{
	const char *why = NULL;

	*event = (struct cm_event){0};
	if (rdma_connect(id, param)) /* siw waits for the answer in here */
		return errno == ECONNREFUSED ? d->nobody : strerror(errno);
	if (await(d, RDMA_CM_EVENT_ESTABLISHED, event, &why) == 0)
		return NULL;
	return why;
}
