/* SPDX-License-Identifier: BSD-2-Clause */
/* What this process may lock in memory, see limits.h. */
#include <inttypes.h>
#include <linux/capability.h>
#include <stdio.h>
#include <sys/resource.h>

#include "pool/limits.h"

static void read_status(struct sgp_memlock *lock)
{
	FILE *f = fopen("/proc/self/status", "re");
	char line[256];
	uint64_t n;

	if (!f)
		return;
	while (fgets(line, sizeof line, f)) {
		if (sscanf(line, "VmPin: %" SCNu64 " kB", &n) == 1) {
			lock->pinned = n * 1024;
			lock->pinned_known = true;
		} else if (sscanf(line, "CapEff: %" SCNx64, &n) == 1) {
			lock->cap = n >> CAP_IPC_LOCK & 1;
		}
	}
	fclose(f);
}

/* The kernel asks for the capability in the initial user namespace, which maps every id to itself.
 */
static bool in_initial_userns(void)
{
	FILE *f = fopen("/proc/self/uid_map", "re");
	uint64_t inside = 1, outside = 1, count = 0;
	bool initial = true;

	if (!f)
		return initial; /* a kernel without user namespaces */
	if (fscanf(f, "%" SCNu64 " %" SCNu64 " %" SCNu64, &inside, &outside, &count) == 3)
		initial = inside == 0 && outside == 0 && count == UINT32_MAX;
	fclose(f);
	return initial;
}

void sgp_memlock_read(struct sgp_memlock *lock)
{
	struct rlimit limit;

	*lock = (struct sgp_memlock){.limit = UINT64_MAX};
	if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
		lock->limit = limit.rlim_cur;
	lock->cap_counts = in_initial_userns();
	read_status(lock);
}

bool sgp_memlock_forbids(const struct sgp_memlock *lock, uint64_t bytes, uint64_t held)
{
	uint64_t pinned = lock->pinned > held ? lock->pinned : held;

	if (lock->limit == UINT64_MAX || (lock->cap && lock->cap_counts && !lock->cap_unheeded))
		return false;
	return pinned >= lock->limit || bytes > lock->limit - pinned;
}

char *sgp_memlock_describe(const struct sgp_memlock *lock, char *buf, size_t size)
{
	const char *cap = "is not in the effective set";
	char limit[48] = "unlimited";

	if (lock->cap && lock->cap_unheeded)
		cap = "is in the effective set, but soft-iWARP does not look at it";
	else if (lock->cap)
		cap = lock->cap_counts ? "is in the effective set"
				       : "counts in the initial user namespace only";
	if (lock->limit != UINT64_MAX)
		snprintf(limit, sizeof limit, "%" PRIu64 " bytes", lock->limit);
	snprintf(buf, size, "RLIMIT_MEMLOCK is %s, CAP_IPC_LOCK %s", limit, cap);
	return buf;
}
