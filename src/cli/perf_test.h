/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A test of sgpool perf at one end: its memory, connections and threads.
 *
 *      test ---- worker (a thread, a completion queue) ---- link (a connection) ...
 *           \--- worker ...
 *
 * Link number i belongs to worker i modulo the number of these. perf_test.c has their lives and the
 * threads, perf_work.c what a thread does in a run; how one message is sent, and completions are
 * taken, is the mode's: perf_pool.c, perf_verbs.c. The owner of the test (the main thread) makes, ends and
 * runs it; while a run is on, links and workers are their threads', but for what is atomic.
 */
#ifndef SGP_CLI_PERF_TEST_H
#define SGP_CLI_PERF_TEST_H

#include <pthread.h>
#include <stdatomic.h>

#include "cli/cm.h"
#include "cli/histogram.h"
#include "cli/perf_wire.h"
#include "sgpool/sgpool.h"

enum {
	PERF_FENCE_BYTES = 8, /* that the READ behind the last message takes */
	PERF_BATCH = 16,      /* completions a poll, messages in one go */
	PERF_SLEEP_MS = 50,   /* with events: before one looks whether it's over */
};

struct perf_worker;

struct perf_link {
	struct perf_worker *worker;
	struct rdma_cm_id *id;    /* NULL: not connected */
	bool greeted;             /* the peer's hello came */
	struct sgp_chunk *target; /* what the peer may READ and WRITE */
	struct sgp_chunk *fence;  /* where the fence's READ goes */
	uint64_t peer_addr;
	uint32_t peer_rkey;

	uint64_t to_send;              /* in this run */
	uint64_t sent, received, done; /* messages so far; done: READs that have come */
	bool fencing, fenced;          /* the fence is on its way, has come back */
	uint8_t stamp;                 /* a WRITE's last byte, where latency is measured */

	union {
		struct { /* of pool */
			struct sgp_ep *ep;
			struct sgp_flow flow;
			bool owes; /* receives came: the flow is to be told */
		};
		struct { /* of the others: see perf_verbs.c */
			struct perf_ring *ring;
		};
	};
};

struct perf_worker {
	struct perf_test *test;
	uint32_t index;
	bool running; /* there is a thread */
	pthread_t thread;
	_Atomic uint64_t sent, received; /* messages of this run */
	_Atomic uint64_t registrations;  /* in this run; pool counts its own */
	int64_t began, ended;            /* ns */
	uint64_t cpu_ns;
	struct histogram latency; /* of this run, ns a message one way (READ: to and fro) */
	char why[160];            /* it failed */

	union {
		struct { /* of pool */
			struct sgp_cq *cq;
			struct sgp_wc *wc;
		};
		struct { /* of the others */
			struct ibv_comp_channel *channel;
			struct ibv_cq *raw_cq;
			unsigned int events; /* to be acknowledged */
		};
	};
};

/* How messages are moved. Functions return 0, or -1 with errno, if nothing else is said. */
struct perf_way {
	/* The test's own memory. */
	int (*open)(struct perf_test *t);
	int (*open_worker)(struct perf_worker *w);
	/* The queue pair of link->id, all receives posted. What is missing is -1. */
	int (*open_link)(struct perf_link *l);
	/* Send one message. Returns 1; 0 if it can't go now: reap; -1, the worker's why is set. */
	int (*send)(struct perf_link *l);
	/* READ something, which completes after all that was sent; link->fenced then. As send. */
	int (*fence)(struct perf_link *l);
	/* Take completions. idle: if there are none, and it's the test's way, sleep for one. Returns
	 * how many; -1, the worker's why is set. */
	int (*reap)(struct perf_worker *w, bool idle);
	/* These take what was never opened too. */
	void (*close_link)(struct perf_link *l);
	void (*close_worker)(struct perf_worker *w);
	void (*close)(struct perf_test *t);
};

extern const struct perf_way perf_pool, perf_verbs;

struct perf_test {
	struct perf_params p;
	uint32_t id;
	uint64_t token;
	bool active;  /* the client's end */
	bool closing; /* its connections may go */
	struct ibv_context *verbs;
	struct ibv_pd *pd; /* the caller's */
	const struct perf_way *way;
	struct perf_link *link;     /* [p.conns] */
	struct perf_worker *worker; /* [p.threads] */
	struct sgp_pool *targets;   /* what peers reach, and fences */
	struct sgp_pool *pool;      /* of mode pool */
	bool iwarp;

