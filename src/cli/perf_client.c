/* SPDX-License-Identifier: BSD-2-Clause */
/* The client of `sgpool perf`: connects, measures, and reports. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/clock.h"
#include "cli/dial.h"
#include "cli/perf_client.h"
#include "cli/perf_report.h"
#include "cli/perf_session.h"
#include "cli/progress.h"
#include "cli/signals.h"

enum {
	WARM_UP = 16, /* messages of each connection, at first */
	WARM_UP_MOST = 1 << 24,
	SLICE_NS = 50000000, /* a mode's turn in a round, if nothing else is said */
};

struct client {
	const struct perf_client_options *o;
	struct dial dial;
	struct rdma_cm_id *id;
	struct perf_session session;
	struct perf_report report;
	struct progress progress;
	struct perf_series series[PERF_MODES];
	uint32_t next_test; /* its number */
	char why[240];
};

/* An event of no connection that stands. */
static void ignore(void *arg, const struct cm_event *event)
{
	(void)arg;
	(void)event;
}

static int fail(struct client *c, const char *what, const char *why)
{
	snprintf(c->why, sizeof c->why, "%s%s%s", what, why ? ": " : "", why ? why : "");
	return -1;
}

/* An errno in words; what helps, where it's most likely to be that. */
static const char *reason(int error)
{
	if (error == ENOMEM)
		return "out of memory that may be locked; see 'ulimit -l', or take a smaller -t "
		       "and -r";
	return strerror(error);
}

/* ---- questions ---- */

/* Ask, and await this answer, so long. Returns 0; -1: the session is over, or c->why says why. */
static int ask_for(struct client *c, const struct perf_message *question, enum perf_say wanted,
		   int64_t patience_ms)
{
	struct perf_session *s = &c->session;
	struct perf_message *m = &s->message;
	int64_t until;

	if (perf_session_say(s, question))
		return -1;
	s->asked = true;
	until = clock_ms() + patience_ms + CONN_ALIVE_MS; /* with a silent one it's over before */
	while (!s->has_message) {
		if (perf_session_turn(s, CONN_ALIVE_MS))
			return -1;
		if (!s->has_message && clock_ms() >= until)
			return fail(c, "the other end lives, but does not answer", NULL);
	}
	s->has_message = false;
	if (m->id == question->id && m->say == wanted)
		return 0;
	if (m->id == question->id && m->say == PERF_FAILED)
		return fail(c, "the other end can't set the test up", reason((int)m->error));
	return perf_session_fail(s, WIRE_BAD_MESSAGE,
				 "the other end broke the protocol: another answer");
}

static int ask(struct client *c, const struct perf_message *question, enum perf_say wanted)
{
	return ask_for(c, question, wanted, c->o->timeout_ms);
}

/* ---- a test ---- */

static int connect_link(struct client *c, struct perf_test *t, uint32_t index)
{
	struct rdma_cm_id *id;
	struct rdma_conn_param param;
	struct cm_event event;
	uint8_t bytes[PERF_DATA_HELLO];
	const char *why = dial_resolve(&c->dial, rdma_get_peer_addr(c->id), &id);

	if (why)
		return fail(c, "a connection of the test", why);
	if (id->verbs != t->verbs) {
		rdma_destroy_id(id);
		return fail(c, "a connection of the test", "it goes over another device");
	}
	if (perf_link_open(t, index, id))
		return fail(c, "no queues", t->p.mode == PERF_POOL ? sgp_errmsg() : reason(errno));
	perf_link_param(&t->link[index], bytes, &param);
	why = dial_connect(&c->dial, id, &param, &event);
	if (!why) {
		perf_link_event(&t->link[index], &event);
		why = perf_link_greet(&t->link[index], event.data, event.length);
	}
	/* What goes on in the control connection says more than a connection that was not made. */
	if (why && event.id == c->id)
		conn_event(&c->session.conn, &event);
	if (perf_session_turn(&c->session, 0))
		return -1;
	return why ? fail(c, "a connection of the test", why) : 0;
}

/* Returns it; NULL: the session is over, or c->why says why. */
static struct perf_test *open_test(struct client *c, const struct perf_params *p)
{
	struct perf_session *s = &c->session;
	const struct perf_message setup = {
		.say = PERF_SETUP, .id = c->next_test++ & 0xffffff, .params = *p};
	struct perf_test *t;
	char why[200];

