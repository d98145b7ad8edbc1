/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Flow control: see sgpool/flow.h for the rules, the wire format, and why nobody is ever stuck.
 *
 * Where this end's depth + SGP_FLOW_RESERVE receives are, which is the invariant here:
 *
 *      peer_credits --message--> used -----posted----> owed ------word-----> peer_credits
 *      peer_slots ---update----> used_slots -posted--> owed_slots --word---> peer_slots
 *
 * The sums of both lines are depth and SGP_FLOW_RESERVE, always. It knows the posts' public face
 * (and whose memory a list begins in), and no lock: the caller serialises.
 */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "pool/chunk.h"
#include "pool/errmsg.h"
#include "post/bytes.h"
#include "sgpool/sgpool.h"

#define MAGIC   UINT32_C(0x53475046) /* "SGPF" */
#define VERSION 1

#define WORD_UPDATE  (UINT32_C(1) << 31)
#define WORD_LAST    (UINT32_C(1) << 30)
#define WORD_SLOTS   16 /* where they begin */
#define WORD_UNUSED  UINT32_C(0x3ffc0000)
#define WORD_CREDITS UINT32_C(0xffff)

/* Bytes that every message has. */
static uint32_t header_bytes(uint32_t flags)
{
	return flags & SGP_FLOW_IMMEDIATE ? 0 : SGP_FLOW_HEADER;
}

static bool bad_numbers(uint32_t flags, uint32_t depth, uint32_t bytes)
{
	return depth == 0 || depth > SGP_FLOW_DEPTH_MAX || bytes <= header_bytes(flags) ||
	       bytes > INT32_MAX;
}

/* ---- the beginning ---- */

int sgp_flow_init(struct sgp_flow *flow, const struct sgp_flow_attr *attr)
{
	struct sgp_ep_info info;

	if (!flow || !attr || attr->comp_mask || attr->flags & ~(uint32_t)SGP_FLOW_IMMEDIATE)
		return sgp_fail(EINVAL, "flow: unknown flags, or no attributes");
	if (bad_numbers(attr->flags, attr->depth, attr->bytes))
		return sgp_fail(EINVAL, "flow: a depth of 1 to %d, and some bytes a message",
				SGP_FLOW_DEPTH_MAX);
	if (!attr->pool && !(attr->flags & SGP_FLOW_IMMEDIATE))
		return sgp_fail(EINVAL, "flow: updates need a pool for their header");
	if (sgp_ep_query(attr->ep, &info))
		return -1;
	if (!sgp_ep_qp(attr->ep))
		return sgp_fail(EINVAL, "flow: the endpoint is closed");
	if ((uint64_t)info.recv_room + (uint64_t)info.recv_posted + (uint64_t)info.recv_missing <
	    (uint64_t)attr->depth + SGP_FLOW_RESERVE)
		return sgp_fail(EINVAL, "flow: for a depth of %u the receive queue must take %u",
				attr->depth, attr->depth + SGP_FLOW_RESERVE);
	if (attr->flags & SGP_FLOW_IMMEDIATE &&
	    sgp_ep_qp(attr->ep)->context->device->transport_type == IBV_TRANSPORT_IWARP)
		return sgp_fail(EOPNOTSUPP, "flow: iWARP has no immediates");
	*flow = (struct sgp_flow){.ep = attr->ep,
				  .pool = attr->pool,
				  .flags = attr->flags,
				  .depth = attr->depth,
				  .bytes = attr->bytes,
				  .peer_credits = attr->depth,
				  .peer_slots = SGP_FLOW_RESERVE};
	return 0;
}

void sgp_flow_hello(const struct sgp_flow *flow, uint8_t bytes[SGP_FLOW_HELLO])
{
	put32(bytes, MAGIC);
	put16(bytes + 4, VERSION);
	put16(bytes + 6, (uint16_t)flow->flags);
	put32(bytes + 8, flow->depth);
	put32(bytes + 12, flow->bytes);
}

int sgp_flow_greet(struct sgp_flow *flow, const void *bytes, size_t n)
{
	const uint8_t *at = bytes;

	if (!at || n < SGP_FLOW_HELLO || get32(at) != MAGIC)
		return sgp_fail(EPROTO, "flow: the peer's private data is no hello");
	if (get16(at + 4) != VERSION || get16(at + 6) != flow->flags)
		return sgp_fail(EPROTO, "flow: the peer does it in another way");
	if (bad_numbers(flow->flags, get32(at + 8), get32(at + 12)))
		return sgp_fail(EPROTO, "flow: the peer's numbers are out of range");
	flow->peer_depth = flow->credits = get32(at + 8);
	flow->peer_bytes = get32(at + 12);
	flow->slots = SGP_FLOW_RESERVE;
	return 0;
}