	/* A run. */
	pthread_mutex_t mutex; /* of the next two, and of waking */
	pthread_cond_t wake;
	uint64_t run;              /* counts them */
	bool quit;                 /* the threads end */
	uint64_t each;             /* messages that each link sends; 0: until enough */
	atomic_bool enough;        /* send no more */
	atomic_bool stop;          /* come to an end whatever is missing */
	atomic_bool finish;        /* the peer has sent all that it sends: so many ... */
	_Atomic uint64_t expected; /* ... in all */
	atomic_uint senders;       /* threads that still send */
	atomic_uint workers;       /* threads that are at work */
	int done_fd;               /* readable when one of these two got to 0, or a thread failed */
	uint64_t registrations;    /* of the pool, when the run began */
};

/*
 * Make a test: memory, queues, threads, but no connection. pd is on verbs, and stays the caller's.
 * Returns it; NULL with errno, and why[0 .. size - 1] says more.
 */
struct perf_test *perf_test_open(const struct perf_params *p, uint32_t id, bool active,
				 struct ibv_pd *pd, char *why, size_t size);

/* End it, its connections and their identifiers. NULL does nothing. */
void perf_test_close(struct perf_test *t);

/* Give link number index its id, which becomes the test's, and a queue pair. Returns 0; -1 with errno. */
int perf_link_open(struct perf_test *t, uint32_t index, struct rdma_cm_id *id);

/* What to say of the link when connecting: bytes must stand as long as *param is used. */
void perf_link_param(const struct perf_link *l, uint8_t bytes[PERF_DATA_HELLO],
		     struct rdma_conn_param *param);

/* The peer's hello, n bytes. Returns NULL, or what is wrong with it. */
const char *perf_link_greet(struct perf_link *l, const void *data, size_t n);

/* The connection manager said something of this connection. Returns whether it lives. */
bool perf_link_event(struct perf_link *l, const struct cm_event *event);

/* The link with this id; NULL if it's none of the test's. */
struct perf_link *perf_test_find(struct perf_test *t, const struct rdma_cm_id *id);

/* All links are connected. */
bool perf_test_ready(const struct perf_test *t);

/* Does this end send in a run by itself; does it do anything at all? */
bool perf_sends(const struct perf_test *t);
bool perf_works(const struct perf_test *t);
/* Do the peer's messages, where it sends any, show at this end? */
bool perf_hears(const struct perf_test *t);

/* Begin a run: each link that sends sends n messages, 0: until perf_test_enough(). */
void perf_test_run(struct perf_test *t, uint64_t n);
void perf_test_enough(struct perf_test *t);
/* The peer has sent expected messages in all. */
void perf_test_finish(struct perf_test *t, uint64_t expected);
/* Come to an end, whatever is missing, and wait until it's so. */
void perf_test_stop(struct perf_test *t);

/* The threads that send have sent; all threads are done. */
bool perf_test_sent(const struct perf_test *t);
bool perf_test_done(const struct perf_test *t);

/* Why a thread failed; NULL if none did. While they run: once done_fd was readable. */
const char *perf_test_why(const struct perf_test *t);

/* Once all threads are done: what they did, and, if latency is not NULL, add the times to it. */
struct perf_figures perf_test_figures(struct perf_test *t, struct histogram *latency);

/*
 * Can it be, as far as this end can see, what the peer, which did not begin, says of a run of n messages
 * that took so long here, question and answer and all? Returns NULL, or what can't.
 */
const char *perf_test_doubt(const struct perf_test *t, uint64_t n, const struct perf_figures *ours,
			    const struct perf_figures *theirs, uint64_t took_ns);

/* Messages that all threads of the test have sent, and received, in this run. */
uint64_t perf_test_sum(const struct perf_test *t, bool received);

/* Wake the main thread. */
void perf_test_wake(const struct perf_test *t);

/* The links of a worker, one after the other. */
static inline struct perf_link *perf_first(const struct perf_worker *w)
{
	return &w->test->link[w->index];
}

static inline struct perf_link *perf_next(const struct perf_link *l)
{
	const struct perf_test *t = l->worker->test;
	const uint32_t next = (uint32_t)(l - t->link) + t->p.threads;

	return next < t->p.conns ? &t->link[next] : NULL;
}

/* A run of a worker, in its thread. Returns 0; -1, w->why is set. */
int perf_work(struct perf_worker *w);

/* For the ways: it failed. Returns -1. */
int perf_fail(struct perf_worker *w, const char *what, const char *why);

#endif
