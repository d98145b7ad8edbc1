/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The NVMe target against a host that says what it likes, on softverbs: what the kernel's host, in the
 * machine, never says. Each test is a process of its own, and ends with the target's end, which fails
 * when a chunk is not home.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../suite.h"
#include "sgpool/softverbs.h"
#include "host.h"
#include "uring.h"

#define BLOCKS  ((uint64_t)16384) /* of 512 bytes */
#define PAGE    4096
#define MIB     ((size_t)1 << 20)
#define PATTERN 251

static char path[] = "nvmf-XXXXXX", other[] = "nvmf-XXXXXX", stats[] = "nvmf-XXXXXX";
static int file; /* what namespace 1 is */
static struct host admin, io;

static int make_file(char *name, uint64_t bytes)
{
	int fd = mkstemp(name);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
	return fd;
}

/* Namespace 1 can be written, namespace 2 cannot. A thread for each 16 MiB: the first I/O queue is not
 * its admin queue's thread's, if there are two. */
static void start(const char *memory)
{
	static char second[64], threads[16];
	const char *args[] = {"--namespace", path,  "--namespace", second,  "--memory", memory,
			      "--stats",     stats, "--threads",   threads, NULL};

	snprintf(threads, sizeof threads, "%d", atoi(memory) / 16);

	file = make_file(path, BLOCKS * 512);
	close(make_file(other, 1 << 20));
	close(make_file(stats, 0));
	snprintf(second, sizeof second, "%s,ro", other);
	target_start(args);
}

static void end_files(void)
{
	close(file);
	unlink(path);
	unlink(other);
	unlink(stats);
}

static void finish(void)
{
	ck_assert_int_eq(target_stop(), 0);
	end_files();
}

/* The first number in the statistics' file behind this text. */
static uint64_t statistic(const char *name)
{
	char text[16384] = "", key[64];
	const char *at;
	FILE *f = fopen(stats, "r");

	ck_assert_ptr_nonnull(f);
	ck_assert_uint_gt(fread(text, 1, sizeof text - 1, f), 0);
	fclose(f);
	snprintf(key, sizeof key, "\"%s\":", name);
	at = strstr(text, key);
	ck_assert_msg(at != NULL, "no %s in %s", name, text);
	return strtoull(at + strlen(key), NULL, 10);
}

static void setup(void)
{
	start("32");
	host_admin(&admin, TARGET_NQN);
	host_io(&io, &admin, HOST_DEPTH);
}

/* The same on a device where a message without a receive ends the connection. */
static void setup_iwarp(void)
{
	ck_assert_int_eq(sv_device_add("siw0", "siw", 1), 0);
	setup();
}

static void teardown(void)
{
	host_close(&io);
	host_close(&admin);
	finish();
}

static void fill(uint8_t *data, size_t n, int seed)
{
	for (size_t i = 0; i < n; i++)
		data[i] = (uint8_t)((i + (size_t)seed) % PATTERN + 1);
}

static int ask(uint8_t opcode, uint64_t lba, uint32_t blocks)
{
	struct wire_command cmd = host_blocks(&io, opcode, lba, blocks);

	return host_do(&io, &cmd, NULL);
}

/* The file's bytes are the host's data, from its beginning on. */
static void check_file(uint64_t lba, size_t n)
{
	uint8_t *got = malloc(n);

	ck_assert_int_eq(pread(file, got, n, (off_t)(lba * 512)), (ssize_t)n);
	ck_assert_int_eq(memcmp(got, host_data(&io), n), 0);
	free(got);
}

/* ---- what works ---- */

START_TEST(test_write_and_read)
{
	static const uint32_t blocks[] = {1, 3, 8, 9, 64, 65, 256, 257, 2048};

	for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
		const size_t n = blocks[i] * 512;

		fill(host_data(&io), n, (int)i);
		ck_assert_int_eq(ask(nvme_cmd_write, 7 * i, blocks[i]), NVME_SC_SUCCESS);
		check_file(7 * i, n);
		memset(host_data(&io), 0, n);
		ck_assert_int_eq(ask(nvme_cmd_read, 7 * i, blocks[i]), NVME_SC_SUCCESS);
		check_file(7 * i, n);
		ck_assert_uint_eq(host_data(&io)[0], i + 1);
	}
}
END_TEST

/* The data comes with the capsule. */
static struct wire_command inside(uint8_t opcode, uint64_t lba, uint32_t bytes)
{
	struct wire_command cmd = host_blocks(&io, opcode, lba, bytes / 512);

