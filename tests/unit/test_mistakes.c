/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Mistakes that a program can make, one function each, and what checked mode has to say of it. Each
 * runs in a process of its own, against the shared library, as programs do; main() exports its
 * symbols, so that the culprits have names.
 */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../suite.h"
#include "rig.h"

#define SIZE    4096
#define CHUNKS  16
#define MISTAKE __attribute__((noinline, visibility("default")))

static struct rig rig;
static struct sgp_pool *pool; /* of one size, SIZE, CHUNKS of it */

/* ---- what was found ---- */

static struct {
	int n;
	enum sgp_finding_kind kind;
	const void *chunk;
	struct sgp_pool *pool;
	char sentence[512];
} found;

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

static void *memory(struct sgp_chunk *chunk)
{
	return sgp_chunk_addr(chunk);
}

/* By functions of their own, so that the sentences can name them. */
MISTAKE struct sgp_chunk *taker(void);
MISTAKE struct sgp_chunk *taker(void)
{
	struct sgp_chunk *chunk = sgp_pool_get(pool, SIZE, 0);

	ck_assert_ptr_nonnull(chunk);
	memset(memory(chunk), 1, SIZE);
	return chunk;
}

MISTAKE int giver(struct sgp_chunk *chunk);
MISTAKE int giver(struct sgp_chunk *chunk)
{
	int ret = sgp_chunk_put(chunk);

	__asm__ volatile("" : : : "memory"); /* not its last call, or it's not on the stack */
	return ret;
}

static struct sgp_chunk *put_once(void)
{
	struct sgp_chunk *chunk = taker();

	ck_assert_int_eq(giver(chunk), 0);
	return chunk;
}

static int refused(int ret)
{
	return ret == -1 && errno == ESTALE;
}

/* ---- references ---- */

static void put_twice(void)
{
	ck_assert(refused(giver(put_once())));
}

static void put_once_too_often(void)
{
	struct sgp_chunk *chunk = taker();

	sgp_chunk_ref(chunk);
	ck_assert_int_eq(giver(chunk), 0);
	ck_assert_int_eq(giver(chunk), 0);
	ck_assert(refused(giver(chunk)));
}

static void put_twice_in_bulk(void)
{
	struct sgp_chunk *chunk = taker(), *twice[] = {chunk, chunk};

	sgp_chunk_put_bulk(twice, 2);
}

static void put_by_the_list_and_by_hand(void)
{
	struct sgp_chunk *chunk = taker();
	SGP_SGL(sgl, 1);

	ck_assert_int_eq(sgp_sgl_append(&sgl, chunk, 0, SIZE), 0);
	ck_assert_int_eq(giver(chunk), 0); /* the list's reference */
	sgp_sgl_clear(&sgl);
}

static pthread_barrier_t both;

static void *put_at_once(void *chunk)
{
	pthread_barrier_wait(&both);
	return (void *)(intptr_t)sgp_chunk_put(chunk);
}

static void put_by_two_threads(void)
{
	struct sgp_chunk *chunk = taker();
	pthread_t thread;
	void *ret;

	pthread_barrier_init(&both, NULL, 2);
	ck_assert_int_eq(pthread_create(&thread, NULL, put_at_once, chunk), 0);
	ret = put_at_once(chunk);
	ck_assert((ret == NULL) ^ (pthread_join(thread, &ret) == 0 && ret == NULL));
}

static void ref_after_put(void)
{
	sgp_chunk_ref(put_once());
}

static void clone_after_put(void)
{
	struct sgp_chunk *chunk = taker();
	SGP_SGL(copy, 1);
	SGP_SGL(sgl, 1);

	ck_assert_int_eq(sgp_sgl_append(&sgl, chunk, 0, SIZE), 0);
	ck_assert_int_eq(giver(chunk), 0);
	sgp_sgl_clone(&copy, &sgl);
	sgl.num_chunk = copy.num_chunk = 0;
}

/* ---- handles that are none ---- */

static void put_of_memory(void)
{
	ck_assert(refused(giver(memory(taker()))));
}

static void put_of_something_else(void)
{
	char other[256] = {0};

	ck_assert(refused(giver((struct sgp_chunk *)(void *)&other[64])));
}

static void put_beside_a_chunk(void)
{
	struct sgp_chunk *chunk = taker();

	ck_assert(refused(giver((struct sgp_chunk *)(void *)((char *)chunk + 16))));
}

