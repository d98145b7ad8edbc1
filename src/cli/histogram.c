/* SPDX-License-Identifier: BSD-2-Clause */
/* Times in buckets. */
#include <math.h>

#include "cli/histogram.h"

enum {
	FINE_BITS = 7
};
_Static_assert(HISTOGRAM_FINE == 1 << FINE_BITS, "buckets of an octave");

static unsigned int bucket_of(uint64_t ns)
{
	unsigned int octave, bucket;

	if (ns >> (FINE_BITS + 1) == 0)
		return (unsigned int)ns;
	octave = 63 - (unsigned int)__builtin_clzll(ns) - FINE_BITS; /* 1 .. */
	bucket = octave * HISTOGRAM_FINE + (unsigned int)(ns >> octave);
	return bucket < HISTOGRAM_BUCKETS ? bucket : HISTOGRAM_BUCKETS - 1;
}

/* The middle of what a bucket holds. */
static uint64_t value_of(unsigned int bucket)
{
	unsigned int octave;

	if (bucket < 2 * HISTOGRAM_FINE)
		return bucket;
	octave = bucket / HISTOGRAM_FINE - 1;
	return ((uint64_t)(bucket - octave * HISTOGRAM_FINE) << octave) +
	       (UINT64_C(1) << octave) / 2;
}

void histogram_add(struct histogram *h, uint64_t ns)
{
	const double v = (double)ns;

	h->bucket[bucket_of(ns)]++;
	if (h->count == 0 || ns < h->min)
		h->min = ns;
	if (h->count == 0 || ns > h->max)
		h->max = ns;
	h->count++;
	h->sum += v;
	h->squares += v * v;
}

void histogram_merge(struct histogram *dst, const struct histogram *src)
{
	if (src->count == 0)
		return;
	for (unsigned int i = 0; i < HISTOGRAM_BUCKETS; i++)
		dst->bucket[i] += src->bucket[i];
	if (dst->count == 0 || src->min < dst->min)
		dst->min = src->min;
	if (dst->count == 0 || src->max > dst->max)
		dst->max = src->max;
	dst->count += src->count;
	dst->sum += src->sum;
	dst->squares += src->squares;
}

uint64_t histogram_percentile(const struct histogram *h, double per_cent)
{
	const double want = (double)h->count * per_cent / 100;
	uint64_t seen = 0, value = h->max;

	if (h->count == 0)
		return 0;
	for (unsigned int i = 0; i < HISTOGRAM_BUCKETS; i++) {
		seen += h->bucket[i];
		if (seen && (double)seen >= want) {
			value = value_of(i);
			break;
		}
	}
	/* A bucket's middle may lie outside of what was seen. */
	return value > h->max ? h->max : value < h->min ? h->min : value;
}

double histogram_mean(const struct histogram *h)
{
	return h->count ? h->sum / (double)h->count : 0;
}

double histogram_deviation(const struct histogram *h)
{
	const double mean = histogram_mean(h);
	const double variance = h->count ? h->squares / (double)h->count - mean * mean : 0;

	return variance > 0 ? sqrt(variance) : 0;
}