	if (ask(c, &setup, PERF_READY))
		return NULL;
	t = perf_test_open(p, setup.id, true, s->buffers.pd, why, sizeof why);
	if (!t) {
		fail(c, "the test can't be set up", why);
		return NULL;
	}
	t->token = s->message.token;
	s->test[p->mode] = t;
	for (uint32_t i = 0; i < p->conns; i++)
		if (connect_link(c, t, i))
			return NULL;
	return t;
}

static int close_test(struct client *c, struct perf_test *t)
{
	const struct perf_message close = {.say = PERF_CLOSE, .id = t->id};

	t->closing = true;
	if (ask(c, &close, PERF_CLOSED))
		return -1;
	perf_session_drop(&c->session, t);
	return 0;
}

/* ---- a run ---- */

struct run {
	uint64_t n; /* messages of each connection; 0: for so long */
	int64_t limit_ns;
	uint64_t messages; /* both ways */
	double seconds;
	struct perf_figures ours, theirs;
};

static void say_progress(struct client *c, const struct perf_test *t, const char *step)
{
	progress_say(&c->progress, "%s, %" PRIu32 " bytes, %s: %" PRIu64 " messages",
		     perf_mode_names[t->p.mode], t->p.size, step, perf_test_sum(t, false));
}

/*
 * Does it go on, as far as that's the other end's to do: to take messages, to answer them? All that
 * are posted come to an end by the devices; so do WRITEs and READs in any case.
 */
static bool goes_on(const struct client *c, const struct perf_test *t, const struct run *r,
		    struct perf_patience *patience)
{
	const uint64_t sent = perf_test_sum(t, false);
	const bool posted = r->n ? sent == r->n * t->p.conns : atomic_load(&t->enough);

	if (!perf_hears(t) || (posted && !t->p.latency))
		return true;
	return !perf_patience_over(patience, &c->session, sent + perf_test_sum(t, true));
}

/* Until our threads have sent all, or for as long as was asked for. */
static int await_sent(struct client *c, struct perf_test *t, const struct run *r, const char *step)
{
	const int64_t end = clock_ns() + r->limit_ns;
	int sleep_ms = c->progress.shown ? PROGRESS_MS : CONN_ALIVE_MS;
	struct perf_patience patience;

	perf_patience_begin(&patience, &c->session);
	while (!perf_test_sent(t)) {
		if (r->n == 0) {
			const int64_t left = end - clock_ns();

			if (left <= 0)
				perf_test_enough(t);
			sleep_ms = left <= 0                       ? CONN_ALIVE_MS
				   : left / 1000000 + 1 < sleep_ms ? (int)(left / 1000000 + 1)
								   : sleep_ms;
		}
		if (perf_session_turn(&c->session, sleep_ms))
			return -1;
		if (!goes_on(c, t, r, &patience))
			return fail(c,
				    t->p.latency ? "the other end does not send messages back"
						 : "the other end takes no more messages",
				    NULL);
		say_progress(c, t, step);
	}
	return 0;
}

/* Until what the server says it sent has come; not for ever, as it may say what it likes. */
static int await_received(struct client *c, struct perf_test *t)
{
	struct perf_patience patience;

	perf_patience_begin(&patience, &c->session);
	while (!perf_test_done(t)) {
		if (perf_session_turn(&c->session, PERF_SLEEP_MS))
			return -1;
		if (perf_patience_over(&patience, &c->session, perf_test_sum(t, true)))
			return fail(c, "messages that the other end says it sent did not come",
				    NULL);
	}
	return 0;
}

/*
 * For how long a result may take. The server gives up by itself on what does not come; if it sends,
 * too, it has as much to do as we had.
 */
static int64_t result_ms(const struct client *c, const struct perf_test *t, int64_t began)
{
	return 2 * (int64_t)c->o->timeout_ms + (t->p.both ? (clock_ns() - began) / 1000000 : 0);
}

