/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A server of sgpool perf that lies: an honest one but for one thing, in a thread of its own, for one
 * client. It fails the test on what must not happen.
 */
#ifndef PERF_LIAR_H
#define PERF_LIAR_H

#include "perf_ends.h"

enum trick {
	TWIST = 0,     /* the answer, by a function */
	TWICE,         /* it says it twice */
	MUTE,          /* it says nothing, but that it lives */
	SILENT,        /* it does nothing at all any more */
	LEAVE,         /* it goes */
	HALF,          /* it says half a message */
	OTHER_LENGTH,  /* its test does not run, but sends one message, of another length */
	REFUSE,        /* it does not let a connection of the test in */
	IGNORE,        /* it does not answer to one */
	TWIST_HELLO,   /* it says something else to one */
	KEEP_RECEIVES, /* it takes the client's questions, but makes no room for more */
	IDLE,          /* it does not do what it said it would: its test does not run */
};

struct lie {
	enum perf_say at; /* instead of this answer, or with it */
	enum trick trick;
	void (*twist)(struct perf_message *m);
	void (*twist_hello)(uint8_t *bytes);
	struct perf_params p;
	const char *said; /* by the client; NULL: nothing, as it's no lie */
};

struct liar {
	const struct lie *lie;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener, *id, *ignored;
	struct perf_session session;
	bool ending;
	pthread_t thread;
	uint16_t port;
};

void liar_start(struct liar *l, const struct lie *what);

/* Wait for its end, which the client's brings about, and close; one that is silent was given up. */
void liar_end(struct liar *l);

#endif
