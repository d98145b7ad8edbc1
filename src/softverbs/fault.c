/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls are counted and can be told to fail. The counters have a lock of their own, since a call is
 * counted before it takes the big one; while no fault is set the cost is one relaxed increment.
 */
#include <stdatomic.h>

#include "softverbs/sw.h"

#define SW_CALL_NAME(name) #name,
static const char *const names[SW_NCALLS] = {SW_CALLS(SW_CALL_NAME)};

struct fault {
	uint64_t left; /* calls that still pass */
	int err;       /* 0: none set */
	bool struck;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_ulong calls[SW_NCALLS];
static struct fault faults[SW_NCALLS + 1]; /* the last one: any call */
static atomic_uint pending;

/* The errno this fault gives now, or 0. */
static int strike(struct fault *f)
{
	int err = f->err;

	if (!err || f->left-- > 0)
		return 0;
	f->err = 0;
	f->struck = true;
	atomic_fetch_sub(&pending, 1);
	return err;
}

int sw_fault(enum sw_call call)
{
	int err, any;

	atomic_fetch_add_explicit(&calls[call], 1, memory_order_relaxed);
	if (!atomic_load_explicit(&pending, memory_order_relaxed))
		return 0;
	pthread_mutex_lock(&lock);
	err = strike(&faults[call]);
	any = strike(&faults[SW_NCALLS]);
	pthread_mutex_unlock(&lock);
	return err ? err : any;
}

static int find(const char *call)
{
	if (!strcmp(call, "any"))
		return SW_NCALLS;
	for (int i = 0; i < SW_NCALLS; i++)
		if (!strcmp(names[i], call))
			return i;
	return -1;
}

static void set(struct fault *f, uint64_t nth, int err)
{
	if (!f->err && err)
		atomic_fetch_add(&pending, 1);
	else if (f->err && !err)
		atomic_fetch_sub(&pending, 1);
	f->left = nth;
	f->err = err;
	f->struck = false;
}

int sv_fail_nth(const char *call, uint64_t nth, int err)
{
	int i = find(call);

	if (i < 0)
		return sw_fail(EINVAL);
	pthread_mutex_lock(&lock);
	set(&faults[i], nth, err);
	pthread_mutex_unlock(&lock);
	return 0;
}

int sv_failed(const char *call)
{
	int i = find(call);
	bool struck;

	if (i < 0)
		return 0;
	pthread_mutex_lock(&lock);
	struck = faults[i].struck;
	pthread_mutex_unlock(&lock);
	return struck;
}

uint64_t sv_calls(const char *call)
{
	uint64_t n = 0;
	int i = find(call);

	for (int k = 0; k < SW_NCALLS; k++)
		if (i == k || i == SW_NCALLS)
			n += atomic_load_explicit(&calls[k], memory_order_relaxed);
	return n;
}

void sv_faults_clear(void)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; i <= SW_NCALLS; i++)
		set(&faults[i], 0, 0);
	pthread_mutex_unlock(&lock);
}
