/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A descriptor for queues that live in memory.
 *
 *	ep (what users poll) --- ev: readable while something is queued
 *	                     \-- tm: readable when a deadline has come
 *
 * The timer is there because nothing runs on its own here: whoever sleeps on the descriptor must be
 * woken when something is due, and runs it.
 */
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "softverbs/sw.h"

int sw_pollq_init(struct sw_pollq *q)
{
	struct epoll_event e = {.events = EPOLLIN};
	int err;

	q->count = 0;
	q->when = SW_NEVER;
	q->ep = epoll_create1(EPOLL_CLOEXEC);
	q->ev = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	q->tm = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (q->ep >= 0 && q->ev >= 0 && q->tm >= 0 && !epoll_ctl(q->ep, EPOLL_CTL_ADD, q->ev, &e) &&
	    !epoll_ctl(q->ep, EPOLL_CTL_ADD, q->tm, &e))
		return 0;
	err = errno;
	sw_pollq_fini(q);
	return sw_fail(err);
}

void sw_pollq_fini(struct sw_pollq *q)
{
	if (q->tm >= 0)
		close(q->tm);
	if (q->ev >= 0)
		close(q->ev);
	if (q->ep >= 0)
		close(q->ep);
}

void sw_pollq_add(struct sw_pollq *q)
{
	uint64_t one = 1;

	if (q->count++ == 0 && write(q->ev, &one, sizeof one) != sizeof one)
		abort(); /* an eventfd that holds 0 takes a 1 */
}

void sw_pollq_sub(struct sw_pollq *q)
{
	uint64_t n;

	if (--q->count == 0 && read(q->ev, &n, sizeof n) != sizeof n)
		abort();
}

void sw_pollq_at(struct sw_pollq *q, uint64_t when)
{
	struct itimerspec its = {.it_value = {0}};

	if (when == q->when)
		return;
	q->when = when;
	if (when != SW_NEVER) {
		its.it_value.tv_sec = (time_t)(when / 1000000000u);
		its.it_value.tv_nsec = (long)(when % 1000000000u);
	}
	timerfd_settime(q->tm, TFD_TIMER_ABSTIME, &its, NULL);
}

int sw_pollq_wait(struct sw_pollq *q)
{
	struct pollfd p = {.fd = q->ep, .events = POLLIN};
	int flags = fcntl(q->ep, F_GETFL);
	int n = poll(&p, 1, flags >= 0 && (flags & O_NONBLOCK) ? 0 : -1);
	uint64_t expired;

	if (n > 0) {
		/* The caller sees to what is due. On a clock that stands still nothing may be. */
		(void)!read(q->tm, &expired, sizeof expired);
		return 0;
	}
	return n < 0 ? -1 : sw_fail(EAGAIN);
}
