/* SPDX-License-Identifier: BSD-2-Clause */
/* Runs of pages against a trivial model, compared after each step. */
#include <check.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "../suite.h"
#include "heap/pages.h"

#define N     300
#define STEPS 8000

static struct sgp_page_map pages;
static uint64_t map[(N + 63) / 64];
static bool model[N]; /* in use */

#define NONE SIZE_MAX

/* The first page of the shortest run that will do; NONE. */
static size_t model_fit(size_t n, size_t align, size_t base)
{
	size_t best = NONE, shortest = SIZE_MAX;

	for (size_t start = 0, end; start < N; start = end + 1) {
		size_t at = start;

		for (end = start; end < N && !model[end]; end++)
			;
		while ((base + at) % align)
			at++;
		if (at < end && end - at >= n && end - start < shortest) {
			best = at;
			shortest = end - start;
		}
	}
	return best;
}

static size_t take(size_t n, size_t align, size_t base)
{
	struct sgp_run best = {.n = SIZE_MAX};

	if (!sgp_page_map_fit(&pages, n, align, base, &best))
		return NONE;
	sgp_page_map_take(&pages, best.first, n);
	return best.first;
}

static void compare(void)
{
	size_t used = 0, run = 0, longest = 0, hint = N;

	for (size_t i = 0; i < N; i++) {
		bool bit = map[i / 64] >> i % 64 & 1;

		if (bit != model[i])
			ck_abort_msg("page %zu is %d", i, bit);
		used += bit;
		run = bit ? 0 : run + 1;
		if (run > longest)
			longest = run;
		if (!bit && i < hint)
			hint = i;
	}
	ck_assert_uint_eq(pages.used, used);
	ck_assert_uint_ge(pages.longest, longest);
	ck_assert_uint_le(pages.hint, hint);
}

START_TEST(test_random_runs)
{
	static struct {
		size_t at, n;
	} held[N];
	size_t base = _i * 7, nheld = 0;

	srand48(_i + 1);
	memset(map, 0, sizeof map);
	memset(model, 0, sizeof model);
	sgp_page_map_init(&pages, map, N);
	for (int step = 0; step < STEPS; step++) {
		/* By turns it fills and empties. */
		if (nheld < N && (step / 1000 % 2 ? lrand48() % 3 == 0 : lrand48() % 3)) {
			size_t n = 1 + (size_t)lrand48() % (lrand48() % 8 ? 8 : N);
			size_t align = (size_t)1 << (lrand48() % 3 ? 0 : lrand48() % 8);
			size_t expected = model_fit(n, align, base);
			size_t at = take(n, align, base);

			ck_assert_uint_eq(at, expected);
			if (at != NONE) {
				memset(model + at, true, n);
				held[nheld].at = at;
				held[nheld++].n = n;
			}
		} else if (nheld) {
			size_t i = (size_t)lrand48() % nheld;

			sgp_page_map_give(&pages, held[i].at, held[i].n);
			memset(model + held[i].at, false, held[i].n);
			held[i] = held[--nheld];
		}
		compare();
	}
	while (nheld--)
		sgp_page_map_give(&pages, held[nheld].at, held[nheld].n);
	ck_assert_uint_eq(pages.used, 0);
	ck_assert_uint_eq(take(N, 1, base), 0);
	ck_assert_uint_eq(take(1, 1, base), NONE);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pages");
	TCase *tc = tcase_create("pages");

	suite_add_tcase(suite, tc);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, test_random_runs, 0, 8);
	return suite_run(suite);
}
