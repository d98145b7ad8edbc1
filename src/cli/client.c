/* SPDX-License-Identifier: BSD-2-Clause */
/* The sending side of `sgpool send`: finds the receiver, connects, sends the file, and reports. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/client.h"
#include "cli/out.h"
#include "cli/send_file.h"
#include "cli/signals.h"

enum {
	RESOLVE_MS = 5000,
	CONNECT_MS = 15000, /* librdmacm would go on for a minute */
};

struct client {
	const struct client_options *o;
	struct addr_text peer;
	struct rdma_event_channel *channel;
	int signal_fd;
	struct rdma_cm_id *id;
	struct buffers buffers;
	struct conn conn;
	struct send_file file;
};

/* Wait for the event that means success. Returns 0; -1, and *why says why. */
static int await(struct client *s, enum rdma_cm_event_type wanted, int timeout_ms,
		 struct cm_event *event, const char **why)
{
	const int got = cm_wait(s->channel, s->signal_fd, timeout_ms, event);

	if (got > 0 && event->type == wanted)
		return 0;
	if (got < 0)
		*why = errno == EINTR ? "interrupted" : strerror(errno);
	else if (got == 0)
		*why = "it does not answer";
	else if (event->type == RDMA_CM_EVENT_ADDR_ERROR ||
		 event->type == RDMA_CM_EVENT_ROUTE_ERROR)
		*why = "no RDMA device leads there; see 'sgpool doctor' and 'ip route get'";
	else if (event->type == RDMA_CM_EVENT_UNREACHABLE)
		*why = "it does not answer";
	else
		*why = rdma_event_str(event->type);
	return -1;
}

/* Make an id whose device leads to this address. Returns NULL, or why not. */
static const char *resolve(struct client *s, struct sockaddr *sa)
{
	const char *why = NULL;
	struct cm_event event = {0};

	s->peer = addr_text(sa);
	if (rdma_create_id(s->channel, &s->id, NULL, RDMA_PS_TCP)) {
		s->id = NULL;
		return strerror(errno);
	}
	if (rdma_resolve_addr(s->id, NULL, sa, RESOLVE_MS))
		why = errno == ENODEV ? "no RDMA device leads there; see 'sgpool doctor'"
				      : strerror(errno);
	else if (await(s, RDMA_CM_EVENT_ADDR_RESOLVED, RESOLVE_MS, &event, &why) == 0 &&
		 rdma_resolve_route(s->id, RESOLVE_MS))
		why = strerror(errno);
	if (!why && await(s, RDMA_CM_EVENT_ROUTE_RESOLVED, RESOLVE_MS, &event, &why) == 0)
		return NULL;
	rdma_destroy_id(s->id);
	s->id = NULL;
	return why;
}

/* The first of the name's addresses that an RDMA device leads to. Returns 0; -1, said. */
static int find_peer(struct client *s)
{
	const struct addr *addr = &s->o->addr;
	struct addrinfo *list;
	const char *why = addr_resolve(addr, 0, &list);

	if (why) {
		cli_error(s->o->name, "%s: %s; give an address or a name that resolves", addr->host,
			  why);
		return -1;
	}
	why = "it has no address";
	for (const struct addrinfo *ai = list; ai && !s->id; ai = ai->ai_next)
		why = resolve(s, ai->ai_addr);
	freeaddrinfo(list);
	if (!s->id)
		cli_error(s->o->name, "%s: %s", s->peer.text, why);
	return s->id ? 0 : -1;
}

static const char nobody[] = "nobody receives there; start 'sgpool recv' on that machine first";

/* Why a receiver said no: in its own words if it is one, else because there is none. */
static const char *rejection(const struct cm_event *event)
{
	struct wire_hello hello;

	if (!wire_get_hello(event->data, event->length, &hello) && hello.role == WIRE_REFUSAL)
		return wire_code_text(hello.reason);
	return nobody;
}

static int connect_peer(struct client *s)
{
	uint8_t bytes[WIRE_HELLO];
	struct rdma_conn_param param;
	struct cm_event event = {0};
	const char *why = NULL;

	if (buffers_open(&s->buffers, s->id->verbs, s->o->name))
		return -1;
	if (conn_open(&s->conn, s->id, &s->buffers, WIRE_SENDER)) {
		cli_error(s->o->name, "%s: %s", ibv_get_device_name(s->id->verbs->device),
			  s->conn.why);
		return -1;
	}
	conn_param(&s->conn, bytes, &param);
	if (rdma_connect(s->id, &param)) /* siw waits for the answer in here */
		why = errno == ECONNREFUSED ? nobody : strerror(errno);
	else if (await(s, RDMA_CM_EVENT_ESTABLISHED, CONNECT_MS, &event, &why) == 0)
		why = conn_greet(&s->conn, event.data, event.length);
	else if (event.type == RDMA_CM_EVENT_REJECTED)
		why = rejection(&event);
	if (why) {
		cli_error(s->o->name, "%s: %s", s->peer.text, why);
		return -1;
	}
	conn_event(&s->conn, &event); /* established */
	s->conn.up = true;
	return 0;
}

static void report(const struct client *s)
{
	const struct send_file *f = &s->file;
	struct out out;

	out_open(&out, s->o->out, s->o->json);
	out_str(&out, "event", NULL, "sent");
	out_str(&out, "file", "sent", s->o->path);
	out_str(&out, "to", "to", s->peer.text);
	out_str(&out, "device", "over", ibv_get_device_name(s->id->verbs->device));
	out_transfer(&out, f->bytes, f->seconds, digest_text(f->digest.value).text,
		     digest_text(f->verdict.digest).text, f->registrations);
	out_close(&out);
}

static int transfer(struct client *s)
{
	if (find_peer(s) || connect_peer(s))
		return CLI_FAILED;
	s->file.signal_fd = s->signal_fd;
	s->file.channel = s->channel;
	s->file.conn = &s->conn;
	if (send_file(&s->file)) {
		cli_error(s->o->name, "%s: %s", s->o->path, s->file.why);
		return CLI_FAILED;
	}
	report(s);
	return CLI_OK;
}

/* Everything but the file. */
static int run(struct client *s)
{
	int status = CLI_FAILED;

	s->signal_fd = signals_open();
	s->channel = cm_open();
	if (s->signal_fd < 0)
		cli_error(s->o->name, "signals: %s", strerror(errno));
	else if (!s->channel)
		cli_error(s->o->name, "the RDMA connection manager: %s; see 'sgpool doctor'",
			  strerror(errno));
	else
		status = transfer(s);
	conn_close(&s->conn);
	if (s->id)
		rdma_destroy_id(s->id);
	buffers_close(&s->buffers);
	if (s->channel)
		rdma_destroy_event_channel(s->channel);
	if (s->signal_fd >= 0)
		close(s->signal_fd);
	return status;
}

int client_run(const struct client_options *options)
{
	struct client *s = calloc(1, sizeof *s);
	int status = CLI_FAILED;

	if (!s) {
		cli_error(options->name, "no memory");
		return CLI_FAILED;
	}
	s->o = options;
	/* A pipe's opening may wait for its other end: until here signals work as ever. */
	s->file.fd = open(options->path, O_RDONLY | O_CLOEXEC);
	if (s->file.fd < 0) {
		cli_error(options->name, "%s: can't be opened: %s", options->path, strerror(errno));
	} else {
		status = run(s);
		close(s->file.fd);
	}
	free(s);
	return status;
}
