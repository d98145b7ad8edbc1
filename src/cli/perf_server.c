/* SPDX-License-Identifier: BSD-2-Clause */
/* The server of `sgpool perf`: takes one client after the other, and does what it asks for. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/listen.h"
#include "cli/out.h"
#include "cli/perf_server.h"
#include "cli/perf_session.h"
#include "cli/signals.h"

struct server {
	const struct perf_server_options *o;
	struct rdma_event_channel *channel;
	int signal_fd;
	struct rdma_cm_id *listener;
	struct cm_event request; /* the client that is to be served next, if its id is not NULL */
	struct perf_session *session;  /* with the client of now; NULL: none */
	uint64_t tests, messages;      /* of this session */
	struct perf_patience patience; /* with its client */
	bool ending;                   /* END came for the running test: */
	uint64_t said;                 /* so many messages the client says it sent */
};

/* ---- a test's connections ---- */

/* Which link of which test asks here? NULL, and *wrong says why it's none. */
static struct perf_link *asked_for(struct perf_session *s, const struct cm_event *event,
				   const char **wrong)
{
	struct perf_hello hello;
	struct perf_test *t;

	*wrong = perf_get_hello(event->data, event->length, &hello);
	if (*wrong)
		return NULL;
	t = perf_session_find(s, hello.id);
	*wrong = "it is no connection of a test that is open";
	if (!t || t->token != hello.token || hello.index >= t->p.conns || t->closing ||
	    t->link[hello.index].id || event->id->verbs != t->verbs)
		return NULL;
	return &t->link[hello.index];
}

/* Returns whether it is one more of a test's connections. */
static bool accept_link(struct perf_session *s, const struct cm_event *event)
{
	const char *wrong;
	struct perf_link *l = asked_for(s, event, &wrong);
	uint8_t bytes[PERF_DATA_HELLO];
	struct rdma_conn_param param;
	struct perf_test *t;

	if (!l) {
		conn_refuse(event->id, WIRE_BAD_MESSAGE);
		return false;
	}
	/* From here on the identifier is the test's. */
	t = l->worker->test;
	if (perf_link_open(t, (uint32_t)(l - t->link), event->id)) {
		perf_session_fail(s, WIRE_NO_RESOURCES, t->pool ? sgp_errmsg() : strerror(errno));
		return false;
	}
	wrong = perf_link_greet(l, event->data, event->length);
	if (wrong) {
		perf_session_fail(s, WIRE_BAD_MESSAGE, wrong);
		return false;
	}
	perf_link_param(l, bytes, &param);
	if (rdma_accept(event->id, &param))
		perf_session_fail(s, WIRE_NO_RESOURCES, strerror(errno));
	return true;
}

/* An event that is not of a connection that stands. */
static void on_event(void *arg, const struct cm_event *event)
{
	struct server *s = arg;
	struct perf_hello hello;

	if (event->type != RDMA_CM_EVENT_CONNECT_REQUEST)
		return;
	if (s->session && !perf_get_hello(event->data, event->length, &hello)) {
		if (accept_link(s->session, event))
			perf_patience_begin(&s->patience, s->session);
	} else if (s->request.id || (s->session && !s->session->conn.over)) {
		conn_refuse(event->id, WIRE_BUSY);
	} else { /* the client of now may have gone, and we not have got round to it */
		s->request = *event;
	}
}

/* ---- what the client asks for ---- */

static int answer(struct server *s, enum perf_say say, uint32_t id)
{
	const struct perf_message m = {.say = say, .id = id};

	return perf_session_say(s->session, &m);
}

static int set_up(struct server *s, const struct perf_message *asked)
{
	struct perf_message m = {.say = PERF_READY, .id = asked->id};
	struct perf_session *session = s->session;
	struct perf_test *t = NULL;
	char why[200];
	int i = 0;

	while (i < PERF_TESTS && session->test[i])
		i++;
	if (i == PERF_TESTS || perf_session_find(session, asked->id))
		return perf_session_fail(session, WIRE_BAD_MESSAGE,
					 "the other end broke the protocol: too many tests");
	if (getrandom(&m.token, sizeof m.token, 0) == (ssize_t)sizeof m.token)
		t = perf_test_open(&asked->params, asked->id, false, session->buffers.pd, why,
				   sizeof why);
	else
		snprintf(why, sizeof why, "no random numbers: %s", strerror(errno));
	if (t) {
		t->token = m.token;
		session->test[i] = t;
		s->tests++;
	} else {
		m.say = PERF_FAILED;
		m.error = errno > 0 ? (uint32_t)errno : EIO;
		cli_error(s->o->name, "a test can't be set up: %s", why);
	}
	return perf_session_say(session, &m);
}

