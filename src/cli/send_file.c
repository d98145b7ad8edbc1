/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The sender's side of a transfer. One thread reads the file into chunks, one hashes them, this one
 * posts what went through both, as far as the receiver's credits go.
 */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/clock.h"
#include "cli/send_file.h"
#include "cli/signals.h"

static void __attribute__((format(printf, 2, 3))) fail(struct send_file *s, const char *fmt, ...)
{
	va_list ap;

	if (s->why[0])
		return;
	va_start(ap, fmt);
	vsnprintf(s->why, sizeof s->why, fmt, ap);
	va_end(ap);
}

/* Wait until the file can be read: a pipe may never say anything. Returns false when stopped. */
static bool wait_readable(struct send_file *s)
{
	struct pollfd fds[] = {{.fd = s->fd, .events = POLLIN},
			       {.fd = s->pipeline.stop_fd, .events = POLLIN}};

	while (poll(fds, 2, -1) < 0 && errno == EINTR)
		;
	return !fds[1].revents;
}

/* Leave n bytes of the payload. */
static void trim_payload(struct message *m, size_t n)
{
	int i;

	for (i = 0; i < m->pieces && n > 0; i++) {
		if (m->payload[i].iov_len > n)
			m->payload[i].iov_len = n;
		n -= m->payload[i].iov_len;
	}
	m->pieces = i;
}

/* Read up to what the payload takes. Returns the bytes, fewer only at the end; -1 with errno. */
static ssize_t read_payload(struct send_file *s, const struct message *m)
{
	struct iovec rest[TRANSFER_CHUNKS];
	int first = 0;
	size_t total = 0;

	memcpy(rest, m->payload, sizeof rest);
	while (first < m->pieces) {
		ssize_t n;

		if (!wait_readable(s)) {
			errno = ECANCELED;
			return -1;
		}
		n = readv(s->fd, rest + first, m->pieces - first);
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n < 0)
			return -1;
		if (n == 0)
			break;
		total += (size_t)n;
		while (first < m->pieces && (size_t)n >= rest[first].iov_len)
			n -= (ssize_t)rest[first++].iov_len;
		if (first < m->pieces) {
			rest[first].iov_base = (char *)rest[first].iov_base + n;
			rest[first].iov_len -= (size_t)n;
		}
	}
	return (ssize_t)total;
}

/* First step: fill the message's chunks. The last message may be short or empty. */
static void read_step(void *arg, struct message *m)
{
	struct send_file *s = arg;
	size_t room = 0;
	ssize_t n = 0;

	for (int i = 0; i < m->pieces; i++)
		room += m->payload[i].iov_len;
	if (!s->at_end)
		n = read_payload(s, m);
	if (n < 0) {
		m->error = errno;
		return;
	}
	s->at_end = m->last = (size_t)n < room;
	m->header.length = (uint32_t)n;
	trim_payload(m, (size_t)n);
}

/* Second step. Messages behind the last one are empty, and last too. */
static void hash_step(void *arg, struct message *m)
{
	struct send_file *s = arg;

	if (digest_add(&s->digest, m->payload, m->pieces))
		m->error = errno;
}

/* Give m chunks for as much payload as the receiver takes. Returns 0; -1 when there are none. */
static int equip(struct send_file *s, struct message *m)
{
	const struct buffers *b = s->conn->buffers;
	size_t room = s->conn->payload;
	int n = 0;

	if (room > TRANSFER_PAYLOAD)
		room = TRANSFER_PAYLOAD;
	m->held[0] = sgp_pool_get(b->headers, WIRE_HEADER, 0);
	if (!m->held[0])
		return -1;
	m->holds = 1;
	n = (int)((room + TRANSFER_CHUNK - 1) / TRANSFER_CHUNK);
	if (sgp_pool_get_bulk(b->payload, TRANSFER_CHUNK, 0, m->held + 1, (size_t)n)) {
		message_reset(m);
		return -1;
	}
	m->holds += n;
	for (int i = 0; i < n; i++)
		m->payload[i] = (struct iovec){.iov_base = sgp_chunk_addr(m->held[i + 1]),
					       .iov_len = TRANSFER_CHUNK};
	m->pieces = n;
	trim_payload(m, room);
	m->header = (struct wire_header){.type = WIRE_DATA};
	return 0;
}

/* Let the threads read ahead as far as there are chunks. */
static void feed(struct send_file *s)
{
	while (!s->read_all && s->unused) {
		struct message *m = s->unused;

		if (equip(s, m))
			return;
		s->unused = m->next;
		pipeline_push(&s->pipeline, m);
	}
}

static void recycle(struct send_file *s, struct message *m)
{
	message_reset(m);
	m->next = s->unused;
	s->unused = m;
}

/* The list of a message that has been read: the header, and what was filled of each chunk. */
static int make_list(struct message *m)
{
	if (sgp_sgl_append(&m->sgl, m->held[0], 0, WIRE_HEADER))
		return -1;
	for (int i = 0; i < m->pieces; i++)
		if (sgp_sgl_append(&m->sgl, m->held[i + 1], 0, m->payload[i].iov_len)) {
			const int err = errno;

			sgp_sgl_clear(&m->sgl);
			memmove(m->held, m->held + i + 1,
				(size_t)(m->holds - i - 1) * sizeof *m->held);
			m->holds -= i + 1;
			errno = err;
			return -1;
		}
	sgp_chunk_put_bulk(m->held + 1 + m->pieces, (size_t)(m->holds - 1 - m->pieces));
	m->holds = 0;
	return 0;
}

