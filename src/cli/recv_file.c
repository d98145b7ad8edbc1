/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The receiver's side of a transfer. This thread takes messages off the queue, one writes their
 * chunks to the file, one hashes them; then their chunks go back to the pool, a receive is posted
 * in their place, and the sender is granted a credit.
 *
 * A file whose digest is the sender's gets its name in the hashing thread, behind all of the data;
 * from then on the transfer has worked, whatever becomes of the connection.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cli/clock.h"
#include "cli/recv_file.h"
#include "cli/signals.h"

enum {
	GOODBYE_MS = 5000
}; /* for the sender to hear the verdict and disconnect */

static void __attribute__((format(printf, 3, 4)))
fail(struct recv_file *r, enum wire_code code, const char *fmt, ...)
{
	va_list ap;

	if (r->why[0])
		return;
	r->code = code;
	va_start(ap, fmt);
	vsnprintf(r->why, sizeof r->why, fmt, ap);
	va_end(ap);
}

/* First step. */
static void write_step(void *arg, struct message *m)
{
	struct recv_file *r = arg;
	struct iovec iov[TRANSFER_CHUNKS];

	if (m->header.type != WIRE_DATA)
		return;
	memcpy(iov, m->payload, sizeof iov);
	if (outfile_write(&r->file, iov, m->pieces, m->header.offset))
		m->error = errno;
}

/* Second step. */
static void hash_step(void *arg, struct message *m)
{
	struct recv_file *r = arg;

	if (m->header.type == WIRE_DATA) {
		if (digest_add(&r->digest, m->payload, m->pieces))
			m->error = errno;
		return;
	}
	if (digest_end(&r->digest)) {
		m->error = errno;
		return;
	}
	m->differs = memcmp(r->digest.value, m->header.digest, WIRE_DIGEST) != 0;
	if (!m->differs && outfile_commit(&r->file))
		m->error = errno;
}

/* Where the payload landed: behind the header, which is a chunk of its own. */
static int find_payload(struct message *m)
{
	struct iovec iov[MESSAGE_SGES];
	const int n = sgp_sgl_iovec(&m->sgl, iov, MESSAGE_SGES);

	m->pieces = 0;
	if (n < 1 || iov[0].iov_len != WIRE_HEADER)
		return -1;
	for (int i = 1; i < n; i++)
		if (iov[i].iov_len > 0)
			m->payload[m->pieces++] = iov[i];
	return 0;
}

static void on_start(struct recv_file *r, const struct wire_header *header)
{
	r->began = clock_ns();
	progress_begin(&r->progress, header->code == 1 ? header->offset : 0);
	if (outfile_open(&r->file, r->path))
		fail(r, WIRE_WRITE_FAILED, "%s: can't be written: %s", r->path, strerror(errno));
}

static void on_received(void *arg, const struct wire_header *header, struct sgp_sgl *sgl)
{
	struct recv_file *r = arg;
	struct message *m = r->unused;

	if (header->type == WIRE_DATA || header->type == WIRE_END) {
		/* No more messages can come than there are receives, which there are as many of. */
		if (!m || sgp_sgl_move(&m->sgl, sgl)) {
			fail(r, WIRE_NO_RESOURCES, "a message has no place");
			return;
		}
		r->unused = m->next;
		m->header = *header;
		m->last = r->has_end = header->type == WIRE_END;
		if (find_payload(m))
			fail(r, WIRE_NO_RESOURCES, "a message is not where it should be");
		pipeline_push(&r->pipeline, m);
		return;
	}
	sgp_sgl_clear(sgl);
	if (header->type == WIRE_START)
		on_start(r, header);
	conn_repost(r->conn);
}

/* Nothing with payload is sent. */
static void on_sent(void *arg, struct message *m)
{
	(void)arg;
	(void)m;
}

/* Take what the threads have done. */
static void collect(struct recv_file *r)
{
	struct message *m;

	while ((m = pipeline_pop(&r->pipeline))) {
		if (m->error && m->last)
			fail(r, WIRE_WRITE_FAILED, "%s: can't be put on disk: %s", r->path,
			     strerror(m->error));
		else if (m->error)
			fail(r, WIRE_WRITE_FAILED, "%s: can't be written: %s", r->path,
			     strerror(m->error));
		if (m->last && !m->error && r->digest.ended) {
			r->finished = true;
			r->seconds = (double)(clock_ns() - r->began) / 1e9;
			r->differs = m->differs;
			r->complete = !m->differs;
		}
		message_reset(m);
		m->next = r->unused;
		r->unused = m;
		conn_repost(r->conn);
	}
}

