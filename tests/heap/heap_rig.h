/* SPDX-License-Identifier: BSD-2-Clause */
/* What the heap's tests share: two connected endpoints, and a heap on the first one's domain. */
#ifndef HEAP_RIG_H
#define HEAP_RIG_H

#include <stdbool.h>

#include "heap/heap.h"
#include "rig.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

extern struct rig rig;
extern struct rig_side *a, *b;
extern struct sgp_pool *pool;
extern struct sgp_heap *heap;

/* Before and after each test. The latter fails when something is left. */
void setup(void);
void teardown(void);

/* A pool for heaps only, on the first side's protection domain, and a heap in it; and their end. */
void make_heap(size_t pool_bytes, const struct sgp_heap_attr *attr);
void end_heap(void);

struct sgp_heap_stats stats_of(void);

/* An object filled with a byte. Fails the test on an error. */
void *object(size_t size, int byte);

/* Whether all n bytes are as told. */
bool all(const void *mem, int byte, size_t n);

#endif
