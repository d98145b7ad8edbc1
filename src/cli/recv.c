/* SPDX-License-Identifier: BSD-2-Clause */
/* sgpool recv: listens, takes one transfer after the other, and reports. */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/addr.h"
#include "cli/cli.h"
#include "cli/format.h"
#include "cli/out.h"
#include "cli/recv_file.h"
#include "cli/signals.h"

enum {
	BACKLOG = 16,
	DEVICES = 64,
};

struct recv {
	const char *name; /* of the command */
	const char *path;
	bool json, once;
	struct rdma_event_channel *channel;
	int signal_fd;
	struct rdma_cm_id *listener;
	/* One for each device that a connection came over, or the only one that it can come over.
	 */
	struct buffers buffers[DEVICES];
	int devices;
	struct cm_event request; /* the sender that is to be served next, if its id is not NULL */
	struct recv_file *current;
	bool broken; /* the event channel failed */
};

static struct buffers *find_buffers(struct recv *r, struct ibv_context *verbs)
{
	for (int i = 0; i < r->devices; i++)
		if (r->buffers[i].verbs == verbs)
			return &r->buffers[i];
	if (r->devices == DEVICES) {
		cli_error(r->name, "more than %d devices", DEVICES);
		return NULL;
	}
	if (buffers_open(&r->buffers[r->devices], verbs, r->name))
		return NULL;
	return &r->buffers[r->devices++];
}

static void refuse(struct rdma_cm_id *id, enum wire_code reason)
{
	const struct wire_hello hello = {.role = WIRE_REFUSAL, .reason = reason};
	uint8_t bytes[WIRE_HELLO];

	wire_put_hello(bytes, &hello);
	rdma_reject(id, bytes, sizeof bytes);
	rdma_destroy_id(id);
}

/* Take the channel's events: a connection's go to it; who wants to connect meanwhile is told to
 * wait. */
static void take_events(void *arg)
{
	struct recv *r = arg;
	struct cm_event event;
	int got;

	while ((got = cm_next(r->channel, &event)) > 0) {
		if (event.type == RDMA_CM_EVENT_CONNECT_REQUEST && !r->current && !r->request.id)
			r->request = event;
		else if (event.type == RDMA_CM_EVENT_CONNECT_REQUEST)
			refuse(event.id, WIRE_BUSY);
		else if (r->current && event.id == r->current->conn->id)
			conn_event(r->current->conn, &event);
	}
	r->broken |= got < 0;
}

static void report(const struct recv *r, const struct recv_file *f, const char *device,
		   const char *peer)
{
	const struct digest_text digest = digest_text(f->digest.value);
	struct out out;

	out_open(&out, stdout, r->json);
	out_str(&out, "event", NULL, "received");
	out_str(&out, "file", "received", r->path);
	out_str(&out, "from", "from", peer);
	out_str(&out, "device", "over", device);
	out_transfer(&out, f->conn->peer.bytes, f->seconds, digest.text, digest.text,
		     f->registrations);
	out_close(&out);
}

static void report_failure(const struct recv *r, const char *peer, const char *why)
{
	struct out out;

	cli_error(r->name, "%s: %s", peer, why);
	if (!r->json)
		return;
	out_open(&out, stdout, true);
	out_str(&out, "event", NULL, "failed");
	out_str(&out, "from", NULL, peer);
	out_str(&out, "why", NULL, why);
	out_close(&out);
}

/* Accept the request and receive. Returns CLI_OK, or CLI_FAILED, which has been said. */
static int transfer(struct recv *r, struct recv_file *f, struct conn *c, const char *peer)
{
	struct rdma_cm_id *id = r->request.id;
	uint8_t bytes[WIRE_HELLO];
	struct rdma_conn_param param;
	struct buffers *buffers = find_buffers(r, id->verbs);

	recv_file_setup(f, c);
	if (!buffers || conn_open(c, id, buffers, WIRE_RECEIVER)) {
		report_failure(r, peer, buffers ? c->why : "no buffers");
		return CLI_FAILED;
	}
	conn_greet(c, r->request.data, r->request.length); /* it was good before */
	conn_param(c, bytes, &param);
	r->current = f;
	if (rdma_accept(id, &param)) {
		report_failure(r, peer, strerror(errno));
		return CLI_FAILED;
	}
	if (recv_file(f)) {
		report_failure(r, peer, f->why);
		return CLI_FAILED;
	}
	report(r, f, ibv_get_device_name(id->verbs->device), peer);
	return CLI_OK;
}

