/* SPDX-License-Identifier: BSD-2-Clause */
/* Packets over RDMA arrive whole, in order and unchanged, whatever their sizes and the receives'. */
#include <errno.h>

#include "../suite.h"
#include "rdma_ends.h"

static struct ends e;

static const struct mqr_attr attrs[] = {
	{0},
	{.receive = 1024, .depth = 1},
	{.receive = 4104, .depth = 3},
	{.receive = 1 << 20, .depth = 4},
};

enum {
	ATTRS = sizeof attrs / sizeof *attrs
};

/* Around every edge: of chunks, of messages, of the remaining length's bytes. */
static const uint32_t sizes[] = {
	0,     1,     2,     120,   125,   126,   490,   495,   500,    505,    510,    512,
	1000,  1016,  1017,  2040,  4080,  4090,  4095,  4096,  4097,   4104,   8192,   16380,
	16384, 60000, 65500, 65520, 65530, 65536, 65540, 70000, 131056, 131072, 300000, 1048576,
};

enum {
	SIZES = sizeof sizes / sizeof *sizes
};

static uint32_t sent;
static uint16_t topic = 3;

static void send_sizes(struct ends *ends)
{
	while (sent < SIZES && ends_publish(ends, ends->client.link, sizes[sent], topic))
		sent++;
}

static bool all_came_back(struct ends *ends)
{
	if (ends->client.got == SIZES && ends->client.link) {
		link_close(ends->client.link, true);
		return false;
	}
	return ends->client.closed && ends->server.closed;
}

START_TEST(sizes_and_back)
{
	ends_open(&e, &attrs[_i % ATTRS], 128);
	topic = _i < ATTRS ? 3 : 65000;
	e.echo = true;
	e.done = all_came_back;
	e.writable = send_sizes;
	ends_connect(&e);
	send_sizes(&e);
	ck_assert_uint_eq(sent, 0); /* it is not connected */
	ends_run(&e);
	ck_assert_uint_eq(e.server.got, SIZES);
	ck_assert_int_eq(e.client.err, 0);
	ck_assert_int_eq(e.server.err, 0);
	ends_close(&e);
}
END_TEST

/* What is in more pieces than a message may have is copied into one, and that is counted. */
static void send_pieces(struct ends *ends)
{
	while (sent < 5 && ends_publish(ends, ends->client.link, 5000, 5))
		sent++;
}

static bool pieces_came(struct ends *ends)
{
	if (ends->server.got < 5)
		return false;
	if (!ends->client.closed)
		link_close(ends->client.link, true);
	return ends->client.closed && ends->server.closed;
}

START_TEST(pieces_become_one)
{
	ends_open(&e, &attrs[_i % ATTRS], 64);
	e.piece = 20;
	e.done = pieces_came;
	e.writable = send_pieces;
	ends_connect(&e);
	send_pieces(&e); /* it is not connected: writable() comes when it is */
	ends_run(&e);
	ck_assert_uint_eq(e.server.got, 5);
	ck_assert_int_eq(e.server.err, 0);
	ck_assert_uint_gt(e.host.stats.payload_copied, 0);
	ck_assert_uint_le(e.host.stats.payload_copied, 5 * 5100);
	ends_close(&e);
}
END_TEST

/* ---- pause ---- */

static uint32_t looks;

static void send_many(struct ends *ends)
{
	while (sent < 200 && ends_publish(ends, ends->client.link, 5000 + sent, 5))
		sent++;
}

static bool paused_long_enough(struct ends *ends)
{
	if (ends->server.got == 10 && ++looks == 100) {
		/* What the peer had been granted came, and waits. */
		ck_assert_uint_lt(sent, 200);
		link_resume(ends->server.link);
	}
	if (ends->server.got == 200 && ends->client.link)
		link_close(ends->client.link, true);
	return ends->client.closed && ends->server.closed;
}

START_TEST(a_pause_holds_the_peer)
{
	ends_open(&e, &attrs[0], 64);
	e.pause_after = 10;
	e.done = paused_long_enough;
	e.writable = send_many;
	ends_connect(&e);
	send_many(&e);
	ends_run(&e);
	ck_assert_uint_ge(looks, 100);
	ck_assert_uint_eq(e.server.got, 200);
	ends_close(&e);
}
END_TEST

/* ---- ends ---- */

static bool both_closed(struct ends *ends)
{
	return ends->client.closed && ends->server.closed;
}

static void send_and_close(struct ends *ends)
{
	while (sent < 50 && ends_publish(ends, ends->client.link, 20000, 5))
		sent++;
	if (sent == 50)
		link_close(ends->client.link, true);
}

START_TEST(a_close_that_flushes_loses_nothing)
{
	ends_open(&e, &attrs[_i % ATTRS], 64);
	e.done = both_closed;
	e.writable = send_and_close;
	ends_connect(&e);
	send_and_close(&e);
	ends_run(&e);
	ck_assert_uint_eq(e.server.got, 50);
	ck_assert_int_eq(e.server.err, 0);
	ends_close(&e);
}
END_TEST

static void close_in_the_middle(struct ends *ends)
{
	while (sent < 50 && ends_publish(ends, ends->client.link, 200000, 5))
		sent++;
	if (sent > 2)
		link_close(sent % 2 && ends->server.link ? ends->server.link : ends->client.link,
			   false);
}

START_TEST(a_close_that_does_not_lets_go_of_all)
{
	ends_open(&e, &attrs[_i % ATTRS], 64);
	e.done = both_closed;
	e.writable = close_in_the_middle;
	ends_connect(&e);
	close_in_the_middle(&e);
	ends_run(&e);
	ends_close(&e);
}
END_TEST

static bool client_closed(struct ends *ends)
{
	return ends->client.closed;
}

START_TEST(nobody_listens)
{
	ends_open(&e, &attrs[0], 8);
	e.addr.sin_port ^= 0x100;
	e.done = client_closed;
	ends_connect(&e);
	ends_run(&e);
	ck_assert_int_eq(e.client.err, ECONNREFUSED);
	ck_assert_str_eq(e.client.why, "nobody listens there");
	ends_close(&e);
}
END_TEST

/* A server that has not the chunks for another connection's receives says so. */
START_TEST(no_memory_is_a_refusal)
{
	const struct mqr_attr attr = {.depth = 60};

	ends_open(&e, &attr, 8);
	e.done = client_closed;
	ends_connect(&e);
	ends_run(&e);
	ck_assert_str_eq(e.client.why, "it has no memory for another connection");
	ends_close(&e);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("link_rdma");
	TCase *tcase = tcase_create("link_rdma");

	tcase_set_timeout(tcase, 120);
	tcase_add_loop_test(tcase, sizes_and_back, 0, 2 * ATTRS);
	tcase_add_loop_test(tcase, pieces_become_one, 0, ATTRS);
	tcase_add_test(tcase, a_pause_holds_the_peer);
	tcase_add_loop_test(tcase, a_close_that_flushes_loses_nothing, 0, ATTRS);
	tcase_add_loop_test(tcase, a_close_that_does_not_lets_go_of_all, 0, ATTRS);
	tcase_add_test(tcase, nobody_listens);
	tcase_add_test(tcase, no_memory_is_a_refusal);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
