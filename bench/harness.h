/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How the benchmarks measure: contenders in the same run, interleaved over many rounds after a
 * warm-up; medians; and the paired median of ours over the contender's, round by round, which a
 * drifting machine does not move. Instructions are callgrind's: the program runs itself under
 * valgrind with two numbers of iterations and takes the difference.
 *
 * A program fills in contenders for each case and calls bench_main(). Its options: --json, --case
 * C,
 * --size N, --rounds N, --instructions, --help.
 */
#ifndef BENCH_HARNESS_H
#define BENCH_HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Someone who does a case's work. */
struct bench_contender {
	const char *name;
	bool ours;
	/* Prepare for this size. Returns a state; NULL: it can't (bench_missing() has said why). */
	void *(*setup)(const char *which_case, size_t size);
	/* Do the work n times. */
	void (*run)(void *state, size_t n);
	void (*teardown)(void *state);
	/* Processor time in ns that all runs so far took, in other processes too. NULL: not told. */
	double (*cpu)(void *state);
};

struct bench_case {
	const char *name;
	size_t operations; /* what one run does n times counts as so many operations; 0: 1 */
	const struct bench_contender *contenders; /* those of ours first; ended by a NULL name */
	bool moves; /* an operation moves as many bytes as its size says: bytes a second are told */
};

struct bench {
	const char *name;
	const char *about;              /* for --help, ends with a newline */
	const struct bench_case *cases; /* ended by a NULL name */
	const size_t *sizes;            /* ended by 0 */
	unsigned int slice_ms;          /* a contender's turn in a round; 0: 2 */
};

/* Tell that a contender is missing, once. */
void bench_missing(const char *contender, const char *why);

int bench_main(const struct bench *bench, int argc, char **argv);

/* The compiler must have the value ready here, and must not know it afterwards. */
#define bench_use(x) __asm__ volatile("" : : "g"(x) : "memory")

#endif
