/* SPDX-License-Identifier: BSD-2-Clause */
/* The target over files (see rig.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../asserts.h"
#include "rig.h"
#include "sgpool/softverbs.h"

#define PATTERN 251

static char path[] = "nvmf-XXXXXX", other[] = "nvmf-XXXXXX", stats[] = "nvmf-XXXXXX";
int file;
struct host admin, io;

static int make_file(char *name, uint64_t bytes)
{
	int fd = mkstemp(name);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
	return fd;
}

void start(const char *memory)
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

void end_files(void)
{
	close(file);
	unlink(path);
	unlink(other);
	unlink(stats);
}

void finish(void)
{
	ck_assert_int_eq(target_stop(), 0);
	end_files();
}

uint64_t statistic(const char *name)
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

void setup(void)
{
	start("32");
	host_admin(&admin, TARGET_NQN);
	host_io(&io, &admin, HOST_DEPTH);
}

void setup_iwarp(void)
{
	ck_assert_int_eq(sv_device_add("siw0", "siw", 1), 0);
	setup();
}

void teardown(void)
{
	host_close(&io);
	host_close(&admin);
	finish();
}

void fill(uint8_t *data, size_t n, int seed)
{
	for (size_t i = 0; i < n; i++)
		data[i] = (uint8_t)((i + (size_t)seed) % PATTERN + 1);
}

int ask(uint8_t opcode, uint64_t lba, uint32_t blocks)
{
	struct wire_command cmd = host_blocks(&io, opcode, lba, blocks);

	return host_do(&io, &cmd, NULL);
}

void check_file(uint64_t lba, size_t n)
{
	uint8_t *got = malloc(n);

	ck_assert_int_eq(pread(file, got, n, (off_t)(lba * 512)), (ssize_t)n);
	ck_assert_int_eq(memcmp(got, host_data(&io), n), 0);
	free(got);
}
