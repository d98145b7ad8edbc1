/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The client of sgpool perf, and a server that lies to it: about what it did, out of turn, with
 * connections that are none, or by what never comes. The client ends, and tells why in one sentence.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../suite.h"
#include "ends.h"
#include "perf_liar.h"

#include "cli/cli.h"
#include "sgpool/softverbs.h"

/* ---- what the client says ---- */

static int errors = -1, kept = -1;

static void errors_keep(void)
{
	errors = memfd_create("errors", MFD_CLOEXEC);
	kept = dup(STDERR_FILENO);
	ck_assert_int_ge(errors, 0);
	ck_assert_int_ge(dup2(errors, STDERR_FILENO), 0);
}

/* From here on they go where they went before: what a sanitizer says is to be read. */
static void errors_take(char *text, size_t size)
{
	ssize_t n;

	ck_assert_int_ge(dup2(kept, STDERR_FILENO), 0);
	n = pread(errors, text, size - 1, 0);
	ck_assert_int_ge(n, 0);
	text[n] = 0;
	close(errors);
	close(kept);
}

static int lines(const char *text)
{
	int n = 0;

	for (; *text; text++)
		n += *text == '\n';
	return n;
}

/* ---- lies ---- */

static void other_answer(struct perf_message *m)
{
	m->say = m->say == PERF_GO ? PERF_READY : PERF_GO;
}

static void other_test(struct perf_message *m)
{
	m->id++;
}

static void clients_word(struct perf_message *m)
{
	m->say = PERF_RUN;
}

static void no_word(struct perf_message *m)
{
	m->say = 99;
}

static void failed_for_nothing(struct perf_message *m)
{
	*m = (struct perf_message){.say = PERF_FAILED, .id = m->id};
}

static void failed_for_memory(struct perf_message *m)
{
	*m = (struct perf_message){.say = PERF_FAILED, .id = m->id, .error = ENOMEM};
}

static void failed_below_zero(struct perf_message *m)
{
	*m = (struct perf_message){.say = PERF_FAILED, .id = m->id, .error = (uint32_t)-ENOMEM};
}

static void got_fewer(struct perf_message *m)
{
	m->figures.received--;
}

static void got_more(struct perf_message *m)
{
	m->figures.received++;
}

static void sent_fewer(struct perf_message *m)
{
	m->figures.sent--;
}

static void sent_more(struct perf_message *m)
{
	m->figures.sent++;
}

static void huge(struct perf_message *m)
{
	m->figures.sent = UINT64_MAX;
}

static void below_zero(struct perf_message *m)
{
	m->figures.ns = (uint64_t)-1;
}

static void all_day(struct perf_message *m)
{
	m->figures.ns = UINT64_C(86400000000000);
}

static void all_processors(struct perf_message *m)
{
	m->figures.cpu_ns = UINT64_C(86400000000000);
}

static void registered(struct perf_message *m)
{
	m->figures.registrations = UINT64_C(1) << 40;
}

static void other_token(uint8_t *bytes)
{
	bytes[12] ^= 1;
}

static void no_hello(uint8_t *bytes)
{
	memset(bytes, 0, PERF_DATA_HELLO);
}

static void no_flow(uint8_t *bytes)
{
	memset(bytes + PERF_HELLO_FLOW, 0, SGP_FLOW_HELLO);
}

static void no_memory(uint8_t *bytes)
{
	memset(bytes + PERF_DATA_HELLO - 4, 0, 4);
}

static void other_key(uint8_t *bytes)
{
	memset(bytes + PERF_DATA_HELLO - 8, 0x5a, 4);
}

#define SEND(...)  PARAMS(.tx = 8, .rx = 8, __VA_ARGS__)
#define WRITE(...) SEND(.op = PERF_WRITE, __VA_ARGS__)
#define ANSWER     "the other end broke the protocol: "

