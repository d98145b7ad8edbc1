/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program that was compiled with another layout number than the library's: other_layout.c sees the
 * headers with that number changed, which CMakeLists.txt does.
 */
#ifndef TESTS_UNIT_OTHER_LAYOUT_H
#define TESTS_UNIT_OTHER_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>

struct sgp_chunk;
struct sgp_pool;
struct sgp_sgl;

/* The number that it was compiled with. */
int other_layout(void);

/* Its inline forms, and what lies behind those: did the thread's magazine serve? It must not. */
struct sgp_chunk *other_layout_get(struct sgp_pool *pool, size_t size);
void other_layout_put(struct sgp_chunk *chunk);
void *other_layout_addr(const struct sgp_chunk *chunk);
int other_layout_sgl_get(struct sgp_sgl *sgl, struct sgp_pool *pool, size_t size, int n);
bool other_layout_serves(struct sgp_pool *pool, size_t size);
bool other_layout_takes(struct sgp_chunk *chunk);
bool other_layout_serves_list(struct sgp_sgl *sgl, struct sgp_pool *pool, size_t size, int n);

#endif
