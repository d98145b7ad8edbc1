/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench_transfer's messages by verbs without a library: "raw" sends one registered buffer again and
 * again and receives into another one, which is the least that can be done; "ring" has a buffer for
 * each message on its way, as programs must that look at what they receive, registered once as a
 * whole; "register" registers each message before it is sent and deregisters it when it has completed,
 * as programs do whose memory comes from anywhere. (Its receives are registered once all the same.)
 *
 * All have the least of flow control: for half a depth of messages the receiver sends a credit, a
 * message of CREDIT_BYTES.
 */
#include <errno.h>
#include <stdlib.h>

#include <infiniband/verbs.h>

#include "transfer.h"

enum {
	BATCH = 16,
	CREDIT_BYTES = 8,
	CREDITS = 4, /* on the way, at most */
};

struct end {
	struct transfer_cm cm;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *out, *in;
	char *memory; /* what is sent, once or depth times; then what is received, once or for each receive */
	struct ibv_mr **each; /* [depth]: NULL, or the registrations of messages on their way */
	size_t size;
	uint32_t depth;
	bool passive, sleeps, pingpong, ring;
	uint32_t receives;                   /* posted */
	uint32_t posted, retired, signalled; /* sends; signalled: the last one that was */
	uint32_t credits, owed;
	unsigned int events; /* to be acknowledged */
	size_t received;
};

static void must(int err, const char *what)
{
	if (err) {
		errno = err < 0 ? errno : err;
		transfer_die(what);
	}
}

/* ---- queues ---- */

