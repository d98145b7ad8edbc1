/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * MQTT packets over RDMA: what goes and what comes on a connection. See mqr.h for the wire, mqr_cm.c
 * for how connections begin and end.
 *
 * Nothing here calls the owner from within a call of his: what is to be told waits in the list of
 * touched connections, which a run looks through once it has taken a batch of completions.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mqr.h"
#include "mqr_parts.h"

enum {
	SIGNAL_EVERY = 8, /* sends */
	LIST_KEEP = 64,   /* entries of a list that is kept between packets */
};

void mqr_touch(struct mqr_conn *c)
{
	if (c->is_touched)
		return;
	c->is_touched = true;
	c->next_touched = c->loop->touched;
	c->loop->touched = c;
}

void mqr_conn_fail(struct mqr_conn *c, int err, const char *fmt, ...)
{
	va_list ap;

	if (c->over)
		return;
	c->over = true;
	c->err = err;
	va_start(ap, fmt);
	vsnprintf(c->why, sizeof c->why, fmt, ap);
	va_end(ap);
	mqr_touch(c);
}

/* ---- lists that grow ---- */

int mqr_list_reserve(struct sgp_sgl *list, int sges, int chunks)
{
	struct sgp_sgl bigger;
	struct ibv_sge *sge;
	struct sgp_chunk **chunk;

	if (sges <= list->max_sge && chunks <= list->max_chunk)
		return 0;
	sges = sges > list->max_sge ? 2 * sges : list->max_sge;
	chunks = chunks > list->max_chunk ? 2 * chunks : list->max_chunk;
	sge = calloc((size_t)sges, sizeof *sge);
	chunk = calloc((size_t)chunks, sizeof(struct sgp_chunk *));
	if (!sge || !chunk) {
		free(sge);
		free(chunk);
		return -1;
	}
	sgp_sgl_init(&bigger, sge, sges, chunk, chunks);
	if (list->num_sge || list->num_chunk)
		sgp_sgl_move(&bigger, list);
	free(list->sge);
	free(list->chunk);
	*list = bigger;
	return 0;
}

void mqr_list_free(struct sgp_sgl *list)
{
	if (list->sge)
		sgp_sgl_clear(list);
	free(list->sge);
	free(list->chunk);
	*list = (struct sgp_sgl){0};
}

/* Empty, and not larger than most packets need. */
static void reset_list(struct sgp_sgl *list)
{
	sgp_sgl_clear(list);
	if (list->max_sge > LIST_KEEP || list->max_chunk > LIST_KEEP)
		mqr_list_free(list);
}

/* ---- what comes ---- */

/* The length of the packet that begins with these n bytes; 0: they are no fixed header. */
static uint64_t packet_bytes(const uint8_t *at, uint64_t n)
{
	uint64_t remaining = 0;

	for (unsigned int i = 1; i < n && i <= 4; i++) {
		remaining |= (uint64_t)(at[i] & 0x7f) << (7 * (i - 1));
		if (!(at[i] & 0x80))
			return 1 + i + remaining;
	}
	return 0;
}

/* The least of a packet in a message that is not its last, for receives of so many bytes. */
static uint64_t fragment_min(uint32_t receive)
{
	const uint64_t most = receive - SGP_FLOW_HEADER;

	return most < MQR_FRAGMENT_MIN ? most : MQR_FRAGMENT_MIN;
}

/* A fragment came. Returns NULL, or what is wrong with it. */
static const char *take_fragment(struct mqr_conn *c, struct sgp_wc *wc)
{
	const uint64_t bytes = wc->byte_len - SGP_FLOW_HEADER;
	uint64_t left;
	SGP_SGL(part, MQR_PARTS + 1);

	if (!bytes)
		return "a message without any of a packet";
	if (!c->in_bytes) {
		const uint8_t *at = (const uint8_t *)(uintptr_t)wc->sgl.sge[0].addr;

		/* A receive's first chunk has room for all of a fixed header. */
		c->in_bytes = packet_bytes(at + SGP_FLOW_HEADER, bytes);
		if (!c->in_bytes)
			return "a packet that does not begin with its fixed header";
		if (c->in_bytes > c->loop->attr.max_packet)
			return "a packet longer than is taken";
	}
	left = c->in_bytes - c->in.length;
	if (bytes > left)
		return "a message that goes beyond the end of its packet";
	if (bytes < left && bytes < fragment_min(c->flow.bytes))
		return "a packet in fragments that are too short";
	if (sgp_sgl_split(&wc->sgl, SGP_FLOW_HEADER, &part) ||
	    mqr_list_reserve(&c->in, c->in.num_sge + part.num_sge,
			     c->in.num_chunk + part.num_chunk) ||
	    sgp_sgl_move(&c->in, &part)) {
		sgp_sgl_clear(&part);
		return "no memory for a packet";
	}
	return NULL;
}

