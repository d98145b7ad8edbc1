/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What drives the sockets. Whoever polls a completion queue, or waits for an event, moves what can
 * be moved (sw_net_progress). A thread does so for programs that sleep on a descriptor, and for
 * peers that read and write the memory of a program that calls nothing at all:
 *
 *	watching:  it sleeps in the epoll, and is woken by everything that arrives
 *	standing by: somebody polls, so that it would only be in the way: it looks every 2 ms
 *	             whether that is still so
 *
 * It goes back to watching when a completion queue is armed, since its owner will sleep next.
 *
 * All under sw_lock; the thread holds it except while it sleeps. A forked child has no such thread
 * and closes all sockets, so that the peers see the end of its parent; what it makes itself starts
 * anew.
 */
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "softverbs/net.h"

#define EVENTS      16
#define STAND_BY_MS 2
#define BUSY        64 /* so many empty polls since it last looked */
#define YIELD       16 /* after so many the peer may want the core */

static struct sw_list socks = {&socks, &socks};
static struct sw_list dead = {&dead, &dead};
static bool started, watching, armed;
static int ep = -1, bell = -1;
static unsigned int polls;
unsigned int sw_net_open;

bool sw_net_wanted(void)
{
	static int wanted = -1;

	if (wanted < 0) {
		const char *env = getenv("SGP_SOFTVERBS_NET");

		wanted = !env || strcmp(env, "none") != 0;
	}
	return wanted;
}

static void listen_for(struct sw_sock *s, uint32_t events, int op)
{
	struct epoll_event e = {.events = events, .data.ptr = s};

	epoll_ctl(ep, op, s->fd, &e);
}

int sw_sock_add(struct sw_sock *s, int fd, uint32_t want,
		void (*event)(struct sw_sock *s, uint32_t events))
{
	struct epoll_event e = {.events = want, .data.ptr = s};
	int err;

	if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e)) {
		err = errno;
		close(fd);
		s->fd = -1;
		return err;
	}
	s->fd = fd;
	s->want = want;
	s->event = event;
	sw_list_append(&socks, &s->link);
	return 0;
}

void sw_sock_want(struct sw_sock *s, uint32_t want)
{
	if (s->fd < 0 || s->want == want)
		return;
	s->want = want;
	listen_for(s, want, EPOLL_CTL_MOD);
}

int sw_sock_release(struct sw_sock *s)
{
	int fd = s->fd;

	/* A forked child may still have it open: then only this takes it out of the epoll. */
	listen_for(s, 0, EPOLL_CTL_DEL);
	s->fd = -1;
	sw_list_del(&s->link);
	sw_list_append(&dead, &s->link);
	return fd;
}

void sw_sock_close(struct sw_sock *s)
{
	if (s->fd >= 0)
		close(sw_sock_release(s));
}

/* Every structure that has a socket begins with it. */
static void bury(void)
{
	struct sw_list *at, *next;

	sw_each_safe (at, next, &dead)
		free(sw_outer(at, struct sw_sock, link));
	sw_list_init(&dead);
}

static void progress(void)
{
	struct epoll_event e[EVENTS];
	int n;

	bury();
	n = epoll_wait(ep, e, EVENTS, 0);
	for (int i = 0; i < n; i++) {
		struct sw_sock *s = e[i].data.ptr;

		if (s && s->fd >= 0)
			s->event(s, e[i].events);
	}
}

bool sw_net_idle(void)
{
	return sw_net_open && polls % YIELD == YIELD - 1;
}

void sw_net_progress(void)
{
	if (!sw_net_open)
		return;
	polls++;
	progress();
}

static void ring(void)
{
	uint64_t one = 1;

	if (write(bell, &one, sizeof one) < 0)
		return; /* it is full: the thread is awake */
}

void sw_net_watch(void)
{
	if (!started)
		return;
	armed = true;
	polls = 0;
	if (!watching)
		ring();
}

void sw_net_alarm(void)
{
	if (started)
		ring();
}

/* It runs for moments, and those who spin on memory that it writes wait for it: a short slice has it
 * scheduled early, where the kernel knows that (6.12). */
static void be_quick(void)
{
	struct {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t runtime, deadline, period;
	} a = {.size = sizeof a, .nice = getpriority(PRIO_PROCESS, 0), .runtime = 100000};

	if (syscall(SYS_sched_setattr, 0, &a, 0))
		return; /* it waits its turn */
}

static void *drive(void *arg)
{
	struct epoll_event e;
	struct pollfd p = {.fd = bell, .events = POLLIN};
	int watch = ep;
	uint64_t n;

	(void)arg;
	be_quick();
	sw_lock();
	for (;;) {
		bool w = watching;
		int ms = sw_late_ms();

		sw_unlock();
		if (w)
			epoll_wait(watch, &e, 1, ms);
		else
			poll(&p, 1, STAND_BY_MS);
		sw_lock();
		sw_late_due();
		if (read(p.fd, &n, sizeof n) < 0)
			n = 0; /* nobody rang */
		watching = armed || polls < BUSY;
		armed = false;
		polls = 0;
		if (watching)
			progress();
	}
	return NULL;
}

/* ---- forks ---- */

static void before_fork(void)
{
	sw_lock();
}

static void after_fork(void)
{
	sw_unlock();
}

static void in_child(void)
{
	struct sw_list *l;

	sw_each (l, &socks) {
		struct sw_sock *s = sw_outer(l, struct sw_sock, link);

		close(s->fd);
		s->fd = -1;
	}
	sw_list_init(&socks);
	sw_net_disown_ports();
	sw_each (l, sw_devices())
		sw_outer(l, struct sw_device, link)->block = 0;
	if (started) {
		close(ep);
		close(bell);
	}
	started = false;
	sw_net_open = 0;
	sw_unlock();
}

static int start_thread(void)
{
	sigset_t all, old;
	pthread_t t;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&t, NULL, drive, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!err)
		pthread_detach(t);
	return err;
}

int sw_net_start(void)
{
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL};
	static bool forks;
	int err;

	if (started)
		return 0;
	ep = epoll_create1(EPOLL_CLOEXEC);
	bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	watching = true;
	if (ep < 0 || bell < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, bell, &e))
		err = errno;
	else
		err = start_thread();
	if (!err && !forks)
		err = pthread_atfork(before_fork, after_fork, in_child);
	if (err) {
		if (ep >= 0)
			close(ep);
		if (bell >= 0)
			close(bell);
		return err;
	}
	forks = started = true;
	return 0;
}
