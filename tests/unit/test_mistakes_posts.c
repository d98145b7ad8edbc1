/* SPDX-License-Identifier: BSD-2-Clause */
/* Mistakes with posts: of what is not held, written to in flight, put or given to two meanwhile. */
#include <errno.h>

#include "../suite.h"
#include "mistakes_rig.h"

static void send_after_put(void)
{
	ck_assert(refused(sgp_post_send(rig.side[0].ep, NULL, put_once(), 0, 64, 0)));
}

static void receive_after_put(void)
{
	ck_assert(refused(sgp_post_recv(rig.side[0].ep, NULL, put_once(), 0, 64)));
}

static void send_of_a_list_whose_chunk_was_put(void)
{
	struct sgp_chunk *chunk = taker();
	SGP_SGL(sgl, 1);

	ck_assert_int_eq(sgp_sgl_append(&sgl, chunk, 0, SIZE), 0);
	ck_assert_int_eq(giver(chunk), 0);
	ck_assert(refused(sgp_post_sendv(rig.side[0].ep, NULL, &sgl, 0)));
	sgl.num_chunk = 0;
}

/* A send that is not polled yet, of memory that the caller has kept an address of. */
static char *posted(struct sgp_chunk *chunk, int flags)
{
	char *mem = memory(chunk);

	rig_post_recv(&rig.side[1], NULL);
	ck_assert_int_eq(sgp_post_send(rig.side[0].ep, NULL, chunk, 0, SIZE, flags), 0);
	return mem;
}

static void reaped(void)
{
	rig_reap(&rig.side[0], 1);
	rig_reap(&rig.side[1], 1);
}

static void write_in_flight(void)
{
	posted(taker(), IBV_SEND_SIGNALED)[77] = 2;
	reaped();
}

static void write_in_flight_of_an_unsignalled_send(void)
{
	posted(taker(), 0)[77] = 2;
	posted(taker(), IBV_SEND_SIGNALED);
	rig_reap(&rig.side[0], 1);
	rig_reap(&rig.side[1], 2);
}

static void write_in_flight_of_what_is_handed_back(void)
{
	posted(taker(), SGP_HANDOVER)[77] = 2;
	reaped();
}

static void write_into_the_second_slice(void)
{
	struct sgp_chunk *chunk[2] = {taker(), taker()};
	char *mem = memory(chunk[1]);
	SGP_SGL(sgl, 2);

	rig_post_recv(&rig.side[1], NULL);
	ck_assert_int_eq(sgp_sgl_append(&sgl, chunk[0], 0, 100), 0);
	ck_assert_int_eq(sgp_sgl_append(&sgl, chunk[1], 200, 100), 0);
	ck_assert_int_eq(sgp_post_sendv(rig.side[0].ep, NULL, &sgl, IBV_SEND_SIGNALED), 0);
	mem[199] = mem[300] = 9; /* beside it, which is the caller's */
	mem[299] = 9;
	reaped();
}

static void put_of_what_is_posted(void)
{
	struct sgp_chunk *chunk = taker();

	posted(chunk, IBV_SEND_SIGNALED);
	ck_assert(refused(giver(chunk)));
	reaped();
}

static void write_in_flight_until_the_end(void)
{
	struct sgp_chunk *chunk = taker();
	char *mem = memory(chunk);

	/* Nobody receives it: it's flushed when the endpoint is closed. */
	ck_assert_int_eq(sgp_post_send(rig.side[0].ep, NULL, chunk, 0, SIZE, 0), 0);
	mem[0] = 7;
	ck_assert_int_ge(rig_close_ep(&rig.side[0]), 1);
}

static const struct mistake mistakes[] = {
	M(send_after_put, NOT_HELD, "used, but nobody holds it", "giver+"),
	M(receive_after_put, NOT_HELD, "used, but nobody holds it", "giver+"),
	M(send_of_a_list_whose_chunk_was_put, NOT_HELD, "used, but nobody holds it", "giver+"),
	M(write_in_flight, WRITE_IN_FLIGHT, "while it was posted: some of 4096 bytes from byte 0",
	  "taker+"),
	M(write_in_flight_of_an_unsignalled_send, WRITE_IN_FLIGHT, "while it was posted"),
	M(write_in_flight_of_what_is_handed_back, WRITE_IN_FLIGHT, "while it was posted"),
	M(write_into_the_second_slice, WRITE_IN_FLIGHT, "some of 100 bytes from byte 200"),
	M(put_of_what_is_posted, PUT_TWICE, "its only reference is the queue's", "taker+"),
	M(write_in_flight_until_the_end, WRITE_IN_FLIGHT, "while it was posted", "taker+"),
};
#define MISTAKES (int)(sizeof mistakes / sizeof *mistakes)

/* ---- mistakes that are refused: case 52c ---- */

static void is_busy(int ret)
{
	ck_assert_int_eq(ret, -1);
	ck_assert_int_eq(errno, EBUSY);
}

START_TEST(test_second_writer_is_refused)
{
	struct sgp_chunk *chunk;
	SGP_SGL(sgl, 1);

	setup();
	chunk = taker();
	ck_assert_int_eq(sgp_check_claim(chunk), 0);
	sgp_chunk_ref(chunk);
	posted(chunk, IBV_SEND_SIGNALED); /* seven more would fit */
	is_busy(sgp_check_claim(chunk));
	is_busy(sgp_post_recv(rig.side[0].ep, NULL, chunk, 0, 64));
	is_busy(sgp_post_read(rig.side[0].ep, NULL, chunk, SIZE - 8, 8, 0, 0, 0));
	/* To send it to another at the same time is no harm. */
	sgp_chunk_ref(chunk);
	posted(chunk, IBV_SEND_SIGNALED);
	rig_reap(&rig.side[0], 2);
	rig_reap(&rig.side[1], 2);
	ck_assert_int_eq(sgp_check_claim(chunk), 0);

	/* Two receives share a chunk, but not a byte. */
	sgp_chunk_ref(chunk);
	ck_assert_int_eq(sgp_post_recv(rig.side[0].ep, NULL, chunk, 0, 64), 0);
	sgp_chunk_ref(chunk);
	ck_assert_int_eq(sgp_post_recv(rig.side[0].ep, NULL, chunk, 64, 64), 0);
	sgp_chunk_ref(chunk);
	ck_assert_int_eq(sgp_sgl_append(&sgl, chunk, 127, 2), 0);
	is_busy(sgp_post_recvv(rig.side[0].ep, NULL, &sgl));
	ck_assert_int_eq(sgl.num_chunk, 1);
	ck_assert_int_eq(sgp_sgl_trim(&sgl, 0), 0);
	ck_assert_int_eq(rig_close_ep(&rig.side[0]), 2);
	ck_assert_int_eq(sgp_check_claim(chunk), 0);
	ck_assert_int_eq(giver(chunk), 0);
	ck_assert_int_eq(found.n, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("mistakes: posts");
	TCase *tc = mistakes_case("posts", mistakes, MISTAKES);

	tcase_add_test(tc, test_second_writer_is_refused);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
