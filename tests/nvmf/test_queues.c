/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hosts and their queues: who may connect, to what, and what memory and threads they share. On
 * softverbs. Each test is a process of its own, as in test_target.c.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../suite.h"
#include "rig.h"
#include "sgpool/softverbs.h"

#define PAGE 4096

/* ---- who may connect ---- */

START_TEST(test_private_data)
{
	struct wire_cm_request good = {.hrqsize = htole16(8), .hsqsize = htole16(7)}, bad;
	struct host h;

	start("32");
	bad = good;
	bad.recfmt = htole16(1);
	h = (struct host){.depth = 8};
	ck_assert_int_eq(host_connect(&h, &bad), WIRE_CM_INVALID_RECFMT);
	host_close(&h);
	bad = good;
	bad.qid = htole16(65);
	h = (struct host){.depth = 8};
	ck_assert_int_eq(host_connect(&h, &bad), WIRE_CM_INVALID_QID);
	host_close(&h);
	bad = good;
	bad.hsqsize = htole16(32);
	h = (struct host){.depth = 8};
	ck_assert_int_eq(host_connect(&h, &bad), WIRE_CM_INVALID_HSQSIZE);
	host_close(&h);
	bad = good;
	bad.hrqsize = htole16(1);
	h = (struct host){.depth = 8};
	ck_assert_int_eq(host_connect(&h, &bad), WIRE_CM_INVALID_HRQSIZE);
	host_close(&h);
	h = (struct host){.depth = 8};
	ck_assert_int_eq(host_connect(&h, &good), 0);
	host_close(&h);
	finish();
}
END_TEST

START_TEST(test_connects)
{
	const int invalid = NVME_SCT_CMD_SPECIFIC << NVME_SCT_SHIFT | NVME_SC_CONNECT_INVALID_PARAM;
	struct wire_response response;
	struct wire_command cmd;
	struct host h;

	start("32");
	host_open(&h, 0, HOST_DEPTH);
	/* Nothing comes before Connect. */
	cmd = host_command(&h, nvme_admin_identify, 0, 0, PAGE);
	ck_assert_int_eq(host_do(&h, &cmd, NULL), NVME_SC_CMD_SEQ_ERROR);
	ck_assert_int_eq(host_join(&h, 0, "nqn.2014-08.org.example:no", WIRE_CNTLID_ANY, &response),
			 invalid);
	ck_assert_uint_eq(le64toh(response.result), 1 << 16 | 256);
	ck_assert_int_eq(host_join(&h, 0, TARGET_NQN, 5, &response), invalid);
	ck_assert_uint_eq(le64toh(response.result), 1 << 16 | 16);
	ck_assert_int_eq(host_join(&h, 1, TARGET_NQN, WIRE_CNTLID_ANY, &response), invalid);
	ck_assert_uint_eq(le64toh(response.result), 42);
	ck_assert_int_eq(host_join(&h, 0, TARGET_NQN, WIRE_CNTLID_ANY, &response), 0);
	h.cntlid = (uint16_t)le64toh(response.result);
	ck_assert_int_eq(host_join(&h, 0, TARGET_NQN, WIRE_CNTLID_ANY, &response),
			 NVME_SC_CMD_SEQ_ERROR);
	/* It is not enabled yet. */
	cmd = host_command(&h, nvme_admin_identify, 0, 0, PAGE);
	ck_assert_int_eq(host_do(&h, &cmd, NULL), NVME_SC_CMD_SEQ_ERROR);
	host_open(&io, 1, HOST_DEPTH);
	ck_assert_int_eq(host_join(&io, 1, TARGET_NQN, h.cntlid, NULL), NVME_SC_CMD_SEQ_ERROR);
	host_enable(&h);
	ck_assert_int_eq(host_join(&io, 1, TARGET_NQN, 999, NULL), invalid);
	ck_assert_int_eq(host_join(&io, 1, TARGET_NQN, h.cntlid, NULL), NVME_SC_SUCCESS);
	ck_assert_int_eq(ask(nvme_cmd_read, 0, 8), NVME_SC_SUCCESS);
	host_close(&io);
	host_close(&h);
	finish();
}
END_TEST

/* Of several Connects on their way at once one makes a controller. */
START_TEST(test_connects_at_once)
{
	struct wire_response response;
	struct wire_command cmd[8];
	struct host h;

	start("32");
	for (int turn = 0; turn < 20; turn++) {
		int made = 0, refused = 0;

		host_open(&h, 0, HOST_DEPTH);
		/* All have the same data, which is read when they are on their way. */
		for (int i = 0; i < 8; i++)
			cmd[i] = host_joining(&h, 0, TARGET_NQN, WIRE_CNTLID_ANY);
		for (int i = 0; i < 8; i++)
			host_send(&h, &cmd[i], 0, 0);
		for (int i = 0; i < 8; i++) {
			ck_assert(host_wait(&h, &response));
			made += !response.status;
			refused += (le16toh(response.status) >> 1 & ~NVME_SC_DNR) ==
				   NVME_SC_CMD_SEQ_ERROR;
		}
		ck_assert_int_eq(made, 1);
		ck_assert_int_eq(refused, 7);
		host_close(&h);
	}
	finish();
}
END_TEST

