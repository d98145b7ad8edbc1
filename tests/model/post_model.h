/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The queues against a model so simple that it cannot be wrong: a table of the operations that were
 * accepted and not told of yet.
 *
 *      post_world.c  the device, its faults, the endpoints: what is made and ended
 *      post_ops.c    the random operations: which one is next
 *      post_send.c   posts, and what each may answer
 *      post_reap.c   completions, against the operations that they are of
 *      post_lists.c  what those share: lists and the stamps in them, the caller's references
 *      post_check.c  the invariant, after every step
 *
 * Everything happens in one thread, and time stands still but for one of the operations: a seed
 * gives the same run again.
 */
#ifndef POST_MODEL_H
#define POST_MODEL_H

#include "post/ep.h"
#include "post/srq.h"
#include "rnd.h"
#include "sgpool/sgpool.h"
#include "sgpool/softverbs.h"

enum {
	EPS = 8,
	OPS = 512, /* operations at once; their number is the low part of a context */
	HELD = 48, /* references of the caller */
	WCS = 8,   /* completions a poll */
	CHUNKS = 160,
	CHUNK = 256, /* bytes */
	LIST = 8,    /* holds of the longest list */
	CHAIN = 4,   /* lists posted at once */
};

#define SHARED ((void *)(uintptr_t)(EPS + 1))

/* An operation that was accepted. */
struct op {
	uint32_t serial; /* the other part of its context: no two operations have the same */
	bool out;        /* accepted, and not told of */
	bool recv, wanted, cancelled, handover, may_copy;
	int ep;
	uint8_t opcode; /* enum ibv_wc_opcode */
	int nchunks;
	struct sgp_chunk *chunk[LIST];
	uint64_t length;
	uint64_t seen; /* the step in which its slot was last found */
};

struct model_ep {
	struct sgp_ep *ep;
	bool closed;
	/* Its receives are the library's, with the endpoint's number + 1 as context; or the shared
	 * queue's, with SHARED. */
	bool ring, shared;
};

struct world {
	uint64_t rnd, step;
	unsigned long seed;
	bool faulty;  /* calls may fail, and completions may come wrong or not at all */
	bool removed; /* the device */
	bool dead;    /* the completion queue */
	bool small_cq;
	char device[16];
	uint32_t depth;
	int max_sge, flags, sig_all, eps;
	struct ibv_context *verbs;
	struct ibv_pd *pd;
	struct sgp_pool *pool;
	struct sgp_cq *cq;
	struct sgp_srq *srq; /* NULL: not in this era */
	struct sgp_wc *wc;
	struct sgp_chunk *source, *target; /* what peers READ and WRITE */
	struct model_ep ep[EPS];
	struct op op[OPS];
	uint32_t serials;
	struct sgp_chunk *held[HELD];
	int nheld;
	/* What happened, so that a run can be seen to have tried everything. */
	struct {
		unsigned long posts, told, errors, cancels, resets, closes, refused, stale, retired,
			eras, dead, removals;
	} count;
};

extern struct world w;

#define CHECK(x)                                                                                   \
	do {                                                                                       \
		if (!(x))                                                                          \
			model_fail(__FILE__, __LINE__, #x);                                        \
	} while (0)

_Noreturn void model_fail(const char *file, int line, const char *what);

static inline uint32_t pick(uint32_t n)
{
	return rnd(&w.rnd) % n;
}

static inline bool one_in(uint32_t n)
{
	return pick(n) == 0;
}

static inline void *op_context(const struct op *op)
{
	return (void *)((uintptr_t)op->serial * OPS + (uintptr_t)(op - w.op));
}

/* Whether it is the context of an endpoint's own receives: smaller than any operation's. */
static inline bool is_ring(const void *context)
{
	return (uintptr_t)context < OPS;
}

/* The operation of a context; one that is not out any more is an error of the library's. */
struct op *op_of(void *context);

/* post_world.c: an era is a world on a new device, with habits of its own. */
void era_begin(void);
void era_end(void);
void new_faults(void);
void make_endpoint(struct model_ep *e);
void start_endpoint(struct model_ep *e); /* from RESET to INIT */
void connect_endpoints(int pair);
void take_events(void);
void pass_time(uint64_t ns);

/* post_ops.c */
void random_operation(void);

/* post_send.c */
void do_recv(void);
void do_send(void);

/* post_reap.c */
void do_poll(void);
void do_forward(void);
/* Everything that has been told of comes out of the queue. */
void poll_all(void);

/* post_lists.c. A list's bytes are 8-byte stamps, all the same in one message. */

/* What is READ is full of. */
#define SOURCE 0x7373737373737373u

/* Any one that there is, or NULL; one that is not out, or NULL. */
struct model_ep *some_ep(void);
struct op *new_op(struct model_ep *e);

/* The caller's references: one is taken over, let go of; what a list holds is moved there. */
void keep_held(struct sgp_chunk *chunk);
void drop_held(int i);
void keep_list(struct sgp_sgl *sgl);

void fill(const struct sgp_sgl *sgl, uint64_t stamp);
/* The stamp that all of the list has; 0: of nothing. */
uint64_t stamp_of(const struct sgp_sgl *sgl);
/* n chunks of the pool, a slice of each, or all of it. */
bool make_list(struct sgp_sgl *sgl, int n, bool whole);

/* What an operation's list is, for when it comes back. */
void remember(struct op *op, const struct sgp_sgl *sgl);
bool is_as_remembered(const struct op *op, const struct sgp_sgl *sgl);

/* post_check.c */
void check_world(void);

#endif
