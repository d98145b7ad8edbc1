/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a registration costs, with its end: ibv_reg_mr(3) and ibv_dereg_mr(3) of memory that is
 * there already, by size. It needs a device: scripts/vm gives one.
 *
 *      pages     hugepages of 2 MiB against base pages
 *      regions   one region against as many of 64 KiB as it takes
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <infiniband/verbs.h>

#include "harness.h"

#define PIECE     ((size_t)65536)
#define HUGE_PAGE ((size_t)2 << 20)

struct state {
	struct ibv_context *verbs;
	struct ibv_pd *pd;
	char *memory;
	size_t bytes, piece, mapped;
	struct ibv_mr **mr; /* [bytes / piece] */
};

static void teardown(void *arg)
{
	struct state *s = arg;

	if (s->memory && s->memory != MAP_FAILED)
		munmap(s->memory, s->mapped);
	if (s->pd)
		ibv_dealloc_pd(s->pd);
	if (s->verbs)
		ibv_close_device(s->verbs);
	free(s->mr);
	free(s);
}

static bool open_device(struct state *s)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	if (list && list[0])
		s->verbs = ibv_open_device(list[0]);
	if (list)
		ibv_free_device_list(list);
	s->pd = s->verbs ? ibv_alloc_pd(s->verbs) : NULL;
	return s->pd != NULL;
}

static void *setup(const char *name, size_t size, size_t piece, bool huge)
{
	struct state *s = calloc(1, sizeof *s);

	if (!s || !open_device(s)) {
		bench_missing(name, "there is no RDMA device here: run it by scripts/vm");
		goto fail;
	}
	s->bytes = size;
	s->piece = piece < size ? piece : size;
	s->mapped = huge ? (size + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1) : size;
	s->mr = calloc(size / s->piece + 1, sizeof s->mr[0]);
	s->memory = mmap(NULL, s->mapped, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | (huge ? MAP_HUGETLB : 0), -1, 0);
	if (!s->mr || s->memory == MAP_FAILED) {
		bench_missing(name, huge ? "not enough hugepages of 2 MiB" : "not enough memory");
		goto fail;
	}
	if (!huge)
		madvise(s->memory, s->mapped, MADV_NOHUGEPAGE);
	memset(s->memory, 1, s->mapped);
	return s;

fail:
	if (s)
		teardown(s);
	return NULL;
}

static void run(void *arg, size_t n)
{
	struct state *s = arg;

	for (; n; n--) {
		size_t count = 0;

		for (size_t at = 0; at < s->bytes; at += s->piece) {
			struct ibv_mr *mr =
				ibv_reg_mr(s->pd, s->memory + at, s->piece, IBV_ACCESS_LOCAL_WRITE);

			if (!mr) {
				fprintf(stderr, "bench_register: ibv_reg_mr of %zu bytes: %s\n",
					s->piece, strerror(errno));
				exit(1);
			}
			s->mr[count++] = mr;
		}
		while (count)
			ibv_dereg_mr(s->mr[--count]);
	}
}

static void *setup_huge(const char *which_case, size_t size)
{
	(void)which_case;
	return setup("hugepages", size, size, true);
}

static void *setup_base(const char *which_case, size_t size)
{
	(void)which_case;
	return setup("base pages", size, size, false);
}

static void *setup_pieces(const char *which_case, size_t size)
{
	(void)which_case;
	return setup("64 KiB regions", size, PIECE, false);
}

static const struct bench_contender pages[] = {
	{"hugepages", true, setup_huge, run, teardown},
	{"base-pages", false, setup_base, run, teardown},
	{0},
};

static const struct bench_contender regions[] = {
	{"one-region", true, setup_base, run, teardown},
	{"64KiB-regions", false, setup_pieces, run, teardown},
	{0},
};

static const struct bench_case cases[] = {
	{"pages", 1, pages},
	{"regions", 1, regions},
	{0},
};

static const size_t sizes[] = {4096, 65536, 1 << 20, 16 << 20, 128 << 20, 512 << 20, 1 << 30, 0};

static const struct bench bench = {
	.name = "bench_register",
	.about = "What ibv_reg_mr and ibv_dereg_mr of memory that is present cost, by size: "
		 "hugepages\n"
		 "against base pages, one region against many. It needs a device.\n",
	.cases = cases,
	.sizes = sizes,
};

int main(int argc, char **argv)
{
	return bench_main(&bench, argc, argv);
}