START_TEST(test_discovery)
{
	const struct nvmf_discovery_log *log;
	struct wire_command cmd;
	struct host h;

	start("32");
	host_admin(&h, "nqn.2014-08.org.nvmexpress.discovery");
	cmd = host_command(&h, nvme_admin_get_log_page, 0, 0, 2048);
	cmd.cdw10 = htole32(NVME_LOG_LID_DISCOVER | (2048 / 4 - 1) << 16);
	ck_assert_int_eq(host_do(&h, &cmd, NULL), NVME_SC_SUCCESS);
	log = (void *)host_data(&h);
	ck_assert_uint_eq(le64toh(log->numrec), 1);
	ck_assert_str_eq(log->entries[0].subnqn, TARGET_NQN);
	ck_assert_int_eq(memcmp(log->entries[0].traddr, "127.0.0.1 ", 10), 0);
	ck_assert_int_eq(atoi(log->entries[0].trsvcid), target_port());
	ck_assert_uint_eq(log->entries[0].trtype, NVMF_TRTYPE_RDMA);
	cmd = host_command(&h, nvme_admin_identify, 1, 0, PAGE);
	ck_assert_int_eq(host_do(&h, &cmd, NULL), NVME_SC_INVALID_FIELD);
	host_close(&h);
	finish();
}
END_TEST

/* ---- what they share ---- */

/* Queues of one controller, on all threads: what they move is one thing to the host. */
START_TEST(test_threads)
{
	const struct nvme_smart_log *smart;
	struct wire_response response;
	struct wire_command cmd;
	struct host queue[4];

	start("48");
	host_admin(&admin, TARGET_NQN);
	for (int i = 0; i < 4; i++) {
		host_open(&queue[i], (uint16_t)(i + 1), HOST_DEPTH);
		ck_assert_int_eq(
			host_join(&queue[i], (uint16_t)(i + 1), TARGET_NQN, admin.cntlid, NULL),
			NVME_SC_SUCCESS);
		fill(host_data(&queue[i]), MIB, i);
	}
	for (int turn = 0; turn < 8; turn++) {
		for (int i = 0; i < 4; i++) {
			const bool write = turn % 2 == 0;

			cmd = host_blocks(&queue[i], write ? nvme_cmd_write : nvme_cmd_read,
					  (uint64_t)i * 2048, 2048);
			if (!write) /* behind what was written */
				cmd.sgl.addr = htole64((uintptr_t)host_data(&queue[i]) + MIB);
			host_send(&queue[i], &cmd, 0, 0);
		}
		for (int i = 0; i < 4; i++) {
			ck_assert(host_wait(&queue[i], &response));
			ck_assert_uint_eq(response.status, 0);
		}
	}
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(memcmp(host_data(&queue[i]), host_data(&queue[i]) + MIB, MIB), 0);
	host_close(&queue[3]); /* what it moved is still told */
	cmd = host_command(&admin, nvme_admin_get_log_page, 0, 0, 512);
	cmd.cdw10 = htole32(NVME_LOG_LID_SMART | (512 / 4 - 1) << 16);
	ck_assert_int_eq(host_do(&admin, &cmd, NULL), NVME_SC_SUCCESS);
	smart = (void *)host_data(&admin);
	ck_assert_uint_eq(smart->host_writes[0], 16);
	ck_assert_uint_eq(smart->host_reads[0], 16);
	/* All of them go with the controller, whose ever they are. */
	host_close(&admin);
	for (int i = 0; i < 3; i++) {
		ck_assert(!host_wait(&queue[i], &response));
		host_close(&queue[i]);
	}
	ck_assert_int_eq(target_stop(), 0);
	ck_assert_uint_eq(statistic("threads"), 3);
	ck_assert_uint_eq(statistic("write"), 16);
	ck_assert_uint_eq(statistic("read"), 16);
	ck_assert_uint_eq(statistic("in_flight"), 0);
	end_files();
}
END_TEST

/*
 * Every command as large as can be, at once, and memory for some: all are answered. Several times, so that
 * however the two threads' turns fall some have to wait.
 */
