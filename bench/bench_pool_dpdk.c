/* SPDX-License-Identifier: BSD-2-Clause */
/* DPDK's mempool with a cache of 256 a thread, without hugepages and without root. */
#include <stdlib.h>

#include "bench_pool.h"

#ifdef BENCH_DPDK
#include <sched.h>
#include <stdio.h>

#include <rte_eal.h>
#include <rte_lcore.h>
#include <rte_mempool.h>

struct pool {
	struct rte_mempool *mempool;
};

static inline void *pool_get(struct pool *p)
{
	void *chunk = NULL;

	rte_mempool_get(p->mempool, &chunk);
	return chunk;
}

static inline void pool_put(struct pool *p, void *chunk)
{
	rte_mempool_put(p->mempool, chunk);
}

static inline void *pool_memory(void *chunk)
{
	return chunk;
}

#define POOL_HAS_BULK
static inline void pool_get_bulk(struct pool *p, void **chunks, unsigned int n)
{
	rte_mempool_get_bulk(p->mempool, chunks, n);
}

static inline void pool_put_bulk(struct pool *p, void **chunks, unsigned int n)
{
	rte_mempool_put_bulk(p->mempool, chunks, n);
}

#define POOL_HAS_THREADS
/* Without a number of its own a thread has no cache. */
static void pool_thread_begin(void)
{
	if (rte_thread_register())
		bench_missing("rte_mempool", "rte_thread_register failed");
}

static void pool_thread_end(void)
{
	rte_thread_unregister();
}

/* EAL ties its first thread to a processor; nobody else is, so undo that. */
static int start(void)
{
	static char words[][16] = {"bench_pool", "--no-huge",      "-m",          "1024",
				   "--no-pci",   "--no-telemetry", "--no-shconf", "--log-level=1"};
	enum {
		ARGC = sizeof words / sizeof words[0]
	};
	char *argv[ARGC + 1] = {0};
	static int started; /* 1: yes, -1: it can't */
	cpu_set_t cpus;

	if (started == 0) {
		sched_getaffinity(0, sizeof cpus, &cpus);
		for (int i = 0; i < ARGC; i++)
			argv[i] = words[i];
		started = rte_eal_init(ARGC, argv) < 0 ? -1 : 1;
		sched_setaffinity(0, sizeof cpus, &cpus);
	}
	return started;
}

static void pool_free(struct pool *p)
{
	rte_mempool_free(p->mempool);
	free(p);
}

static struct pool *pool_make(size_t size, bool strided)
{
	static unsigned int count;
	struct pool *p = calloc(1, sizeof *p);
	char name[32];

	(void)strided;
	if (start() < 0 || !p) {
		bench_missing("rte_mempool", "rte_eal_init failed");
		free(p);
		return NULL;
	}
	snprintf(name, sizeof name, "bench%u", count++);
	p->mempool = rte_mempool_create(name, (unsigned int)bench_pool_chunks(size) - 1,
					(unsigned int)size, 256, 0, NULL, NULL, NULL, NULL,
					SOCKET_ID_ANY, 0);
	if (!p->mempool) {
		bench_missing("rte_mempool", "rte_mempool_create failed");
		free(p);
		return NULL;
	}
	return p;
}

#include "bench_pool_loops.h"
#else
static void *loops_setup(const char *which_case, size_t size)
{
	(void)which_case;
	(void)size;
	bench_missing("rte_mempool", "dpdk-dev is not installed");
	return NULL;
}
#define loops_run      NULL
#define loops_teardown NULL
#endif

const struct bench_contender bench_pool_dpdk = {"rte_mempool", false, loops_setup, loops_run,
						loops_teardown};