/* Returns 0; -1: the session is over, or c->why says why. */
static int run(struct client *c, struct perf_test *t, struct run *r, struct histogram *latency,
	       const char *step)
{
	struct perf_session *s = &c->session;
	struct perf_message m = {.say = PERF_RUN, .id = t->id, .count = r->n};
	const int64_t began = clock_ns();
	const char *wrong;
	uint64_t took_ns;

	if (ask(c, &m, PERF_GO))
		return -1;
	s->running = t;
	perf_test_run(t, r->n);
	if (await_sent(c, t, r, step))
		return -1;
	m = (struct perf_message){.say = PERF_END, .id = t->id, .count = perf_test_sum(t, false)};
	if (ask_for(c, &m, PERF_RESULT, result_ms(c, t, began)))
		return -1;
	took_ns = (uint64_t)(clock_ns() - began);
	r->theirs = s->message.figures;
	perf_test_finish(t, r->theirs.sent);
	if (await_received(c, t))
		return -1;
	s->running = NULL;
	r->ours = perf_test_figures(t, latency);
	r->messages = r->ours.sent + (t->p.both ? r->theirs.sent : 0);
	r->seconds = (double)r->ours.ns / 1e9;
	if (t->p.both && r->theirs.ns > r->ours.ns)
		r->seconds = (double)r->theirs.ns / 1e9;
	wrong = perf_test_doubt(t, r->n, &r->ours, &r->theirs, took_ns);
	return wrong ? fail(c, wrong, NULL) : 0;
}

/* ---- all of it ---- */

/* How many messages fill this time? That warms up, too. Returns 0; -1. */
static int calibrate(struct client *c, struct perf_test *t, double slice_ns, uint64_t *n)
{
	struct run r = {.n = WARM_UP};

	for (;; r.n *= 2) {
		if (run(c, t, &r, NULL, "warming up"))
			return -1;
		if (r.seconds * 1e9 >= slice_ns / 4 || r.n >= WARM_UP_MOST)
			break;
	}
	*n = (uint64_t)((double)r.n * slice_ns / (r.seconds * 1e9 + 1));
	*n = *n < 1 ? 1 : *n;
	return 0;
}

static void add_round(struct perf_series *s, const struct run *r)
{
	double ns = r->seconds * 1e9 / (double)r->messages;

	/* A message to and fro has a time of its own, whatever the others do meanwhile. */
	if (s->p.latency)
		ns = r->seconds * 1e9 * s->p.conns / (double)r->messages /
		     (s->p.op == PERF_READ ? 1 : 2);
	s->ns[s->rounds++] = ns;
	s->messages += r->messages;
	s->seconds += r->seconds;
	s->cpu_ns += r->ours.cpu_ns;
	s->peer_cpu_ns += r->theirs.cpu_ns;
	s->registrations += r->ours.registrations;
	s->peer_registrations += r->theirs.registrations;
}

/* All rounds of all modes. Returns 0; -1. */
static int measure(struct client *c, struct perf_test *const test[], int n)
{
	const struct perf_client_options *o = c->o;
	const uint32_t rounds = o->compare ? o->rounds : 1;
	struct run r[PERF_MODES] = {0};
	char step[40];

	for (int i = 0; i < n; i++) {
		c->series[i] = (struct perf_series){.p = test[i]->p};
		r[i].n = o->iterations;
		r[i].limit_ns = (int64_t)o->duration_ns;
		if (!o->compare || o->iterations) {
			struct run warm = {.n = WARM_UP};

			if (run(c, test[i], &warm, NULL, "warming up"))
				return -1;
		} else if (calibrate(c, test[i],
				     o->duration_ns ? (double)o->duration_ns / (n * rounds)
						    : SLICE_NS,
				     &r[i].n)) {
			return -1;
		}
	}
	for (uint32_t round = 0; round < rounds; round++) {
		snprintf(step, sizeof step, "round %" PRIu32 " of %" PRIu32, round + 1, rounds);
		for (int i = 0; i < n; i++) {
			if (run(c, test[i], &r[i], &c->series[i].latency, step))
				return -1;
			add_round(&c->series[i], &r[i]);
		}
	}
	return 0;
}

static int measure_size(struct client *c, uint32_t size)
{
	const struct perf_client_options *o = c->o;
	struct perf_params p = perf_sized(&o->params, size);
	struct perf_test *test[PERF_MODES];
	int n = 0;

	for (int mode = 0; mode < PERF_MODES; mode++) {
		if (!o->compare && (enum perf_mode)mode != o->params.mode)
			continue;
		p.mode = (enum perf_mode)mode;
		test[n] = open_test(c, &p);
		if (!test[n++])
			return -1;
	}
	if (measure(c, test, n))
		return -1;
	progress_end(&c->progress);
	perf_report_size(&c->report, c->series, n);
	for (int i = 0; i < n; i++)
		if (close_test(c, test[i]))
			return -1;
	return 0;
}

