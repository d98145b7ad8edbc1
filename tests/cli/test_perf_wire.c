/* SPDX-License-Identifier: BSD-2-Clause */
/* What the ends of sgpool perf say, as bytes: all of it there and back, and anything else refused. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "../suite.h"

#include "cli/histogram.h"
#include "cli/perf_wire.h"

static const struct perf_params sane = {.op = PERF_WRITE,
					.mode = PERF_RAW,
					.both = true,
					.events = true,
					.size = 4096,
					.sges = 4,
					.conns = 256,
					.threads = 255,
					.tx = 2048,
					.rx = 2,
					.inlined = 65536};

static const char *there_and_back(const struct perf_message *m, bool client,
				  struct perf_message *got)
{
	struct wire_header header;

	perf_put(&header, m);
	ck_assert_int_eq(header.type, WIRE_PERF);
	ck_assert_uint_eq(header.length, 0);
	return perf_get(&header, client, got);
}

START_TEST(messages)
{
	const struct perf_message said[] = {
		{.say = PERF_SETUP, .id = 0xffffff, .params = sane},
		{.say = PERF_RUN, .id = 1, .count = (UINT64_C(1) << 48) - 1},
		{.say = PERF_END, .id = 2, .count = 7},
		{.say = PERF_CLOSE, .id = 3},
		{.say = PERF_READY, .id = 4, .token = UINT64_MAX},
		{.say = PERF_GO, .id = 5},
		{.say = PERF_RESULT, .id = 6, .figures = {1, 2, 3, 4, 5}},
		{.say = PERF_CLOSED, .id = 7},
		{.say = PERF_FAILED, .id = 8, .error = 12},
	};

	for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
		const bool client = said[i].say <= PERF_CLOSE;
		struct perf_message got;

		ck_assert_ptr_null(there_and_back(&said[i], client, &got));
		ck_assert_int_eq(got.say, said[i].say);
		ck_assert_uint_eq(got.id, said[i].id);
		if (said[i].say == PERF_SETUP) {
			ck_assert_int_eq(got.params.op, sane.op);
			ck_assert_int_eq(got.params.mode, sane.mode);
			ck_assert(!got.params.latency && got.params.both && got.params.events);
			ck_assert_uint_eq(got.params.size, sane.size);
			ck_assert_uint_eq(got.params.sges, sane.sges);
			ck_assert_uint_eq(got.params.conns, sane.conns);
			ck_assert_uint_eq(got.params.threads, sane.threads);
			ck_assert_uint_eq(got.params.tx, sane.tx);
			ck_assert_uint_eq(got.params.rx, sane.rx);
			ck_assert_uint_eq(got.params.inlined, sane.inlined);
		} else if (said[i].say == PERF_RESULT) {
			ck_assert_mem_eq(&got.figures, &said[i].figures, sizeof got.figures);
		} else if (said[i].say == PERF_FAILED) {
			ck_assert_uint_eq(got.error, 12);
		} else if (said[i].say != PERF_CLOSE && said[i].say != PERF_GO &&
			   said[i].say != PERF_CLOSED) {
			ck_assert_uint_eq(got.count, said[i].count);
		}
		ck_assert_ptr_nonnull(there_and_back(&said[i], !client, &got));
	}
}
END_TEST

#define WRONG(member, value)                                                                       \
	do {                                                                                       \
		struct perf_params bad = sane;                                                     \
                                                                                                   \
		bad.member = value;                                                                \
		ck_assert_msg(perf_check(&bad) != NULL, #member " " #value);                       \
	} while (0)

START_TEST(limits)
{
	struct perf_params p = sane;

	ck_assert_ptr_null(perf_check(&p));
	WRONG(op, PERF_OPS);
	WRONG(mode, PERF_MODES);
	WRONG(size, 0);
	WRONG(size, 8);
	WRONG(size, PERF_SIZE_MAX + 4u);
	WRONG(size, 4098);
	WRONG(size, 28);
	WRONG(sges, 0);
	WRONG(sges, 64);
	WRONG(conns, 0);
	WRONG(conns, 254);
	WRONG(conns, 257);
	WRONG(threads, 0);
	WRONG(tx, 1);
	WRONG(tx, 16385);
	WRONG(rx, 1);
	WRONG(rx, 16385);
	WRONG(inlined, 65537);
	WRONG(latency, true);
	p = (struct perf_params){.size = 64, .sges = 1, .conns = 1, .threads = 1, .tx = 2, .rx = 2};
	p.latency = p.events = true;
	ck_assert_ptr_null(perf_check(&p));
	p.op = PERF_WRITE;
	ck_assert_ptr_nonnull(perf_check(&p));
	p = (struct perf_params){
		.size = 1 << 30, .sges = 1, .conns = 1, .threads = 1, .tx = 8, .rx = 8};
	ck_assert_ptr_nonnull(perf_check(&p));
	/* 1 GiB of messages, but in 134 million chunks. */
	p = (struct perf_params){
		.size = 256, .sges = 32, .conns = 256, .threads = 1, .tx = 16384, .rx = 2};
	ck_assert_ptr_nonnull(perf_check(&p));
	p.tx = 128;
	ck_assert_ptr_null(perf_check(&p));
}
END_TEST

