/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Statistics: numbers and three ways to write them down.
 *
 * No class's lock is taken. The counters are atomics; the list of caches is walked under the lock
 * of the threads' registry, which only a thread's first use of a class and its end take.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "pool/cache.h"
#include "pool/errmsg.h"
#include "pool/pool.h"

static size_t count_cached(struct sgp_class *cls)
{
	const struct sgp_cache *cache;
	size_t n = 0;

	for (cache = cls->caches; cache; cache = cache->next_of_class)
		n += sgp_cache_count(cache);
	return n;
}

static uint64_t load(const _Atomic uint64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

/* The registry's lock is held. */
static void read_class(struct sgp_class *cls, struct sgp_class_stats *stats)
{
	*stats = (struct sgp_class_stats){
		.size = cls->cut.size,
		.max_chunks = cls->cap,
		.reserve = cls->reserve,
		.chunks = cls->made,
		.free = cls->nfree,
		.cached = count_cached(cls),
		.peak = load(&cls->count.peak),
		.exhausted = load(&cls->count.exhausted),
		.waits = load(&cls->count.waits),
		.reclaims = load(&cls->count.reclaims),
		.growths = load(&cls->count.growths),
		.trims = load(&cls->count.trims),
		.bytes = cls->bytes,
	};
	/* Chunks that moved while we counted may have been seen twice. */
	if (stats->chunks > stats->free + stats->cached)
		stats->live = stats->chunks - stats->free - stats->cached;
}

int sgp_pool_class_stats(struct sgp_pool *pool, uint32_t index, struct sgp_class_stats *stats)
{
	if (sgp_check_fork())
		return -1;
	if (!pool || !stats)
		return sgp_fail(EINVAL, "statistics: a pool and room for them are needed");
	if (index >= pool->nclasses)
		return sgp_fail(EINVAL, "class %u of %u", index, pool->nclasses);
	sgp_threads_lock();
	read_class(&pool->classes[index], stats);
	sgp_threads_unlock();
	return 0;
}

int sgp_pool_stats(struct sgp_pool *pool, struct sgp_pool_stats *stats)
{
	struct sgp_class_stats cls;
	uint32_t i;

	if (sgp_check_fork())
		return -1;
	if (!pool || !stats)
		return sgp_fail(EINVAL, "statistics: a pool and room for them are needed");
	*stats = (struct sgp_pool_stats){
		.regions = pool->reg.nregions,
		.registrations = pool->reg.registrations,
		.deregistrations = pool->reg.deregistrations,
		.bytes_registered = pool->reg.bytes,
		.bytes_reserved = pool->mem.bytes,
		.imports = pool->imports.count,
		.bytes_imported = pool->imports.bytes,
		.page_size = pool->page_size,
		.findings = pool->findings,
		.nclasses = pool->nclasses,
	};
	sgp_threads_lock();
	for (i = 0; i < pool->nclasses; i++) {
		read_class(&pool->classes[i], &cls);
		stats->chunks += cls.chunks;
		stats->free += cls.free + cls.cached;
		stats->cached += cls.cached;
		stats->live += cls.live;
	}
	sgp_threads_unlock();
	return 0;
}

/* Text that grows beyond its buffer without harm, as with snprintf(3). */
struct out {
	char *buf;
	size_t size, length;
};

__attribute__((format(printf, 2, 3))) static void add(struct out *out, const char *fmt, ...)
{
	size_t left = out->length < out->size ? out->size - out->length : 0;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(left ? out->buf + out->length : NULL, left, fmt, ap);
	va_end(ap);
	if (n > 0)
		out->length += (size_t)n;
}

/* A name as JSON and Prometheus quote it. */
static void add_quoted(struct out *out, const char *name)
{
	add(out, "\"");
	for (; *name; name++) {
		if (*name == '"' || *name == '\\')
			add(out, "\\%c", *name);
		else if (*name == '\n')
			add(out, "\\n");
		else if ((unsigned char)*name >= ' ')
			add(out, "%c", *name);
	}
	add(out, "\"");
}

/* The numbers by name, so that no format can forget one. */
#define POOL_NUMBER(m)                                                                             \
	{                                                                                          \
#m, offsetof(struct sgp_pool_stats, m)                                             \
	}
#define CLASS_NUMBER(m)                                                                            \
	{                                                                                          \
#m, offsetof(struct sgp_class_stats, m)                                            \
	}
struct number {
	const char *name;
	size_t offset;
};
static const struct number of_pool[] = {
	POOL_NUMBER(regions),          POOL_NUMBER(registrations),  POOL_NUMBER(deregistrations),
	POOL_NUMBER(bytes_registered), POOL_NUMBER(bytes_reserved), POOL_NUMBER(page_size),
	POOL_NUMBER(findings),
	POOL_NUMBER(imports),          POOL_NUMBER(bytes_imported),
};
static const struct number of_class[] = {
	CLASS_NUMBER(chunks),   CLASS_NUMBER(free),      CLASS_NUMBER(cached),
	CLASS_NUMBER(live),     CLASS_NUMBER(peak),      CLASS_NUMBER(max_chunks),
	CLASS_NUMBER(reserve),  CLASS_NUMBER(exhausted), CLASS_NUMBER(waits),
	CLASS_NUMBER(reclaims), CLASS_NUMBER(growths),   CLASS_NUMBER(trims),
	CLASS_NUMBER(bytes),
};
#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static uint64_t value(const void *stats, const struct number *number)
{
	uint64_t n;

	memcpy(&n, (const char *)stats + number->offset, sizeof n);
	return n;
}

/* Counters only rise; the others are gauges, in Prometheus's words. */
static bool is_counter(const char *name)
{
	static const char *const counters[] = {
		"registrations", "deregistrations", "findings", "exhausted",
		"waits",         "reclaims",        "growths",  "trims"};

	for (size_t i = 0; i < COUNT(counters); i++)
		if (strcmp(name, counters[i]) == 0)
			return true;
	return false;
}

static void print_text(struct out *out, struct sgp_pool *pool, const char *name,
		       const struct sgp_pool_stats *stats)
{
	struct sgp_class_stats cls;

	add(out, "pool %s", name);
	for (size_t k = 0; k < COUNT(of_pool); k++)
		add(out, "%s %s %" PRIu64, k ? "," : ":", of_pool[k].name,
		    value(stats, &of_pool[k]));
	add(out, "\n%11s", "size");
	for (size_t k = 0; k < COUNT(of_class); k++)
		add(out, " %11s", of_class[k].name);
	add(out, "\n");
	for (uint32_t i = 0; i < pool->nclasses; i++) {
		sgp_pool_class_stats(pool, i, &cls);
		add(out, "%11zu", cls.size);
		for (size_t k = 0; k < COUNT(of_class); k++)
			add(out, " %11" PRIu64, value(&cls, &of_class[k]));
		add(out, "\n");
	}
}

static void print_json(struct out *out, struct sgp_pool *pool, const char *name,
		       const struct sgp_pool_stats *stats)
{
	struct sgp_class_stats cls;

	add(out, "{\"pool\":");
	add_quoted(out, name);
	for (size_t k = 0; k < COUNT(of_pool); k++)
		add(out, ",\"%s\":%" PRIu64, of_pool[k].name, value(stats, &of_pool[k]));
	add(out, ",\"classes\":[");
	for (uint32_t i = 0; i < pool->nclasses; i++) {
		sgp_pool_class_stats(pool, i, &cls);
		add(out, "%s{\"size\":%zu", i ? "," : "", cls.size);
		for (size_t k = 0; k < COUNT(of_class); k++)
			add(out, ",\"%s\":%" PRIu64, of_class[k].name, value(&cls, &of_class[k]));
		add(out, "}");
	}
	add(out, "]}\n");
}

static void print_type(struct out *out, const char *name)
{
	bool counter = is_counter(name);

	add(out, "# TYPE sgpool_%s%s %s\n", name, counter ? "_total" : "",
	    counter ? "counter" : "gauge");
}

static void print_prometheus(struct out *out, struct sgp_pool *pool, const char *name,
			     const struct sgp_pool_stats *stats)
{
	struct sgp_class_stats cls;

	for (size_t k = 0; k < COUNT(of_pool); k++) {
		print_type(out, of_pool[k].name);
		add(out, "sgpool_%s%s{pool=", of_pool[k].name,
		    is_counter(of_pool[k].name) ? "_total" : "");
		add_quoted(out, name);
		add(out, "} %" PRIu64 "\n", value(stats, &of_pool[k]));
	}
	for (size_t k = 0; k < COUNT(of_class); k++) {
		print_type(out, of_class[k].name);
		for (uint32_t i = 0; i < pool->nclasses; i++) {
			sgp_pool_class_stats(pool, i, &cls);
			add(out, "sgpool_%s%s{pool=", of_class[k].name,
			    is_counter(of_class[k].name) ? "_total" : "");
			add_quoted(out, name);
			add(out, ",size=\"%zu\"} %" PRIu64 "\n", cls.size,
			    value(&cls, &of_class[k]));
		}
	}
}

int sgp_pool_stats_print(struct sgp_pool *pool, const char *name, enum sgp_stats_format format,
			 char *buf, size_t size)
{
	struct out out = {.buf = buf, .size = size};
	struct sgp_pool_stats stats;

	if (sgp_pool_stats(pool, &stats))
		return -1;
	if (!name)
		name = "sgpool";
	if (size)
		buf[0] = '\0';
	switch (format) {
	case SGP_STATS_TEXT:
		print_text(&out, pool, name, &stats);
		break;
	case SGP_STATS_JSON:
		print_json(&out, pool, name, &stats);
		break;
	case SGP_STATS_PROMETHEUS:
		print_prometheus(&out, pool, name, &stats);
		break;
	default:
		return sgp_fail(EINVAL, "a format of statistics that is not one of SGP_STATS_*");
	}
	return (int)out.length;
}