	cmd.sgl = (struct wire_sgl){.type = WIRE_SGL_OFFSET};
	cmd.sgl.length[0] = (uint8_t)bytes;
	cmd.sgl.length[1] = (uint8_t)(bytes >> 8);
	return cmd;
}

static int ask_inside(const struct wire_command *cmd, size_t bytes)
{
	struct wire_response response;

	host_send(&io, cmd, 0, bytes);
	ck_assert(host_wait(&io, &response));
	return le16toh(response.status) >> 1 & ~NVME_SC_DNR;
}

START_TEST(test_inside)
{
	struct wire_command cmd;

	for (uint32_t n = 512; n <= PAGE; n += 512) {
		cmd = inside(nvme_cmd_write, n, n);
		fill(host_data(&io), n, (int)n);
		ck_assert_int_eq(ask_inside(&cmd, n), NVME_SC_SUCCESS);
		check_file(n, n);
	}
	/* The second block of two. */
	cmd = inside(nvme_cmd_write, 100, 512);
	cmd.sgl.addr = htole64(512);
	ck_assert_int_eq(ask_inside(&cmd, 1024), NVME_SC_SUCCESS);
	memmove(host_data(&io), host_data(&io) + 512, 512);
	check_file(100, 512);
	/* Some of it has not come. */
	cmd = inside(nvme_cmd_write, 0, 1024);
	ck_assert_int_eq(ask_inside(&cmd, 512), NVME_SC_SGL_INVALID_OFFSET);
	cmd.sgl.addr = htole64(1024);
	ck_assert_int_eq(ask_inside(&cmd, 1024), NVME_SC_SGL_INVALID_OFFSET);
	/* A Read's data can't be in the capsule. */
	cmd = inside(nvme_cmd_read, 0, 512);
	ck_assert_int_eq(ask_inside(&cmd, 512), NVME_SC_SGL_INVALID_TYPE);
}
END_TEST

START_TEST(test_compare)
{
	const int differs = NVME_SCT_MEDIA << NVME_SCT_SHIFT | NVME_SC_COMPARE_FAILED;
	struct wire_command cmd;

	fill(host_data(&io), MIB, 5);
	ck_assert_int_eq(ask(nvme_cmd_write, 0, 2048), NVME_SC_SUCCESS);
	ck_assert_int_eq(ask(nvme_cmd_compare, 0, 2048), NVME_SC_SUCCESS);
	host_data(&io)[MIB - 1] ^= 1;
	ck_assert_int_eq(ask(nvme_cmd_compare, 0, 2048), differs);
	cmd = inside(nvme_cmd_compare, 0, 1024);
	ck_assert_int_eq(ask_inside(&cmd, 1024), NVME_SC_SUCCESS);
	host_data(&io)[1023] ^= 1;
	ck_assert_int_eq(ask_inside(&cmd, 1024), differs);
}
END_TEST

START_TEST(test_zeroes)
{
	struct wire_command cmd;

	fill(host_data(&io), MIB, 1);
	ck_assert_int_eq(ask(nvme_cmd_write, 0, 2048), NVME_SC_SUCCESS);
	for (int deallocate = 0; deallocate <= 1; deallocate++) {
		cmd = host_blocks(&io, nvme_cmd_write_zeroes, 10u + (unsigned int)deallocate * 100,
				  50);
		cmd.cdw12 |= htole32(deallocate ? WIRE_ZEROES_DEALLOCATE : 0);
		ck_assert_int_eq(host_do(&io, &cmd, NULL), NVME_SC_SUCCESS);
		memset(host_data(&io) + (10 + deallocate * 100) * 512, 0, 50 * 512);
		check_file(0, MIB);
	}
	/* As many blocks as a command can name. */
	cmd = host_blocks(&io, nvme_cmd_write_zeroes, 0, (uint32_t)BLOCKS);
	cmd.cdw12 |= htole32(WIRE_RW_FUA);
	ck_assert_int_eq(host_do(&io, &cmd, NULL), NVME_SC_SUCCESS);
	memset(host_data(&io), 0, MIB);
	check_file(0, MIB);
}
END_TEST

/* Link-time stand-in: a file system that can't do what it's asked for. */
static bool no_fallocate;
void __real_uring_fallocate(struct uring *u, struct request *r, int fd, int mode, uint64_t at,
			    uint64_t length);
void __wrap_uring_fallocate(struct uring *u, struct request *r, int fd, int mode, uint64_t at,
			    uint64_t length);

