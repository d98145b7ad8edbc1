/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mistakes_rig.h"

#define MISTAKE __attribute__((noinline, visibility("default")))

struct rig rig;
struct sgp_pool *pool;
struct found found;

static const struct mistake *mistakes;

static void note(const struct sgp_finding *finding, void *arg)
{
	ck_assert_ptr_eq(arg, &found);
	if (found.n++)
		return;
	found.kind = finding->kind;
	found.chunk = finding->chunk;
	found.pool = finding->pool;
	snprintf(found.sentence, sizeof found.sentence, "%s", finding->sentence);
}

void *memory(struct sgp_chunk *chunk)
{
	return sgp_chunk_addr(chunk);
}

MISTAKE struct sgp_chunk *taker(void)
{
	struct sgp_chunk *chunk = sgp_pool_get(pool, SIZE, 0);

	ck_assert_ptr_nonnull(chunk);
	memset(memory(chunk), 1, SIZE);
	return chunk;
}

MISTAKE int giver(struct sgp_chunk *chunk)
{
	int ret = sgp_chunk_put(chunk);

	__asm__ volatile("" : : : "memory"); /* not its last call, or it's not on the stack */
	return ret;
}

struct sgp_chunk *put_once(void)
{
	struct sgp_chunk *chunk = taker();

	ck_assert_int_eq(giver(chunk), 0);
	return chunk;
}

void put_twice(void)
{
	ck_assert(refused(giver(put_once())));
}

int refused(int ret)
{
	return ret == -1 && errno == ESTALE;
}

struct sgp_pool *another_pool(void)
{
	struct sgp_class_attr cls = {.size = SIZE, .chunks = 4};
	struct sgp_pool_attr attr = {
		.classes = &cls, .nclasses = 1, .pages = SGP_PAGES_BASE, .flags = SGP_POOL_CHECKED};
	struct sgp_pool *another = sgp_pool_create(rig.side[0].pd, &attr);

	ck_assert_msg(another != NULL, "%s", sgp_errmsg());
	return another;
}

void setup(void)
{
	rig_open(&rig, &(struct rig_attr){.pool_flags = SGP_POOL_CHECKED,
					  .chunk_size = SIZE,
					  .chunks = CHUNKS});
	pool = rig.side[0].pool;
	sgp_check_set_handler(note, &found);
}

#if SGP_ASAN
/* Where free chunks are poisoned, a write to one does not come as far as to be found later. */
static void reported(const char *report)
{
	_exit(strstr(report, "use-after-poison") ? 0 : 1);
}

static bool is_reported_at_once(const struct mistake *m)
{
	int status;
	pid_t pid;

	if (m->kind != SGP_FOUND_USE_AFTER_PUT)
		return false;
	pid = fork();
	if (pid == 0) {
		__asan_set_error_report_callback(reported);
		setup();
		m->make();
		_exit(2);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	return true;
}
#else
static bool is_reported_at_once(const struct mistake *m)
{
	(void)m;
	return false;
}
#endif

START_TEST(test_mistake_is_found)
{
	const struct mistake *m = &mistakes[_i];
	uint64_t before;

	if (is_reported_at_once(m))
		return;
	setup();
	before = sgp_check_findings();
	m->make();
	ck_assert_msg(found.n == 1, "%s: %d findings: %s", m->name, found.n, found.sentence);
	ck_assert_uint_eq(sgp_check_findings(), before + 1);
	ck_assert_msg(found.kind == m->kind, "%s: %s", m->name, found.sentence);
	ck_assert_ptr_nonnull(found.chunk);
	for (int i = 0; m->says[i]; i++)
		ck_assert_msg(strstr(found.sentence, m->says[i]) != NULL, "%s: '%s' in: %s",
			      m->name, m->says[i], found.sentence);
}
END_TEST

TCase *mistakes_case(const char *name, const struct mistake *table, int n)
{
	TCase *tc = tcase_create(name);

	unsetenv("SGP_CHECK");
	tcase_set_timeout(tc, 60);
	mistakes = table;
	if (n)
		tcase_add_loop_test(tc, test_mistake_is_found, 0, n);
	return tc;
}
