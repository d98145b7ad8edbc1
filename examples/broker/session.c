/* SPDX-License-Identifier: BSD-2-Clause */
/* Sessions' lives, see session.h. */
#include <errno.h>
#include <string.h>

#include "session.h"

/*
 *	63           32 31        8 7       0
 *	| generation   | slot      | shard  |
 */
#define SLOTS_MAX (1u << 24)

static uint64_t make_id(struct shard *shard, size_t slot)
{
	if (++shard->generation == 0)
		shard->generation = 1; /* so that 0 is nobody's identifier */
	return (uint64_t)shard->generation << 32 | slot << 8 | shard->index;
}

static size_t slot_of(uint64_t id)
{
	return (id & UINT32_MAX) >> 8;
}

struct shard *session_shard(struct broker *broker, uint64_t id)
{
	return &broker->shards[id & 0xff];
}

struct session *session_find(struct shard *shard, uint64_t id)
{
	const size_t slot = slot_of(id);
	struct session *session = slot < shard->nslots ? shard->slots[slot] : NULL;

	return session && session->id == id ? session : NULL;
}

/* A free slot; -1 with ENOMEM. */
static int take_slot(struct shard *shard, size_t *slot)
{
	struct budget *budget = &shard->broker->budget;
	const size_t n = shard->nslots ? 2 * shard->nslots : 64;
	struct session **slots;

	while (shard->free_slot < shard->nslots && shard->slots[shard->free_slot])
		shard->free_slot++;
	*slot = shard->free_slot;
	if (*slot < shard->nslots)
		return 0;
	slots = n <= SLOTS_MAX ? budget_alloc(budget, n * sizeof(void *)) : NULL;
	if (!slots)
		return -1;
	if (shard->nslots)
		memcpy(slots, shard->slots, shard->nslots * sizeof(void *));
	budget_free(budget, shard->slots, shard->nslots * sizeof(void *));
	shard->slots = slots;
	shard->nslots = n;
	return 0;
}

/* ---- the timer: for the CONNECT, then for the keep-alive ---- */

static void watch(struct session *s, int64_t ms)
{
	if (loop_timer_set(s->shard->loop, &s->timer, ms))
		session_end(s, END_MEMORY);
}

/* It isn't set anew with each packet, but looks when the last one came. */
static void timer_fired(struct loop_timer *timer)
{
	struct session *s = (struct session *)((char *)timer - offsetof(struct session, timer));
	int64_t left;

	if (s->state == SESSION_AWAITED) {
		session_end(s, END_KEEP_ALIVE);
		return;
	}
	/* Who is not read can't be heard. */
	left = s->link_paused ? s->keep_alive_ms
			      : s->link->heard + s->keep_alive_ms - loop_now(s->shard->loop);
	if (left > 0)
		watch(s, left);
	else
		session_end(s, END_KEEP_ALIVE); /* [MQTT-3.1.2-24] */
}

/* ---- beginning ---- */

struct session *session_create(struct shard *shard)
{
	struct session *s = budget_alloc(&shard->broker->budget, sizeof *s);
	size_t slot;

	if (!s)
		return NULL;
	if (take_slot(shard, &slot)) {
		budget_free(&shard->broker->budget, s, sizeof *s);
		return NULL;
	}
	s->shard = shard;
	s->id = make_id(shard, slot);
	s->ending = END_LOST;
	s->queue.budget = &shard->broker->budget;
	s->last_control = &s->controls;
	s->next_packet = 1;
	s->flush.run = session_flush;
	s->timer.fire = timer_fired;
	s->stall.fire = session_stalled;
	s->unread.fire = session_unread;
	s->progress = s->answered = loop_now(shard->loop);
	shard->slots[slot] = s;
	shard->counters.sessions++;
	return s;
}

void session_attach(struct session *session, struct link *link)
{
	session->link = link;
	session->shard->counters.accepted++;
	watch(session, CONNECT_MS);
}

static void free_session(struct session *s)
{
	struct shard *shard = s->shard;
	const size_t slot = slot_of(s->id);

	shard->slots[slot] = NULL;
	if (slot < shard->free_slot)
		shard->free_slot = slot;
	shard->counters.sessions--;
	atomic_fetch_sub_explicit(&shard->broker->connections, 1, memory_order_relaxed);
	budget_free(&shard->broker->budget, s->client_id, s->client_id_bytes);
	budget_free(&shard->broker->budget, s, sizeof *s);
	if (shard->stopping && !shard->counters.sessions)
		loop_stop(shard->loop);
}

void session_discard(struct session *session)
{
	free_session(session);
}

/* ---- the end ---- */

void session_update_pause(struct session *session)
{
	const bool pause = session->paused || session->backlog;

	if (session->state == SESSION_ENDING || pause == session->link_paused)
		return;
	session->link_paused = pause;
	if (pause)
		link_pause(session->link);
	else
		link_resume(session->link);
}

static void begin_end(struct session *s, enum ending ending)
{
	struct loop *loop = s->shard->loop;

	s->state = SESSION_ENDING;
	s->ending = ending;
	loop_timer_stop(loop, &s->timer);
	loop_timer_stop(loop, &s->stall);
	loop_timer_stop(loop, &s->unread);
	loop_defer_cancel(loop, &s->flush);
	/* What it holds is needed elsewhere: it doesn't wait for the connection's end. */
	session_out_end(s);
	session_resume_publishers(s);
}

void session_end(struct session *session, enum ending ending)
{
	if (session->state != SESSION_ENDING)
		begin_end(session, ending);
	link_close(session->link, false);
}

void session_end_politely(struct session *session, enum ending ending)
{
	if (session->state == SESSION_ENDING)
		return;
	session_flush(&session->flush);
	if (session->state == SESSION_ENDING)
		return;
	begin_end(session, ending);
	link_close(session->link, true);
}

static enum ending ending_for(int err)
{
	return err == EPROTO                     ? END_PROTOCOL
	       : err == EMSGSIZE                 ? END_TOO_LARGE
	       : err == ENOBUFS || err == ENOMEM ? END_MEMORY
						 : END_LOST;
}

static void closed(struct link *link, int err)
{
	struct session *s = link->owner;
	struct message *will = s->will;

	if (s->state != SESSION_ENDING)
		begin_end(s, ending_for(err));
	s->shard->counters.endings[s->ending]++;
	session_unsubscribe_all(s);
	if (s->client_id)
		registry_leave(&s->shard->broker->registry,
			       (struct mqtt_bytes){.p = s->client_id, .n = s->client_id_bytes},
			       s->id);
	/* DISCONNECT has taken it back [MQTT-3.14.4-3]; any other end publishes it [MQTT-3.1.2-8]. */
	s->will = NULL;
	if (will && !s->shard->stopping)
		shard_publish(s->shard, will);
	message_put(will);
	free_session(s);
}

const struct link_events session_events = {
	.packet = session_packet,
	.writable = session_writable,
	.closed = closed,
};
