/* SPDX-License-Identifier: BSD-2-Clause */
/* A session of sgpool perf at either end. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/clock.h"
#include "cli/perf_session.h"
#include "cli/signals.h"

void perf_patience_begin(struct perf_patience *p, const struct perf_session *s)
{
	/* With one that is silent it is over before. */
	*p = (struct perf_patience){.until = clock_ms() + s->timeout_ms + CONN_ALIVE_MS};
}

bool perf_patience_over(struct perf_patience *p, const struct perf_session *s, uint64_t so_far)
{
	if (so_far == p->seen)
		return clock_ms() >= p->until;
	perf_patience_begin(p, s);
	p->seen = so_far;
	return false;
}

static const char *read_message(struct perf_session *s, const struct wire_header *header)
{
	if (s->client && !s->asked)
		return "an answer to no question";
	if (s->has_message)
		return "a question before the last one was answered";
	return perf_get(header, !s->client, &s->message);
}

static void received(void *arg, const struct wire_header *header, struct sgp_sgl *sgl)
{
	struct perf_session *s = arg;
	const char *wrong = read_message(s, header);

	sgp_sgl_clear(sgl);
	conn_repost(&s->conn);
	s->asked = false;
	if (!wrong) {
		s->has_message = true;
		return;
	}
	s->code = WIRE_BAD_MESSAGE;
	conn_fail(&s->conn, "the other end broke the protocol: %s", wrong);
}

static void sent(void *arg, struct message *m)
{
	(void)arg;
	(void)m;
}

int perf_session_open(struct perf_session *s, struct rdma_cm_id *id, const char *command)
{
	s->conn.received = received;
	s->conn.sent = sent;
	s->conn.arg = s;
	s->conn.silence_ms = s->timeout_ms;
	if (buffers_open(&s->buffers, id->verbs, false, command))
		return -1;
	return conn_open(&s->conn, id, &s->buffers, s->client ? WIRE_CLIENT : WIRE_SERVER);
}

struct perf_test *perf_session_find(struct perf_session *s, uint32_t id)
{
	for (int i = 0; i < PERF_TESTS; i++)
		if (s->test[i] && s->test[i]->id == id)
			return s->test[i];
	return NULL;
}

int perf_session_fail(struct perf_session *s, enum wire_code code, const char *why)
{
	if (!s->conn.over)
		s->code = code;
	conn_fail(&s->conn, "%s", why);
	return -1;
}

/* Returns whether the event was one of a test's connection. */
static bool test_event(struct perf_session *s, const struct cm_event *event)
{
	for (int i = 0; i < PERF_TESTS; i++) {
		struct perf_link *l = perf_test_find(s->test[i], event->id);

		if (!l)
			continue;
		/* A peer that dies lets go of all its connections: the control one says so, too. */
		if (!perf_link_event(l, event) && !s->test[i]->closing)
			s->conn.over = s->conn.broken = s->conn.gone = true;
		return true;
	}
	return false;
}

void perf_session_events(void *arg)
{
	struct perf_session *s = arg;
	struct cm_event event;
	int got;

	while ((got = cm_next(s->channel, &event)) > 0) {
		if (event.type != RDMA_CM_EVENT_CONNECT_REQUEST && event.id == s->conn.id)
			conn_event(&s->conn, &event);
		else if (event.type == RDMA_CM_EVENT_CONNECT_REQUEST || !test_event(s, &event))
			s->others(s->arg, &event);
	}
	if (got < 0)
		perf_session_fail(s, WIRE_NO_RESOURCES, "the connection manager failed");
}

/* Has a thread of the running test failed? If the peer is gone, the events will say so. */
static void look_after_test(struct perf_session *s)
{
	const char *why = s->running ? perf_test_why(s->running) : NULL;
	struct conn *c = &s->conn;

	if (!why || c->over)
		return;
	c->over = true;
	s->code = WIRE_NO_RESOURCES;
	snprintf(c->refusal, sizeof c->refusal, "%s", why);
}

static void empty_eventfd(int fd)
{
	uint64_t count;

	while (read(fd, &count, sizeof count) == (ssize_t)sizeof count)
		;
}

int perf_session_turn(struct perf_session *s, int timeout_ms)
{
	int fds[3] = {s->channel->fd, s->signal_fd, -1}, n = 2;
	struct conn *c = &s->conn;
	int sleep_ms;

	if (s->running) {
		fds[n++] = s->running->done_fd;
		empty_eventfd(s->running->done_fd);
	}
	perf_session_events(s);
	if (!c->broken)
		conn_reap(c);
	sleep_ms = conn_tick(c);
	look_after_test(s);
	if (signals_next(s->signal_fd)) {
		s->interrupted = true;
		perf_session_fail(s, WIRE_INTERRUPTED, "interrupted");
	}
	if (c->over)
		return -1;
	if (!s->has_message && timeout_ms > 0)
		conn_sleep(c, fds, n, sleep_ms < timeout_ms ? sleep_ms : timeout_ms);
	return 0;
}

int perf_session_say(struct perf_session *s, const struct perf_message *m)
{
	struct perf_patience patience;
	struct wire_header header;

	perf_put(&header, m);
	perf_patience_begin(&patience, s);
	while (conn_post(&s->conn, &header, NULL)) {
		if (perf_session_turn(s, 0))
			return -1;
		if (perf_patience_over(&patience, s, 0))
			return perf_session_fail(s, WIRE_BAD_MESSAGE,
						 "the other end takes no message from us");
		poll(NULL, 0, 1);
	}
	return 0;
}

void perf_session_why(struct perf_session *s, char *why, size_t size)
{
	conn_reason(&s->conn, s->channel, perf_session_events, s, why, size);
}

void perf_session_drop(struct perf_session *s, struct perf_test *t)
{
	for (int i = 0; i < PERF_TESTS; i++)
		if (s->test[i] == t)
			s->test[i] = NULL;
	if (s->running == t)
		s->running = NULL;
	perf_test_close(t);
}

void perf_session_close(struct perf_session *s)
{
	if (s->code != WIRE_OK && !s->conn.broken)
		conn_abort(&s->conn, s->code);
	for (int i = 0; i < PERF_TESTS; i++)
		if (s->test[i])
			perf_session_drop(s, s->test[i]);
	conn_close(&s->conn);
	buffers_close(&s->buffers);
}