/* Serve the sender that asks. Returns true if it was one; *status is how it went. */
static bool serve(struct recv *r, int *status, bool *interrupted)
{
	struct rdma_cm_id *id = r->request.id;
	const struct addr_text peer = addr_host_text(rdma_get_peer_addr(id));
	struct conn c = {0};
	struct recv_file *f;
	const char *wrong = conn_check(r->request.data, r->request.length, WIRE_SENDER);

	if (wrong) {
		cli_error(r->name, "%s: %s; refused", peer.text, wrong);
		refuse(id, WIRE_BAD_MESSAGE);
		r->request.id = NULL;
		return false;
	}
	f = calloc(1, sizeof *f);
	if (!f) {
		refuse(id, WIRE_NO_RESOURCES);
		r->request.id = NULL;
		return false;
	}
	*f = (struct recv_file){.path = r->path,
				.channel_fd = r->channel->fd,
				.signal_fd = r->signal_fd,
				.take_events = take_events,
				.arg = r};
	*status = transfer(r, f, &c, peer.text);
	*interrupted = f->interrupted;
	conn_close(&c);
	r->current = NULL;
	r->request.id = NULL;
	rdma_destroy_id(id);
	free(f);
	return true;
}

static int serve_all(struct recv *r)
{
	struct pollfd fds[] = {{.fd = r->channel->fd, .events = POLLIN},
			       {.fd = r->signal_fd, .events = POLLIN}};
	bool interrupted = false;
	int status;

	for (;;) {
		take_events(r);
		if (r->broken) {
			cli_error(r->name, "connection manager: %s", strerror(errno));
			return CLI_FAILED;
		}
		if (r->request.id && serve(r, &status, &interrupted)) {
			if (r->once || interrupted)
				return status;
			continue;
		}
		if (signals_next(r->signal_fd)) {
			if (!r->once) /* the way to end it */
				return CLI_OK;
			cli_error(r->name, "interrupted before anything came");
			return CLI_FAILED;
		}
		poll(fds, 2, -1);
	}
}

/* Make the buffers before the first sender comes, where it is clear on which device. */
static int prepare_buffers(struct recv *r)
{
	struct ibv_context **list;
	struct ibv_context *only = r->listener->verbs; /* set if bound to a device's address */
	int n = 0;

	if (!only) {
		list = rdma_get_devices(&n);
		if (list && n == 1)
			only = list[0];
		rdma_free_devices(list);
	}
	return only && !find_buffers(r, only) ? -1 : 0;
}

static int say_listening(struct recv *r)
{
	const struct addr_text host = addr_host_text(rdma_get_local_addr(r->listener));
	const uint16_t port = ntohs(rdma_get_src_port(r->listener));
	struct out out;

	if (!r->json) {
		fprintf(stderr, "sgpool %s: listening on %s port %u\n", r->name, host.text, port);
		return 0;
	}
	out_open(&out, stdout, true);
	out_str(&out, "event", NULL, "listening");
	out_str(&out, "address", NULL, host.text);
	out_u64(&out, "port", NULL, port);
	out_close(&out);
	return 0;
}

static int bind_listener(struct recv *r, const struct addr *addr)
{
	struct addrinfo *list;
	const char *why = addr_resolve(addr, AI_PASSIVE, &list);
	int err;

	if (why) {
		cli_error(r->name, "%s: %s; --bind takes an address of this machine", addr->host,
			  why);
		return -1;
	}
	err = rdma_create_id(r->channel, &r->listener, NULL, RDMA_PS_TCP) ? errno : 0;
	if (!err && rdma_bind_addr(r->listener, list->ai_addr))
		err = errno;
	if (!err && rdma_listen(r->listener, BACKLOG))
		err = errno;
	freeaddrinfo(list);
	if (err)
		cli_error(r->name, "%s port %u: can't listen: %s%s", addr->host, addr->port,
			  strerror(err),
			  err == EADDRINUSE ? "; choose another --port"
			  : err == ENODEV || err == EADDRNOTAVAIL
				  ? "; no RDMA device has this address, see 'sgpool doctor'"
				  : "");
	return err ? -1 : 0;
}

