/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The server of sgpool perf, and clients that nobody wrote in good faith: what they ask for, how they
 * connect, what they send, and what never comes. It says what was wrong, and goes on.
 */
#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "../suite.h"
#include "ends.h"
#include "perf_ends.h"

#include "cli/cli.h"
#include "sgpool/softverbs.h"

struct hostile {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct perf_session session;
};

static void no_event(void *arg, const struct cm_event *event)
{
	(void)arg;
	(void)event;
}

/* A client's control connection. */
static void hostile_connect(struct hostile *h, uint16_t port)
{
	struct rdma_conn_param param;
	uint8_t hello[WIRE_HELLO];
	struct cm_event event;

	*h = (struct hostile){.channel = cm_open()};
	h->session = (struct perf_session){.channel = h->channel,
					   .signal_fd = -1,
					   .client = true,
					   .timeout_ms = 60000,
					   .others = no_event};
	h->id = perf_resolve(h->channel, port);
	ck_assert_int_eq(perf_session_open(&h->session, h->id, "hostile"), 0);
	conn_param(&h->session.conn, hello, &param);
	ck_assert_int_eq(rdma_connect(h->id, &param), 0);
	perf_await(h->channel, RDMA_CM_EVENT_ESTABLISHED, &event);
	ck_assert_ptr_null(conn_greet(&h->session.conn, event.data, event.length));
	conn_event(&h->session.conn, &event);
	h->session.conn.up = true;
}

static void hostile_end(struct hostile *h)
{
	perf_session_close(&h->session);
	rdma_destroy_id(h->id);
	rdma_destroy_event_channel(h->channel);
}

static const struct perf_params sane = PARAMS(.size = 64, .tx = 8, .rx = 8);

/* Ask and take the answer; a dead session has none. */
static bool hostile_ask(struct hostile *h, const struct perf_message *m)
{
	h->session.has_message = false;
	if (perf_session_say(&h->session, m))
		return false;
	h->session.asked = true;
	while (!h->session.has_message)
		if (perf_session_turn(&h->session, 1000))
			return false;
	return true;
}

/* What it says, and the reason that the server gives. */
static const struct {
	struct perf_message m;
	bool set_up; /* there is a test number 1 already */
	const char *why;
} lies[] = {
	{{.say = PERF_READY}, false, "the other end's"},
	{{.say = 99}, false, "unknown sort"},
	{{.say = PERF_RUN, .id = 1}, false, "no such test"},
	{{.say = PERF_END, .id = 1}, false, "no such test"},
	{{.say = PERF_CLOSE, .id = 1}, false, "no such test"},
	{{.say = PERF_SETUP, .params = {.op = 7}}, false, "does not exist"},
	{{.say = PERF_SETUP, .params = PARAMS(.size = UINT32_MAX, .tx = 8, .rx = 8)},
	 false,
	 "1 GiB"},
	{{.say = PERF_SETUP, .params = PARAMS(.size = 64, .tx = UINT32_MAX, .rx = 8)},
	 false,
	 "depth"},
	{{.say = PERF_SETUP, .params = PARAMS(.size = 1 << 30, .tx = 8, .rx = 8)}, false, "4 GiB"},
	{{.say = PERF_RUN, .id = 1}, true, "a run out of place"}, /* without its connections */
	{{.say = PERF_END, .id = 1}, true, "an end out of place"},
	{{.say = PERF_RUN, .id = 1, .count = UINT64_MAX}, true, "more messages than"},
	{{.say = PERF_SETUP, .id = 1, .params = PARAMS(.size = 64, .tx = 8, .rx = 8)},
	 true,
	 "too many"},
};

START_TEST(hostile_client)
{
	const struct perf_message setup = {.say = PERF_SETUP, .id = 1, .params = sane};
	struct hostile h;
	struct perf_end s;
	char line[1024];

	ck_assert_int_eq(sv_device_add("dev0", "soft", 1), 0);
	hostile_connect(&h, perf_start_server(&s, 0));
	if (lies[_i].set_up) {
		ck_assert(hostile_ask(&h, &setup));
		ck_assert_int_eq(h.session.message.say, PERF_READY);
	}
	ck_assert(!hostile_ask(&h, &lies[_i].m));
	ck_assert(perf_read_line(&s, line, sizeof line));
	ck_assert_msg(strstr(line, lies[_i].why) != NULL, "%s", line);
	hostile_end(&h);
	ck_assert_int_eq(perf_finish(&s), CLI_FAILED);
}
END_TEST

