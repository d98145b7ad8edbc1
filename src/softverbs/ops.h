/* SPDX-License-Identifier: BSD-2-Clause */
/* What the engine's files share: one request done, the memory behind an rkey, a receive taken. */
#ifndef SOFTVERBS_OPS_H
#define SOFTVERBS_OPS_H

#include "softverbs/sw.h"

#define SW_MAX_SGE 256
#define SW_WAITING 0x10000 /* not a status: it can't be done yet */
#define SW_GRH     40u

/* A memory window; type 2 ones are bound to one QP, and to nothing before. */
struct sw_mw {
	struct ibv_mw ibv;
	struct sw_pd *pd;
	struct sw_mr *mr; /* NULL: not bound */
	struct sw_qp *qp; /* type 2: who may use it */
	uint64_t addr, len;
	unsigned int access;
	uint32_t index;
};

struct sw_ah {
	struct ibv_ah ibv;
	struct sw_pd *pd;
	struct ibv_ah_attr attr;
};

/* ops.c: does the request in slot `at`. A status, or SW_WAITING after a sw_wait_*. */
int sw_op(struct sw_qp *qp, uint32_t at, uint32_t *byte_len);
/* The local memory that a READ or an atomic fills. */
enum ibv_wc_status sw_sink(struct sw_qp *qp, uint32_t at, struct sw_piece *out, uint32_t *n,
			   uint64_t *len);
/* READs and atomics. */
bool sw_reads(enum ibv_wr_opcode op);
/* The event at the responder's end of a request that is refused; rkey: the one that was wrong. */
void sw_refusal(struct sw_qp *peer, enum ibv_wc_status status, uint32_t rkey);
/* ud.c: the same for datagrams. */
int sw_op_ud(struct sw_qp *qp, uint32_t at);
void sw_grh_fill(uint8_t grh[SW_GRH], const union ibv_gid *src, const union ibv_gid *dst,
		 const struct ibv_global_route *r, uint32_t len); /* ah.c */
/* mw.c */
int sw_op_bind(struct sw_qp *qp, struct sw_swqe *w);
int sw_op_inv(struct sw_qp *qp, uint32_t rkey);
bool sw_mw_invalidate(struct sw_qp *qp, uint32_t rkey);
void sw_mw_forget_qp(struct sw_qp *qp);
/* The memory that a peer names, for `access`; false: it may not. */
bool sw_rkey_known(const struct sw_device *dev, uint32_t rkey);
bool sw_remote(struct sw_qp *qp, uint32_t rkey, uint64_t addr, uint64_t len, unsigned int access,
	       uint8_t **at);

/* engine.c */
void sw_wait_rnr(struct sw_qp *qp, uint8_t timer);
void sw_wait_peer(struct sw_qp *qp);
void sw_wait_forever(struct sw_qp *qp);
bool sw_link_up(const struct sw_qp *qp);
struct sw_qp *sw_peer(const struct sw_qp *qp);

/* receive.c: a receive, out of the QP's queue or its SRQ. */
struct sw_taken {
	const struct sw_rwqe *wqe;
	const struct ibv_sge *sge;
	struct sw_pd *pd;
	uint32_t upto;
};
bool sw_can_take(const struct sw_qp *qp);
bool sw_take(struct sw_qp *qp, struct sw_taken *t);
/* Puts bytes into it. SUCCESS, LOC_PROT_ERR or LOC_LEN_ERR; nothing was moved then. */
enum ibv_wc_status sw_scatter(struct sw_qp *qp, const struct sw_taken *t,
			      const struct sw_piece *src, uint32_t nsrc, uint64_t len);
/* Its completion, with a status other than success also the QP's end. */
enum ibv_wc_status sw_local_status(const struct sw_qp *qp, enum ibv_wc_status st);
void sw_receive_failed(struct sw_qp *qp, const struct sw_taken *t, enum ibv_wc_status status);
enum ibv_wc_status sw_gather(struct sw_qp *qp, uint32_t at, struct sw_piece *out, uint32_t *n);
void sw_copy(struct sw_piece *dst, const struct sw_piece *src, uint32_t nsrc);

/* ---- late.c ---- */

/*
 * A WRITE of len bytes comes to the QP, whose last bytes are to be late; nothing else of that kind is
 * there. *dst is where it goes, and room for two pieces: what comes is to go into these, so many.
 */
uint32_t sw_late_begin(struct sw_qp *qp, uint32_t rkey, uint64_t raddr, uint32_t len,
		       struct sw_piece *dst);
/* The same again of one that has begun (qp->late is not NULL). */
uint32_t sw_late_pieces(const struct sw_qp *qp, struct sw_piece *dst, uint32_t len);
/* All of it is here: its last bytes wait for so long. */
void sw_late_wait(struct sw_qp *qp, uint32_t ms);
/* They go where they belong: behind them comes something; or the QP ends. One that is not all here
 * is forgotten. False: they were refused, which has ended the QP. */
bool sw_late_place(struct sw_qp *qp);
void sw_late_end(struct sw_qp *qp);
/* The writer ends: those that its peer in this process has of it. */
void sw_late_sent(const struct sw_qp *qp);
/* Those whose time has come. Cheap when there are none. */
void sw_late_due(void);
/* Until the next one, or less: ms; -1: none. */
int sw_late_ms(void);

#endif
