/* SPDX-License-Identifier: BSD-2-Clause */
/* Where connections over RDMA come from, see listen_rdma.h. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "listen_rdma.h"
#include "session.h"

enum {
	DEPTH_MIN = 2,  /* messages on the way from a client */
	OWN_SHARE = 8,  /* clients at least that there are receives for, where each has its own */
	SHARED_MIN = 8, /* receives of a thread ... */
	SHARED_MAX = 1024,
};

struct arrival {
	struct loop_message message;
	struct shard *shard;
	struct link_rdma_request request;
};

static void refuse(struct shard *shard, const struct link_rdma_request *request)
{
	shard->counters.refused++;
	link_rdma_refuse(request);
}

static void leave(struct broker *broker)
{
	atomic_fetch_sub_explicit(&broker->connections, 1, memory_order_relaxed);
}

static void arrived(struct loop_message *message)
{
	struct arrival *arrival = (struct arrival *)message;
	const struct link_rdma_request request = arrival->request;
	struct shard *shard = arrival->shard;
	struct session *session = shard->stopping ? NULL : session_create(shard);
	struct link *link;

	free(arrival);
	if (!session) {
		leave(shard->broker);
		refuse(shard, &request);
		return;
	}
	link = link_rdma_accept(shard->rdma, &request, &session_events, session);
	if (link) {
		session_attach(session, link);
		return;
	}
	session_discard(session);
	shard->counters.refused++; /* the request was answered */
}

static void asked(struct link_rdma_listener *listener, const struct link_rdma_request *request)
{
	struct broker *broker = ((struct rdma_door *)listener)->broker;
	struct shard *shard = broker_next(broker);
	struct arrival *arrival = shard ? malloc(sizeof *arrival) : NULL;

	if (!arrival) {
		if (shard)
			leave(broker);
		refuse(&broker->shards[0], request);
		return;
	}
	*arrival = (struct arrival){.message.run = arrived, .shard = shard, .request = *request};
	loop_post(shard->loop, &arrival->message);
}

static uint32_t within(uint32_t n, uint32_t min, uint32_t max)
{
	return n < min ? min : n > max ? max : n;
}

static int open_shards(struct broker *broker)
{
	const uint32_t receives = memory_receives(&broker->memory);
	const struct mqr_attr attr = {
		.receive = broker->settings.receive,
		.depth = within(receives / OWN_SHARE, DEPTH_MIN, MQR_DEPTH),
		.shared = within(receives / broker->nshards, SHARED_MIN, SHARED_MAX),
	};

	for (unsigned int i = 0; i < broker->nshards; i++) {
		broker->shards[i].rdma = link_rdma_open(&broker->shards[i].host, &attr);
		if (!broker->shards[i].rdma)
			return -1;
	}
	return 0;
}

static int listen_on(struct rdma_door *door, const struct addr *addr)
{
	struct addrinfo *list;
	const char *why = addr_resolve(addr, AI_PASSIVE, &list);
	int ret;

	if (why) {
		fprintf(stderr, "sgpool-broker: --rdma %s: %s\n", addr->host, why);
		return -1;
	}
	door->listener.request = asked;
	ret = link_rdma_listen(door->broker->shards[0].rdma, &door->listener, list->ai_addr);
	freeaddrinfo(list);
	/* Without memory it is the pool's registration, which says more. */
	if (ret)
		fprintf(stderr, "sgpool-broker: %s port %u: can't listen for RDMA: %s%s\n",
			addr->host, addr->port, errno == ENOMEM ? sgp_errmsg() : strerror(errno),
			errno == ENODEV || errno == EADDRNOTAVAIL
				? "; no RDMA device has this address, see 'sgpool doctor'"
				: "");
	return ret;
}

int rdma_door_open(struct rdma_door *door, struct broker *broker, const struct addr *addr)
{
	*door = (struct rdma_door){.broker = broker};
	if (open_shards(broker)) {
		fprintf(stderr, "sgpool-broker: no RDMA here: %s; see 'sgpool doctor'\n",
			strerror(errno));
		return -1;
	}
	if (listen_on(door, addr)) {
		door->broker = NULL;
		return -1;
	}
	fprintf(stderr, "sgpool-broker: listening on %s port %u (MQTT over RDMA)\n", addr->host,
		link_rdma_port(&door->listener));
	return 0;
}

void rdma_door_close(struct rdma_door *door)
{
	if (door->broker)
		link_rdma_unlisten(&door->listener);
	door->broker = NULL;
}