static void put_behind_the_last_chunk(void)
{
	struct sgp_chunk *chunk[CHUNKS];
	struct sgp_chunk *last = NULL;
	struct sgp_chunk behind;

	ck_assert_int_eq(sgp_pool_get_bulk(pool, SIZE, 0, chunk, CHUNKS), 0);
	for (int i = 0; i < CHUNKS; i++)
		last = chunk[i] > last ? chunk[i] : last;
	behind = *last; /* a copy of a descriptor is not the chunk */
	ck_assert(refused(giver(&behind)));
	sgp_chunk_put_bulk(chunk, CHUNKS);
}

static void bulk_put_of_something_else(void)
{
	char other[256];
	struct sgp_chunk *chunks[] = {taker(), (struct sgp_chunk *)(void *)&other[64], taker()};
	struct sgp_pool_stats stats;

	memset(other, 0xff, sizeof other);
	sgp_chunk_put_bulk(chunks, 3);
	ck_assert_int_eq(sgp_pool_stats(pool, &stats), 0);
	ck_assert_uint_eq(stats.live, 0);
}

static void append_of_something_else(void)
{
	char other[256] = {0};
	SGP_SGL(sgl, 1);

	ck_assert(refused(sgp_sgl_append(&sgl, (struct sgp_chunk *)(void *)&other[64], 0, 0)));
}

static struct sgp_pool *another_pool(void)
{
	struct sgp_class_attr cls = {.size = SIZE, .chunks = 4};
	struct sgp_pool_attr attr = {
		.classes = &cls, .nclasses = 1, .pages = SGP_PAGES_BASE, .flags = SGP_POOL_CHECKED};
	struct sgp_pool *another = sgp_pool_create(rig.side[0].pd, &attr);

	ck_assert_msg(another != NULL, "%s", sgp_errmsg());
	return another;
}

/* case 40: the pool is made anew, with the same addresses if it can be, and the old handle used. */
static struct sgp_chunk *handle_of_a_pool_made_anew(struct sgp_pool **anew)
{
	struct sgp_pool *old = another_pool();
	struct sgp_chunk *chunk = sgp_pool_get(old, SIZE, 0);

	ck_assert_int_eq(giver(chunk), 0);
	ck_assert_int_eq(sgp_pool_destroy(old), 0);
	*anew = another_pool();
	return chunk;
}

static void is_untouched(struct sgp_pool *anew)
{
	struct sgp_pool_stats stats;

	ck_assert_int_eq(sgp_pool_stats(anew, &stats), 0);
	ck_assert_uint_eq(stats.live, 0);
	ck_assert_uint_eq(stats.chunks, 4);
	ck_assert_uint_eq(stats.findings, 0);
	ck_assert_int_eq(sgp_pool_destroy(anew), 0);
}

static void put_after_the_pool(void)
{
	struct sgp_pool *anew;

	ck_assert(refused(giver(handle_of_a_pool_made_anew(&anew))));
	is_untouched(anew);
}

static void post_after_the_pool(void)
{
	struct sgp_pool *anew;
	struct sgp_chunk *chunk = handle_of_a_pool_made_anew(&anew);

	ck_assert(refused(sgp_post_send(rig.side[0].ep, NULL, chunk, 0, 64, 0)));
	is_untouched(anew);
}

static void put_after_trim(void)
{
	struct sgp_chunk *chunk = put_once();

	ck_assert_int_eq(sgp_pool_trim(pool, 0, 0), 0);
	ck_assert(refused(giver(chunk)));
}

/* ---- memory after its put ---- */

static void write_seen_by_the_next_owner(void)
{
	struct sgp_chunk *chunk[CHUNKS], *put = taker();
	char *mem = memory(put);

	ck_assert_int_eq(giver(put), 0);
	mem[17] = 1;
	ck_assert_int_eq(sgp_pool_get_bulk(pool, SIZE, 0, chunk, CHUNKS), 0);
	sgp_chunk_put_bulk(chunk, CHUNKS);
}

static void write_seen_by_trim(void)
{
	struct sgp_chunk *chunk = taker();
	char *mem = memory(chunk);

	ck_assert_int_eq(giver(chunk), 0);
	mem[SIZE - 1] = 1;
	ck_assert_int_eq(sgp_pool_trim(pool, 0, 0), 0);
}

