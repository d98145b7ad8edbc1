/* SPDX-License-Identifier: BSD-2-Clause */
/* sgpool send: finds the receiver, connects, sends the file, and reports. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/addr.h"
#include "cli/cli.h"
#include "cli/format.h"
#include "cli/out.h"
#include "cli/send_file.h"
#include "cli/signals.h"

enum {
	RESOLVE_MS = 5000,
	CONNECT_MS = 15000, /* librdmacm would go on for a minute */
};

struct send {
	const char *name; /* of the command */
	const char *path;
	bool json;
	struct addr_text peer;
	struct rdma_event_channel *channel;
	int signal_fd;
	struct rdma_cm_id *id;
	struct buffers buffers;
	struct conn conn;
	struct send_file file;
};

/* Wait for the event that means success. Returns 0; -1, and *why says why. */
static int await(struct send *s, enum rdma_cm_event_type wanted, int timeout_ms,
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
static const char *resolve(struct send *s, struct sockaddr *sa)
{
	const char *why = NULL;
	struct cm_event event;

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
static int find_peer(struct send *s, const struct addr *addr)
{
	struct addrinfo *list;
	const char *why = addr_resolve(addr, 0, &list);

	if (why) {
		cli_error(s->name, "%s: %s; give an address or a name that resolves", addr->host,
			  why);
		return -1;
	}
	why = "it has no address";
	for (const struct addrinfo *ai = list; ai && !s->id; ai = ai->ai_next)
		why = resolve(s, ai->ai_addr);
	freeaddrinfo(list);
	if (!s->id)
		cli_error(s->name, "%s: %s", s->peer.text, why);
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

static int connect_peer(struct send *s)
{
	uint8_t bytes[WIRE_HELLO];
	struct rdma_conn_param param;
	struct cm_event event;
	const char *why = NULL;

	if (buffers_open(&s->buffers, s->id->verbs, s->name))
		return -1;
	if (conn_open(&s->conn, s->id, &s->buffers, WIRE_SENDER)) {
		cli_error(s->name, "%s: %s", ibv_get_device_name(s->id->verbs->device),
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
		cli_error(s->name, "%s: %s", s->peer.text, why);
		return -1;
	}
	conn_event(&s->conn, &event); /* established */
	s->conn.up = true;
	return 0;
}

static void report(const struct send *s)
{
	const struct send_file *f = &s->file;
	struct out out;

	out_open(&out, stdout, s->json);
	out_str(&out, "event", NULL, "sent");
	out_str(&out, "file", "sent", s->path);
	out_str(&out, "to", "to", s->peer.text);
	out_str(&out, "device", "over", ibv_get_device_name(s->id->verbs->device));
	out_transfer(&out, f->bytes, f->seconds, digest_text(f->digest.value).text,
		     digest_text(f->verdict.digest).text, f->registrations);
	out_close(&out);
}

static int transfer(struct send *s, const struct addr *addr)
{
	if (find_peer(s, addr) || connect_peer(s))
		return CLI_FAILED;
	s->file.signal_fd = s->signal_fd;
	s->file.channel = s->channel;
	s->file.conn = &s->conn;
	if (send_file(&s->file)) {
		cli_error(s->name, "%s: %s", s->path, s->file.why);
		return CLI_FAILED;
	}
	report(s);
	return CLI_OK;
}

static int send_path(struct send *s, const struct addr *addr)
{
	int status = CLI_FAILED;

	/* A pipe's opening may wait for its other end: signals work as they always do until here.
	 */
	s->file.fd = open(s->path, O_RDONLY | O_CLOEXEC);
	if (s->file.fd < 0) {
		cli_error(s->name, "%s: can't be opened: %s", s->path, strerror(errno));
		return CLI_FAILED;
	}
	s->signal_fd = signals_open();
	s->channel = cm_open();
	if (s->signal_fd < 0)
		cli_error(s->name, "signals: %s", strerror(errno));
	else if (!s->channel)
		cli_error(s->name, "the RDMA connection manager: %s; see 'sgpool doctor'",
			  strerror(errno));
	else
		status = transfer(s, addr);
	conn_close(&s->conn);
	if (s->id)
		rdma_destroy_id(s->id);
	buffers_close(&s->buffers);
	if (s->channel)
		rdma_destroy_event_channel(s->channel);
	if (s->signal_fd >= 0)
		close(s->signal_fd);
	close(s->file.fd);
	return cli_finish(s->name, status);
}

static int run(const struct cli_command *self, int argc, char **argv)
{
	static const struct option none[] = {{NULL, 0, NULL, 0}};
	static struct send s;
	struct addr addr;

	s.name = self->name;
	while (cli_option(self, argc, argv, "", none, &s.json) != -1)
		;
	if (argc - optind != 2)
		cli_usage(self, "it takes an address and a file");
	if (addr_parse(argv[optind], TRANSFER_PORT, &addr))
		cli_usage(self, "'%s' is no ADDR or ADDR:PORT", argv[optind]);
	s.path = argv[optind + 1];
	return send_path(&s, &addr);
}

const struct cli_command cli_send = {
	.name = "send",
	.summary = "send a file to `sgpool recv`",
	.usage = "[--json] ADDR[:PORT] FILE",
	.help = "Sends FILE, which may be a pipe, to the `sgpool recv` that listens at ADDR, a "
		"name or\n"
		"an address ([...] around IPv6 with a port), at PORT or else 18520. Ends well when "
		"the\n"
		"other end has the whole file on disk and its SHA-256 is the same.\n",
	.run = run,
};
