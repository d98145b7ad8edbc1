/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory beside the pool's, of which there is a fixed amount: what describes messages, topics,
 * subscriptions and sessions. Thread-safe.
 */
#ifndef BROKER_BUDGET_H
#define BROKER_BUDGET_H

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

struct budget {
	atomic_size_t used;
	size_t limit;
};

/* As calloc(3) of one; NULL with ENOMEM also when the budget is used up. */
static inline void *budget_alloc(struct budget *budget, size_t bytes)
{
	const size_t used = atomic_fetch_add_explicit(&budget->used, bytes, memory_order_relaxed);
	void *p = bytes <= budget->limit && used <= budget->limit - bytes ? calloc(1, bytes) : NULL;

	if (!p) {
		atomic_fetch_sub_explicit(&budget->used, bytes, memory_order_relaxed);
		errno = ENOMEM;
	}
	return p;
}

/* bytes: as they were asked for. NULL does nothing. */
static inline void budget_free(struct budget *budget, void *p, size_t bytes)
{
	if (!p)
		return;
	free(p);
	atomic_fetch_sub_explicit(&budget->used, bytes, memory_order_relaxed);
}

#endif
