/* SPDX-License-Identifier: BSD-2-Clause */
/* What there is one of: the lock, the clock, the counts. */
#include <time.h>

#include "softverbs/sw.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static uint64_t manual; /* 0: the system's clock */
static int live[SV_NCOUNTERS];
static uint64_t total[SV_NCOUNTERS];

void sw_lock(void)
{
	pthread_mutex_lock(&lock);
}

void sw_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

void sw_sleep(void)
{
	pthread_cond_wait(&changed, &lock);
}

void sw_wake(void)
{
	pthread_cond_broadcast(&changed);
}

static uint64_t system_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t sw_now(void)
{
	return manual ? manual : system_now();
}

bool sw_clock_runs(void)
{
	return !manual;
}

void sv_clock_advance(uint64_t ns)
{
	sw_lock();
	manual = sw_now() + ns;
	sw_due();
	sw_unlock();
}

void sw_count(enum sv_counter what, int by)
{
	live[what] += by;
	if (by > 0)
		total[what] += (uint64_t)by;
}

int sv_live(enum sv_counter what)
{
	int n;

	sw_lock();
	n = (unsigned int)what < SV_NCOUNTERS ? live[what] : 0;
	sw_unlock();
	return n;
}

uint64_t sv_total(enum sv_counter what)
{
	uint64_t n;

	sw_lock();
	n = (unsigned int)what < SV_NCOUNTERS ? total[what] : 0;
	sw_unlock();
	return n;
}

int sw_fail(int err)
{
	errno = err;
	return -1;
}

void *sw_null(int err)
{
	errno = err;
	return NULL;
}
