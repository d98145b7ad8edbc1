/* SPDX-License-Identifier: BSD-2-Clause */
/* Why something can't be had, and what mends it; see advice.h. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "pool/advice.h"

__attribute__((format(printf, 2, 3))) static void what(struct sgp_advice *advice, const char *fmt,
						       ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(advice->what, sizeof advice->what, fmt, ap);
	va_end(ap);
}

__attribute__((format(printf, 2, 3))) static void mend(struct sgp_advice *advice, const char *fmt,
						       ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(advice->mend, sizeof advice->mend, fmt, ap);
	va_end(ap);
}

/* ---- locked memory ---- */

/* What raises the limit of this shell: ulimit counts in KiB, and goes up to the hard limit. */
static void shell_command(char *buf, size_t size)
{
	struct rlimit limit = {0, 0};

	getrlimit(RLIMIT_MEMLOCK, &limit);
	if (limit.rlim_max == limit.rlim_cur)
		snprintf(buf, size,
			 "sudo prlimit --memlock=unlimited --pid $$ (this shell, whose "
			 "hard limit is in the way of ulimit -l)");
	else if (limit.rlim_max == RLIM_INFINITY)
		snprintf(buf, size, "ulimit -l unlimited (this shell)");
	else
		snprintf(buf, size, "ulimit -l %" PRIu64 " (this shell)",
			 (uint64_t)limit.rlim_max >> 10);
}

/* The capability only where the kernel, and the device's driver, would look at it. */
static void mend_memlock(struct sgp_advice *advice, const struct sgp_memlock *lock)
{
	const char *capability = "";
	char command[128];

	if (!lock->cap_counts)
		capability = ". CAP_IPC_LOCK does not help here: the kernel asks for it in the "
			     "initial user namespace";
	else if (!lock->cap_unheeded)
		capability = "; or give the process CAP_IPC_LOCK in its effective set";
	shell_command(command, sizeof command);
	mend(advice,
	     "Raise it: %s, memlock in /etc/security/limits.conf, LimitMEMLOCK= of the systemd "
	     "unit, the container's memlock ulimit%s",
	     command, capability);
}

void sgp_advise_memlock(struct sgp_advice *advice, const struct sgp_memlock *lock, uint64_t bytes)
{
	char state[160];

	what(advice, "%" PRIu64 " bytes more can't be locked in memory: %s", bytes,
	     sgp_memlock_describe(lock, state, sizeof state));
	mend_memlock(advice, lock);
}

/* ---- registrations ---- */

static void advise_fault(struct sgp_advice *advice, const struct sgp_unregistered *failed)
{
	what(advice, "registering %" PRIu64 " bytes%s failed: %s", failed->bytes,
	     failed->read_only ? " for sending" : "", strerror(failed->err));
	if (failed->read_only)
		mend(advice, "The memory is not all mapped; or it is a file mapped MAP_SHARED and "
			     "not writable, which the kernel refuses to pin even for reading: map "
			     "it MAP_PRIVATE, or open and map it for writing too");
	else
		mend(advice, "The memory is not all mapped, or not writable: map it PROT_WRITE, or "
			     "import it with SGP_IMPORT_READ_ONLY if it is to be sent only");
}

/* The device's own limits; false where none of them is the cause. */
static bool advise_device(struct sgp_advice *advice, const struct sgp_unregistered *failed)
{
	struct ibv_device_attr attr = {0};

	if (ibv_query_device(failed->verbs, &attr))
		return false;
	if (attr.max_mr_size && failed->bytes > attr.max_mr_size) {
		mend(advice,
		     "The device registers at most %" PRIu64 " bytes at once (max_mr_size): import "
		     "it in pieces, or make the pool with a smaller region_bytes",
		     attr.max_mr_size);
		return true;
	}
	if (attr.max_mr > 0 && failed->regions >= (uint64_t)attr.max_mr) {
		mend(advice,
		     "The device has %d registrations (max_mr) and the pool all of them: make "
		     "fewer "
		     "and larger regions, by growing in larger steps or from the beginning",
		     attr.max_mr);
		return true;
	}
	return false;
}

