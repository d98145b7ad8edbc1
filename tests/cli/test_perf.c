/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Client and server of sgpool perf in one process, each in a thread, on softverbs: all operations in
 * all modes, what they print, calls that fail, and peers that nobody wrote in good faith.
 */
#include <check.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../suite.h"
#include "ends.h"

#include "cli/cli.h"
#include "cli/perf_client.h"
#include "cli/perf_server.h"
#include "cli/perf_session.h"
#include "sgpool/softverbs.h"

struct perf_end {
	struct perf_server_options server;
	struct perf_client_options client;
	pthread_t thread;
	int results, status;
};

static void *run_server(void *arg)
{
	struct perf_end *e = arg;

	e->status = perf_server_run(&e->server);
	fclose(e->server.out);
	return NULL;
}

static void *run_client(void *arg)
{
	struct perf_end *e = arg;

	e->status = perf_client_run(&e->client);
	fclose(e->client.out);
	return NULL;
}

static FILE *open_results(struct perf_end *e)
{
	int fds[2];

	ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
	e->results = fds[0];
	return fdopen(fds[1], "w");
}

static bool read_line(const struct perf_end *e, char *line, size_t size)
{
	const struct end as_end = {.results = e->results};

	return end_read_line(&as_end, line, size);
}

/* Start a server of one client. Returns the port. */
static uint16_t start_server(struct perf_end *e)
{
	char line[512];
	const char *port;

	e->server = (struct perf_server_options){.name = "perf",
						 .addr = {.host = "127.0.0.1"},
						 .once = true,
						 .json = true,
						 .out = open_results(e)};
	ck_assert_int_eq(pthread_create(&e->thread, NULL, run_server, e), 0);
	ck_assert(read_line(e, line, sizeof line));
	port = strstr(line, "\"port\": ");
	ck_assert_ptr_nonnull(port);
	return (uint16_t)atoi(port + 8);
}

static struct perf_client_options options(const struct perf_params *p, uint32_t size)
{
	return (struct perf_client_options){.name = "perf",
					    .addr = {.host = "127.0.0.1"},
					    .params = *p,
					    .sizes = {size},
					    .nsizes = 1,
					    .iterations = 100,
					    .rounds = 3,
					    .json = true};
}

static void start_client(struct perf_end *e, const struct perf_client_options *o, uint16_t port)
{
	e->client = *o;
	e->client.addr.port = port;
	e->client.out = open_results(e);
	ck_assert_int_eq(pthread_create(&e->thread, NULL, run_client, e), 0);
}

static int finish(struct perf_end *e)
{
	pthread_join(e->thread, NULL);
	close(e->results);
	return e->status;
}

static uint64_t number(const char *line, const char *key)
{
	char quoted[64];
	const char *at;

	snprintf(quoted, sizeof quoted, "\"%s\": ", key);
	at = strstr(line, quoted);
	ck_assert_msg(at != NULL, "no %s in %s", key, line);
	return strtoull(at + strlen(quoted), NULL, 10);
}

/* ---- what is measured ---- */

#define PARAMS(...)                                                                                \
	{                                                                                          \
		.sges = 1, .conns = 1, .threads = 1, __VA_ARGS__                                   \
	}

