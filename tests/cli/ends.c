/* SPDX-License-Identifier: BSD-2-Clause */
/* Both ends of a transfer in one process, see ends.h. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../asserts.h"
#include "ends.h"

#include "sgpool/softverbs.h"

char ends_directory[] = "/tmp/sgpool-test-XXXXXX";
char ends_in[64], ends_out[64];

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
bool end_read_line(const struct end *e, char *line, size_t size)
{
	size_t n = 0;

	while (n + 1 < size && read(e->results, line + n, 1) == 1)
		if (line[n++] == '\n')
			break;
	line[n] = 0;
	return n > 0;
}

/* Start a receiver. Returns the port that it listens on; 0 if it failed before. */
uint16_t end_start_server(struct end *e, bool once)
{
	char line[512];
	const char *port;

	e->server = (struct server_options){.name = "recv",
					    .path = ends_out,
					    .addr = {.host = "127.0.0.1"},
					    .once = once,
					    .json = true,
					    .out = open_results(e)};
	ck_assert_int_eq(pthread_create(&e->thread, NULL, run_server, e), 0);
	if (!end_read_line(e, line, sizeof line))
		return 0;
	port = strstr(line, "\"port\": ");
	ck_assert_ptr_nonnull(port);
	return (uint16_t)atoi(port + 8);
}

void end_start_client(struct end *e, uint16_t port)
{
	e->client = (struct client_options){.name = "send",
					    .path = ends_in,
					    .addr = {.host = "127.0.0.1", .port = port},
					    .json = true,
					    .out = open_results(e)};
	ck_assert_int_eq(pthread_create(&e->thread, NULL, run_client, e), 0);
}

int end_finish(struct end *e)
{
	pthread_join(e->thread, NULL);
	close(e->results);
	return e->status;
}

void ends_write_file(const char *path, size_t size)
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

/* The file's bytes, to be unmapped; of an empty one, anything. */
static const void *map_file(const char *path, size_t *bytes)
{
	static const char nothing[1];
	const int fd = open(path, O_RDONLY | O_CLOEXEC);
	const void *map = nothing;
	struct stat st;

	ck_assert_msg(fd >= 0 && fstat(fd, &st) == 0, "%s", path);
	*bytes = (size_t)st.st_size;
	if (*bytes)
		map = mmap(NULL, *bytes, PROT_READ, MAP_PRIVATE, fd, 0);
	ck_assert_ptr_ne(map, MAP_FAILED);
	close(fd);
	return map;
}

bool ends_same_file(const char *a, const char *b)
{
	size_t bytes[2];
	const void *map[] = {map_file(a, &bytes[0]), map_file(b, &bytes[1])};
	const bool same = bytes[0] == bytes[1] && memcmp(map[0], map[1], bytes[0]) == 0;

	for (int i = 0; i < 2; i++)
		if (bytes[i])
			munmap((void *)(uintptr_t)map[i], bytes[i]);
	return same;
}

bool ends_clean(void)
{
	static const char *const known[] = {".", "..", "in", "out"};
	DIR *dir = opendir(ends_directory);
	const struct dirent *entry;
	bool clean = true;

	ck_assert_ptr_nonnull(dir);
	while ((entry = readdir(dir))) {
		bool is_known = false;

		for (size_t i = 0; i < sizeof known / sizeof *known; i++)
			is_known |= strcmp(entry->d_name, known[i]) == 0;
		clean &= is_known;
	}
	closedir(dir);
	return clean;
}

void ends_check_no_leak(void)
{
	static const enum sv_counter what[] = {SV_PDS, SV_MRS,    SV_CHANNELS,    SV_CQS,
					       SV_QPS, SV_CM_IDS, SV_CM_CHANNELS, SV_CM_EVENTS};

	for (size_t i = 0; i < sizeof what / sizeof *what; i++)
		ck_assert_msg(sv_live(what[i]) == 0, "%d of counter %d are left", sv_live(what[i]),
			      what[i]);
}

void ends_setup(void)
{
	sigset_t set;

	/* The ends' threads take signals that are sent to them through descriptors. */
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	ck_assert_int_eq(pthread_sigmask(SIG_BLOCK, &set, NULL), 0);
	ck_assert_ptr_nonnull(mkdtemp(ends_directory));
	snprintf(ends_in, sizeof ends_in, "%s/in", ends_directory);
	snprintf(ends_out, sizeof ends_out, "%s/out", ends_directory);
}

void ends_teardown(void)
{
	unlink(ends_in);
	unlink(ends_out);
	ck_assert_int_eq(rmdir(ends_directory), 0);
	memcpy(ends_directory + strlen(ends_directory) - 6, "XXXXXX", 6);
	ends_check_no_leak();
}
