/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The pool's edges, for its model: protection domains that come and go, memory that is imported. The
 * model of them is a set of domains, and for each piece of memory whether it is imported and how many
 * slices of it are held.
 */
#ifndef MODEL_POOL_EDGES_H
#define MODEL_POOL_EDGES_H

#include <stdint.h>

#include "sgpool/sgpool.h"

/* What is not so: never returns. */
void fail(int line, const char *what);
#define CHECK(x)                                                                                   \
	do {                                                                                       \
		if (!(x))                                                                          \
			fail(__LINE__, #x);                                                        \
	} while (0)

/* first is the domain that the pool is on. */
void edges_begin(struct ibv_context *verbs, struct ibv_pd *first);

/* One random operation, after which the pool must say what the model does. */
void edges_op(struct sgp_pool *pool, uint64_t *state);

/* Registrations and keys are as the model says; chunk: one that is held, or NULL. */
void edges_compare(struct sgp_pool *pool, const struct sgp_chunk *chunk);

/* Nothing is imported, and the pool is on first again, and on no other. */
void edges_end(struct sgp_pool *pool);

/* The same by several threads at once, each with a domain and memory of its own. */
struct edges_thread {
	struct ibv_pd *pd;
	struct sgp_import *import;
	char *memory;
	int on;
};
void edges_thread_begin(struct edges_thread *t, struct ibv_context *verbs);
void edges_thread_op(struct edges_thread *t, struct sgp_pool *pool, uint32_t random);
void edges_thread_end(struct edges_thread *t, struct sgp_pool *pool);

#endif