static int begin(struct server *s, struct perf_test *t, uint64_t n)
{
	if (s->session->running || !perf_test_ready(t))
		return perf_session_fail(s->session, WIRE_BAD_MESSAGE,
					 "the other end broke the protocol: a run out of place");
	s->session->running = t;
	s->ending = false;
	perf_test_run(t, n);
	return answer(s, PERF_GO, t->id);
}

static int end(struct server *s, struct perf_test *t, uint64_t sent)
{
	if (s->session->running != t || s->ending)
		return perf_session_fail(s->session, WIRE_BAD_MESSAGE,
					 "the other end broke the protocol: an end out of place");
	s->ending = true;
	s->said = sent;
	perf_test_finish(t, sent);
	perf_test_enough(t);
	return 0;
}

/* The run has come to its end here, too? */
static int conclude(struct server *s)
{
	struct perf_session *session = s->session;
	struct perf_test *t = session->running;
	struct perf_message m = {.say = PERF_RESULT};

	if (!t || !s->ending || !perf_test_done(t))
		return 0;
	if (perf_test_why(t))
		return 0; /* the session has seen it, too */
	m.id = t->id;
	m.figures = perf_test_figures(t, NULL);
	if (perf_hears(t) && m.figures.received != s->said)
		return perf_session_fail(session, WIRE_BAD_MESSAGE,
					 "more messages came than it says it sent");
	s->messages += m.figures.received + m.figures.sent;
	session->running = NULL;
	s->ending = false;
	perf_patience_begin(&s->patience, session);
	return perf_session_say(session, &m);
}

/* Does the client bring anything on? One that does not keeps the others out. */
static int watch(struct server *s)
{
	struct perf_session *session = s->session;
	const struct perf_test *t = session->running;
	const char *why = t ? "it sends no more messages, nor an end" : "it asks for nothing";
	uint64_t so_far = 0;

	if (t && !s->ending && !perf_hears(t)) {
		perf_patience_begin(&s->patience, session); /* what it does can't be seen */
		return 0;
	}
	if (t)
		so_far = perf_test_sum(t, true) + perf_test_sum(t, false);
	if (s->ending && t)
		why = "messages that it says it sent did not come";
	return perf_patience_over(&s->patience, session, so_far)
		       ? perf_session_fail(session, WIRE_BAD_MESSAGE, why)
		       : 0;
}

static int obey(struct server *s)
{
	struct perf_session *session = s->session;
	const struct perf_message m = session->message;
	struct perf_test *t = perf_session_find(session, m.id);

	session->has_message = false;
	if (m.say == PERF_SETUP)
		return set_up(s, &m);
	if (!t)
		return perf_session_fail(session, WIRE_BAD_MESSAGE,
					 "the other end broke the protocol: no such test");
	switch (m.say) {
	case PERF_RUN:
		return begin(s, t, m.count);
	case PERF_END:
		return end(s, t, m.count);
	default: /* CLOSE */
		perf_session_drop(session, t);
		return answer(s, PERF_CLOSED, m.id);
	}
}

/* ---- a client ---- */

static bool idle(const struct perf_session *session)
{
	for (int i = 0; i < PERF_TESTS; i++)
		if (session->test[i])
			return false;
	return true;
}

static void report(struct server *s, const char *peer, const char *device, const char *why)
{
	struct out out;

	if (why)
		cli_error(s->o->name, "%s: %s", peer, why);
	if (why && !s->o->json)
		return;
	out_open(&out, s->o->out, s->o->json);
	out_str(&out, "event", NULL, why ? "failed" : "served");
	out_str(&out, "from", "served", peer);
	out_str(&out, "device", "over", device);
	out_u64(&out, "tests", "tests", s->tests);
	out_u64(&out, "messages", "messages", s->messages);
	if (why)
		out_str(&out, "why", NULL, why);
	out_close(&out);
}

/* Until the client goes. Returns 0; -1, and why says why. */
static int attend(struct server *s, char *why, size_t size)
{
	struct perf_session *session = s->session;

	while (!session->conn.over) {
		if (perf_session_turn(session, s->ending ? PERF_SLEEP_MS : CONN_ALIVE_MS))
			break;
		if (session->has_message) {
			if (obey(s))
				break;
			perf_patience_begin(&s->patience, session);
		}
		if (conclude(s) || watch(s))
			break;
	}
	/* Flushed receives may tell of the end before the event does, which is waited for here. */
	perf_session_why(session, why, size);
	/* That is how a client ends that has all it wanted, which was something. */
	return !session->conn.why[0] && session->conn.gone && s->tests && idle(session) ? 0 : -1;
}