/*
 * Why did ibv_reg_mr(3) fail? The kernel says ENOMEM over the limit, and EPERM to who may lock
 * nothing at all; but a device says ENOMEM too when it runs out of registrations of its own.
 */
bool sgp_advise_registration(struct sgp_advice *advice, const struct sgp_unregistered *failed)
{
	const bool short_of = failed->err == ENOMEM || failed->err == EPERM;
	struct sgp_memlock lock;
	char state[160];

	if (failed->err == EFAULT && failed->imported) {
		advise_fault(advice, failed);
		return false;
	}
	sgp_memlock_read(&lock);
	lock.cap_unheeded = failed->verbs->device->transport_type == IBV_TRANSPORT_IWARP;
	sgp_memlock_describe(&lock, state, sizeof state);
	what(advice,
	     "registering %" PRIu64 " bytes failed: %s. The pool holds %" PRIu64
	     " bytes in %" PRIu64 " regions",
	     failed->bytes, strerror(failed->err), failed->held, failed->regions);
	if (short_of && sgp_memlock_forbids(&lock, failed->bytes, failed->held)) {
		size_t n = strlen(advice->what);

		snprintf(advice->what + n, sizeof advice->what - n, "; %s", state);
		mend_memlock(advice, &lock);
		return true;
	}
	if (short_of && advise_device(advice, failed))
		return false;
	if (failed->err == ENODEV || failed->err == EIO)
		mend(advice, "The device may be gone: see dmesg, and sgpool doctor");
	else
		mend(advice,
		     "The limit on locked memory is not the cause (%s); the device may be out of "
		     "memory or registrations: see dmesg, and sgpool doctor",
		     state);
	return false;
}

/* ---- hugepages ---- */

static uint64_t read_number(uint64_t page_bytes, const char *name, bool *there)
{
	uint64_t n = 0;
	char path[128];
	FILE *f;

	snprintf(path, sizeof path, "/sys/kernel/mm/hugepages/hugepages-%" PRIu64 "kB/%s",
		 page_bytes >> 10, name);
	f = fopen(path, "re");
	*there = f != NULL;
	if (!f)
		return 0;
	if (fscanf(f, "%" SCNu64, &n) != 1)
		n = 0;
	fclose(f);
	return n;
}

struct sgp_hugepages sgp_hugepages_read(uint64_t page_bytes)
{
	struct sgp_hugepages pages;

	pages.total = read_number(page_bytes, "nr_hugepages", &pages.supported);
	pages.free = read_number(page_bytes, "free_hugepages", &pages.supported);
	return pages;
}

void sgp_advise_hugepages(struct sgp_advice *advice, uint64_t page_bytes, uint64_t bytes, int err)
{
	struct sgp_hugepages pages = sgp_hugepages_read(page_bytes);
	uint64_t need = (bytes + page_bytes - 1) / page_bytes;
	uint64_t wanted = pages.total + (need > pages.free ? need - pages.free : 0);

	what(advice,
	     "no %" PRIu64 " MiB hugepages for %" PRIu64 " bytes: %s. %" PRIu64 " of %" PRIu64
	     " are free, %" PRIu64 " are needed",
	     page_bytes >> 20, bytes, strerror(err), pages.free, pages.total, need);
	if (!pages.supported)
		mend(advice, "This processor or kernel has none of that size");
	else if (page_bytes == UINT64_C(2) << 20)
		mend(advice, "%ssysctl vm.nr_hugepages=%" PRIu64, geteuid() ? "sudo " : "", wanted);
	else
		mend(advice,
		     "hugepagesz=%" PRIu64 "M hugepages=%" PRIu64
		     " on the kernel's command line, or, "
		     "where memory is not scattered yet, echo %" PRIu64
		     " > /sys/kernel/mm/hugepages/hugepages-%" PRIu64 "kB/nr_hugepages",
		     page_bytes >> 20, wanted, wanted, page_bytes >> 10);
}

/* ---- fork ---- */

void sgp_advise_fork(struct sgp_advice *advice)
{
	what(advice, "a program that forks may lose registered memory outside of pools: the kernel "
		     "does not copy pinned pages at a fork");
	mend(advice, "export RDMAV_FORK_SAFE=1");
}
