/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A client's session, from its connection to its end (CleanSession 1 is all there is), in its shard's
 * thread.
 *
 *      connection --> AWAITED --CONNECT--> UP --DISCONNECT, errors, the shard's end--> ENDING --> freed
 *
 * A session that is ENDING takes and sends nothing more; it's freed when its link has closed.
 */
#ifndef BROKER_SESSION_H
#define BROKER_SESSION_H

#include "broker.h"

enum {
	INFLIGHT = 128,            /* messages of QoS 1 that a client may leave unacknowledged */
	ACKS = 256,                /* PUBACKs that may wait to go */
	CONTROLS = 64,             /* other answers that may ... */
	CONTROL_BYTES = 32 * 1024, /* ... if they aren't longer than that */
	CONNECT_MS = 10000,        /* for the CONNECT to come */
};

enum session_state {
	SESSION_AWAITED,
	SESSION_UP,
	SESSION_ENDING,
};

/* A packet without payload to go. */
struct control {
	struct control *next;
	uint32_t bytes;
	uint8_t packet[];
};

struct subscription {
	struct session *session;
	struct topic_node *node;
	struct subscription *next_of_node, **prev_of_node;
	struct subscription *next_of_session, **prev_of_session;
	uint8_t qos;
	uint64_t seen; /* of the retained ones, up to this order: retained.h */
};

/* A publisher that waits for a subscriber; see pause.c. */
struct pause;

struct session {
	struct shard *shard;
	struct link *link;
	uint64_t id; /* generation, slot, shard: see session_find() */
	enum session_state state;
	enum ending ending;
	uint8_t *client_id; /* budgeted; NULL: a client without a name */
	uint16_t client_id_bytes;
	int64_t keep_alive_ms;   /* half as much again as it said; 0: none */
	struct loop_timer timer; /* for the CONNECT, then the keep-alive */
	struct message *will;

	/* What goes. */
	struct queue queue;
	struct control *controls, **last_control;
	unsigned int ncontrols;
	size_t control_bytes;
	uint16_t acks[ACKS];
	unsigned int first_ack, nacks;
	uint16_t inflight[INFLIGHT]; /* packet identifiers, the oldest first */
	unsigned int ninflight;
	uint16_t next_packet;
	bool blocked; /* the link takes no more for now */
	struct loop_task flush;

	/* Waiting. */
	bool backlog;     /* it does not read its answers: nothing more is read from it */
	int64_t answered; /* when the last answer went */
	struct loop_timer unread;
	unsigned int paused; /* by so many subscribers */
	bool link_paused;
	struct pause *pauses; /* publishers that wait for us */
	int64_t progress;     /* when the last message went */
	struct loop_timer stall;

	/* What it subscribed to. */
	struct subscription *subscriptions;
	uint32_t nsubscriptions;
	uint64_t match;  /* shard->match of the last message that it matched ... */
	size_t match_at; /* ... and where in shard->matched */
};

/* session.c */
/* A connection comes to this shard: make a session, then its link with session_events, then attach. */
struct session *session_create(struct shard *shard);
void session_attach(struct session *session, struct link *link);
void session_discard(struct session *session); /* there is no link */
extern const struct link_events session_events;
/* NULL: it has ended. */
struct session *session_find(struct shard *shard, uint64_t id);
/* The shard of a session's identifier. */
struct shard *session_shard(struct broker *broker, uint64_t id);
void session_end(struct session *session, enum ending ending);
/* After a last packet: it's sent, then the connection is closed. */
void session_end_politely(struct session *session, enum ending ending);
void session_update_pause(struct session *session);

/* session_in.c */
void session_packet(struct link *link, const struct mqtt_packet *packet, struct sgp_sgl *payload);

/* session_out.c */
void session_flush(struct loop_task *task);
void session_writable(struct link *link);
/* Queue a message, or what the policy says. */
void session_enqueue(struct session *session, struct message *message, uint8_t qos, bool retain,
		     bool unlimited);
/* Answers; when there is no memory for one the session ends. */
void session_ack(struct session *session, uint16_t id);
void session_control(struct session *session, const uint8_t *packet, size_t bytes);
void session_unread(struct loop_timer *timer);
void session_out_end(struct session *session);

/* subscribe.c */
/* Returns the SUBACK's code. */
uint8_t session_subscribe(struct session *session, struct mqtt_bytes filter, uint8_t qos);
/* Send what is retained for a filter that was subscribed to. */
void session_send_retained(struct session *session, struct mqtt_bytes filter);
void session_unsubscribe(struct session *session, struct mqtt_bytes filter);
void session_unsubscribe_all(struct session *session);

/* pause.c */
/* The publisher waits until this session's queue is shorter. */
void session_pause_publisher(struct session *session, uint64_t publisher);
void session_resume_publishers(struct session *session);
void session_stalled(struct loop_timer *timer);

#endif
