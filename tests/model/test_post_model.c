/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Random operations over 1 to 8 endpoints on one completion queue, on a device that misbehaves at
 * random, against a trivial model; the invariant is checked after each.
 *
 *      test_post_model [--operations N] [--seed N]
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "post_model.h"

#define ERA 3000 /* operations on one device, about */

struct world w;

void model_fail(const char *file, int line, const char *what)
{
	fprintf(stderr,
		"%s:%d: --seed %lu, step %llu (era %lu on %s): %s is not so (errno %d: %s)\n", file,
		line, w.seed, (unsigned long long)w.step, w.count.eras, w.device, what, errno,
		sgp_errmsg());
	abort();
}

static unsigned long number(const char *text)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (end == text || *end) {
		fprintf(stderr, "%s is not a number\n", text);
		exit(2);
	}
	return n;
}

int main(int argc, char **argv)
{
	unsigned long operations = 30000, left = 0;

	w.seed = 1;
	for (int i = 1; i < argc; i += 2) {
		if (i + 1 < argc && !strcmp(argv[i], "--operations"))
			operations = number(argv[i + 1]);
		else if (i + 1 < argc && !strcmp(argv[i], "--seed"))
			w.seed = number(argv[i + 1]);
		else
			return fprintf(stderr, "usage: %s [--operations N] [--seed N]\n", argv[0]),
			       2;
	}
	printf("%lu operations, --seed %lu\n", operations, w.seed);
	w.rnd = w.seed * 0x9E3779B97F4A7C15ull + 1;
	/* Other processes have no part in it. */
	setenv("SGP_SOFTVERBS_NET", "none", 1);
	sv_clock_advance(0); /* from here on time is the model's */
	sv_strict(1);
	for (w.step = 0; w.step < operations; w.step++, left--) {
		if (!left) {
			if (w.step)
				era_end();
			era_begin();
			left = 1 + pick(2 * ERA);
		}
		random_operation();
		if (w.step % 16 == 0)
			take_events();
		check_world();
	}
	era_end();
	printf("%lu posts, %lu refused, %lu told (%lu errors), %lu retired silently, %lu "
	       "cancelled, %lu stale completions; %lu resets, %lu closes; %lu eras, in %lu the "
	       "queue failed, in %lu the device went\n",
	       w.count.posts, w.count.refused, w.count.told, w.count.errors, w.count.retired,
	       w.count.cancels, w.count.stale, w.count.resets, w.count.closes, w.count.eras,
	       w.count.dead, w.count.removals);
	return 0;
}