static const struct lie lies[] = {
	/* None, so that the others are for the reason that they give. */
	{PERF_RESULT, .p = SEND(.mode = PERF_POOL)},
	{PERF_RESULT, .p = SEND(.latency = true)},
	{PERF_RESULT, .p = WRITE(.both = true)},
	/* Out of turn, or not to be understood. */
	{PERF_READY, .twist = other_answer, .p = SEND(), .said = ANSWER "another answer"},
	{PERF_GO, .twist = other_answer, .p = SEND(), .said = ANSWER "another answer"},
	{PERF_RESULT, .twist = other_answer, .p = SEND(), .said = ANSWER "another answer"},
	{PERF_CLOSED, .twist = other_test, .p = SEND(), .said = ANSWER "another answer"},
	{PERF_GO, .twist = clients_word, .p = SEND(), .said = "the other end's"},
	{PERF_GO, .twist = no_word, .p = SEND(), .said = ANSWER "a message of unknown sort"},
	{PERF_READY, TWICE, .p = SEND(), .said = ANSWER "an answer to no question"},
	{PERF_GO, TWICE, .p = SEND(), .said = ANSWER "an answer to no question"},
	{PERF_GO, HALF, .p = SEND(), .said = ANSWER "a message shorter than its header"},
	{PERF_READY, .twist = failed_for_nothing, .p = SEND(), .said = ANSWER "a failure without"},
	{PERF_READY, .twist = failed_below_zero, .p = SEND(), .said = ANSWER "a failure without"},
	{PERF_READY, .twist = failed_for_memory, .p = SEND(),
	 .said = "can't set the test up: out of"},
	/* Gone. */
	{PERF_READY, LEAVE, .p = SEND(), .said = "the other end went away"},
	{PERF_GO, LEAVE, .p = SEND(), .said = "the other end went away"},
	{PERF_RESULT, LEAVE, .p = SEND(), .said = "the other end went away"},
	{PERF_CLOSED, LEAVE, .p = SEND(), .said = "the other end went away"},
	/* Connections. */
	{.trick = REFUSE, .p = SEND(), .said = "a connection of the test: "},
	{.twist_hello = no_hello, .p = SEND(), .said = "it is no connection of a test"},
	{.twist_hello = other_token, .p = SEND(), .said = "it is no connection of this test"},
	{.twist_hello = no_flow, .p = SEND(), .said = "is no hello"},
	{.twist_hello = no_memory, .p = SEND(), .said = "its memory is too short for the test"},
	{.twist_hello = no_memory, .p = WRITE(), .said = "its memory is too short for the test"},
	{.twist_hello = other_key, .p = SEND(), .said = "remote access error"},
	{.twist_hello = other_key, .p = WRITE(.mode = PERF_RAW), .said = "remote access error"},
	{PERF_GO, OTHER_LENGTH, .p = SEND(.both = true),
	 .said = ANSWER "a message of another length"},
	{PERF_GO, OTHER_LENGTH, .p = SEND(.both = true, .mode = PERF_RAW),
	 .said = ANSWER "a message of another length"},
	/* Results. */
	{PERF_RESULT, .twist = huge, .p = SEND(), .said = ANSWER "a result that can't be"},
	{PERF_RESULT, .twist = below_zero, .p = SEND(), .said = ANSWER "a result that can't be"},
	{PERF_RESULT, .twist = got_fewer, .p = SEND(), .said = "did not get as many messages"},
	{PERF_RESULT, .twist = got_more, .p = SEND(), .said = "did not get as many messages"},
	{PERF_RESULT, .twist = got_more, .p = WRITE(), .said = "did not get as many messages"},
	{PERF_RESULT, .twist = got_fewer, .p = SEND(.latency = true),
	 .said = "did not get as many"},
	{PERF_RESULT, .twist = sent_more, .p = WRITE(), .said = "sent what it was not asked to"},
	{PERF_RESULT, .twist = sent_more, .p = WRITE(.latency = true), .said = "was not asked to"},
	{PERF_RESULT, .twist = sent_fewer, .p = SEND(.latency = true), .said = "was not asked to"},
	{PERF_RESULT, .twist = sent_more, .p = WRITE(.both = true), .said = "as it was asked to"},
	{PERF_RESULT, .twist = sent_fewer, .p = SEND(.both = true), .said = "as it was asked to"},
	{PERF_RESULT, .twist = all_day, .p = SEND(.both = true),
	 .said = "longer than there was time"},
	{PERF_RESULT, .twist = all_processors, .p = SEND(), .said = "longer than there was time"},
	{PERF_RESULT, .twist = registered, .p = SEND(.mode = PERF_REGISTER),
	 .said = "registered more messages than it sent"},
};

