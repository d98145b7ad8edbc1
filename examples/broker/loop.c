/* SPDX-License-Identifier: BSD-2-Clause */
/* An event loop, see loop.h. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "loop.h"

enum {
	EVENTS = 64, /* a wait */
};

struct loop {
	int epoll;
	int64_t now;
	/* The events of this turn: what is removed meanwhile is struck out. */
	struct epoll_event events[EVENTS];
	int n;
	struct loop_task *tasks, **last_task;
	struct loop_timer **heap; /* from [1] on; the parent of i is i / 2 */
	size_t ntimers, room;
	struct loop_fd wake; /* an eventfd, readable when mail came into an empty box */
	pthread_mutex_t lock;
	struct loop_message *mail, **last_mail; /* under the lock */
	atomic_bool stop;
};

static int64_t clock_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int64_t loop_now(const struct loop *loop)
{
	return loop->now;
}

/* ---- messages ---- */

static void wake(struct loop *loop)
{
	const uint64_t one = 1;

	/* It can only fail when the counter is full: then it is readable. */
	(void)!write(loop->wake.fd, &one, sizeof one);
}

void loop_post(struct loop *loop, struct loop_message *message)
{
	bool first;

	message->next = NULL;
	pthread_mutex_lock(&loop->lock);
	first = !loop->mail;
	*loop->last_mail = message;
	loop->last_mail = &message->next;
	pthread_mutex_unlock(&loop->lock);
	if (first)
		wake(loop);
}

static void woken(struct loop_fd *fd, uint32_t events)
{
	uint64_t n;

	(void)events;
	(void)!read(fd->fd, &n, sizeof n);
}

static void run_mail(struct loop *loop)
{
	struct loop_message *mail;

	pthread_mutex_lock(&loop->lock);
	mail = loop->mail;
	loop->mail = NULL;
	loop->last_mail = &loop->mail;
	pthread_mutex_unlock(&loop->lock);
	while (mail) {
		struct loop_message *next = mail->next;

		mail->run(mail);
		mail = next;
	}
}

/* ---- timers: a heap by time ---- */

static void place(struct loop *loop, struct loop_timer *timer, size_t i)
{
	loop->heap[i] = timer;
	timer->place = i;
}

static void sift_up(struct loop *loop, struct loop_timer *timer, size_t i)
{
	for (; i > 1 && loop->heap[i / 2]->at > timer->at; i /= 2)
		place(loop, loop->heap[i / 2], i);
	place(loop, timer, i);
}

static void sift_down(struct loop *loop, struct loop_timer *timer, size_t i)
{
	size_t child;

	for (; (child = 2 * i) <= loop->ntimers; i = child) {
		if (child < loop->ntimers && loop->heap[child + 1]->at < loop->heap[child]->at)
			child++;
		if (loop->heap[child]->at >= timer->at)
			break;
		place(loop, loop->heap[child], i);
	}
	place(loop, timer, i);
}

void loop_timer_stop(struct loop *loop, struct loop_timer *timer)
{
	const size_t i = timer->place;
	struct loop_timer *last;

	if (!i)
		return;
	timer->place = 0;
	last = loop->heap[loop->ntimers--];
	if (last == timer)
		return;
	if (i > 1 && loop->heap[i / 2]->at > last->at)
		sift_up(loop, last, i);
	else
		sift_down(loop, last, i);
}

int loop_timer_set(struct loop *loop, struct loop_timer *timer, int64_t ms)
{
	loop_timer_stop(loop, timer);
	if (loop->ntimers + 1 >= loop->room) {
		const size_t room = loop->room ? 2 * loop->room : 64;
		struct loop_timer **heap = realloc(loop->heap, room * sizeof *heap);

		if (!heap)
			return -1;
		loop->heap = heap;
		loop->room = room;
	}
	timer->at = loop->now + ms;
	sift_up(loop, timer, ++loop->ntimers);
	return 0;
}

static void fire_timers(struct loop *loop)
{
	/* One that sets itself anew for at once waits for the next turn. */
	const int64_t now = loop->now;

	for (size_t n = loop->ntimers; n && loop->ntimers && loop->heap[1]->at <= now; n--) {
		struct loop_timer *timer = loop->heap[1];

		loop_timer_stop(loop, timer);
		timer->fire(timer);
	}
}