void __wrap_uring_fallocate(struct uring *u, struct request *r, int fd, int mode, uint64_t at,
			    uint64_t length)
{
	if (!no_fallocate) {
		__real_uring_fallocate(u, r, fd, mode, at, length);
		return;
	}
	r->io_error = EOPNOTSUPP;
	r->step(r);
}

START_TEST(test_zeroes_written)
{
	struct wire_command cmd;

	no_fallocate = true;
	fill(host_data(&io), MIB, 1);
	ck_assert_int_eq(ask(nvme_cmd_write, 0, 2048), NVME_SC_SUCCESS);
	ck_assert_int_eq(ask(nvme_cmd_write, BLOCKS - 2048, 2048), NVME_SC_SUCCESS);
	cmd = host_blocks(&io, nvme_cmd_write_zeroes, 1, (uint32_t)BLOCKS - 2);
	ck_assert_int_eq(host_do(&io, &cmd, NULL), NVME_SC_SUCCESS);
	memset(host_data(&io) + 512, 0, MIB - 512);
	check_file(0, MIB);
	ck_assert_int_eq(ask(nvme_cmd_read, BLOCKS - 2048, 2048), NVME_SC_SUCCESS);
	for (size_t i = 0; i < MIB; i++)
		ck_assert_int_eq(host_data(&io)[i] != 0, i >= MIB - 512);
}
END_TEST

START_TEST(test_discard_and_flush)
{
	struct nvme_dsm_range *range = (void *)(host_data(&io) + 2 * MIB);
	struct wire_command cmd;

	fill(host_data(&io), MIB, 1);
	ck_assert_int_eq(ask(nvme_cmd_write, 0, 2048), NVME_SC_SUCCESS);
	range[0] = (struct nvme_dsm_range){.slba = htole64(16), .nlb = htole32(16)};
	range[1] = (struct nvme_dsm_range){.slba = htole64(64), .nlb = htole32(8)};
	cmd = host_command(&io, nvme_cmd_dsm, 1, 2 * MIB, 32);
	cmd.cdw10 = htole32(1);
	cmd.cdw11 = htole32(WIRE_DSM_DEALLOCATE);
	ck_assert_int_eq(host_do(&io, &cmd, NULL), NVME_SC_SUCCESS);
	/* The file system of the test's folder may not be able to; what it could not stays. */
	ck_assert_int_eq(ask(nvme_cmd_read, 0, 16), NVME_SC_SUCCESS);
	check_file(0, 16 * 512);
	range[1].slba = htole64(BLOCKS - 7);
	ck_assert_int_eq(host_do(&io, &cmd, NULL), NVME_SC_LBA_RANGE);
	range[1].slba = htole64(UINT64_MAX - 3);
	ck_assert_int_eq(host_do(&io, &cmd, NULL), NVME_SC_LBA_RANGE);
	cmd = host_command(&io, nvme_cmd_flush, 1, 0, 0);
	ck_assert_int_eq(host_do(&io, &cmd, NULL), NVME_SC_SUCCESS);
	cmd = host_blocks(&io, nvme_cmd_write, 0, 8);
	cmd.cdw12 |= htole32(WIRE_RW_FUA);
	ck_assert_int_eq(host_do(&io, &cmd, NULL), NVME_SC_SUCCESS);
}
END_TEST

START_TEST(test_identify)
{
	const struct nvme_id_ctrl *ctrl = (void *)host_data(&admin);
	const struct nvme_id_ns *ns = (void *)host_data(&admin);
	uint8_t nguid[16];
	uint32_t list[3];
	struct wire_command cmd = host_command(&admin, nvme_admin_identify, 0, 0, PAGE);

	cmd.cdw10 = htole32(NVME_IDENTIFY_CNS_CTRL);
	ck_assert_int_eq(host_do(&admin, &cmd, NULL), NVME_SC_SUCCESS);
	ck_assert_str_eq(ctrl->subnqn, TARGET_NQN);
	ck_assert_uint_eq(le16toh(ctrl->cntlid), admin.cntlid);
	ck_assert_uint_eq(le32toh(ctrl->nn), 2);
	ck_assert_uint_eq(le32toh(ctrl->ioccsz), (64 + PAGE) / 16);
	cmd.cdw10 = htole32(NVME_IDENTIFY_CNS_NS_ACTIVE_LIST);
	ck_assert_int_eq(host_do(&admin, &cmd, NULL), NVME_SC_SUCCESS);
	memcpy(list, host_data(&admin), sizeof list);
	ck_assert(le32toh(list[0]) == 1 && le32toh(list[1]) == 2 && list[2] == 0);
	cmd.cdw10 = htole32(NVME_IDENTIFY_CNS_NS);
	cmd.nsid = htole32(1);
	ck_assert_int_eq(host_do(&admin, &cmd, NULL), NVME_SC_SUCCESS);
	ck_assert_uint_eq(le64toh(ns->nsze) << ns->lbaf[0].ds, BLOCKS * 512);
	ck_assert_uint_eq(ns->nsattr, 0);
	memcpy(nguid, ns->nguid, sizeof nguid);
	cmd.nsid = htole32(2);
	ck_assert_int_eq(host_do(&admin, &cmd, NULL), NVME_SC_SUCCESS);
	ck_assert_uint_eq(ns->nsattr, NVME_NS_NSATTR_WRITE_PROTECTED);
	ck_assert_int_ne(memcmp(nguid, ns->nguid, sizeof nguid), 0);
	cmd.nsid = htole32(3);
	ck_assert_int_eq(host_do(&admin, &cmd, NULL), NVME_SC_INVALID_NS);
}
END_TEST

