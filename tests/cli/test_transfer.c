/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Both ends of a transfer in one process, each in a thread, on softverbs: what send and recv do
 * with files of all sizes, with calls that fail, and with ends that go away.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../suite.h"
#include "ends.h"

#include "cli/async.h"
#include "cli/cli.h"
#include "cli/transfer.h"
#include "sgpool/softverbs.h"

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

		ends_write_file(ends_in, size[i]);
		unlink(ends_out);
		end_start_client(&c, end_start_server(&s, true));
		snprintf(bytes, sizeof bytes, "\"bytes\": %zu,", size[i]);
		for (int k = 0; k < 2; k++) {
			ck_assert(end_read_line(k ? &s : &c, line, sizeof line));
			ck_assert_ptr_nonnull(strstr(line, bytes));
			ck_assert_ptr_nonnull(strstr(line, "\"match\": true"));
			ck_assert_ptr_nonnull(strstr(line, "\"registrations\": 0}"));
		}
		ck_assert_int_eq(end_finish(&c), CLI_OK);
		ck_assert_int_eq(end_finish(&s), CLI_OK);
		ck_assert(ends_same_file(ends_in, ends_out));
		ck_assert(ends_clean());
		ends_check_no_leak();
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
	port = end_start_server(&s, false);
	registrations = sv_total(SV_MRS);
	for (int i = 0; i < 20; i++) {
		ends_write_file(ends_in, (size_t)i * 100000);
		end_start_client(&c, port);
		ck_assert_int_eq(end_finish(&c), CLI_OK);
		ck_assert(ends_same_file(ends_in, ends_out));
	}
	/* Those of each sender: as many as the receiver's, of which there were as many before. */
	ck_assert_uint_eq(sv_total(SV_MRS) - registrations, 20 * registrations);
	pthread_kill(s.thread, SIGTERM);
	ck_assert_int_eq(end_finish(&s), CLI_OK);
	ck_assert(ends_clean());
}
END_TEST

/* An end that is told to stop midway tells the other one; the old file stays. */
START_TEST(interrupted)
{
	struct end s, c, *victim;
	char old[64];
	int fd;

	ck_assert_int_eq(sv_device_add("dev0", personas[_i / 2], 1), 0);
	ends_write_file(ends_out, 100);
	snprintf(old, sizeof old, "%s.old", ends_directory);
	ends_write_file(old, 100);
	ck_assert_int_eq(mkfifo(ends_in, 0600), 0);
	end_start_client(&c, end_start_server(&s, true));
	fd = open(ends_in, O_WRONLY | O_CLOEXEC);
	for (int i = 0; i < 20; i++) /* a pipe that doesn't end */
		ck_assert_int_eq(write(fd, personas, sizeof personas), sizeof personas);
	victim = _i % 2 ? &s : &c;
	/* The receiver may not have heard of the sender yet; it ends with 1 all the same. */
	pthread_kill(victim->thread, SIGTERM);
	if (victim == &c) {
		ck_assert_int_eq(end_finish(&c), CLI_FAILED);
		pthread_kill(s.thread, SIGTERM);
		ck_assert_int_eq(end_finish(&s), CLI_FAILED);
	} else {
		ck_assert_int_eq(end_finish(&s), CLI_FAILED);
		ck_assert_int_eq(end_finish(&c), CLI_FAILED);
	}
	close(fd);
	ck_assert(ends_same_file(ends_out, old));
	ck_assert(ends_clean());
	unlink(old);
}
END_TEST

