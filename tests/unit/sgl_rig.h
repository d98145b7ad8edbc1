/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * For tests of lists that nobody posts: a pool, all of whose chunks the test holds, and slices of them.
 */
#ifndef SGL_RIG_H
#define SGL_RIG_H

#include <stddef.h>
#include <stdint.h>

#include "sgpool/sgpool.h"

#define NCHUNKS 64

extern struct ibv_pd *pd;
extern struct sgp_pool *pool;
extern struct sgp_chunk *chunks[NCHUNKS]; /* all of the pool, by address */

/* A fixture: in the end the pool must be whole. */
void sgl_setup(void);
void sgl_teardown(void);

/* For qsort(3) of chunks. */
int by_address(const void *a, const void *b);

/* Append a slice, with a reference of its own. */
int add(struct sgp_sgl *sgl, int chunk, size_t offset, size_t length);

/* So long is the list, by its own account and by its SGEs', of which none is empty. */
void check_sums(const struct sgp_sgl *sgl, uint64_t length);

#endif