START_TEST(test_features_and_logs)
{
	struct wire_command cmd = host_command(&admin, nvme_admin_get_features, 0, 0, PAGE);
	const struct nvme_smart_log *smart = (void *)host_data(&admin);
	struct wire_response response;

	cmd.cdw10 = htole32(NVME_FEAT_FID_NUM_QUEUES);
	ck_assert_int_eq(host_do(&admin, &cmd, &response), NVME_SC_SUCCESS);
	ck_assert_uint_eq(le64toh(response.result), 63 * 0x10001);
	cmd.opcode = nvme_admin_set_features;
	/* There is an I/O queue already. */
	ck_assert_int_eq(host_do(&admin, &cmd, NULL), NVME_SC_CMD_SEQ_ERROR);
	cmd.cdw10 = htole32(NVME_FEAT_FID_KATO);
	cmd.cdw11 = htole32(60000);
	ck_assert_int_eq(host_do(&admin, &cmd, NULL), NVME_SC_SUCCESS);
	cmd.opcode = nvme_admin_get_features;
	ck_assert_int_eq(host_do(&admin, &cmd, &response), NVME_SC_SUCCESS);
	ck_assert_uint_eq(le64toh(response.result), 60000);
	ck_assert_int_eq(ask(nvme_cmd_write, 0, 8), NVME_SC_SUCCESS);
	cmd = host_command(&admin, nvme_admin_get_log_page, 0, 0, 512);
	cmd.cdw10 = htole32(NVME_LOG_LID_SMART | (512 / 4 - 1) << 16);
	ck_assert_int_eq(host_do(&admin, &cmd, NULL), NVME_SC_SUCCESS);
	ck_assert_uint_eq(smart->host_writes[0], 1);
	/* Longer than the page: the rest is zero. Behind its end: not at all. */
	cmd = host_command(&admin, nvme_admin_get_log_page, 0, 0, MIB);
	cmd.cdw10 = htole32((uint32_t)NVME_LOG_LID_SMART | 0xffffu << 16);
	cmd.cdw11 = htole32((uint32_t)(MIB / 4 - 1) >> 16);
	memset(host_data(&admin), 1, MIB);
	ck_assert_int_eq(host_do(&admin, &cmd, NULL), NVME_SC_SUCCESS);
	ck_assert_uint_eq(smart->host_writes[0], 1);
	ck_assert_uint_eq(host_data(&admin)[MIB - 1], 0);
	cmd.cdw12 = htole32(516);
	ck_assert_int_eq(host_do(&admin, &cmd, NULL), NVME_SC_INVALID_FIELD);
	cmd.cdw10 = htole32(NVME_LOG_LID_DISCOVER);
	cmd.cdw11 = cmd.cdw12 = 0;
	ck_assert_int_eq(host_do(&admin, &cmd, NULL),
			 NVME_SCT_CMD_SPECIFIC << NVME_SCT_SHIFT | NVME_SC_INVALID_LOG_PAGE);
}
END_TEST

/* ---- what is refused ---- */

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

