/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One pool, on the protection domains of two devices, and endpoints that are connected on either; for
 * tests of what keys a list goes out under.
 */
#ifndef PDS_RIG_H
#define PDS_RIG_H

#include "rig.h"

#define PAGE 4096

extern struct sgp_pool *pool; /* its first domain is one that no endpoint is on */
extern struct ibv_context *verbs;
extern int context;
extern const char *const addrs[]; /* of the two devices */

/* A fixture: the devices and the pool. In the end nothing of it may be left or held. */
void pds_setup(void);
void pds_teardown(void);

/* Regions of two chunks: lists have neighbours that join and neighbours that can't. */
void make_pool(struct ibv_pd *pd);

/* Two endpoints on one of the devices. */
void open_on(struct rig *rig, int device);

/* n whole chunks as a list, filled with bytes that tell place and number. */
void fill_list(struct sgp_sgl *sgl, int n, int seed);

/* The list is the bytes of n such chunks, but for the first ones, and no more. */
void expect_bytes(const struct sgp_sgl *sgl, uint64_t from, int n, int seed);

/* All SGEs carry the keys of the side's own domain. */
void expect_keys_of(const struct sgp_sgl *sgl, const struct rig_side *side);

/* A message of n chunks from one side to the other; the received list stays in to->wc[0]. */
void carry(struct rig_side *from, struct rig_side *to, int n, int seed);

#endif