/* Connections that belong to no test are refused, and the session goes on. */
START_TEST(hostile_link)
{
	const struct perf_message setup = {.say = PERF_SETUP, .id = 1, .params = sane};
	const struct perf_message close = {.say = PERF_CLOSE, .id = 1};
	struct perf_hello hello = {.id = 1, .bytes = 64};
	uint8_t bytes[PERF_DATA_HELLO];
	struct rdma_conn_param param = {.private_data = bytes, .private_data_len = sizeof bytes};
	struct hostile h;
	struct perf_end s;
	uint64_t token;
	uint16_t port;

	ck_assert_int_eq(sv_device_add("dev0", "soft", 1), 0);
	port = perf_start_server(&s, 0);
	hostile_connect(&h, port);
	ck_assert(hostile_ask(&h, &setup));
	token = h.session.message.token;
	for (int i = 0; i < 5; i++) {
		struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC,
						.cap = {.max_send_wr = 1,
							.max_recv_wr = 1,
							.max_send_sge = 1,
							.max_recv_sge = 1}};
		struct rdma_cm_id *id = perf_resolve(h.channel, port);
		struct cm_event event;

		hello.token = i == 0 ? token + 1 : token;
		hello.index = i == 1 ? 1 : i == 2 ? UINT16_MAX : 0;
		hello.id = i == 3 ? 2 : 1;
		perf_put_hello(bytes, &hello);
		if (i == 4)
			memset(bytes, 0xff, 4);
		ck_assert_int_eq(rdma_create_qp(id, h.session.buffers.pd, &attr), 0);
		ck_assert_int_eq(rdma_connect(id, &param), 0);
		perf_await(h.channel, RDMA_CM_EVENT_REJECTED, &event);
		rdma_destroy_qp(id);
		rdma_destroy_id(id);
	}
	ck_assert(hostile_ask(&h, &close));
	ck_assert_int_eq(h.session.message.say, PERF_CLOSED);
	hostile_end(&h);
	ck_assert_int_eq(perf_finish(&s), CLI_OK);
}
END_TEST

/* ---- in the middle of it ---- */

/* Bytes of the control connection that are no message: too short for a header, for anything. */
START_TEST(half_a_message)
{
	SGP_SGL(sgl, 1);
	struct sgp_chunk *chunk;
	struct hostile h;
	struct perf_end s;
	char line[1024];

	ck_assert_int_eq(sv_device_add("dev0", "soft", 1), 0);
	hostile_connect(&h, perf_start_server(&s, 0));
	chunk = sgp_pool_get(h.session.buffers.headers, WIRE_HEADER, 0);
	ck_assert_int_eq(sgp_sgl_append(&sgl, chunk, 0, _i ? WIRE_HEADER / 2 : 4), 0);
	if (_i)
		ck_assert_int_eq(sgp_flow_sendv(&h.session.conn.flow, NULL, &sgl, 0), 0);
	else
		ck_assert_int_eq(sgp_post_sendv(h.session.conn.ep, NULL, &sgl, 0), 0);
	ck_assert(perf_read_line(&s, line, sizeof line));
	ck_assert_msg(strstr(line, "shorter than its header") != NULL, "%s", line);
	hostile_end(&h);
	ck_assert_int_eq(perf_finish(&s), CLI_FAILED);
}
END_TEST

/* Set a test up, number 1; n of its connections. twist: what becomes of the first one's hello. */
static struct perf_test *hostile_test(struct hostile *h, uint16_t port, const struct perf_params *p,
				      uint32_t n, void (*twist)(uint8_t *bytes))
{
	const struct perf_message setup = {.say = PERF_SETUP, .id = 1, .params = *p};
	uint8_t bytes[PERF_DATA_HELLO];
	struct rdma_conn_param param;
	struct cm_event event;
	struct perf_test *t;
	char why[200];

	ck_assert(hostile_ask(h, &setup));
	ck_assert_int_eq(h->session.message.say, PERF_READY);
	t = perf_test_open(p, 1, true, h->session.buffers.pd, why, sizeof why);
	ck_assert_ptr_nonnull(t);
	t->token = h->session.message.token;
	h->session.test[0] = t;
	for (uint32_t i = 0; i < n; i++) {
		struct rdma_cm_id *id = perf_resolve(h->channel, port);

		ck_assert_int_eq(perf_link_open(t, i, id), 0);
		perf_link_param(&t->link[i], bytes, &param);
		if (twist && i == 0)
			twist(bytes);
		ck_assert_int_eq(rdma_connect(id, &param), 0);
		if (cm_wait(h->channel, -1, 60000, &event) != 1 ||
		    event.type != RDMA_CM_EVENT_ESTABLISHED)
			return NULL;
		perf_link_event(&t->link[i], &event);
		ck_assert_ptr_null(perf_link_greet(&t->link[i], event.data, event.length));
	}
	return t;
}