/* Get ready and accept. Returns 0; -1, and why says why. */
static int accept_client(struct server *s, const struct cm_event *request, char *why, size_t size)
{
	struct perf_session *session = s->session;
	struct rdma_cm_id *id = request->id;
	uint8_t bytes[WIRE_HELLO];
	struct rdma_conn_param param;

	snprintf(why, size, "no buffers");
	if (perf_session_open(session, id, s->o->name)) {
		if (session->conn.why[0])
			snprintf(why, size, "%s", session->conn.why);
		return -1;
	}
	conn_greet(&session->conn, request->data, request->length); /* it was good before */
	conn_param(&session->conn, bytes, &param);
	if (!rdma_accept(id, &param))
		return 0;
	snprintf(why, size, "can't be accepted: %s", strerror(errno));
	return -1;
}

/* Serve the client that asks. Returns how it went. */
static int serve(struct server *s, const struct cm_event *request, struct perf_session *session,
		 const char *peer)
{
	struct rdma_cm_id *id = request->id;
	const char *device = ibv_get_device_name(id->verbs->device);
	char why[200];
	bool failed = false;

	*session = (struct perf_session){.channel = s->channel,
					 .signal_fd = s->signal_fd,
					 .timeout_ms = s->o->timeout_ms,
					 .others = on_event,
					 .arg = s};
	s->session = session;
	s->tests = s->messages = 0;
	s->ending = false;
	perf_patience_begin(&s->patience, session);
	if (accept_client(s, request, why, sizeof why)) {
		report(s, peer, device, why);
		session->conn.broken = true; /* nobody hears us */
		perf_session_close(session);
		s->session = NULL;
		conn_refuse(id, WIRE_NO_RESOURCES);
		return CLI_FAILED;
	}
	failed = attend(s, why, sizeof why) < 0;
	report(s, peer, device, failed ? why : NULL);
	perf_session_close(session);
	s->session = NULL;
	rdma_destroy_id(id);
	return failed ? CLI_FAILED : CLI_OK;
}

/* Returns whether it was a client; *status is how it went. */
static bool serve_request(struct server *s, int *status, bool *interrupted)
{
	const struct cm_event request = s->request;
	const struct addr_text peer = addr_host_text(rdma_get_peer_addr(request.id));
	const char *wrong = conn_check(request.data, request.length, WIRE_CLIENT);
	struct perf_session *session = wrong ? NULL : calloc(1, sizeof *session);

	s->request.id = NULL;
	if (session) {
		*status = serve(s, &request, session, peer.text);
		*interrupted = session->interrupted;
		free(session);
	} else {
		cli_error(s->o->name, "%s: %s; refused", peer.text, wrong ? wrong : "no memory");
		conn_refuse(request.id, wrong ? WIRE_BAD_MESSAGE : WIRE_NO_RESOURCES);
	}
	return !wrong;
}

static int serve_all(struct server *s)
{
	struct pollfd fds[] = {{.fd = s->channel->fd, .events = POLLIN},
			       {.fd = s->signal_fd, .events = POLLIN}};
	bool interrupted = false;
	struct cm_event event;
	int status = CLI_FAILED, got;

	listen_say(s->o->name, s->listener, s->o->out, s->o->json);
	for (;;) {
		while (!s->request.id && (got = cm_next(s->channel, &event)) > 0)
			on_event(s, &event);
		if (!s->request.id && got < 0) {
			cli_error(s->o->name, "connection manager: %s", strerror(errno));
			return CLI_FAILED;
		}
		if (s->request.id) {
			if (serve_request(s, &status, &interrupted) && (s->o->once || interrupted))
				return status;
			continue;
		}
		if (signals_next(s->signal_fd)) {
			if (!s->o->once) /* the way to end it */
				return CLI_OK;
			cli_error(s->o->name, "interrupted before anybody came");
			return CLI_FAILED;
		}
		poll(fds, 2, -1);
	}
}

int perf_server_run(const struct perf_server_options *options)
{
	struct server s = {.o = options};
	int status = CLI_FAILED;

	s.signal_fd = signals_open();
	s.channel = cm_open();
	if (s.signal_fd < 0)
		cli_error(options->name, "signals: %s", strerror(errno));
	else if (!s.channel)
		cli_error(options->name, "the RDMA connection manager: %s; see 'sgpool doctor'",
			  strerror(errno));
	else
		s.listener = listen_open(options->name, s.channel, &options->addr);
	if (s.listener) {
		status = serve_all(&s);
		if (s.request.id) /* it came too late */
			conn_refuse(s.request.id, WIRE_BUSY);
		rdma_destroy_id(s.listener);
	}
	if (s.channel)
		rdma_destroy_event_channel(s.channel);
	if (s.signal_fd >= 0)
		close(s.signal_fd);
	return status;
}
