/* SPDX-License-Identifier: BSD-2-Clause */
/* How our own jemalloc is set up, whatever the program or its environment say to others. */
#include "heap/jemalloc.h"

/*
 * jemalloc's malloc_conf_2_conf_harder, which it reads last. retain: what is given back must reach the
 * extent hooks. dss: the program break is not ours. narenas: only heaps have arenas that are used.
 */
extern const char *sgp_je_conf;
const char *sgp_je_conf = "retain:false,dss:disabled,narenas:1,background_thread:false,"
			  "metadata_thp:disabled,percpu_arena:disabled";

/* What it calls instead of secure_getenv(3) and readlink(2): MALLOC_CONF and /etc/malloc.conf. */
char *sgp_je_getenv(const char *name);
char *sgp_je_getenv(const char *name)
{
	(void)name;
	return NULL;
}

long sgp_je_readlink(const char *path, char *buf, size_t size);
long sgp_je_readlink(const char *path, char *buf, size_t size)
{
	(void)path;
	(void)buf;
	(void)size;
	return -1;
}

/*
 * A page more for each large object, so that they don't share cache sets, is too much of what is
 * pinned. 5.3.0 has the option but does not parse it; so it's set before jemalloc's constructor, which
 * has no priority.
 */
extern bool sgp_je_cache_oblivious;

__attribute__((constructor(101))) static void set_options(void)
{
	sgp_je_cache_oblivious = false;
}
