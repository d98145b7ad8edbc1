/* SPDX-License-Identifier: BSD-2-Clause */
/* A host's queue pair (see queue.h): capsules in, data both ways, responses out. queue_life.c has its
 * beginning and end. */
#include <errno.h>
#include <nvme/types.h>
#include <stdio.h>
#include <string.h>

#include "ctrl.h"
#include "queue.h"
#include "wire.h"

/* ---- requests ---- */

/* One thread counts, any may look. */
static void count(atomic_uint_fast64_t *counter, uint64_t n)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

static bool cid_taken(const struct queue *q, uint16_t cid)
{
	return q->cids[cid / 64] >> cid % 64 & 1;
}

static void cid_flip(struct queue *q, uint16_t cid)
{
	q->cids[cid / 64] ^= (uint64_t)1 << cid % 64;
}

static struct request *request_get(struct queue *q)
{
	struct request *r = q->free;

	if (!r)
		return NULL;
	q->free = r->next;
	q->used++;
	r->next = NULL;
	r->used = true;
	r->waiting = r->duplicate = false;
	r->status = 0;
	r->result = 0;
	r->io_pending = r->io_error = 0;
	r->started = target_stamp(q->target);
	return r;
}

static void request_free(struct request *r)
{
	struct queue *q = r->queue;

	sgp_sgl_clear(&r->data);
	sgp_sgl_clear(&r->file);
	if (!r->duplicate)
		cid_flip(q, r->cmd.cid);
	if (r->cmd.kind != CAPSULE_ASYNC_EVENT)
		q->target->in_flight--;
	r->used = false;
	r->next = q->free;
	q->free = r;
	q->used--;
}

void queue_drop(struct request *r)
{
	r->queue->target->stats.dropped++;
	request_free(r);
}

/* ---- out ---- */

static void mark_dirty(struct queue *q)
{
	if (q->dirty)
		return;
	q->dirty = true;
	q->next_dirty = q->target->dirty;
	q->target->dirty = q;
}

static void fill_response(const struct request *r, struct wire_response *out)
{
	const struct queue *q = r->queue;

	*out = (struct wire_response){
		.result = htole64(r->result),
		.sq_head = htole16(q->sq_flow ? q->sq_head : 0xffff),
		.sq_id = htole16(q->qid),
		.cid = htole16(r->cmd.cid),
		.status = htole16((uint16_t)(r->status << 1)),
	};
}

/* The data, if the response has some, and the response behind it. Returns as sgp_post(). */
static int post_response(struct request *r)
{
	struct queue *q = r->queue;
	const bool store = r->data.num_sge > 0;
	const uint64_t bytes = r->data.length;
	struct sgp_chunk *chunk = sgp_pool_get(q->target->budget.control,
					       sizeof(struct wire_response), SGP_GET_RESERVED);
	SGP_SGL(list, 1);
	struct sgp_wr send = {
		.sgl = &list,
		.opcode = IBV_WR_SEND,
		/*
		 * Each: a Read's chunks come home with it, and a tail without would take a request
		 * of its own to be retired whenever the loop sleeps.
		 */
		.flags = SGP_BATCH | IBV_SEND_SIGNALED,
	};
	struct sgp_wr write = {
		.next = &send,
		.sgl = &r->data,
		.opcode = IBV_WR_RDMA_WRITE,
		.flags = SGP_BATCH,
		.remote_addr = r->cmd.addr,
		.rkey = r->cmd.key,
	};
	int ret;

	if (!chunk) {
		errno = EAGAIN;
		return -1;
	}
	fill_response(r, sgp_chunk_addr(chunk));
	(void)sgp_sgl_append(&list, chunk, 0, sizeof(struct wire_response));
	if (r->cmd.invalidate && q->invalidates) {
		send.opcode = IBV_WR_SEND_WITH_INV;
		send.invalidate_rkey = r->cmd.key;
	}
	ret = sgp_post(q->ep, store ? &write : &send, NULL);
	/* Kernel hosts invalidate their keys themselves when the response did not. */
	if (ret && errno == EOPNOTSUPP && send.opcode == IBV_WR_SEND_WITH_INV) {
		q->invalidates = false;
		send.opcode = IBV_WR_SEND;
		ret = sgp_post(q->ep, r->data.num_sge ? &write : &send, NULL);
	}
	if (store && r->data.num_sge == 0 && bytes <= q->max_inline)
		q->target->stats.copied_bytes += bytes; /* the library sent it inline */
	if (ret) {
		const int err = errno;

		sgp_sgl_clear(&list);
		errno = err;
	}
	return ret;
}

static void account(const struct request *r)
{
	struct stats *s = &r->queue->target->stats;
	struct queue *q = r->queue;
	const struct capsule *cmd = &r->cmd;

	if (r->status) {
		s->failed++;
		return;
	}
	if (cmd->kind == CAPSULE_READ) {
		s->read_bytes += cmd->bytes;
		count(&q->moved.reads, 1);
		count(&q->moved.read_bytes, cmd->bytes);
	} else if (cmd->kind == CAPSULE_WRITE) {
		s->write_bytes += cmd->bytes;
		if (cmd->data == CAPSULE_INSIDE)
			s->inside_bytes += cmd->bytes;
		count(&q->moved.writes, 1);
		count(&q->moved.write_bytes, cmd->bytes);
	} else {
		return;
	}
	stats_latency(s, target_stamp(q->target) - r->started);
}

static int post_fetch(struct request *r)
{
	return sgp_post_readv(r->queue->ep, r, &r->data, SGP_BATCH, r->cmd.addr, r->cmd.key);
}