static void receive(struct mqr_conn *c, struct sgp_wc *wc)
{
	const int kind = sgp_flow_received(&c->flow, wc);
	const char *wrong;

	if (kind < 0) {
		mqr_conn_fail(c, EPROTO, "it broke the protocol: %s", sgp_errmsg());
		return;
	}
	c->loop->receives++;
	if (c->loop->ops->heard)
		c->loop->ops->heard(c);
	mqr_touch(c);
	mqr_is_up(c);
	if (kind == 0)
		return;
	wrong = take_fragment(c, wc);
	if (wrong) {
		mqr_conn_fail(c, EPROTO, "it broke the protocol: %s", wrong);
	} else if (c->in.length == c->in_bytes) {
		c->in_bytes = 0;
		c->loop->ops->packet(c, &c->in);
		/* The callee may have ended it. */
		if (c->in.sge)
			reset_list(&c->in);
	}
}

void mqr_is_up(struct mqr_conn *c)
{
	if (c->up || c->over)
		return;
	c->up = true;
	if (c->loop->ops->up)
		c->loop->ops->up(c);
}

static void complete(struct sgp_wc *wc)
{
	struct mqr_conn *c = wc->context;

	if (c->over)
		return;
	if (wc->status == IBV_WC_RETRY_EXC_ERR)
		mqr_conn_fail(c, ETIMEDOUT, "the other end does not answer any more");
	else if (wc->status == IBV_WC_WR_FLUSH_ERR)
		mqr_conn_fail(c, ECONNRESET, "the connection broke");
	else if (wc->status != IBV_WC_SUCCESS)
		mqr_conn_fail(c, ECONNRESET, "the connection broke: %s",
			      ibv_wc_status_str(wc->status));
	else if (wc->opcode == IBV_WC_RECV)
		receive(c, wc);
	else if (c->waiting || c->update_due)
		mqr_touch(c);
}

/* ---- credits ---- */

static void say_starved(struct mqr_conn *c)
{
	if (c->loop->ops->starved)
		c->loop->ops->starved(c);
}

/* Say which receives are posted again. Returns true when it has to be done again. */
static bool account(struct mqr_conn *c)
{
	const uint32_t used = c->flow.used + c->flow.used_slots;
	struct sgp_ep_info info;
	uint32_t posted;
	int ret, err;

	if (used) {
		sgp_ep_query(c->ep, &info);
		posted =
			(uint32_t)info.recv_missing < used ? used - (uint32_t)info.recv_missing : 0;
		if (c->paused && posted > c->flow.used_slots)
			posted = c->flow.used_slots;
		sgp_flow_posted(&c->flow, posted);
		if (info.recv_missing) {
			say_starved(c);
			return true;
		}
	}
	ret = sgp_flow_update(&c->flow, c, 0);
	err = errno;
	c->update_due = ret < 0;
	if (ret < 0 && err != EAGAIN && err != ENOBUFS && err != ENOTCONN)
		mqr_conn_fail(c, err, "the connection broke: %s", sgp_errmsg());
	return ret < 0 && err == ENOBUFS;
}

/* Returns true when it is to be looked at again by the next run, whatever completes. */
static bool look_after(struct mqr_conn *c)
{
	bool again = false;

	if (c->over) {
		if (!c->told) {
			c->told = true;
			c->loop->ops->over(c);
		}
		return false;
	}
	if (c->up)
		again = account(c);
	if (c->waiting && c->up && !c->over && (c->flow.credits || c->starved)) {
		if (c->starved)
			say_starved(c);
		c->waiting = c->starved = false;
		c->in_care = true;
		c->loop->ops->ready(c);
		c->in_care = false;
	}
	if (c->gathered && c->id) {
		c->gathered = false;
		/* What does not go has completions that say so. */
		(void)sgp_ep_submit(c->ep);
	}
	return again || c->starved || (c->over && !c->told);
}