START_TEST(test_refusals)
{
	const uint64_t far = (uint64_t)1 << 60;
	struct wire_command cmd;

	ck_assert_int_eq(ask(nvme_cmd_read, BLOCKS, 1), NVME_SC_LBA_RANGE);
	ck_assert_int_eq(ask(nvme_cmd_read, BLOCKS - 1, 2), NVME_SC_LBA_RANGE);
	ck_assert_int_eq(ask(nvme_cmd_write, far, 1), NVME_SC_LBA_RANGE);
	ck_assert_int_eq(ask(nvme_cmd_write, UINT64_MAX, 1), NVME_SC_LBA_RANGE);
	ck_assert_int_eq(ask(nvme_cmd_read, 0, 2049), NVME_SC_INVALID_FIELD);
	ck_assert_int_eq(ask(nvme_cmd_write_uncor, 0, 1), NVME_SC_INVALID_OPCODE);
	cmd = host_blocks(&io, nvme_cmd_read, 0, 2);
	cmd.cdw12 = 0; /* one block, and memory for two */
	ck_assert_int_eq(host_do(&io, &cmd, NULL), NVME_SC_SGL_INVALID_DATA);
	cmd.sgl.type = 0x20; /* a segment */
	ck_assert_int_eq(host_do(&io, &cmd, NULL), NVME_SC_SGL_INVALID_TYPE);
	cmd = host_blocks(&io, nvme_cmd_read, 0, 1);
	cmd.flags = 0; /* PRPs */
	ck_assert_int_eq(host_do(&io, &cmd, NULL), NVME_SC_INVALID_FIELD);
	cmd.flags = WIRE_FLAGS_SGL | 1; /* fused */
	ck_assert_int_eq(host_do(&io, &cmd, NULL), NVME_SC_INVALID_FIELD);
	cmd = host_blocks(&io, nvme_cmd_write, 0, 1);
	cmd.nsid = htole32(2);
	ck_assert_int_eq(host_do(&io, &cmd, NULL), NVME_SC_NS_WRITE_PROTECTED);
	cmd.nsid = htole32(3);
	ck_assert_int_eq(host_do(&io, &cmd, NULL), NVME_SC_INVALID_NS);
	cmd.nsid = 0;
	ck_assert_int_eq(host_do(&io, &cmd, NULL), NVME_SC_INVALID_NS);
	cmd = host_command(&io, nvme_admin_fabrics, WIRE_FABRICS_PROPERTY_GET, 0, 0);
	ck_assert_int_eq(host_do(&io, &cmd, NULL), NVME_SC_CMD_SEQ_ERROR);
	/* After all that it works as before. */
	ck_assert_int_eq(ask(nvme_cmd_read, BLOCKS - 1, 1), NVME_SC_SUCCESS);
}
END_TEST

/* Asynchronous events are kept, and one more than there may be is refused. */
START_TEST(test_events_and_duplicates)
{
	struct wire_command cmd = host_command(&admin, nvme_admin_async_event, 0, 0, 0);
	struct wire_response response;

	for (int i = 0; i < 4; i++) {
		cmd.cid = htole16((uint16_t)(1000 + i));
		host_send(&admin, &cmd, 0, 0);
	}
	cmd.cid = htole16(1004);
	ck_assert_int_eq(host_do(&admin, &cmd, &response),
			 NVME_SCT_CMD_SPECIFIC << NVME_SCT_SHIFT | NVME_SC_ASYNC_LIMIT);
	/* The identifier of one that is outstanding. */
	cmd = host_command(&admin, nvme_admin_keep_alive, 0, 0, 0);
	cmd.cid = htole16(1002);
	ck_assert_int_eq(host_do(&admin, &cmd, &response), NVME_SC_CMDID_CONFLICT);
	ck_assert_int_eq(host_do(&admin, &cmd, &response), NVME_SC_CMDID_CONFLICT);
	cmd.cid = htole16(1005);
	ck_assert_int_eq(host_do(&admin, &cmd, &response), NVME_SC_SUCCESS);
}
END_TEST

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

/* ---- trouble ---- */

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
 * all they may at once. One that does not fit is refused, until another has gone.
 */
static void queues_of_a_host(void)
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
	/* Each command took a receive, shared or not. */
	ck_assert_uint_gt(statistic("taken"), 13 * 127);
	end_files();
}

START_TEST(test_queues_of_a_host)
{
	queues_of_a_host();
}
END_TEST

START_TEST(test_queues_of_a_host_iwarp)
{
	ck_assert_int_eq(sv_device_add("siw0", "siw", 1), 0);
	queues_of_a_host();
}
END_TEST