static void write_seen_by_a_look(void)
{
	struct sgp_chunk *chunk = taker();
	char *mem = memory(chunk);

	ck_assert_int_eq(giver(chunk), 0);
	ck_assert_int_eq(sgp_check_verify(pool), 0);
	mem[0] = 1;
	ck_assert(refused(sgp_check_verify(pool)));
	ck_assert_int_eq(sgp_check_verify(pool), 0); /* told once */
}

static void write_seen_at_the_end(void)
{
	struct sgp_pool *another = another_pool();
	struct sgp_chunk *chunk = sgp_pool_get(another, SIZE, 0);
	char *mem = memory(chunk);

	ck_assert_int_eq(giver(chunk), 0);
	mem[100] = 1;
	ck_assert_int_eq(sgp_pool_destroy(another), 0);
}

static void write_over_the_edge(void)
{
	struct sgp_chunk *chunk[CHUNKS], *first = NULL;

	ck_assert_int_eq(sgp_pool_get_bulk(pool, SIZE, 0, chunk, CHUNKS), 0);
	for (int i = 0; i < CHUNKS; i++)
		if (!first || memory(chunk[i]) < memory(first))
			first = chunk[i];
	for (int i = 0; i < CHUNKS; i++)
		if (chunk[i] != first)
			ck_assert_int_eq(giver(chunk[i]), 0);
	memset(memory(first), 2, SIZE + 8);
	ck_assert_int_eq(giver(first), 0);
	ck_assert(refused(sgp_check_verify(pool)));
}

static void address_of_what_was_put(void)
{
	struct sgp_chunk *chunk = taker();
	char *mem = memory(chunk);

	ck_assert_int_eq(giver(chunk), 0);
	ck_assert_ptr_null(sgp_pool_chunk_at(pool, mem + 5));
	ck_assert_int_eq(errno, ESTALE);
}

static void list_of_what_was_put(void)
{
	struct sgp_chunk *chunk = taker();
	char *mem = memory(chunk);
	SGP_SGL(sgl, 1);

	ck_assert_int_eq(giver(chunk), 0);
	ck_assert(refused(sgp_sgl_append_addr(&sgl, pool, mem, 100)));
	ck_assert_int_eq(sgl.num_chunk, 0);
}

/* ---- posts ---- */

static void send_after_put(void)
{
	ck_assert(refused(sgp_post_send(rig.side[0].ep, NULL, put_once(), 0, 64, 0)));
}

static void receive_after_put(void)
{
	ck_assert(refused(sgp_post_recv(rig.side[0].ep, NULL, put_once(), 0, 64)));
}

static void send_of_a_list_whose_chunk_was_put(void)
{
	struct sgp_chunk *chunk = taker();
	SGP_SGL(sgl, 1);

	ck_assert_int_eq(sgp_sgl_append(&sgl, chunk, 0, SIZE), 0);
	ck_assert_int_eq(giver(chunk), 0);
	ck_assert(refused(sgp_post_sendv(rig.side[0].ep, NULL, &sgl, 0)));
	sgl.num_chunk = 0;
}

/* A send that is not polled yet, of memory that the caller has kept an address of. */
static char *posted(struct sgp_chunk *chunk, int flags)
{
	char *mem = memory(chunk);

	rig_post_recv(&rig.side[1], NULL);
	ck_assert_int_eq(sgp_post_send(rig.side[0].ep, NULL, chunk, 0, SIZE, flags), 0);
	return mem;
}

static void reaped(void)
{
	rig_reap(&rig.side[0], 1);
	rig_reap(&rig.side[1], 1);
}

static void write_in_flight(void)
{
	posted(taker(), IBV_SEND_SIGNALED)[77] = 2;
	reaped();
}

static void write_in_flight_of_an_unsignalled_send(void)
{
	posted(taker(), 0)[77] = 2;
	posted(taker(), IBV_SEND_SIGNALED);
	rig_reap(&rig.side[0], 1);
	rig_reap(&rig.side[1], 2);
}

static void write_in_flight_of_what_is_handed_back(void)
{
	posted(taker(), SGP_HANDOVER)[77] = 2;
	reaped();
}

static void write_into_the_second_slice(void)
{
	struct sgp_chunk *chunk[2] = {taker(), taker()};
	char *mem = memory(chunk[1]);
	SGP_SGL(sgl, 2);

	rig_post_recv(&rig.side[1], NULL);
	ck_assert_int_eq(sgp_sgl_append(&sgl, chunk[0], 0, 100), 0);
	ck_assert_int_eq(sgp_sgl_append(&sgl, chunk[1], 200, 100), 0);
	ck_assert_int_eq(sgp_post_sendv(rig.side[0].ep, NULL, &sgl, IBV_SEND_SIGNALED), 0);
	mem[199] = mem[300] = 9; /* beside it, which is the caller's */
	mem[299] = 9;
	reaped();
}