static void check_said(const char *text, const struct lie *what, int status)
{
	ck_assert_int_eq(status, what->said ? CLI_FAILED : CLI_OK);
	ck_assert_msg(what->said ? strstr(text, what->said) != NULL : !*text,
		      "'%s' instead of '%s'", text, what->said ? what->said : "");
}

START_TEST(lying)
{
	const struct perf_client_options o = perf_options(&lies[_i].p, 64);
	struct perf_end c;
	struct liar l;
	char text[2048];
	int status;

	ck_assert_int_eq(sv_device_add("dev0", "soft", 1), 0);
	errors_keep();
	liar_start(&l, &lies[_i]);
	perf_start_client(&c, &o, l.port);
	if (lies[_i].trick == LEAVE) { /* that it does while the client waits */
		liar_end(&l);
		status = perf_finish(&c);
	} else {
		status = perf_finish(&c);
		liar_end(&l);
	}
	errors_take(text, sizeof text);
	check_said(text, &lies[_i], status);
	ck_assert_int_eq(lines(text), lies[_i].said ? 1 : 0);
}
END_TEST

/* ---- what never comes ---- */

/* All at once, as the client has to lose its patience with each. */
static const struct lie idle[] = {
	{PERF_READY, MUTE, .p = SEND(), .said = "lives, but does not answer"},
	{PERF_GO, MUTE, .p = WRITE(), .said = "lives, but does not answer"},
	{PERF_RESULT, MUTE, .p = SEND(.events = true), .said = "lives, but does not answer"},
	{PERF_RESULT, MUTE, .p = WRITE(.both = true), .said = "lives, but does not answer"},
	{PERF_GO, SILENT, .p = SEND(), .said = "has been silent for too long"},
	{.trick = IGNORE, .p = SEND(), .said = "a connection of the test: it does not answer"},
	{.trick = KEEP_RECEIVES, .p = WRITE(), .said = "takes no message from us"},
	{.trick = IDLE, .p = SEND(.events = true), .said = "takes no more messages"},
	{.trick = IDLE,
	 .p = SEND(.events = true, .mode = PERF_RAW),
	 .said = "takes no more messages"},
	{.trick = IDLE,
	 .p = SEND(.events = true, .latency = true),
	 .said = "does not send messages back"},
	{PERF_RESULT, .twist = sent_more, .p = SEND(.events = true, .both = true),
	 .said = "messages that the other end says it sent did not come"},
	{PERF_RESULT, .twist = sent_more, .p = SEND(.events = true, .both = true, .mode = PERF_RAW),
	 .said = "messages that the other end says it sent did not come"},
};

enum {
	IDLES = sizeof idle / sizeof *idle
};

/* The line that the client of this liar has said. */
static void check_line(const char *text, const struct liar *l, int status)
{
	char port[32], line[512];
	const char *at;

	snprintf(port, sizeof port, " port %u: ", l->port);
	at = strstr(text, port);
	ck_assert_msg(at != NULL, "nothing of%sin %s", port, text);
	snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
	check_said(line, l->lie, status);
}

START_TEST(idleness)
{
	struct perf_client_options o;
	struct perf_end c[IDLES];
	struct liar l[IDLES];
	int status[IDLES];
	char text[4096];

	ck_assert_int_eq(sv_device_add("dev0", "soft", 1), 0);
	errors_keep();
	for (int i = 0; i < IDLES; i++) {
		o = perf_options(&idle[i].p, 64);
		o.timeout_ms = perf_impatience();
		o.sizes[o.nsizes++] = 128; /* so that more is asked than there are receives for */
		liar_start(&l[i], &idle[i]);
		perf_start_client(&c[i], &o, l[i].port);
	}
	for (int i = 0; i < IDLES; i++)
		status[i] = perf_finish(&c[i]);
	for (int i = 0; i < IDLES; i++)
		liar_end(&l[i]);
	errors_take(text, sizeof text);
	ck_assert_int_eq(lines(text), IDLES);
	for (int i = 0; i < IDLES; i++)
		check_line(text, &l[i], status[i]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("perf's lying server");
	TCase *tc = tcase_create("liar");

	tcase_add_checked_fixture(tc, ends_setup, ends_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, lying, 0, sizeof lies / sizeof *lies);
	tcase_add_test(tc, idleness);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
