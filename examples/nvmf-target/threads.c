/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads (see threads.h). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "loop.h"
#include "server.h"
#include "threads.h"

/* ---- mail ---- */

void threads_wake(struct target *t)
{
	/* It can only fail when the counter is full, and then the descriptor is readable already. */
	(void)!write(t->wake.fd, &(uint64_t){1}, sizeof(uint64_t));
}

/* The loop looks at everything there is anyhow. */
static void woken(struct uring_watch *watch)
{
	struct target *t = watch->owner;
	uint64_t count;

	(void)!read(watch->fd, &count, sizeof count);
	uring_watch(&t->uring, watch);
}

struct target *threads_choose(struct common *c)
{
	static unsigned int turn; /* thread 0's: what has just been sent is not promised yet */
	struct target *best = NULL;

	turn++;
	for (unsigned int i = 0; i < c->nthreads; i++) {
		struct target *t = &c->thread[(turn + i) % c->nthreads];

		if (!best || atomic_load(&t->promised) < atomic_load(&best->promised))
			best = t;
	}
	return best;
}

int threads_send(struct target *t, const struct mail *mail)
{
	struct mail *copy = malloc(sizeof *copy);

	if (!copy)
		return -1;
	*copy = *mail;
	copy->next = atomic_load(&t->mail);
	while (!atomic_compare_exchange_weak(&t->mail, &copy->next, copy))
		;
	threads_wake(t);
	return 0;
}

/* ---- a thread ---- */

static int open_thread(struct target *t)
{
	if (uring_open(&t->uring))
		return -1;
	uring_watch(&t->uring, &t->wake);
	if (server_join(t) == 0)
		return 0;
	(void)server_close(t);
	uring_close(&t->uring);
	return -1;
}

/* Whether all could be opened: this one has been, or not. */
static bool all_open(struct common *c, bool open)
{
	pthread_mutex_lock(&c->lock);
	c->ready++;
	c->broken |= !open;
	pthread_cond_broadcast(&c->started);
	while (c->ready < c->nthreads && !c->broken)
		pthread_cond_wait(&c->started, &c->lock);
	open = !c->broken;
	pthread_mutex_unlock(&c->lock);
	return open;
}

static void *run_thread(void *arg)
{
	struct target *t = arg;
	const bool open = open_thread(t) == 0;

	if (all_open(t->common, open))
		loop_serve(t);
	if (open && threads_close(t))
		atomic_store(&t->common->failed, true);
	return NULL;
}

int threads_close(struct target *t)
{
	int ret = server_close(t) || budget_end(&t->budget) ? -1 : 0;

	uring_close(&t->uring);
	return ret;
}

static int init_thread(struct common *c, unsigned int i)
{
	struct target *t = &c->thread[i];

	t->common = c;
	t->index = i;
	t->opt = c->opt;
	t->ns = c->ns;
	t->limits = c->limits;
	t->now = t->started = loop_clock();
	t->wake = (struct uring_watch){
		.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), .ready = woken, .owner = t};
	if (t->wake.fd < 0)
		return fail_sys("eventfd");
	budget_init(&t->budget, c->opt->memory / c->nthreads);
	return 0;
}

int threads_init(struct common *c)
{
	c->nthreads = c->opt->threads;
	c->thread = aligned_alloc(_Alignof(struct target), c->nthreads * sizeof *c->thread);
	if (!c->thread)
		return fail_sys("memory");
	memset(c->thread, 0, c->nthreads * sizeof *c->thread);
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->started, NULL);
	pthread_barrier_init(&c->ended, NULL, c->nthreads);
	atomic_store(&c->busy, c->nthreads);
	for (unsigned int i = 0; i < c->nthreads; i++)
		if (init_thread(c, i))
			return -1;
	return 0;
}

int threads_start(struct common *c)
{
	bool open = true;

	for (unsigned int i = 1; open && i < c->nthreads; i++) {
		struct target *t = &c->thread[i];

		errno = pthread_create(&t->thread, NULL, run_thread, t);
		open = t->runs = errno == 0;
		if (!open)
			fail_sys("no thread");
	}
	return all_open(c, open) ? 0 : -1;
}

void threads_stop(struct common *c)
{
	atomic_store(&c->stopping, true);
	for (unsigned int i = 0; i < c->nthreads; i++)
		threads_wake(&c->thread[i]);
}

void threads_drained(struct target *t)
{
	struct common *c = t->common;

	if (t->drained)
		return;
	t->drained = true;
	if (atomic_fetch_sub(&c->busy, 1) == 1)
		threads_stop(c);
}

int threads_end(struct common *c)
{
	for (unsigned int i = 1; i < c->nthreads; i++)
		if (c->thread[i].runs)
			pthread_join(c->thread[i].thread, NULL);
	for (unsigned int i = 0; i < c->nthreads; i++)
		close(c->thread[i].wake.fd);
	free(c->thread);
	pthread_barrier_destroy(&c->ended);
	pthread_cond_destroy(&c->started);
	pthread_mutex_destroy(&c->lock);
	return atomic_load(&c->failed) ? -1 : 0;
}
