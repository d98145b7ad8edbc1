/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Links over RDMA: packets. See link.h for what a link is, mqr.h for what travels, link_rdma_cm.c for
 * how connections come about.
 *
 * A packet that came is parsed where it lies; a head that spreads over several chunks is gathered in
 * one first. Its payload is split off the list it came in.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "link_rdma_parts.h"

enum {
	FLUSH_MS = 1000, /* a close that flushes */
	LOOK_MS = 2,     /* whether it's through */
};

/* ---- what comes ---- */

static int need_room(struct sgp_sgl *list, const struct sgp_sgl *for_list)
{
	return mqr_list_reserve(list, for_list->num_sge + 1, for_list->num_chunk + 1);
}

/*
 * The packet's head in one piece: where it lies, or gathered in *gathered, which is to be put then.
 * Returns as mqtt_parse(); -1 with ENOBUFS when there is no chunk to gather it in.
 */
static int parse(const struct link_host *host, const struct sgp_sgl *list,
		 struct mqtt_packet *packet, struct sgp_chunk **gathered)
{
	const uint8_t *first = (const uint8_t *)(uintptr_t)list->sge[0].addr;
	const int ret = mqtt_parse(first, list->sge[0].length, &host->limits, packet);
	const size_t all = list->length < host->limits.head ? list->length : host->limits.head;
	uint8_t *to;

	if (ret != 0 || list->num_sge == 1)
		return ret;
	*gathered = sgp_pool_get(host->memory->pool, all, SGP_GET_RESERVED);
	if (!*gathered)
		return -1;
	to = sgp_chunk_addr(*gathered);
	for (size_t i = 0, at = 0; at < all; i++) {
		const size_t left = all - at, length = list->sge[i].length;
		const size_t n = length < left ? length : left;

		memcpy(to + at, (const void *)(uintptr_t)list->sge[i].addr, n);
		at += n;
	}
	return mqtt_parse(to, all, &host->limits, packet);
}

/* Split a PUBLISH's payload off into the thread's list. Returns 0; -1 with errno. */
static int split_payload(struct rdma_link *l, struct sgp_sgl *list,
			 const struct mqtt_packet *packet)
{
	struct sgp_sgl *payload = &l->rdma->payload;

	if (!packet->payload)
		return 0;
	if (need_room(payload, list))
		return -1;
	return sgp_sgl_split(list, packet->head, payload);
}

static void hand_over(struct rdma_link *l, struct sgp_sgl *list, const struct mqtt_packet *packet)
{
	struct link_host *host = l->link.host;

	host->stats.packets_in++;
	host->stats.bytes_in += list->length;
	if (packet->head + (uint64_t)packet->payload != list->length) {
		mqr_conn_fail(&l->conn, EPROTO, "it sent a packet of another length than it said");
		return;
	}
	if (split_payload(l, list, packet)) {
		mqr_conn_fail(&l->conn, ENOMEM, "no memory for a packet");
		return;
	}
	l->link.events->packet(&l->link, packet, &l->rdma->payload);
	if (l->rdma->payload.sge)
		sgp_sgl_clear(&l->rdma->payload);
}

/* Returns false when it can't be done now, for want of a chunk; the list is as it was. */
static bool deliver(struct rdma_link *l, struct sgp_sgl *list)
{
	struct sgp_chunk *gathered = NULL;
	struct mqtt_packet packet;
	const int ret = parse(l->link.host, list, &packet, &gathered);

	if (ret < 0 && errno == ENOBUFS)
		return false;
	if (ret > 0)
		hand_over(l, list, &packet);
	else
		mqr_conn_fail(&l->conn, ret == 0 ? EPROTO : errno,
			      "it sent a packet that is refused");
	sgp_chunk_put(gathered);
	return true;
}

/* One that came after the owner had asked for no more, or when there was no chunk: it waits here. */
struct late {
	struct late *next;
	struct sgp_sgl list;
};

/* No chunk: nothing more is to come until what waits has been delivered. */
static void starve(struct rdma_link *l)
{
	struct link_host *host = l->link.host;

	host->stats.starved++;
	if (host->starved)
		host->starved(host);
	l->hungry = true;
	mqr_conn_pause(&l->conn, true);
	if (loop_timer_set(host->loop, &l->timer, LOOK_MS))
		mqr_conn_fail(&l->conn, ENOMEM, "no memory for a timer");
}