static void hostile_run(struct hostile *h, uint64_t n)
{
	const struct perf_message run = {.say = PERF_RUN, .id = 1, .count = n};

	ck_assert(hostile_ask(h, &run));
	ck_assert_int_eq(h->session.message.say, PERF_GO);
	h->session.has_message = false;
}

static void hostile_say(struct hostile *h, enum perf_say say, uint64_t count)
{
	const struct perf_message m = {.say = say, .id = 1, .count = count};

	ck_assert_int_eq(perf_session_say(&h->session, &m), 0);
}

/* A server, and a connection to it. Returns the port. */
static uint16_t hostile_begin(struct hostile *h, struct perf_end *server)
{
	uint16_t port;

	ck_assert_int_eq(sv_device_add("dev0", "soft", 1), 0);
	port = perf_start_server(server, 0);
	hostile_connect(h, port);
	return port;
}

/* What the server says of it. */
static void hostile_heard(const struct perf_end *server, const char *what)
{
	char line[1024];

	ck_assert(perf_read_line(server, line, sizeof line));
	ck_assert_msg(strstr(line, what) != NULL, "%s instead of %s", line, what);
}

static void no_flow(uint8_t *bytes)
{
	memset(bytes + PERF_HELLO_FLOW, 0, SGP_FLOW_HELLO);
}

static void short_receives(uint8_t *bytes)
{
	memset(bytes + PERF_HELLO_FLOW + SGP_FLOW_HELLO - 4, 0, 3); /* bytes, of 32 bits */
}

static void short_memory(uint8_t *bytes)
{
	memset(bytes + PERF_DATA_HELLO - 4, 0, 4);
}

static void another_key(uint8_t *bytes)
{
	memset(bytes + PERF_DATA_HELLO - 8, 0x5a, 4);
}

/* What it says of itself when it connects for a test, and what the server says to that. */
static const struct {
	void (*twist)(uint8_t *bytes);
	struct perf_params p;
	const char *why;
} hellos[] = {
	{no_flow, PARAMS(.size = 64, .tx = 8, .rx = 8), "no hello"},
	{short_receives, PARAMS(.size = 300, .tx = 8, .rx = 8), "its receives are too short"},
	{short_memory, PARAMS(.size = 64, .tx = 8, .rx = 8), "its memory is too short"},
	{short_memory, PARAMS(.op = PERF_WRITE, .mode = PERF_RAW, .size = 64, .tx = 8, .rx = 8),
	 "its memory is too short"},
	{another_key, PARAMS(.op = PERF_WRITE, .both = true, .size = 64, .tx = 8, .rx = 8),
	 "remote access error"},
	{another_key,
	 PARAMS(.op = PERF_READ, .mode = PERF_RAW, .both = true, .size = 64, .tx = 8, .rx = 8),
	 "remote access error"},
};

START_TEST(hostile_hello)
{
	struct hostile h;
	struct perf_end s;
	uint16_t port;

	port = hostile_begin(&h, &s);
	if (hostile_test(&h, port, &hellos[_i].p, 1, hellos[_i].twist))
		hostile_run(&h, 0);
	hostile_heard(&s, hellos[_i].why);
	hostile_end(&h);
	ck_assert_int_eq(perf_finish(&s), CLI_FAILED);
}
END_TEST

/* A message of another length, when both ways to count them are at work. */
START_TEST(another_length)
{
	const struct perf_params p =
		PARAMS(.mode = _i ? PERF_RAW : PERF_POOL, .size = 64, .tx = 8, .rx = 8);
	struct perf_test *t;
	struct hostile h;
	struct perf_end s;
	uint16_t port;

	port = hostile_begin(&h, &s);
	t = hostile_test(&h, port, &p, 1, NULL);
	ck_assert_ptr_nonnull(t);
	hostile_run(&h, 0);
	perf_send_bytes(&t->link[0], 32);
	hostile_heard(&s, "a message of another length");
	hostile_end(&h);
	ck_assert_int_eq(perf_finish(&s), CLI_FAILED);
}
END_TEST

/* It sends to and fro, so that the server has counted them, and says that it sent fewer. */
START_TEST(too_few)
{
	const struct perf_params p = PARAMS(.mode = _i ? PERF_RAW : PERF_POOL, .latency = true,
					    .size = 64, .tx = 8, .rx = 8);
	struct perf_test *t;
	struct hostile h;
	struct perf_end s;
	uint16_t port;

	port = hostile_begin(&h, &s);
	t = hostile_test(&h, port, &p, 1, NULL);
	ck_assert_ptr_nonnull(t);
	hostile_run(&h, 8);
	perf_test_run(t, 8);
	while (!perf_test_sent(t))
		ck_assert_int_eq(perf_session_turn(&h.session, 10), 0);
	hostile_say(&h, PERF_END, 3);
	hostile_heard(&s, "more messages came than it says it sent");
	hostile_end(&h);
	ck_assert_int_eq(perf_finish(&s), CLI_FAILED);
}
END_TEST