static void post_recv(struct end *e)
{
	const size_t slot = e->ring ? e->receives++ % (e->depth + CREDITS) : 0;
	struct ibv_sge sge = {(uintptr_t)e->in->addr + slot * e->size, (uint32_t)e->size,
			      e->in->lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;

	must(ibv_post_recv(e->cm.id->qp, &wr, &bad), "ibv_post_recv");
}

/* wr_id tells how many sends a completion retires: those since the last signalled one. */
static void post_send(struct end *e, uint32_t bytes, bool signal)
{
	const uint32_t slot = e->posted % e->depth;
	struct ibv_sge sge = {(uintptr_t)e->out->addr + (e->ring ? slot * e->size : 0), bytes,
			      e->out->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;

	if (e->each) {
		void *at = e->memory + slot * e->size;

		e->each[slot] = ibv_reg_mr(e->pd, at, e->size, 0);
		must(e->each[slot] ? 0 : -1, "ibv_reg_mr");
		sge = (struct ibv_sge){(uintptr_t)at, bytes, e->each[slot]->lkey};
		signal = true;
	}
	e->posted++;
	if (signal || e->posted - e->signalled >= e->depth / 4) {
		wr.send_flags = IBV_SEND_SIGNALED;
		wr.wr_id = e->posted - e->signalled;
		e->signalled = e->posted;
	}
	must(ibv_post_send(e->cm.id->qp, &wr, &bad), "ibv_post_send");
}

static bool has_room(const struct end *e)
{
	return e->posted - e->retired < e->depth;
}

static void retire(struct end *e, uint32_t n)
{
	for (; n; n--, e->retired++)
		if (e->each) {
			const uint32_t slot = e->retired % e->depth;

			must(ibv_dereg_mr(e->each[slot]), "ibv_dereg_mr");
			e->each[slot] = NULL;
		}
}

/* A message has come: one of the stream, or credits for it. */
static void take_message(struct end *e)
{
	post_recv(e);
	if (e->pingpong || e->passive)
		e->received++;
	else
		e->credits += e->depth / 2;
	if (e->passive && !e->pingpong && ++e->owed == e->depth / 2) {
		e->owed = 0;
		post_send(e, CREDIT_BYTES, true);
	}
}

static void sleep_for_event(struct end *e)
{
	struct ibv_cq *cq;
	void *context;

	must(ibv_get_cq_event(e->channel, &cq, &context), "ibv_get_cq_event");
	if (++e->events == 1000) {
		ibv_ack_cq_events(e->cq, e->events);
		e->events = 0;
	}
}

static void reap(struct end *e, bool idle)
{
	struct ibv_wc wc[BATCH];
	int n = ibv_poll_cq(e->cq, BATCH, wc);

	if (n == 0 && idle && e->sleeps) {
		must(ibv_req_notify_cq(e->cq, 0), "ibv_req_notify_cq");
		n = ibv_poll_cq(e->cq, BATCH, wc);
		if (n == 0) {
			sleep_for_event(e);
			n = ibv_poll_cq(e->cq, BATCH, wc);
		}
	}
	must(n < 0, "ibv_poll_cq");
	for (int i = 0; i < n; i++) {
		must(wc[i].status ? EIO : 0, ibv_wc_status_str(wc[i].status));
		if (wc[i].opcode & IBV_WC_RECV)
			take_message(e);
		else
			retire(e, (uint32_t)wc[i].wr_id);
	}
}

/* ---- the work ---- */

static void stream(void *arg, size_t n)
{
	struct end *e = arg;

	if (e->passive) {
		while (e->received < n)
			reap(e, true);
		e->received -= n;
		return;
	}
	for (size_t sent = 0; sent < n;) {
		if (e->credits && has_room(e)) {
			e->credits--;
			post_send(e, (uint32_t)e->size, ++sent == n);
			if (sent % BATCH == 0)
				reap(e, false);
		} else {
			reap(e, true);
		}
	}
	while (e->retired != e->posted)
		reap(e, true);
}

static void pingpong(void *arg, size_t n)
{
	struct end *e = arg;

	for (size_t i = 0; i < n; i++) {
		while (e->passive && !e->received)
			reap(e, true);
		while (!has_room(e))
			reap(e, true);
		post_send(e, (uint32_t)e->size, false);
		while (!e->passive && !e->received)
			reap(e, true);
		e->received--;
	}
}

/* ---- beginning and end ---- */

static void end_close(void *arg)
{
	struct end *e = arg;

	if (!e)
		return;
	if (e->cm.id && e->cm.id->qp)
		rdma_destroy_qp(e->cm.id);
	if (e->cq) {
		ibv_ack_cq_events(e->cq, e->events);
		ibv_destroy_cq(e->cq);
	}
	if (e->channel)
		ibv_destroy_comp_channel(e->channel);
	for (uint32_t i = 0; e->each && i < e->depth; i++)
		if (e->each[i])
			ibv_dereg_mr(e->each[i]);
	if (e->in)
		ibv_dereg_mr(e->in);
	if (e->out)
		ibv_dereg_mr(e->out);
	if (e->pd)
		ibv_dealloc_pd(e->pd);
	transfer_cm_end(&e->cm);
	free(e->each);
	free(e->memory);
	free(e);
}

static int make_objects(struct end *e)
{
	const size_t received = e->size * (e->ring ? e->depth + CREDITS : 1);
	const size_t sent = e->size * (e->each || e->ring ? e->depth : 1);
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC,
					.cap = {.max_send_wr = e->depth + CREDITS,
						.max_recv_wr = e->depth + CREDITS,
						.max_send_sge = 1,
						.max_recv_sge = 1}};

	e->memory = aligned_alloc(4096, (sent + received + 4095) & ~(size_t)4095);
	e->pd = ibv_alloc_pd(e->cm.id->verbs);
	if (!e->memory || !e->pd)
		return -1;
	for (size_t i = 0; i < sent + received; i += 64)
		e->memory[i] = 1;
	e->out = ibv_reg_mr(e->pd, e->memory, sent, 0);
	e->in = ibv_reg_mr(e->pd, e->memory + sent, received, IBV_ACCESS_LOCAL_WRITE);
	e->channel = ibv_create_comp_channel(e->cm.id->verbs);
	if (!e->out || !e->in || !e->channel)
		return -1;
	e->cq = ibv_create_cq(e->cm.id->verbs, 2 * (int)(e->depth + CREDITS), NULL, e->channel, 0);
	attr.send_cq = attr.recv_cq = e->cq;
	if (!e->cq || rdma_create_qp(e->cm.id, e->pd, &attr))
		return -1;
	for (uint32_t i = 0; i < e->depth + CREDITS; i++)
		post_recv(e);
	return 0;
}

static void *open_end(const struct transfer *t, bool each, bool ring)
{
	struct end *e = calloc(1, sizeof *e);
	uint8_t nothing[1] = {0};
	int err;

	if (!e)
		return NULL;
	e->size = t->size;
	e->depth = e->credits = t->depth;
	e->passive = t->passive;
	e->sleeps = t->kind == TRANSFER_SLEEPS;
	e->pingpong = t->kind == TRANSFER_PINGPONG;
	e->ring = ring;
	if (each)
		e->each = calloc(t->depth, sizeof *e->each);
	if ((!each || e->each) && !transfer_cm_begin(&e->cm, t) && !make_objects(e) &&
	    !transfer_cm_finish(&e->cm, t, nothing, sizeof nothing))
		return e;
	err = errno;
	end_close(e);
	errno = err;
	return NULL;
}

static void *open_raw(const struct transfer *t)
{
	return open_end(t, false, false);
}

static void *open_ring(const struct transfer *t)
{
	return open_end(t, false, true);
}

static void *open_register(const struct transfer *t)
{
	/* Who receives a stream has nothing to register. */
	return open_end(t, !t->passive || t->kind == TRANSFER_PINGPONG, false);
}

const struct transfer_way transfer_raw = {.name = "raw",
					  .open = open_raw,
					  .stream = stream,
					  .pingpong = pingpong,
					  .close = end_close};
const struct transfer_way transfer_ring = {.name = "ring",
					   .open = open_ring,
					   .stream = stream,
					   .pingpong = pingpong,
					   .close = end_close};
const struct transfer_way transfer_register = {.name = "register",
					       .open = open_register,
					       .stream = stream,
					       .pingpong = pingpong,
					       .close = end_close};