static void put_of_what_is_posted(void)
{
	struct sgp_chunk *chunk = taker();

	posted(chunk, IBV_SEND_SIGNALED);
	ck_assert(refused(giver(chunk)));
	reaped();
}

static void write_in_flight_until_the_end(void)
{
	struct sgp_chunk *chunk = taker();
	char *mem = memory(chunk);

	/* Nobody receives it: it's flushed when the endpoint is closed. */
	ck_assert_int_eq(sgp_post_send(rig.side[0].ep, NULL, chunk, 0, SIZE, 0), 0);
	mem[0] = 7;
	ck_assert_int_ge(rig_close_ep(&rig.side[0]), 1);
}

static const struct mistake {
	const char *name;
	void (*make)(void);
	enum sgp_finding_kind kind;
	const char *says[4];
} mistakes[] = {
#define M(function, kind, ...)                                                                     \
	{                                                                                          \
#function, function, SGP_FOUND_##kind,                                             \
		{                                                                                  \
			__VA_ARGS__                                                                \
		}                                                                                  \
	}
	M(put_twice, PUT_TWICE, "once too often", "taker+", "giver+"),
	M(put_once_too_often, PUT_TWICE, "once too often", "taker+"),
	M(put_twice_in_bulk, PUT_TWICE, "once too often", "taker+"),
	M(put_by_the_list_and_by_hand, PUT_TWICE, "once too often", "giver+"),
	M(put_by_two_threads, PUT_TWICE, "once too often", "taker+"),
	M(ref_after_put, NOT_HELD, "used, but nobody holds it", "giver+"),
	M(clone_after_put, NOT_HELD, "used, but nobody holds it", "giver+"),
	M(put_of_memory, FOREIGN, "not a chunk of any pool"),
	M(put_of_something_else, FOREIGN, "not a chunk of any pool"),
	M(put_beside_a_chunk, FOREIGN, "not a chunk of any pool"),
	M(put_behind_the_last_chunk, FOREIGN, "not a chunk of any pool"),
	M(bulk_put_of_something_else, FOREIGN, "not a chunk of any pool"),
	M(append_of_something_else, FOREIGN, "not a chunk of any pool"),
	M(put_after_the_pool, STALE, "pool that was destroyed", "giver+"),
	M(post_after_the_pool, STALE, "pool that was destroyed", "giver+"),
	M(put_after_trim, STALE, "region that was given back", "taker+"),
	M(write_seen_by_the_next_owner, USE_AFTER_PUT,
	  "1 bytes of its memory, from byte 17 of 4096", "taker+", "giver+"),
	M(write_seen_by_trim, USE_AFTER_PUT, "from byte 4095 of 4096", "giver+"),
	M(write_seen_by_a_look, USE_AFTER_PUT, "from byte 0 of 4096", "giver+"),
	M(write_seen_at_the_end, USE_AFTER_PUT, "from byte 100 of 4096", "giver+"),
	M(write_over_the_edge, USE_AFTER_PUT, "8 bytes of its memory, from byte 0", "giver+"),
	M(address_of_what_was_put, NOT_HELD, "used, but nobody holds it", "giver+"),
	M(list_of_what_was_put, NOT_HELD, "used, but nobody holds it", "giver+"),
	M(send_after_put, NOT_HELD, "used, but nobody holds it", "giver+"),
	M(receive_after_put, NOT_HELD, "used, but nobody holds it", "giver+"),
	M(send_of_a_list_whose_chunk_was_put, NOT_HELD, "used, but nobody holds it", "giver+"),
	M(write_in_flight, WRITE_IN_FLIGHT, "while it was posted: some of 4096 bytes from byte 0",
	  "taker+"),
	M(write_in_flight_of_an_unsignalled_send, WRITE_IN_FLIGHT, "while it was posted"),
	M(write_in_flight_of_what_is_handed_back, WRITE_IN_FLIGHT, "while it was posted"),
	M(write_into_the_second_slice, WRITE_IN_FLIGHT, "some of 100 bytes from byte 200"),
	M(put_of_what_is_posted, PUT_TWICE, "its only reference is the queue's", "taker+"),
	M(write_in_flight_until_the_end, WRITE_IN_FLIGHT, "while it was posted", "taker+"),
#undef M
};
#define MISTAKES (int)(sizeof mistakes / sizeof *mistakes)