/* A request's data is to be fetched, or it is to be answered: begin that. Returns false: no room. */
static bool try_post(struct request *r)
{
	struct queue *q = r->queue;
	const bool fetch = r->step != NULL;

	mark_dirty(q);
	if ((fetch ? post_fetch(r) : post_response(r)) == 0) {
		if (!fetch) {
			account(r);
			request_free(r);
		}
		return true;
	}
	if (errno == EAGAIN || errno == ENOTCONN) /* a host may be faster than its ESTABLISHED */
		return false;
	queue_end(q, sgp_errmsg());
	queue_drop(r);
	return true;
}

static void post(struct request *r)
{
	struct queue *q = r->queue;

	if (q->ending) {
		queue_drop(r);
		return;
	}
	if (q->unsent || !try_post(r)) {
		r->next = NULL;
		*q->unsent_end = r;
		q->unsent_end = &r->next;
		mark_dirty(q);
	}
}

void queue_fetch(struct request *r)
{
	post(r);
}

void queue_respond(struct request *r, int status)
{
	r->status = (uint16_t)status;
	r->step = NULL;
	if (status || r->cmd.data != CAPSULE_STORE)
		sgp_sgl_clear(&r->data);
	post(r);
}

static void retry_unsent(struct queue *q)
{
	struct request *r;

	while (!q->ending && (r = q->unsent) != NULL) {
		q->unsent = r->next;
		if (!try_post(r)) {
			r->next = q->unsent;
			q->unsent = r;
			return;
		}
		if (!q->unsent)
			q->unsent_end = &q->unsent;
	}
}

void queue_submit(struct target *t)
{
	struct queue *q = t->dirty;

	t->dirty = NULL;
	while (q) {
		struct queue *next = q->next_dirty;

		q->dirty = false;
		retry_unsent(q);
		/* What the device refuses comes back as completions. */
		if (!q->ending)
			(void)sgp_ep_submit(q->ep);
		if (q->unsent)
			mark_dirty(q);
		q = next;
	}
}

/* ---- in ---- */

static void start(struct request *r)
{
	switch (r->cmd.kind) {
	case CAPSULE_READ:
	case CAPSULE_WRITE:
	case CAPSULE_COMPARE:
	case CAPSULE_FLUSH:
	case CAPSULE_ZEROES:
	case CAPSULE_DSM:
		io_start(r);
		return;
	case CAPSULE_CONNECT:
	case CAPSULE_PROPERTY_SET:
	case CAPSULE_PROPERTY_GET:
		fabrics_start(r);
		return;
	default:
		admin_start(r);
	}
}

/* The slice of the capsule that is the command's data: what came behind the first chunk. */
static void take_inside(struct request *r, const struct sgp_sgl *message)
{
	struct sgp_chunk *chunk = message->chunk[1];

	sgp_chunk_ref(chunk);
	(void)sgp_sgl_append(&r->data, chunk, r->cmd.offset, r->cmd.length);
}

static void receive(struct queue *q, const struct sgp_wc *wc)
{
	struct target *t = q->target;
	struct request *r = request_get(q);
	int status;

	if (!r) {
		queue_end(q, "the host sent more commands than its queue has entries");
		return;
	}
	q->limits.enabled =
		q->ctrl && atomic_load_explicit(&q->ctrl->enabled, memory_order_relaxed);
	status = capsule_check(&q->limits, sgp_chunk_addr(wc->sgl.chunk[0]), wc->byte_len, &r->cmd);
	t->in_flight += r->cmd.kind != CAPSULE_ASYNC_EVENT;
	q->sq_head = (uint16_t)((q->sq_head + 1) % q->sq_size);
	r->duplicate = cid_taken(q, r->cmd.cid);
	if (!r->duplicate)
		cid_flip(q, r->cmd.cid);
	if (status < 0) {
		queue_end(q, "the host sent less than a command");
		queue_drop(r);
		return;
	}
	if (r->duplicate && !status)
		status = NVME_SC_CMDID_CONFLICT | NVME_SC_DNR;
	if (status) {
		t->stats.refused++;
		queue_respond(r, status);
		return;
	}
	t->stats.commands[r->cmd.kind]++;
	if (r->cmd.data == CAPSULE_INSIDE)
		take_inside(r, &wc->sgl);
	start(r);
}

/* What is flushed says only that something else has ended the connection: the host, as it may. */
static const char *why(const struct sgp_wc *wc)
{
	return wc->status == IBV_WC_WR_FLUSH_ERR ? NULL : ibv_wc_status_str(wc->status);
}

static void fetched(struct request *r, struct sgp_wc *wc)
{
	if (wc->status != IBV_WC_SUCCESS) {
		queue_end(r->queue, why(wc));
		queue_drop(r);
		return;
	}
	if (r->queue->ending) {
		queue_drop(r);
		return;
	}
	(void)sgp_sgl_move(&r->data, &wc->sgl);
	r->step(r);
}

void queue_complete(struct target *t, struct sgp_wc *wc)
{
	const struct ibv_qp *qp = sgp_ep_qp(wc->ep);
	struct queue *q = qp ? qp->qp_context : NULL;

	if (wc->opcode == IBV_WC_RDMA_READ) {
		fetched(wc->context, wc);
	} else if (q && !q->ending) {
		if (wc->status != IBV_WC_SUCCESS)
			queue_end(q, why(wc));
		else if (wc->opcode == IBV_WC_RECV && !t->stopping) /* else its host asks again */
			receive(q, wc);
	}
}