static void keep(struct rdma_link *l, struct sgp_sgl *list)
{
	struct late *late = calloc(1, sizeof *late);

	if (!late || need_room(&late->list, list) || sgp_sgl_move(&late->list, list)) {
		if (late)
			mqr_list_free(&late->list);
		free(late);
		mqr_conn_fail(&l->conn, ENOMEM, "no memory for a packet");
		return;
	}
	*l->last_late = late;
	l->last_late = &late->next;
}

static void drop_late(struct rdma_link *l)
{
	struct late *late = l->late;

	l->late = late->next;
	if (!l->late)
		l->last_late = &l->late;
	mqr_list_free(&late->list);
	free(late);
}

static void deliver_late(struct rdma_link *l)
{
	while (l->late && l->state == RDMA_UP && !l->paused && !l->conn.over) {
		if (!deliver(l, &l->late->list)) {
			starve(l);
			return;
		}
		drop_late(l);
	}
	if (l->hungry && !l->late) {
		l->hungry = false;
		mqr_conn_pause(&l->conn, l->paused);
		rdma_kick(l->rdma);
	}
}

static void heard(struct mqr_conn *c)
{
	struct rdma_link *l = c->arg;

	l->link.heard = loop_now(l->link.host->loop);
}

static uint64_t rdma_partial(const struct link *link)
{
	return ((const struct rdma_link *)link)->conn.in.length;
}

static void packet_came(struct mqr_conn *c, struct sgp_sgl *list)
{
	struct rdma_link *l = c->arg;

	if (l->state != RDMA_UP)
		return;
	if (l->paused || l->late) {
		keep(l, list);
	} else if (!deliver(l, list)) {
		keep(l, list);
		starve(l);
	}
}

/* ---- what goes ---- */

/* Keep what of a packet could not be posted yet. Returns 0; -1 with errno. */
static int keep_rest(struct rdma_link *l, const struct link_packet *p, uint64_t sent)
{
	if (sent < p->head_bytes) {
		l->head_bytes = p->head_bytes - (size_t)sent;
		l->head = malloc(l->head_bytes);
		if (!l->head)
			return -1;
		memcpy(l->head, (const uint8_t *)p->head + sent, l->head_bytes);
		sent = 0;
	} else {
		sent -= p->head_bytes;
	}
	if (p->payload && p->payload->length &&
	    (need_room(&l->body, p->payload) || sgp_sgl_clone(&l->body, p->payload)))
		return -1;
	l->sent = sent;
	l->unfinished = true;
	return 0;
}

static void drop_rest(struct rdma_link *l)
{
	free(l->head);
	l->head = NULL;
	l->head_bytes = 0;
	mqr_list_free(&l->body);
	l->unfinished = false;
}

static int rdma_send(struct link *link, const struct link_packet *packets, int n)
{
	struct rdma_link *l = (struct rdma_link *)link;
	int i = 0, ret = 1;

	if (l->state == RDMA_CLOSING || (l->state == RDMA_UP && l->conn.over))
		return n;
	if (l->state == RDMA_CONNECTING || l->unfinished) {
		l->blocked = n > 0;
		return 0;
	}
	while (i < n && ret == 1) {
		const struct link_packet *p = &packets[i];
		uint64_t sent = 0;

		ret = mqr_push(&l->conn, p->head, p->head_bytes, p->payload, &sent);
		if (ret == 0 && sent && keep_rest(l, p, sent)) {
			mqr_conn_fail(&l->conn, ENOMEM, "no memory for a packet");
			ret = -1;
		}
		if (ret < 0 || (ret == 0 && !sent))
			break;
		i++;
		link->host->stats.packets_out++;
		link->host->stats.bytes_out +=
			p->head_bytes + (p->payload ? p->payload->length : 0);
	}
	rdma_kick(l->rdma);
	if (ret < 0)
		return n;
	l->blocked = i < n;
	return i;
}