static void setup(void)
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

/* ---- mistakes that are refused: case 52c ---- */

static void is_busy(int ret)
{
	ck_assert_int_eq(ret, -1);
	ck_assert_int_eq(errno, EBUSY);
}

START_TEST(test_second_writer_is_refused)
{
	struct sgp_chunk *chunk;
	SGP_SGL(sgl, 1);

	setup();
	chunk = taker();
	ck_assert_int_eq(sgp_check_claim(chunk), 0);
	sgp_chunk_ref(chunk);
	posted(chunk, IBV_SEND_SIGNALED); /* seven more would fit */
	is_busy(sgp_check_claim(chunk));
	is_busy(sgp_post_recv(rig.side[0].ep, NULL, chunk, 0, 64));
	is_busy(sgp_post_read(rig.side[0].ep, NULL, chunk, SIZE - 8, 8, 0, 0, 0));
	/* To send it to another at the same time is no harm. */
	sgp_chunk_ref(chunk);
	posted(chunk, IBV_SEND_SIGNALED);
	rig_reap(&rig.side[0], 2);
	rig_reap(&rig.side[1], 2);
	ck_assert_int_eq(sgp_check_claim(chunk), 0);

	/* Two receives share a chunk, but not a byte. */
	sgp_chunk_ref(chunk);
	ck_assert_int_eq(sgp_post_recv(rig.side[0].ep, NULL, chunk, 0, 64), 0);
	sgp_chunk_ref(chunk);
	ck_assert_int_eq(sgp_post_recv(rig.side[0].ep, NULL, chunk, 64, 64), 0);
	sgp_chunk_ref(chunk);
	ck_assert_int_eq(sgp_sgl_append(&sgl, chunk, 127, 2), 0);
	is_busy(sgp_post_recvv(rig.side[0].ep, NULL, &sgl));
	ck_assert_int_eq(sgl.num_chunk, 1);
	ck_assert_int_eq(sgp_sgl_trim(&sgl, 0), 0);
	ck_assert_int_eq(rig_close_ep(&rig.side[0]), 2);
	ck_assert_int_eq(sgp_check_claim(chunk), 0);
	ck_assert_int_eq(giver(chunk), 0);
	ck_assert_int_eq(found.n, 0);
}
END_TEST

/* ---- leaks ---- */

struct seen {
	int n, posted;
	uint32_t references;
};

static int see(const struct sgp_held *held, void *arg)
{
	struct seen *seen = arg;

	seen->n++;
	seen->posted += held->posted;
	seen->references += held->references;
	ck_assert_int_gt(held->got.n, 0);
	return 0;
}

START_TEST(test_leaks_are_named)
{
	struct seen seen = {.n = 0};
	struct sgp_chunk *chunk[2];

	setup();
	chunk[0] = taker();
	chunk[1] = taker();
	sgp_chunk_ref(chunk[1]);
	rig_post_recv(&rig.side[0], NULL);
	ck_assert_int_eq(sgp_pool_destroy(pool), -1);
	ck_assert_int_eq(errno, EBUSY);
	ck_assert_ptr_nonnull(
		strstr(sgp_errmsg(), "3 chunks of 4096 bytes are still held: taken by"));
	ck_assert_ptr_nonnull(strstr(sgp_errmsg(), "taker+"));
	ck_assert_ptr_nonnull(strstr(sgp_errmsg(), "(posted)"));
	ck_assert_int_eq(sgp_check_held(pool, see, &seen), 0);
	ck_assert_int_eq(seen.n, 3);
	ck_assert_int_eq(seen.posted, 1);
	ck_assert_uint_eq(seen.references, 4);
	sgp_chunk_put_bulk(chunk, 2);
	sgp_chunk_put(chunk[1]);
	rig_close(&rig);
	ck_assert_int_eq(found.n, 0);
	rig_check_no_leak();
}
END_TEST

/* ---- the way findings take ---- */