void mqr_look_after_all(struct mqr_loop *loop)
{
	struct mqr_conn *todo = loop->touched;

	loop->touched = NULL;
	while (todo) {
		struct mqr_conn *c = todo;

		todo = c->next_touched;
		c->is_touched = false;
		if (c->id && look_after(c) && c->id)
			mqr_touch(c);
	}
}

int mqr_loop_run(struct mqr_loop *loop, struct mqr_device *device, int budget)
{
	bool armed = device->armed;
	int n = 0;

	for (int round = 0; !budget || round < budget; round++) {
		n = sgp_poll(device->cq, MQR_BATCH, device->wc);
		for (int i = 0; i < n; i++) {
			complete(&device->wc[i]);
			/* The array may not be used again for long. */
			sgp_sgl_clear(&device->wc[i].sgl);
		}
		mqr_look_after_all(loop);
		if (n < 0 || (n == 0 && armed))
			break;
		/* An event for what is polled anyway would be in vain: it's asked for when all is done. */
		if (n == 0) {
			n = sgp_cq_arm(device->cq) ? -1 : 1;
			if (n < 0)
				break;
			device->armed = armed = true;
		}
	}
	if (n < 0)
		mqr_device_failed(loop, device, sgp_errmsg());
	mqr_bury(loop);
	return n > 0 ? 1 : n;
}

/* ---- what goes ---- */

/*
 * Append what the list may take of body's bytes from `from` on, at most n of them: up to max_sge
 * SGEs. Returns how many; -1 with errno.
 */
static int64_t append_body(struct mqr_conn *c, struct sgp_sgl *list, int max_sge,
			   const struct sgp_sgl *body, uint64_t from, uint64_t n)
{
	uint64_t done = 0;

	/* All of it at once, as it is: the usual case. */
	if (from == 0 && n == body->length && list->num_sge + body->num_sge <= max_sge &&
	    list->num_chunk + body->num_chunk <= list->max_chunk)
		return sgp_sgl_clone(list, body) ? -1 : (int64_t)n;
	for (int i = 0; i < body->num_sge && done < n; i++) {
		const struct ibv_sge *sge = &body->sge[i];
		uint64_t take;

		if (from >= sge->length) {
			from -= sge->length;
			continue;
		}
		if (list->num_sge == max_sge)
			break;
		take = sge->length - from;
		if (take > n - done)
			take = n - done;
		if (sgp_sgl_append_addr(list, c->loop->pool, (void *)(uintptr_t)(sge->addr + from),
					take)) {
			if (errno == E2BIG)
				break;
			return -1;
		}
		done += take;
		from = 0;
	}
	return (int64_t)done;
}

/* Copy n bytes of a packet, from byte `from` on, to where there is room for them. */
static void copy_bytes(uint8_t *to, const uint8_t *head, uint64_t head_bytes,
		       const struct sgp_sgl *body, uint64_t from, uint64_t n)
{
	uint64_t at = head_bytes, take = 0;

	if (from < head_bytes) {
		take = head_bytes - from < n ? head_bytes - from : n;
		memcpy(to, head + from, take);
	}
	for (int i = 0; take < n; at += body->sge[i++].length) {
		const struct ibv_sge *sge = &body->sge[i];
		const uint64_t skip = from + take - at;
		uint64_t bytes;

		if (skip >= sge->length)
			continue;
		bytes = sge->length - skip < n - take ? sge->length - skip : n - take;
		memcpy(to + take, (const char *)(uintptr_t)sge->addr + skip, bytes);
		take += bytes;
	}
}

