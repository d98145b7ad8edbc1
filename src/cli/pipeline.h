/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two steps, each in a thread of its own, through which messages go in order: pushed in at one end,
 * popped at the other. One step does the file's input or output and the other the hashing, so that
 * neither waits for the other, and the thread with the queues waits for nobody.
 *
 *      push -> [first] -> [second] -> pop, announced by a descriptor
 *
 * Locking: each of the three queues has its own lock; push, pop and stop are for one thread.
 */
#ifndef SGP_CLI_PIPELINE_H
#define SGP_CLI_PIPELINE_H

#include <pthread.h>
#include <stdatomic.h>

#include "cli/message.h"

/* A step; it sets m->error when it failed, and the steps after it leave that message alone. */
typedef void pipeline_step(void *arg, struct message *m);

struct queue {
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct message *head, *tail;
	bool closed;
};

struct pipeline {
	struct queue queue[3];
	pthread_t thread[2];
	int threads;
	pipeline_step *step[2];
	void *arg;
	int done_fd;       /* readable when there may be something to pop */
	int stop_fd;       /* readable when the pipeline stops: for a step that has to wait */
	atomic_bool stops; /* what is inside goes through untouched */
	int inside;        /* pushed and not popped yet */
};

/* Returns 0; -1 with errno and nothing left behind. */
int pipeline_start(struct pipeline *p, pipeline_step *first, pipeline_step *second, void *arg);

void pipeline_push(struct pipeline *p, struct message *m);

/* The next message that has gone through, or NULL. */
struct message *pipeline_pop(struct pipeline *p);

/* Wait until all that was pushed has gone through, and end the threads. */
void pipeline_finish(struct pipeline *p);

/* End the threads: messages inside are not worked on any more, but can be popped. */
void pipeline_stop(struct pipeline *p);

/* Free it; stopped and popped empty. */
void pipeline_free(struct pipeline *p);

#endif