/* Hosts that go in the middle, again and again: all memory comes home, and others are served. */
START_TEST(test_gone)
{
	for (int round = 0; round < 8; round++) {
		struct host other_admin, h;

		host_admin(&other_admin, TARGET_NQN);
		host_io(&h, &other_admin, HOST_DEPTH);
		for (int i = 0; i < HOST_DEPTH - 1; i++) {
			struct wire_command cmd =
				host_blocks(&h, i % 2 ? nvme_cmd_read : nvme_cmd_write, 2048, 2048);

			host_send(&h, &cmd, 0, 0);
		}
		if (round % 2) {
			host_close(&h);
			host_close(&other_admin);
		} else {
			host_close(&other_admin);
			host_close(&h);
		}
		ck_assert_int_eq(ask(nvme_cmd_read, 0, 8), NVME_SC_SUCCESS);
	}
}
END_TEST

/* More commands than the queue has, and capsules that are none: that host's connection ends. */
START_TEST(test_too_many)
{
	struct wire_command cmd;
	struct wire_response response;
	struct host other_admin, h;
	struct ibv_sge sge;
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
	bool alive = true;

	host_admin(&other_admin, TARGET_NQN);
	host_io(&h, &other_admin, 4);
	/* Now and then the target may be as fast as we are: then all are answered. */
	for (int turn = 0; turn < 1000 && alive; turn++) {
		for (int i = 0; i < 15; i++) {
			cmd = host_blocks(&h, nvme_cmd_read, 0, 2048);
			host_send(&h, &cmd, 0, 0);
		}
		for (int i = 0; i < 15 && alive; i++)
			alive = host_wait(&h, &response);
	}
	ck_assert(!alive);
	host_close(&h);
	for (int i = 0; i < 2; i++) {
		host_open(&h, 0, 4);
		sge = (struct ibv_sge){
			.addr = (uintptr_t)host_data(&h), .length = 63, .lkey = h.mr->lkey};
		wr.num_sge = i; /* without: no byte at all */
		ck_assert_int_eq(ibv_post_send(h.id->qp, &wr, &bad), 0);
		ck_assert(!host_wait(&h, &response));
		host_close(&h);
	}
	host_close(&other_admin);
	ck_assert_int_eq(ask(nvme_cmd_read, 0, 8), NVME_SC_SUCCESS);
}
END_TEST

START_TEST(test_keep_alive)
{
	struct wire_command cmd = host_command(&admin, nvme_admin_set_features, 0, 0, 0);
	struct wire_response response;

	cmd.cdw10 = htole32(NVME_FEAT_FID_KATO);
	cmd.cdw11 = htole32(300);
	ck_assert_int_eq(host_do(&admin, &cmd, NULL), NVME_SC_SUCCESS);
	ck_assert(!host_wait(&admin, &response));
	ck_assert(!host_wait(&io, &response)); /* its queues go with the controller */
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("nvmf target");
	TCase *work = tcase_create("work"), *doors = tcase_create("doors");
	TCase *iwarp = tcase_create("iwarp");

	tcase_add_checked_fixture(work, setup, teardown);
	tcase_add_test(work, test_write_and_read);
	tcase_add_test(work, test_inside);
	tcase_add_test(work, test_compare);
	tcase_add_test(work, test_zeroes);
	tcase_add_test(work, test_zeroes_written);
	tcase_add_test(work, test_discard_and_flush);
	tcase_add_test(work, test_identify);
	tcase_add_test(work, test_features_and_logs);
	tcase_add_test(work, test_refusals);
	tcase_add_test(work, test_events_and_duplicates);
	tcase_add_test(work, test_gone);
	tcase_add_test(work, test_too_many);
	tcase_add_test(work, test_keep_alive);
	tcase_set_timeout(work, 60);
	tcase_add_checked_fixture(iwarp, setup_iwarp, teardown);
	tcase_add_test(iwarp, test_write_and_read);
	tcase_add_test(iwarp, test_inside);
	tcase_add_test(iwarp, test_compare);
	tcase_add_test(iwarp, test_gone);
	tcase_add_test(iwarp, test_too_many);
	tcase_set_timeout(iwarp, 60);
	tcase_add_test(doors, test_private_data);
	tcase_add_test(doors, test_connects);
	tcase_add_test(doors, test_connects_at_once);
	tcase_add_test(doors, test_discovery);
	tcase_add_test(doors, test_more_than_memory);
	tcase_add_test(doors, test_threads);
	tcase_add_test(doors, test_queues_of_a_host);
	tcase_add_test(doors, test_queues_of_a_host_iwarp);
	tcase_set_timeout(doors, 60);
	suite_add_tcase(s, work);
	suite_add_tcase(s, doors);
	suite_add_tcase(s, iwarp);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