static const struct {
	struct perf_params p;
	uint32_t size;
	const char *persona;
} cases[] = {
	{PARAMS(.op = PERF_SEND), 16, "soft"},
	{PARAMS(.op = PERF_SEND), 4096, "rxe"},
	{PARAMS(.op = PERF_SEND), 65536, "siw"},
	{PARAMS(.op = PERF_SEND, .latency = true), 64, "soft"},
	{PARAMS(.op = PERF_SEND, .latency = true, .events = true), 64, "soft"},
	{PARAMS(.op = PERF_SEND, .both = true), 4096, "soft"},
	{PARAMS(.op = PERF_SEND, .both = true, .events = true), 64, "siw"},
	{PARAMS(.op = PERF_SEND, .tx = 2, .rx = 3), 64, "soft"},
	{PARAMS(.op = PERF_SEND, .tx = 16, .rx = 2, .both = true), 64, "rxe"},
	{PARAMS(.op = PERF_SEND, .inlined = 64), 64, "soft"},
	{{.op = PERF_SEND, .sges = 4, .conns = 3, .threads = 2}, 4096, "soft"},
	{{.op = PERF_SEND, .sges = 2, .conns = 2, .threads = 2, .latency = true}, 64, "soft"},
	{PARAMS(.op = PERF_WRITE), 64, "rxe"},
	{PARAMS(.op = PERF_WRITE), 65536, "siw"},
	{PARAMS(.op = PERF_WRITE, .latency = true), 64, "soft"},
	{PARAMS(.op = PERF_WRITE, .latency = true, .inlined = 64), 64, "siw"},
	{PARAMS(.op = PERF_WRITE, .both = true), 4096, "soft"},
	{PARAMS(.op = PERF_READ), 64, "soft"},
	{PARAMS(.op = PERF_READ), 65536, "siw"},
	{PARAMS(.op = PERF_READ, .latency = true), 64, "rxe"},
	{PARAMS(.op = PERF_READ, .both = true), 4096, "soft"},
};

enum {
	CASES = sizeof cases / sizeof *cases
};

static void check_result(const char *line, const struct perf_params *p, uint32_t size)
{
	const uint64_t n = UINT64_C(100) * p->conns * (p->both ? 2 : 1);
	const bool inlined = p->op != PERF_READ && size <= p->inlined;
	const bool registers = p->mode == PERF_REGISTER && !inlined;
	uint64_t made = number(line, "registrations") + number(line, "peer_registrations");

	ck_assert_msg(strstr(line, "\"event\": \"result\"") != NULL, "%s", line);
	ck_assert_uint_eq(number(line, "size"), size);
	ck_assert_uint_eq(number(line, "messages"), n);
	/* The other end answers with messages of its own. */
	ck_assert_uint_eq(made, !registers ? 0 : p->latency && p->op != PERF_READ ? 2 * n : n);
	ck_assert_uint_gt(number(line, "bytes_per_second"), 0);
	ck_assert_int_eq(strstr(line, "\"latency_us\": {\"min\": ") != NULL, p->latency);
}

START_TEST(modes)
{
	const int which = _i / PERF_MODES;
	struct perf_params p = cases[which].p;
	const uint32_t size = cases[which].size;
	struct perf_client_options o;
	struct perf_end s, c;
	char line[2048];

	p.mode = (enum perf_mode)(_i % PERF_MODES);
	o = options(&p, size);
	ck_assert_int_eq(sv_device_add("dev0", cases[which].persona, 1), 0);
	start_client(&c, &o, start_server(&s));
	ck_assert(read_line(&c, line, sizeof line));
	ck_assert_msg(strstr(line, "\"event\": \"connected\"") != NULL, "%s", line);
	ck_assert(read_line(&c, line, sizeof line));
	check_result(line, &p, size);
	ck_assert(!read_line(&c, line, sizeof line));
	ck_assert_int_eq(finish(&c), CLI_OK);
	ck_assert(read_line(&s, line, sizeof line));
	ck_assert_msg(strstr(line, "\"event\": \"served\"") != NULL, "%s", line);
	ck_assert_uint_eq(number(line, "tests"), 1);
	ck_assert_int_eq(finish(&s), CLI_OK);
}
END_TEST