/* ---- what goes ---- */

/* The word that tells all that is owed. */
static uint32_t make_word(const struct sgp_flow *f, uint32_t kind)
{
	return kind | f->owed_slots << WORD_SLOTS | f->owed;
}

/* It went. */
static void settle(struct sgp_flow *f, uint32_t kind, bool takes_slot)
{
	f->peer_credits += f->owed;
	f->peer_slots += f->owed_slots;
	f->owed = f->owed_slots = 0;
	if (takes_slot)
		f->slots--;
	else
		f->credits--;
	f->seq++;
	f->ended |= (kind & WORD_LAST) != 0;
}

/* Post a list under the word. */
static int post(struct sgp_flow *f, void *context, struct sgp_sgl *sgl, int flags, uint32_t word)
{
	struct sgp_wr wr = {.context = context, .sgl = sgl, .opcode = IBV_WR_SEND, .flags = flags};

	if (f->flags & SGP_FLOW_IMMEDIATE) {
		wr.opcode = IBV_WR_SEND_WITH_IMM;
		wr.imm_data = htobe32(word);
	} else {
		uint8_t *at = (uint8_t *)(uintptr_t)sgl->sge[0].addr;

		put32(at, word);
		put32(at + 4, f->seq);
	}
	return sgp_post(f->ep, &wr, NULL);
}

/* May the header be written where the list begins? */
static bool has_room(const struct sgp_sgl *sgl)
{
	const uint32_t needed = SGP_ACCESS_CPU | IBV_ACCESS_LOCAL_WRITE;

	if (!sgl->num_sge || sgl->sge[0].length < SGP_FLOW_HEADER || sgl->flags & SGP_SGL_FOREIGN)
		return false;
	for (int i = 0; i < sgl->num_chunk; i++) {
		const struct sgp_chunk *chunk = sgl->chunk[i];

		if (sgl->sge[0].addr - (uintptr_t)chunk->addr < chunk->size)
			return (sgp_chunk_access(chunk) & needed) == needed;
	}
	return false;
}

int sgp_flow_sendv(struct sgp_flow *flow, void *context, struct sgp_sgl *sgl, int flags)
{
	const uint32_t kind = flags & SGP_FLOW_LAST ? WORD_LAST : 0;
	struct sgp_flow *f = flow;
	bool takes_slot;

	if (!f || !sgl)
		return sgp_fail(EINVAL, "flow: a list is needed");
	if (!f->peer_depth)
		return sgp_fail(ENOTCONN, "flow: greet the peer first");
	if (f->ended)
		return sgp_fail(ESHUTDOWN, "flow: the last message has been sent");
	if (!(f->flags & SGP_FLOW_IMMEDIATE) && !has_room(sgl))
		return sgp_fail(EINVAL,
				"flow: the list's first slice has no room for the header, or "
				"can't be written");
	if (sgl->length > f->peer_bytes)
		return sgp_fail(EMSGSIZE, "flow: the peer's receives take %u bytes", f->peer_bytes);
	takes_slot = kind && !f->credits && f->slots;
	if (f->used_slots)
		return sgp_fail(EAGAIN, "flow: post the update's receive again first");
	if (!f->credits && !takes_slot)
		return sgp_fail(EAGAIN,
				"flow: the peer has no receive for it now: reap, try again");
	if (post(f, context, sgl, flags & ~SGP_FLOW_LAST, make_word(f, kind)))
		return -1;
	settle(f, kind, takes_slot);
	return 0;
}

/* May the peer run dry before a message of ours tells it of the receives? */
static bool update_due(const struct sgp_flow *f)
{
	return f->owed && f->peer_credits <= f->depth / 2;
}

int sgp_flow_update(struct sgp_flow *flow, void *context, int flags)
{
	const bool alive = flags & SGP_FLOW_ALIVE;
	struct sgp_flow *f = flow;
	struct sgp_chunk *chunk;
	SGP_SGL(sgl, 1);

	if (!f || flags & ~(IBV_SEND_SIGNALED | SGP_FLOW_ALIVE))
		return sgp_fail(EINVAL, "flow: unknown flags of an update");
	if (!f->peer_depth || f->ended || f->used_slots || !(alive || update_due(f)))
		return 0;
	if (f->slots < (f->owed ? 1 : 2))
		return 0;
	if (!(f->flags & SGP_FLOW_IMMEDIATE)) {
		chunk = sgp_pool_get(f->pool, SGP_FLOW_HEADER, SGP_GET_RESERVED);
		if (!chunk)
			return -1;
		if (sgp_sgl_append(&sgl, chunk, 0, SGP_FLOW_HEADER)) {
			sgp_chunk_put(chunk);
			return -1;
		}
	}
	if (post(f, context, &sgl, flags & IBV_SEND_SIGNALED, make_word(f, WORD_UPDATE))) {
		const int err = errno;

		sgp_sgl_clear(&sgl);
		errno = err;
		return -1;
	}
	settle(f, WORD_UPDATE, true);
	return 1;
}

