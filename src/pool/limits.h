/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What this process may lock in memory, for those who explain a failed registration and for those
 * who look before they try. It reads /proc and getrlimit(2), and changes nothing.
 */
#ifndef SGP_LIMITS_H
#define SGP_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sgp_memlock {
	uint64_t limit;    /* RLIMIT_MEMLOCK in bytes; UINT64_MAX: none */
	bool cap;          /* CAP_IPC_LOCK is in the effective set */
	bool cap_counts;   /* the kernel looks at it: this is the initial user namespace */
	bool cap_unheeded; /* the device's driver does not look at it: soft-iWARP */
	bool pinned_known;
	uint64_t pinned; /* bytes that this process has pinned, over all devices */
};

/* Read all but cap_unheeded, which is false then. */
void sgp_memlock_read(struct sgp_memlock *lock);

/* Does the limit forbid to pin bytes more, held being pinned at least? */
bool sgp_memlock_forbids(const struct sgp_memlock *lock, uint64_t bytes, uint64_t held);

/*
 * The state as a phrase: "RLIMIT_MEMLOCK is 65536 bytes, CAP_IPC_LOCK is not in the effective set".
 * Returns buf.
 */
char *sgp_memlock_describe(const struct sgp_memlock *lock, char *buf, size_t size);

#endif
