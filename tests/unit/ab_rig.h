/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A rig whose sides have names, a and b: one of each in a program. And operations of many slices
 * between the two, contents compared.
 */
#ifndef AB_RIG_H
#define AB_RIG_H

#include "rig.h"

extern struct rig rig;
extern struct rig_side *a, *b;
extern int context[64];

void open_rig(struct rig_attr attr);

/* The same; the peer may do anything with the pools' memory. */
void open_remote(struct rig_attr attr);

/* Nothing of the library or the device may be left. */
void close_rig(void);

struct sgp_ep_stats stats_of(struct rig_side *side);

/* n slices of `bytes` bytes each, of n chunks; slice i consists of bytes of value first + i. */
void build(struct rig_side *side, struct sgp_sgl *sgl, int n, size_t bytes, int first);

/* There they are, one after the other. */
void check_run(const char *at, int n, size_t bytes, int first);

/* One completion, a success of this operation; it stays in side->wc[0]. */
void reaped(struct rig_side *side, void *ctx, enum ibv_wc_opcode opcode);

/* Post 64 bytes of one chunk; on -1 it is put. */
int send_one(struct rig_side *side, void *ctx, int flags);

#endif
