/* SPDX-License-Identifier: BSD-2-Clause */
/* Two ends of a link over RDMA in one process. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rdma_ends.h"

enum {
	LIMIT_MS = 12000, /* as often as Check's limit: five times unless told otherwise */
	PORT = 7471,
};

uint8_t test_byte(uint32_t n, uint32_t i)
{
	return (uint8_t)((n * 2654435761u + i * 40503u) >> 8);
}

static void check_payload(const struct sgp_sgl *payload, uint32_t n)
{
	uint32_t at = 0;

	ck_assert_uint_eq(payload->length, n);
	for (int i = 0; i < payload->num_sge; i++) {
		const uint8_t *p = (const uint8_t *)(uintptr_t)payload->sge[i].addr;

		for (uint32_t k = 0; k < payload->sge[i].length; k++, at++)
			if (p[k] != test_byte(n, at))
				ck_abort_msg("byte %u of %u is wrong", at, n);
	}
}

/* What the server has still to send back, in order. */
struct back {
	struct back *next;
	struct sgp_sgl payload;
	size_t head_bytes;
	uint8_t head[];
};

static void keep(struct ends *e, const struct mqtt_packet *packet, struct sgp_sgl *payload)
{
	struct back *b = calloc(1, sizeof *b + MQTT_PUBLISH_HEAD(packet->publish.topic.n));

	b->head_bytes = mqtt_put_publish(b->head, &packet->publish, packet->id, packet->payload);
	if (packet->payload) {
		ck_assert_int_eq(
			mqr_list_reserve(&b->payload, payload->num_sge, payload->num_chunk), 0);
		ck_assert_int_eq(sgp_sgl_move(&b->payload, payload), 0);
	}
	*e->last_back = b;
	e->last_back = &b->next;
}

static void send_back(struct ends *e, struct link *link)
{
	struct back *b;

	while ((b = e->back)) {
		const struct link_packet out = {.head = b->head,
						.head_bytes = (uint32_t)b->head_bytes,
						.payload = &b->payload};

		if (link_send(link, &out, 1) != 1)
			return;
		e->back = b->next;
		if (!e->back)
			e->last_back = &e->back;
		mqr_list_free(&b->payload);
		free(b);
	}
}

static void came(struct link *link, const struct mqtt_packet *packet, struct sgp_sgl *payload)
{
	struct ends *e = link->host->owner;
	struct end *end = link->owner;

	if (packet->type != MQTT_PUBLISH)
		return;
	for (uint16_t i = 0; i < packet->publish.topic.n; i++)
		if (packet->publish.topic.p[i] != 't')
			ck_abort_msg("byte %d of a topic is wrong", i);
	check_payload(payload, packet->payload);
	end->got++;
	end->got_bytes += packet->payload;
	if (e->echo && end == &e->server) {
		keep(e, packet, payload);
		send_back(e, link);
	}
	if (end == &e->server && e->pause_after && end->got == e->pause_after)
		link_pause(link);
}

static void writable(struct link *link)
{
	struct ends *e = link->host->owner;

	if (link->owner == &e->client && e->writable)
		e->writable(e);
	else if (link->owner == &e->server)
		send_back(e, link);
}

static void closed(struct link *link, int err)
{
	struct end *end = link->owner;
	const char *why = link_rdma_why(link);

	ck_assert(!end->closed);
	end->closed = true;
	end->err = err;
	end->link = NULL;
	snprintf(end->why, sizeof end->why, "%s", why ? why : "");
}

static const struct link_events events = {.packet = came, .writable = writable, .closed = closed};

static void asked(struct link_rdma_listener *listener, const struct link_rdma_request *request)
{
	struct ends *e =
		(struct ends *)(void *)((char *)listener - offsetof(struct ends, listener));

	e->server.link = link_rdma_accept(e->rdma, request, &events, &e->server);
}

static void look(struct loop_timer *timer)
{
	struct ends *e = (struct ends *)(void *)((char *)timer - offsetof(struct ends, timer));

	if (e->done(e))
		loop_stop(e->loop);
	else
		loop_timer_set(e->loop, timer, 1);
}

static void too_late(struct loop_timer *timer)
{
	struct ends *e = (struct ends *)(void *)((char *)timer - offsetof(struct ends, limit));

	ck_abort_msg("it does not come to its end: client %u%s%s, server %u%s%s", e->client.got,
		     e->client.closed ? " closed: " : "", e->client.why, e->server.got,
		     e->server.closed ? " closed: " : "", e->server.why);
}