/* The verdict is the last word; the sender disconnects when it has heard it. */
static void say_verdict(struct recv_file *r)
{
	struct wire_header verdict = {.type = WIRE_VERDICT,
				      .offset = r->conn->peer.bytes,
				      .code = r->differs ? WIRE_DIGEST_DIFFERS : WIRE_OK};

	memcpy(verdict.digest, r->digest.value, WIRE_DIGEST);
	r->said_verdict = conn_post(r->conn, &verdict, NULL) == 0;
}

/* One turn: look at everything once, then sleep until there is something new. */
static void turn(struct recv_file *r, int64_t until)
{
	const int fds[] = {r->channel->fd, r->pipeline.done_fd, r->signal_fd};
	struct conn *c = r->conn;
	int sleep_ms;

	r->take_events(r->arg);
	conn_reap(c);
	collect(r);
	if (r->finished && !r->said_verdict)
		say_verdict(r);
	sleep_ms = r->said_verdict ? CONN_ALIVE_MS : conn_tick(c);
	progress_draw(&r->progress, c->peer.bytes);
	if (signals_next(r->signal_fd)) {
		r->interrupted = true;
		fail(r, WIRE_INTERRUPTED, "interrupted");
	}
	if (r->why[0] || c->over || (r->said_verdict && clock_ms() >= until))
		return;
	conn_sleep(c, fds, 3, r->progress.shown && sleep_ms > PROGRESS_MS ? PROGRESS_MS : sleep_ms);
}

/*
 * Until it has been told whether all went well, or the connection is over. With all data here that
 * is no reason to give up: what is in the pipeline is waited for.
 */
static void loop(struct recv_file *r)
{
	struct conn *c = r->conn;
	int64_t until = INT64_MAX;

	while (!r->why[0] && !c->over) {
		turn(r, until);
		if (r->said_verdict && until == INT64_MAX)
			until = clock_ms() + GOODBYE_MS;
		if (clock_ms() >= until)
			break;
	}
}

static void judge(struct recv_file *r)
{
	if (r->complete) {
		r->why[0] = 0;
	} else if (r->differs) {
		fail(r, WIRE_DIGEST_DIFFERS,
		     "what arrived has another SHA-256 than what was sent; send it again");
	} else if (!r->why[0]) {
		conn_reason(r->conn, r->channel, r->take_events, r->arg, r->why, sizeof r->why);
	}
}

int recv_file(struct recv_file *r)
{
	struct conn *c = r->conn;
	const uint64_t registrations = buffers_registrations(c->buffers);

	r->file = (struct outfile){.fd = -1, .directory = -1};
	r->unused = messages_init(r->messages, TRANSFER_MESSAGES);
	r->began = clock_ns();
	if (digest_begin(&r->digest)) {
		fail(r, WIRE_NO_RESOURCES, "libcrypto has no SHA-256");
	} else if (pipeline_start(&r->pipeline, write_step, hash_step, r)) {
		fail(r, WIRE_NO_RESOURCES, "no threads: %s", strerror(errno));
	} else {
		loop(r);
		progress_end(&r->progress);
		if (r->has_end && !r->interrupted)
			pipeline_finish(&r->pipeline);
		pipeline_stop(&r->pipeline);
		collect(r);
		pipeline_free(&r->pipeline);
	}
	r->registrations = buffers_registrations(c->buffers) - registrations;
	judge(r);
	if (r->finished && !r->said_verdict)
		say_verdict(r);
	else if (!r->finished && r->code != WIRE_OK)
		conn_abort(c, r->code);
	outfile_close(&r->file);
	digest_free(&r->digest);
	return r->why[0] ? -1 : 0;
}

void recv_file_setup(struct recv_file *r, struct conn *c)
{
	r->conn = c;
	c->received = on_received;
	c->sent = on_sent;
	c->arg = r;
}
