/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Commands, right and wrong, of a host that says what it likes: what the kernel's host, in the machine,
 * never says. On softverbs. Each test is a process of its own, and ends with the target's end, which
 * fails when a chunk is not home.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../suite.h"
#include "rig.h"
#include "uring.h"

#define PAGE 4096

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

/* ---- trouble ---- */

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
	Suite *s = suite_create("nvmf commands");
	TCase *work = tcase_create("work");
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
	suite_add_tcase(s, work);
	suite_add_tcase(s, iwarp);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
