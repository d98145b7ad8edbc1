/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Making memory present, see populate.h.
 *
 * The memory is cut into steps. The calling thread and its helpers take the next step each until
 * none is left; only the calling thread reports progress.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pool/populate.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define STEP        ((size_t)64 << 20)
#define MAX_THREADS 64

struct work {
	char *addr;
	size_t bytes, step, page;
	_Atomic size_t next, done;
	_Atomic int err;
	const struct sgp_backing *backing;
};

/* MADV_POPULATE_WRITE is Linux 5.14; before it, touching is what there is. */
static int make_present(char *addr, size_t bytes, size_t page)
{
	size_t i;

	while (madvise(addr, bytes, MADV_POPULATE_WRITE)) {
		if (errno == EINTR)
			continue;
		if (errno != EINVAL)
			return errno == EFAULT ? ENOMEM : errno;
		for (i = 0; i < bytes; i += page)
			*(volatile char *)(addr + i) = 0;
		return 0;
	}
	return 0;
}

static void take_steps(struct work *work, bool report)
{
	while (work->err == 0) {
		size_t from = atomic_fetch_add(&work->next, work->step);
		size_t bytes = work->step;
		int err;

		if (from >= work->bytes)
			return;
		if (bytes > work->bytes - from)
			bytes = work->bytes - from;
		err = make_present(work->addr + from, bytes, work->page);
		if (err)
			work->err = err;
		else
			work->done += bytes;
		if (report && !err && work->backing->progress)
			work->backing->progress(work->backing->progress_arg, work->done,
						work->bytes);
	}
}

static void *help(void *arg)
{
	take_steps(arg, false);
	return NULL;
}

static size_t count_threads(const struct work *work)
{
	size_t steps = (work->bytes + work->step - 1) / work->step;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	size_t n = work->backing->threads;

	if (n == 0)
		n = cpus > 0 ? (size_t)cpus : 1;
	if (n > steps)
		n = steps;
	return n < MAX_THREADS ? n : MAX_THREADS;
}

int sgp_populate(char *addr, size_t bytes, size_t page, const struct sgp_backing *backing)
{
	struct work work = {.addr = addr,
			    .bytes = bytes,
			    .step = STEP > page ? STEP : page,
			    .page = page,
			    .backing = backing};
	size_t n = count_threads(&work), started = 0;
	pthread_t thread[MAX_THREADS];

	while (started + 1 < n && pthread_create(&thread[started], NULL, help, &work) == 0)
		started++;
	take_steps(&work, true);
	while (started > 0)
		pthread_join(thread[--started], NULL);
	/* The last word is the calling thread's. */
	if (work.err == 0 && backing->progress)
		backing->progress(backing->progress_arg, bytes, bytes);
	return work.err;
}
