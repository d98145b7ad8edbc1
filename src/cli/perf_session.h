/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A session of sgpool perf at either end: the control connection, the tests that are open, and the
 * loop of the main thread, which serves them all and finds out at once when the peer is gone.
 */
#ifndef SGP_CLI_PERF_SESSION_H
#define SGP_CLI_PERF_SESSION_H

#include "cli/conn.h"
#include "cli/perf_test.h"

struct perf_session {
	struct rdma_event_channel *channel;
	int signal_fd;
	struct buffers buffers;
	struct conn conn;
	struct perf_test *test[PERF_TESTS]; /* NULL: none */
	struct perf_test *running;          /* one of them; NULL: none */
	bool client;
	int timeout_ms;      /* for so long the other end may bring nothing on */
	bool asked;          /* client: an answer is due */
	bool interrupted;    /* by a signal */
	enum wire_code code; /* what the peer is told of why it ended */
	bool has_message;
	struct perf_message message; /* the peer's last one */
	/* An event that is none of this session's connections'; it may be a request. */
	void (*others)(void *arg, const struct cm_event *event);
	void *arg;
};

/* Patience with the other end, which may say that it lives and yet bring nothing on. */
struct perf_patience {
	int64_t until; /* ms */
	uint64_t seen;
};

void perf_patience_begin(struct perf_patience *p, const struct perf_session *s);

/* Is it over? Not while the number that tells how far things are changes in the session's time. */
bool perf_patience_over(struct perf_patience *p, const struct perf_session *s, uint64_t so_far);

/*
 * Set up the control connection over an id, which stays the caller's. Returns 0; -1 with errno, and
 * session->conn.why says why, if it was not said. perf_session_close() is due either way.
 */
int perf_session_open(struct perf_session *s, struct rdma_cm_id *id, const char *command);

/*
 * Look at everything once; sleep for at most timeout_ms until there is something new, unless
 * there is a message. Returns 0; -1 when the session is over.
 */
int perf_session_turn(struct perf_session *s, int timeout_ms);

/* Take the connection manager's events. arg: the session. */
void perf_session_events(void *arg);

/* Say something; the other end takes it before long. Returns 0; -1 when the session is over. */
int perf_session_say(struct perf_session *s, const struct perf_message *m);

/* The test with this number; NULL if there is none. */
struct perf_test *perf_session_find(struct perf_session *s, uint32_t id);

/* End it for this reason; the first one stays. code: what the peer is told. Returns -1. */
int perf_session_fail(struct perf_session *s, enum wire_code code, const char *why);

/* Why it is over. */
void perf_session_why(struct perf_session *s, char *why, size_t size);

/* End a test. */
void perf_session_drop(struct perf_session *s, struct perf_test *t);

/* End all tests and the connection; a peer that is still there is told why, if it failed. */
void perf_session_close(struct perf_session *s);

#endif