/* Any bytes: never more than what is checked. */
START_TEST(anything)
{
	uint32_t x = 1;
	int good = 0;

	for (int i = 0; i < 50000; i++) {
		struct wire_header header = {.type = WIRE_PERF};
		struct perf_message m;
		struct perf_hello hello;
		uint8_t *byte = (uint8_t *)&header;

		for (size_t k = 0; k < sizeof header; k++) {
			x = x * 1664525 + 1013904223;
			byte[k] = x >> 28 < 12 ? 0 : (uint8_t)(x >> 20);
		}
		header.code = header.code % 12;
		if (perf_get(&header, i & 1, &m) == NULL) {
			good++;
			if ((m.say < PERF_READY) != (i & 1) ||
			    (m.say == PERF_SETUP && perf_check(&m.params)) ||
			    ((m.say == PERF_RUN || m.say == PERF_END) && m.count >> 48))
				ck_abort_msg("round %d", i);
		}
		if (!perf_get_hello(byte, sizeof header, &hello))
			ck_abort_msg("a hello in round %d", i);
	}
	ck_assert_int_gt(good, 1000);
}
END_TEST

START_TEST(hellos)
{
	const struct perf_hello said = {65535, UINT16_MAX, UINT64_MAX - 1, UINT64_MAX, 7, 64};
	uint8_t bytes[PERF_DATA_HELLO + 4] = {0};
	struct perf_hello got;

	perf_put_hello(bytes, &said);
	ck_assert_ptr_null(perf_get_hello(bytes, sizeof bytes, &got));
	ck_assert_mem_eq(&got, &said, sizeof got);
	for (size_t n = 0; n < PERF_DATA_HELLO; n++)
		ck_assert_ptr_nonnull(perf_get_hello(bytes, n, &got));
	for (int i = 0; i < 6; i++) { /* magic, version */
		bytes[i] ^= 1;
		ck_assert_ptr_nonnull(perf_get_hello(bytes, sizeof bytes, &got));
		bytes[i] ^= 1;
	}
}
END_TEST

/* ---- the histogram, against a sorted array ---- */

static int by_value(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

START_TEST(percentiles)
{
	enum {
		N = 10000
	};
	static uint64_t v[N];
	static struct histogram h[3];
	static const double per_cent[] = {0, 1, 50, 90, 99, 99.9, 100};
	uint32_t x = (uint32_t)_i + 1;
	double sum = 0;

	memset(h, 0, sizeof h);
	ck_assert_uint_eq(histogram_percentile(h, 50), 0);
	for (int i = 0; i < N; i++) {
		x = x * 1664525 + 1013904223;
		v[i] = (uint64_t)x >> (x >> 8) % 32;
		if (_i == 3)
			v[i] <<= 10; /* large ones */
		sum += (double)v[i];
		histogram_add(&h[i % 2], v[i]);
	}
	histogram_merge(&h[2], &h[0]);
	histogram_merge(&h[2], &h[1]);
	qsort(v, N, sizeof *v, by_value);
	ck_assert_uint_eq(h[2].count, N);
	ck_assert_uint_eq(h[2].min, v[0]);
	ck_assert_uint_eq(h[2].max, v[N - 1]);
	ck_assert_double_eq_tol(histogram_mean(&h[2]), sum / N, sum / N * 1e-9);
	for (size_t i = 0; i < sizeof per_cent / sizeof *per_cent; i++) {
		size_t rank = (size_t)(per_cent[i] * N / 100 + 0.5);
		const double exact = (double)v[rank ? rank - 1 : 0];
		const double got = (double)histogram_percentile(&h[2], per_cent[i]);

		ck_assert_msg(got >= exact * 0.99 && got <= exact * 1.01, "%g %%: %g, not %g",
			      per_cent[i], got, exact);
	}
}
END_TEST

START_TEST(extremes)
{
	static struct histogram h;

	histogram_add(&h, 0);
	histogram_add(&h, UINT64_MAX);
	ck_assert_uint_eq(histogram_percentile(&h, 1), 0);
	ck_assert_uint_eq(h.max, UINT64_MAX);
	ck_assert_uint_gt(histogram_percentile(&h, 99), UINT64_C(7200) * 1000000000);
	ck_assert_double_ge(histogram_deviation(&h), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("perf_wire");
	TCase *tc = tcase_create("perf_wire");

	tcase_add_test(tc, messages);
	tcase_add_test(tc, limits);
	tcase_add_test(tc, anything);
	tcase_add_test(tc, hellos);
	tcase_add_loop_test(tc, percentiles, 0, 4);
	tcase_add_test(tc, extremes);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