/* Some sizes, all modes in turn. */
START_TEST(compare)
{
	const struct perf_params p = PARAMS(.latency = _i == 1);
	struct perf_client_options o = options(&p, 64);
	struct perf_end s, c;
	char line[2048];

	o.sizes[1] = 4096;
	o.nsizes = 2;
	o.iterations = 20; /* a round trip of threads that spin may take a slice of time */
	o.compare = true;
	ck_assert_int_eq(sv_device_add("dev0", "soft", 1), 0);
	start_client(&c, &o, start_server(&s));
	ck_assert(read_line(&c, line, sizeof line)); /* connected */
	for (uint32_t i = 0; i < o.nsizes; i++) {
		static const char *const names[] = {"pool", "register", "raw"};

		for (int mode = 0; mode < PERF_MODES; mode++) {
			char wanted[40];

			snprintf(wanted, sizeof wanted, "\"mode\": \"%s\"", names[mode]);
			ck_assert(read_line(&c, line, sizeof line));
			ck_assert_msg(strstr(line, wanted) != NULL, "%s", line);
			ck_assert_uint_eq(number(line, "size"), o.sizes[i]);
			ck_assert_uint_eq(number(line, "rounds"), 3);
			ck_assert_uint_eq(number(line, "messages"), 60);
		}
		ck_assert(read_line(&c, line, sizeof line));
		ck_assert_msg(strstr(line, "\"event\": \"comparison\"") != NULL, "%s", line);
		ck_assert_ptr_nonnull(strstr(line, "\"x_register\": "));
		ck_assert_ptr_nonnull(strstr(line, "\"x_raw\": "));
	}
	ck_assert_int_eq(finish(&c), CLI_OK);
	ck_assert_int_eq(finish(&s), CLI_OK);
}
END_TEST

/* For a time instead of a number: both ends agree on how many there were. */
START_TEST(duration)
{
	const struct perf_params p = PARAMS(.both = _i == 1);
	struct perf_client_options o = options(&p, 4096);
	struct perf_end s, c;
	char line[2048];

	o.iterations = 0;
	o.duration_ns = 100000000;
	ck_assert_int_eq(sv_device_add("dev0", "soft", 1), 0);
	start_client(&c, &o, start_server(&s));
	ck_assert(read_line(&c, line, sizeof line)); /* connected */
	ck_assert(read_line(&c, line, sizeof line));
	ck_assert_uint_gt(number(line, "messages"), 0);
	ck_assert_int_eq(finish(&c), CLI_OK);
	ck_assert_int_eq(finish(&s), CLI_OK);
}
END_TEST

/* ---- calls that fail ---- */

static const struct {
	const char *call, *error;
	enum perf_mode mode;
} failing[] = {
	{"alloc_pd", "EIO", PERF_POOL},     {"reg_mr", "ENOMEM", PERF_POOL},
	{"create_cq", "EINVAL", PERF_POOL}, {"create_qp", "ENOMEM", PERF_POOL},
	{"post_recv", "EIO", PERF_RAW},     {"reg_mr", "ENOMEM", PERF_REGISTER},
	{"create_cq", "EINVAL", PERF_RAW},  {"create_qp", "ENOMEM", PERF_RAW},
	{"post_send", "EIO", PERF_RAW},     {"post_send", "EIO", PERF_POOL},
	{"poll_cq", "EIO", PERF_POOL},      {"accept", "ENOMEM", PERF_POOL},
	{"connect", "ENOMEM", PERF_POOL},
};

enum {
	FAILING = sizeof failing / sizeof *failing,
	CALLS = 4, /* each of the first calls */
};

/* Whatever fails, at whichever end: both come to an end, the client says so, and nothing is left. */
START_TEST(failures)
{
	const struct perf_params p = PARAMS(.mode = failing[_i / CALLS].mode);
	const struct perf_client_options o = options(&p, 64);
	struct perf_end s, c;
	char fault[80], line[2048];
	int results = 0;

	ck_assert_int_eq(sv_device_add("dev0", "soft", 1), 0);
	const uint16_t port = start_server(&s);

	snprintf(fault, sizeof fault, "%s fail %s at %d", failing[_i / CALLS].call,
		 failing[_i / CALLS].error, _i % CALLS + 1);
	ck_assert_int_eq(sv_faults(fault, NULL), 0);
	start_client(&c, &o, port);
	while (read_line(&c, line, sizeof line))
		results += strstr(line, "\"event\": \"result\"") != NULL;
	ck_assert_int_eq(finish(&c), results ? CLI_OK : CLI_FAILED);
	sv_faults_clear();
	/* A client that failed before it came to the server has left it waiting. */
	ck_assert_int_eq(pthread_kill(s.thread, SIGTERM), 0);
	finish(&s);
}
END_TEST

/* ---- peers in bad faith ---- */

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

