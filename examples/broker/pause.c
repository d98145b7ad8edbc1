/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Publishers that wait for a subscriber. The subscriber's shard tells the publisher's by two messages,
 * both of which it has before the first is posted: that it goes on must never fail.
 *
 *      subscriber's shard                                publisher's shard
 *      queue is full: struct pause --- begin ---------->  paused++
 *      queue is half empty, or it ends - end ----------->  paused--, struct pause is freed
 */
#include "session.h"

struct pause {
	struct loop_message begin, end;
	struct shard *shard; /* the publisher's */
	uint64_t publisher;
	struct pause *next; /* of the subscriber's */
};

static void begins(struct loop_message *message)
{
	struct pause *p = (struct pause *)message;
	struct session *publisher = session_find(p->shard, p->publisher);

	if (!publisher)
		return;
	publisher->paused++;
	p->shard->counters.pauses++;
	session_update_pause(publisher);
}

static void ends(struct loop_message *message)
{
	struct pause *p = (struct pause *)((char *)message - offsetof(struct pause, end));
	struct session *publisher = session_find(p->shard, p->publisher);

	if (publisher) {
		publisher->paused--;
		session_update_pause(publisher);
	}
	free(p);
}

void session_pause_publisher(struct session *session, uint64_t publisher)
{
	const struct settings *settings = &session->shard->broker->settings;
	struct pause *p = session->pauses;

	while (p && p->publisher != publisher)
		p = p->next;
	if (p)
		return;
	p = malloc(sizeof *p);
	if (!p || (!session->stall.place &&
		   loop_timer_set(session->shard->loop, &session->stall, settings->patience_ms))) {
		free(p);
		session_end(session, END_MEMORY);
		return;
	}
	*p = (struct pause){.begin.run = begins,
			    .end.run = ends,
			    .shard = session_shard(session->shard->broker, publisher),
			    .publisher = publisher,
			    .next = session->pauses};
	session->pauses = p;
	loop_post(p->shard->loop, &p->begin);
}

void session_resume_publishers(struct session *session)
{
	while (session->pauses) {
		struct pause *p = session->pauses;

		session->pauses = p->next;
		loop_post(p->shard->loop, &p->end);
	}
	loop_timer_stop(session->shard->loop, &session->stall);
}

/* Somebody has waited for long. Has the subscriber taken anything meanwhile? */
void session_stalled(struct loop_timer *timer)
{
	struct session *s = (struct session *)((char *)timer - offsetof(struct session, stall));
	const int64_t patience = s->shard->broker->settings.patience_ms;
	const int64_t left = s->progress + patience - loop_now(s->shard->loop);

	if (left <= 0)
		session_end(s, END_SLOW);
	else if (loop_timer_set(s->shard->loop, timer, left))
		session_end(s, END_MEMORY);
}
