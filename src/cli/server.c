/* SPDX-License-Identifier: BSD-2-Clause */
/* The receiving side of `sgpool recv`: listens, takes one transfer after the other, and reports. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/listen.h"
#include "cli/out.h"
#include "cli/recv_file.h"
#include "cli/server.h"
#include "cli/signals.h"

enum {
	DEVICES = 64
};

struct server {
	const struct server_options *o;
	struct rdma_event_channel *channel;
	int signal_fd;
	struct rdma_cm_id *listener;
	/* One for each device that a connection came over (or will, if there is only one). */
	struct buffers buffers[DEVICES];
	int devices;
	struct cm_event request; /* the sender that is to be served next, if its id is not NULL */
	struct recv_file *current;
	bool broken; /* the event channel failed */
};

static struct buffers *find_buffers(struct server *s, struct ibv_context *verbs)
{
	for (int i = 0; i < s->devices; i++)
		if (s->buffers[i].verbs == verbs)
			return &s->buffers[i];
	if (s->devices == DEVICES) {
		cli_error(s->o->name, "more than %d devices", DEVICES);
		return NULL;
	}
	if (buffers_open(&s->buffers[s->devices], verbs, true, s->o->name))
		return NULL;
	return &s->buffers[s->devices++];
}

/*
 * Whoever asks while a transfer lasts is refused. But its sender may have been told that all is well,
 * and the next one be here, before we have seen it go: that one is next.
 */
static void on_request(struct server *s, const struct cm_event *event)
{
	const struct recv_file *f = s->current;

	if (s->request.id || (f && !f->said_verdict && !f->conn->over))
		conn_refuse(event->id, WIRE_BUSY);
	else
		s->request = *event;
}

/* Take the channel's events: a connection's go to it. */
static void take_events(void *arg)
{
	struct server *s = arg;
	struct cm_event event;
	int got;

	while ((got = cm_next(s->channel, &event)) > 0) {
		if (event.type == RDMA_CM_EVENT_CONNECT_REQUEST)
			on_request(s, &event);
		else if (s->current && event.id == s->current->conn->id)
			conn_event(s->current->conn, &event);
	}
	s->broken |= got < 0;
}

static void report(const struct server *s, const struct recv_file *f, const char *device,
		   const char *peer)
{
	const struct digest_text digest = digest_text(f->digest.value);
	struct out out;

	out_open(&out, s->o->out, s->o->json);
	out_str(&out, "event", NULL, "received");
	out_str(&out, "file", "received", s->o->path);
	out_str(&out, "from", "from", peer);
	out_str(&out, "device", "over", device);
	out_transfer(&out, f->conn->peer.bytes, f->seconds, digest.text, digest.text,
		     f->registrations);
	out_close(&out);
}

static void report_failure(const struct server *s, const char *peer, const char *why)
{
	struct out out;

	cli_error(s->o->name, "%s: %s", peer, why);
	if (!s->o->json)
		return;
	out_open(&out, s->o->out, true);
	out_str(&out, "event", NULL, "failed");
	out_str(&out, "from", NULL, peer);
	out_str(&out, "why", NULL, why);
	out_close(&out);
}

/* Get ready and accept. Returns 0; -1, which has been said, with nothing accepted. */
static int accept_sender(struct server *s, const struct cm_event *request, struct recv_file *f,
			 struct conn *c, const char *peer)
{
	struct rdma_cm_id *id = request->id;
	uint8_t bytes[WIRE_HELLO];
	struct rdma_conn_param param;
	struct buffers *buffers = find_buffers(s, id->verbs);
	const char *why = "no buffers";

	recv_file_setup(f, c);
	if (!buffers)
		goto failed;
	why = c->why;
	if (conn_open(c, id, buffers, WIRE_RECEIVER))
		goto failed;
	conn_greet(c, request->data, request->length); /* it was good before */
	conn_param(c, bytes, &param);
	s->current = f;
	if (!rdma_accept(id, &param))
		return 0;
	conn_fail(c, "can't be accepted: %s", strerror(errno));
failed:
	report_failure(s, peer, why);
	return -1;
}