static void await_event(struct hostile *h, enum rdma_cm_event_type type, struct cm_event *event)
{
	ck_assert_int_eq(cm_wait(h->channel, -1, 10000, event), 1);
	ck_assert_msg(event->type == type, "%s instead of %s", rdma_event_str(event->type),
		      rdma_event_str(type));
}

static struct rdma_cm_id *resolve(struct hostile *h, uint16_t port)
{
	struct sockaddr_in sin = {.sin_family = AF_INET,
				  .sin_port = htons(port),
				  .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
	struct rdma_cm_id *id;
	struct cm_event event;

	ck_assert_int_eq(rdma_create_id(h->channel, &id, NULL, RDMA_PS_TCP), 0);
	ck_assert_int_eq(rdma_resolve_addr(id, NULL, (struct sockaddr *)&sin, 1000), 0);
	await_event(h, RDMA_CM_EVENT_ADDR_RESOLVED, &event);
	ck_assert_int_eq(rdma_resolve_route(id, 1000), 0);
	await_event(h, RDMA_CM_EVENT_ROUTE_RESOLVED, &event);
	return id;
}

/* A client's control connection. */
static void hostile_connect(struct hostile *h, uint16_t port)
{
	struct rdma_conn_param param;
	uint8_t hello[WIRE_HELLO];
	struct cm_event event;

	*h = (struct hostile){.channel = cm_open()};
	h->session = (struct perf_session){
		.channel = h->channel, .signal_fd = -1, .client = true, .others = no_event};
	h->id = resolve(h, port);
	ck_assert_int_eq(perf_session_open(&h->session, h->id, "hostile"), 0);
	conn_param(&h->session.conn, hello, &param);
	ck_assert_int_eq(rdma_connect(h->id, &param), 0);
	await_event(h, RDMA_CM_EVENT_ESTABLISHED, &event);
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
	hostile_connect(&h, start_server(&s));
	if (lies[_i].set_up) {
		ck_assert(hostile_ask(&h, &setup));
		ck_assert_int_eq(h.session.message.say, PERF_READY);
	}
	ck_assert(!hostile_ask(&h, &lies[_i].m));
	ck_assert(read_line(&s, line, sizeof line));
	ck_assert_msg(strstr(line, lies[_i].why) != NULL, "%s", line);
	hostile_end(&h);
	ck_assert_int_eq(finish(&s), CLI_FAILED);
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
	port = start_server(&s);
	hostile_connect(&h, port);
	ck_assert(hostile_ask(&h, &setup));
	token = h.session.message.token;
	for (int i = 0; i < 5; i++) {
		struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC,
						.cap = {.max_send_wr = 1,
							.max_recv_wr = 1,
							.max_send_sge = 1,
							.max_recv_sge = 1}};
		struct rdma_cm_id *id = resolve(&h, port);
		struct cm_event event;

		hello.token = i == 0 ? token + 1 : token;
		hello.index = i == 1 ? 1 : i == 2 ? UINT16_MAX : 0;
		hello.id = i == 3 ? 2 : 1;
		perf_put_hello(bytes, &hello);
		if (i == 4)
			memset(bytes, 0xff, 4);
		ck_assert_int_eq(rdma_create_qp(id, h.session.buffers.pd, &attr), 0);
		ck_assert_int_eq(rdma_connect(id, &param), 0);
		await_event(&h, RDMA_CM_EVENT_REJECTED, &event);
		rdma_destroy_qp(id);
		rdma_destroy_id(id);
	}
	ck_assert(hostile_ask(&h, &close));
	ck_assert_int_eq(h.session.message.say, PERF_CLOSED);
	hostile_end(&h);
	ck_assert_int_eq(finish(&s), CLI_OK);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("perf");
	TCase *tc = tcase_create("perf");

	tcase_add_checked_fixture(tc, ends_setup, ends_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, modes, 0, CASES * PERF_MODES);
	tcase_add_loop_test(tc, compare, 0, 2);
	tcase_add_loop_test(tc, duration, 0, 2);
	tcase_add_loop_test(tc, failures, 0, FAILING * CALLS);
	tcase_add_loop_test(tc, hostile_client, 0, sizeof lies / sizeof *lies);
	tcase_add_test(tc, hostile_link);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