/* ---- what comes ---- */

/* The completion's word, and its sequence where there is one. Returns 0; -1 with errno. */
static int read_header(const struct sgp_flow *f, const struct sgp_wc *wc, uint32_t *word)
{
	const uint8_t *at;

	if (f->flags & SGP_FLOW_IMMEDIATE) {
		if (!(wc->wc_flags & IBV_WC_WITH_IMM))
			return sgp_fail(EPROTO, "flow: a message without an immediate");
		*word = be32toh(wc->imm_data);
		return 0;
	}
	if (wc->byte_len < SGP_FLOW_HEADER)
		return sgp_fail(EPROTO, "flow: a message shorter than its header");
	if (!wc->sgl.num_sge || wc->sgl.sge[0].length < SGP_FLOW_HEADER)
		return sgp_fail(EINVAL, "flow: a receive's first slice must take the header");
	at = (const uint8_t *)(uintptr_t)wc->sgl.sge[0].addr;
	*word = get32(at);
	if (get32(at + 4) != f->peer_seq)
		return sgp_fail(EPROTO, "flow: a message out of order");
	return 0;
}

/* May the peer say this now? Returns 0; -1 with errno. */
static int check_word(const struct sgp_flow *f, uint32_t word, uint64_t byte_len)
{
	const uint32_t slots = word >> WORD_SLOTS & 3, credits = word & WORD_CREDITS;

	if (f->peer_ended)
		return sgp_fail(EPROTO, "flow: a message after the last one");
	if (word & WORD_UNUSED || (word & WORD_UPDATE && word & WORD_LAST))
		return sgp_fail(EPROTO, "flow: a message of an unknown kind");
	/* After our last message grants are of no use; and where that used an update's receive, the peer
	 * may count it among the messages', as a grant was on its way then. */
	if (!f->ended &&
	    (credits > f->peer_depth - f->credits || slots > SGP_FLOW_RESERVE - f->slots))
		return sgp_fail(EPROTO, "flow: the peer grants more than it has receives");
	if (word & WORD_UPDATE && byte_len != header_bytes(f->flags))
		return sgp_fail(EPROTO, "flow: an update with something in it");
	if (word & WORD_UPDATE ? !f->peer_slots
			       : !f->peer_credits && !(word & WORD_LAST && f->peer_slots))
		return sgp_fail(EPROTO, "flow: the peer sends more than it was granted");
	return 0;
}

int sgp_flow_received(struct sgp_flow *flow, const struct sgp_wc *wc)
{
	struct sgp_flow *f = flow;
	uint32_t word;

	if (!f || !wc || wc->status != IBV_WC_SUCCESS || !(wc->opcode & IBV_WC_RECV))
		return sgp_fail(EINVAL, "flow: this is no receive that went well");
	if (!f->peer_depth)
		return sgp_fail(ENOTCONN, "flow: greet the peer first");
	if (read_header(f, wc, &word) || check_word(f, word, wc->byte_len))
		return -1;
	if (!f->ended) {
		f->credits += word & WORD_CREDITS;
		f->slots += word >> WORD_SLOTS & 3;
	}
	f->peer_seq++;
	f->peer_ended = (word & WORD_LAST) != 0;
	if (word & WORD_UPDATE || !f->peer_credits) {
		f->peer_slots--;
		f->used_slots++;
	} else {
		f->peer_credits--;
		f->used++;
	}
	return (word & WORD_UPDATE) == 0;
}

int sgp_flow_posted(struct sgp_flow *flow, uint32_t n)
{
	struct sgp_flow *f = flow;
	uint32_t slots;

	if (!f || n > f->used + f->used_slots)
		return sgp_fail(EINVAL, "flow: fewer receives were used up than were posted again");
	slots = n < f->used_slots ? n : f->used_slots;
	f->used_slots -= slots;
	f->owed_slots += slots;
	f->used -= n - slots;
	f->owed += n - slots;
	return 0;
}
