/* SPDX-License-Identifier: BSD-2-Clause */
/* The sending side of `sgpool send`: finds the receiver, connects, sends the file, and reports. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/client.h"
#include "cli/dial.h"
#include "cli/out.h"
#include "cli/send_file.h"
#include "cli/signals.h"

struct client {
	const struct client_options *o;
	struct dial dial; /* and the channel and signals of all */
	struct rdma_cm_id *id;
	struct buffers buffers;
	struct conn conn;
	struct send_file file;
};

static const char nobody[] = "nobody receives there; start 'sgpool recv' on that machine first";

static int connect_peer(struct client *s)
{
	uint8_t bytes[WIRE_HELLO];
	struct rdma_conn_param param;
	struct cm_event event;
	const char *why;

	if (buffers_open(&s->buffers, s->id->verbs, true, s->o->name))
		return -1;
	if (conn_open(&s->conn, s->id, &s->buffers, WIRE_SENDER)) {
		cli_error(s->o->name, "%s: %s", ibv_get_device_name(s->id->verbs->device),
			  s->conn.why);
		return -1;
	}
	conn_param(&s->conn, bytes, &param);
	why = dial_connect(&s->dial, s->id, &param, &event);
	why = why ? conn_refusal(&event, why) : conn_greet(&s->conn, event.data, event.length);
	if (why) {
		cli_error(s->o->name, "%s: %s", s->dial.peer.text, why);
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
	out_str(&out, "to", "to", s->dial.peer.text);
	out_str(&out, "device", "over", ibv_get_device_name(s->id->verbs->device));
	out_transfer(&out, f->bytes, f->seconds, digest_text(f->digest.value).text,
		     digest_text(f->verdict.digest).text, f->registrations);
	out_close(&out);
}

static int transfer(struct client *s)
{
	s->id = dial_find(&s->dial, &s->o->addr);
	if (!s->id || connect_peer(s))
		return CLI_FAILED;
	s->file.signal_fd = s->dial.signal_fd;
	s->file.channel = s->dial.channel;
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
	struct dial *d = &s->dial;
	int status = CLI_FAILED;

	d->signal_fd = signals_open();
	d->channel = cm_open();
	if (d->signal_fd < 0)
		cli_error(s->o->name, "signals: %s", strerror(errno));
	else if (!d->channel)
		cli_error(s->o->name, "the RDMA connection manager: %s; see 'sgpool doctor'",
			  strerror(errno));
	else
		status = transfer(s);
	conn_close(&s->conn);
	if (s->id)
		rdma_destroy_id(s->id);
	buffers_close(&s->buffers);
	if (d->channel)
		rdma_destroy_event_channel(d->channel);
	if (d->signal_fd >= 0)
		close(d->signal_fd);
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
	s->dial = (struct dial){.command = options->name, .nobody = nobody, .timeout_ms = DIAL_MS};
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
