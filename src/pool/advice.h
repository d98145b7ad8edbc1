/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why something can't be had, and what a person can do about it: the one place of this knowledge, for
 * the library's sentences and for `sgpool doctor`. It looks at the system and changes nothing.
 *
 * Each function writes what is the matter and what mends it as one sentence each, without the last
 * full stop of the former: "what. mend".
 */
#ifndef SGP_ADVICE_H
#define SGP_ADVICE_H

#include <infiniband/verbs.h>

#include "pool/limits.h"

struct sgp_advice {
	char what[320];
	char mend[384];
};

/* Too little memory may be locked for bytes more. */
void sgp_advise_memlock(struct sgp_advice *advice, const struct sgp_memlock *lock, uint64_t bytes);

/* What is to know of a registration that failed. */
struct sgp_unregistered {
	struct ibv_context *verbs;
	uint64_t bytes;
	uint64_t held, regions; /* that the pool has registered */
	bool imported, read_only;
	int err; /* a positive errno */
};

/* Returns true where the limit on locked memory is the cause. */
bool sgp_advise_registration(struct sgp_advice *advice, const struct sgp_unregistered *failed);

/* Hugepages of one size, in the whole system. */
struct sgp_hugepages {
	bool supported;
	uint64_t total, free;
};
struct sgp_hugepages sgp_hugepages_read(uint64_t page_bytes);

/* There are not enough hugepages for bytes more; err: as mmap(2) failed. */
void sgp_advise_hugepages(struct sgp_advice *advice, uint64_t page_bytes, uint64_t bytes, int err);

/* The kernel does not copy pinned pages at a fork, and ibv_fork_init(3) has not been called. */
void sgp_advise_fork(struct sgp_advice *advice);

#endif
