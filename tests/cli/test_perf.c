/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Client and server of sgpool perf in one process, each in a thread, on softverbs: all operations in
 * all modes, what they print, and calls that fail.
 */
#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "../suite.h"
#include "ends.h"
#include "perf_ends.h"

#include "cli/cli.h"
#include "sgpool/softverbs.h"

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
	o = perf_options(&p, size);
	ck_assert_int_eq(sv_device_add("dev0", cases[which].persona, 1), 0);
	perf_start_client(&c, &o, perf_start_server(&s, 0));
	ck_assert(perf_read_line(&c, line, sizeof line));
	ck_assert_msg(strstr(line, "\"event\": \"connected\"") != NULL, "%s", line);
	ck_assert(perf_read_line(&c, line, sizeof line));
	check_result(line, &p, size);
	ck_assert(!perf_read_line(&c, line, sizeof line));
	ck_assert_int_eq(perf_finish(&c), CLI_OK);
	ck_assert(perf_read_line(&s, line, sizeof line));
	ck_assert_msg(strstr(line, "\"event\": \"served\"") != NULL, "%s", line);
	ck_assert_uint_eq(number(line, "tests"), 1);
	ck_assert_int_eq(perf_finish(&s), CLI_OK);
}
END_TEST

/* Some sizes, all modes in turn. */
START_TEST(compare)
{
	const struct perf_params p = PARAMS(.latency = _i == 1);
	struct perf_client_options o = perf_options(&p, 64);
	struct perf_end s, c;
	char line[2048];

	o.sizes[1] = 4096;
	o.nsizes = 2;
	o.iterations = 20; /* a round trip of threads that spin may take a slice of time */
	o.compare = true;
	ck_assert_int_eq(sv_device_add("dev0", "soft", 1), 0);
	perf_start_client(&c, &o, perf_start_server(&s, 0));
	ck_assert(perf_read_line(&c, line, sizeof line)); /* connected */
	for (uint32_t i = 0; i < o.nsizes; i++) {
		static const char *const names[] = {"pool", "register", "raw"};

		for (int mode = 0; mode < PERF_MODES; mode++) {
			char wanted[40];

			snprintf(wanted, sizeof wanted, "\"mode\": \"%s\"", names[mode]);
			ck_assert(perf_read_line(&c, line, sizeof line));
			ck_assert_msg(strstr(line, wanted) != NULL, "%s", line);
			ck_assert_uint_eq(number(line, "size"), o.sizes[i]);
			ck_assert_uint_eq(number(line, "rounds"), 3);
			ck_assert_uint_eq(number(line, "messages"), 60);
		}
		ck_assert(perf_read_line(&c, line, sizeof line));
		ck_assert_msg(strstr(line, "\"event\": \"comparison\"") != NULL, "%s", line);
		ck_assert_ptr_nonnull(strstr(line, "\"x_register\": "));
		ck_assert_ptr_nonnull(strstr(line, "\"x_raw\": "));
	}
	ck_assert_int_eq(perf_finish(&c), CLI_OK);
	ck_assert_int_eq(perf_finish(&s), CLI_OK);
}
END_TEST

/* For a time instead of a number: both ends agree on how many there were. */
START_TEST(duration)
{
	const struct perf_params p = PARAMS(.both = _i == 1);
	struct perf_client_options o = perf_options(&p, 4096);
	struct perf_end s, c;
	char line[2048];

	o.iterations = 0;
	o.duration_ns = 100000000;
	ck_assert_int_eq(sv_device_add("dev0", "soft", 1), 0);
	perf_start_client(&c, &o, perf_start_server(&s, 0));
	ck_assert(perf_read_line(&c, line, sizeof line)); /* connected */
	ck_assert(perf_read_line(&c, line, sizeof line));
	ck_assert_uint_gt(number(line, "messages"), 0);
	ck_assert_int_eq(perf_finish(&c), CLI_OK);
	ck_assert_int_eq(perf_finish(&s), CLI_OK);
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
	const struct perf_client_options o = perf_options(&p, 64);
	struct perf_end s, c;
	char fault[80], line[2048];
	int results = 0;

	ck_assert_int_eq(sv_device_add("dev0", "soft", 1), 0);
	const uint16_t port = perf_start_server(&s, 0);

	snprintf(fault, sizeof fault, "%s fail %s at %d", failing[_i / CALLS].call,
		 failing[_i / CALLS].error, _i % CALLS + 1);
	ck_assert_int_eq(sv_faults(fault, NULL), 0);
	perf_start_client(&c, &o, port);
	while (perf_read_line(&c, line, sizeof line))
		results += strstr(line, "\"event\": \"result\"") != NULL;
	ck_assert_int_eq(perf_finish(&c), results ? CLI_OK : CLI_FAILED);
	sv_faults_clear();
	/* A client that failed before it came to the server has left it waiting. */
	ck_assert_int_eq(pthread_kill(s.thread, SIGTERM), 0);
	perf_finish(&s);
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
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
