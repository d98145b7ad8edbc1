/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An event loop: descriptors by epoll(7), timers, work put off to the end of the turn, and messages
 * from other threads. One thread runs it, and only that thread may call it, but for loop_post() and
 * loop_stop(). Everything that is registered here is embedded in what it belongs to: nothing is
 * allocated but the heap of timers.
 *
 * A turn: wait for descriptors or the next timer; descriptors; messages; timers; then the tasks, and
 * those that they add, until there is none.
 */
#ifndef BROKER_LOOP_H
#define BROKER_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>

struct loop;

/* A descriptor. events: EPOLL*, level-triggered. It may be taken out, and freed, in its own call. */
struct loop_fd {
	void (*ready)(struct loop_fd *fd, uint32_t events);
	int fd;
};

/* Work for the end of this turn. Zero it and set run. */
struct loop_task {
	void (*run)(struct loop_task *task);
	struct loop_task *next;
	bool queued;
};

/* Zero it and set fire. */
struct loop_timer {
	void (*fire)(struct loop_timer *timer);
	int64_t at;   /* loop_now() at which it fires */
	size_t place; /* in the heap, from 1 on; 0: not set */
};

/* From one loop to another, in the order of the posts. */
struct loop_message {
	void (*run)(struct loop_message *message);
	struct loop_message *next;
};

/* Returns the loop; NULL with errno. */
struct loop *loop_create(void);

/* Messages that were not run are run, then it is freed. */
void loop_destroy(struct loop *loop);

/* Returns 0 after loop_stop(); -1 with errno when epoll_wait(2) fails. */
int loop_run(struct loop *loop);
void loop_stop(struct loop *loop);

/* Milliseconds of the monotonic clock when this turn woke up. */
int64_t loop_now(const struct loop *loop);

/* Return 0; -1 with errno. */
int loop_add(struct loop *loop, struct loop_fd *fd, uint32_t events);
int loop_modify(struct loop *loop, struct loop_fd *fd, uint32_t events);
void loop_remove(struct loop *loop, struct loop_fd *fd);

/* Fire once in ms milliseconds; a timer that is set is set anew. Returns 0; -1 with ENOMEM. */
int loop_timer_set(struct loop *loop, struct loop_timer *timer, int64_t ms);
void loop_timer_stop(struct loop *loop, struct loop_timer *timer);

/* Run it at the end of this turn; once, however often it is asked for. */
void loop_defer(struct loop *loop, struct loop_task *task);
void loop_defer_cancel(struct loop *loop, struct loop_task *task);

/* Have message->run called in the loop's thread. From any thread. */
void loop_post(struct loop *loop, struct loop_message *message);

#endif
