/* SPDX-License-Identifier: BSD-2-Clause */
/* Mistakes with references and handles: put once too often, used when put, no chunk (any more). */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "../suite.h"
#include "mistakes_rig.h"

/* ---- references ---- */

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

static const struct mistake mistakes[] = {
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
};
#define MISTAKES (int)(sizeof mistakes / sizeof *mistakes)

int main(void)
{
	Suite *suite = suite_create("mistakes");
	TCase *tc = mistakes_case("mistakes", mistakes, MISTAKES);

	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