/* Returns CLI_OK, or CLI_FAILED, which has been said. The id is used up. */
static int serve_with(struct server *s, const struct cm_event *request, struct recv_file *f,
		      const char *peer)
{
	struct rdma_cm_id *id = request->id;
	struct conn c = {0};
	int status = CLI_FAILED;

	if (accept_sender(s, request, f, &c, peer)) {
		conn_close(&c);
		conn_refuse(id, WIRE_NO_RESOURCES);
		return CLI_FAILED;
	}
	if (recv_file(f)) {
		report_failure(s, peer, f->why);
	} else {
		report(s, f, ibv_get_device_name(id->verbs->device), peer);
		status = CLI_OK;
	}
	conn_close(&c);
	rdma_destroy_id(id);
	return status;
}

/* Serve the sender that asks. Returns true if it was one; *status is how it went. */
static bool serve(struct server *s, int *status, bool *interrupted)
{
	const struct cm_event request = s->request;
	struct rdma_cm_id *id = request.id;
	const struct addr_text peer = addr_host_text(rdma_get_peer_addr(id));
	const char *wrong = conn_check(request.data, request.length, WIRE_SENDER);
	struct recv_file *f = wrong ? NULL : calloc(1, sizeof *f);
	bool served;

	s->request.id = NULL;
	if (f) {
		*f = (struct recv_file){.path = s->o->path,
					.channel = s->channel,
					.signal_fd = s->signal_fd,
					.take_events = take_events,
					.arg = s};
		*status = serve_with(s, &request, f, peer.text);
		*interrupted = f->interrupted;
	} else {
		cli_error(s->o->name, "%s: %s; refused", peer.text, wrong ? wrong : "no memory");
		conn_refuse(id, wrong ? WIRE_BAD_MESSAGE : WIRE_NO_RESOURCES);
	}
	s->current = NULL;
	served = f != NULL;
	free(f);
	return served;
}

static int serve_all(struct server *s)
{
	struct pollfd fds[] = {{.fd = s->channel->fd, .events = POLLIN},
			       {.fd = s->signal_fd, .events = POLLIN}};
	bool interrupted = false;
	int status;

	listen_say(s->o->name, s->listener, s->o->out, s->o->json);
	for (;;) {
		take_events(s);
		if (s->broken) {
			cli_error(s->o->name, "connection manager: %s", strerror(errno));
			return CLI_FAILED;
		}
		if (s->request.id && serve(s, &status, &interrupted)) {
			if (s->o->once || interrupted)
				return status;
			continue;
		}
		if (signals_next(s->signal_fd)) {
			if (!s->o->once) /* the way to end it */
				return CLI_OK;
			cli_error(s->o->name, "interrupted before anything came");
			return CLI_FAILED;
		}
		poll(fds, 2, -1);
	}
}

/* Listen, and make the buffers before the first sender comes, where it is clear on which device. */
static int prepare(struct server *s)
{
	struct ibv_context *only;

	s->listener = listen_open(s->o->name, s->channel, &s->o->addr);
	if (!s->listener)
		return -1;
	only = listen_device(s->listener);
	return only && !find_buffers(s, only) ? -1 : 0;
}

/* Can the file be written at all? Better said now than to the first sender. */
static int check_path(const struct server_options *o)
{
	struct outfile file;

	if (outfile_open(&file, o->path)) {
		cli_error(o->name, "%s: can't be written: %s", o->path,
			  errno == EEXIST ? "it is no regular file" : strerror(errno));
		return -1;
	}
	outfile_close(&file);
	return 0;
}

int server_run(const struct server_options *options)
{
	struct server *s;
	int status = CLI_FAILED;

	if (check_path(options))
		return CLI_FAILED;
	s = calloc(1, sizeof *s);
	if (!s) {
		cli_error(options->name, "no memory");
		return CLI_FAILED;
	}
	s->o = options;
	s->signal_fd = signals_open();
	s->channel = cm_open();
	if (s->signal_fd < 0)
		cli_error(options->name, "signals: %s", strerror(errno));
	else if (!s->channel)
		cli_error(options->name, "the RDMA connection manager: %s; see 'sgpool doctor'",
			  strerror(errno));
	else if (prepare(s) == 0)
		status = serve_all(s);
	if (s->request.id) /* it came too late */
		conn_refuse(s->request.id, WIRE_BUSY);
	if (s->listener)
		rdma_destroy_id(s->listener);
	for (int i = 0; i < s->devices; i++)
		buffers_close(&s->buffers[i]);
	if (s->channel)
		rdma_destroy_event_channel(s->channel);
	if (s->signal_fd >= 0)
		close(s->signal_fd);
	free(s);
	return status;
}
