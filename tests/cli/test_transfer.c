/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Both ends of a transfer in one process, each in a thread, on softverbs: what send and recv do
 * with files of all sizes, with calls that fail, and with ends that go away.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/client.h"
#include "cli/server.h"
#include "cli/transfer.h"
#include "sgpool/softverbs.h"

static char directory[] = "/tmp/sgpool-test-XXXXXX";
static char in[64], out[64];

/* One end in its thread: what it was asked, what it wrote, and how it ended. */
struct end {
	struct server_options server;
	struct client_options client;
	pthread_t thread;
	int results; /* what it writes can be read here */
	int status;
};

static void *run_server(void *arg)
{
	struct end *e = arg;

	e->status = server_run(&e->server);
	fclose(e->server.out);
	return NULL;
}

static void *run_client(void *arg)
{
	struct end *e = arg;

	e->status = client_run(&e->client);
	fclose(e->client.out);
	return NULL;
}

static FILE *open_results(struct end *e)
{
	int fds[2];

	ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
	e->results = fds[0];
	return fdopen(fds[1], "w");
}

/* Read one line of results. Returns false at their end. */
static bool read_line(const struct end *e, char *line, size_t size)
{
	size_t n = 0;

	while (n + 1 < size && read(e->results, line + n, 1) == 1)
		if (line[n++] == '\n')
			break;
	line[n] = 0;
	return n > 0;
}

/* Start a receiver. Returns the port that it listens on; 0 if it failed before. */
static uint16_t start_server(struct end *e, bool once)
{
	char line[512];
	const char *port;

	e->server = (struct server_options){.name = "recv",
					    .path = out,
					    .addr = {.host = "127.0.0.1"},
					    .once = once,
					    .json = true,
					    .out = open_results(e)};
	ck_assert_int_eq(pthread_create(&e->thread, NULL, run_server, e), 0);
	if (!read_line(e, line, sizeof line))
		return 0;
	port = strstr(line, "\"port\": ");
	ck_assert_ptr_nonnull(port);
	return (uint16_t)atoi(port + 8);
}

static void start_client(struct end *e, uint16_t port)
{
	e->client = (struct client_options){.name = "send",
					    .path = in,
					    .addr = {.host = "127.0.0.1", .port = port},
					    .json = true,
					    .out = open_results(e)};
	ck_assert_int_eq(pthread_create(&e->thread, NULL, run_client, e), 0);
}

static int finish(struct end *e)
{
	pthread_join(e->thread, NULL);
	close(e->results);
	return e->status;
}

static void write_file(const char *path, size_t size)
{
	unsigned char *data = malloc(size + 1);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	uint32_t x = (uint32_t)size + 1;

	for (size_t i = 0; i < size; i++) {
		x = x * 1664525 + 1013904223;
		data[i] = (unsigned char)(x >> 24);
	}
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, data, size), (ssize_t)size);
	close(fd);
	free(data);
}

static bool same_file(const char *a, const char *b)
{
	char command[160];

	snprintf(command, sizeof command, "cmp -s %s %s", a, b);
	return system(command) == 0;
}

/* Nothing but the two files is in the directory: nothing half-written. */
static bool is_clean(void)
{
	char command[160];

	snprintf(command, sizeof command, "test -z \"$(ls -A %s | grep -v -x -e in -e out)\"",
		 directory);
	return system(command) == 0;
}

static void check_no_leak(void)
{
	static const enum sv_counter what[] = {SV_PDS, SV_MRS,    SV_CHANNELS,    SV_CQS,
					       SV_QPS, SV_CM_IDS, SV_CM_CHANNELS, SV_CM_EVENTS};

	for (size_t i = 0; i < sizeof what / sizeof *what; i++)
		ck_assert_msg(sv_live(what[i]) == 0, "%d of counter %d are left", sv_live(what[i]),
			      what[i]);
}