/* Can the file be written at all? Better said now than to the first sender. */
static int check_path(const struct recv *r)
{
	struct outfile file;

	if (outfile_open(&file, r->path)) {
		cli_error(r->name, "%s: can't be written: %s", r->path,
			  errno == EEXIST ? "it is no regular file" : strerror(errno));
		return -1;
	}
	outfile_close(&file);
	return 0;
}

static int receive(struct recv *r, const struct addr *addr)
{
	int status = CLI_FAILED;

	if (check_path(r))
		return CLI_FAILED;
	r->signal_fd = signals_open();
	r->channel = cm_open();
	if (r->signal_fd < 0)
		cli_error(r->name, "signals: %s", strerror(errno));
	else if (!r->channel)
		cli_error(r->name, "the RDMA connection manager: %s; see 'sgpool doctor'",
			  strerror(errno));
	else if (bind_listener(r, addr) == 0 && prepare_buffers(r) == 0 && say_listening(r) == 0)
		status = serve_all(r);
	if (r->listener)
		rdma_destroy_id(r->listener);
	for (int i = 0; i < r->devices; i++)
		buffers_close(&r->buffers[i]);
	if (r->channel)
		rdma_destroy_event_channel(r->channel);
	if (r->signal_fd >= 0)
		close(r->signal_fd);
	return cli_finish(r->name, status);
}

static int run(const struct cli_command *self, int argc, char **argv)
{
	enum {
		BIND = 1,
		PORT,
		ONCE
	};
	static const struct option options[] = {
		{"bind", required_argument, NULL, BIND},
		{"port", required_argument, NULL, PORT},
		{"once", no_argument, NULL, ONCE},
		{"output", required_argument, NULL, 'o'},
		{NULL, 0, NULL, 0},
	};
	static struct recv r;
	struct addr addr = {.host = "0.0.0.0"};
	uint64_t port = TRANSFER_PORT;
	int opt;

	r.name = self->name;
	while ((opt = cli_option(self, argc, argv, "o:", options, &r.json)) != -1) {
		if (opt == 'o')
			r.path = optarg;
		else if (opt == ONCE)
			r.once = true;
		else if (opt == PORT && parse_number(optarg, 0, UINT16_MAX, &port))
			cli_usage(self, "'%s' is no port", optarg);
		else if (opt == BIND &&
			 (strchr(optarg, ' ') || !*optarg || strlen(optarg) >= sizeof addr.host))
			cli_usage(self, "'%s' is no address", optarg);
		else if (opt == BIND)
			snprintf(addr.host, sizeof addr.host, "%s", optarg);
	}
	if (optind < argc)
		cli_usage(self, "'%s' is too much: the file is given by -o", argv[optind]);
	if (!r.path || !*r.path)
		cli_usage(self, "it needs -o FILE");
	addr.port = (uint16_t)port;
	return receive(&r, &addr);
}

const struct cli_command cli_recv = {
	.name = "recv",
	.summary = "receive a file from `sgpool send`",
	.usage = "[--bind ADDR] [--port P] [--once] [--json] -o FILE",
	.help = "Listens for `sgpool send` and writes what it sends to FILE, which appears (or is\n"
		"replaced) only when all of it is on disk and its SHA-256 is that of the sender. "
		"Takes\n"
		"one sender after the other until it gets SIGINT or SIGTERM; another one that "
		"comes\n"
		"meanwhile is told to try again. Says on the standard error stream (with --json: "
		"as an\n"
		"event) when it listens.\n\n"
		"  -o, --output FILE  where the data goes\n"
		"  --bind ADDR        listen on this address only (default 0.0.0.0; :: for IPv6)\n"
		"  --port P           listen on this port (default 18520; 0: any that is free)\n"
		"  --once             end after one transfer, with its status\n\n"
		"With --json there is one object a line: its \"event\" is listening, received or "
		"failed.\n",
	.run = run,
};
