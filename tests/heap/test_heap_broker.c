/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a broker does to memory: messages of heavy-tailed sizes that live for very different times. At
 * the peak the pinned memory is at most 1.3 times what the messages need, and it shrinks when they go.
 *
 * test_heap_broker [OPERATIONS [SEED]]
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../suite.h"
#include "heap_rig.h"

#define MOST   MIB
#define RECENT 400

/* An arrival and its end count as two operations. */
static unsigned long operations = 1200000, seed = 1;

struct message {
	char *ptr; /* NULL: it has been delivered */
	size_t size;
};

/* In the order of arrival. */
static struct message *messages;
static size_t room, oldest, end, live;

static double uniform(void)
{
	return drand48();
}

/* Pareto, the shape of which is 1.1: the median is 480 bytes, one in a thousand is above 128 KiB. */
static size_t message_size(void)
{
	double size = 256 / pow(1 - uniform(), 1 / 1.1);

	return size < (double)MOST ? (size_t)size : MOST;
}

static void arrive(void)
{
	struct message m = {.size = message_size()};

	m.ptr = sgp_malloc(heap, m.size);
	ck_assert_msg(m.ptr != NULL, "%s", sgp_errmsg());
	m.ptr[0] = m.ptr[m.size - 1] = 1;
	if (end == room) {
		room = room ? 2 * room : 4096;
		messages = realloc(messages, room * sizeof messages[0]);
		ck_assert_ptr_nonnull(messages);
	}
	messages[end++] = m;
	live += m.size;
}

static void deliver(struct message *m)
{
	live -= m->size;
	sgp_free(m->ptr);
	m->ptr = NULL;
}

/*
 * Messages come. Most are delivered soon, in any order; the others stay until there is no room for
 * them, the oldest going first.
 */
static void traffic(unsigned long n, size_t full)
{
	while (n--) {
		size_t back = (size_t)lrand48() % RECENT;

		arrive();
		if (uniform() < 0.9 && oldest + back < end && messages[end - 1 - back].ptr)
			deliver(&messages[end - 1 - back]);
		for (; live > full; oldest++)
			if (messages[oldest].ptr)
				deliver(&messages[oldest]);
	}
}

static void check_peak(struct sgp_heap_stats *most)
{
	struct sgp_heap_stats stats = stats_of();

	if (stats.registered > most->registered)
		*most = stats;
}

START_TEST(test_broker)
{
	struct sgp_heap_stats most = {0}, after;
	size_t peak = 0, full = operations > 2000000 ? 256 * MIB : 96 * MIB;

	setup();
	end_heap();
	make_heap((size_t)2048 * MIB, NULL);
	srand48((long)seed);
	for (int i = 0; i < 100; i++) {
		traffic(operations / 300, full);
		if (live > peak)
			peak = live;
		check_peak(&most);
	}
	printf("at the peak %.1f MiB of messages, %.1f allocated, %.1f resident, %.1f registered "
	       "(%.3f) in %llu regions\n",
	       (double)peak / (1 << 20), (double)most.allocated / (1 << 20),
	       (double)most.resident / (1 << 20), (double)most.registered / (1 << 20),
	       (double)most.registered / (double)peak, (unsigned long long)most.regions);
	fflush(stdout);
	ck_assert_uint_gt(peak, 32 * MIB);
	ck_assert_uint_le(most.registered, peak + peak * 3 / 10);
	/* Less and less is in it at a time. */
	for (size_t part = 2; part <= 32; part *= 2) {
		traffic(operations / 30, peak / part);
		ck_assert_int_eq(sgp_heap_trim(heap), 0);
		after = stats_of();
		printf("with %.1f MiB of messages %.1f registered\n", (double)live / (1 << 20),
		       (double)after.registered / (1 << 20));
		fflush(stdout);
	}
	ck_assert_uint_lt(after.registered, most.registered * 3 / 4);
	for (; oldest < end; oldest++)
		if (messages[oldest].ptr)
			deliver(&messages[oldest]);
	ck_assert_int_eq(sgp_heap_trim(heap), 0);
	ck_assert_uint_eq(stats_of().registered, 0);
	free(messages);
	teardown();
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite = suite_create("heap broker");
	TCase *tc = tcase_create("broker");

	if (argc > 1)
		operations = strtoul(argv[1], NULL, 10);
	if (argc > 2)
		seed = strtoul(argv[2], NULL, 10);
	tcase_set_timeout(tc, 1800);
	tcase_add_test(tc, test_broker);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