/* A chunk that begins with a message's header and n copied bytes. Returns 0; -1 with errno. */
static int append_copy(struct mqr_conn *c, struct sgp_sgl *list, const uint8_t *head,
		       uint64_t head_bytes, const struct sgp_sgl *body, uint64_t from, uint64_t n)
{
	struct sgp_chunk *chunk =
		sgp_pool_get(c->loop->pool, SGP_FLOW_HEADER + n, SGP_GET_RESERVED);

	if (!chunk)
		return -1;
	copy_bytes((uint8_t *)sgp_chunk_addr(chunk) + SGP_FLOW_HEADER, head, head_bytes, body, from,
		   n);
	return sgp_sgl_append(list, chunk, 0, SGP_FLOW_HEADER + n);
}

/*
 * Put what of a packet, from byte `from` on, goes into one message. Returns how many; -1. *copied: of
 * the body's bytes, those that were.
 */
static int64_t fill(struct mqr_conn *c, struct sgp_sgl *list, const uint8_t *head,
		    uint64_t head_bytes, const struct sgp_sgl *body, uint64_t from,
		    uint64_t *copied)
{
	const uint64_t total = head_bytes + (body ? body->length : 0);
	const uint64_t most = c->flow.peer_bytes - SGP_FLOW_HEADER;
	const uint64_t least = fragment_min(c->flow.peer_bytes);
	const uint64_t n = total - from < most ? total - from : most;
	const uint64_t copy = from >= head_bytes      ? 0
			      : head_bytes - from < n ? head_bytes - from
						      : n;
	const uint64_t must = n < least ? n : least;
	int64_t more;

	if (append_copy(c, list, head, head_bytes, body, from, copy))
		return -1;
	if (n == copy)
		return (int64_t)n;
	more = append_body(c, list, c->max_sge, body, from + copy - head_bytes, n - copy);
	if (more < 0 || copy + (uint64_t)more >= must)
		return more < 0 ? -1 : (int64_t)copy + more;
	/* A body in many small pieces: what has to be in one message is copied into one. */
	sgp_sgl_clear(list);
	if (append_copy(c, list, head, head_bytes, body, from, must))
		return -1;
	*copied = must - copy;
	return (int64_t)must;
}

static int post(struct mqr_conn *c, struct sgp_sgl *list)
{
	const bool signal = c->device->iwarp || c->since + 1 >= SIGNAL_EVERY;

	if (sgp_flow_sendv(&c->flow, c, list, SGP_BATCH | (signal ? IBV_SEND_SIGNALED : 0)))
		return -1;
	c->since = signal ? 0 : c->since + 1;
	c->loop->posts++;
	c->gathered = true;
	if (!c->in_care)
		mqr_touch(c);
	return 0;
}

/* A post, or getting ready for it, failed. Returns what mqr_push() is to. */
static int cannot(struct mqr_conn *c, int err)
{
	if (err != EAGAIN && err != ENOBUFS && err != ENOTCONN) {
		mqr_conn_fail(c, err, "the connection broke: %s", sgp_errmsg());
		return -1;
	}
	c->waiting = true;
	/* Nothing need complete here before there are chunks again. */
	c->starved = err == ENOBUFS;
	if (c->starved)
		mqr_touch(c);
	return 0;
}

int mqr_push(struct mqr_conn *c, const void *head, size_t head_bytes, const struct sgp_sgl *body,
	     uint64_t *sent)
{
	const uint64_t total = head_bytes + (body ? body->length : 0);
	SGP_SGL(list, MQR_SGES);

	if (c->over)
		return -1;
	while (*sent < total) {
		uint64_t copied = 0;
		int64_t n;

		if (!c->up || !c->flow.credits)
			return cannot(c, EAGAIN);
		n = fill(c, &list, head, head_bytes, body, *sent, &copied);
		if (n < 0 || post(c, &list)) {
			const int err = errno;

			sgp_sgl_clear(&list);
			return cannot(c, err);
		}
		c->loop->copied += copied;
		*sent += (uint64_t)n;
	}
	return 1;
}

bool mqr_conn_drained(struct mqr_conn *c)
{
	struct sgp_ep_info info;

	if (c->over || sgp_ep_query(c->ep, &info) || !info.send_posted)
		return true;
	sgp_ep_sync(c->ep);
	return false;
}

void mqr_conn_pause(struct mqr_conn *c, bool paused)
{
	c->paused = paused;
	mqr_touch(c);
}