static void setup(void)
{
	sigset_t set;

	/* The ends' threads take signals that are sent to them through descriptors. */
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	ck_assert_int_eq(pthread_sigmask(SIG_BLOCK, &set, NULL), 0);
	ck_assert_ptr_nonnull(mkdtemp(directory));
	snprintf(in, sizeof in, "%s/in", directory);
	snprintf(out, sizeof out, "%s/out", directory);
}

static void teardown(void)
{
	unlink(in);
	unlink(out);
	ck_assert_int_eq(rmdir(directory), 0);
	memcpy(directory + strlen(directory) - 6, "XXXXXX", 6);
	check_no_leak();
}

static const char *const personas[] = {"soft", "rxe"};

START_TEST(sizes)
{
	static const size_t size[] = {0,
				      1,
				      4095,
				      4096,
				      4097,
				      TRANSFER_CHUNK - 1,
				      TRANSFER_CHUNK,
				      TRANSFER_CHUNK + 1,
				      TRANSFER_PAYLOAD - 1,
				      TRANSFER_PAYLOAD,
				      TRANSFER_PAYLOAD + 1,
				      (1 << 20) + 1,
				      TRANSFER_PAYLOAD * TRANSFER_MESSAGES,
				      (32 << 20) + 12345};
	char line[1024];

	ck_assert_int_eq(sv_device_add("dev0", personas[_i], 1), 0);
	for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
		struct end s, c;
		char bytes[32];

		write_file(in, size[i]);
		unlink(out);
		start_client(&c, start_server(&s, true));
		snprintf(bytes, sizeof bytes, "\"bytes\": %zu,", size[i]);
		for (int k = 0; k < 2; k++) {
			ck_assert(read_line(k ? &s : &c, line, sizeof line));
			ck_assert_ptr_nonnull(strstr(line, bytes));
			ck_assert_ptr_nonnull(strstr(line, "\"match\": true"));
			ck_assert_ptr_nonnull(strstr(line, "\"registrations\": 0}"));
		}
		ck_assert_int_eq(finish(&c), CLI_OK);
		ck_assert_int_eq(finish(&s), CLI_OK);
		ck_assert(same_file(in, out));
		ck_assert(is_clean());
		check_no_leak();
	}
}
END_TEST

/* One receiver, many senders, one after the other: nothing is registered anew. */
START_TEST(many)
{
	struct end s, c;
	uint64_t registrations;
	uint16_t port;

	ck_assert_int_eq(sv_device_add("dev0", personas[_i], 1), 0);
	port = start_server(&s, false);
	registrations = sv_total(SV_MRS);
	for (int i = 0; i < 20; i++) {
		write_file(in, (size_t)i * 100000);
		start_client(&c, port);
		ck_assert_int_eq(finish(&c), CLI_OK);
		ck_assert(same_file(in, out));
	}
	/* Those of each sender: as many as the receiver's, of which there were as many before. */
	ck_assert_uint_eq(sv_total(SV_MRS) - registrations, 20 * registrations);
	pthread_kill(s.thread, SIGTERM);
	ck_assert_int_eq(finish(&s), CLI_OK);
	ck_assert(is_clean());
}
END_TEST

/* An end that is told to stop midway tells the other one; the old file stays. */
START_TEST(interrupted)
{
	struct end s, c, *victim;
	char old[64];
	int fd;

	ck_assert_int_eq(sv_device_add("dev0", personas[_i / 2], 1), 0);
	write_file(out, 100);
	snprintf(old, sizeof old, "%s.old", directory);
	write_file(old, 100);
	ck_assert_int_eq(mkfifo(in, 0600), 0);
	start_client(&c, start_server(&s, true));
	fd = open(in, O_WRONLY | O_CLOEXEC);
	for (int i = 0; i < 20; i++) /* a pipe that doesn't end */
		ck_assert_int_eq(write(fd, personas, sizeof personas), sizeof personas);
	victim = _i % 2 ? &s : &c;
	/* The receiver may not have heard of the sender yet; it ends with 1 all the same. */
	pthread_kill(victim->thread, SIGTERM);
	if (victim == &c) {
		ck_assert_int_eq(finish(&c), CLI_FAILED);
		pthread_kill(s.thread, SIGTERM);
		ck_assert_int_eq(finish(&s), CLI_FAILED);
	} else {
		ck_assert_int_eq(finish(&s), CLI_FAILED);
		ck_assert_int_eq(finish(&c), CLI_FAILED);
	}
	close(fd);
	ck_assert(same_file(out, old));
	ck_assert(is_clean());
	unlink(old);
}
END_TEST

