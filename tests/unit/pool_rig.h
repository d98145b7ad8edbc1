/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the pool's tests share: a device with a protection domain, and faults in the calls that a
 * pool makes of the system, put in by the linker (--wrap).
 */
#ifndef POOL_RIG_H
#define POOL_RIG_H

#include <stdint.h>

#include "../asserts.h"
#include "pool/pool.h"
#include "sgpool/sgpool.h"
#include "sgpool/softverbs.h"

/* The protection domain that the tests make their pools on. */
extern struct ibv_pd *rig_pd;

/* Before and after each test. The latter fails when something of a pool is left. */
void rig_setup(void);
void rig_teardown(void);

/* A pool of these classes, or of one, on base pages. Fails the test on an error. */
struct sgp_pool *rig_classes(const struct sgp_class_attr *cls, uint32_t n);
struct sgp_pool *rig_pool(size_t size, size_t chunks, size_t max_chunks);

/* One that may not be had, on pages of any kind. */
struct sgp_pool *rig_try_pool(size_t size, size_t chunks, size_t max_chunks, enum sgp_pages pages);

/* As many registrations are alive as told; the pool's invariant holds; so many chunks are live. */
void rig_check(struct sgp_pool *pool, uint64_t live);

/* The nth (from 0) call of this system function fails with err. */
enum rig_call {
	RIG_MMAP,
	RIG_MREMAP,
	RIG_MPROTECT,
	RIG_MADVISE,
	RIG_ALLOC,
	RIG_THREAD,
	RIG_CALLS
};
void rig_fail(enum rig_call call, int nth, int err);
bool rig_failed(void);

/* What the machine has in hugepages; the real thing may differ from test machine to test machine.
 */
enum rig_huge {
	RIG_HUGE_NONE = 0,
	RIG_HUGE_PLENTY
};
extern enum rig_huge rig_huge;

/* Bytes that the library has mapped and not unmapped; and that it has allocated. */
extern _Atomic int64_t rig_mapped;
extern _Atomic size_t rig_allocated;

#endif
