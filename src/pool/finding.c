/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Findings on their way out, see finding.h.
 *
 * Callers are return addresses. In a shared library the frames inside it are left out; in a program
 * that the library is linked into statically they can't be told from the program's own, but for the
 * few that are always there.
 */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool/errmsg.h"
#include "pool/finding.h"
#include "pool/pool.h"
#include "sgp_config.h"

#if SGP_HAVE_BACKTRACE
#include <execinfo.h>
#endif

#define DEEPEST 24 /* frames to look through for the caller's */

/* ---- who calls ---- */

static struct {
	uintptr_t from, to; /* addresses of the library; none: it is part of the program */
} own;
static pthread_once_t own_once = PTHREAD_ONCE_INIT;

static int find_own(struct dl_phdr_info *info, size_t size, void *arg)
{
	uintptr_t here = (uintptr_t)sgp_who_calls, from = UINTPTR_MAX, to = 0;
	bool is_program = *(bool *)arg;

	(void)size;
	*(bool *)arg = false;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		uintptr_t start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;

		if (info->dlpi_phdr[i].p_type != PT_LOAD)
			continue;
		from = start < from ? start : from;
		to = start + info->dlpi_phdr[i].p_memsz > to ? start + info->dlpi_phdr[i].p_memsz
							     : to;
	}
	if (here < from || here >= to)
		return 0;
	if (!is_program) {
		own.from = from;
		own.to = to;
	}
	return 1;
}

static void init_own(void)
{
	bool first = true; /* the program comes first */

	dl_iterate_phdr(find_own, &first);
}

void sgp_who_calls(struct sgp_who *who)
{
	who->n = 0;
#if SGP_HAVE_BACKTRACE
	void *frame[DEEPEST];
	int err = errno, n, i = 2; /* this function, and who asks for itself */

	pthread_once(&own_once, init_own);
	n = backtrace(frame, DEEPEST);
	while (i < n && (uintptr_t)frame[i] >= own.from && (uintptr_t)frame[i] < own.to)
		i++;
	for (; i < n && who->n < SGP_WHO_FRAMES; i++)
		who->frame[who->n++] = frame[i];
	errno = err;
#endif
}

void sgp_who_keep(struct sgp_who *to, const struct sgp_who *from)
{
	for (int i = 0; i < from->n; i++)
		__atomic_store_n(&to->frame[i], from->frame[i], __ATOMIC_RELAXED);
	__atomic_store_n(&to->n, from->n, __ATOMIC_RELEASE);
}

struct sgp_who sgp_who_kept(const struct sgp_who *from)
{
	struct sgp_who who = {.n = __atomic_load_n(&from->n, __ATOMIC_ACQUIRE)};

	for (int i = 0; i < who.n; i++)
		who.frame[i] = __atomic_load_n(&from->frame[i], __ATOMIC_RELAXED);
	return who;
}

static int print_frame(void *frame, char *buf, size_t size)
{
	const char *file;
	Dl_info info;

	if (!dladdr(frame, &info) || !info.dli_fname)
		return snprintf(buf, size, "%p", frame);
	if (info.dli_sname)
		return snprintf(buf, size, "%s+0x%tx", info.dli_sname,
				(char *)frame - (char *)info.dli_saddr);
	file = strrchr(info.dli_fname, '/');
	return snprintf(buf, size, "%s+0x%tx", file ? file + 1 : info.dli_fname,
			(char *)frame - (char *)info.dli_fbase);
}

char *sgp_who_print(const struct sgp_who *who, char *buf, size_t size)
{
	size_t at = 0;

	snprintf(buf, size, "somebody");
	for (int i = 0; i < who->n && i < 3 && at + 4 < size; i++) {
		if (i)
			at += (size_t)snprintf(buf + at, size - at, " < ");
		at += (size_t)print_frame(who->frame[i], buf + at, size - at);
	}
	return buf;
}

/* ---- what becomes of it ---- */

static bool aborts;
static _Atomic uint64_t findings;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void (*handler)(const struct sgp_finding *finding, void *arg);
static void *handler_arg;

void sgp_finding_aborts(void)
{
	aborts = true;
}

void sgp_check_set_handler(void (*to)(const struct sgp_finding *finding, void *arg), void *arg)
{
	pthread_mutex_lock(&lock);
	handler = to;
	handler_arg = arg;
	pthread_mutex_unlock(&lock);
}

uint64_t sgp_check_findings(void)
{
	return findings;
}

static void tell(const struct sgp_finding *finding)
{
	void (*to)(const struct sgp_finding *, void *);
	void *arg;

	pthread_mutex_lock(&lock);
	to = handler;
	arg = handler_arg;
	pthread_mutex_unlock(&lock);
	if (to)
		to(finding, arg);
	if (aborts) {
		fprintf(stderr, "sgpool: %s\n", finding->sentence);
		abort();
	}
}

int sgp_found(enum sgp_finding_kind kind, struct sgp_pool *pool, const void *chunk,
	      const struct sgp_who *got, const struct sgp_who *put, const char *what, ...)
{
	const struct sgp_who taker = got ? sgp_who_kept(got) : (struct sgp_who){.n = 0};
	const struct sgp_who giver = put ? sgp_who_kept(put) : (struct sgp_who){.n = 0};
	char text[160], taken[128] = "", given[128] = "", name[112];
	struct sgp_finding finding;
	va_list ap;

	va_start(ap, what);
	vsnprintf(text, sizeof text, what, ap);
	va_end(ap);
	if (taker.n)
		snprintf(taken, sizeof taken, "; taken by %s",
			 sgp_who_print(&taker, name, sizeof name));
	if (giver.n)
		snprintf(given, sizeof given, "; put by %s",
			 sgp_who_print(&giver, name, sizeof name));
	sgp_set_error(ESTALE, "chunk %p: %s%s%s", chunk, text, taken, given);
	finding = (struct sgp_finding){.kind = kind,
				       .sentence = sgp_errmsg(),
				       .chunk = chunk,
				       .pool = pool,
				       .got = {.address = taker.frame, .n = taker.n},
				       .put = {.address = giver.frame, .n = giver.n}};
	findings++;
	if (pool)
		pool->findings++;
	tell(&finding);
	errno = ESTALE;
	return -1;
}