/* A second sender is refused while one is served. */
START_TEST(busy)
{
	struct end s, first, second;
	char fifo[64], file[64] = {0};
	uint64_t accepted;
	uint16_t port;
	int fd;

	ck_assert_int_eq(sv_device_add("dev0", "soft", 1), 0);
	snprintf(file, sizeof file, "%s", ends_in);
	snprintf(fifo, sizeof fifo, "%s.fifo", ends_directory);
	ck_assert_int_eq(mkfifo(fifo, 0600), 0);
	ends_write_file(file, 1000);
	accepted = sv_calls("accept");
	port = end_start_server(&s, true);
	snprintf(ends_in, sizeof ends_in, "%s", fifo);
	end_start_client(&first, port);
	fd = open(fifo, O_WRONLY | O_CLOEXEC);
	/* It has been read, so the first one is connected; a pipe takes 64 KiB ahead. */
	for (int i = 0; i < 100; i++)
		ck_assert_int_eq(write(fd, file, sizeof file), sizeof file);
	while (sv_calls("accept") == accepted)
		usleep(1000);
	snprintf(ends_in, sizeof ends_in, "%s", file);
	end_start_client(&second, port);
	ck_assert_int_eq(end_finish(&second), CLI_FAILED);
	close(fd);
	ck_assert_int_eq(end_finish(&first), CLI_OK);
	ck_assert_int_eq(end_finish(&s), CLI_OK);
	unlink(fifo);
	ck_assert(ends_clean());
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
	ends_write_file(ends_in, 1 << 20);
	for (uint64_t n = 0; struck; n = n < 8 ? n + 1 : 2 * n) {
		struct end s, c;
		uint16_t port;
		int status = CLI_FAILED;

		unlink(ends_out);
		ck_assert_int_eq(sv_fail_nth(call, n, ENOMEM), 0);
		port = end_start_server(&s, true);
		if (port) {
			end_start_client(&c, port);
			status = end_finish(&c);
			if (status != CLI_OK) /* it may not have come as far as the receiver */
				pthread_kill(s.thread, SIGTERM);
		}
		if (end_finish(&s) == CLI_OK)
			ck_assert(ends_same_file(ends_in, ends_out));
		else
			ck_assert_int_ne(access(ends_out, F_OK), 0);
		if (status == CLI_OK)
			ck_assert(ends_same_file(ends_in, ends_out));
		ck_assert(ends_clean());
		ends_check_no_leak();
		struck = sv_failed(call);
		sv_faults_clear();
	}
}
END_TEST

/* What the device says of itself reaches its queues, without anybody having to wait for it. */
START_TEST(device_fails)
{
	const struct sgp_cq_attr attr = {.cqe = 1};
	struct ibv_device **list;
	struct ibv_context *verbs;
	struct sgp_cq *cq;

	ck_assert_int_eq(sv_device_add("dev0", "soft", 1), 0);
	list = ibv_get_device_list(NULL);
	verbs = ibv_open_device(list[0]);
	cq = sgp_cq_create(verbs, &attr);
	ck_assert(verbs && cq);
	ck_assert_int_eq(async_open(verbs), 0);
	ck_assert_ptr_null(async_take(verbs, &cq, 1));
	ck_assert_int_eq(sv_port_set("dev0", 1, 0), 0); /* that ends nothing */
	ck_assert_ptr_null(async_take(verbs, &cq, 1));
	ck_assert_int_eq(sv_device_remove("dev0"), 0);
	ck_assert_str_eq(async_take(verbs, &cq, 1), "the RDMA device has failed");
	ck_assert_ptr_null(async_take(verbs, &cq, 1));
	ck_assert_int_eq(sgp_cq_destroy(cq), 0);
	ck_assert_int_eq(ibv_close_device(verbs), 0);
	ibv_free_device_list(list);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("transfer");
	TCase *tc = tcase_create("transfer");

	tcase_add_checked_fixture(tc, ends_setup, ends_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, sizes, 0, 2);
	tcase_add_loop_test(tc, many, 0, 2);
	tcase_add_loop_test(tc, interrupted, 0, 4);
	tcase_add_test(tc, busy);
	tcase_add_test(tc, device_fails);
	tcase_add_loop_test(tc, faults, 0, sizeof calls / sizeof *calls);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