/* Take what the threads have done. */
static void collect(struct send_file *s)
{
	struct message *m;

	while ((m = pipeline_pop(&s->pipeline))) {
		if (m->error && !s->conn->over)
			fail(s, "the file can't be read: %s", strerror(m->error));
		s->read_all |= m->last;
		if (m->error || m->header.length == 0 || s->conn->over) {
			recycle(s, m);
			continue;
		}
		if (make_list(m)) {
			fail(s, "a list can't be made: %s", sgp_errmsg());
			recycle(s, m);
			continue;
		}
		m->next = NULL;
		*s->ready_end = m;
		s->ready_end = &m->next;
	}
}

static void post_data(struct send_file *s)
{
	while (s->ready) {
		struct message *m = s->ready;
		struct message *next = m->next;

		m->header.offset = s->bytes;
		if (conn_post(s->conn, &m->header, m))
			return;
		s->bytes += m->header.length;
		s->ready = next;
		if (!next)
			s->ready_end = &s->ready;
	}
}

static void post(struct send_file *s)
{
	const struct wire_header start = {
		.type = WIRE_START, .offset = s->size, .code = s->sized ? 1 : 0};
	struct wire_header end = {.type = WIRE_END, .offset = s->bytes};

	if (!s->said_start)
		s->said_start = conn_post(s->conn, &start, NULL) == 0;
	if (!s->said_start)
		return;
	post_data(s);
	if (!s->read_all || s->ready || s->said_end || s->why[0])
		return;
	if (digest_end(&s->digest)) {
		fail(s, "SHA-256 failed");
		return;
	}
	end.offset = s->bytes;
	memcpy(end.digest, s->digest.value, WIRE_DIGEST);
	s->said_end = conn_post(s->conn, &end, NULL) == 0;
}

static void on_sent(void *arg, struct message *m)
{
	struct send_file *s = arg;

	recycle(s, m);
}

static void on_received(void *arg, const struct wire_header *header, struct sgp_sgl *sgl)
{
	struct send_file *s = arg;

	sgp_sgl_clear(sgl);
	if (header->type == WIRE_VERDICT) {
		s->has_verdict = true;
		s->verdict = *header;
		s->conn->over = true;
	}
	conn_repost(s->conn);
}

static void take_events(void *arg)
{
	struct send_file *s = arg;
	struct cm_event event;

	while (cm_next(s->channel, &event) > 0)
		conn_event(s->conn, &event);
}

/* One turn: look at everything once, then sleep until there is something new. */
static void turn(struct send_file *s)
{
	const int fds[] = {s->channel->fd, s->pipeline.done_fd, s->signal_fd};
	struct conn *c = s->conn;
	int sleep_ms;

	take_events(s);
	conn_reap(c);
	collect(s);
	feed(s);
	post(s);
	sleep_ms = conn_tick(c);
	progress_draw(&s->progress, s->bytes);
	if (signals_next(s->signal_fd)) {
		s->interrupted = true;
		fail(s, "interrupted");
	}
	if (s->why[0] || c->over)
		return;
	conn_sleep(c, fds, 3, s->progress.shown && sleep_ms > PROGRESS_MS ? PROGRESS_MS : sleep_ms);
}

/* After the loop: did it work? */
static void judge(struct send_file *s)
{
	const struct wire_header *v = &s->verdict;

	if (s->why[0])
		return;
	if (!s->has_verdict)
		conn_reason(s->conn, s->channel, take_events, s, s->why, sizeof s->why);
	else if (!s->said_end)
		fail(s, "the other end broke the protocol: a verdict before the end");
	else if (v->code != WIRE_OK)
		fail(s, "the other end gave up: %s", wire_code_text(v->code));
	else if (v->offset != s->bytes || memcmp(v->digest, s->digest.value, WIRE_DIGEST) != 0)
		fail(s, "the other end has other bytes; send it again");
}

static enum wire_code code_of_failure(const struct send_file *s)
{
	return s->interrupted ? WIRE_INTERRUPTED : WIRE_READ_FAILED;
}

int send_file(struct send_file *s)
{
	struct conn *c = s->conn;
	struct stat st;
	const uint64_t registrations = buffers_registrations(c->buffers);
	int64_t began;

	if (fstat(s->fd, &st) == 0 && S_ISREG(st.st_mode)) {
		s->sized = true;
		s->size = (uint64_t)st.st_size;
	}
	s->unused = messages_init(s->messages, TRANSFER_MESSAGES);
	s->ready_end = &s->ready;
	c->sent = on_sent;
	c->received = on_received;
	c->arg = s;
	if (digest_begin(&s->digest)) {
		fail(s, "libcrypto has no SHA-256");
	} else if (pipeline_start(&s->pipeline, read_step, hash_step, s)) {
		fail(s, "no threads: %s", strerror(errno));
	} else {
		progress_begin(&s->progress, s->size);
		began = clock_ns();
		while (!s->why[0] && !c->over)
			turn(s);
		s->seconds = (double)(clock_ns() - began) / 1e9;
		progress_end(&s->progress);
		if (s->why[0])
			conn_abort(c, code_of_failure(s));
		pipeline_stop(&s->pipeline);
		collect(s);
		pipeline_free(&s->pipeline);
		for (struct message *m = s->ready; m; m = m->next)
			message_reset(m);
	}
	judge(s);
	s->registrations = buffers_registrations(c->buffers) - registrations;
	digest_free(&s->digest);
	return s->why[0] ? -1 : 0;
}