START_TEST(test_counts)
{
	struct sgp_pool_stats stats;
	char text[512];

	setup();
	put_twice();
	put_twice();
	ck_assert_int_eq(sgp_pool_stats(pool, &stats), 0);
	ck_assert_uint_eq(stats.findings, 2);
	ck_assert_uint_eq(stats.live, 0);
	ck_assert_int_gt(sgp_pool_stats_print(pool, NULL, SGP_STATS_JSON, text, sizeof text), 0);
	ck_assert_ptr_nonnull(strstr(text, "\"findings\":2"));
	sgp_check_set_handler(NULL, NULL);
	found.n = 0;
	put_twice();
	ck_assert_int_eq(found.n, 0);
	ck_assert_uint_eq(sgp_check_findings(), 3);
}
END_TEST

/* An ordinary pool beside checked ones, and its chunks. */
START_TEST(test_ordinary_pools_beside)
{
	struct sgp_class_attr cls = {.size = SIZE, .chunks = 64};
	struct sgp_pool_attr attr = {.classes = &cls, .nclasses = 1, .pages = SGP_PAGES_BASE};
	struct sgp_chunk *chunk[64];
	struct sgp_pool *plain;

	setup();
	plain = sgp_pool_create(rig.side[0].pd, &attr);
	ck_assert_ptr_nonnull(plain);
	for (int turn = 0; turn < 3; turn++) {
		ck_assert_int_eq(sgp_pool_get_bulk(plain, SIZE, 0, chunk, 64), 0);
		sgp_chunk_ref(chunk[7]);
		ck_assert_int_eq(sgp_check_claim(chunk[7]), 0);
		ck_assert_int_eq(sgp_chunk_put(chunk[7]), 0);
		ck_assert_ptr_eq(sgp_pool_chunk_at(plain, memory(chunk[9])), chunk[9]);
		sgp_chunk_put_bulk(chunk, 64);
		ck_assert_int_eq(sgp_chunk_put(sgp_pool_get(plain, 1, 0)), 0);
	}
	ck_assert_int_eq(sgp_check_verify(plain), 0);
	ck_assert_int_eq(sgp_check_held(plain, see, NULL), 0);
	ck_assert_int_eq(sgp_pool_destroy(plain), 0);
	ck_assert_int_eq(found.n, 0);
}
END_TEST

static void abort_env(void)
{
	setenv("SGP_CHECK", "abort", 1);
}

START_TEST(test_environment_aborts)
{
	struct sgp_class_attr cls = {.size = SIZE, .chunks = 4};
	struct sgp_pool_attr attr = {.classes = &cls, .nclasses = 1, .pages = SGP_PAGES_BASE};

	abort_env();
	rig_open(&rig, &(struct rig_attr){.chunk_size = SIZE});
	pool = sgp_pool_create(rig.side[0].pd, &attr); /* no flag */
	put_once();
	giver(put_once());
}
END_TEST

START_TEST(test_environment_forbids)
{
	setenv("SGP_CHECK", "0", 1);
	setup();
	ck_assert_ptr_nonnull(put_once());
	ck_assert_int_eq(sgp_check_verify(pool), 0);
	rig_close(&rig);
	ck_assert_uint_eq(sgp_check_findings(), 0);
}
END_TEST

/*
 * An ordinary pool doesn't see the second put, but its end does: it says so, and does not take the
 * difference for a number of chunks. (A debug build's own check of the class ends the program before.)
 */
#ifdef NDEBUG
START_TEST(test_second_puts_are_told_at_the_end)
{
	struct sgp_chunk *chunk;

	setenv("SGP_CHECK", "0", 1);
	setup();
	chunk = put_once();
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(giver(chunk), 0);
	ck_assert_int_eq(sgp_pool_destroy(pool), -1);
	ck_assert_int_eq(errno, EBUSY);
	ck_assert_ptr_nonnull(
		strstr(sgp_errmsg(), "2 more puts than gets of chunks of 4096 bytes"));
}
END_TEST
#endif

int main(void)
{
	Suite *suite = suite_create("mistakes");
	TCase *tc = tcase_create("mistakes");

	unsetenv("SGP_CHECK");
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, test_mistake_is_found, 0, MISTAKES);
	tcase_add_test(tc, test_second_writer_is_refused);
	tcase_add_test(tc, test_leaks_are_named);
	tcase_add_test(tc, test_counts);
	tcase_add_test(tc, test_ordinary_pools_beside);
	tcase_add_test_raise_signal(tc, test_environment_aborts, SIGABRT);
	tcase_add_test(tc, test_environment_forbids);
#ifdef NDEBUG
	tcase_add_test(tc, test_second_puts_are_told_at_the_end);
#endif
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