START_TEST(test_more_than_memory)
{
	enum {
		ROUNDS = 4
	};
	struct wire_response response;

	start("16");
	host_admin(&admin, TARGET_NQN);
	host_io(&io, &admin, HOST_DEPTH);
	fill(host_data(&io), MIB, 3);
	ck_assert_int_eq(ask(nvme_cmd_write, 0, 2048), NVME_SC_SUCCESS);
	for (int round = 0; round < ROUNDS; round++) {
		memset(host_data(&io), 0, MIB);
		fill(host_data(&io) + MIB, MIB, 3);
		for (int i = 0; i < HOST_DEPTH - 1; i++) {
			struct wire_command cmd =
				host_blocks(&io, i % 3 ? nvme_cmd_read : nvme_cmd_compare, 0, 2048);

			/* Where those compared are not disturbed. */
			cmd.sgl.addr = htole64((uintptr_t)host_data(&io) + (i % 3 ? 0 : MIB));
			host_send(&io, &cmd, 0, 0);
		}
		for (int i = 0; i < HOST_DEPTH - 1; i++) {
			ck_assert(host_wait(&io, &response));
			ck_assert_uint_eq(response.status, 0);
		}
		check_file(0, MIB);
	}
	host_close(&io);
	host_close(&admin);
	ck_assert_int_eq(target_stop(), 0);
	ck_assert_uint_gt(statistic("waits"), 0);
	ck_assert_uint_eq(statistic("read"), ROUNDS * 20);
	ck_assert_uint_eq(statistic("compare"), ROUNDS * 11);
	ck_assert_uint_le(statistic("registered"), statistic("limit"));
	ck_assert_uint_eq(statistic("payload_copied"), 0);
	end_files();
}
END_TEST

/* What a host sends at once: reads, as many as its queue has room for. */
static void send_full(struct host *h)
{
	for (int i = 0; i < h->depth - 1; i++) {
		struct wire_command cmd = host_blocks(h, nvme_cmd_read, 0, 8);

		host_send(h, &cmd, 0, 0);
	}
}

static void answered_full(struct host *h)
{
	struct wire_response response;

	for (int i = 0; i < h->depth - 1; i++) {
		ck_assert(host_wait(h, &response));
		ck_assert_uint_eq(response.status, 0);
	}
}

/*
 * The queues that the kernel's host asks for fit into the least memory, on any device; all of them send
 * all they may at once. One that does not fit is refused, until another has gone. own: receives that a queue
 * of 128 has of its own.
 */
static void queues_of_a_host(uint32_t own)
{
	const struct wire_cm_request more = {
		.qid = htole16(4), .hrqsize = htole16(128), .hsqsize = htole16(127)};
	struct host queue[3], fourth = {.depth = 128};

	start("16");
	host_admin(&admin, TARGET_NQN);
	for (uint16_t i = 0; i < 3; i++) {
		host_open(&queue[i], i + 1, 128);
		ck_assert_int_eq(host_join(&queue[i], i + 1, TARGET_NQN, admin.cntlid, NULL),
				 NVME_SC_SUCCESS);
	}
	ck_assert_int_eq(host_connect(&fourth, &more), WIRE_CM_NO_RESOURCES);
	host_close(&fourth);
	for (int round = 0; round < 4; round++) {
		for (int i = 0; i < 3; i++)
			send_full(&queue[i]);
		for (int i = 0; i < 3; i++)
			answered_full(&queue[i]);
	}
	host_close(&queue[0]);
	/* Its memory is free when the target has seen its end. */
	for (int ret = -1, turn = 0; ret; turn++) {
		ck_assert_int_lt(turn, 10000);
		fourth = (struct host){.depth = 128};
		ret = host_connect(&fourth, &more);
		if (ret) {
			ck_assert_int_eq(ret, WIRE_CM_NO_RESOURCES);
			host_close(&fourth);
			usleep(10000);
		}
	}
	ck_assert_int_eq(host_join(&fourth, 4, TARGET_NQN, admin.cntlid, NULL), NVME_SC_SUCCESS);
	send_full(&fourth);
	answered_full(&fourth);
	host_close(&fourth);
	for (int i = 1; i < 3; i++)
		host_close(&queue[i]);
	host_close(&admin);
	ck_assert_int_eq(target_stop(), 0);
	ck_assert_uint_le(statistic("registered"), statistic("limit"));
	ck_assert_uint_eq(statistic("in_flight"), 0);
	/* Receives that went back unused tell of no accident. */
	ck_assert_uint_eq(statistic("broken"), 0);
	/* Each command took a receive, shared or not, and another one was posted in its place. */
	ck_assert_uint_gt(statistic("taken"), 13 * 127 + 4 * own);
	end_files();
}

START_TEST(test_queues_of_a_host)
{
	queues_of_a_host(0);
}
END_TEST

START_TEST(test_queues_of_a_host_iwarp)
{
	ck_assert_int_eq(sv_device_add("siw0", "siw", 1), 0);
	queues_of_a_host(128);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("nvmf queues");
	TCase *doors = tcase_create("doors");

	tcase_add_test(doors, test_private_data);
	tcase_add_test(doors, test_connects);
	tcase_add_test(doors, test_connects_at_once);
	tcase_add_test(doors, test_discovery);
	tcase_add_test(doors, test_more_than_memory);
	tcase_add_test(doors, test_threads);
	tcase_add_test(doors, test_queues_of_a_host);
	tcase_add_test(doors, test_queues_of_a_host_iwarp);
	tcase_set_timeout(doors, 60);
	suite_add_tcase(s, doors);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