void ends_prepare(struct ends *e, const struct mqr_attr *attr, size_t mib)
{
	/* Others may listen on the port in a world of theirs. */
	setenv("SGP_SOFTVERBS_NET", "none", 0);
	memset(e, 0, sizeof *e);
	e->last_back = &e->back;
	e->loop = loop_create();
	ck_assert_ptr_nonnull(e->loop);
	ck_assert_int_eq(memory_open(&e->memory, mib, attr->receive), 0);
	e->host =
		(struct link_host){.loop = e->loop,
				   .memory = &e->memory,
				   .limits = {.head = MQTT_HEAD_MAX, .payload = MQTT_REMAINING_MAX},
				   .owner = e};
	e->rdma = link_rdma_open(&e->host, attr);
	ck_assert_ptr_nonnull(e->rdma);
	e->addr = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(PORT)};
	inet_pton(AF_INET, "127.0.0.1", &e->addr.sin_addr);
	e->listener.request = asked;
	e->timer.fire = look;
	e->limit.fire = too_late;
}

void ends_open(struct ends *e, const struct mqr_attr *attr, size_t mib)
{
	ends_prepare(e, attr, mib);
	ck_assert_int_eq(link_rdma_listen(e->rdma, &e->listener, (struct sockaddr *)&e->addr), 0);
}

void ends_connect(struct ends *e)
{
	e->client.link =
		link_rdma_connect(e->rdma, (struct sockaddr *)&e->addr, &events, &e->client);
	ck_assert_ptr_nonnull(e->client.link);
}

void ends_run(struct ends *e)
{
	const char *times = getenv("CK_TIMEOUT_MULTIPLIER");

	loop_timer_set(e->loop, &e->timer, 0);
	loop_timer_set(e->loop, &e->limit, LIMIT_MS * (times && atoi(times) > 5 ? atoi(times) : 5));
	ck_assert_int_eq(loop_run(e->loop), 0);
}

static void fill(struct ends *e, struct sgp_sgl *list, uint32_t n)
{
	uint32_t at = 0;

	while (at < n) {
		struct sgp_chunk *chunk = memory_chunk_for(&e->memory, n - at);
		uint32_t take;
		uint8_t *p;

		ck_assert_ptr_nonnull(chunk);
		p = sgp_chunk_addr(chunk);
		take = n - at < sgp_chunk_size(chunk) ? n - at : (uint32_t)sgp_chunk_size(chunk);
		take = e->piece && take > e->piece ? e->piece : take;
		for (uint32_t i = 0; i < take; i++)
			p[i] = test_byte(n, at + i);
		ck_assert_int_eq(mqr_list_reserve(list, list->num_sge + 1, list->num_chunk + 1), 0);
		ck_assert_int_eq(sgp_sgl_append(list, chunk, 0, take), 0);
		at += take;
	}
}

bool ends_publish(struct ends *e, struct link *link, uint32_t n, uint16_t topic_bytes)
{
	uint8_t *topic = malloc(topic_bytes), *head = malloc(MQTT_PUBLISH_HEAD(topic_bytes));
	const struct mqtt_publish publish = {.topic = {.p = topic, .n = topic_bytes}};
	struct sgp_sgl payload = {0};
	struct link_packet packet = {.head = head, .payload = &payload};
	int taken;

	memset(topic, 't', topic_bytes);
	fill(e, &payload, n);
	packet.head_bytes = (uint32_t)mqtt_put_publish(head, &publish, 0, n);
	taken = link_send(link, &packet, 1);
	ck_assert_int_ge(taken, 0);
	mqr_list_free(&payload);
	free(head);
	free(topic);
	return taken == 1;
}

void ends_close(struct ends *e)
{
	struct sgp_pool_stats stats;

	link_rdma_unlisten(&e->listener);
	ck_assert_int_eq(link_rdma_close(e->rdma), 0);
	sgp_pool_stats(e->memory.pool, &stats);
	ck_assert_uint_eq(stats.live, 0);
	if (!e->piece)
		ck_assert_uint_eq(e->host.stats.payload_copied, 0);
	ck_assert_int_eq(memory_close(&e->memory), 0);
	loop_destroy(e->loop);
}
