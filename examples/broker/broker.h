/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The broker: what its threads share, and what each has of its own.
 *
 * Each thread is a shard: an event loop with a share of the connections and a tree of their
 * subscriptions. Nothing of a shard is touched by another thread; they tell each other by messages of
 * the loops:
 *
 *      publisher's shard                          every shard with subscriptions
 *      PUBLISH --> message --+--> retained        match its own tree,
 *                            +--> deliveries -->  queue it for the sessions it finds,
 *                                                 send at the end of the turn
 *
 * So messages of one publisher reach each subscriber in their order. Shared are the pool, which is
 * thread-safe, the budget, and under a lock each the retained messages and the client identifiers.
 */
#ifndef BROKER_BROKER_H
#define BROKER_BROKER_H

#include <pthread.h>

#include "link.h"
#include "message.h"
#include "queue.h"
#include "registry.h"
#include "retained.h"
#include "topics.h"

enum {
	SHARDS_MAX = 64,
	MATCHES_MIN = 64,
	SCRATCH = 2 * MQTT_HEAD_MAX, /* bytes for the heads of packets that go out together */
};

/* What is done about a subscriber that is slower than what comes for it. */
enum policy {
	POLICY_DROP,       /* its oldest messages of QoS 0 go; has it none, it is disconnected */
	POLICY_PAUSE,      /* who publishes to it waits, unless it takes nothing for too long */
	POLICY_DISCONNECT, /* it is disconnected */
};

struct settings {
	size_t memory_mib;
	uint32_t max_message;
	uint32_t receive; /* bytes of a receive of RDMA */
	unsigned int threads;
	size_t max_connections;
	uint32_t max_subscriptions; /* a session */
	struct queue_limits queue;
	enum policy policy;
	int64_t patience_ms; /* how long a subscriber may take nothing, with POLICY_PAUSE */
	int64_t unread_ms;   /* how long a client that is not read any more may leave answers unread */
};

/* Why sessions ended. */
enum ending {
	END_CLEAN,      /* DISCONNECT */
	END_LOST,       /* the connection broke, or the client went without a word */
	END_PROTOCOL,   /* it broke the standard's rules, or asked for what there is not */
	END_TOO_LARGE,  /* a packet above the limits */
	END_KEEP_ALIVE, /* it was silent for too long, or never sent a CONNECT */
	END_SLOW,       /* by the policy for slow subscribers */
	END_MEMORY,     /* there was no memory for it */
	END_TAKEN_OVER, /* another client came with its identifier */
	END_REFUSED,    /* its CONNECT was answered by a refusal */
	END_SHUTDOWN,   /* the broker's end */
	ENDINGS
};

/* A shard's numbers, by its own thread. */
struct counters {
	uint64_t sessions, subscriptions; /* now */
	uint64_t accepted, refused;       /* connections; refused: above the limit */
	uint64_t endings[ENDINGS];
	uint64_t published, published_bytes; /* messages that came, and their payload */
	uint64_t deliveries;                 /* messages queued for a subscriber */
	uint64_t delivered, delivered_bytes; /* messages that went */
	uint64_t dropped; /* of QoS 0, for a slow subscriber or for want of memory */
	uint64_t pauses;  /* times that a publisher was made to wait */
	uint64_t sheds;   /* times that a queue gave since memory was short */
	uint64_t acked;   /* PUBACKs that came */
};

struct broker;
struct session;
struct link_rdma;

/* A session with the best QoS that a message is to have for it. */
struct matched {
	struct session *session;
	uint8_t qos;
};

struct shard {
	struct broker *broker;
	unsigned int index;
	struct loop *loop;
	pthread_t thread;
	struct link_host host;
	struct link_rdma *rdma; /* NULL: there is none */

	struct session **slots;   /* [nslots], NULL where there is none */
	size_t nslots, free_slot; /* below free_slot all are taken */
	uint32_t generation;

	struct topics subscriptions; /* a node's value: struct subscription */
	atomic_size_t subscribed;    /* subscriptions, for others to see whether there are any */

	struct matched *matched; /* [room_matched], for one message at a time */
	size_t nmatched, room_matched;
	uint64_t match; /* counts the messages */

	atomic_size_t largest; /* about the bytes of the longest queue */
	int64_t relieved_at;
	struct loop_message shed; /* asks this shard to let something go */
	atomic_bool shed_posted;

	bool stopping;
	struct counters counters;
	uint8_t *scratch;
};

struct broker {
	struct settings settings;
	struct memory memory;
	struct budget budget;
	struct retained retained;
	struct registry registry;
	struct shard *shards; /* [nshards] */
	unsigned int nshards, next_shard;
	unsigned int running; /* threads that were made, of shards 1 and up */
	atomic_size_t connections;
};

/* broker.c. Make the threads and run until broker_stop(). Return 0; -1 with errno. */
int broker_open(struct broker *broker, const struct settings *settings);
int broker_start(struct broker *broker); /* threads 1 and up; shard 0 is the caller's */
void broker_stop(struct broker *broker); /* from any thread: every session is ended */
/*
 * After broker_stop(), and when loop_run() of shard 0 has returned. -1: memory is still held, errno and
 * sgp_errmsg() say.
 */
int broker_close(struct broker *broker);

/* The shard that the next connection goes to; shard 0's thread only. NULL: there are too many. */
struct shard *broker_next(struct broker *broker);

/* route.c. A session or a will has published; the caller keeps its reference. */
void shard_publish(struct shard *shard, struct message *message);
/* Bytes to be had behind each message for that: see message_create(). */
size_t route_bytes(const struct broker *broker);
struct message *shard_message(struct shard *shard, const struct mqtt_publish *publish,
			      struct sgp_sgl *payload);

/* pressure.c. Memory is short: the largest queue of all shards gives. */
void shard_starved(struct link_host *host);
void shard_shed(struct loop_message *message);

#endif