/* ---- tasks ---- */

void loop_defer(struct loop *loop, struct loop_task *task)
{
	if (task->queued)
		return;
	task->queued = true;
	task->next = NULL;
	*loop->last_task = task;
	loop->last_task = &task->next;
}

void loop_defer_cancel(struct loop *loop, struct loop_task *task)
{
	struct loop_task **at = &loop->tasks;

	if (!task->queued)
		return;
	while (*at != task)
		at = &(*at)->next;
	*at = task->next;
	if (!*at)
		loop->last_task = at;
	task->queued = false;
}

static void run_tasks(struct loop *loop)
{
	struct loop_task *task;

	while ((task = loop->tasks)) {
		loop->tasks = task->next;
		if (!loop->tasks)
			loop->last_task = &loop->tasks;
		task->queued = false;
		task->run(task);
	}
}

/* ---- descriptors ---- */

static int control(struct loop *loop, int op, struct loop_fd *fd, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = fd};

	return epoll_ctl(loop->epoll, op, fd->fd, &event);
}

int loop_add(struct loop *loop, struct loop_fd *fd, uint32_t events)
{
	return control(loop, EPOLL_CTL_ADD, fd, events);
}

int loop_modify(struct loop *loop, struct loop_fd *fd, uint32_t events)
{
	return control(loop, EPOLL_CTL_MOD, fd, events);
}

void loop_remove(struct loop *loop, struct loop_fd *fd)
{
	control(loop, EPOLL_CTL_DEL, fd, 0);
	for (int i = 0; i < loop->n; i++)
		if (loop->events[i].data.ptr == fd)
			loop->events[i].data.ptr = NULL;
}

/* ---- the loop ---- */

/* Milliseconds to sleep at most; -1: for ever. */
static int patience(const struct loop *loop)
{
	int64_t ms;

	if (loop->tasks)
		return 0;
	if (!loop->ntimers)
		return -1;
	ms = loop->heap[1]->at - clock_now();
	return ms < 0 ? 0 : ms > 60000 ? 60000 : (int)ms;
}

static int turn(struct loop *loop)
{
	loop->n = epoll_wait(loop->epoll, loop->events, EVENTS, patience(loop));
	if (loop->n < 0) {
		loop->n = 0;
		if (errno != EINTR)
			return -1;
	}
	loop->now = clock_now();
	for (int i = 0; i < loop->n; i++) {
		struct loop_fd *fd = loop->events[i].data.ptr;

		if (fd)
			fd->ready(fd, loop->events[i].events);
	}
	loop->n = 0;
	run_mail(loop);
	fire_timers(loop);
	run_tasks(loop);
	return 0;
}

int loop_run(struct loop *loop)
{
	while (!atomic_load_explicit(&loop->stop, memory_order_acquire))
		if (turn(loop))
			return -1;
	return 0;
}

void loop_stop(struct loop *loop)
{
	atomic_store_explicit(&loop->stop, true, memory_order_release);
	wake(loop);
}

struct loop *loop_create(void)
{
	struct loop *loop = calloc(1, sizeof *loop);

	if (!loop)
		return NULL;
	loop->now = clock_now();
	loop->last_task = &loop->tasks;
	loop->last_mail = &loop->mail;
	pthread_mutex_init(&loop->lock, NULL);
	loop->wake = (struct loop_fd){.ready = woken, .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
	loop->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (loop->wake.fd >= 0 && loop->epoll >= 0 && !loop_add(loop, &loop->wake, EPOLLIN))
		return loop;
	loop_destroy(loop);
	return NULL;
}

void loop_destroy(struct loop *loop)
{
	const int err = errno;

	run_mail(loop);
	if (loop->epoll >= 0)
		close(loop->epoll);
	if (loop->wake.fd >= 0)
		close(loop->wake.fd);
	pthread_mutex_destroy(&loop->lock);
	free(loop->heap);
	free(loop);
	errno = err;
}
