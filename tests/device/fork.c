/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a fork costs a process that has 256 MiB registered: nothing of it may be copied. The kernel
 * copies pinned pages at the fork itself, so the child looks at what it has been given. To see that
 * it would show, the memory is then given to children, and must be there.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sgpool/sgpool.h"

#define MIB    ((size_t)1 << 20)
#define CHUNKS 256

static int die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, sgp_errmsg());
	exit(1);
}

/* KiB of memory that are this process's own, and of which nobody else has a copy. */
static long private_kib(void)
{
	FILE *f = fopen("/proc/self/smaps_rollup", "re");
	char line[256];
	long kib = -1;

	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "Private_Dirty: %ld kB", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib;
}

/* Forks, and returns how many KiB the child has of its own; *ms: what the parent waited for it. */
static long fork_once(double *ms)
{
	struct timespec before, after;
	long kib = -1;
	int fd[2];
	pid_t pid;

	if (pipe(fd))
		die("pipe");
	clock_gettime(CLOCK_MONOTONIC, &before);
	pid = fork();
	clock_gettime(CLOCK_MONOTONIC, &after);
	if (pid == 0) {
		kib = private_kib();
		_exit(write(fd[1], &kib, sizeof kib) != sizeof kib);
	}
	if (pid < 0 || read(fd[0], &kib, sizeof kib) != sizeof kib)
		die("fork");
	waitpid(pid, NULL, 0);
	close(fd[0]);
	close(fd[1]);
	*ms = (double)(after.tv_sec - before.tv_sec) * 1e3 +
	      (double)(after.tv_nsec - before.tv_nsec) / 1e6;
	return kib;
}

int main(void)
{
	struct sgp_class_attr cls = {.size = MIB, .chunks = CHUNKS};
	struct sgp_pool_attr attr = {.classes = &cls, .nclasses = 1, .pages = SGP_PAGES_BASE};
	struct sgp_chunk *chunk[CHUNKS];
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *verbs = list && list[0] ? ibv_open_device(list[0]) : NULL;
	struct ibv_pd *pd = verbs ? ibv_alloc_pd(verbs) : NULL;
	struct sgp_pool *pool = pd ? sgp_pool_create(pd, &attr) : NULL;
	int failures = 0;
	double ms;
	long kib;

	if (!pool || sgp_pool_get_bulk(pool, MIB, 0, chunk, CHUNKS))
		die("a pool of 256 MiB");
	for (int i = 0; i < CHUNKS; i++)
		memset(sgp_chunk_addr(chunk[i]), i, MIB);
	for (int i = 0; i < 5; i++) {
		kib = fork_once(&ms);
		printf("fork with 256 MiB registered: %.2f ms, the child has %ld KiB of its own\n",
		       ms, kib);
		failures += kib < 0 || kib > 16 * 1024;
	}
	for (int i = 0; i < CHUNKS; i++) {
		const unsigned char *mem = sgp_chunk_addr(chunk[i]);

		failures += mem[0] != (unsigned char)i || memcmp(mem, mem + 1, MIB - 1);
		if (madvise(sgp_chunk_addr(chunk[i]), MIB, MADV_DOFORK))
			die("madvise");
	}
	kib = fork_once(&ms);
	printf("and if a child may have it: %.2f ms, the child has %ld KiB of its own\n", ms, kib);
	failures += kib < 200 * 1024;
	sgp_chunk_put_bulk(chunk, CHUNKS);
	if (sgp_pool_destroy(pool))
		die("the pool's end");
	ibv_dealloc_pd(pd);
	ibv_close_device(verbs);
	ibv_free_device_list(list);
	if (failures)
		printf("%d failures\n", failures);
	return failures > 0;
}