static void ready(struct mqr_conn *c)
{
	struct rdma_link *l = c->arg;

	if (l->unfinished) {
		if (mqr_push(c, l->head, l->head_bytes, &l->body, &l->sent) <= 0)
			return;
		drop_rest(l);
	}
	if (l->blocked && l->state == RDMA_UP) {
		l->blocked = false;
		l->link.events->writable(&l->link);
	}
}

static void starved(struct mqr_conn *c)
{
	struct link_host *host = ((struct rdma_link *)c->arg)->link.host;

	host->stats.starved++;
	if (host->starved)
		host->starved(host);
}

/* ---- pause ---- */

static void rdma_pause(struct link *link)
{
	struct rdma_link *l = (struct rdma_link *)link;

	l->paused = true;
	if (l->state == RDMA_UP)
		mqr_conn_pause(&l->conn, true);
}

static void rdma_resume(struct link *link)
{
	struct rdma_link *l = (struct rdma_link *)link;

	l->paused = false;
	if (l->state != RDMA_UP)
		return;
	mqr_conn_pause(&l->conn, l->hungry);
	loop_defer(link->host->loop, &l->task);
	rdma_kick(l->rdma);
}

/* ---- the end ---- */

static void freed(struct mqr_conn *c)
{
	free(c->arg);
}

void rdma_link_end(struct rdma_link *l, int err)
{
	struct loop *loop = l->link.host->loop;

	loop_defer_cancel(loop, &l->task);
	loop_timer_stop(loop, &l->timer);
	while (l->late)
		drop_late(l);
	drop_rest(l);
	l->link.events->closed(&l->link, l->closing ? 0 : err);
	l->rdma->links--;
	if (l->conn.ep) {
		mqr_conn_end(&l->conn, freed);
		rdma_kick(l->rdma);
		return;
	}
	if (l->id)
		rdma_destroy_id(l->id);
	free(l);
}

static void over(struct mqr_conn *c)
{
	rdma_link_end(c->arg, c->err);
}

/* Somewhat later: what waits for a chunk; or, of a close, whether the last word has gone. */
void rdma_link_look(struct loop_timer *timer)
{
	struct rdma_link *l = container_of(timer, struct rdma_link, timer);
	struct loop *loop = l->link.host->loop;

	if (!l->closing) {
		deliver_late(l);
		return;
	}
	if ((l->unfinished || !mqr_conn_drained(&l->conn)) && loop_now(loop) < l->deadline &&
	    !loop_timer_set(loop, timer, LOOK_MS))
		return;
	rdma_link_end(l, 0);
}

static void rdma_close(struct link *link, bool flush)
{
	struct rdma_link *l = (struct rdma_link *)link;

	if (l->closing)
		return;
	l->closing = true;
	l->deadline = loop_now(link->host->loop) + (flush && l->state == RDMA_UP ? FLUSH_MS : 0);
	if (l->state == RDMA_UP)
		l->state = RDMA_CLOSING;
	/* At once, but not from within this call. */
	loop_defer(link->host->loop, &l->task);
}

/* Put off to the end of the turn: the end itself, or what came while it was paused. */
void rdma_link_task(struct loop_task *task)
{
	struct rdma_link *l = container_of(task, struct rdma_link, task);

	if (l->closing && l->state == RDMA_CLOSING)
		rdma_link_look(&l->timer);
	else if (l->closing)
		rdma_link_end(l, 0);
	else
		deliver_late(l);
}

const char *link_rdma_why(const struct link *link)
{
	const struct rdma_link *l = (const struct rdma_link *)link;

	return l->conn.why[0] ? l->conn.why : l->why;
}

static void up(struct mqr_conn *c)
{
	struct rdma_link *l = c->arg;

	if (l->state == RDMA_UP && l->blocked) {
		l->blocked = false;
		l->link.events->writable(&l->link);
	}
}

const struct mqr_ops rdma_mqr_ops = {.up = up,
				     .heard = heard,
				     .packet = packet_came,
				     .ready = ready,
				     .starved = starved,
				     .over = over};

const struct link_ops rdma_link_ops = {.send = rdma_send,
				       .pause = rdma_pause,
				       .resume = rdma_resume,
				       .close = rdma_close,
				       .partial = rdma_partial};
