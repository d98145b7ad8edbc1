/* SPDX-License-Identifier: BSD-2-Clause */
/* Mistakes with memory: used after its put, or over its edge. */
#include <errno.h>
#include <string.h>

#include "../suite.h"
#include "mistakes_rig.h"

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

static const struct mistake mistakes[] = {
	M(write_seen_by_the_next_owner, USE_AFTER_PUT,
	  "1 bytes of its memory, from byte 17 of 4096", "taker+", "giver+"),
	M(write_seen_by_trim, USE_AFTER_PUT, "from byte 4095 of 4096", "giver+"),
	M(write_seen_by_a_look, USE_AFTER_PUT, "from byte 0 of 4096", "giver+"),
	M(write_seen_at_the_end, USE_AFTER_PUT, "from byte 100 of 4096", "giver+"),
	M(write_over_the_edge, USE_AFTER_PUT, "8 bytes of its memory, from byte 0", "giver+"),
	M(address_of_what_was_put, NOT_HELD, "used, but nobody holds it", "giver+"),
	M(list_of_what_was_put, NOT_HELD, "used, but nobody holds it", "giver+"),
};
#define MISTAKES (int)(sizeof mistakes / sizeof *mistakes)

int main(void)
{
	Suite *suite = suite_create("mistakes: memory");
	TCase *tc = mistakes_case("memory", mistakes, MISTAKES);

	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
