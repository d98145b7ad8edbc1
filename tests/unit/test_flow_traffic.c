/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Flow control: two ends that talk at random never meet a receive that is not posted and never get
 * stuck, at any depth.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>

#include "../suite.h"
#include "flow_ends.h"

static const struct {
	const char *persona;
	uint32_t flags;
} devices[] = {{"soft", 0},
	       {"rxe", 0},
	       {"siw", 0},
	       {"soft", SGP_FLOW_IMMEDIATE},
	       {"mlx5", SGP_FLOW_IMMEDIATE}};

enum {
	DEVICES = sizeof devices / sizeof *devices
};

static long steps = 1000; /* of a random traffic */

/* One way only, as deep as one message: each is followed by an update, and that by nothing. */
START_TEST(one_way_at_depth_1)
{
	struct end *a = &ends[_i % 2], *b = &ends[!(_i % 2)];
	uint32_t seq;

	ends_open(devices[_i / 2].persona, 1, 1, devices[_i / 2].flags);
	ck_assert_int_eq(end_send(&ends[0], 0), 0); /* iWARP's active side first */
	ends_settle();
	for (int i = 0; i < 100; i++) {
		ck_assert_int_eq(end_send(a, 0), 0);
		ck_assert_int_eq(end_send(a, 0), -1);
		ck_assert_int_eq(errno, EAGAIN);
		ends_settle();
	}
	ck_assert_uint_eq(b->got, a == &ends[0] ? 101 : 100);
	ck_assert_uint_eq(a->flow.credits, 1);
	seq = a->flow.seq + b->flow.seq;
	ends_settle();
	ck_assert_uint_eq(a->flow.seq + b->flow.seq, seq); /* silence */
	ends_close();
}
END_TEST

static void random_step(struct end *e)
{
	switch (random() % 6) {
	case 0:
	case 1:
		if (end_send(e, 0))
			ck_assert_int_eq(errno, EAGAIN);
		break;
	case 2:
	case 3:
		end_reap(e);
		break;
	case 4:
		if (e->nheld)
			end_repost(e);
		break;
	case 5:
		if (end_update(e, random() % 4 ? 0 : SGP_FLOW_ALIVE) < 0)
			ck_assert_int_eq(errno, EAGAIN);
		break;
	}
}

/* Whatever they did: once both listen and answer, each can send all that its peer is deep. */
START_TEST(random_traffic)
{
	const uint32_t depth[2] = {1 + (uint32_t)_i / DEVICES % 4, 1 + (uint32_t)_i / DEVICES / 4};

	srandom((unsigned int)_i + 1);
	ends_open(devices[_i % DEVICES].persona, depth[0], depth[1], devices[_i % DEVICES].flags);
	ck_assert_int_eq(end_send(&ends[0], 0), 0);
	ends_settle();
	for (long step = 0; step < steps; step++)
		random_step(&ends[random() % 2]);
	ends_settle();
	for (int i = 0; i < 2; i++) {
		ck_assert_uint_eq(ends[!i].got, ends[i].sent);
		/* Those not heard of yet come back with the next that goes there. */
		for (uint32_t n = 0; n < depth[!i]; n++) {
			if (!ends[i].flow.credits)
				ends_settle();
			ck_assert_int_eq(end_send(&ends[i], 0), 0);
		}
		ends_settle();
	}
	ends_close();
}
END_TEST

/* Two that say nothing but that they are alive go on saying it, every other time at least. */
START_TEST(signs_of_life)
{
	int said[2] = {0};

	ends_open(devices[_i].persona, 1, 1, devices[_i].flags);
	ck_assert_int_eq(end_send(&ends[0], 0), 0);
	ends_settle();
	for (int i = 0; i < 100; i++) {
		for (int k = 0; k < 2; k++) {
			int ret = end_update(&ends[k], SGP_FLOW_ALIVE);

			ck_assert_int_ge(ret, 0);
			said[k] += ret;
		}
		ends_settle();
	}
	ck_assert_int_ge(said[0], 50);
	ck_assert_int_ge(said[1], 50);
	ck_assert_int_eq(end_send(&ends[1], 0), 0);
	ends_close();
}
END_TEST

/* An end that is left alone says so twice at most. */
START_TEST(signs_of_life_leave_room)
{
	ends_open("siw", 1, 1, 0);
	ck_assert_int_eq(end_update(&ends[0], 0), 0);
	ck_assert_int_eq(end_update(&ends[0], SGP_FLOW_ALIVE), 1);
	ck_assert_int_eq(end_update(&ends[0], SGP_FLOW_ALIVE), 0);
	ends_settle();
	ends_close();
}
END_TEST

START_TEST(the_last_message)
{
	struct end *a = &ends[0], *b = &ends[1];

	ends_open(devices[_i].persona, 1, 1, devices[_i].flags);
	ck_assert_int_eq(end_send(a, 0), 0);
	ck_assert_int_eq(end_send(a, 0), -1);
	ck_assert_int_eq(end_send(a, SGP_FLOW_LAST), 0); /* in an update's place */
	ck_assert_int_eq(end_send(a, 0), -1);
	ck_assert_int_eq(errno, ESHUTDOWN);
	ck_assert_int_eq(end_update(a, SGP_FLOW_ALIVE), 0);
	while (b->got < 2)
		end_reap(b);
	ck_assert(b->flow.peer_ended);
	ends_settle();
	ck_assert_int_eq(end_send(b, SGP_FLOW_LAST), 0);
	ends_settle();
	ends_close();
}
END_TEST

int main(int argc, char *argv[])
{
	Suite *suite = suite_create("flow_traffic");
	TCase *tc = tcase_create("flow_traffic");

	if (argc > 1)
		steps = atol(argv[1]);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, one_way_at_depth_1, 0, 2 * DEVICES);
	tcase_add_loop_test(tc, random_traffic, 0, 16 * DEVICES);
	tcase_add_loop_test(tc, signs_of_life, 0, DEVICES);
	tcase_add_test(tc, signs_of_life_leave_room);
	tcase_add_loop_test(tc, the_last_message, 0, DEVICES);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
