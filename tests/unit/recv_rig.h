/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A rig whose side b is kept full of receives, on devices of every kind. After each step the receiving
 * pool must have live exactly what is posted and what the test holds: check_b().
 */
#ifndef RECV_RIG_H
#define RECV_RIG_H

#include "ab_rig.h"

extern const char *const personas[];
extern const int npersonas;
/* Those whose queue pairs connect without a connection manager. */
extern const char *const roce[];
extern const int nroce;

/* What b's receives are made of: set before the rig is opened; parts without a pool get b's. */
extern struct sgp_recv_part parts[3];
extern int nparts;
extern int held_of_b; /* chunks of b's pool that the test holds */

void one_part(size_t size);

/* persona NULL: the default device. */
void open_full(const char *persona, struct rig_attr attr);

struct sgp_ep_info info_of(struct rig_side *side);
int chunks_a_receive(void);

/* So many receives are posted; nothing else is out of the pool but what the test holds. */
void check_b(int posted);

/* a sends n bytes, byte i being byte + i. */
void send_bytes(size_t n, int byte);

/* wc is a message of n such bytes. */
void check_message(const struct sgp_wc *wc, size_t n, int byte);

/* One message at b; its list is kept or dropped. */
void receive(size_t n, int byte, struct sgp_sgl *keep);
void let_go(struct sgp_sgl *sgl);

/* A second endpoint on b's queue: a plain queue pair in INIT. */
struct sgp_ep *plain_ep(const struct sgp_recv_part *recv, int n, uint32_t depth);
int posted_of(struct sgp_ep *ep);
void close_plain(struct sgp_ep *ep);

#endif
