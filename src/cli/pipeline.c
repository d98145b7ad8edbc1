/* SPDX-License-Identifier: BSD-2-Clause */
/* Two steps in two threads, and the messages that they work on. */
#include <errno.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "cli/pipeline.h"

struct message *messages_init(struct message *messages, int n)
{
	struct message *list = NULL;

	for (int i = n - 1; i >= 0; i--) {
		struct message *m = &messages[i];

		*m = (struct message){.next = list};
		sgp_sgl_init(&m->sgl, m->sge, MESSAGE_SGES, m->chunk, MESSAGE_SGES);
		list = m;
	}
	return list;
}

void message_reset(struct message *m)
{
	sgp_sgl_clear(&m->sgl);
	sgp_chunk_put_bulk(m->held, (size_t)m->holds);
	m->holds = 0;
	m->pieces = 0;
	m->error = 0;
	m->last = m->differs = false;
}

static void push(struct queue *q, struct message *m)
{
	m->next = NULL;
	pthread_mutex_lock(&q->lock);
	if (q->head)
		q->tail->next = m;
	else
		q->head = m;
	q->tail = m;
	pthread_cond_signal(&q->more);
	pthread_mutex_unlock(&q->lock);
}

/* NULL when it is empty; with wait only when it is closed too. */
static struct message *pop(struct queue *q, bool wait)
{
	struct message *m;

	pthread_mutex_lock(&q->lock);
	while (wait && !q->head && !q->closed)
		pthread_cond_wait(&q->more, &q->lock);
	m = q->head;
	if (m)
		q->head = m->next;
	pthread_mutex_unlock(&q->lock);
	return m;
}

static void close_queue(struct queue *q)
{
	pthread_mutex_lock(&q->lock);
	q->closed = true;
	pthread_cond_signal(&q->more);
	pthread_mutex_unlock(&q->lock);
}

/* An eventfd's counter can't be full here: the write always succeeds. */
static void announce(int fd)
{
	const uint64_t one = 1;

	while (write(fd, &one, sizeof one) < 0 && errno == EINTR)
		;
}

static void run(struct pipeline *p, int i)
{
	struct message *m;

	while ((m = pop(&p->queue[i], true))) {
		if (!m->error && !atomic_load(&p->stops))
			p->step[i](p->arg, m);
		push(&p->queue[i + 1], m);
		if (i == 1)
			announce(p->done_fd);
	}
	close_queue(&p->queue[i + 1]);
}

static void *run_first(void *p)
{
	run(p, 0);
	return NULL;
}

static void *run_second(void *p)
{
	run(p, 1);
	return NULL;
}

int pipeline_start(struct pipeline *p, pipeline_step *first, pipeline_step *second, void *arg)
{
	static void *(*const body[])(void *) = {run_first, run_second};
	int err = 0;

	*p = (struct pipeline){.step = {first, second}, .arg = arg, .done_fd = -1, .stop_fd = -1};
	for (int i = 0; i < 3; i++) {
		pthread_mutex_init(&p->queue[i].lock, NULL);
		pthread_cond_init(&p->queue[i].more, NULL);
	}
	p->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	p->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (p->done_fd < 0 || p->stop_fd < 0)
		err = errno;
	while (!err && p->threads < 2) {
		err = pthread_create(&p->thread[p->threads], NULL, body[p->threads], p);
		if (!err)
			p->threads++;
	}
	if (!err)
		return 0;
	pipeline_stop(p);
	pipeline_free(p);
	errno = err;
	return -1;
}

void pipeline_push(struct pipeline *p, struct message *m)
{
	p->inside++;
	push(&p->queue[0], m);
}

struct message *pipeline_pop(struct pipeline *p)
{
	struct message *m = pop(&p->queue[2], false);
	uint64_t count;

	if (!m && read(p->done_fd, &count, sizeof count) > 0)
		m = pop(&p->queue[2], false); /* came between the two */
	if (m)
		p->inside--;
	return m;
}

void pipeline_finish(struct pipeline *p)
{
	close_queue(&p->queue[0]);
	while (p->threads > 0)
		pthread_join(p->thread[--p->threads], NULL);
}

void pipeline_stop(struct pipeline *p)
{
	atomic_store(&p->stops, true);
	if (p->stop_fd >= 0)
		announce(p->stop_fd);
	pipeline_finish(p);
}

void pipeline_free(struct pipeline *p)
{
	for (int i = 0; i < 3; i++) {
		pthread_mutex_destroy(&p->queue[i].lock);
		pthread_cond_destroy(&p->queue[i].more);
	}
	if (p->done_fd >= 0)
		close(p->done_fd);
	if (p->stop_fd >= 0)
		close(p->stop_fd);
}
