/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Times in nanoseconds, counted in buckets whose width is 1/128 of their value: percentiles to better
 * than one per cent, of any number of samples, in a fixed size.
 *
 *      values 0 .. 255    exactly, a bucket each
 *      2^n .. 2^(n+1)-1   128 buckets, n = 8 .. 42
 */
#ifndef SGP_CLI_HISTOGRAM_H
#define SGP_CLI_HISTOGRAM_H

#include <stdint.h>

enum {
	HISTOGRAM_FINE = 128,
	HISTOGRAM_OCTAVES = 35,
	HISTOGRAM_BUCKETS = 2 * HISTOGRAM_FINE + HISTOGRAM_OCTAVES * HISTOGRAM_FINE,
};

struct histogram {
	uint64_t bucket[HISTOGRAM_BUCKETS];
	uint64_t count;
	uint64_t min, max;   /* exact; of no meaning while count is 0 */
	double sum, squares; /* of the values */
};

/* Count a value; what is above two hours counts as that in the percentiles. */
void histogram_add(struct histogram *h, uint64_t ns);

/* Add all of src to dst. */
void histogram_merge(struct histogram *dst, const struct histogram *src);

/* The value that per cent of the samples don't exceed: 50 is the median. 0 without samples. */
uint64_t histogram_percentile(const struct histogram *h, double per_cent);

/* 0 without samples. */
double histogram_mean(const struct histogram *h);
double histogram_deviation(const struct histogram *h);

#endif
