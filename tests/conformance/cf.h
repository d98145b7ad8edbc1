/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Conformance: what a verbs provider can be seen to do. A behaviour is a function that does
 * something with the public verbs API and says what it saw; the table in behaviours.h names them
 * all. The program is built twice, on softverbs and on the system's libraries, and both must say
 * the same.
 *
 * Each behaviour runs in a process of its own, so a hang or a crash of one is a result like any
 * other.
 */
#ifndef TESTS_CONFORMANCE_CF_H
#define TESTS_CONFORMANCE_CF_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "two.h"

#define CF_BUF 65536

/* Adds to what this behaviour has to say; never a newline. */
void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* An errno by name, with its sign, and "0". */
const char *cf_err(int err);
/* Says what a function returned that gives 0 or an errno, or -1 and errno. */
void say_ret(const char *what, int ret);
/* What a post returned: 0, an errno, a negative one, or -1 and errno. */
void say_post(const char *what, int ret);
void say_ptr(const char *what, const void *ptr);
void say_state(const char *what, struct ibv_qp *qp);

/* What the behaviour gets: one open device and a PD. */
struct cf {
	struct ibv_context *ctx;
	struct ibv_device_attr dev;
	struct ibv_port_attr port;
	struct ibv_pd *pd;
	struct sockaddr_in addr; /* of the device, no port */
	uint16_t ports;          /* the port that this behaviour may listen on */
	bool iwarp;
};
extern struct cf cf;

struct end {
	struct rdma_cm_id *id;
	struct ibv_pd *pd; /* cf.pd on the id's context */
	struct ibv_comp_channel *ch;
	struct ibv_cq *scq, *rcq;
	struct ibv_qp *qp;
	struct ibv_srq *srq;
	struct ibv_mr *mr;
	char *buf;
};

/* Two connected ends; what is 0 gets the value in brackets. a connected to b. */
struct pair {
	struct end a, b;
	struct rdma_event_channel *ec;
	struct rdma_cm_id *listener;
	uint32_t depth;   /* [16] */
	uint32_t max_sge; /* [2] */
	uint32_t inl;     /* [0] */
	int cqe;          /* [64] */
	int rnr_retry;    /* [7]; -1 for 0 */
	int access;       /* of the regions [all that the device has] */
	uint32_t srq_wr;  /* b uses a shared receive queue of this depth */
	bool sig_all;
	bool no_rd; /* no READs or atomics may be outstanding */
	/* private data */
	const char *hello, *answer;
};

/* The calling behaviour ends with "setup: ..." if one of these fails. */
void pair_make(struct pair *p);    /* up to rdma_create_qp on both ends */
void pair_connect(struct pair *p); /* make, and connected */
void cf_need(bool ok, const char *what);
/* All waits are this many percent of what they say (but for sleeps where there are two processes): on
 * a device that needs no time, the less the better. */
extern int cf_patience;
void cf_sleep(int ms);
struct ibv_context *cf_open(void);
/* Where there are two processes: the channel in the peer that belongs to this one, for a listener;
 * and a device open there. Else the channel itself, and cf.ctx. */
struct rdma_event_channel *cf_peer_channel(struct rdma_event_channel *ec);
struct ibv_context *cf_peer_context(void);

struct ibv_sge at(const struct end *e, size_t off, uint32_t len);
int post_send(struct end *e, uint64_t id, size_t off, uint32_t len, unsigned int flags);
int post_recv(struct end *e, uint64_t id, size_t off, uint32_t len);
int post_rdma(struct end *e, uint64_t id, enum ibv_wr_opcode op, const struct end *to, size_t off,
	      uint32_t len);
int post_wr(struct end *e, struct ibv_send_wr *wr);

/* Polls until there is one, at most ms; false: none. */
bool next_wc(struct ibv_cq *cq, struct ibv_wc *wc, int ms);
/* Says the status of the next completion, or "none". */
void say_wc(const char *what, struct ibv_cq *cq, int ms);
/* Says the ids and statuses of all that come within ms of each other. */
void say_all(const char *what, struct ibv_cq *cq, int ms);
const char *cf_status(enum ibv_wc_status status);
const char *cf_opcode(enum ibv_wc_opcode op);

/* The next connection event, at most ms; NULL: none. Acknowledge it. */
struct rdma_cm_event *next_event(struct rdma_event_channel *ec, int ms);
void say_event(const char *what, struct rdma_event_channel *ec, int ms);
/* The next asynchronous event, by name, or "none". */
void say_async(const char *what, struct ibv_context *ctx, int ms);
bool readable(int fd, int ms);

struct behaviour {
	const char *name;
	void (*run)(void);
};
extern const struct behaviour behaviours[];
extern const int num_behaviours;

#endif
