/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The process-wide small numbers of protection domains.
 *
 * A domain in use by a pool, an endpoint or a shared receive queue has an index of 0 .. 63, so that
 * "registered on this domain" is one bit of a word: a list ANDs the words of its slices, a post
 * tests one bit.
 *
 * A list keeps such words, and the keys that go with them, for as long as its owner likes. When a
 * pool gives up a domain, its index is retired, for ever: lists that were built before still have
 * the bit. A queue on a retired index, whichever domain that is then, gets no bit to test, finds the
 * keys that a list has good for nothing, and asks the regions themselves. Since a pool can't give up
 * a domain that a queue uses, a queue's answer never changes while it lives. Indices that are not
 * retired are given out first.
 *
 * Locking: one mutex inside; nothing on the data path comes here.
 */
#ifndef SGP_PD_H
#define SGP_PD_H

#include <stdint.h>

#include <infiniband/verbs.h>

#define SGP_MAX_PDS 64

/*
 * The index of pd, for a queue: one use more. Returns 0 .. 63; -1 with ENOSPC when 64 are in use.
 * Ended by sgp_pd_release().
 */
int sgp_pd_acquire(struct ibv_pd *pd);
void sgp_pd_release(int index);

/*
 * The bit that a list's keys must have to be posted as they are by a queue that has acquired this
 * index; 0: none is good enough.
 */
uint64_t sgp_pd_bit(int index);

/* The same for a pool. */
int sgp_pd_join(struct ibv_pd *pd);
void sgp_pd_leave(int index);

/* The pool that has joined is about to leave. Returns 0; -1 with EBUSY: a queue is on the domain. */
int sgp_pd_retire(int index);

/* The index of a domain that is in use; -1: it isn't. */
int sgp_pd_find(const struct ibv_pd *pd);

#endif