/* Returns 0; -1, and it's said. */
static int connect_control(struct client *c)
{
	struct perf_session *s = &c->session;
	uint8_t bytes[WIRE_HELLO];
	struct rdma_conn_param param;
	struct cm_event event;
	const char *why;

	c->id = dial_find(&c->dial, &c->o->addr);
	if (!c->id)
		return -1;
	*s = (struct perf_session){.channel = c->dial.channel,
				   .signal_fd = c->dial.signal_fd,
				   .client = true,
				   .timeout_ms = c->o->timeout_ms,
				   .others = ignore};
	if (perf_session_open(s, c->id, c->o->name)) {
		if (s->conn.why[0])
			cli_error(c->o->name, "%s: %s", ibv_get_device_name(c->id->verbs->device),
				  s->conn.why);
		return -1;
	}
	conn_param(&s->conn, bytes, &param);
	why = dial_connect(&c->dial, c->id, &param, &event);
	why = why ? conn_refusal(&event, why) : conn_greet(&s->conn, event.data, event.length);
	if (why) {
		cli_error(c->o->name, "%s: %s", c->dial.peer.text, why);
		return -1;
	}
	conn_event(&s->conn, &event); /* established */
	s->conn.up = true;
	return 0;
}

/* Everything that needs a connection. Returns the exit status; errors have been said. */
static int measure_all(struct client *c)
{
	const struct perf_client_options *o = c->o;
	const struct perf_params first = perf_sized(&o->params, o->sizes[0]);
	struct addr_text peer;
	const char *why;
	int ret = 0;

	if (connect_control(c))
		return CLI_FAILED;
	peer = c->dial.peer; /* of the control connection */
	c->report = (struct perf_report){.out = o->out,
					 .json = o->json,
					 .compare = o->compare,
					 .plot = o->plot,
					 .peer = peer.text,
					 .device = ibv_get_device_name(c->id->verbs->device)};
	if (perf_report_begin(&c->report, &first)) {
		cli_error(o->name, "%s: %s", o->plot, strerror(errno));
		return CLI_FAILED;
	}
	for (uint32_t i = 0; i < o->nsizes && !ret; i++)
		ret = measure_size(c, o->sizes[i]);
	progress_end(&c->progress);
	if (ret) {
		if (!c->why[0])
			perf_session_why(&c->session, c->why, sizeof c->why);
		else if (c->session.code == WIRE_OK)
			c->session.code = WIRE_NO_RESOURCES;
		cli_error(o->name, "%s: %s", peer.text, c->why);
	}
	why = perf_report_end(&c->report, &first);
	if (why)
		cli_error(o->name, "%s: no plot: %s", o->plot, why);
	return ret || why ? CLI_FAILED : CLI_OK;
}

static int run_client(struct client *c)
{
	struct dial *d = &c->dial;
	int status = CLI_FAILED;

	progress_begin(&c->progress, 0);
	d->signal_fd = signals_open();
	d->channel = cm_open();
	if (d->signal_fd < 0)
		cli_error(c->o->name, "signals: %s", strerror(errno));
	else if (!d->channel)
		cli_error(c->o->name, "the RDMA connection manager: %s; see 'sgpool doctor'",
			  strerror(errno));
	else
		status = measure_all(c);
	perf_session_close(&c->session);
	if (c->id)
		rdma_destroy_id(c->id);
	if (d->channel)
		rdma_destroy_event_channel(d->channel);
	if (d->signal_fd >= 0)
		close(d->signal_fd);
	return status;
}

int perf_client_run(const struct perf_client_options *options)
{
	const char *why = options->plot ? perf_plot_impossible(options->plot) : NULL;
	struct client *c;
	int status;

	if (why) {
		cli_error(options->name, "--plot %s: %s", options->plot, why);
		return CLI_FAILED;
	}
	c = calloc(1, sizeof *c);
	if (!c) {
		cli_error(options->name, "no memory");
		return CLI_FAILED;
	}
	c->o = options;
	c->dial = (struct dial){
		.command = options->name,
		.timeout_ms = options->timeout_ms,
		.nobody = "nobody listens there; start 'sgpool perf' on that machine first"};
	status = run_client(c);
	free(c);
	return status;
}
