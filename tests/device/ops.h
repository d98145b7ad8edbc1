/* SPDX-License-Identifier: BSD-2-Clause */
/* What ops.c, which runs the operations, and ops_table.c, which has them, know of each other. */
#ifndef OPS_H
#define OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sgpool/sgpool.h>

#define OPS_MS     30000 /* for what must come, on a slow machine */
#define OPS_TEXT   256
#define OPS_SGES   128                 /* of the longest list */
#define OPS_SHARED ((9u << 20) + 4096) /* more than a message may have on rxe */
#define OPS_INLINE 64
#define OPS_EMPTY  0xee /* what a list without a stream is filled with */

/* What the server tells the client before each operation. */
struct ops_told {
	uint64_t addr, secret_addr;
	uint32_t rkey, secret_rkey, window_rkey;
	uint32_t ud_qpn;
	union ibv_gid ud_gid;
};

struct side {
	bool server, iwarp;
	int socket;
	int last; /* 0: all operations, ending with number 1 of those that break the connection */
	int max_sge; /* of a work request */
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct sgp_pool *local;
	struct sgp_cq *cq;
	struct sgp_wc *wc; /* the completion that reap() found */
	struct sgp_ep *ep;
	struct ops_told told;
	/* The server's: what the client may reach, and what it may not. */
	struct sgp_pool *shared_pool, *secret_pool;
	struct sgp_chunk *shared, *secret;
	struct sgp_window *window;
	struct sgp_ep *ud;
};

/*
 * An operation: prepare and check are done by the server, act by the client. Each returns NULL, or
 * what is wrong.
 */
struct op {
	const char *name;
	const char *(*prepare)(struct side *s, const struct op *op);
	const char *(*act)(struct side *s, const struct op *op);
	const char *(*check)(struct side *s, const struct op *op);
	enum {
		OPS_ANY,
		OPS_IB,
		OPS_IWARP
	} on; /* the devices that do it */
	enum ibv_wr_opcode opcode;
	int sges;      /* of the client's list; LIMIT: what a request takes; OVER: more */
	uint32_t size; /* bytes of each */
	int flags;     /* of the post */
	int recv_sges; /* of the server's receive */
	uint32_t recv_size;
	int last; /* the connection does not survive it: which of these that a run ends with */
};
extern const struct op ops[]; /* ends with a name of NULL */

/* The sentence as printf(3) makes it; stands until the next one. */
const char *wrong(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

void tell(const struct side *s, const void *data, size_t n);
void hear(const struct side *s, void *data, size_t n);

/* Byte i of the stream that seed makes; n of them from byte `from` on: written, or compared. */
uint8_t byte_at(unsigned int seed, size_t i);
void fill(void *to, size_t n, unsigned int seed, size_t from);
const char *compare(const void *with, size_t n, unsigned int seed, size_t from);

/* The list has n bytes, and they are the stream's first ones. */
const char *compare_list(const struct sgp_sgl *sgl, size_t n, unsigned int seed);

/* A list of n chunks' first size bytes, with the stream of seed in it unless that is 0. */
void get_list(struct side *s, struct sgp_sgl *sgl, int n, size_t size, unsigned int seed);

/* The next completion, which must be a good one of this opcode, on ep, with s as its context. */
const char *reap(struct side *s, struct sgp_ep *ep, enum ibv_wc_opcode opcode);

/* Post a receive of n chunks of size bytes, with s as its context. */
const char *post_receive(struct side *s, struct sgp_ep *ep, int n, size_t size);

/* So many chunks of the local pool are out, after a while at most, and no completion comes. */
const char *all_home(struct side *s, uint64_t live);

/* Leave a step with what is wrong, if anything. */
#define TRY(what)                                                                                  \
	do {                                                                                       \
		const char *bad_ = (what);                                                         \
		if (bad_)                                                                          \
			return bad_;                                                               \
	} while (0)

/* ops_table.c: what its steps and the others share. */
unsigned int ops_seed(const struct op *op);
size_t ops_bytes(const struct side *s, const struct op *op);
enum ibv_wc_opcode ops_wc_opcode(enum ibv_wr_opcode opcode);
const char *ops_prepare(struct side *s, const struct op *op);
const char *ops_check(struct side *s, const struct op *op);
const char *post(struct side *s, struct sgp_wr *wr);

/*
 * A message behind a WRITE: it arrives when the WRITE's bytes are there. (The completion of a WRITE
 * says so on InfiniBand only.)
 */
const char *send_done(struct side *s);
const char *receive_done(struct side *s);

/* ops_special.c: steps. */
const char *act_foreign(struct side *s, const struct op *op);
const char *act_unsignalled(struct side *s, const struct op *op);
const char *check_unsignalled(struct side *s, const struct op *op);
const char *prepare_batch(struct side *s, const struct op *op);
const char *act_batch(struct side *s, const struct op *op);
const char *check_batch(struct side *s, const struct op *op);
const char *act_chain(struct side *s, const struct op *op);
const char *prepare_atomic(struct side *s, const struct op *op);
const char *act_atomic(struct side *s, const struct op *op);
const char *check_atomic(struct side *s, const struct op *op);
const char *act_lacking(struct side *s, const struct op *op);
const char *prepare_window(struct side *s, const struct op *op);
const char *act_window(struct side *s, const struct op *op);
const char *check_window(struct side *s, const struct op *op);
const char *check_invalidated(struct side *s, const struct op *op);
const char *prepare_window_only(struct side *s, const struct op *op);
const char *act_read_window(struct side *s, const struct op *op);
const char *prepare_after(struct side *s, const struct op *op);
const char *act_after(struct side *s, const struct op *op);
const char *check_untouched(struct side *s, const struct op *op);
const char *prepare_ud(struct side *s, const struct op *op);
const char *act_ud(struct side *s, const struct op *op);
const char *check_ud(struct side *s, const struct op *op);
const char *prepare_refused(struct side *s, const struct op *op);
const char *act_refused(struct side *s, const struct op *op);
const char *act_refused_write(struct side *s, const struct op *op);
const char *check_refused(struct side *s, const struct op *op);

#endif