/* It goes without a word: at once, with a test, connected for one, in a run, and at its end. */
START_TEST(leaving)
{
	struct hostile h;
	struct perf_end s;
	uint16_t port;

	port = hostile_begin(&h, &s);
	if (_i > 0)
		ck_assert_ptr_nonnull(hostile_test(&h, port, &sane, _i > 1, NULL));
	if (_i > 2)
		hostile_run(&h, 0);
	if (_i > 3)
		hostile_say(&h, PERF_END, 100);
	hostile_end(&h);
	hostile_heard(&s, "\"event\": \"failed\"");
	ck_assert_int_eq(perf_finish(&s), CLI_FAILED);
}
END_TEST

/* ---- what never comes ---- */

/* All at once, as the server has to lose its patience with each: what it does before that, and why. */
static const struct {
	struct perf_params p;
	bool tests, runs, ends, silent;
	const char *why;
} idle[] = {
	{.p = PARAMS(.size = 64, .tx = 8, .rx = 8), .why = "it asks for nothing"},
	{.p = PARAMS(.size = 64, .tx = 8, .rx = 8), .tests = true, .why = "it asks for nothing"},
	{.p = PARAMS(.events = true, .size = 64, .tx = 8, .rx = 8),
	 .tests = true,
	 .runs = true,
	 .why = "it sends no more messages, nor an end"},
	{.p = PARAMS(.op = PERF_SEND, .latency = true, .events = true, .size = 64, .tx = 8,
		     .rx = 8),
	 .tests = true,
	 .runs = true,
	 .why = "it sends no more messages, nor an end"},
	{.p = PARAMS(.events = true, .size = 64, .tx = 8, .rx = 8),
	 .tests = true,
	 .runs = true,
	 .ends = true,
	 .why = "messages that it says it sent did not come"},
	{.p = PARAMS(.mode = PERF_RAW, .events = true, .size = 64, .tx = 8, .rx = 8),
	 .tests = true,
	 .runs = true,
	 .ends = true,
	 .why = "messages that it says it sent did not come"},
	/* Of WRITEs nothing shows at the server, which is patient with who gives signs of life. */
	{.p = PARAMS(.op = PERF_WRITE, .size = 64, .tx = 8, .rx = 8),
	 .tests = true,
	 .runs = true,
	 .silent = true,
	 .why = "the other end has been silent for too long"},
};

enum {
	IDLE = sizeof idle / sizeof *idle
};

START_TEST(idleness)
{
	struct perf_end s[IDLE];
	struct hostile h[IDLE];
	uint16_t port;
	int alive;

	ck_assert_int_eq(sv_device_add("dev0", "soft", 1), 0);
	for (int i = 0; i < IDLE; i++) {
		port = perf_start_server(&s[i], perf_impatience());
		hostile_connect(&h[i], port);
		if (idle[i].tests)
			ck_assert_ptr_nonnull(hostile_test(&h[i], port, &idle[i].p, 1, NULL));
		if (idle[i].runs)
			hostile_run(&h[i], 0);
		if (idle[i].ends)
			hostile_say(&h[i], PERF_END, 100);
		for (int k = 0; k < i; k++) /* nor are they silent meanwhile */
			if (!idle[k].silent)
				perf_session_turn(&h[k].session, 0);
	}
	do { /* they give signs of life */
		alive = 0;
		for (int i = 0; i < IDLE; i++)
			alive += !idle[i].silent && !perf_session_turn(&h[i].session, 10);
	} while (alive);
	for (int i = 0; i < IDLE; i++) {
		hostile_heard(&s[i], idle[i].why);
		hostile_end(&h[i]);
		ck_assert_int_eq(perf_finish(&s[i]), CLI_FAILED);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("perf's hostile clients");
	TCase *tc = tcase_create("hostile");

	tcase_add_checked_fixture(tc, ends_setup, ends_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, hostile_client, 0, sizeof lies / sizeof *lies);
	tcase_add_test(tc, hostile_link);
	tcase_add_loop_test(tc, half_a_message, 0, 2);
	tcase_add_loop_test(tc, hostile_hello, 0, sizeof hellos / sizeof *hellos);
	tcase_add_loop_test(tc, another_length, 0, 2);
	tcase_add_loop_test(tc, too_few, 0, 2);
	tcase_add_loop_test(tc, leaving, 0, 5);
	tcase_add_test(tc, idleness);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
