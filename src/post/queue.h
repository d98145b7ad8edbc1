/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One side of a queue pair: a ring of slots, one for each work request that the device has, each
 * with the caller's context and the holds that keep its memory.
 *
 *      tail                     head
 *       |  done  posted  posted  |   free ...
 *
 * Two parties touch it. The poster (whoever holds the side's lock) owns head and tail: it fills the
 * slot at head, and moves tail over slots that have become free when it needs room. The poller
 * (whoever holds the completion queue's lock) only ever ends slots. What passes between them is the
 * slot's tag: the work request's wr_id while the device or the poller has the slot, 0 when the
 * poster does. It's stored with release and read with acquire, so neither needs the other's lock.
 *
 * A wr_id is never taken from elsewhere: a completion whose wr_id is not in the slot that it names
 * is stale, or a duplicate, or garbage, and touches nothing.
 *
 *      bit 63   62..48        47..32     31..0
 *      [ side | generation  | endpoint | sequence ]      slot = sequence modulo ring
 *
 * The generation is that of the endpoint's place in the completion queue's table and starts at 1,
 * so that no wr_id is 0.
 *
 * A list that needs several work requests is a group of neighbouring slots. The last one leads: it
 * counts those that have not ended (left), and is what the caller hears of.
 *
 *      [ part, to_lead 2 | part, to_lead 1 | leader, parts 3, left 3 ]
 *
 * A completion of a signalled request retires the unsignalled ones before it (law 3). It leaves
 * signalled ones alone: each of these has a completion of its own, which may be late (law 2.3).
 */
#ifndef SGP_QUEUE_H
#define SGP_QUEUE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "post/lock.h"
#include "sgpool/post.h"

#define SGP_WR_RECV       (UINT64_C(1) << 63)
#define SGP_WR_GENERATION 0x7fff /* the highest; 1 comes after it */
#define SGP_MAX_ENDPOINTS 0x10000
#define SGP_MAX_DEPTH     0x8000

/* What a completion says, kept while it waits to be handed out. */
struct sgp_done {
	enum ibv_wc_status status;
	int error;
	uint32_t vendor_err;
	uint32_t byte_len;
	uint32_t imm_data;
	unsigned int wc_flags;
};

enum sgp_slot_flags {
	SGP_SLOT_WANTED = 1 << 0,    /* a success owes the caller a completion too */
	SGP_SLOT_SIGNALLED = 1 << 1, /* the device gives a completion for it */
	SGP_SLOT_HANDOVER = 1 << 2,  /* its end hands the list back */
	SGP_SLOT_OURS = 1 << 3,      /* not the caller's: he never hears of it */
	SGP_SLOT_WINDOW = 1 << 4,    /* a bind or an invalidation of slot->window */
	SGP_SLOT_UNTAKEN = 1 << 5,   /* the device does not have it: no completion retires it */
	SGP_SLOT_CANCELLED = 1 << 6, /* of a leader: cancel.c; its end is not told */
	SGP_SLOT_SHARED = 1 << 8,    /* a shared receive queue's */
	SGP_SLOT_OBJECTS = 1 << 9,   /* the list had SGP_SGL_OBJECTS */
	SGP_SLOT_COPIED = 1 << 10,   /* it holds a copy, or nothing, instead of the list's chunks */
};

/* What went wrong with a part. */
struct sgp_failure {
	enum ibv_wc_status status;
	int error;
	uint32_t vendor_err;
};

/* Where a datagram came from, as in ibv_wc. */
struct sgp_origin {
	uint32_t src_qp;
	uint16_t slid, pkey_index;
	uint8_t sl, dlid_path_bits;
};

/*
 * parts    of a leader: slots of its group, itself included; 1: no group
 * to_lead  how many slots on the leader is
 * flags    enum sgp_slot_flags; while it's posted only UNTAKEN is added, before any request behind it
 *          is posted, and CANCELLED, under both locks
 * opcode   enum ibv_wc_opcode: all that we use are below 256
 * ended    it waits for its group, or in the pending list; the poller's
 */
#define SGP_SLOT_KIND                                                                              \
	uint16_t parts, to_lead, flags;                                                            \
	uint8_t opcode;                                                                            \
	uint8_t ended;
struct sgp_slot_kind {
	SGP_SLOT_KIND
};

/* What is used each time comes first: a cache line. */
struct sgp_slot {
	_Atomic uint64_t tag; /* wr_id, or 0: free */
	void *context;
	struct sgp_chunk **chunk; /* [max_chunk] of the side */
	__extension__ union {
		struct sgp_slot_kind kind; /* the same, to be looked at in one go */
		__extension__ struct {
			SGP_SLOT_KIND
		};
	};
	uint16_t num_chunk, num_sge;
	_Atomic int error;    /* the provider's, of a post that it may have half taken; else 0 */
	struct sgp_done done; /* the poller's */

	struct ibv_sge *sge;      /* [max_sge] */
	struct sgp_slot *next;    /* in the pending list */
	struct sgp_slot *untaken; /* next in the inbox, where a cancelled one may be besides */
	union {
		struct sgp_window *window; /* with SGP_SLOT_WINDOW */
		struct sgp_ep *ep;         /* with SGP_SLOT_SHARED: whose queue pair took it */
	};
	uint64_t pds; /* with HANDOVER: the list's, as they were */
	uint32_t access;
	uint16_t left; /* of a group's leader: slots that have not ended; the poller's */
	bool to_tell;  /* cancelled, and in the pending list for that; the poller's */
	union {
		struct sgp_failure failed; /* of a group's leader: the first one; the poller's */
		struct sgp_origin from;    /* of a datagram; the poller's */
	};
} __attribute__((aligned(64)));

_Static_assert(sizeof(struct sgp_slot) == 128, "two cache lines");

struct sgp_side {
	struct sgp_lock lock;
	uint64_t wr_base; /* side, generation, endpoint */
	uint64_t pd_bit;  /* sgp_pd_bit() of its domain: whose keys its lists have */
	uint32_t depth;   /* that the device was asked for; never more is posted */
	uint32_t mask;    /* ring - 1 */
	uint32_t head, tail;
	uint32_t unsignalled; /* posted behind the last signalled request */
	int max_sge, max_chunk;
	struct sgp_slot *slot;
	struct sgp_chunk **chunks; /* storage of all slots */
	struct ibv_sge *sges;

	/* The poller's. */
	uint32_t reaped; /* the first sequence that a later completion would retire */
};

/* Make the ring. Returns 0, or -1 with ENOMEM. */
int sgp_side_init(struct sgp_side *side, uint32_t depth, int max_sge, int max_chunk, bool unlocked);

/* Free it. The holds of its slots have gone elsewhere. */
void sgp_side_fini(struct sgp_side *side);

/* Posts that would be accepted now. The poster's. */
SGP_COLD uint32_t sgp_side_room(struct sgp_side *side);

/* Whether n posts would be. The poster's; looks at other slots only when it must. */
static inline bool sgp_side_has_room(struct sgp_side *side, uint32_t n)
{
	return side->depth - (side->head - side->tail) >= n || sgp_side_room(side) >= n;
}

static inline struct sgp_slot *sgp_side_slot(struct sgp_side *side, uint32_t seq)
{
	return &side->slot[seq & side->mask];
}

/*
 * Take the slot, which is that at head, and hand it to the poller; returns its wr_id. All that the
 * poller reads of it has been filled in. The poster's.
 */
static inline uint64_t sgp_side_offer(struct sgp_side *side, struct sgp_slot *slot)
{
	uint32_t seq = side->head;
	uint64_t wr_id = side->wr_base | seq;

	atomic_store_explicit(&slot->tag, wr_id, memory_order_release);
	side->head = seq + 1;
	return wr_id;
}

/* The sequence of a slot that is posted. */
static inline uint32_t sgp_slot_seq(const struct sgp_slot *slot)
{
	return (uint32_t)atomic_load_explicit(&slot->tag, memory_order_relaxed);
}

/* Take the slots from seq to head back: the device has none of them. The poster's. */
void sgp_side_withdraw(struct sgp_side *side, uint32_t seq);

/* Count side->unsignalled anew, when the device did not take all. The poster's. */
void sgp_side_recount(struct sgp_side *side);

/* The slot that a wr_id names, if it is the one that is posted there; else NULL. The poller's. */
static inline struct sgp_slot *sgp_side_find(struct sgp_side *side, uint64_t wr_id)
{
	struct sgp_slot *slot = sgp_side_slot(side, (uint32_t)wr_id);

	return atomic_load_explicit(&slot->tag, memory_order_acquire) == wr_id ? slot : NULL;
}

static inline uint64_t sgp_slot_word(struct sgp_slot_kind kind)
{
	uint64_t word;

	memcpy(&word, &kind, sizeof word);
	return word;
}

/*
 * Is the slot one message, or one WRITE, posted and not ended, of which nothing comes back, and nothing
 * else is unusual about it? The poller's.
 */
static inline bool sgp_slot_is_plain(const struct sgp_slot *slot)
{
	const struct sgp_slot_kind plain = {.parts = 1};
	const struct sgp_slot_kind any = {.flags = SGP_SLOT_WANTED | SGP_SLOT_SIGNALLED |
						   SGP_SLOT_COPIED,
					  .opcode = UINT8_MAX};

	_Static_assert(sizeof plain == sizeof(uint64_t), "one word");
	return (sgp_slot_word(slot->kind) & ~sgp_slot_word(any)) == sgp_slot_word(plain);
}

/* The owners of what the slot holds are told whether the device may write to it from now on. */
void sgp_slot_tell_sinks(const struct sgp_slot *slot, bool posted);

/* The slot's holds are about to leave it. */
static inline void sgp_slot_writes_no_more(const struct sgp_slot *slot)
{
	if ((slot->flags & (SGP_SLOT_HANDOVER | SGP_SLOT_OBJECTS)) ==
	    (SGP_SLOT_HANDOVER | SGP_SLOT_OBJECTS))
		sgp_slot_tell_sinks(slot, false);
}

/* Give the slot back to the poster. Its holds have gone elsewhere. The poller's. */
static inline void sgp_slot_free(struct sgp_slot *slot)
{
	atomic_store_explicit(&slot->tag, 0, memory_order_release);
}

#endif
