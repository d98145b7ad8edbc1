/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the responder says. Answers that fit a frame go through a small buffer; while that is full no
 * request is taken in. One acknowledgement stands for all requests since the one before, so that a
 * burst of requests costs one.
 *
 * A READ's bytes are written from the memory they are in, in DATAs of SW_SEGMENT at most. The key is
 * looked at again whenever the socket has room: if the region has gone by then, the DATA that had
 * begun is filled up with zeros, and what follows is a refusal, so that the peer never takes them
 * for what it read.
 */
#include "softverbs/wire_recv.h"

static const uint8_t zeros[4096];

bool sw_rx_can_say(const struct sw_rx *rx)
{
	return sw_out_room(&rx->out, 8 * sizeof(struct sw_rsp));
}

void sw_rx_say(struct sw_rx *rx, enum sw_rsp_kind kind, uint32_t seq, uint8_t status)
{
	struct sw_rsp r = {.kind = (uint8_t)kind, .status = status, .seq = seq};

	/* What is said of a request stands for those before it. */
	if (kind != SW_RSP_READY && kind != SW_RSP_GONE)
		rx->ack = false;
	sw_out_put(&rx->out, &r, sizeof r);
}

enum sw_io sw_rx_flush(struct sw_rx *rx)
{
	if (rx->ack && sw_rx_can_say(rx))
		sw_rx_say(rx, SW_RSP_ACK, rx->upto, 0);
	/* Nothing comes between the parts of a DATA. */
	return rx->head_left || rx->seg_left ? SW_IO_AGAIN : sw_out_flush(rx->s.fd, &rx->out);
}

static enum sw_io atomic(struct sw_rx *rx)
{
	struct sw_rsp r = {.kind = SW_RSP_DATA, .seq = rx->req.seq, .len = sizeof(uint64_t)};
	uint64_t old, new;
	uint8_t *mem;

	if (!sw_remote(rx->qp, rx->req.rkey, rx->req.raddr, sizeof old, IBV_ACCESS_REMOTE_ATOMIC,
		       &mem))
		return sw_rx_no_access(rx);
	/* sw_lock is held: atomic to all that softverbs does in this process, not to the CPU. */
	memcpy(&old, mem, sizeof old);
	new = rx->req.op == SW_REQ_FETCH_ADD ? old + rx->req.compare_add
	      : old == rx->req.compare_add   ? rx->req.swap
					     : old;
	memcpy(mem, &new, sizeof new);
	rx->ack = false;
	sw_out_put(&rx->out, &r, sizeof r);
	sw_out_put(&rx->out, &old, sizeof old);
	return SW_IO_OK;
}

enum sw_io sw_rx_reply(struct sw_rx *rx)
{
	if (rx->req.op != SW_REQ_READ)
		return atomic(rx);
	rx->done = 0;
	rx->torn = false;
	rx->state = SW_RX_REPLY;
	return sw_rx_more(rx);
}

/* The memory from where the reading stands; false: not any more. */
static bool memory(struct sw_rx *rx, uint32_t n, struct sw_piece *p)
{
	p->n = n;
	return sw_remote(rx->qp, rx->req.rkey, rx->req.raddr + rx->done, n, IBV_ACCESS_REMOTE_READ,
			 &p->p);
}

static enum sw_io segment(struct sw_rx *rx)
{
	uint64_t left = rx->req.len - rx->done;
	uint32_t n = left < SW_SEGMENT ? (uint32_t)left : SW_SEGMENT;
	struct sw_piece p;

	/* A READ of nothing asks for the right alone. */
	if (rx->torn || !memory(rx, n, &p)) {
		rx->state = SW_RX_IDLE;
		return sw_rx_no_access(rx);
	}
	if (!left) {
		rx->state = SW_RX_IDLE;
		if (!rx->req.len) { /* else the last DATA has told */
			rx->ack = true;
			rx->upto = rx->req.seq;
		}
		return SW_IO_OK;
	}
	rx->ack = false;
	rx->head = (struct sw_rsp){.kind = SW_RSP_DATA, .seq = rx->req.seq, .len = n};
	rx->head_left = sizeof rx->head;
	rx->seg_left = n;
	return SW_IO_OK;
}

enum sw_io sw_rx_more(struct sw_rx *rx)
{
	const uint8_t *head = (const uint8_t *)&rx->head + sizeof rx->head - rx->head_left;
	struct sw_piece p;
	enum sw_io io;
	uint64_t k;

	if (!rx->head_left && !rx->seg_left)
		return segment(rx);
	if (rx->head_left == sizeof rx->head) {
		io = sw_out_flush(rx->s.fd, &rx->out);
		if (io != SW_IO_OK)
			return io;
	}
	if (rx->torn || !memory(rx, rx->seg_left, &p)) {
		rx->torn = true;
		p.p = (uint8_t *)(uintptr_t)zeros; /* only read */
		p.n = rx->seg_left < sizeof zeros ? rx->seg_left : (uint32_t)sizeof zeros;
	}
	io = sw_out_memory(rx->s.fd, head, rx->head_left, &p, 1, &k);
	if (k < rx->head_left) {
		rx->head_left -= (uint32_t)k;
		return io;
	}
	k -= rx->head_left;
	rx->head_left = 0;
	rx->seg_left -= (uint32_t)k;
	rx->done += k;
	return io;
}