/* A second sender is refused while one is served. */
START_TEST(busy)
{
	struct end s, first, second;
	char fifo[64], file[64];
	uint64_t accepted;
	uint16_t port;
	int fd;

	ck_assert_int_eq(sv_device_add("dev0", "soft", 1), 0);
	snprintf(file, sizeof file, "%s", in);
	snprintf(fifo, sizeof fifo, "%s.fifo", directory);
	ck_assert_int_eq(mkfifo(fifo, 0600), 0);
	write_file(file, 1000);
	accepted = sv_calls("accept");
	port = start_server(&s, true);
	snprintf(in, sizeof in, "%s", fifo);
	start_client(&first, port);
	fd = open(fifo, O_WRONLY | O_CLOEXEC);
	/* It has been read, so the first one is connected; a pipe takes 64 KiB ahead. */
	for (int i = 0; i < 100; i++)
		ck_assert_int_eq(write(fd, file, sizeof file), sizeof file);
	while (sv_calls("accept") == accepted)
		usleep(1000);
	snprintf(in, sizeof in, "%s", file);
	start_client(&second, port);
	ck_assert_int_eq(finish(&second), CLI_FAILED);
	close(fd);
	ck_assert_int_eq(finish(&first), CLI_OK);
	ck_assert_int_eq(finish(&s), CLI_OK);
	unlink(fifo);
	ck_assert(is_clean());
}
END_TEST

/*
 * Call number N of each kind fails, N = 0, 1, 2 ...: the ends end, with a file that is whole or
 * with none, and leave nothing behind.
 */
static const char *const calls[] = {
	"alloc_pd",      "reg_mr",       "create_comp_channel", "create_cq",           "create_id",
	"bind_addr",     "listen",       "resolve_addr",        "resolve_route",       "connect",
	"accept",        "create_qp",    "post_recv",           "post_send",           "poll_cq",
	"req_notify_cq", "query_device", "query_port",          "create_event_channel"};

START_TEST(faults)
{
	const char *call = calls[_i];
	bool struck = true;

	ck_assert_int_eq(sv_device_add("dev0", "soft", 1), 0);
	write_file(in, 1 << 20);
	for (uint64_t n = 0; struck; n = n < 8 ? n + 1 : 2 * n) {
		struct end s, c;
		uint16_t port;
		int status = CLI_FAILED;

		unlink(out);
		ck_assert_int_eq(sv_fail_nth(call, n, ENOMEM), 0);
		port = start_server(&s, true);
		if (port) {
			start_client(&c, port);
			status = finish(&c);
			if (status != CLI_OK) /* it may not have come as far as the receiver */
				pthread_kill(s.thread, SIGTERM);
		}
		if (finish(&s) == CLI_OK)
			ck_assert(same_file(in, out));
		else
			ck_assert_int_ne(access(out, F_OK), 0);
		if (status == CLI_OK)
			ck_assert(same_file(in, out));
		ck_assert(is_clean());
		check_no_leak();
		struck = sv_failed(call);
		sv_faults_clear();
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("transfer");
	TCase *tc = tcase_create("transfer");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, sizes, 0, 2);
	tcase_add_loop_test(tc, many, 0, 2);
	tcase_add_loop_test(tc, interrupted, 0, 4);
	tcase_add_test(tc, busy);
	tcase_add_loop_test(tc, faults, 0, sizeof calls / sizeof *calls);
	suite_add_tcase(suite, tc);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
